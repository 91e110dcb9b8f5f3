"""What a frame should reach: a pose, a position, an orientation, a direction, or a look at a point.

A target's errors are an angular part (rad) and a linear part (m). Each has an exact Jacobian, the
rates of its components for a twist of the frame.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import se3, so3

LENGTH = 0.3
"""The usual weight of an angle (m/rad). 0.3 … 0.5 need the fewest steps for arms of human size."""

Twists = Float[Array, "n 6"]
"""A twist of the frame for each degree of freedom, in the axes in which its pose is given."""


class Target(eqx.Module):
    """What one frame should reach; made by :func:`pose`, :func:`position` and their like.

    All arrays are leaves: they can be mapped over and differentiated. A target is given in the
    world, or in the frame ``base``.
    """

    kind: str = eqx.field(static=True)
    frame: str = eqx.field(static=True)
    base: str | None = eqx.field(static=True)
    R: Float[Array, "*b 3 3"] | None
    """The wanted orientation, of kinds that have one."""
    p: Float[Array, "*b 3"] | None
    """The wanted position, or the point that is looked at (m); for a direction, this direction."""
    axis: Float[Array, "*b 3"] | None
    """The direction in the frame that is to point somewhere."""
    offset_R: Float[Array, "*b 3 3"]
    """Orientation of the tool in the frame. The target is for the tool."""
    offset_p: Float[Array, "*b 3"]
    """Position of the tool in the frame (m)."""
    weight: Float[Array, "*b 2"]
    """Weights of the angular error (in rad) and of the linear error (in m), where both compete."""


def pose(
    frame: str,
    R: Any,
    p: Any,
    *,
    offset: tuple[Any, Any] | None = None,
    base: str | None = None,
    angle_weight: Any = LENGTH,
    position_weight: Any = 1.0,
) -> Target:
    """A frame has the orientation R and its origin is at p: six rows.

    Args:
        frame: name of the frame.
        R: wanted rotation matrix, from the frame's axes to those of the base, (3, 3).
        p: wanted position in the base (m), (3,).
        offset: pose ``(R, p)`` of a tool in the frame. The target is then for the tool.
        base: frame in which the target is given; the world if None.
        angle_weight: weight of the angular error in rad beside the position error in m, for targets
            that compete or are out of reach; positive. It also says which steps are long.
        position_weight: weight of the position error.
    """
    weights = angle_weight, position_weight
    return _target("pose", frame, base, weights, R=R, p=p, offset=offset)


def position(
    frame: str, p: Any, *, offset: Any = None, base: str | None = None, position_weight: Any = 1.0
) -> Target:
    """The origin of a frame, or the point ``offset`` in it (m), is at p (m): three rows."""
    tool = None if offset is None else (jnp.eye(3), offset)
    return _target("position", frame, base, (1.0, position_weight), p=p, offset=tool)


def orientation(
    frame: str, R: Any, *, base: str | None = None, angle_weight: Any = LENGTH
) -> Target:
    """A frame has the orientation R, (3, 3): three rows. Its position is free."""
    return _target("orientation", frame, base, (angle_weight, 1.0), R=R)


def direction(
    frame: str, axis: Any, toward: Any, *, base: str | None = None, angle_weight: Any = LENGTH
) -> Target:
    """The ``axis`` of a frame has the direction ``toward``; the turn about it is free: three rows.

    Only two of the rows are independent. Lengths of the vectors do not matter, but none is zero.
    """
    weights = angle_weight, 1.0
    return _target("direction", frame, base, weights, p=toward, axis=axis)


def look_at(
    frame: str,
    axis: Any,
    point: Any,
    *,
    offset: Any = None,
    base: str | None = None,
    angle_weight: Any = LENGTH,
) -> Target:
    """The ``axis`` of a frame, from its origin or from ``offset`` (m), points to ``point`` (m).

    Three rows, of which two are independent. The distance to the point is free, but not zero.
    """
    tool = None if offset is None else (jnp.eye(3), offset)
    return _target("look_at", frame, base, (angle_weight, 1.0), p=point, axis=axis, offset=tool)


def _target(kind, frame, base, weights, *, R=None, p=None, axis=None, offset=None) -> Target:
    for name, x in (("frame", frame), ("base", base)):
        if not isinstance(x, str) and (x is not None or name == "frame"):
            raise TypeError(f"control.{kind}: {name} must be a name, got {type(x).__name__}")
    shapes = {"R": (R, (3, 3)), "p": (p, (3,)), "axis": (axis, (3,))}
    if offset is not None:
        shapes |= {"offset R": (offset[0], (3, 3)), "offset": (offset[1], (3,))}
    for name, (x, shape) in shapes.items():
        found = shape if x is None else jnp.asarray(x).shape
        if found != shape:
            hint = "; map over many with jax.vmap" if len(found) > len(shape) else ""
            raise ValueError(f"control.{kind}: {name} has shape {found}, expected {shape}{hint}")
    array = lambda x: None if x is None else jnp.asarray(x, float)  # noqa: E731
    offset_R, offset_p = (jnp.eye(3), jnp.zeros(3)) if offset is None else offset
    return Target(
        kind=kind,
        frame=frame,
        base=base,
        R=array(R),
        p=array(p),
        axis=array(axis),
        offset_R=jnp.asarray(offset_R, float),
        offset_p=jnp.asarray(offset_p, float),
        weight=jnp.stack([jnp.asarray(w, float) for w in weights]),
    )


class Part(NamedTuple):
    """The angular or the linear error of a target: its rows, their rates, and its size."""

    error: Float[Array, "3"]
    rates: Float[Array, "n 3"]
    """Of the rows, for each degree of freedom."""
    size: Float[Array, ""]
    """The error as an angle (rad) or a distance (m)."""


def parts(target: Target, tool: se3.Pose, twists: Twists) -> tuple[Part | None, Part | None]:
    """The angular and the linear part of a target for a pose of its tool."""
    return _KINDS[target.kind](target, tool, twists)


def _pose(x: Target, tool: se3.Pose, V: Twists) -> tuple[Part, Part]:
    return _orientation(x, tool, V)[0], _position(x, tool, V)[1]


def _position(x: Target, tool: se3.Pose, V: Twists) -> tuple[None, Part]:
    assert x.p is not None
    error = tool[1] - x.p
    return None, Part(error, V[:, 3:], _length(error))


def _orientation(x: Target, tool: se3.Pose, V: Twists) -> tuple[Part, None]:
    """``log(R*ᵀ R)``; its rate is ``J_l⁻¹`` times the angular velocity in the wanted axes."""
    assert x.R is not None
    R = so3.orthonormalize(x.R)
    error = so3.log(so3.matmul(so3.transpose(R), tool[0]))
    inverse = so3.left_jacobian_inverse(error)
    rates = so3.rotate(inverse[None], so3.rotate_inverse(R[None], V[:, :3]))
    return Part(error, rates, _length(error)), None


def _direction(x: Target, tool: se3.Pose, V: Twists) -> tuple[Part, None]:
    """The difference of two unit vectors, a chord of length ``2 sin(θ/2)``."""
    assert x.axis is not None and x.p is not None
    axis = so3.rotate(tool[0], so3.unit(x.axis))
    return _chord(axis - so3.unit(x.p), so3.cross(V[:, :3], axis[None])), None


def _look_at(x: Target, tool: se3.Pose, V: Twists) -> tuple[Part, None]:
    assert x.axis is not None and x.p is not None
    axis, away = so3.rotate(tool[0], so3.unit(x.axis)), x.p - tool[1]
    distance = jnp.maximum(_length(away), jnp.finfo(away.dtype).tiny ** 0.5)
    line = away / distance
    sideways = V[:, 3:] - so3.dot(V[:, 3:], line[None])[:, None] * line[None]
    rates = so3.cross(V[:, :3], axis[None]) + sideways / distance
    return _chord(axis - line, rates), None


def _chord(error: Float[Array, "3"], rates: Float[Array, "n 3"]) -> Part:
    half = jnp.minimum(0.5 * _length(error), 1)
    return Part(error, rates, 2 * jnp.arctan2(half, jnp.sqrt(1 - half**2)))


def _length(x: Float[Array, "3"]) -> Float[Array, ""]:
    """The length of a vector, whose derivative at zero is zero."""
    square = so3.dot(x, x)
    there = square > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1)), 0)


_KINDS: dict[str, Callable] = {
    "pose": _pose,
    "position": _position,
    "orientation": _orientation,
    "direction": _direction,
    "look_at": _look_at,
}
