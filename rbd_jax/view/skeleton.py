"""A robot drawn as sticks from its kinematics alone, and the projection of the drawing."""

from typing import NamedTuple

import jax
import numpy as np

from ..algorithms.kinematics import forward_kinematics
from ..model import Model


class Sticks(NamedTuple):
    """Line segments fixed to bodies: body, ends in the body frame, and relative thickness."""

    body: np.ndarray
    ends: np.ndarray
    weight: np.ndarray


def sticks(model: Model) -> Sticks:
    """The sticks of a robot.

    They connect the origin of each body with the origins of its children. A body without children
    gets a stick to its farthest frame.
    """
    topo = model.topology
    mass, moment = np.asarray(model.inertia[:, 0]), np.asarray(model.inertia[:, 1:4])
    children = {i: np.flatnonzero(np.array(topo.parents) == i) for i in range(model.nb)}
    frames = np.asarray(model.frame_p)
    body, ends = [], []
    for i in range(model.nb):
        tips = [np.asarray(model.placement_p[c]) for c in children[i]]
        if not tips:
            mine = frames[[k for k, b in enumerate(topo.frame_bodies) if b == i]]
            far = mine[np.linalg.norm(mine, axis=1).argmax()] if len(mine) else np.zeros(3)
            com = moment[i] / mass[i] if mass[i] > 0 else np.zeros(3)
            tips = [far if np.linalg.norm(far) > np.linalg.norm(com) else 2.0 * com]
        for tip in tips:
            body.append(i)
            ends.append([np.zeros(3), tip])
    relative = (mass / max(mass.max(), 1e-12)) ** (1 / 3)
    return Sticks(np.array(body), np.array(ends), relative[np.array(body)])


def place(model: Model, parts: Sticks, q) -> np.ndarray:
    """The ends in the world for a batch of configurations, (batch, sticks, 2, 3), in m."""
    R, p = (np.asarray(x) for x in jax.jit(jax.vmap(forward_kinematics, (None, 0)))(model, q))
    return np.einsum("bsij,skj->bski", R[:, parts.body], parts.ends) + p[:, parts.body, None]


def project(points: np.ndarray, azimuth: float = 0.3, elevation: float = 0.2):
    """Parallel projection of points in the world: picture coordinates (…, 2) and depth (…)."""
    c, s = np.cos(azimuth), np.sin(azimuth)
    right = points[..., 0] * c + points[..., 1] * s
    away = -points[..., 0] * s + points[..., 1] * c
    up = points[..., 2] * np.cos(elevation) + away * np.sin(elevation)
    return np.stack([right, up], axis=-1), away
