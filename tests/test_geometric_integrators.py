"""Integrators of the whole robot: order, symmetry, momentum to rounding, energy over long times."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from support.calls import quick_jit
from support.helpers import Compiled, assert_close, random_state

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import (
    INTEGRATORS,
    TABLEAUS,
    FreeBody,
    free_body_at,
    free_body_path,
    free_body_step,
    momentum_munthe_kaas,
)
from rbd_jax.simulate._integrators import with_memory
from rbd_jax.spatial import se3, so3

difference = Compiled(rbd).difference
ORDERS = {"kutta3": 3, "momentum_rk4": 4}
TAIL = {"euler": 1, "midpoint": 2, "heun": 2, "variational": 2, "generalized_alpha": 2}


def _without(m, *leaves):
    """The robot with some leaves zero."""
    get = lambda m: [getattr(m, x) for x in leaves]  # noqa: E731
    return eqx.tree_at(get, m, [jnp.zeros_like(x) for x in get(m)])


def _slope(errors):
    """Exponents of two by which each row of errors falls into the next, where step sizes halve."""
    errors = np.array(errors)
    return np.log2(errors[:-1] / errors[1:])


# --- order ------------------------------------------------------------------------------------


def test_tableaus_meet_the_order_conditions():
    """Of trees with up to four nodes. Source: Hairer, Lubich, Wanner, table III.1.1."""
    for name, (rows, weights, order) in TABLEAUS.items():
        n = len(weights)
        a = np.array([[*r, *[0.0] * (n - len(r))] for r in rows])
        b, c = np.array(weights), a.sum(axis=1)
        conditions = [
            [(b.sum(), 1)],
            [(b @ c, 1 / 2)],
            [(b @ c**2, 1 / 3), (b @ a @ c, 1 / 6)],
            [(b @ c**3, 1 / 4), (b * c @ a @ c, 1 / 8), (b @ a @ c**2, 1 / 12),
             (b @ a @ a @ c, 1 / 24)],
        ]  # fmt: skip
        for p, group in enumerate(conditions, start=1):
            met = all(abs(x - y) < 1e-15 for x, y in group)
            assert met == (p <= order), name


def _actuated(m, w, t, q, v):
    """Accelerations under torques that depend on the time, so that the nodes in time matter."""
    return rbd.forward_dynamics(m, q, v, w * jnp.cos(3 * t))


@cache
def _runner(method):
    def run(m, w, q, v, dt, steps):
        start, advance = with_memory(method)
        acceleration = partial(_actuated, m, w)

        def step(k, state):
            (q, v), memory = state
            return advance(m, acceleration, k.astype(dt.dtype) * dt, q, v, dt, memory)

        memory = start(m, acceleration, jnp.zeros_like(dt), q, v, dt)
        return jax.lax.fori_loop(0, steps, step, ((q, v), memory))[0]

    return quick_jit(run)


@pytest.mark.parametrize(
    "method", [*ORDERS, *(pytest.param(m, marks=pytest.mark.slow) for m in TAIL)]
)
def test_order_on_the_manifold(method):
    """Of q and of v, with rotor inertia on spherical and free joints, damping and gravity."""
    m = samples.random_tree(3, kinds=("free", "spherical", "revolute"))
    s, time = random_state(m, 2), jnp.asarray(0.3)
    end = lambda method, n: _runner(method)(m, s.tau, s.q, s.v, time / n, jnp.asarray(n))  # noqa: E731
    q, v = end("rk4", 1000)
    errors = []
    for n in (20, 40, 80):
        qn, vn = end(method, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (difference(m, q, qn), vn - v)])
    print(method, "orders", _slope(errors).round(2).tolist(), "errors", errors[-1])
    assert (np.abs(_slope(errors)[-1] - (ORDERS | TAIL)[method]) < 0.15).all()


@pytest.mark.parametrize(
    "name", ["heun", *(pytest.param(n, marks=pytest.mark.slow) for n in ("euler", "kutta3"))]
)
def test_momentum_form_takes_other_tableaus(name):
    """With the order of the tableau given, and momentum exact with any: Müller (36), (79)."""
    m = samples.tree(2, 1, floating_base=True)
    s, time = random_state(m, 2), jnp.asarray(0.2)
    method = partial(momentum_munthe_kaas, tableau=TABLEAUS[name])
    end = lambda method, n: _runner(method)(m, s.tau, s.q, s.v, time / n, jnp.asarray(n))  # noqa: E731
    q, v = end("rk4", 400)
    errors = []
    for n in (40, 80):
        qn, vn = end(method, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (difference(m, q, qn), vn - v)])
    print(name, "orders", _slope(errors).round(2).tolist(), "errors", errors[-1])
    assert abs(_slope(errors)[-1].min() - TABLEAUS[name].order) < 0.3

    free = _without(m, "gravity", "damping", "armature")
    n = jnp.asarray(3)
    moved = _runner(method)(free, 0 * s.tau, s.q, s.v, jnp.asarray(0.15), n)
    before, after = (rbd.algorithms.spatial_momentum(free, *x) for x in ((s.q, s.v), moved))
    assert_close(after, before, atol=1e-13 * float(jnp.abs(before).max()))


# --- a free body in absolute coordinates --------------------------------------------------------

BODY = jnp.array([1.5, 0.15, -0.3, 0.075, 0.9, 0.02, 1.1, -0.03, 0.05, 1.4])


def _thrown() -> FreeBody:
    pose = so3.exp(jnp.array([0.3, -0.5, 0.2])), jnp.array([0.1, 0.2, 0.3])
    return free_body_at(BODY, pose, jnp.array([2.0, 0.3, -0.4, 0.5, -0.2, 0.1]))


@jax.jit
def _energy(body: FreeBody):
    I = rbd.spatial.inertia.matrix(BODY)
    Pi = rbd.spatial.motion.wrench_to_child((body.R, body.p), body.momentum)
    return 0.5 * Pi @ jnp.linalg.solve(I, Pi)


@pytest.mark.parametrize(
    "name",
    [n if n in ("heun", "rk4") else pytest.param(n, marks=pytest.mark.slow) for n in TABLEAUS],
)
def test_free_body_keeps_its_spatial_momentum_exactly(name):
    """To the bit; pose and energy to the order of the tableau."""
    body, order = _thrown(), TABLEAUS[name].order
    finals, energies = [], []
    for n in (40, 80, 160, 1280):
        tableau = TABLEAUS[name] if n < 1000 else TABLEAUS["rk4"]
        path = quick_jit(lambda b, h, n=n, t=tableau: free_body_path(BODY, b, h, n, tableau=t))(
            body, 2.0 / n
        )
        assert (np.asarray(path.momentum) == np.asarray(body.momentum)).all()
        finals.append(jax.tree.map(lambda x: x[-1], path))
        energies.append(float(abs(_energy(finals[-1]) - _energy(body))))
    truth = finals.pop()
    between = jax.jit(lambda x, y: se3.log(se3.compose(se3.inverse(x), y)))
    gap = [between(truth[:2], x[:2]) for x in finals]
    errors = [[float(jnp.linalg.norm(x)), e] for x, e in zip(gap, energies, strict=False)]
    print(name, _slope(errors).round(2).tolist())
    assert (_slope(errors)[-1] > order - 0.2).all()


def test_free_body_under_a_wrench_is_the_robot_of_one_free_body():
    """Gravity as a spatial wrench (36) against a free joint, momentum form against velocities."""
    m = rbd.build_model(rbd.RobotSpec("body", (rbd.LinkSpec("body", 1.0),), ()), floating_base=True)
    m = eqx.tree_at(lambda m: m.inertia, m, BODY[None])
    body, g = _thrown(), m.gravity

    def weight(t, b):
        f = BODY[0] * g
        at = b.p + so3.rotate(b.R, BODY[1:4]) / BODY[0]
        return jnp.concatenate([so3.cross(at, f), f])

    path = quick_jit(lambda b: free_body_path(BODY, b, 0.002, 500, weight))(body)
    q0 = jnp.concatenate([body.p, so3.quat_from_matrix(body.R)])
    v0 = jnp.array([2.0, 0.3, -0.4, 0.5, -0.2, 0.1])
    run = quick_jit(lambda q, v: rbd.rollout(m, q, v, jnp.zeros((500, 6)), 0.002, integrator="rk4"))
    other = run(q0, v0)
    assert_close(path.p, other.q[:, :3], atol=1e-9)
    assert_close(path.R[-1], so3.quat_to_matrix(other.q[-1, 3:]), atol=1e-9)
    assert_close(
        path.momentum[-1], rbd.algorithms.spatial_momentum(m, other.q[-1], other.v[-1]), atol=1e-8
    )
    fallen = body.momentum[3:] + BODY[0] * g
    assert_close(path.momentum[-1, 3:], fallen, atol=1e-12)


def test_free_body_under_a_wrench_of_time_alone_is_a_quadrature():
    """Exact for a cubic in t and order 4, so that every node of every step counts."""
    body = _thrown()
    c = jnp.asarray(np.random.default_rng(3).normal(size=(4, 6)))

    def wrench(t, _):
        return jnp.sum(c * t ** jnp.arange(4.0)[:, None], axis=0)

    def impulse(t):
        return np.sum(c * t ** np.arange(1.0, 5.0)[:, None] / np.arange(1.0, 5.0)[:, None], axis=0)

    run = lambda b: (  # noqa: E731
        free_body_path(BODY, b, 0.3, 5, wrench),
        free_body_step(BODY, b, 0.3, wrench, 0.9),
    )
    path, one = quick_jit(run)(body)
    for k in range(6):
        assert_close(path.momentum[k], body.momentum + impulse(0.3 * k), atol=1e-13)
    assert_close(one.momentum, body.momentum + impulse(1.2) - impulse(0.9), atol=1e-13)


@pytest.mark.slow
def test_gradients_of_free_bodies_in_a_batch():
    """With respect to inertia, pose and momentum, against central differences."""
    bodies = jax.vmap(lambda x: _thrown()._replace(momentum=x))(
        _thrown().momentum[None] * jnp.array([1.0, -0.5])[:, None]
    )

    def score(I10, body):
        end = jax.tree.map(lambda x: x[-1], free_body_path(I10, body, 0.05, 10))
        return jnp.sum(jnp.sin(end.p)) + end.R[0, 1] + jnp.sum(end.momentum**2)

    slope = quick_jit(jax.vmap(jax.grad(score, (0, 1)), (None, 0)))(BODY, bodies)
    rng, h = np.random.default_rng(0), 1e-6
    step = [jnp.asarray(rng.normal(size=x.shape)) for x in (BODY, bodies.p, bodies.momentum)]
    at = lambda e: jax.vmap(score, (None, 0))(  # noqa: E731
        BODY + e * step[0],
        bodies._replace(p=bodies.p + e * step[1], momentum=bodies.momentum + e * step[2]),
    )
    numeric = quick_jit(lambda: (at(h) - at(-h)) / (2 * h))()
    exact = slope[0] @ step[0] + sum(
        jnp.sum(x * d, axis=1)
        for x, d in zip((slope[1].p, slope[1].momentum), step[1:], strict=True)
    )
    assert_close(exact, numeric, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_forces_of_the_momentum_form_are_those_of_the_accelerations():
    """Under external wrenches and damping, where they are computed without an acceleration."""
    m = samples.random_tree(3, kinds=("free", "revolute"))
    s = random_state(m, 4)
    end = lambda how: rbd.rollout(  # noqa: E731
        m, s.q, s.v, jnp.tile(s.tau, (50, 1)), 0.002, integrator=how, f_ext=s.f_ext
    )
    ours, rk4 = quick_jit(lambda: (end("momentum_rk4"), end("rk4")))()
    assert float(jnp.abs(m.damping).max()) > 0
    assert_close(difference(m, rk4.q[-1], ours.q[-1]), jnp.zeros(m.nv), atol=1e-8)
    assert_close(ours.v[-1], rk4.v[-1], rtol=1e-7, atol=1e-7)


# --- momentum of a robot in free flight ----------------------------------------------------------


@cache
def _flight(method: str, gravity: bool, n: int = 60):
    """A tumbling quadruped with driven, damped legs: spatial momenta along the path."""
    m = samples.quadruped()
    m = m if gravity else _without(m, "gravity")
    s = random_state(m, 3)
    u = jax.random.normal(jax.random.key(5), (n, m.nv)).at[:, :6].set(0.0)

    def run(q, v, u):
        path = rbd.rollout(m, q, v, u, 0.02, integrator=method)
        return path.t, jax.vmap(partial(rbd.algorithms.spatial_momentum, m))(path.q, path.v)

    t, momentum = quick_jit(run)(s.q, s.v, u)
    return m, np.asarray(t), np.asarray(momentum)


@pytest.mark.parametrize("method", ["momentum_rk4", "variational"])
def test_momentum_in_free_flight_is_kept_to_rounding(method):
    _, _, momentum = _flight(method, False)
    drift = np.abs(momentum - momentum[0]).max(axis=0)
    print(method, "drift of the momentum", drift, "of", np.abs(momentum[0]).max())
    assert drift.max() < 1e-13 * np.abs(momentum[0]).max()


def test_momentum_in_free_flight_is_kept_only_to_the_order_by_a_plain_method():
    """At this step, so that the test above is not one of a tiny step."""
    _, _, momentum = _flight("rk4", False)
    assert np.abs(momentum - momentum[0]).max() > 1e-6


@pytest.mark.parametrize(
    "method", ["momentum_rk4", pytest.param("variational", marks=pytest.mark.slow)]
)
def test_momentum_under_gravity(method):
    """The linear momentum is that of free fall; angular momentum about the vertical is kept."""
    m, t, momentum = _flight(method, True)
    fall = float(rbd.total_mass(m)) * t[:, None] * np.asarray(m.gravity)
    assert_close(momentum[:, 3:], momentum[0, 3:] + fall, atol=1e-10)
    assert_close(momentum[:, 2], np.full_like(t, momentum[0, 2]), atol=1e-10)
    assert np.abs(momentum[:, 0] - momentum[0, 0]).max() > 1.0


# --- the heavy top --------------------------------------------------------------------------------


def _top() -> rbd.Model:
    """Source of the numbers: Brüls, Cardona, Arnold, 2012, the fast heavy top."""
    link = rbd.LinkSpec(
        "top", 15.0, np.array([0.0, 1.0, 0.0]), np.diag([0.234375, 0.46875, 0.234375])
    )
    joint = rbd.JointSpec("pivot", "spherical", "base", "top")
    return rbd.build_model(rbd.RobotSpec("top", (rbd.LinkSpec("base"), link), (joint,)))


TOP_SPIN = np.array([0.0, 150.0, -4.61538])


@cache
def _top_reference(time: float):
    """Euler's equations in quaternions, written out, by an explicit method of order 8."""
    J = np.diag([15.234375, 0.46875, 15.234375])

    def rate(_, x):
        w, (a, b, c, d) = x[4:], x[:4]
        down = np.array([2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d])
        torque = np.cross([0.0, 15.0, 0.0], -9.81 * down)
        dq = 0.5 * np.concatenate([[-x[1:4] @ w], a * w + np.cross(x[1:4], w)])
        return np.concatenate([dq, np.linalg.solve(J, torque - np.cross(w, J @ w))])

    start = np.concatenate([[1.0, 0, 0, 0], TOP_SPIN])
    end = solve_ivp(rate, (0, time), start, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    return jnp.asarray(end[:4] / np.linalg.norm(end[:4])), jnp.asarray(end[4:])


@pytest.mark.parametrize(
    "method, bounds",  # of q (rad), v (rad/s) and the relative energy: three times what is measured
    [
        ("rk4", (2e-6, 1.5e-5, 1e-8)),
        ("momentum_rk4", (1e-7, 4e-7, 5e-10)),
        pytest.param("variational", (1.2e-3, 2.5e-3, 1e-5), marks=pytest.mark.slow),
        ("generalized_alpha", (1.5e-2, 0.12, 1.2e-5)),
    ],
)
def test_heavy_top_against_a_reference_of_high_precision(method, bounds):
    """Turning 24 times a second, for half a second, in steps of 0.25 ms."""
    m, q0 = _top(), jnp.array([1.0, 0.0, 0.0, 0.0])
    u = jnp.zeros((2000, 3))
    path = quick_jit(lambda v: rbd.rollout(m, q0, v, u, 0.00025, integrator=method))(
        jnp.asarray(TOP_SPIN)
    )
    q, v = _top_reference(0.5)
    errors = [float(jnp.abs(x).max()) for x in (difference(m, q, path.q[-1]), v - path.v[-1])]
    energy = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
    E = np.asarray(quick_jit(energy)(path.q, path.v))
    momentum = quick_jit(jax.vmap(partial(rbd.algorithms.spatial_momentum, m)))
    vertical = momentum(path.q, path.v)[:, 2]
    swing = [float(np.abs(x - x[0]).max() / abs(x[0])) for x in (E, np.asarray(vertical))]
    print(method, "errors of q and v", errors, "energy and vertical momentum", swing)
    assert all(x < bound for x, bound in zip((*errors, swing[0]), bounds, strict=True))
    if method in ("momentum_rk4", "variational"):
        assert swing[1] < 1e-11


# --- structure ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_variational_step_is_symmetric():
    """A step forward and a step back are no step; damping aside."""
    m = _without(samples.random_tree(3, kinds=("free", "spherical", "revolute")), "damping")
    s = random_state(m, 1)
    step = lambda q, v, h: _runner("variational")(  # noqa: E731
        m, 0 * s.tau, q, v, jnp.asarray(h), jnp.asarray(1)
    )
    q, v = step(*step(s.q, s.v, 0.05), -0.05)
    assert_close(difference(m, s.q, q), jnp.zeros(m.nv), atol=1e-12)
    assert_close(v, s.v, atol=1e-11)


def _symplectic_defect(m, s, method):
    """How far a step of 0.05 s changes the symplectic form, by central differences in (δq, δp).

    With momenta p in the moving frame it is ``δp₂·δq₁ − δp₁·δq₂ + p·[δq₁, δq₂]``, the bracket
    being that of the joints (Abraham, Marsden, Foundations of mechanics, §4.4).
    """
    one, nv, mass = np.eye(m.nv), m.nv, Compiled(rbd).mass_matrix
    brackets = jax.jit(lambda p: jax.vmap(lambda e: rbd.model.coadjoint(m, e, p))(jnp.eye(nv)))

    def form(p):
        return np.block([[np.array(brackets(p)), one], [-one, 0 * one]])

    def end(q, p):
        v = jnp.linalg.solve(mass(m, q), p)
        q, v = _runner(method)(m, 0 * s.tau, q, v, jnp.asarray(0.05), jnp.asarray(1))
        return q, mass(m, q) @ v

    p0 = mass(m, s.q) @ s.v
    q1, p1 = end(s.q, p0)

    def moved(x):
        q, p = end(Compiled(rbd).integrate(m, s.q, x[:nv]), p0 + x[nv:])
        return np.concatenate([difference(m, q1, q), p])

    columns = []
    for d in 1e-3 * np.eye(2 * nv):
        near, far = moved(d) - moved(-d), moved(2 * d) - moved(-2 * d)
        columns.append((8 * near - far) / 12e-3)
    D = np.array(columns).T
    return np.abs(D.T @ form(p1) @ D - form(p0)).max() / np.abs(D).max() ** 2


def test_variational_step_is_symplectic():
    """The form of the canonical momenta is kept, on spherical and free joints too.

    No damping; no rotor inertia at the joints of several degrees of freedom, where the library's
    is no part of a Lagrangian. The method of order 4 changes the form at this long step.
    """
    m = _without(samples.random_tree(3, kinds=("free", "spherical", "revolute")), "damping")
    alone = np.bincount(m.topology.dof_bodies)[m.topology.dof_bodies] == 1
    m = eqx.tree_at(lambda m: m.armature, m, jnp.where(alone, 0.1, 0.0))
    s = random_state(m, 1)
    ours, other = (_symplectic_defect(m, s, x) for x in ("variational", "rk4"))
    print("variational", ours, "rk4", other)
    assert ours < 1e-10 and other > 1e-7


@pytest.mark.slow
def test_variational_energy_of_a_double_pendulum_is_bounded():
    """Over 200 s in steps of 0.05 s the error swings, but does not grow; that of Heun does."""
    m = samples.double_pendulum()
    q0, v0 = jnp.array([0.6, 0.3]), jnp.zeros(2)

    def errors(method):
        path = rbd.rollout(m, q0, v0, jnp.zeros((4000, 2)), 0.05, integrator=method)
        E = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
        return jnp.abs(E(path.q, path.v) - rbd.potential_energy(m, q0))

    swing, drift = (np.asarray(quick_jit(partial(errors, x))()) for x in ("variational", "heun"))
    print(
        "variational",
        swing[:500].max(),
        swing[3500:].max(),
        "Heun",
        drift[:500].max(),
        drift[3500:].max(),
    )
    assert swing[3500:].max() < 1.1 * swing[:500].max() < 0.05
    assert not drift[3500:].max() < 4 * drift[:500].max()


# --- generalized-α --------------------------------------------------------------------------------


@cache
def _stiff(method):
    """A pendulum on a torsion spring a million times as stiff: velocities after 100 steps."""
    m = _without(samples.pendulum(), "gravity")
    spring = lambda t, q, v: -1e8 * q  # noqa: E731
    start, advance = with_memory(method)
    zero, h = jnp.zeros(()), jnp.asarray(0.01)

    def body(state, _):
        state = advance(m, spring, zero, *state[0], h, state[1])
        return state, jnp.abs(state[0][0][0])

    state = jnp.array([1e-3]), jnp.zeros(1)
    run = lambda q, v: jax.lax.scan(body, ((q, v), start(m, spring, zero, q, v, h)), length=100)  # noqa: E731
    return np.asarray(quick_jit(run)(*state)[1])


@pytest.mark.parametrize("radius", [0.0, 0.5, 0.9])
def test_generalized_alpha_damps_what_it_cannot_resolve(radius):
    """Per step by the chosen spectral radius, where the step is 100 periods of the oscillation."""
    size = _stiff(rbd.simulate.GeneralizedAlpha(radius))
    if radius == 0.0:
        assert size[-1] < 1e-12
    else:  # amplitudes of a repeated root: k rᵏ
        rate = (size[-1] / size[49]) ** (1 / 50)
        assert abs(rate - radius) < 0.05
    assert not np.isfinite(_stiff("rk4")[-1]) or _stiff("rk4")[-1] > 1e6


def _fresh(model, *state):
    """A plain step function: the method begins anew each time."""
    return rbd.simulate.GeneralizedAlpha(0.5)(model, *state)


def test_generalized_alpha_from_a_fresh_start_is_of_order_two():
    m = samples.double_pendulum()
    s = random_state(m)
    end = lambda method, n: _runner(method)(  # noqa: E731
        m, s.tau, s.q, s.v, jnp.asarray(0.5 / n), jnp.asarray(n)
    )
    truth = jnp.concatenate(end("rk4", 500))
    errors = [float(jnp.linalg.norm(jnp.concatenate(end(_fresh, n)) - truth)) for n in (40, 80)]
    assert abs(_slope(errors)[0] - 2) < 0.15


def test_generalized_alpha_refuses_a_radius_above_one():
    with pytest.raises(ValueError, match="spectral_radius is 1.5, expected a number from 0 to 1"):
        rbd.simulate.GeneralizedAlpha(1.5)


@pytest.mark.parametrize("a, b", [(((0.5,),), (1.0,)), (((),), (0.5, 0.5))])
def test_tableaus_that_are_not_explicit_are_refused(a, b):
    m = samples.pendulum()
    x, h = jnp.zeros(1), jnp.asarray(0.1)
    with pytest.raises(ValueError, match="the tableau is not explicit"):
        rbd.simulate.munthe_kaas(m, lambda t, q, v: v, h, x, x, h, rbd.simulate.Tableau(a, b, 2))


def test_a_step_too_long_for_newtons_method_is_nan():
    """A spring that hardens without end: no step of 100 s has a midpoint near the start."""
    m = samples.pendulum()
    stiff = lambda t, q, v: -jnp.exp(50 * q) * jnp.sign(v) * 1e6  # noqa: E731
    x = jnp.ones(1)
    q, v = jax.jit(lambda x: rbd.simulate.variational(m, stiff, x[0], x, x, 100.0 * x[0]))(x)
    assert bool(jnp.isnan(q).all() & jnp.isnan(v).all())


# --- by name ---------------------------------------------------------------------------------


def test_names_are_steps_of_rollout_in_single_precision():
    m = samples.double_pendulum(dtype=jnp.float32)
    q = jnp.array([0.3, 0.1], jnp.float32)
    assert set(TABLEAUS) | {"heun", "momentum_rk4", "variational"} <= set(INTEGRATORS)
    for name in ("heun", "momentum_rk4", "variational", "generalized_alpha"):
        run = lambda q, n, name=name: rbd.rollout(  # noqa: E731
            m, q, q, jnp.zeros((n, 2), q.dtype), 0.01, integrator=name
        )
        path = jax.eval_shape(partial(run, n=3), q)
        assert {x.dtype for x in jax.tree.leaves(path)} == {
            jnp.dtype(jnp.float32)
        } and path.q.shape == (4, 2)
    assert jax.eval_shape(partial(run, n=0), q).q.shape == (1, 2)
