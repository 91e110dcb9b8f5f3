"""Joint kinds: ⊕ and ⊖, rates, motion subspaces, quaternions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import (
    assert_close,
    canonical,
    model as sample,
    quaternion_slices,
    random_states,
    scale_quaternions,
    tangent_difference,
)
from support.joint_cases import EPS, NAMES, ROBOTS, over

import rbd_jax as rbd
from rbd_jax.model import joint_placements, motion_subspace
from rbd_jax.spatial import se3, so3

BATCH = 16
QUATERNIONS = pytest.mark.parametrize("name", ["only_spherical", "only_free", "random_tree"])


def body_twists(model, v):
    """``S v`` summed for each body, (nb, 6)."""
    contributions = motion_subspace(model) * v[:, None]
    return jnp.zeros((model.nb, 6), v.dtype).at[model.topology.dof_bodies].add(contributions)


def relative_twists(T, dT):
    """``(T⁻¹ dT)^∨`` of stacked poses."""
    W = so3.matmul(so3.transpose(T[0]), dT[0])
    return jnp.concatenate([so3.vee(W), so3.rotate_inverse(T[0], dT[1])], axis=-1)


# --- ⊕, ⊖ and rates ------------------------------------------------------------------------------


@ROBOTS
def test_integrate_follows_difference(name):
    model = sample(name)
    q0, q1 = random_states(model, BATCH).q, random_states(model, BATCH, 1).q
    dv = over(rbd.difference, model, q0, q1)
    reached = over(rbd.integrate, model, q0, dv)
    assert_close(canonical(model, reached), canonical(model, q1), atol=2e-14)


@ROBOTS
def test_difference_recovers_a_step(name):
    model = sample(name)
    states = random_states(model, BATCH)
    for size in (0.0, 1e-9, 1e-4, 0.5):
        dv = size * states.v
        back = over(rbd.difference, model, states.q, over(rbd.integrate, model, states.q, dv))
        assert_close(back, dv, atol=1e-14)


@ROBOTS
def test_a_step_moves_each_body_by_the_exponential_of_its_screw(name):
    """``T(q ⊕ v) = T(q) exp(S v)`` for a step of any size."""
    model = sample(name)
    states = random_states(model, BATCH)

    def both(model, q, v):
        step = se3.exp(body_twists(model, v))
        moved = joint_placements(model, rbd.integrate(model, q, v))
        return moved, se3.compose(joint_placements(model, q), step)

    moved, expected = over(both, model, states.q, 2.0 * states.v)
    assert_close(moved, expected, atol=3e-14)


@ROBOTS
def test_motion_subspace_is_the_derivative_of_the_placements(name):
    """``T⁻¹ Ṫ = S v`` (Kim (62)): along the ambient rate, along ⊕, and by differences."""
    model = sample(name)
    states = random_states(model, 4)

    def twists(model, q, v):
        T = joint_placements(model, q)
        dq = rbd.rate_from_velocity(model, q, v)
        ambient = jax.jvp(partial(joint_placements, model), (q,), (dq,))[1]
        along = lambda d: joint_placements(model, rbd.integrate(model, q, d))  # noqa: E731
        step = jax.jvp(along, (jnp.zeros_like(v),), (v,))[1]
        J = tangent_difference(model, partial(joint_placements, model), q)
        differences = jax.tree.map(lambda x: x @ v, J)
        return tuple(relative_twists(T, dT) for dT in (ambient, step, differences))

    ambient, step, differences = over(twists, model, states.q, states.v)
    expected = over(lambda model, v: body_twists(model, v), model, states.v)
    assert_close((ambient, step), (expected, expected), atol=1e-14)
    assert_close(differences, expected, atol=1e-11)


@ROBOTS
def test_velocity_inverts_rate_also_for_long_quaternions(name):
    model = sample(name)
    states = random_states(model, BATCH)
    for factor in (1.0, -3.0, 0.2):
        q = scale_quaternions(model, states.q, factor)
        dq = over(rbd.rate_from_velocity, model, q, states.v)
        assert_close(over(rbd.velocity_from_rate, model, q, dq), states.v, atol=1e-14)


@ROBOTS
def test_rate_is_the_derivative_of_integrate(name):
    model = sample(name)
    states = random_states(model, BATCH)

    def rates(model, q, v):
        zero = jnp.zeros_like(v)
        step = jax.jvp(partial(rbd.integrate, model, q), (zero,), (v,))[1]
        reverse = jax.jacrev(partial(rbd.integrate, model, q))(zero) @ v
        return step, reverse

    expected = over(rbd.rate_from_velocity, model, states.q, states.v)
    assert_close(over(rates, model, states.q, states.v), (expected, expected), atol=1e-14)


def round_trip(model, q, d):
    """``(q ⊕ d) ⊖ q``: the identity in d."""
    return rbd.difference(model, q, rbd.integrate(model, q, d))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivative_of_difference_where_both_ends_are_the_same(name, mode):
    model = sample(name)

    def J(model, q):
        zero = jnp.zeros(model.nv)
        start = lambda d: rbd.difference(model, rbd.integrate(model, q, d), q)  # noqa: E731
        return mode(partial(round_trip, model, q))(zero), mode(start)(zero)

    eye = jnp.broadcast_to(jnp.eye(model.nv), (4, model.nv, model.nv))
    assert_close(over(J, model, random_states(model, 4).q), (eye, -eye), atol=1e-14)


@pytest.mark.parametrize("name", ["only_spherical", "only_free"])
def test_second_derivative_of_difference_where_both_ends_are_the_same(name):
    model = sample(name)

    def H(model, q):
        return jax.jacfwd(jax.jacrev(partial(round_trip, model, q)))(jnp.zeros(model.nv))

    n = model.nv
    assert_close(over(H, model, random_states(model, 4).q), jnp.zeros((4, n, n, n)), atol=1e-14)


# --- quaternions ---------------------------------------------------------------------------------


@QUATERNIONS
def test_the_length_and_sign_of_a_quaternion_do_not_matter(name):
    model = sample(name)
    states, q1 = random_states(model, BATCH), random_states(model, BATCH, 1).q

    def values(model, q, q1, v):
        reached = canonical(model, rbd.integrate(model, q, v))
        return joint_placements(model, q), reached, rbd.difference(model, q, q1)

    expected = over(values, model, states.q, q1, states.v)
    for factor in (-1.0, 7.0, -1e-3):
        q, other = (scale_quaternions(model, x, factor) for x in (states.q, q1))
        assert_close(over(values, model, q, other, states.v), expected, atol=2e-14)


@QUATERNIONS
def test_ambient_gradients_are_orthogonal_to_the_quaternion(name):
    model = sample(name)
    weights = np.random.default_rng(0).normal(size=(model.nb, 3, 4))
    states = random_states(model, BATCH)

    def gradient(model, q, v):
        def value(q):
            R, p = joint_placements(model, rbd.integrate(model, q, v))
            return jnp.sum(weights[..., :3] * R) + jnp.sum(weights[..., 3] * p)

        return jax.grad(value)(q)

    q = scale_quaternions(model, states.q, 2.0)
    g = over(gradient, model, q, states.v)
    for s in quaternion_slices(model):
        assert_close(jnp.sum(g[:, s] * q[:, s], axis=-1), jnp.zeros(BATCH), atol=1e-14)
        assert jnp.all(jnp.linalg.norm(g[:, s], axis=-1) > 1e-3)


@QUATERNIONS
def test_integrate_and_random_give_unit_quaternions(name):
    model = sample(name)
    states = random_states(model, BATCH)
    q = over(rbd.integrate, model, scale_quaternions(model, states.q, 5.0), states.v)
    for s in quaternion_slices(model):
        for x in (states.q, q):
            assert_close(jnp.linalg.norm(x[:, s], axis=-1), jnp.ones(BATCH), atol=4 * EPS)
