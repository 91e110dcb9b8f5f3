"""Robots in fewer coordinates than joints: every algorithm, the rules, refused laws."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.driven import MODELS, explicit, hand, knee
from support.helpers import assert_close, cast, central_difference, random_state, stack
from support.inputs import assert_relative, inputs, with_leaves

import rbd_jax as rbd

robots = pytest.mark.parametrize("name", list(MODELS))


@quick_jit
def _both(m, s):
    """Results in coordinates, and what the robot of all joints says of them."""
    q, v, a, tau, f = s
    full, Phi = explicit(m, q)
    bias = central_difference(
        lambda t: explicit(m, rbd.integrate(m, q, t * v))[1] @ v, jnp.zeros(1)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["knee", pytest.param("hand", marks=pytest.mark.slow)])
def test_every_algorithm_is_the_projection_of_the_robot_of_all_joints(name):
    m = MODELS[name]()
    ours, theirs = _both(m, random_state(m))
    assert_close(ours, theirs, rtol=1e-7, atol=1e-8)


@pytest.mark.float64
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
    Phi = explicit(m, q)[1]
    damping = Phi.T @ (m.damping * (Phi @ v))
    T = 0.5 * v @ rbd.crba(m, q) @ v
    C = rbd.coriolis_matrix(m, q, v)
    h = C @ v + rbd.gravity_torque(m, q) + damping
    return rate - slope + damping, rbd.rnea(m, q, v, a), h, rbd.bias_torque(m, q, v), T


@pytest.mark.slow
@pytest.mark.float64
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
        slow("hand", "forward", _first_order),
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


# --- errors ---------------------------------------------------------------------


@pytest.mark.float64
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


@pytest.mark.float64
def test_functions_without_coordinates_refuse_driven_joints():
    m = hand()
    s = random_state(m)
    with pytest.raises(TypeError, match="takes no robot with driven .mimic. joints as 'hand'"):
        rbd.screw.jacobian_rates(m, s.q, s.v)
