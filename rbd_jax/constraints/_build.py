"""Constraints by name: points, frames, hinges, couplings of joints and locks."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..algorithms.kinematics import frame_in_body
from ..model import Model
from ..spatial import se3
from ._set import Constraints, Pair

_SIX = (0, 1, 2, 3, 4, 5)
_NUMBERS = {"position_gain": 0.0, "velocity_gain": 0.0, "restitution": 0.0, "active": True}


def none(model: Model) -> Constraints:
    """The empty set."""
    return _set(model, [], [], [], [])


def point(
    model: Model,
    frame: str | int,
    to: str | int | None = None,
    *,
    at: Any = None,
    offset: Any = None,
    reference: str = "local_world_aligned",
    name: str | None = None,
    **numbers: Any,
) -> Constraints:
    """Hold a point of a body at a point of the world, or at a point of another body: three rows.

    The force of the constraint is the force on the first body.

    Args:
        model: the robot.
        frame: name (or number) of the frame whose origin is held.
        to: frame of the other body; None for the world.
        at: where the point is held, in the coordinates of ``to`` (m); its origin if None.
        offset: the point in the coordinates of ``frame`` (m); its origin if None.
        reference: ``"local_world_aligned"``: the force has the axes of the world; ``"local"``:
            those of ``frame``.
        name: of the constraint; that of the frame if None.
        numbers: ``position_gain`` (1/s²), ``velocity_gain`` (1/s), ``restitution``, ``active``.

    Raises:
        KeyError: for an unknown frame. ValueError: for an unknown reference.
    """
    one = _side(model, frame, None, offset)
    two = _side(model, to, None, at)
    return _pair(model, (frame, to, name), one, two, (3, 4, 5), True, reference, numbers)


def frame(
    model: Model,
    frame: str | int,
    to: str | int | None = None,
    *,
    at: Any = None,
    offset: Any = None,
    rows: tuple[int, ...] = _SIX,
    reference: str = "local",
    name: str | None = None,
    **numbers: Any,
) -> Constraints:
    """Hold a frame of a body at a pose in the world, or at a pose in another body: six rows.

    The rows are (ω, v) and the force is the wrench (n, f) on the first body at the frame's origin.

    Args:
        model: the robot.
        frame: name (or number) of the frame that is held.
        to: frame of the other body; None for the world.
        at: pose ``(R, p)`` at which it is held, in the coordinates of ``to``; identity if None.
        offset: pose ``(R, p)`` of the held frame in ``frame``; identity if None.
        rows: which of the six components are held; all of them for a weld. Where some rotations
            are free, hold the whole origin, rows 3, 4 and 5. A single direction that turns with
            the frame ties velocities alone, as the blade of a skate does. It has no position
            error, so leave its ``position_gain`` zero.
        reference: axes of the rows: ``"local"``: those of the held frame;
            ``"local_world_aligned"``: those of the world.
        name: of the constraint; that of the frame if None.
        numbers: as in :func:`point`.

    Raises:
        KeyError: for an unknown frame. ValueError: for an unknown reference or rows.
    """
    if not rows or sorted(set(rows)) != list(rows) or not set(rows) <= set(_SIX):
        raise ValueError(f"constraints.frame: rows must be increasing numbers of 0 … 5, got {rows}")
    one = _side(model, frame, *(offset or (None, None)))
    two = _side(model, to, *(at or (None, None)))
    return _pair(model, (frame, to, name), one, two, tuple(rows), False, reference, numbers)


def hinge(
    model: Model,
    frame_1: str | int,
    to: str | int | None = None,
    *,
    axis: Any = (0.0, 0.0, 1.0),
    at: Any = None,
    offset: Any = None,
    name: str | None = None,
    **numbers: Any,
) -> Constraints:
    """Close a loop with a hinge: all but the rotation about ``axis`` is held, five rows.

    Args:
        model: the robot.
        frame_1: frame of the first body, on the axis of the hinge.
        to: frame of the other body, on the same axis; None for the world.
        axis: direction of the hinge in both frames.
        at: a point of the axis in the coordinates of ``to`` (m); its origin if None.
        offset: a point of the axis in the coordinates of ``frame_1`` (m); its origin if None.
        name: of the constraint; that of the frame if None.
        numbers: as in :func:`point`.
    """
    R = _turn_to(np.asarray(axis, float))
    one, two = _side(model, frame_1, R, offset), _side(model, to, R, at)
    rows = (0, 1, 3, 4, 5)
    return _pair(model, (frame_1, to, name), one, two, rows, False, "local", numbers)


def coupling(
    model: Model,
    joints: dict[str, Any],
    offset: Any = 0.0,
    *,
    name: str | None = None,
    **numbers: Any,
) -> Constraints:
    """Hold ``Σ coefficient · position = offset`` for joints of one degree of freedom: one row.

    The force of the constraint is a torque or force on each joint, times its coefficient.

    Args:
        model: the robot.
        joints: coefficients by joint name.
        offset: in the unit of coefficient times position.
        name: of the constraint; the joints' names if None.
        numbers: as in :func:`point`.

    Raises:
        KeyError: for an unknown joint. ValueError: for one of several degrees of freedom.
    """
    topology = model.topology
    row = jnp.zeros((topology.nv,), model.dtype)
    for joint, coefficient in joints.items():
        v, q = topology.v_slice(joint), topology.q_slice(joint)
        if v.stop - v.start != 1 or q.stop - q.start != 1:
            raise ValueError(
                f"constraints.coupling: joint {joint!r} has {v.stop - v.start} degrees of freedom, "
                f"expected one; constraints.frame can hold the bodies of others"
            )
        row = row.at[v.start].set(jnp.asarray(coefficient, model.dtype))
    names = [name or " ".join(joints)]
    return _set(model, [], [], names, [(row, jnp.asarray(offset, model.dtype))], **numbers)


def lock(
    model: Model, joint: str, at: Any = 0.0, *, name: str | None = None, **numbers: Any
) -> Constraints:
    """Hold a joint of one degree of freedom at the position ``at`` (rad, m): one row."""
    return coupling(model, {joint: 1.0}, at, name=name, **numbers)


def _turn_to(axis: np.ndarray) -> np.ndarray:
    """A rotation that takes z to the direction of ``axis``."""
    z = axis / np.linalg.norm(axis)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


def _side(model: Model, frame: str | int | None, R: Any, p: Any) -> tuple[int, se3.Pose]:
    """A body and a pose in it."""
    R, p = jnp.eye(3) if R is None else R, jnp.zeros(3) if p is None else p
    local = jnp.asarray(R, model.dtype), jnp.asarray(p, model.dtype)
    if frame is None:
        return -1, local
    body, placement = frame_in_body(model, frame)
    return body, se3.compose(placement, local)


def _pair(model, names, one, two, rows, is_point, reference, numbers) -> Constraints:
    if reference not in ("local", "local_world_aligned"):
        raise ValueError(
            f"constraints: reference must be 'local' or 'local_world_aligned', got {reference!r}"
        )
    (body_1, pose_1), (body_2, pose_2) = one, two
    if body_1 == body_2:
        raise ValueError(
            f"constraints: frames {names[0]!r} and {names[1]!r} are on the same body, so nothing "
            f"can move between them"
        )
    given = [model.frame_names[x] if isinstance(x, int) else x for x in names[:2] if x is not None]
    name = names[2] or " ".join(given)
    pair = Pair(name, body_1, body_2, rows, is_point, reference == "local")
    return _set(model, [pair], [(*pose_1, *pose_2)], [], [], **numbers)


def _set(
    model: Model,
    pairs: list,
    poses: list,
    couplings: list,
    rows: list,
    **numbers: Any,
) -> Constraints:
    if unknown := [name for name in numbers if name not in _NUMBERS]:
        raise TypeError(f"constraints: no number {unknown[0]!r}; there are {', '.join(_NUMBERS)}")
    numbers = _NUMBERS | numbers

    def stack(values: list, *shape: int):
        return jnp.stack(values) if values else jnp.zeros((0, *shape), model.dtype)

    count = len(pairs) + len(couplings)
    each = lambda x: jnp.broadcast_to(jnp.asarray(x, model.dtype), (count,))  # noqa: E731
    sides = list(zip(*poses, strict=True)) if poses else [()] * 4
    R_1, p_1, R_2, p_2 = (
        stack(list(x), *shape) for x, shape in zip(sides, ((3, 3), (3,)) * 2, strict=True)
    )
    return Constraints(
        R_1=R_1,
        p_1=p_1,
        R_2=R_2,
        p_2=p_2,
        coupling=stack([row for row, _ in rows], model.topology.nv),
        offset=stack([x for _, x in rows]),
        position_gain=each(numbers["position_gain"]),
        velocity_gain=each(numbers["velocity_gain"]),
        restitution=each(numbers["restitution"]),
        active=jnp.broadcast_to(jnp.asarray(numbers["active"], bool), (count,)),
        pairs=tuple(pairs),
        couplings=tuple(couplings),
    )
