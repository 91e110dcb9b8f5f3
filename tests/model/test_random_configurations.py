"""Random and neutral configurations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import (
    assert_close,
    jit,
    model as sample,
    quaternion_slices,
)
from support.joint_cases import EPS, ROBOTS, over

import rbd_jax as rbd
from rbd_jax import JointSpec, LinkSpec, RobotSpec
from rbd_jax.model import joint_placements


def limited(lower, upper, dtype=None):
    """One revolute joint with these limits."""
    joint = JointSpec("hinge", "revolute", "base", "link", lower=lower, upper=upper)
    spec = RobotSpec("hinged", (LinkSpec("base"), LinkSpec("link", 1.0)), (joint,))
    return rbd.build_model(spec, dtype=dtype)


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
