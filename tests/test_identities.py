"""Physical identities on random trees of every joint kind, and robots solved by hand."""

from functools import cache, partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import deepest_frame, each_public_function, quick_jit, traced
from support.helpers import (
    SINGLE_KIND,
    Compiled,
    assert_close,
    cast,
    central_difference,
    computed_as,
    jit,
    model,
    random_state,
    random_states,
)

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.algorithms import tree as passes
from rbd_jax.algorithms.formulations import FORMULATIONS
from rbd_jax.spatial import inertia, se3, so3

run = Compiled(rbd)
BATCH, SETS = 4, 8
REFERENCES = ("local", "world", "local_world_aligned")


def _floating_random(seed: int) -> rbd.Model:
    """A random tree of all kinds on one free root without rotor inertia or damping."""
    while True:
        robot = samples.random_tree(seed)
        if robot.topology.kinds[0] == "free":
            break
        seed += 1000
    leaves = lambda m: (m.armature, m.damping)  # noqa: E731
    return eqx.tree_at(leaves, robot, tuple(x.at[:6].set(0) for x in leaves(robot)))


ROBOTS = {
    **{f"random_tree{seed}": partial(samples.random_tree, seed) for seed in range(3)},
    "floating_random": partial(_floating_random, 0),
    "quadruped": samples.quadruped,
    **{name: partial(model, name) for name in SINGLE_KIND},
}


def _names(*default: str) -> list:
    return [pytest.param(n, marks=() if n in default else pytest.mark.slow) for n in ROBOTS]


NAMES = _names("floating_random", "quadruped")
FRAME_NAMES = _names("random_tree0")
FLOATING = ("floating_random", "quadruped")


@cache
def robot(name: str) -> rbd.Model:
    """A robot of ROBOTS under a gravity that no axis is aligned with."""
    return eqx.tree_at(lambda m: m.gravity, ROBOTS[name](), jnp.array([1.3, -3.1, -8.7]))


def _facts(m, s, prescribed):
    """Everything that the identities speak of, at one state."""
    x = SimpleNamespace()
    q, v, a, tau, f_ext = s
    zero = jnp.zeros_like(v)
    no_wrench = jnp.zeros_like(f_ext)
    rate = rbd.rate_from_velocity(m, q, v)

    cases = (v, a, f_ext), (v, a, no_wrench), (v, zero, f_ext), (zero, zero, no_wrench)
    cases = [jnp.stack(c) for c in zip(*cases, strict=True)]
    x.tau_id, x.tau_without, x.h, x.g = jax.vmap(lambda v, a, f: rbd.rnea(m, q, v, a, f))(*cases)
    x.a_fd, x.a_back = jax.vmap(lambda t: rbd.aba(m, q, v, t, f_ext))(jnp.stack([tau, x.tau_id]))
    x.tau_back = rbd.rnea(m, q, v, x.a_fd, f_ext)
    x.hybrid = jax.vmap(lambda p: rbd.hybrid_dynamics(m, q, v, a, tau, p, f_ext))(prescribed)
    x.M, x.dM = jax.jvp(lambda q: rbd.crba(m, q), (q,), (rate,))

    def moving(q, v):
        return dict(
            T=rbd.kinetic_energy(m, q, v),
            V=rbd.potential_energy(m, q),
            com=rbd.center_of_mass(m, q),
            momentum=rbd.centroidal_momentum(m, q, v),
            V_bodies=rbd.algorithms.body_velocities(m, q, v),
        )

    value, change = jax.jvp(moving, (q, v), (rate, x.a_fd))
    for name in value:
        setattr(x, name, value[name])
        setattr(x, "d" + name, change[name])
    x.A_bodies = rbd.algorithms.body_accelerations(m, q, v, x.a_fd)
    x.J_bodies = jax.vmap(lambda e: rbd.algorithms.body_velocities(m, q, e), out_axes=-1)(
        jnp.eye(m.nv)
    )
    x.R, x.p = rbd.forward_kinematics(m, q)
    slope = lambda d: rbd.potential_energy(m, rbd.integrate(m, q, d))  # noqa: E731
    x.V_slope = jax.jacfwd(slope)(zero)
    return vars(x)


@cache
def facts(name: str) -> tuple[rbd.Model, object, np.ndarray, SimpleNamespace]:
    m = robot(name)
    s = random_states(m, BATCH)
    key = jax.random.key(7)
    sets = jax.random.bernoulli(key, 0.5, (BATCH, SETS, m.nb)).at[:, 0].set(False)
    sets = sets.at[:, 1].set(True)
    x = quick_jit(jax.vmap(_facts, in_axes=(None, 0, 0)))(m, s, sets)
    s, x = jax.tree.map(np.asarray, (s, x))
    return m, s, np.asarray(sets), SimpleNamespace(**x)


def _frame_facts(m, s):
    x = SimpleNamespace()
    q, v, a = s.q, s.v, s.a
    frame = deepest_frame(m)
    rate = rbd.rate_from_velocity(m, q, v)
    place = lambda d: rbd.frame_placement(m, rbd.integrate(m, q, d), frame)  # noqa: E731
    x.R, x.p = rbd.frame_placement(m, q, frame)
    x.dR, x.dp = jax.jacfwd(place)(jnp.zeros_like(v))
    jacobians = lambda q: [rbd.jacobian(m, q, frame, r) for r in REFERENCES]  # noqa: E731
    on_path = lambda t: jacobians(rbd.integrate(m, q, t[0] * v))  # noqa: E731
    x.J = jacobians(q)
    x.dJ_numeric = [d[..., 0] for d in central_difference(on_path, jnp.zeros(1))]
    x.dJ = [rbd.algorithms.jacobian_time_derivative(m, q, v, frame, r) for r in REFERENCES]
    twists = lambda q, v: [rbd.frame_velocity(m, q, v, frame, r) for r in REFERENCES]  # noqa: E731
    x.twist, x.twist_rate = jax.jvp(twists, (q, v), (rate, a))
    x.acceleration = [rbd.algorithms.frame_acceleration(m, q, v, a, frame, r) for r in REFERENCES]
    x.V_body = rbd.algorithms.body_velocities(m, q, v)[m.topology.frame_bodies[frame]]
    return vars(x)


@cache
def frame_facts(name: str):
    m = robot(name)
    s = random_states(m, BATCH)
    x = quick_jit(jax.vmap(_frame_facts, in_axes=(None, 0)))(m, s)
    return m, *jax.tree.map(np.asarray, (s, SimpleNamespace(**x).__dict__))


def straight(m) -> bool:
    """Whether nothing in the robot turns, so that its velocity terms vanish."""
    return set(m.topology.kinds) <= {"prismatic", "translation"}


def close(a, b, tol=1e-11, vanish=False):
    """Equal relative to the largest number on either side; or both zero."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    if vanish:
        assert max(np.abs(a).max(), np.abs(b).max()) < 1e-12
        return
    scale = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    assert scale > 1e-3, "nothing to compare: both sides vanish"
    np.testing.assert_allclose(a, b, rtol=0, atol=tol * scale, equal_nan=False)


matvec = partial(np.einsum, "...ij,...j->...i")
inner = partial(np.einsum, "...i,...i->...")


# --- energy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_kinetic_energy_is_the_quadratic_form_of_the_mass_matrix(name):
    _, s, _, x = facts(name)
    close(x.T, 0.5 * inner(s.v, matvec(x.M, s.v)))


@pytest.mark.parametrize("name", NAMES)
def test_mass_matrix_is_symmetric_positive_definite(name):
    _, _, _, x = facts(name)
    close(x.M, np.swapaxes(x.M, -1, -2), 1e-15)
    assert np.linalg.eigvalsh(x.M).min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_power_balance(name):
    """Energy changes by the power of torques, damping and external wrenches."""
    m, s, _, x = facts(name)
    power = inner(s.v, s.tau - np.asarray(m.damping) * s.v)
    power = power + np.einsum("nbi,nbi->n", x.V_bodies, s.f_ext)
    close(x.dT + x.dV, power, 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_passivity(name):
    """``vᵀ(Ṁ − 2C)v = 0``, with ``C v`` = bias torque less gravity, damping and wrenches."""
    m, s, _, x = facts(name)
    wrenches = np.einsum("nbik,nbi->nk", x.J_bodies, s.f_ext)
    Cv = x.h + wrenches - x.g - np.asarray(m.damping) * s.v
    vanish = straight(m)
    close(inner(s.v, matvec(x.dM, s.v)), 2 * inner(s.v, Cv), vanish=vanish)


@pytest.mark.parametrize("name", NAMES)
def test_gravity_torque_is_the_slope_of_the_potential(name):
    _, _, _, x = facts(name)
    close(x.g, x.V_slope)


@pytest.mark.parametrize("name", NAMES)
def test_potential_energy_is_that_of_the_centre_of_mass(name):
    m, _, _, x = facts(name)
    weight = np.asarray(rbd.total_mass(m) * m.gravity)
    close(x.V, -x.com @ weight)


# --- dynamics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_inverse_dynamics_is_affine_in_the_acceleration(name):
    _, s, _, x = facts(name)
    close(x.tau_id, matvec(x.M, s.a) + x.h)


@pytest.mark.parametrize("name", NAMES)
def test_forward_dynamics_inverts_inverse_dynamics(name):
    _, s, _, x = facts(name)
    close(x.a_back, s.a, 1e-10)
    close(x.tau_back, s.tau, 1e-10)


def test_the_inverse_mass_matrix_of_a_long_chain_keeps_its_digits():
    """Condition numbers up to 6e5: from the root on, elimination was wrong by 3e-9."""
    m = samples.chain(35)
    q = jax.vmap(partial(rbd.random_configuration, m))(jax.random.split(jax.random.key(0), 32))

    @quick_jit
    def both(q):
        zero = jnp.zeros(m.nv)
        return rbd.crba(m, q), rbd.forward_dynamics_derivatives(m, q, zero, zero)[2]

    M, found = jax.vmap(both)(q)
    exact = np.linalg.inv(np.asarray(M))
    assert np.linalg.cond(M).max() > 1e5
    assert np.abs(found - exact).max() < 2e-10 * np.abs(exact).max()


@pytest.mark.parametrize("name", NAMES)
def test_hybrid_dynamics_is_the_closed_form(name):
    m, s, sets, x = facts(name)
    given = sets[..., m.topology.dof_bodies]
    for n in range(BATCH):
        for k in range(SETS):
            P, F = np.flatnonzero(given[n, k]), np.flatnonzero(~given[n, k])
            M, h, a, tau = x.M[n], x.h[n], s.a[n].copy(), s.tau[n].copy()
            a[F] = np.linalg.solve(M[np.ix_(F, F)], tau[F] - h[F] - M[np.ix_(F, P)] @ a[P])
            tau[P] = M[P] @ a + h[P]
            close(x.hybrid[0][n, k], a, 1e-10)
            close(x.hybrid[1][n, k], tau, 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_external_wrenches_act_through_the_jacobians(name):
    _, s, _, x = facts(name)
    close(x.tau_without - x.tau_id, np.einsum("nbik,nbi->nk", x.J_bodies, s.f_ext))


@pytest.mark.parametrize("name", FLOATING)
def test_momentum_changes_by_gravity_and_external_wrenches(name):
    m, s, sets, x = facts(name)
    tau = s.tau.copy()
    tau[:, :6] = 0  # no torque from the world
    along = jax.vmap(_momentum_rate, in_axes=(None, 0, 0, 0, 0))
    rate = jit(along)(m, s.q, s.v, tau, s.f_ext)
    n, f = s.f_ext[..., :3], s.f_ext[..., 3:]
    f_world = np.einsum("nbij,nbj->nbi", x.R, f)
    arm = x.p - x.com[:, None]
    n_world = np.einsum("nbij,nbj->nbi", x.R, n) + np.cross(arm, f_world)
    total = np.concatenate([n_world.sum(1), f_world.sum(1)], axis=-1)
    total[:, 3:] += np.asarray(rbd.total_mass(m) * m.gravity)
    close(rate, total, 1e-10)


def _momentum_rate(m, q, v, tau, f_ext):
    a = rbd.aba(m, q, v, tau, f_ext)
    rates = rbd.rate_from_velocity(m, q, v), a
    return jax.jvp(partial(rbd.centroidal_momentum, m), (q, v), rates)[1]


# --- kinematics -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_linear_momentum_is_mass_times_the_velocity_of_the_centre(name):
    m, _, _, x = facts(name)
    close(x.momentum[:, 3:], np.asarray(rbd.total_mass(m)) * x.dcom)


@pytest.mark.parametrize("name", NAMES)
def test_body_accelerations_are_rates_of_body_velocities(name):
    _, _, _, x = facts(name)
    close(x.A_bodies, x.dV_bodies)


@pytest.mark.parametrize("name", NAMES)
def test_angular_momentum_is_that_of_the_bodies(name):
    """Written out with moments of inertia about each body's own centre of mass."""
    m, _, _, x = facts(name)
    I = rbd.spatial.inertia
    mass, c, Jc = (np.asarray(f(m.inertia)) for f in (I.mass, I.com, I.inertia_com))
    w, u = x.V_bodies[..., :3], x.V_bodies[..., 3:]
    velocity = np.einsum("nbij,nbj->nbi", x.R, u + np.cross(w, c))
    arm = np.einsum("nbij,bj->nbi", x.R, c) + x.p - x.com[:, None]
    spin = np.einsum("nbij,bjk,nbk->nbi", x.R, Jc, w)
    linear = mass[:, None] * velocity
    close(x.momentum[:, :3], (spin + np.cross(arm, linear)).sum(1))


@pytest.mark.parametrize("name", FRAME_NAMES)
def test_jacobians_are_derivatives_of_the_placement(name):
    _, _, x = frame_facts(name)
    R, p, u = x["R"], x["p"], x["dp"]
    spin = np.einsum("nijk,nlj->nilk", x["dR"], R)  # [ω_k] = ∂_k R Rᵀ
    w = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    J = dict(zip(REFERENCES, x["J"], strict=True))
    close(J["local_world_aligned"], np.concatenate([w, u], axis=1))
    at_origin = u - np.cross(w, p[:, :, None], axis=1)
    close(J["world"], np.concatenate([w, at_origin], axis=1))
    turned = [np.einsum("nji,njk->nik", R, y) for y in (w, u)]
    close(J["local"], np.concatenate(turned, axis=1))


@pytest.mark.parametrize("name", FRAME_NAMES)
def test_twist_of_a_link_is_that_of_its_body(name):
    m, _, x = frame_facts(name)
    if m.frame_names[deepest_frame(m)] not in m.body_names:
        pytest.skip("the frame is not that of a body")
    close(x["twist"][0], x["V_body"])


@pytest.mark.parametrize("name", FRAME_NAMES)
@pytest.mark.parametrize("k", range(3), ids=REFERENCES)
def test_jacobian_time_derivative(name, k):
    m, s, x = frame_facts(name)
    close(x["dJ"][k], x["dJ_numeric"][k], 1e-9, vanish=straight(m))
    close(x["twist"][k], matvec(x["J"][k], s.v))
    close(x["acceleration"][k], x["twist_rate"][k])


def test_frames_by_name_and_by_number_and_of_the_base():
    m = robot("quadruped")
    q = random_state(m).q
    frame = m.frame_names.index("lh_foot")
    both = [jax.jit(lambda q, f=f: [rbd.jacobian(m, q, f, r) for r in REFERENCES])(q)
            for f in ("lh_foot", frame)]  # fmt: skip
    assert_close(*both, atol=0)
    fixed = samples.arm()

    @jax.jit
    def places(q):
        of = (
            partial(rbd.frame_placement, fixed, q),
            partial(rbd.algorithms.relative_placement, fixed, q),
        )
        there, back = of[1]("tool", "base"), of[1]("base", "tool")
        ends = of[0]("base"), of[0]("tool")
        return rbd.jacobian(fixed, q, "base"), ends, there, se3.compose(there, back)

    still, (base, tool), there, loop = places(random_state(fixed).q)
    assert not jnp.any(still)
    assert_close(base, (jnp.eye(3), jnp.zeros(3)))
    assert_close(there, tool)
    assert_close(loop, (jnp.eye(3), jnp.zeros(3)))


# --- closed forms -----------------------------------------------------------------------------

SWING = np.random.default_rng(0).normal(size=(5, 6))


@pytest.mark.parametrize("row", SWING)
def test_pendulum_by_hand(row):
    """``m l² q̈ + m g l sin q = τ``."""
    m, l, g = 1.7, 0.6, 9.81
    robot = samples.pendulum(m, l)
    q, v, a = (jnp.array([x]) for x in row[:3])
    tau = m * l**2 * a + m * g * l * jnp.sin(q)
    assert_close(run.rnea(robot, q, v, a), tau)
    assert_close(run.aba(robot, q, v, tau), a)
    assert_close(run.crba(robot, q), jnp.array([[m * l**2]]))
    assert_close(run.potential_energy(robot, q), -m * g * l * jnp.cos(q[0]))
    assert_close(run.kinetic_energy(robot, q, v), 0.5 * m * l**2 * v[0] ** 2)
    # axis y: at a small positive angle the bob swings to −x
    at = jnp.stack([-l * jnp.sin(q[0]), 0.0, -l * jnp.cos(q[0])])
    assert_close(run.center_of_mass(robot, q), at)


@pytest.mark.parametrize("row", SWING)
def test_double_pendulum_by_hand(row):
    """The equations of the textbooks in relative angles."""
    (m1, m2), (l1, l2), g = (1.3, 0.8), (0.9, 0.5), 9.81
    robot = samples.double_pendulum((m1, m2), (l1, l2))
    q, v, a = row.reshape(3, 2)
    (q1, q2), (v1, v2) = q, v
    c2, s2 = np.cos(q2), np.sin(q2)
    M = np.array(
        [
            [m1 * l1**2 + m2 * (l1**2 + l2**2 + 2 * l1 * l2 * c2), m2 * (l2**2 + l1 * l2 * c2)],
            [m2 * (l2**2 + l1 * l2 * c2), m2 * l2**2],
        ]
    )
    coriolis = m2 * l1 * l2 * s2 * np.array([-(2 * v1 * v2 + v2**2), v1**2])
    weight = g * np.array(
        [
            (m1 + m2) * l1 * np.sin(q1) + m2 * l2 * np.sin(q1 + q2),
            m2 * l2 * np.sin(q1 + q2),
        ]
    )
    tau = M @ a + coriolis + weight
    q, v, a, tau = (jnp.asarray(x) for x in (q, v, a, tau))
    assert_close(run.crba(robot, q), jnp.asarray(M))
    assert_close(run.bias_torque(robot, q, v), jnp.asarray(coriolis + weight))
    assert_close(run.rnea(robot, q, v, a), tau)
    assert_close(run.aba(robot, q, v, tau), a)
    # the elbow driven, the shoulder free
    driven = jnp.array([False, True])
    got_a, got_tau = run.hybrid_dynamics(robot, q, v, a.at[0].set(9.0), tau.at[1].set(9.0), driven)
    assert_close(got_a, a)
    assert_close(got_tau, tau)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_hybrid_dynamics_ignores_what_it_does_not_need(dtype, formulation):
    """Accelerations of free joints and torques of prescribed ones may be NaN, or huge."""
    m = cast(samples.random_tree(2, n=4), dtype)
    s = cast(random_state(m), dtype)
    prescribed = jnp.arange(m.nb) % 2 == 0
    given = passes.per_dof(m.topology, prescribed[:, None])[:, 0]

    def results(nothing):
        a, tau = jnp.where(given, s.a, nothing), jnp.where(given, nothing, s.tau)
        every = rbd.hybrid_dynamics, rbd.hybrid_aba
        return [f(m, s.q, s.v, a, tau, prescribed, s.f_ext) for f in every]

    with computed_as(formulation):
        expected, *others = [jax.tree.leaves(jax.jit(results)(x)) for x in (0.0, jnp.nan, 1e6)]
    for found in others:
        for x, y in zip(found, expected, strict=True):
            assert_close(x, y, atol=float(100 * jnp.finfo(dtype).eps * jnp.abs(y).max()))


def test_free_body_obeys_euler():
    """``I ω̇ + ω × I ω = n`` and ``m (v̇ + ω × v) = f + m g``, centre of mass at the origin."""
    link = rbd.LinkSpec("body", 2.0, np.zeros(3), np.diag([1.0, 2.0, 2.5]))
    robot = rbd.build_model(rbd.RobotSpec("body", (link,), ()), floating_base=True)
    s = random_state(robot)
    w, u, n, f = s.v[:3], s.v[3:], s.f_ext[0, :3], s.f_ext[0, 3:]
    Iw = jnp.array([1.0, 2.0, 2.5])
    R = run.forward_kinematics(robot, s.q)[0][0]
    dw = (n + s.tau[:3] - jnp.cross(w, Iw * w)) / Iw
    du = (f + s.tau[3:]) / 2 + R.T @ jnp.array([0.0, 0.0, -9.81]) - jnp.cross(w, u)
    assert_close(run.aba(robot, s.q, s.v, s.tau, s.f_ext), jnp.concatenate([dw, du]))


# --- parameters -------------------------------------------------------------------------------


def _change(name, leaf, change):
    m = robot(name)
    return m, eqx.tree_at(lambda m: getattr(m, leaf), m, getattr(m, leaf) + change)


def test_armature_is_added_to_the_diagonal_of_the_mass_matrix():
    extra = jnp.linspace(0.1, 0.9, robot("random_tree0").nv)
    old, new = _change("random_tree0", "armature", extra)
    s = random_state(old)
    assert_close(jit(rbd.crba)(new, s.q) - jit(rbd.crba)(old, s.q), jnp.diag(extra))
    tau = jit(rbd.rnea)(new, s.q, s.v, s.a) - jit(rbd.rnea)(old, s.q, s.v, s.a)
    assert_close(tau, extra * s.a)
    energy = [jit(rbd.kinetic_energy)(m, s.q, s.v) for m in (old, new)]
    assert_close(energy[1] - energy[0], 0.5 * jnp.sum(extra * s.v**2))
    a = jit(rbd.aba)(new, s.q, s.v, s.tau)
    assert_close(jit(rbd.rnea)(new, s.q, s.v, a), s.tau, atol=1e-11)


def test_damping_is_a_torque_against_the_velocity():
    extra = jnp.linspace(0.1, 0.9, robot("random_tree0").nv)
    old, new = _change("random_tree0", "damping", extra)
    s = random_state(old)
    tau = jit(rbd.rnea)(new, s.q, s.v, s.a) - jit(rbd.rnea)(old, s.q, s.v, s.a)
    assert_close(tau, extra * s.v)
    a = jit(rbd.aba)(old, s.q, s.v, s.tau - extra * s.v)
    assert_close(jit(rbd.aba)(new, s.q, s.v, s.tau), a, atol=1e-10)


def test_gravity_is_linear_and_may_point_anywhere():
    m = robot("random_tree0")
    s = random_state(m)
    pull = lambda g: jit(rbd.gravity_torque)(eqx.tree_at(lambda m: m.gravity, m, g), s.q)  # noqa: E731
    columns = jnp.stack([pull(e) for e in jnp.eye(3)], axis=1)
    assert_close(pull(m.gravity), columns @ m.gravity, atol=1e-11)
    assert not jnp.any(pull(jnp.zeros(3)))


def test_dynamics_do_not_depend_on_where_the_robot_is():
    """A floating robot 10 km away in float32 has the mass matrix and torques it has at home."""
    m = cast(robot("quadruped"), jnp.float32)
    s = random_state(m)
    away = s.q.at[:3].set(jnp.array([1e4, -7e3, 4e3], jnp.float32))
    by_torque, by_motion = (s.v, s.tau, s.f_ext), (s.v, s.a, s.f_ext)
    for f, arguments in (
        (rbd.crba, ()),
        (rbd.rnea, by_motion),
        (rbd.inverse_dynamics, by_motion),
        (rbd.inverse_dynamics_derivatives, by_motion),
        (rbd.aba, by_torque),
        (rbd.forward_dynamics, by_torque),
        (rbd.forward_dynamics_derivatives, by_torque),
    ):
        found = [jax.tree.leaves(jit(f)(m, q, *arguments)) for q in (s.q, away)]
        for home, there in zip(*found, strict=True):
            assert home.dtype == jnp.float32
            assert_close(there, home, rtol=2e-6, atol=2e-6 * float(jnp.abs(home).max()))


def test_a_turned_world_changes_nothing():
    """Turning the placement of the root body and gravity together leaves the dynamics alone."""
    m = robot("random_tree0")
    s = random_state(m)
    turn = so3.exp(jnp.array([0.4, -1.1, 0.7]))
    R, p = se3.compose((turn, jnp.array([3.0, 1.0, 2.0])), (m.placement_R[0], m.placement_p[0]))
    leaves = lambda m: (m.placement_R, m.placement_p, m.gravity)  # noqa: E731
    values = m.placement_R.at[0].set(R), m.placement_p.at[0].set(p), turn @ m.gravity
    turned = eqx.tree_at(leaves, m, values)
    args = s.q, s.v, s.tau, s.f_ext
    assert_close(jit(rbd.crba)(turned, s.q), jit(rbd.crba)(m, s.q), atol=1e-11)
    tau = [jit(rbd.rnea)(x, s.q, s.v, s.a, s.f_ext) for x in (m, turned)]
    assert_close(*tau, atol=1e-10)
    assert_close(*[jit(rbd.aba)(x, *args) for x in (m, turned)], rtol=1e-10)


# --- passes over the tree, in every formulation -----------------------------------------------


def _random_parents(seed: int, n: int, reach: int) -> rbd.model.topology.Tree:
    """Nodes numbered parents first, several of them roots."""
    rng = np.random.default_rng(seed)
    parents = [-1] + [int(rng.integers(max(-1, i - reach), i)) for i in range(1, n)]
    return rbd.model.topology.Tree(tuple(parents))


TREES = {
    "bushy": _random_parents(0, 17, 17),
    "lean": _random_parents(1, 17, 3),
    "large": _random_parents(2, 200, 9),  # above the limit of the dense mask
    "chain": rbd.model.topology.Tree(tuple(range(-1, 8))),
    "roots": rbd.model.topology.Tree((-1, -1, -1)),
    "one": rbd.model.topology.Tree((-1,)),
    "none": rbd.model.topology.Tree(()),
}


SIMILAR = ("lean", "chain", "roots")  # to others of the trees


@pytest.fixture(
    params=[pytest.param(n, marks=pytest.mark.slow) if n in SIMILAR else n for n in TREES]
)
def tree(request):
    return TREES[request.param]


def _poses(n: int, seed: int = 0):
    w, p = np.random.default_rng(seed).normal(size=(2, n, 3))
    return np.asarray(jit(so3.exp)(w)), p


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_root_to_leaf_is_the_loop_over_parents(tree, formulation):
    T = _poses(tree.n)
    world = jnp.array([0.3, -0.2, 0.5]), jnp.array(0.7)

    @jax.jit
    def step(parent, x):
        (R, p), w = x
        return so3.rotate(R, parent[0]) + p * parent[1], parent[1] * w + p[0]

    w = np.linspace(0.5, 1.5, tree.n)
    down = lambda *x: passes.root_to_leaf(tree, step, x, world)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(down)(T, w))
    values = []
    for i, parent in enumerate(tree.parents):
        above = values[parent] if parent >= 0 else world
        values.append(step(above, ((T[0][i], T[1][i]), w[i])))
    assert got[0].shape == (tree.n, 3) and got[1].shape == (tree.n,)
    for k in range(2):
        for i in range(tree.n):
            assert_close(got[k][i], values[i][k])


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_leaf_to_root_is_the_loop_over_children(tree, formulation):
    T = _poses(tree.n)

    @jax.jit
    def step(x, below):
        R, p = x
        total = p + below[0]
        return (0.5 * so3.rotate(R, total), below[1] + total[0]), (total, below[1] * 2)

    zero = jnp.zeros(3), jnp.zeros(())
    up = lambda *x: passes.leaf_to_root(tree, step, x, zero)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(up)(*T))
    sums, outs = [zero] * tree.n, [None] * tree.n
    for i in reversed(range(tree.n)):
        up, outs[i] = step((T[0][i], T[1][i]), sums[i])
        parent = tree.parents[i]
        if parent >= 0:
            sums[parent] = jax.tree.map(np.add, sums[parent], up)
    assert got[0].shape == (tree.n, 3) and got[1].shape == (tree.n,)
    for k in range(2):
        for i in range(tree.n):
            assert_close(got[k][i], outs[i][k])


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_ancestor_product_is_the_product_along_the_chain(tree, formulation):
    T, one = _poses(tree.n), se3.identity(jnp.zeros(()).dtype)
    product = lambda *x: passes.ancestor_product(tree, se3.compose, x, one)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(product)(*T))
    values = []
    for i, parent in enumerate(tree.parents):
        own = T[0][i], T[1][i]
        values.append(jit(se3.compose)(values[parent], own) if parent >= 0 else own)
        assert_close((got[0][i], got[1][i]), values[i], atol=1e-11)


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_sums_along_the_tree_are_the_loops(tree, formulation):
    x = _poses(tree.n)[1]
    up, down = np.array(x), np.array(x)
    for i, parent in enumerate(tree.parents):
        down[i] += down[parent] if parent >= 0 else 0
    for i in reversed(range(tree.n)):
        if tree.parents[i] >= 0:
            up[tree.parents[i]] += up[i]
    sums = jax.jit(lambda x: (passes.ancestor_sum(tree, x), passes.subtree_sum(tree, x)))
    with computed_as(formulation):
        assert_close(sums(x), (down, up))


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_sums_about_points_of_the_nodes_are_those_about_one(tree, formulation):
    p = np.asarray(_poses(tree.n)[1])
    I = np.random.default_rng(0).normal(size=(tree.n, 10))
    about = lambda p, I: passes.subtree_sum_about(tree, inertia.translate, p, I)  # noqa: E731
    total = np.array(jax.jit(inertia.translate)(p, I))  # about the one origin of all points
    for i in reversed(range(tree.n)):
        if tree.parents[i] >= 0:
            total[tree.parents[i]] += total[i]
    with computed_as(formulation):
        sums = jax.jit(about)(p, I)
    assert_close(jax.jit(inertia.translate)(p, sums), total, atol=1e-11)


def test_sums_over_degrees_of_freedom_are_the_loops():
    topology = robot("random_tree0").topology
    x = jax.random.normal(jax.random.key(0), (topology.nv, 6))
    y = jax.random.normal(jax.random.key(1), (topology.nb, 6))
    bodies = [b for b, k in enumerate(topology.kinds) for _ in range(rbd.model.topology.NV[k])]
    sums = np.zeros((topology.nb, 6))
    np.add.at(sums, bodies, np.asarray(x))
    assert_close(passes.sum_dofs(topology, x), sums, atol=1e-15)
    assert_close(passes.per_dof(topology, y), y[np.array(bodies)], atol=0)


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_pairs_of_nodes_and_ancestors_are_the_double_loop(tree, formulation):
    """Entries of a node with itself and those above it, their mirror image; a triangular solve."""
    x = np.random.default_rng(0).normal(size=(tree.n, 2))
    above = tree.ancestor_mask
    entries = lambda a, b: ((a[0] * b[1], a[1] - b[0]),)  # noqa: E731
    expected = np.zeros((tree.n, tree.n))
    for i, j in zip(*np.nonzero(above), strict=True):
        expected[j, i] = x[i, 1] - x[j, 0]
    for i, j in zip(*np.nonzero(above), strict=True):
        expected[i, j] = x[i, 0] * x[j, 1]
    with computed_as(formulation):
        (found,) = jax.jit(lambda x: passes.ancestor_matrices(above, entries, x))(x)
    assert_close(found, expected)

    L, psi = np.eye(tree.n), 0.5 + np.abs(x[:, 0])
    values = 0.3 * np.sin(np.arange(len(tree.pairs[0])))
    L[tree.pairs] = values
    B = np.random.default_rng(1).normal(size=(tree.n, 3))
    solved = jax.jit(partial(passes.solve_along_branches, tree))(values, psi, B)
    assert_close(L.T @ np.diag(1 / psi) @ L @ solved, B, atol=1e-8)


def test_formulations_agree_in_every_algorithm():
    m = robot("random_tree1")
    s = random_state(m)

    def all_of_it(m, s):
        p = jnp.arange(m.nb) % 3 == 0
        return (
            rbd.rnea(m, s.q, s.v, s.a, s.f_ext),
            rbd.hybrid_dynamics(m, s.q, s.v, s.a, s.tau, p, s.f_ext),
            rbd.algorithms.body_accelerations(m, s.q, s.v, s.a),
            rbd.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext),
            rbd.crba(m, s.q),
            rbd.forward_dynamics_derivatives(m, s.q, s.v, s.tau, s.f_ext),
        )

    results = []
    for name in FORMULATIONS:
        with computed_as(name):
            results.append(jax.jit(lambda m, s: all_of_it(m, s))(m, s))
    for other in results[1:]:
        for a, b in zip(*map(jax.tree.leaves, (other, results[0])), strict=True):
            close(a, b)


@pytest.mark.parametrize("mask", [128, 0])  # 0: as with very many bodies
def test_dynamics_where_loops_are_slow(mask):
    """What accelerators run is RNEA and ABA too, with one loop only, over blocks of M."""
    m = robot("random_tree1")
    s = random_state(m)

    def both(m, s):
        tau = rbd.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext)
        forward = partial(rbd.forward_dynamics, m, f_ext=s.f_ext)
        return tau, *jax.jvp(forward, (s.q, s.v, s.tau), (s.q, s.a, s.v))

    *_, exact = jax.jit(both)(m, s)  # as on a CPU
    loops = run.rnea(m, s.q, s.v, s.a, s.f_ext), run.aba(m, s.q, s.v, s.tau, s.f_ext)
    with computed_as("accelerator", mask=mask):
        lowered = jax.jit(lambda m, s: both(m, s)).lower(m, s)
    assert lowered.as_text().count("stablehlo.while") == 1
    tau, acceleration, rate = lowered.compile()(m, s)
    close(tau, loops[0])
    close(acceleration, loops[1])
    close(rate, exact)


def test_a_long_chain_keeps_its_digits_where_loops_are_slow():
    """In single precision the inverse of M would be wrong by half for some of these states."""
    m = samples.chain(32, dtype="float64")
    m32 = cast(m, jnp.float32)
    q, v, tau = jax.random.normal(jax.random.key(0), (3, 256, 32)).astype(jnp.float32)
    exact = quick_jit(jax.vmap(rbd.aba, (None, 0, 0, 0)))(m, *cast((q, v, tau), jnp.float64))
    with computed_as("accelerator"):
        found = quick_jit(jax.vmap(lambda *x: rbd.forward_dynamics(m32, *x)))(q, v, tau)
    found = found.astype(jnp.float64)
    error = jnp.linalg.norm(found - exact, axis=1) / jnp.linalg.norm(exact, axis=1)
    assert error.max() < 1e-4


# --- shapes of trees --------------------------------------------------------------------------


def _two_roots() -> rbd.Model:
    """Two arms on one base, in a world tree with several roots."""
    link = partial(rbd.LinkSpec, mass=1.0, com=np.array([0.1, 0.2, 0.3]), inertia=0.1 * np.eye(3))
    joints, links = [], [rbd.LinkSpec("base")]
    for side, kinds in {"left": ("revolute", "spherical"), "right": ("free", "prismatic")}.items():
        parent = "base"
        for k, kind in enumerate(kinds):
            name = f"{side}{k}"
            links.append(link(name))
            p = np.array([0.4 if side == "left" else -5.0, 0.1, 0.2])
            axis = np.array([0.6, 0.0, 0.8])
            joints.append(rbd.JointSpec(f"j_{name}", kind, parent, name, p=p, axis=axis))
            parent = name
    return rbd.build_model(rbd.RobotSpec("two_roots", tuple(links), tuple(joints)))


SHAPES = {
    "chain300": partial(samples.chain, 300),
    "wide300": partial(samples.tree, 300, 299),
    "floating_chain150": partial(samples.chain, 150, floating_base=True),
    "two_roots": _two_roots,
}


@pytest.mark.parametrize("name", SHAPES)
def test_deep_wide_and_many_rooted_trees(name):
    m = SHAPES[name]()

    def f(m, s):
        M, h = rbd.crba(m, s.q), rbd.bias_torque(m, s.q, s.v, s.f_ext)
        tau = rbd.rnea(m, s.q, s.v, s.a, s.f_ext)
        a = rbd.aba(m, s.q, s.v, tau, s.f_ext)
        return M, h, tau, a, rbd.kinetic_energy(m, s.q, s.v)

    s = random_state(m)
    M, h, tau, a, T = jax.jit(f)(m, s)
    close(M @ s.a + h, tau)
    close(T, 0.5 * s.v @ M @ s.v)
    close(M @ a + h, tau)
    d = 1 / np.sqrt(np.diag(M))  # 300 links in a row: cond(M) = 5e8, even after scaling
    close(a, s.a, 1e-12 + 2.0**-52 * np.linalg.cond(d[:, None] * np.asarray(M) * d))


def test_bodies_on_two_roots_do_not_feel_each_other():
    m = _two_roots()
    M = run.crba(m, random_state(m).q)
    left = np.isin(m.topology.tree.roots[m.topology.dof_bodies], 0)
    assert left.sum() == 4 and not np.any(np.asarray(M)[np.ix_(left, ~left)])
    assert np.linalg.eigvalsh(M).min() > 0


@cache
def _still() -> rbd.Model:
    joint = rbd.JointSpec("weld", "fixed", "base", "tip", p=np.array([0.0, 0.0, 1.0]))
    links = rbd.LinkSpec("base", 1.0), rbd.LinkSpec("tip", 1.0)
    return rbd.build_model(rbd.RobotSpec("still", links, (joint,)))


@pytest.mark.parametrize("name", each_public_function())
def test_a_robot_that_cannot_move(name):
    """No degrees of freedom: every function gives empty arrays, zeros or fixed poses."""
    if name == "screw.jacobian_partials":
        pytest.skip("asks for a body that moves")
    f, args = traced(name, _still())
    out = f(*args)
    if name != "center_of_mass":  # nothing moves, so nothing has a centre
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(out))
    shapes = jax.eval_shape(f, *args)
    assert jax.tree.map(lambda x: x.shape, out) == jax.tree.map(lambda x: x.shape, shapes)


ONE_BODY = (pytest.param("revolute", marks=pytest.mark.slow), "free")


@cache
def one_body(*kinds):
    return samples.random_tree(5, kinds=kinds)


@pytest.mark.parametrize("kind", ONE_BODY)
@pytest.mark.parametrize("name", each_public_function())
def test_a_robot_of_one_body(name, kind):
    f, args = traced(name, one_body(kind))
    out = jax.jit(f)(*args)
    assert jax.tree.leaves(out)
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(out))


@pytest.mark.parametrize("name", each_public_function())
def test_an_empty_batch(name):
    f, (m, arrays) = traced(name, one_body("free", "revolute"))
    f = jax.jit(f)  # traced once
    if not arrays:
        pytest.skip("takes nothing but the model")
    if name == "random_configuration":
        pytest.skip("keys are drawn before the batch is known")
    none = jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), arrays)
    out = jax.jit(jax.vmap(f, in_axes=(None, 0)))(m, none)
    one = jax.eval_shape(f, m, arrays)
    assert jax.tree.map(lambda x: x.shape, out) == jax.tree.map(lambda x: (0, *x.shape), one)
