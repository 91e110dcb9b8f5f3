"""Robots in fewer coordinates than joints: mimic joints, own coordinates, closed forms."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, central_difference, random_state, stack
from support.inputs import assert_relative, inputs, with_leaves

import rbd_jax as rbd
from rbd_jax.io import convert, example_robots, load_urdf
from rbd_jax.model import MimicSpec, with_mimics

rng = np.random.default_rng(0)


def _link(name: str) -> rbd.LinkSpec:
    return rbd.LinkSpec(
        name, rng.uniform(0.5, 2), rng.normal(size=3) * 0.2, np.diag([0.1, 0.2, 0.15])
    )


def _joint(name: str, kind: str, parent: str, child: str, mimic=None) -> rbd.JointSpec:
    p, axis = rng.normal(size=3) * 0.3, rng.normal(size=3)
    return rbd.JointSpec(
        name, kind, parent, child, p=p, axis=axis, mimic=mimic, damping=0.3, armature=0.05
    )  # fmt: skip


@cache
def hand() -> rbd.Model:
    """A floating hand: two fingers of which one follows the other, across branches and in a chain.

    ``b1`` follows ``a2``, which comes later in no other branch; ``c`` follows ``b1``.
    """
    joints = (
        _joint("arm", "revolute", "base", "palm"),
        _joint("c", "prismatic", "palm", "thumb", MimicSpec("b1", -0.5, 0.2)),
        _joint("a1", "revolute", "palm", "a1"),
        _joint("a2", "revolute", "a1", "a2"),
        _joint("b1", "revolute", "palm", "b1", MimicSpec("a2", 1.5, 0.1)),
        _joint("b2", "revolute", "b1", "b2"),
    )
    links = tuple(_link(n) for n in ("base", "palm", "thumb", "a1", "a2", "b1", "b2"))
    spec = rbd.RobotSpec("hand", links, joints)
    return with_mimics(rbd.build_model(spec, floating_base=True, dtype=jnp.float64))


class Cam(eqx.Module):
    """A joint whose axis moves as it turns: any placement, as a function of one coordinate."""

    shape: jax.Array

    def __call__(self, u):
        a, b, c = self.shape
        p = jnp.stack([a * jnp.cos(u[0]), b * jnp.sin(2 * u[0]), c * u[0] ** 2])
        quat = jnp.stack([jnp.cos(u[0]), jnp.sin(u[0]), 0.3 * u[0] ** 2, 0.1 * jnp.sin(u[0])])
        return jnp.concatenate([p, quat])


@cache
def knee() -> rbd.Model:
    """An arm, a joint with the motion subspace of ``Cam``, and a differential of two motors."""
    joints = (
        _joint("arm", "revolute", "base", "upper"),
        _joint("cam", "free", "upper", "lower"),
        _joint("pitch", "revolute", "lower", "cross"),
        _joint("roll", "revolute", "cross", "foot"),
        _joint("toe", "revolute", "foot", "toe"),
    )
    links = tuple(_link(n) for n in ("base", "upper", "lower", "cross", "foot", "toe"))
    model = rbd.build_model(rbd.RobotSpec("knee", links, joints), dtype=jnp.float64)
    model = rbd.with_coordinates(model, Cam(jnp.array([0.1, 0.05, 0.02])), ["cam"], ["angle"])

    def differential(u):
        return jnp.stack([(u[0] + u[1]) / 2, jnp.sin(u[0] - u[1]) / 3])

    return rbd.with_coordinates(model, differential, ["pitch", "roll"], ["left", "right"])


MODELS = {"hand": hand, "knee": knee}
robots = pytest.mark.parametrize("name", list(MODELS))


def _explicit(m, q):
    """The configuration of all joints, and the matrix Φ by differences, from the laws alone."""
    robot = m.robot

    def expand(q):
        full = rbd.neutral(robot)
        for joint in m.space.joint_names:
            if joint in robot.joint_names:
                full = full.at[robot.q_slice(joint)].set(q[m.q_slice(joint)])
        if "arm" in robot.joint_names and "c" in robot.joint_names:
            b1 = 1.5 * q[m.q_slice("a2")] + 0.1
            full = full.at[robot.q_slice("b1")].set(b1)
            return full.at[robot.q_slice("c")].set(-0.5 * b1 + 0.2)
        angle, left, right = (q[m.q_slice(n)] for n in ("angle", "left", "right"))
        full = full.at[robot.q_slice("cam")].set(m.laws[0].function(angle))
        full = full.at[robot.q_slice("pitch")].set((left + right) / 2)
        return full.at[robot.q_slice("roll")].set(jnp.sin(left - right) / 3)

    at = expand(q)
    Phi = central_difference(
        lambda d: rbd.difference(robot, at, expand(rbd.integrate(m, q, d))), jnp.zeros(m.nv)
    )
    return at, Phi


@quick_jit
def _both(m, s):
    """Results in coordinates, and what the robot of all joints says of them."""
    q, v, a, tau, f = s
    full, Phi = _explicit(m, q)
    bias = central_difference(
        lambda t: _explicit(m, rbd.integrate(m, q, t * v))[1] @ v, jnp.zeros(1)
    )
    V, A, frame = Phi @ v, Phi @ a + bias[:, 0], m.frame_names[-1]
    r, M = m.robot, Phi.T @ rbd.crba(m.robot, full) @ Phi
    torque = Phi.T @ rbd.rnea(r, full, V, A, f)
    ours = {
        "M": rbd.crba(m, q),
        "rnea": rbd.rnea(m, q, v, a, f),
        "ID": rbd.inverse_dynamics(m, q, v, a, f),
        "aba": rbd.aba(m, q, v, torque, f),
        "FD": rbd.forward_dynamics(m, q, v, torque, f),
        "Minv": rbd.mass_matrix_inverse(m, q),
        "Ma": rbd.derivatives.mass_matrix_product(m, q, a),
        "solve": rbd.derivatives.mass_matrix_solve(m, q, tau),
        "gravity": rbd.gravity_torque(m, q),
        "J": rbd.jacobian(m, q, frame),
        "frame velocity": rbd.frame_velocity(m, q, v, frame),
        "frame acceleration": rbd.algorithms.frame_acceleration(m, q, v, a, frame),
        "poses": rbd.forward_kinematics(m, q),
        "frame": rbd.frame_placement(m, q, frame),
        "velocities": rbd.algorithms.body_velocities(m, q, v),
        "accelerations": rbd.algorithms.body_accelerations(m, q, v, a),
        "energies": (rbd.kinetic_energy(m, q, v), rbd.potential_energy(m, q)),
        "com": rbd.center_of_mass(m, q),
        "momenta": (rbd.centroidal_momentum(m, q, v), rbd.algorithms.spatial_momentum(m, q, v)),
        "regressor": rbd.algorithms.joint_torque_regressor(m, q, v, a),
    }
    theirs = {
        "M": M,
        "rnea": torque,
        "ID": torque,
        "aba": a,
        "FD": a,
        "Minv": jnp.linalg.inv(M),
        "Ma": M @ a,
        "solve": jnp.linalg.solve(M, tau),
        "gravity": Phi.T @ rbd.gravity_torque(r, full),
        "J": rbd.jacobian(r, full, frame) @ Phi,
        "frame velocity": rbd.frame_velocity(r, full, V, frame),
        "frame acceleration": rbd.algorithms.frame_acceleration(r, full, V, A, frame),
        "poses": rbd.forward_kinematics(r, full),
        "frame": rbd.frame_placement(r, full, frame),
        "velocities": rbd.algorithms.body_velocities(r, full, V),
        "accelerations": rbd.algorithms.body_accelerations(r, full, V, A),
        "energies": (rbd.kinetic_energy(r, full, V), rbd.potential_energy(r, full)),
        "com": rbd.center_of_mass(r, full),
        "momenta": (
            rbd.centroidal_momentum(r, full, V), rbd.algorithms.spatial_momentum(r, full, V)
        ),
        "regressor": Phi.T @ rbd.algorithms.joint_torque_regressor(r, full, V, A),
    }  # fmt: skip
    return ours, theirs


@pytest.mark.parametrize("name", ["knee", pytest.param("hand", marks=pytest.mark.slow)])
def test_every_algorithm_is_the_projection_of_the_robot_of_all_joints(name):
    m = MODELS[name]()
    ours, theirs = _both(m, random_state(m))
    assert_close(ours, theirs, rtol=1e-7, atol=1e-8)


def test_sizes_and_places():
    m = hand()
    assert (m.nq, m.nv, m.robot.nv) == (11, 10, 12)
    assert m.space.joint_names == ("root_joint", "arm", "a1", "a2", "b2")
    assert m.q_slice("a2") == slice(9, 10) and m.v_slice("b2") == slice(9, 10)
    assert m.laws[0].driven.joint_names == ("c", "b1")
    assert_close(m.laws[0].multiplier, jnp.array([-0.75, 1.5]))
    assert_close(m.laws[0].offset, jnp.array([0.15, 0.1]))
    assert knee().space.joint_names == ("arm", "toe", "angle", "left", "right")
    assert not np.isfinite(knee().position_lower[-3:]).any()
    with pytest.raises(KeyError, match="'c' is driven by a2 and has no coordinates of its own"):
        m.q_slice("c")


@quick_jit
def _lagrange(m, q, v, a):
    """``d/dt ∂T/∂ẏ − ∂T/∂y + ∂V/∂y + damping``, by autodiff of the energies alone."""

    def momentum(q, v):
        return jax.grad(lambda v: rbd.kinetic_energy(m, q, v))(v)

    rate = jax.jvp(momentum, (q, v), (v, a))[1]
    slope = jax.grad(lambda q: rbd.kinetic_energy(m, q, v) - rbd.potential_energy(m, q))(q)
    Phi = _explicit(m, q)[1]
    damping = Phi.T @ (m.damping * (Phi @ v))
    T = 0.5 * v @ rbd.crba(m, q) @ v
    C = rbd.coriolis_matrix(m, q, v)
    h = C @ v + rbd.gravity_torque(m, q) + damping
    return rate - slope + damping, rbd.rnea(m, q, v, a), h, rbd.bias_torque(m, q, v), T


def test_a_motion_subspace_that_depends_on_q_obeys_lagrange():
    """Kim's Ṡ: energies know nothing of it, and give the same torques."""
    m = eqx.tree_at(lambda m: m.armature, knee(), 0 * knee().armature)  # not Lagrangian for balls
    s = random_state(m)
    expected, tau, h, bias, T = _lagrange(m, s.q, s.v, s.a)
    assert_close(tau, expected, rtol=1e-8, atol=1e-9)
    assert_close(h, bias, rtol=1e-8, atol=1e-9)
    assert_close(T, rbd.kinetic_energy(m, s.q, s.v), rtol=1e-10)


# --- derivatives ----------------------------------------------------------------


@quick_jit
def _explicit_derivatives(m, s):
    q, v, a, tau, f = s
    zero = jnp.zeros_like(v)
    along = lambda g, *x: jax.jacfwd(g, (0, 1, 2))(zero, *x)  # noqa: E731
    at = lambda d: rbd.integrate(m, q, d)  # noqa: E731
    raw_id = along(lambda d, v, a: rbd.rnea(m, at(d), v, a, f), v, a)
    raw_fd = along(lambda d, v, t: rbd.aba(m, at(d), v, t, f), v, tau)
    dM = jax.jvp(lambda q: rbd.crba(m, q), (q,), (rbd.rate_from_velocity(m, q, v),))[1]
    C = rbd.coriolis_matrix(m, q, v)
    skew = dM - 2 * C
    ours = (
        tuple(rbd.inverse_dynamics_derivatives(m, q, v, a, f)),
        tuple(rbd.forward_dynamics_derivatives(m, q, v, tau, f)),
        skew,
        jnp.einsum("ijk,k->ij", rbd.christoffel(m, q), v),
        rbd.derivatives.mass_matrix_derivative(m, q),
    )
    theirs = raw_id, raw_fd, -skew.T, C, jax.jacfwd(lambda d: rbd.crba(m, at(d)))(zero)
    return ours, theirs


@pytest.mark.slow
@robots
def test_explicit_derivatives_agree_with_autodiff_of_the_raw_algorithms(name):
    m = MODELS[name]()
    ours, theirs = _explicit_derivatives(m, random_state(m))
    assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


FUNCTIONS = {
    "inverse": (rbd.inverse_dynamics, rbd.rnea),
    "forward": (rbd.forward_dynamics, rbd.aba),
}


def _first_order(f, m, x):
    """Value, jvp and vjp along random directions of every input, the laws' parameters too."""
    leaves = {"laws": eqx.filter(m.laws, eqx.is_array), **x}
    one = _random(leaves, 1)

    def g(x):
        laws = eqx.combine(x["laws"], m.laws)
        changed = with_leaves(eqx.tree_at(lambda m: m.laws, m, laws), x)
        return f(changed, x["q"], x["v"], x["a"], x["f_ext"])

    value, jvp = jax.jvp(g, (leaves,), (one,))
    return value, jvp, jax.vjp(g, leaves)[1](_random(value, 2))[0]


def _second_order(f, m, x):
    """jvp of jvp and of vjp."""

    def first(x):
        return _first_order(f, m, x)[1:]

    return jax.jvp(first, (x,), (_random(x, 3),))[1]


def _random(tree, seed):
    """Numbers that two programs round alike."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), tree)


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("hand", "forward", _first_order),
        *(slow("knee", kind, _first_order) for kind in FUNCTIONS),
        *(slow(name, kind, _second_order) for name in MODELS for kind in FUNCTIONS),
    ],
)
def test_rules_agree_with_autodiff_of_the_raw_algorithms(name, kind, what):
    m = MODELS[name]()
    x = inputs(m)
    rule, raw = (quick_jit(partial(what, f))(m, x) for f in FUNCTIONS[kind])
    for found, expected in zip(rule, raw, strict=True):
        assert_relative(found, expected, 1e-8, lead=0)
    if what is _first_order:
        assert all(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(raw[2]["laws"]))


@pytest.mark.slow
def test_fleets_states_and_single_precision():
    """vmap over states and over robots whose laws differ; float32 stays float32."""
    m = hand()
    one, two = random_state(m, 1), random_state(m, 2)
    other = eqx.tree_at(lambda m: m.laws[0].multiplier, m, jnp.array([0.4, -0.8]))
    run = jax.vmap(lambda m, s: rbd.forward_dynamics(m, s.q, s.v, s.tau, s.f_ext))
    both = quick_jit(run)(stack([m, other]), stack([one, two]))
    each = [quick_jit(run)(stack([r, r]), stack([s, s]))[0] for r, s in ((m, one), (other, two))]
    assert_close(both, jnp.stack(each), rtol=1e-10)
    single = quick_jit(run)(
        cast(stack([m, other]), jnp.float32), cast(stack([one, two]), jnp.float32)
    )
    assert single.dtype == jnp.float32
    assert_close(single.astype(jnp.float64), both, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["rk4", "momentum_rk4", "variational", "generalized_alpha"])
@robots
def test_integrators_keep_the_energy(name, integrator):
    m = MODELS[name]()
    m = eqx.tree_at(lambda m: (m.damping, m.armature), m, (0 * m.damping, 0 * m.armature))
    q, v = rbd.neutral(m), 0.5 * random_state(m).v
    control = jnp.zeros((100, m.nv))
    method = rbd.simulate.GeneralizedAlpha(1.0) if integrator == "generalized_alpha" else integrator
    t = jax.jit(lambda m: rbd.rollout(m, q, v, control, 1e-3, integrator=method))(m)
    energy = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
    drift = energy(t.q, t.v) - energy(t.q, t.v)[0]
    moved = jnp.abs(t.v[-1] - v).max()
    assert moved > 1e-2 and jnp.abs(drift).max() < 1e-4 * (1 + moved)


# --- closed forms ---------------------------------------------------------------

R, L = 0.3, 0.8  # m, crank and rod


def _planar(names: tuple[str, ...], kinds: tuple[str, ...], places, axes) -> rbd.Model:
    masses = (1.1, 0.7, 1.9)
    links = [rbd.LinkSpec("world")] + [
        rbd.LinkSpec(n, m, np.array([c, 0.0, 0.0]), np.diag([0.01, 0.02, 0.03]))
        for n, m, c in zip(names, masses, (R / 2, L / 2, 0.0), strict=True)
    ]
    joints = [
        rbd.JointSpec(n, kind, parent, n, p=np.array(p), axis=np.array(axis))
        for n, kind, parent, p, axis in zip(
            names, kinds, ("world", *names[:2]), places, axes, strict=True
        )
    ]
    spec = rbd.RobotSpec("planar", tuple(links), tuple(joints))
    return rbd.build_model(spec, dtype=jnp.float64, gravity=(0.0, -9.81, 0.0))


@quick_jit
def _slider_crank(th, w, tau):
    """Reduced inertia, bias and acceleration of the crank, from the loop's geometry."""
    sin, cos = jnp.sin(th), jnp.cos(th)
    phi = jnp.arcsin(R * sin / L)  # of the rod, downwards
    dphi = R * cos / (L * jnp.cos(phi))

    def centers(th):
        phi = jnp.arcsin(R * jnp.sin(th) / L)
        x = R * jnp.cos(th) + L * jnp.cos(phi)
        rod = R * jnp.cos(th) + L / 2 * jnp.cos(phi), R * jnp.sin(th) - L / 2 * jnp.sin(phi)
        return jnp.array([[R / 2 * jnp.cos(th), R / 2 * jnp.sin(th)], [*rod], [x, 0.0]])

    def inertia(th):
        speed = jax.jacfwd(centers)(th)
        turn = R * jnp.cos(th) / (L * jnp.cos(jnp.arcsin(R * jnp.sin(th) / L)))
        return jnp.array([1.1, 0.7, 1.9]) @ jnp.sum(speed**2, axis=1) + 0.03 * (1 + turn**2)

    weight = 9.81 * jnp.array([1.1, 0.7, 1.9]) @ jax.jacfwd(centers)(th)[:, 1]
    bias = 0.5 * jax.grad(inertia)(th) * w * w + weight
    return inertia(th), bias, (tau - bias) / inertia(th), centers(th)[2, 0], dphi


def test_slider_crank_against_its_closed_form():
    """Crank, rod and slider; the slider's frame stays level, so that its joint turns back."""
    m = _planar(
        ("crank", "rod", "slider"),
        ("revolute",) * 3,
        ((0, 0, 0), (R, 0, 0), (L, 0, 0)),
        np.eye(3)[[2, 2, 2]],
    )

    def closed(u):
        phi = jnp.arcsin(R * jnp.sin(u) / L)
        return jnp.concatenate([-phi - u, phi])

    m = rbd.with_coordinates(m, closed, ["rod", "slider"], ["crank"])
    assert (m.nq, m.nv, m.space.joint_names) == (1, 1, ("crank",))

    @quick_jit
    def ours(th, w, tau):
        q, v, t = (jnp.reshape(x, 1) for x in (th, w, tau))
        x = rbd.frame_placement(m, q, "slider")[1]
        return (
            rbd.crba(m, q)[0, 0], rbd.bias_torque(m, q, v)[0], rbd.forward_dynamics(m, q, v, t)[0],
            x[0], -rbd.frame_velocity(m, q, jnp.ones(1), "rod", "world")[2],
        )  # fmt: skip

    for state in ((0.4, 3.0, 1.0), (2.5, -7.0, -4.0)):
        assert_close(ours(*jnp.array(state)), _slider_crank(*jnp.array(state)), rtol=1e-10)


@pytest.mark.slow
def test_four_bar_agrees_with_its_loop_as_a_constraint():
    """By coordinates and by a closed loop: the same motion of the crank, the same derivative."""
    a, b, c, d = 0.3, 0.8, 0.6, 0.9  # crank, coupler, rocker, ground
    names, kinds = ("crank", "coupler", "rocker"), ("revolute",) * 3
    robot = _planar(names, kinds, ((0, 0, 0), (a, 0, 0), (b, 0, 0)), np.eye(3)[[2, 2, 2]])

    def closed(u):
        """Coupler and rocker angles, from the triangle over the diagonal."""
        x, y = d - a * jnp.cos(u), -a * jnp.sin(u)
        e = jnp.sqrt(x * x + y * y)
        inner = jnp.arccos((b * b + e * e - c * c) / (2 * b * e))
        coupler = jnp.arctan2(y, x) + inner
        tip = jnp.arctan2(y - b * jnp.sin(coupler), x - b * jnp.cos(coupler))
        return jnp.concatenate([coupler - u, tip - coupler])

    m = rbd.with_coordinates(robot, closed, ["coupler", "rocker"], ["crank"])
    loop = rbd.constraints.point(robot, "rocker", offset=(c, 0, 0), at=(d, 0, 0))

    @quick_jit
    def both(u, w, tau):
        full = jnp.concatenate([u, closed(u)])
        v = jnp.concatenate([w, jax.jvp(closed, (u,), (w,))[1]])
        error = rbd.constraints.residual(robot, full, loop)
        zero = jnp.zeros(2)

        def f(tau):
            torque = jnp.concatenate([tau, zero])
            return rbd.constrained_dynamics(robot, full, v, torque, loop).a[:1]

        def g(tau):
            return rbd.forward_dynamics(m, u, w, tau)

        return error, (f(tau), jax.jacfwd(f)(tau)), (g(tau), jax.jacfwd(g)(tau))

    error, theirs, ours = both(jnp.array([0.7]), jnp.array([2.0]), jnp.array([0.5]))
    assert jnp.abs(error).max() < 1e-12
    assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@quick_jit
def _constrained(m, held, s, M, Phi, full):
    """Constraints of a robot with driven joints, and the same by dense matrices."""
    q, v, tau = s.q, s.v, s.tau
    a, forces = rbd.constrained_dynamics(m, q, v, tau, held)
    J = rbd.constraints.jacobian(m, q, held)
    gamma = rbd.constraints.bias(m, q, v, held)
    missing = M @ a + rbd.bias_torque(m, q, v) - tau - J.T @ forces
    after, impulses = rbd.impact(m, q, v, held)
    kick = M @ (after - v) - J.T @ impulses
    f = lambda d, v, t: tuple(rbd.constrained_dynamics(m, rbd.integrate(m, q, d), v, t, held))  # noqa: E731
    blocks = tuple(rbd.constrained_dynamics_derivatives(m, q, v, tau, held))
    at = jnp.zeros_like(v), v, tau

    def along(k):
        return central_difference(lambda x: f(*at[:k], x, *at[k + 1 :]), at[k])

    numbers = [along(k) for k in range(3)]
    by_rule = tuple(n[0] for n in numbers) + tuple(n[1] for n in numbers)
    found = missing, J @ a + gamma, kick, J @ after
    full_J = rbd.constraints.jacobian(m.robot, full, held) @ Phi
    return (
        found,
        (J, full_J),
        (blocks, by_rule),
        rbd.constraints.delassus(m, q, held),
        J @ jnp.linalg.solve(M, J.T),
    )


@pytest.mark.slow
def test_constraints_of_a_robot_with_driven_joints():
    m = hand()
    s = random_state(m)
    held = rbd.constraints.point(m, "thumb") + rbd.constraints.point(m, "b2", "a2")
    full, Phi = _explicit(m, s.q)
    zeros, jacobians, derivatives, *matrices = _constrained(m, held, s, rbd.crba(m, s.q), Phi, full)
    assert_close(zeros, jax.tree.map(jnp.zeros_like, zeros), atol=1e-8)
    assert_close(*jacobians, atol=1e-9)
    assert_close(*derivatives, rtol=1e-6, atol=1e-5)
    assert_close(*matrices, rtol=1e-9, atol=1e-9)


# --- errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("joints", "by", "error", "message"),
    [
        (["no"], ["a1"], KeyError, "no joint 'no'"),
        (["c"], ["a1"], ValueError, "joint 'c' of robot 'hand' is driven already"),
        (["a1"], ["a1"], ValueError, "'a1' of robot 'hand' is named twice"),
        (["a2"], ["a1"], ValueError, "'a2' of robot 'hand' drives others"),
        (["a1"], ["b1"], ValueError, "'b1' of robot 'hand' is driven, so that it cannot drive"),
        (["a1"], ["root_joint"], ValueError, "several degrees of freedom"),
        (["a1", "arm"], ["x"], ValueError, "expected the 2 coordinates of"),
    ],
)
def test_wrong_laws_are_refused(joints, by, error, message):
    with pytest.raises(error, match=message):
        rbd.with_coordinates(hand(), lambda u: u, joints, by)


def test_functions_without_coordinates_refuse_driven_joints():
    m = hand()
    s = random_state(m)
    with pytest.raises(TypeError, match="takes no robot with driven .mimic. joints as 'hand'"):
        rbd.hybrid_dynamics(m, s.q, s.v, s.a, s.tau, jnp.zeros(m.nb, bool))


# --- real robots against Pinocchio ------------------------------------------------

RENAMED = {  # Pinocchio needs targets that come first by name
    "talos_full_v2": ("gripper_left_joint", "gripper_right_joint"),
}
ROBOTS = [
    ("baxter", False),
    pytest.param("pr2", False, marks=pytest.mark.slow),
    pytest.param("tiago_pro", True, marks=pytest.mark.slow),
    pytest.param("talos_full_v2", True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "floating"), ROBOTS)
def test_mimic_joints_against_pinocchio(name, floating):
    pin = pytest.importorskip("pinocchio")
    if name not in example_robots():
        pytest.skip("example-robot-data is not installed")
    text = example_robots()[name].read_text()
    for joint in RENAMED.get(name, ()):
        text = text.replace(f'"{joint}"', f'"a_{joint}"')
    model = load_urdf(text, floating, jnp.float64)
    model = eqx.tree_at(lambda m: m.damping, model, 0 * model.damping)
    root = (pin.JointModelFreeFlyer(),) if floating else ()
    theirs = pin.buildModelFromXML(text, *root, mimic=True)
    layout = convert.pinocchio(model, theirs)
    assert model.nv == theirs.nv < model.robot.nv
    s = random_state(model)

    @quick_jit
    def ours(m, s):
        q, v, a = s.q, s.v, s.a
        h = rbd.bias_torque(m, q, v)
        acceleration = rbd.forward_dynamics(m, q, v, s.tau)
        there = (
            layout.mass_matrix_to(q, rbd.crba(m, q)), layout.tau_to(q, h),
            layout.tau_to(q, rbd.rnea(m, q, v, a)), layout.a_to(q, v, acceleration),
        )  # fmt: skip
        at = layout.q_to(q), layout.v_to(q, v), layout.a_to(q, v, a), layout.tau_to(q, s.tau)
        return at, there

    (q, v, a, tau), found = jax.tree.map(np.asarray, ours(model, s))
    data = theirs.createData()
    M = np.triu(pin.crba(theirs, data, q))
    M += np.triu(M, 1).T
    h = np.array(pin.nle(theirs, data, q, v))
    expected = M, h, np.array(pin.rnea(theirs, data, q, v, a)), np.linalg.solve(M, tau - h)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.abs(y).max())
