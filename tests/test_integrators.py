"""Integrators on the manifold: order, conservation, rollouts and gradients through them."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.calls import quick_jit
from support.helpers import (
    Compiled,
    assert_close,
    cast,
    model,
    random_state,
    scale_quaternions,
    stack,
)

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import INTEGRATORS

run = Compiled(rbd)
ORDERS = {"semi_implicit_euler": 1, "rk4": 4}
METHODS = {"semi_implicit_euler": rbd.simulate.semi_implicit_euler, "rk4": rbd.simulate.rk4}
ROBOTS = {
    "free": lambda: samples.random_tree(1, kinds=("free",)),
    "spherical": lambda: samples.random_tree(2, kinds=("spherical", "spherical")),
    "all_kinds": lambda: samples.random_tree(0),
    "planar": lambda: model("only_planar"),
    "helical": lambda: model("only_helical"),
}


# --- stiff damping ----------------------------------------------------------------------------

ARM = """<robot name="r"><link name="base"/>
  <link name="a"><inertial><origin xyz="0.1 0 -0.2"/><mass value="1.5"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="b"><inertial><origin xyz="0 0.05 0.1"/><mass value="0.01"/>
    <inertia ixx="2e-6" iyy="3e-6" izz="4e-6" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="a"/>
    <axis xyz="0 1 0"/><dynamics damping="0.5"/></joint>
  <joint name="finger" type="continuous"><parent link="a"/><child link="b"/>
    <origin xyz="0 0 -0.4"/><axis xyz="1 0 0"/><dynamics damping="3"/></joint></robot>"""


def test_implicit_damping_is_the_euler_step_of_mujoco():
    mujoco = pytest.importorskip("mujoco")
    m, mj = rbd.load_urdf(ARM), mujoco.MjModel.from_xml_string(ARM)
    mj.opt.timestep = dt = 0.01
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = q, v = np.array([0.3, -0.2]), np.array([1.0, 2.0])
    tau = data.qfrc_applied[:] = np.array([0.4, 0.1])
    run = jax.jit(lambda n, how: rbd.rollout(  # noqa: E731
        m, jnp.array(q), jnp.array(v), jnp.tile(tau, (n, 1)), dt, integrator=how
    ), static_argnums=(0, 1))  # fmt: skip
    path = run(40, "implicit_damping")
    for k in range(1, 41):
        mujoco.mj_step(mj, data)
        np.testing.assert_allclose(path.q[k], data.qpos, atol=1e-11)
        np.testing.assert_allclose(path.v[k], data.qvel, atol=1e-9)
    assert not bool(jnp.abs(run(40, "semi_implicit_euler").v).max() < 1e6)


def test_implicit_damping_of_one_wheel_in_closed_form():
    m = samples.pendulum()
    leaves = lambda m: (m.gravity, m.damping)  # noqa: E731
    m = eqx.tree_at(leaves, m, (jnp.zeros(3), jnp.full(1, 1e4)))
    I = float(run.mass_matrix(m, jnp.zeros(1))[0, 0])
    dt, d = jnp.asarray(0.1), jnp.ones(1)

    def end(damping):
        robot = eqx.tree_at(lambda m: m.damping, m, damping * d)
        return rbd.step(robot, 0 * d, d, 0 * d, dt, integrator="implicit_damping")[1][0]

    v, slope = jax.jit(jax.value_and_grad(end))(jnp.asarray(1e4))
    assert float(v) == pytest.approx(1 / (1 + 1e3 / I), rel=1e-12)
    assert float(slope) == pytest.approx(-0.1 / I / (1 + 1e3 / I) ** 2, rel=1e-12)
    with pytest.raises(TypeError, match="where the damping of the accelerations is known"):
        rbd.simulate.implicit_damping(m, lambda t, q, v: v, dt, d, d, dt)


# --- order ------------------------------------------------------------------------------------


def _actuated(m, w, t, q, v):
    """Accelerations under torques that depend on the time, so that the nodes in time matter."""
    return rbd.aba(m, q, v, w * jnp.cos(3 * t))


@cache
def _stepper(method: str):
    def many(m, w, q, v, dt, steps):
        def step(k, state):
            t = k.astype(dt.dtype) * dt
            return METHODS[method](m, partial(_actuated, m, w), t, *state, dt)

        return jax.lax.fori_loop(0, steps, step, (q, v))

    return quick_jit(many)


def _end(method, m, s, time, steps):
    dt = jnp.asarray(time / steps, m.dtype)
    return _stepper(method)(m, s.tau, s.q, s.v, dt, jnp.asarray(steps))


@cache
def _exact(name, time):
    m = ROBOTS[name]()
    return _end("rk4", m, random_state(m, 2), time, 4096)


@pytest.mark.parametrize(
    "name",
    ["free", "spherical", "all_kinds"]
    + [pytest.param(n, marks=pytest.mark.slow) for n in ("planar", "helical")],
)
@pytest.mark.parametrize("method", ORDERS)
def test_order_on_the_manifold(method, name):
    """Halving the step divides the error at the end by 2ᵖ, in q (on the manifold) and in v."""
    m, time = ROBOTS[name](), 0.25
    s = random_state(m, 2)
    q, v = _exact(name, time)
    steps = (128, 256, 512) if method == "semi_implicit_euler" else (32, 64, 128)
    errors = []
    for n in steps:
        qn, vn = _end(method, m, s, time, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (run.difference(m, q, qn), vn - v)])
    orders = np.log2(np.array(errors)[:-1] / np.array(errors)[1:])
    print(name, method, "orders", orders.round(2).tolist(), "errors", errors)
    assert (np.abs(orders[-1] - ORDERS[method]) < 0.25).all()


# --- conservation -----------------------------------------------------------------------------


def _spinning_body():
    link = rbd.LinkSpec("body", 1.5, np.array([0.1, -0.2, 0.05]), np.diag([0.3, 0.5, 0.7]))
    spec = rbd.RobotSpec("body", (link,), ())
    return rbd.build_model(spec, floating_base=True, gravity=(0.0, 0.0, 0.0))


@pytest.mark.parametrize("method", ORDERS)
def test_a_free_body_conserves_momentum_to_the_order_of_the_method(method):
    m = _spinning_body()
    s = random_state(m, 1)
    free = s._replace(tau=jnp.zeros_like(s.tau), v=2 * s.v)
    before = run.centroidal_momentum(m, free.q, free.v)
    energy = run.kinetic_energy(m, free.q, free.v)
    drift = []
    for n in (100, 200, 400):
        q, v = _end(method, m, free, 1.0, n)
        change = jnp.linalg.norm(run.centroidal_momentum(m, q, v) - before)
        drift.append([float(change), float(abs(run.kinetic_energy(m, q, v) - energy))])
    orders = np.log2(np.array(drift)[:-1] / np.array(drift)[1:])
    print(method, "drift of momentum and energy", drift, "orders", orders.round(2).tolist())
    assert (orders[-1] > ORDERS[method] - 0.25).all()
    assert drift[-1][0] < (1e-1 if method == "semi_implicit_euler" else 1e-6)


@pytest.mark.parametrize("name", ["double_pendulum", "only_spherical"])
def test_energy_drift_of_a_passive_robot_falls_with_the_order(name):
    """Without damping and torques, over 2 s."""
    m = model(name)
    m = eqx.tree_at(lambda m: m.damping, m, jnp.zeros_like(m.damping))
    s = random_state(m, 4)
    s = s._replace(tau=jnp.zeros_like(s.tau))
    energy = lambda q, v: run.kinetic_energy(m, q, v) + run.potential_energy(m, q)  # noqa: E731
    start = energy(s.q, s.v)
    for method, p in ORDERS.items():
        drift = [abs(float(energy(*_end(method, m, s, 2.0, n)) - start)) for n in (1000, 2000)]
        print(name, method, "energy drift", drift, "of", float(start))
        assert np.log2(drift[0] / drift[1]) > p - 0.3
    assert drift[-1] < 1e-7 * abs(float(start))


def test_semi_implicit_euler_keeps_the_energy_of_a_pendulum_bounded():
    """A symplectic method: over 200 s the error swings, but does not grow."""
    m = samples.pendulum()
    q0, v0 = jnp.array([1.0]), jnp.zeros(1)
    run = jax.jit(lambda u: rbd.rollout(m, q0, v0, u, 0.01))
    path = run(jnp.zeros((20_000, 1)))
    energy = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
    E = np.asarray(jax.jit(energy)(path.q, path.v))
    error = np.abs(E - E[0])
    early, late = error[:10_000].max(), error[10_000:].max()
    assert 1e-3 < early < 0.5
    assert late < 1.01 * early


def test_damping_takes_energy_away():
    m = ROBOTS["all_kinds"]()
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.zeros(3))
    s = random_state(m)
    s = s._replace(tau=jnp.zeros_like(s.tau))
    energies = [float(run.kinetic_energy(m, s.q, s.v))]
    for n in (20, 40, 60):
        energies.append(float(run.kinetic_energy(m, *_end("rk4", m, s, 0.002 * n, n))))
    assert (np.diff(energies) < -1e-3 * energies[0]).all()


@cache
def small() -> rbd.Model:
    return samples.random_tree(4, kinds=("spherical", "revolute", "free"))


# --- derivatives of a step --------------------------------------------------------------------

STEPS = [("no free joint", method) for method in ("semi_implicit_euler", "kutta3")]
STEPS += [pytest.param("small", method, marks=pytest.mark.slow) for method in INTEGRATORS]


@pytest.mark.parametrize("name, method", STEPS)
def test_step_derivatives_equal_differences_on_the_manifold(name, method):
    """All of A and B, at a long step, by differences of fourth order: ``(4 D(h) − D(2h)) / 3``."""
    m = small() if name == "small" else samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(m, 3)
    dt, h = jnp.asarray(0.05), 1e-3

    @quick_jit
    def both(m, s):
        def end(d):
            dq, dv, dtau = jnp.split(d, 3)
            x = rbd.integrate(m, s.q, dq), s.v + dv, s.tau + dtau
            return rbd.step(m, *x, dt, integrator=method, f_ext=s.f_ext)

        at = h * jnp.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * jnp.eye(3 * m.nv)[None]
        q, v = jax.vmap(jax.vmap(end))(at)
        move = jax.vmap(partial(rbd.difference, m))  # to second order the tangent at the middle
        near, far = (
            jnp.concatenate([move(q[k + 1], q[k]), v[k] - v[k + 1]], axis=1) for k in (0, 2)
        )
        blocks = rbd.simulate.step_derivatives(
            m, s.q, s.v, s.tau, dt, integrator=method, f_ext=s.f_ext
        )
        return jnp.concatenate(blocks, axis=1), (8 * near - far).T / (12 * h)

    found, expected = (np.asarray(x) for x in both(m, s))
    scale = np.abs(expected).max()
    print(name, method, "error", np.abs(found - expected).max(), "of", scale)
    assert found.shape == (2 * m.nv, 3 * m.nv)
    assert np.abs(expected - np.eye(*expected.shape)).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)


# --- rollouts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ORDERS)
def test_rollout_is_the_loop_over_steps(method):
    m, T, dt = small(), 5, 0.01
    s = random_state(m)
    u = jax.random.normal(jax.random.key(0), (T, m.nv))
    path = quick_jit(partial(rbd.rollout, integrator=method))(m, s.q, s.v, u, jnp.asarray(dt))
    q, v = s.q, s.v
    step = quick_jit(
        lambda t, q, v, u: METHODS[method](
            m, lambda t, q, v: rbd.aba(m, q, v, u, None), t, q, v, jnp.asarray(dt)
        )
    )
    for k in range(T):
        assert_close((path.q[k], path.v[k]), (q, v))
        q, v = step(jnp.asarray(k * dt), q, v, u[k])
    assert_close((path.q[T], path.v[T]), (q, v))
    assert_close(path.t, dt * jnp.arange(T + 1.0))
    assert_close(path.tau, u, atol=0)


def test_policy_controls_wrenches_and_own_integrators():
    m = small()
    s = random_state(m)
    policy = lambda t, q, v: -0.3 * v + jnp.sin(t)  # noqa: E731
    start = m, s.q, s.v
    run = quick_jit(
        lambda m, q, v, u, f: rbd.rollout(m, q, v, u, 0.01, f_ext=f),
    )
    by_policy = quick_jit(lambda m, q, v, f: rbd.rollout(m, q, v, policy, 0.01, steps=6, f_ext=f))(
        *start, s.f_ext
    )
    assert by_policy.tau.shape == (6, m.nv)
    assert_close(by_policy.tau[2], policy(0.02, by_policy.q[2], by_policy.v[2]))
    assert_close(run(*start, by_policy.tau, s.f_ext), by_policy)
    other = run(*start, by_policy.tau, 0 * s.f_ext)
    assert float(jnp.abs(other.v[1] - by_policy.v[1]).max()) > 1e-3

    def frozen(model, acceleration, t, q, v, dt):
        return q, v + dt

    held = rbd.rollout(*start, by_policy.tau, 0.5, integrator=frozen)
    assert_close(held.q, jnp.broadcast_to(s.q, held.q.shape), atol=0)
    assert_close(held.v[-1], s.v + 3.0)


def test_no_steps_gives_the_initial_state():
    m = small()
    s = random_state(m)
    path = rbd.rollout(m, s.q, s.v, jnp.zeros((0, m.nv)), 0.01)
    assert_close((path.q, path.v), (s.q[None], s.v[None]), atol=0)
    assert path.t.shape == (1,) and path.tau.shape == (0, m.nv)


@pytest.mark.parametrize("method", ORDERS)
def test_rollout_in_float32_with_a_python_time_step(method):
    m = cast(small(), jnp.float32)
    s = random_state(m)
    u = jnp.zeros((3, m.nv), jnp.float32)
    policy = lambda t, q, v: -0.1 * v  # noqa: E731
    for controls, steps in ((u, None), (policy, 3)):
        path = jax.eval_shape(
            lambda q, v, c=controls, n=steps: rbd.rollout(
                m, q, v, c, 0.01, steps=n, integrator=method
            ),
            s.q,
            s.v,
        )
        assert {x.dtype for x in jax.tree.leaves(path)} == {jnp.dtype(jnp.float32)}


def test_batches_of_rollouts_over_states_and_models():
    m = small()
    s = random_state(m)
    u = jax.random.normal(jax.random.key(1), (3, 4, m.nv))
    run = lambda m, u: rbd.rollout(m, s.q, s.v, u, 0.01)  # noqa: E731
    heavy = stack([eqx.tree_at(lambda m: m.inertia, m, m.inertia * k) for k in (1.0, 2.0, 3.0)])
    many = quick_jit(jax.vmap(run, in_axes=(0, 0)))(heavy, u)
    one = quick_jit(run)
    for k in range(3):
        row = jax.tree.map(lambda x, k=k: x[k], heavy)
        assert_close(jax.tree.map(lambda x, k=k: x[k], many), one(row, u[k]), atol=1e-11)


@pytest.mark.parametrize(
    "method", ["semi_implicit_euler", pytest.param("rk4", marks=pytest.mark.slow)]
)
def test_gradient_through_a_rollout(method):
    """Of the final state with respect to q0, v0, controls, wrench, inertia and time step."""
    m = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(m)
    u = jax.random.normal(jax.random.key(1), (4, m.nv))
    inputs = {"q": s.q, "v": s.v, "u": u, "f": s.f_ext, "I": m.inertia, "dt": jnp.asarray(0.02)}
    x0, unravel = ravel_pytree(inputs)

    def loss(x):
        x = unravel(x)
        robot = eqx.tree_at(lambda m: m.inertia, m, x["I"])
        path = rbd.rollout(robot, x["q"], x["v"], x["u"], x["dt"], integrator=method, f_ext=x["f"])
        end = jnp.concatenate([path.q[-1], path.v[-1]])
        return jnp.sum(end * jnp.sin(1.0 + jnp.arange(end.size, dtype=end.dtype)))

    gradient = np.asarray(quick_jit(jax.grad(loss))(x0))
    many = quick_jit(jax.vmap(loss))
    h, numeric = 1e-3, 0
    for c, w in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        numeric = numeric + w * np.asarray(many(x0[None] + c * h * jnp.eye(x0.size))) / (12 * h)
    scale = np.abs(gradient).max()
    parts = unravel(jnp.asarray(gradient))
    assert all(float(jnp.abs(x).max()) > 0 for x in parts.values())
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-6 * scale)


def test_rollout_from_a_quaternion_of_another_length():
    m = small()
    s = random_state(m)
    u = jnp.zeros((3, m.nv))
    run = quick_jit(lambda q: rbd.rollout(m, q, s.v, u, 0.01))
    a, b = run(s.q), run(scale_quaternions(m, s.q, 2.5))
    assert_close(a.v, b.v)
    assert_close(a.q[1:], b.q[1:])
