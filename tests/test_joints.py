"""Joint kinds: ⊕ and ⊖, rates, motion subspaces, quaternions, random configurations, names."""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import (
    MODELS,
    SINGLE_KIND,
    assert_close,
    canonical,
    cast,
    jit,
    model as sample,
    quaternion_slices,
    random_states,
    scale_quaternions,
    stack,
    tangent_difference,
)

import rbd_jax as rbd
from rbd_jax import JointSpec, LinkSpec, RobotSpec
from rbd_jax.model import ELEMENTARY, joint_placements, motion_subspace
from rbd_jax.spatial import se3, so3

EPS = np.finfo(float).eps
BATCH = 16
# composites are chains of the others and occur in the random tree of all kinds
NAMES = (*(f"only_{kind}" for kind in ELEMENTARY), "random_tree")
ROBOTS = pytest.mark.parametrize("name", NAMES)
QUATERNIONS = pytest.mark.parametrize("name", ["only_spherical", "only_free", "random_tree"])


@partial(jax.jit, static_argnums=0)
def over(f, model, *args):
    """``f(model, ·)`` mapped over the leading axis of the other arguments."""
    return jax.vmap(partial(f, model))(*args)


def body_twists(model, v):
    """``S v`` summed for each body, (nb, 6)."""
    contributions = motion_subspace(model) * v[:, None]
    return jnp.zeros((model.nb, 6), v.dtype).at[model.topology.dof_bodies].add(contributions)


def relative_twists(T, dT):
    """``(T⁻¹ dT)^∨`` of stacked poses."""
    W = so3.matmul(so3.transpose(T[0]), dT[0])
    return jnp.concatenate([so3.vee(W), so3.rotate_inverse(T[0], dT[1])], axis=-1)


def fixed_robot(dtype=None):
    """A robot whose joints are all fixed."""
    joints = (JointSpec("weld", "fixed", "base", "tool", p=np.array([0.0, 0.0, 1.0])),)
    spec = RobotSpec("statue", (LinkSpec("base", 1.0), LinkSpec("tool", 2.0)), joints)
    return rbd.build_model(spec, dtype=dtype)


def limited(lower, upper, dtype=None):
    """One revolute joint with these limits."""
    joint = JointSpec("hinge", "revolute", "base", "link", lower=lower, upper=upper)
    spec = RobotSpec("hinged", (LinkSpec("base"), LinkSpec("link", 1.0)), (joint,))
    return rbd.build_model(spec, dtype=dtype)


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


# --- random and neutral --------------------------------------------------------------------------


def draw(model, n=400):
    """Random configurations, (n, nq)."""
    keys = jax.random.split(jax.random.key(3), n)
    return over(rbd.random_configuration, model, keys)


@pytest.mark.parametrize("name", ["arm", "quadruped"])
def test_random_configurations_fill_the_limits(name):
    model = sample(name)
    q = draw(model)
    limited = np.isfinite(model.position_lower)
    low, high = model.position_lower[limited], model.position_upper[limited]
    share = (q[:, limited] - low[None]) / (high - low)[None]
    assert jnp.all((share >= 0) & (share <= 1))
    assert jnp.all(share.min(axis=0) < 0.05) and jnp.all(share.max(axis=0) > 0.95)


@pytest.mark.parametrize(
    "limits, low, high",
    [
        ((None, None), -np.pi, np.pi),
        ((0.5, -0.5), -np.pi, np.pi),
        ((-0.2, 0.3), -0.2, 0.3),
        ((0.7, 0.7), 0.7, 0.7),
        ((0.5, None), 0.5, 0.5 + np.pi),
        ((None, -0.5), -0.5 - np.pi, -0.5),
        ((-0.5, None), -0.5, np.pi),
        ((9.0, None), 9.0, 9.0 + np.pi),
        ((None, -9.0), -9.0 - np.pi, -9.0),
        ((-1e300, 1e300), -np.pi, np.pi),
        ((2000.0, 3000.0), 2000.0, 3000.0),
    ],
)
def test_random_configuration_with_missing_inverted_and_huge_limits(limits, low, high):
    q = draw(limited(*limits))
    assert jnp.all((q >= low) & (q <= high))
    assert jnp.ptp(q) >= 0.9 * (high - low)


def test_random_orientations_are_uniform():
    """The mean of R over the rotations is zero, that of w² a quarter."""
    model = sample("only_spherical")
    q = draw(model, 4000)
    R = over(joint_placements, model, q)[0] - 0.0
    assert jnp.max(jnp.abs(R.mean(axis=0))) < 0.05
    squares = jnp.stack([q[:, s] ** 2 for s in quaternion_slices(model)])
    assert_close(squares.mean(axis=1), jnp.full((3, 4), 0.25), atol=0.02)


@pytest.mark.parametrize("name", ["random_tree", "quadruped"])
def test_other_keys_give_other_configurations(name):
    q = draw(sample(name), 2)
    assert jnp.all(q[0] != q[1])


@ROBOTS
def test_neutral_leaves_every_joint_frame_where_the_description_put_it(name):
    model = sample(name)
    q = rbd.neutral(model)
    placements = jit(joint_placements)(model, q)
    assert_close(placements, (model.placement_R, model.placement_p), atol=2 * EPS)
    assert_close(jit(rbd.difference)(model, q, q), jnp.zeros(model.nv), atol=0)


# --- edges: no joints, one body, dtypes, batches of models ---------------------------------------


def every_function(model, q, v):
    """All functions of the joint interface."""
    return {
        "placements": joint_placements(model, q),
        "subspace": motion_subspace(model),
        "integrate": rbd.integrate(model, q, v),
        "difference": rbd.difference(model, q, rbd.integrate(model, q, v)),
        "rate": rbd.rate_from_velocity(model, q, v),
        "velocity": rbd.velocity_from_rate(model, q, q),
        "neutral": rbd.neutral(model),
        "random": rbd.random_configuration(model, jax.random.key(0)),
    }


def test_a_robot_without_joints():
    model = fixed_robot()
    assert (model.nq, model.nv, model.nb) == (0, 0, 0)
    assert model.frame_names == ("base", "tool")
    out = jit(every_function)(model, jnp.zeros(0), jnp.zeros(0))
    shapes = {k: jax.tree.map(jnp.shape, x) for k, x in out.items()}
    assert shapes.pop("placements") == ((0, 3, 3), (0, 3))
    assert shapes.pop("subspace") == (0, 6)
    assert set(shapes.values()) == {(0,)}
    grad = jax.grad(lambda q: jnp.sum(rbd.integrate(model, q, q)))(jnp.zeros(0))
    assert grad.shape == (0,)
    batch = over(rbd.integrate, model, jnp.zeros((5, 0)), jnp.zeros((5, 0)))
    assert batch.shape == (5, 0)


def test_a_robot_of_one_link():
    model = rbd.build_model(RobotSpec("brick", (LinkSpec("brick", 1.0),), ()), floating_base=True)
    assert (model.nq, model.nv, model.nb) == (7, 6, 1)
    q = rbd.neutral(model).at[:3].set(jnp.array([1.0, 2.0, 3.0]))
    assert_close(joint_placements(model, q), (jnp.eye(3)[None], q[None, :3]), atol=0)


def test_pendulum_placement_in_closed_form():
    R, p = joint_placements(sample("pendulum"), jnp.array([0.3]))
    c, s = np.cos(0.3), np.sin(0.3)
    assert_close(R[0], jnp.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]), atol=EPS)
    assert_close(p[0], jnp.zeros(3), atol=0)


@pytest.mark.parametrize("name", ["random_tree", "arm"])
def test_float32_models_give_float32(name):
    model, single = sample(name), sample(name, jnp.float32)
    states = random_states(model, 1)
    args = states.q[0], states.v[0]
    expected = jit(every_function)(model, *args)
    actual = jit(every_function)(single, *cast(args, jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(actual)} == {np.dtype("float32")}
    actual.pop("random"), expected.pop("random")
    assert_close(actual, expected, atol=2e-6)


def test_cast_model_equals_one_built_in_that_dtype():
    assert eqx.tree_equal(cast(sample("random_tree"), jnp.float32),
                          sample("random_tree", jnp.float32))  # fmt: skip


def test_vmap_over_stacked_models():
    where = lambda m: (m.placement_p, m.axis, m.pitch)  # noqa: E731
    base = sample("random_tree")
    scaled = lambda k: eqx.tree_at(where, base, [k * x for x in where(base)])  # noqa: E731
    models = [scaled(k) for k in (1.0, 1.5, -2.0)]
    states = random_states(models[0], 3)
    batch = jax.jit(jax.vmap(every_function))(stack(models), states.q, states.v)
    each = zip(models, states.q, states.v, strict=True)
    one_by_one = [jit(every_function)(*args) for args in each]
    assert_close(batch, stack(one_by_one), atol=1e-14)


def test_only_the_direction_of_an_axis_matters():
    model = sample("random_tree")
    longer = eqx.tree_at(lambda m: m.axis, model, 3.0 * model.axis)
    q = random_states(model, 1).q[0]
    f = jit(lambda model, q: (joint_placements(model, q), motion_subspace(model)))
    assert_close(f(longer, q), f(model, q), atol=4 * EPS)

    def value(axis):
        m = eqx.tree_at(lambda m: m.axis, model, axis)
        return sum(jnp.sum(jnp.sin(x)) for x in (*joint_placements(m, q), motion_subspace(m)))

    g = jax.jit(jax.grad(value))(model.axis)
    assert_close(jnp.sum(g * model.axis, axis=-1), jnp.zeros(model.nb), atol=1e-14)
    screws = np.isin(model.topology.kinds, ("revolute", "prismatic", "helical"))
    assert jnp.all(jnp.linalg.norm(g[screws], axis=-1) > 1e-3)
    assert_close(g[~screws], jnp.zeros_like(g[~screws]), atol=0)


def test_pitch_moves_screw_joints_along_their_axis_and_nothing_else():
    """``∂p/∂pitch = q a`` for revolute and helical joints; others have no pitch."""
    model = sample("random_tree")
    q = random_states(model, 1).q[0]
    f = lambda pitch: joint_placements(eqx.tree_at(lambda m: m.pitch, model, pitch), q)  # noqa: E731
    dR, dp = jax.jit(jax.jacfwd(f))(model.pitch)
    expected = np.zeros((model.nb, 3, model.nb))
    for i, kind in enumerate(model.topology.kinds):
        if kind in ("revolute", "helical"):
            a = model.placement_R[i] @ model.axis[i]
            expected[i, :, i] = q[model.topology.q_starts[i]] * a
    assert_close(dp, expected, atol=1e-15)
    assert_close(dR, jnp.zeros_like(dR), atol=0)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MODELS, *SINGLE_KIND])
def test_joint_slices_tile_q_and_v(name):
    model = sample(name)
    for slice_of, n in ((model.q_slice, model.nq), (model.v_slice, model.nv)):
        places = np.concatenate([np.arange(n)[slice_of(j)] for j in model.joint_names])
        assert_close(places, np.arange(n), atol=0)


def test_a_composite_joint_has_the_slice_of_its_parts():
    model = sample("only_planar")
    assert model.q_slice("joint1") == slice(3, 6)
    assert model.v_slice("joint1:angle") == slice(5, 6)
    assert model.joint_names[:3] == ("joint0:x", "joint0:y", "joint0:angle")
    assert model.body_names[:3] == ("joint0:x", "joint0:y", "link0")


def test_slices_of_multi_dof_joints():
    model = sample("quadruped")
    assert (model.q_slice("root_joint"), model.v_slice("root_joint")) == (slice(0, 7), slice(0, 6))
    assert (model.q_slice("lf_haa"), model.v_slice("lf_haa")) == (slice(7, 8), slice(6, 7))


@pytest.mark.parametrize("call", ["q_slice", "v_slice"])
def test_an_unknown_joint_is_refused_with_the_nearest_names(call):
    with pytest.raises(KeyError, match=re.escape("has no joint 'lf_hab'; nearest")) as error:
        getattr(sample("quadruped"), call)("lf_hab")
    assert "'quadruped'" in str(error.value) and "'lf_haa'" in str(error.value)


def test_an_unknown_composite_joint_is_refused_with_the_nearest_names():
    with pytest.raises(KeyError, match="'joint2'"):
        sample("only_planar").q_slice("joinr2")


def test_an_unknown_frame_is_refused_with_the_nearest_names():
    with pytest.raises(KeyError, match="has no frame 'tol'.*'tool'"):
        sample("arm").topology.frame_index("tol")
