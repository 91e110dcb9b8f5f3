"""Joint damping in rollouts: implicit by default, and explicit steps that are too long."""

import dataclasses
import re
import warnings
from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state
from support.integrator_cases import run

import rbd_jax as rbd
from rbd_jax import identify, optimize as opt, samples
from rbd_jax.derivatives.custom_jvp.implicit_step import implicit_step_dynamics
from rbd_jax.optimize.linear_quadratic import _lq_approximation as expansion
from rbd_jax.simulate import (
    INTEGRATORS,
    ConstrainedRobot,
    damping_rate,
    implicitly_damped,
    stable_step,
)
from rbd_jax.simulate._half_turn import squared_turns

ARM = """<robot name="r"><link name="base"/>
  <link name="a"><inertial><origin xyz="0.1 0 -0.2"/><mass value="1.5"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="b"><inertial><origin xyz="0 0.05 0.1"/><mass value="0.01"/>
    <inertia ixx="2e-6" iyy="3e-6" izz="4e-6" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="a"/>
    <axis xyz="0 1 0"/><dynamics damping="0.5"/></joint>
  <joint name="finger" type="continuous"><parent link="a"/><child link="b"/>
    <origin xyz="0 0 -0.4"/><axis xyz="1 0 0"/><dynamics damping="3"/></joint></robot>"""
# The limp arms of these robots have little or no damping. They swing ever faster, and their light
# wrists turn by a large part of a radian in a step of 2 ms.
WHIRLING = {
    "panda",
    "panda_collision",
    "kinova",
    "anymal-kinova",
    "g1_29dof_rev_1_0",
    "romeo_small",
}


@pytest.mark.float64
def test_implicit_damping_is_the_euler_step_of_mujoco():
    mujoco = pytest.importorskip("mujoco")
    m, mj = rbd.load_urdf(ARM), mujoco.MjModel.from_xml_string(ARM)
    mj.opt.timestep = dt = 0.01
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = q, v = np.array([0.3, -0.2]), np.array([1.0, 2.0])
    tau = data.qfrc_applied[:] = np.array([0.4, 0.1])
    run = lambda how: rbd.rollout(  # noqa: E731
        m, jnp.array(q), jnp.array(v), jnp.tile(tau, (40, 1)), dt, **how
    )
    path = run({})  # it is the default
    for k in range(1, 41):
        mujoco.mj_step(mj, data)
        np.testing.assert_allclose(path.q[k], data.qpos, atol=1e-11)
        np.testing.assert_allclose(path.v[k], data.qvel, atol=1e-9)
    with pytest.warns(UserWarning, match="are unstable under the joint damping of robot 'r'"):
        assert not bool(jnp.abs(run({"integrator": "semi_implicit_euler"}).v).max() < 1e6)


@pytest.mark.float64
def test_implicit_damping_of_one_wheel_in_closed_form():
    m = samples.pendulum()
    leaves = lambda m: (m.gravity, m.damping)  # noqa: E731
    m = eqx.tree_at(leaves, m, (jnp.zeros(3), jnp.full(1, 1e4)))
    I = float(run.mass_matrix(m, jnp.zeros(1))[0, 0])
    dt, d = jnp.asarray(0.1), jnp.ones(1)

    def end(damping):
        robot = eqx.tree_at(lambda m: m.damping, m, damping * d)
        return rbd.step(robot, 0 * d, d, 0 * d, dt)[1][0]

    v, slope = jax.jit(jax.value_and_grad(end))(jnp.asarray(1e4))
    assert float(v) == pytest.approx(1 / (1 + 1e3 / I), rel=1e-12)
    assert float(slope) == pytest.approx(-0.1 / I / (1 + 1e3 / I) ** 2, rel=1e-12)
    with pytest.raises(TypeError, match="needs accelerations that know their damping"):
        rbd.simulate.implicit_damping(m, lambda t, q, v: v, dt, d, d, dt)


def _example(name: str):
    """An example robot in float32."""
    return rbd.load_urdf(rbd.io.example_robot(name), dtype=jnp.float32)


def _at_rest(m, **options):
    """The states of 2 seconds from rest at the neutral configuration, and energies, in float32."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        q, v = rbd.neutral(m), jnp.zeros(m.nv)
        options = {"steps": 1000, "stride": 100} | options

        def energy(t, q, v):
            return rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q)

        return rbd.rollout(m, q, v, lambda t, q, v: 0 * v, 0.002, observe=energy, **options)


QUICK = {"xarm7", "allegro_left_hand", "hextilt_flying_arm_5", "tiago_no_hand", "hyq_no_sensors"}


def _damped_robots() -> list:
    robots = rbd.io.example_robots()
    text = {name: path.read_text(errors="ignore") for name, path in robots.items()}
    names = [n for n in robots if 'damping="' in text[n] and n not in WHIRLING]
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", _damped_robots())
def test_damped_robots_that_start_at_rest_settle(name):
    """By default, at 2 ms and in float32: finite, and less energy than at the start."""
    try:
        m = _example(name)
    except rbd.RobotDescriptionError:
        pytest.skip("the description has no tree of known joints")
    if not np.any(m.damping):
        pytest.skip("its damping is zero")
    path = _at_rest(m)
    chex.assert_tree_all_finite((path.q, path.v))
    E = np.asarray(path.observations)
    assert E[-1] <= E[0] + 1e-5 * np.abs(E).max()


WHIRLS = [
    n if n == "panda" else pytest.param(n, marks=pytest.mark.slow)
    for n in [*sorted(WHIRLING), "human"]
]


@pytest.mark.parametrize("name", WHIRLS)
def test_limp_arms_that_whirl_stay_finite_with_implicit_coriolis_torques(name):
    """The default of the command line: their limbs whirl, and energy does not come from nowhere."""
    m = _example(name)
    path = _at_rest(m, integrator="implicit_coriolis")
    assert np.isfinite(path.v).all() and np.abs(path.v).max() > 10
    if name == "human":  # near gimbal lock no step follows; loading names the hinges
        return
    E = np.asarray(path.observations)
    assert np.diff(E).max() < 0.3 * (np.abs(E).max() + 1)
    assert E[-1] < E[0] + 0.3 * (np.abs(E[0]) + 1)


@pytest.mark.parametrize("name", WHIRLS)
def test_limp_arms_that_whirl_stay_finite_by_default(name):
    """A default rollout of 6 s slows down what no step of 2 ms follows, and names the joint."""
    m = _example(name)
    with pytest.warns(UserWarning, match="turns by more than a quarter of a revolution in a step"):
        path = _at_rest(m, steps=3000, stride=100)
    assert np.isfinite(path.v).all()
    turns = np.sqrt(jax.vmap(lambda v: squared_turns(m, v, 0.002))(path.v))
    assert np.pi / 2 < turns.max() < np.pi


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WHIRLING))
def test_limp_arms_that_whirl_are_followed_by_rk4(name):
    m = _example(name)
    path = _at_rest(m, integrator="rk4")
    assert np.isfinite(path.v).all() and np.abs(path.v).max() > 10
    E = np.asarray(path.observations)
    assert E.max() - E[0] < 0.03 * (np.abs(E).max() + 1)


@pytest.mark.parametrize("joints", ["free", "driven"])
def test_a_step_with_implicit_coriolis_torques_solves_its_equation(joints):
    """``M a + (D + C) v⁺ = τ − g``, also in the independent coordinates of driven joints."""
    m = samples.quadruped() if joints == "free" else rbd.load_urdf(rbd.io.example_robot("panda"))
    s, dt = random_state(m), 0.05

    @jax.jit
    def both(f_ext):
        v = rbd.step(m, s.q, 10 * s.v, s.tau, dt, integrator="implicit_coriolis", f_ext=f_ext)[1]
        C = rbd.coriolis_matrix(m, s.q, 10 * s.v)
        D = (rbd.mass_matrix(implicitly_damped(m, dt), s.q) - rbd.mass_matrix(m, s.q)) / dt
        zero = jnp.zeros(m.nv)
        weight = rbd.inverse_dynamics(m, s.q, zero, zero, f_ext)
        return rbd.mass_matrix(m, s.q) @ (v - 10 * s.v) / dt + (D + C) @ v, s.tau - weight

    left, right = both(jax.random.normal(jax.random.key(1), (m.nb, 6)))
    assert_close(left, right, atol=1e-9)


@pytest.mark.slow
@pytest.mark.float64
def test_implicit_coriolis_torques_converge_and_have_derivatives():
    m = samples.quadruped()
    s = random_state(m)

    @partial(jax.jit, static_argnums=(0, 1))
    def end(integrator, n, v):
        u = jnp.zeros((n, m.nv))
        return rbd.rollout(m, s.q, v, u, 0.1 / n, integrator=integrator, gradient="adjoint").v[-1]

    exact = end("rk4", 400, s.v)
    errors = [float(jnp.abs(end("implicit_coriolis", n, s.v) - exact).max()) for n in (100, 200)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    value = jax.jit(lambda v: jnp.sum(jnp.sin(end("implicit_coriolis", 10, v))))
    slope, h = float(jnp.sum(jax.jit(jax.grad(value))(s.v))), 1e-5
    assert float((value(s.v + h) - value(s.v - h)) / (2 * h)) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize(
    "model",
    ["random_tree", *(pytest.param(x, marks=pytest.mark.slow) for x in ("quadruped", "pendulum"))],
    indirect=True,
)
@pytest.mark.parametrize("second", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_accelerations_of_an_implicit_step_have_exact_derivatives(model, state, second):
    """Elimination along the branches and the implicit rule, against dense algebra and autodiff."""
    damping = jnp.abs(jnp.sin(1 + jnp.arange(float(model.nv))))
    model = eqx.tree_at(lambda m: m.damping, model, damping)
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    w, dt = jnp.cos(1 + jnp.arange(float(model.nv))), jnp.asarray(0.1)

    def branches(arrays, q, v, tau, dt):
        return implicit_step_dynamics(eqx.combine(arrays, static), q, v, tau, dt)

    def dense(arrays, q, v, tau, dt):
        m = eqx.combine(arrays, static)
        A = rbd.mass_matrix(m, q) + dt * (rbd.coriolis_matrix(m, q, v) + jnp.diag(m.damping))
        return jnp.linalg.solve(A, tau - rbd.rnea(m, q, v, jnp.zeros_like(v)))

    def all_of(f):
        def both(x, v):
            found = f(*x), jax.grad(lambda x: w @ f(*x))(x)
            if not second:
                return found
            return *found, jax.jacfwd(jax.grad(lambda v: w @ f(x[0], x[1], v, *x[3:])))(v)

        x = arrays, state.q, 3 * state.v, state.tau, dt
        return quick_jit(both)(x, x[2])

    for a, b in zip(*(jax.tree.leaves(all_of(f)) for f in (branches, dense)), strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_motion_that_is_not_finite_is_told():
    m = samples.double_pendulum()
    q, v = jnp.ones(m.nv), jnp.ones(m.nv)

    def push(t, q, v):
        return jnp.where(t > 0.035, jnp.inf, 0.0) * v

    told = r"rollout: the motion of robot '.*' is not finite from t = 0.05 s on at steps of 0.01 s"
    with pytest.warns(
        UserWarning, match=told + r"; joint \S+ was the.* or the integrator 'implicit_coriolis'"
    ):
        rbd.rollout(m, q, v, push, 0.01, steps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbd.rollout(m, q, v, push, 0.01, steps=3)
        rbd.rollout(m, jnp.nan * q, v, push, 0.01, steps=3)
        jax.jit(lambda q: rbd.rollout(m, q, v, push, 0.01, steps=8))(q)


def test_joints_that_move_no_mass_are_named_when_a_motion_is_not_finite():
    text = re.sub(r'\d+e-6|0\.01(?="/)', "0", ARM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.RobotDescriptionWarning)
        m = rbd.load_urdf(text.replace('damping="3"', 'damping="0"'))
    q, v = jnp.array([0.3, -0.2]), jnp.zeros(2)
    with pytest.warns(UserWarning, match=r"mass matrix is singular at its start.*: 'finger'; give"):
        rbd.rollout(m, q, v, jnp.zeros((3, 2)), 0.01)


def test_a_motion_that_is_not_finite_is_an_error_if_asked_for():
    """Also in compiled and mapped rollouts, where no warning could be given."""
    m = samples.double_pendulum()
    v = jnp.ones(m.nv)

    def end(q, last=0.035, steps=8):
        push = lambda t, q, v: jnp.where(t > last, jnp.inf, 0.0) * v  # noqa: E731
        return rbd.rollout(m, q, v, push, 0.01, steps=steps, throw=True).q[-1]

    told = r"the motion of robot '.*' is not finite from t = 0.05 s on at steps of 0.01 s; joint \S"
    with pytest.raises(RuntimeError, match=told):
        end(v)
    told = "the motion of robot '.*' is not finite at steps of 0.01 s; .* 'implicit_coriolis'"
    for call, q in ((jax.jit(end), v), (jax.jit(jax.vmap(end)), jnp.ones((3, 2)))):
        with pytest.raises(Exception, match=told):
            jax.block_until_ready(call(q))
    steps = lambda q: end(q, 1.0)  # noqa: E731
    plain = lambda q: rbd.rollout(m, q, v, jnp.zeros((8, 2)), 0.01).q[-1]  # noqa: E731
    found, right = (
        quick_jit(jax.vmap(jax.value_and_grad(lambda q, f=f: jnp.sum(f(q)))))(v[None])
        for f in (steps, plain)
    )
    assert_close(found, right, atol=1e-12)


def test_implicit_coriolis_torques_need_a_free_robot():
    m = samples.quadruped()
    s = random_state(m)
    with pytest.raises(TypeError, match="needs the accelerations of rollout or step"):
        rbd.simulate.implicit_coriolis(m, lambda t, q, v: v, 0.0, s.q, s.v, 0.01)
    feet = rbd.constraints.point(m, m.topology.body_names[-1])
    with pytest.raises(ValueError, match="moves robots without constraints"):
        stands = ConstrainedRobot(m, "implicit_coriolis", constraints=feet)
        rbd.rollout(stands, s.q, s.v, s.tau[None], 0.01)


def test_robots_without_damping_take_the_explicit_step():
    m = samples.quadruped()
    m = eqx.tree_at(lambda m: m.damping, m, 0 * m.damping)
    s = random_state(m)

    def ends(how):
        return rbd.rollout(m, s.q, s.v, jnp.ones((5, m.nv)), 0.01, integrator=how)[1:3]

    for a, b in zip(*(jax.jit(ends, static_argnums=0)(how) for how in
                      ("implicit_damping", "semi_implicit_euler")), strict=True):  # fmt: skip
        assert bool(jnp.all(a == b))


@pytest.mark.float64
@pytest.mark.parametrize("gradient", [pytest.param("full", marks=pytest.mark.slow), "adjoint"])
def test_gradients_of_the_default_by_every_place_of_damping(gradient):
    m = rbd.load_urdf(ARM)

    def end(damping, armature):
        robot = eqx.tree_at(lambda m: [m.damping, m.armature], m, [damping, armature])
        x = jnp.array([0.3, -0.2]), jnp.array([1.0, 2.0]), jnp.ones((20, 2))
        path = rbd.rollout(robot, *x, 0.002, gradient=gradient)
        return jnp.sum(jnp.sin(path.q[-1]) + path.v[-1] * path.v[-1])

    x, h = (jnp.array([0.5, 3.0]), jnp.array([0.1, 1e-4])), 1e-4
    slopes = quick_jit(jax.grad(end, argnums=(0, 1)))(*x)
    value = quick_jit(end)
    for which, slope in enumerate(slopes):
        for i in range(2):
            step = h * float(x[which][i]) * jnp.eye(2)[i]
            moved = [[y + s * step if k == which else y for k, y in enumerate(x)] for s in (1, -1)]
            differences = (value(*moved[0]) - value(*moved[1])) / (2 * float(step[i]))
            assert float(differences) == pytest.approx(float(slope[i]), rel=1e-6)


def test_computed_torques_of_the_damped_robot_are_exact():
    """Those of the robot itself reach a wrong velocity, those of the step's robot the right one."""
    m = rbd.load_urdf(ARM)
    s, dt = random_state(m), 0.002
    a = jnp.array([3.0, -2.0])

    def reached(robot):
        return rbd.step(m, s.q, s.v, rbd.inverse_dynamics(robot, s.q, s.v, a), dt)[1]

    right, wrong = jax.jit(lambda: (reached(implicitly_damped(m, dt)), reached(m)))()
    assert_close(right, s.v + dt * a, atol=1e-12)
    assert float(jnp.abs(wrong - s.v - dt * a).max()) > 1e-3


@pytest.mark.float64
def test_robots_with_mimic_joints_are_damped_in_their_coordinates():
    """The step is that of ``(M + dt D) a = τ − h − D v`` with the matrices of the coordinates."""
    text = ARM.replace('<axis xyz="1 0 0"/><dynamics damping="3"/>',
                       '<axis xyz="1 0 0"/><dynamics damping="3"/>'
                       '<mimic joint="shoulder" multiplier="-2"/>')  # fmt: skip
    m, dt = rbd.load_urdf(text), 0.01
    assert m.nv == 1
    q, v, tau = jnp.array([0.3]), jnp.array([1.5]), jnp.array([0.2])
    D = 0.5 + 4 * 3.0
    M = rbd.crba(m, q)[0, 0]
    a = (tau - rbd.bias_torque(m, q, v)) / (M + dt * D)
    assert_close(rbd.step(m, q, v, tau, dt)[1], v + dt * a, atol=1e-12)
    assert damping_rate(m, q) == pytest.approx(D / float(M), rel=1e-9)


@pytest.mark.parametrize("name", ["semi_implicit_euler", "heun", "kutta3", "rk4", "momentum_rk4"])
def test_explicit_steps_are_stable_up_to_the_stated_length(name):
    """A wheel with damping slows down in steps that are a bit shorter, and not in longer ones."""
    m = samples.pendulum()
    m = eqx.tree_at(lambda m: (m.gravity, m.damping), m, (jnp.zeros(3), jnp.ones(1)))
    longest = stable_step(m, name)
    zero = jnp.zeros((60, 1))

    @jax.jit
    def last(m, dt):  # traced, so that nothing is said
        return rbd.rollout(m, zero[0], jnp.ones(1), zero, dt, integrator=name).v[-1, 0]

    assert abs(float(last(m, 0.98 * longest))) < 0.8 < 1.2 < abs(float(last(m, 1.02 * longest)))
    assert stable_step(m, "implicit_damping") == stable_step(m, "generalized_alpha") == np.inf
    assert stable_step(eqx.tree_at(lambda m: m.damping, m, jnp.zeros(1)), name) == np.inf


def test_steps_that_are_too_long_are_told():
    m = rbd.load_urdf(ARM)
    q, v, u = jnp.array([0.3, -0.2]), jnp.ones(2), jnp.zeros((3, 2))
    told = (
        r"rollout: steps of 0.002 s with the integrator 'rk4' are unstable .* eigenvalue of M⁻¹D "
        r"is [\d.e+]+ 1/s at this .* shorter than 0.000\d* s.*'implicit_damping'"
    )
    with pytest.warns(UserWarning, match=told):
        rbd.rollout(m, q, v, u, 0.002, integrator="rk4")
    neutral = "at the neutral configuration"
    with pytest.warns(UserWarning, match=neutral):  # a robot that is not traced, in a program
        jax.jit(lambda q: rbd.rollout(m, q, v, u, 0.002, integrator="rk4"))(q)
    with pytest.warns(UserWarning, match=neutral):
        jax.vmap(lambda q: rbd.step(m, q, v, u[0], 0.002, integrator="midpoint"))(q[None])
    with pytest.warns(UserWarning, match=r"^step_derivatives: "):
        rbd.simulate.step_derivatives(m, q, v, u[0], 0.002, integrator="rk4")
    with pytest.warns(UserWarning, match=r"^Problem: "):
        opt.Problem(m, lambda *x: x[-1], lambda *x: x[-1], 0.002, 3, integrator="rk4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbd.rollout(m, q, v, u, 0.002, integrator="rk4", substeps=100)
        rbd.rollout(m, q, v, u, 0.002, integrator="generalized_alpha")
        opt.Problem(m, lambda *x: x[-1], lambda *x: x[-1], 0.002, 3)


def test_loading_says_which_joints_need_short_explicit_steps():
    told = r"robot 'r': joints with so much damping .* shorter than 0.0000\d+ s .*: 'finger'"
    told = told.replace(r"0.0000\d+", r"8.\de-05")
    with pytest.warns(rbd.RobotDescriptionWarning, match=told):
        rbd.load_urdf(ARM)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbd.load_urdf(ARM.replace('damping="3"', 'damping="1e-4"'))


@pytest.mark.slow
def test_optimizers_take_the_same_step():
    """Slopes and curvature of a problem in closed form, against autodiff of the rollout's step."""
    m = rbd.load_urdf(ARM)
    problem = opt.Problem(m, lambda m, t, q, v, u: u, lambda m, q, v: v, 0.01, 3)
    assert problem.kind.robot(problem) is not None
    x, u = random_state(m), jnp.ones((3, 2))
    lam = jnp.cos(jnp.arange(12.0)).reshape(3, 4)

    @quick_jit
    def both(v):
        path = problem.simulate(x.q, v, u)
        plain = rbd.rollout(m, x.q, v, u, 0.01)
        at = path.q[:-1], path.v[:-1], u
        closed = *problem.derivatives(*at), expansion.curvature(problem, path.q, path.v, u, lam)

        def end(z):
            q, v = rbd.step(m, *problem.moved(*(y[1] for y in at), z), 0.01)
            return jnp.concatenate([rbd.difference(m, path.q[2], q), v])

        J = jax.jacfwd(end)(jnp.zeros(6))
        H = jax.jacfwd(jax.jacfwd(end))(jnp.zeros(6))
        weighted = jnp.tensordot(lam[1], H, 1)
        return [y[1] for y in closed], (J[:, :4], J[:, 4:], weighted), path.v, plain.v

    for speed in (1, 500):  # the second turns the shoulder by 5 rad in a step
        closed, autodiff, mine, plain = both(speed * x.v)
        assert (float(jnp.abs(plain[1:]).max()) * 0.01 > np.pi / 2) == (speed > 1)
        assert_close(mine, plain, atol=1e-13 * speed)
        for a, b in zip(closed, autodiff, strict=True):
            assert_close(a, b, atol=1e-9 * speed)


@pytest.mark.slow
def test_legged_problems_take_the_same_step():
    """A quadruped on its feet: the steps of the problem, those of a rollout, and their slopes."""
    m = samples.quadruped()
    stiff = eqx.tree_at(lambda m: m.damping, m, m.damping.at[6:].set(50.0))
    task = rbd.tasks.trot(m)
    p = task.problem
    on = jnp.ones((3, p.plant.active.shape[1]), bool)
    plant = dataclasses.replace(p.plant, model=stiff, active=on)
    p = opt.Problem(plant, p.stage, p.final, 0.01, 3)
    v = random_state(stiff).v

    @quick_jit
    def both(u):
        mine = p.simulate(task.q0, v, u)
        held = plant.constraints.with_active(on[0])
        tau = jnp.matmul(u, plant.actuation.T, precision="highest")
        plain = rbd.rollout(ConstrainedRobot(stiff, constraints=held), task.q0, v, tau, 0.01)
        by_u = p.derivatives(mine.q[:-1], mine.v[:-1], u)[1][0]
        step = jax.jacfwd(lambda u: p.step(0, task.q0, v, u)[1])(u[0])
        return (mine.q, mine.v, by_u[p.model.nv :]), (plain.q, plain.v, step)

    for a, b in zip(*both(task.u[:3] + 1.0), strict=True):
        assert_close(a, b, atol=1e-9)


def test_tasks_choose_a_step_that_is_stable():
    """The one task that wants more than order 1 takes an implicit step for a damped robot."""
    m = samples.quadruped()
    stiff = eqx.tree_at(lambda m: m.damping, m, m.damping.at[6:].set(50.0))
    assert stable_step(stiff, "rk4") < 0.012 < stable_step(m, "rk4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rbd.tasks.reorient(m).problem.plant.integrator is INTEGRATORS["rk4"]
        assert stable_step(stiff, rbd.tasks.reorient(stiff).problem.plant.integrator) == np.inf


def test_learned_dynamics_take_the_same_step():
    m = rbd.load_urdf(ARM)
    x, u = random_state(m), jnp.ones((40, 2))
    dynamics = identify.learned_dynamics(m, ("torque",), jax.random.key(0))
    a, b = (quick_jit(lambda f=f: f(x.q, x.v, u, 0.01).v)() for f in
            (dynamics.rollout, lambda *x: rbd.rollout(m, *x)))  # fmt: skip
    assert bool(jnp.isfinite(a).all())
    assert_close(a, b, atol=1e-12)
