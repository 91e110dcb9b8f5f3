"""Joints at the edges: none, one, dtypes, batches of models, names."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import (
    MODELS,
    SINGLE_KIND,
    assert_close,
    cast,
    jit,
    model as sample,
    random_states,
    stack,
)
from support.joint_cases import EPS, over

import rbd_jax as rbd
from rbd_jax import JointSpec, LinkSpec, RobotSpec
from rbd_jax.model import joint_placements, motion_subspace


def fixed_robot(dtype=None):
    """A robot whose joints are all fixed."""
    joints = (JointSpec("weld", "fixed", "base", "tool", p=np.array([0.0, 0.0, 1.0])),)
    spec = RobotSpec("statue", (LinkSpec("base", 1.0), LinkSpec("tool", 2.0)), joints)
    return rbd.build_model(spec, dtype=dtype)


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
