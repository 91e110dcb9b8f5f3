"""What a viewer shows over time: configurations, poses and arrows, as NumPy arrays."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..algorithms.kinematics import forward_kinematics
from ..model import Model, neutral
from ..spatial import so3


class Motion(NamedTuple):
    """Times and configurations of a batch of robots."""

    t: Float[np.ndarray, " T"]
    q: Float[np.ndarray, "B T nq"]


class Poses(NamedTuple):
    """Poses of all bodies in the world. Index −1 of the bodies is the world itself."""

    wxyz: Float[np.ndarray, "B T nb+1 4"]
    position: Float[np.ndarray, "B T nb+1 3"]
    R: Float[np.ndarray, "B T nb+1 3 3"]


class Arrows(NamedTuple):
    """Vectors in the world frame, and the points where they start."""

    points: Float[np.ndarray, "B T n 3"]
    vectors: Float[np.ndarray, "B T n 3"]


def read_motion(model: Model, trajectory: Any = None) -> Motion:
    """The motion that the user means.

    Args:
        model: the robot.
        trajectory: None for the neutral configuration; an array of configurations (nq,), (T, nq)
            or (B, T, nq); anything with ``q`` and, if it moves, ``t`` (a
            :class:`rbd_jax.simulate.Trajectory`, a solution, a mapping), batched or not; or the
            path of a ``.npz`` file as the commands ``rbd-jax rollout`` and ``rbd-jax optimize``
            write it.

    Raises:
        ValueError: if the configurations are not those of this robot, are not finite, or the
            times do not belong to them.
    """
    t, where = None, "the trajectory"
    if trajectory is None:
        q = neutral(model)
    elif isinstance(trajectory, str | os.PathLike):
        where = str(trajectory)
        t, q = _load(model, Path(trajectory))
    elif isinstance(trajectory, Mapping):
        t, q = trajectory.get("t"), trajectory["q"]
    elif hasattr(trajectory, "q"):
        t, q = getattr(trajectory, "t", None), trajectory.q
    else:
        q = trajectory
    q = np.asarray(q, np.float64)
    if q.ndim == 0 or q.shape[-1] != model.nq or q.size == 0:
        raise ValueError(
            f"view: q of {where} has shape {q.shape}, but robot {model.topology.name!r} has nq = "
            f"{model.nq}; give (nq,), (T, nq) or (B, T, nq)"
        )
    q = q.reshape(-1, *((1, model.nq) if q.ndim == 1 else q.shape[-2:]))
    bad = np.flatnonzero(~np.isfinite(q).all(axis=(1, 2)))
    if len(bad):
        raise ValueError(
            f"view: q of {where} is not finite in sample(s) {', '.join(map(str, bad[:8]))}; "
            "leave them out"
        )
    if t is None:
        t = np.arange(q.shape[1]) / 30
    t = np.asarray(t, np.float64)
    t = t.reshape(-1, t.shape[-1])[0]
    if t.shape != (q.shape[1],) or (np.diff(t) < 0).any():
        raise ValueError(
            f"view: t of {where} has shape {t.shape}; expected {q.shape[1]} times that do not "
            "decrease"
        )
    return Motion(t, q)


def _load(model: Model, path: Path):
    with np.load(path) as saved:
        arrays = dict(saved)
    if "q" not in arrays:
        raise ValueError(f"{path}: holds no configurations 'q'; it holds {', '.join(arrays)}")
    names = list(arrays.get("joint_names", model.space.joint_names))
    if names != list(model.space.joint_names):
        raise ValueError(
            f"{path}: is of a robot with the joints {', '.join(names[:4])}…, but this robot has "
            f"{', '.join(model.space.joint_names[:4])}…"
        )
    return arrays.get("t"), arrays["q"]


def poses_of(model: Model, q: Float[np.ndarray, "B T nq"]) -> Poses:
    """Forward kinematics of all samples at all times."""

    def one(q):
        R, p = forward_kinematics(model, q)
        return R, p, so3.quat_from_matrix(R)

    lead, flat = q.shape[:2], jnp.asarray(q.reshape(-1, q.shape[-1]), model.dtype)
    R, p, wxyz = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(one))(flat))
    rows = ((wxyz, np.array([1.0, 0, 0, 0])), (p, np.zeros(3)), (R, np.eye(3)))
    parts = []
    for x, of_world in rows:
        world = np.broadcast_to(of_world, (len(x), 1, *of_world.shape))
        parts.append(np.concatenate([x, world], axis=1).reshape(*lead, -1, *of_world.shape))
    return Poses(*parts)


def wrench_arrows(poses: Poses, f_ext: Any) -> Arrows:
    """The forces of external wrenches, drawn at the origins of the bodies.

    Args:
        poses: of the bodies.
        f_ext: wrenches (n, f) on each body in its frame, (nb, 6), (T, nb, 6) or (B, T, nb, 6); the
            last of a few times holds until the end. Moments are not drawn.
    """
    B, T, nb = (*poses.position.shape[:2], poses.position.shape[2] - 1)
    f = _over_time("f_ext", f_ext, (B, T, nb, 6))[..., 3:]
    R, p = poses.R[:, :, :nb], poses.position[:, :, :nb]
    return Arrows(p, np.einsum("btnij,btnj->btni", R, f))


def contact_arrows(poses: Poses, points: Any, forces: Any) -> Arrows:
    """Contact points and the forces there, both in the world frame.

    Args:
        poses: of the bodies, for the number of robots and times.
        points: (n, 3), (T, n, 3) or (B, T, n, 3), in meters.
        forces: the same shape, in newtons.
    """
    points = np.asarray(points, np.float64)
    shape = (*poses.position.shape[:2], *points.shape[-2:])
    return Arrows(_over_time("points", points, shape), _over_time("forces", forces, shape))


def _over_time(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """``x`` with axes for robots and times; as in a rollout, there may be one time less."""
    x = np.asarray(x, np.float64)
    given = x.shape
    if x.ndim == 2:
        x = x[None]
    if x.ndim == 3:
        x = x[None]
    if x.ndim == 4 and x.shape[1] == shape[1] - 1 and shape[1] > 1:
        x = np.concatenate([x, x[:, -1:]], axis=1)
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(
            f"view: {name} has shape {given}, expected {shape[2:]}, {shape[1:]} or {shape}"
        ) from None
