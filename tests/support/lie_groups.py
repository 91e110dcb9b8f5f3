"""Functions of the spatial room, compiled, and samples of rotations, poses and inertias."""

from math import pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rbd_jax import spatial
from support.helpers import Compiled, central_difference

so3, se3, motion, inertia = map(
    Compiled, (spatial.so3, spatial.se3, spatial.motion, spatial.inertia)
)


EPS = np.finfo(float).eps
SMALL = (0.0, 1e-12, 1e-9, 1e-8, 1e-6, 1e-4, 1e-3)


# 0.4027 and 1 are where the functions of _series switch; π/2 and 2π/3 are ties in quat_from_matrix
MIDDLE = (0.1, 0.4027, 0.403, 1 - 1e-9, 1.0, 1 + 1e-9, pi / 2, 2.0, 2 * pi / 3, 3.0)
NEAR_PI = (pi - 1e-3, pi - 1e-6, pi - 1e-9)
if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
    NEAR_PI = NEAR_PI[:2]  # the last one is π in float32
ANGLES = (*SMALL, *MIDDLE, *NEAR_PI, pi)
axes = np.array([[1, 0, 0], [0, -1, 0], [0, 0, 1], [1, 1, 0], [1, -1, 1], [-1, 2, 0.5], [3, 1, -2]])
AXES = axes / np.linalg.norm(axes, axis=1, keepdims=True)


def rotation_vectors(angles=ANGLES) -> jnp.ndarray:
    """Every angle about every axis, (n, 3)."""
    return jnp.asarray((np.array(angles)[:, None, None] * AXES).reshape(-1, 3))


def screws(angles=ANGLES) -> jnp.ndarray:
    """Every angle about every axis with a random translation, (n, 6)."""
    w = rotation_vectors(angles)
    return jnp.concatenate([w, normal(len(w), 3, seed=5)], axis=1)


def normal(*shape: int, seed: int = 0) -> jnp.ndarray:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def poses(n: int, seed: int = 0) -> se3.Pose:
    xi = normal(n, 6, seed=seed)
    return so3.exp(xi[:, :3]), xi[:, 3:]


def jacobian(f, mode):
    """The Jacobian of ``f`` in one way of three, mapped over the leading axis, compiled."""
    modes = {
        "forward": jax.jacfwd,
        "reverse": jax.jacrev,
        "difference": lambda f: lambda x: central_difference(f, x),
    }
    return jax.jit(jax.vmap(modes[mode](f)))


GROUPS = pytest.mark.parametrize(
    "group, points", [(so3, rotation_vectors), (se3, screws)], ids=["so3", "se3"]
)


MODES = pytest.mark.parametrize("mode", ["forward", "reverse", "difference"])


def screw_matrix(xi) -> np.ndarray:
    xi = np.asarray(xi)
    M = np.zeros((*xi.shape[:-1], 4, 4))
    M[..., :3, :3], M[..., :3, 3] = so3.hat(jnp.asarray(xi[..., :3])), xi[..., 3:]
    return M
