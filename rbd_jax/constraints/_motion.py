"""How the two frames of each pair move, and the rows of position, velocity and acceleration.

World axes throughout; levers are measured from the ground origins of :mod:`ground`, the origins of
the root bodies, so that single precision does not suffer far from the world's origin.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.tree import ancestor_sum, sum_dofs
from ..model import Model, joint_placements
from ..spatial import se3, so3
from ..spatial.motion import cross_twist, turn
from ._set import Constraints


class Bodies(NamedTuple):
    """All bodies and, as the last row, the world: poses, twists and accelerations."""

    R: Float[Array, "rows 3 3"]
    p: Float[Array, "rows 3"]
    """Origins, from the ground origin of their tree."""
    o: Float[Array, "rows 3"]
    """Ground origins in the world."""
    V: Float[Array, "rows 6"]
    A: Float[Array, "rows 6"]
    """Spatial accelerations, without gravity, about the ground origin as a fixed point."""


class Side(NamedTuple):
    """One of the two frames of each pair, or of one pair."""

    R: Float[Array, "*n 3 3"]
    r: Float[Array, "*n 3"]
    o: Float[Array, "*n 3"]
    V: Float[Array, "*n 6"]
    A: Float[Array, "*n 6"]


def ground_origins(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nb 3"]:
    """Where the ground origin of each body's tree is in the world (m)."""
    p = joint_placements(model, q)[1]
    return p[model.topology.tree.roots]


def bodies_at(
    g: world_frame.WorldQuantities,
    o: Float[Array, "nb 3"],
    V: Float[Array, "nb 6"],
    A: Float[Array, "nb 6"],
) -> Bodies:
    """Append the world to what is known of the bodies."""
    below = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])  # noqa: E731
    eye = jnp.eye(3, dtype=g.R.dtype)[None]
    return Bodies(jnp.concatenate([g.R, eye]), below(g.p), below(o), below(V), below(A))


def twists(
    model: Model, g: world_frame.WorldQuantities, v: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """Twists of all bodies in ground coordinates. Source: Singh, Algorithm 1, line 3."""
    return ancestor_sum(model.topology.tree, sum_dofs(model.topology, g.S * v[:, None]))


def motions(
    model: Model, g: world_frame.WorldQuantities, v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> tuple[Float[Array, "nb 6"], Float[Array, "nb 6"]]:
    """Twists and accelerations of all bodies. Source: Singh, Algorithm 1, lines 3 and 4."""
    topology = model.topology
    Sv = sum_dofs(topology, g.S * v[:, None])
    V = ancestor_sum(topology.tree, Sv)
    Sa = sum_dofs(topology, g.S * a[:, None])
    return V, ancestor_sum(topology.tree, Sa + cross_twist(V, Sv))


def numbers(constraints: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """The bodies of both sides of each pair; the world is −1."""
    return tuple(
        np.array([getattr(p, name) for p in constraints.pairs], dtype=int)
        for name in ("body_1", "body_2")
    )  # type: ignore[return-value]


def sides(constraints: Constraints, b: Bodies) -> tuple[Side, Side]:
    """The frames of all pairs."""
    c, made = constraints, []
    for index, R, p in zip(numbers(c), (c.R_1, c.R_2), (c.p_1, c.p_2), strict=True):
        R_b = b.R[index]
        R_f = so3.matmul(R_b, so3.orthonormalize(R))
        made.append(Side(R_f, b.p[index] + so3.rotate(R_b, p), b.o[index], b.V[index], b.A[index]))
    return made[0], made[1]


class Kinds(NamedTuple):
    """What each pair is, with an axis for components."""

    points: np.ndarray
    local: np.ndarray
    free: np.ndarray
    """The axis about which frames may turn; ``SEVERAL`` or ``NONE``."""

    def at(self, k: np.ndarray) -> "Kinds":
        """Of some pairs."""
        return Kinds(*(x[k] for x in self))


NONE, SEVERAL = -1, 3


def kinds(constraints: Constraints) -> Kinds:
    """What the pairs of a set are."""
    free = []
    for p in constraints.pairs:
        turning = [] if p.point else [r for r in range(3) if r not in p.rows]
        free.append(turning[0] if len(turning) == 1 else SEVERAL if turning else NONE)
    points, local = ([getattr(p, n) for p in constraints.pairs] for n in ("point", "local"))
    return Kinds(*(np.array(x)[:, None] for x in (points, local, free)))


def levers(points: np.ndarray, one: Side, two: Side) -> tuple[Array, Array]:
    """Where twists are measured: points each at its own place, frames both at frame 1."""
    return one.r, jnp.where(points, two.r, one.r + (one.o - two.o))


def twist_at(V: Float[Array, "*n 6"], r: Float[Array, "*n 3"]) -> Float[Array, "*n 6"]:
    """A twist, or a spatial acceleration, measured at the point r."""
    w = V[..., :3]
    return jnp.concatenate([w, V[..., 3:] + so3.cross(w, r)], axis=-1)


def turn_back(local: np.ndarray, R: Float[Array, "*n 3 3"], x: Array) -> Array:
    """From world axes to the axes of the rows."""
    if not local.any():
        return x
    turned = jnp.concatenate(
        [so3.rotate_inverse(R, x[..., :3]), so3.rotate_inverse(R, x[..., 3:])], axis=-1
    )
    return turned if local.all() else jnp.where(local, turned, x)


def velocity_of(kinds: Kinds, one: Side, two: Side) -> Array:
    """The relative twist of each pair in the axes of its rows: ``V_1 − V_2``."""
    r_1, r_2 = levers(kinds.points, one, two)
    return turn_back(kinds.local, one.R, twist_at(one.V, r_1) - twist_at(two.V, r_2))


def error_of(kinds: Kinds, one: Side, two: Side) -> Array:
    """The position error of each pair, whose rate is the velocity where the rows are zero.

    Points: ``p_1 − p_2``. Frames that may not turn against each other: ``−log(T_1⁻¹ T_2)``. Other
    frames may be far apart in their free directions, where this screw has another rate: ``p_1 −
    p_2``, and the rotation that aligns the axes about which both may turn.
    """
    points, local, free = kinds
    apart = (one.o - two.o) + (one.r - two.r)
    straight = jnp.concatenate([jnp.zeros_like(apart), apart], axis=-1)
    straight = turn_back(local, one.R, straight)
    if points.all():
        return straight
    turns = (free != NONE) & (
        free != SEVERAL
    )  # its screw is of no use, and singular at half a turn
    R = so3.matmul(so3.transpose(one.R), two.R)
    R = jnp.where(turns[..., None], jnp.eye(3, dtype=R.dtype), R)
    screw = -se3.log((R, -so3.rotate_inverse(one.R, apart)))
    if not local.all():
        screw = jnp.where(local, screw, turn(one.R, screw))
    if (free != NONE).any():
        w = jnp.where(free == SEVERAL, screw[..., :3], _between_axes(kinds, one, two))
        apart = jnp.concatenate([w, straight[..., 3:]], axis=-1)
        screw = jnp.where(free != NONE, apart, screw)
    return screw if not points.any() else jnp.where(points, straight, screw)


def _between_axes(kinds: Kinds, one: Side, two: Side) -> Float[Array, "*n 3"]:
    """The smallest rotation from the free axis of frame 2 to that of frame 1, in the rows' axes.

    With axes of the world, the free one is an axis of the world.
    """
    k, pair = np.clip(kinds.free[:, 0], 0, 2), np.arange(len(kinds.free))
    fixed = jnp.eye(3, dtype=one.R.dtype)[k]
    spread = so3.matmul(one.R, so3.transpose(two.R))
    start = jnp.where(kinds.local, two.R[pair, :, k], fixed)
    end = jnp.where(kinds.local, one.R[pair, :, k], so3.rotate(spread, fixed))
    beside = jnp.where(kinds.local, one.R[pair, :, (k + 1) % 3], jnp.roll(fixed, 1, axis=-1))
    normal = so3.cross(start, end)
    square, cosine = (jnp.sum(x, axis=-1, keepdims=True) for x in (normal**2, start * end))
    along = square < jnp.finfo(square.dtype).eps  # where the angle is its own sine
    sine = jnp.sqrt(jnp.where(along, 1, square))
    w = normal * jnp.where(along, 1, jnp.arctan2(sine, cosine) / sine)
    w = jnp.where(along & (cosine < 0), jnp.pi * beside, w)
    return jnp.where(kinds.local, so3.rotate_inverse(one.R, w), w)


def acceleration_of(kinds: Kinds, one: Side, two: Side) -> Array:
    """The relative acceleration of each pair, the rate of its velocity where that is zero.

    Points: the difference of the accelerations of two points. Frames: of the spatial accelerations
    at frame 1; with local axes, ``(V_1 − V_2) × V_2`` makes it the rate of the velocity exactly.
    Source: Carpentier et al. 2021, §II, in the form that Pinocchio computes.
    """
    points, local, _ = kinds
    r_1, r_2 = levers(points, one, two)
    V_1, V_2 = twist_at(one.V, r_1), twist_at(two.V, r_2)
    A = twist_at(one.A, r_1) - twist_at(two.A, r_2)
    if points.any():
        turning = so3.cross(V_1[..., :3], V_1[..., 3:]) - so3.cross(V_2[..., :3], V_2[..., 3:])
        turning = jnp.concatenate([jnp.zeros_like(turning), turning], axis=-1)
        A = A + (turning if points.all() else jnp.where(points, turning, 0))
    held = local & ~points
    if held.any():
        moving = cross_twist(V_1 - V_2, V_2)
        A = A + (moving if held.all() else jnp.where(held, moving, 0))
    return turn_back(local, one.R, A)
