"""A robot as sticks, from its kinematics alone, and a camera that looks at them."""

from typing import NamedTuple

import jax
import numpy as np

from ..algorithms.kinematics import forward_kinematics
from ..model import Model


class Sticks(NamedTuple):
    """Line segments fixed in bodies: their ends in the body frame, and how thick to draw them."""

    body: np.ndarray
    ends: np.ndarray
    weight: np.ndarray


def sticks(model: Model) -> Sticks:
    """From every body's origin to its children's, and to the farthest frame of a last body."""
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
    """The ends in the world for a batch of configurations, (batch, sticks, 2, 3)."""
    R, p = (np.asarray(x) for x in jax.jit(jax.vmap(forward_kinematics, (None, 0)))(model, q))
    return np.einsum("bsij,skj->bski", R[:, parts.body], parts.ends) + p[:, parts.body, None]


def project(points: np.ndarray, azimuth: float = 0.3, elevation: float = 0.2):
    """Parallel projection of world points: picture coordinates (…, 2) and depth (…)."""
    c, s = np.cos(azimuth), np.sin(azimuth)
    right = points[..., 0] * c + points[..., 1] * s
    away = -points[..., 0] * s + points[..., 1] * c
    up = points[..., 2] * np.cos(elevation) + away * np.sin(elevation)
    return np.stack([right, up], axis=-1), away
