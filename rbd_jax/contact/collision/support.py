"""Convex shapes as support functions: a polytope of corners plus a smooth body plus a radius.

A sphere is a point with a radius, a capsule a segment with a radius, a cylinder a segment plus a
disk, an ellipsoid a point plus a smooth body. Boxes and meshes are polytopes. The support function
of a sum is the sum of the support functions, so that one search serves all pairs of shapes.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...spatial import so3

Vector = Float[Array, "3"]
SMOOTH = ("cylinder", "ellipsoid")
"""Shapes with a smooth part."""
ROUND = ("sphere", "capsule")
"""Shapes with a radius."""
CONVEX = (*ROUND, "ellipsoid", "cylinder", "box", "mesh")
"""All convex shapes, in MuJoCo's order."""
BITS = np.array([1, 2, 4], dtype=np.int32)
BOX_CORNERS = np.array([[1.0 if k & b else -1.0 for b in (1, 2, 4)] for k in range(8)])
"""The signs of the corners of a box; bit k of a corner's number is its sign along axis k."""


class Body(NamedTuple):
    """A convex shape at a pose."""

    R: Float[Array, "3 3"]
    p: Vector
    size: Vector
    """MuJoCo's sizes, see :mod:`rbd_jax.contact.collision.ground` (m)."""
    corners: Float[Array, "k 3"]
    """The corners of a mesh, in its frame (m); none for other shapes."""


def corner_towards(kind: str, body: Body, d: Vector) -> Int[Array, ""]:
    """The number of the corner of the shape's polytope that lies farthest along d in its frame."""
    if kind in ("capsule", "cylinder"):
        return (d[2] < 0).astype(jnp.int32)
    if kind == "box":
        return jnp.sum(jnp.where(d >= 0, BITS, 0), dtype=jnp.int32)
    if kind == "mesh":
        return jnp.argmax(jnp.sum(body.corners * d[None], axis=1)).astype(jnp.int32)
    return jnp.zeros((), jnp.int32)


def corner(kind: str, body: Body, number: Int[Array, "*n"]) -> Float[Array, "*n 3"]:
    """Corners of the shape's polytope in its frame, by their numbers."""
    if kind in ("capsule", "cylinder"):
        up = jnp.where(number == 0, body.size[1], -body.size[1])
        return jnp.stack([jnp.zeros_like(up), jnp.zeros_like(up), up], axis=-1)
    if kind == "box":
        up = (number[..., None] & BITS) > 0
        return jnp.where(up, body.size, -body.size)
    if kind == "mesh":
        return body.corners[number]
    return jnp.zeros((*number.shape, 3), body.p.dtype)


def smooth(kind: str, body: Body, d: Vector) -> Vector:
    """The point of the shape's smooth part that lies farthest along d, in its frame.

    Of the disk of a cylinder that is looked at along its axis it is the center.
    """
    if kind == "cylinder":
        flat = d * np.array([1.0, 1.0, 0.0]).astype(d.dtype)
        n2 = so3.dot(flat, flat)
        some = n2 > 1e-30
        return jnp.where(some, body.size[0] * flat / jnp.sqrt(jnp.where(some, n2, 1)), 0)
    if kind == "ellipsoid":
        s = body.size * d
        n2 = so3.dot(s, s)
        some = n2 > 1e-30
        return jnp.where(some, body.size * s / jnp.sqrt(jnp.where(some, n2, 1)), 0)
    return jnp.zeros_like(d)


def radius(kind: str, body: Body) -> Float[Array, ""]:
    """The radius around the shape's polytope (m)."""
    return body.size[0] if kind in ROUND else jnp.zeros_like(body.size[0])


def bounding_radius(kind: str, body: Body) -> Float[Array, ""]:
    """The radius of a sphere around the shape, at its origin (m)."""
    if kind == "mesh":
        return jnp.sqrt(jnp.max(jnp.sum(body.corners**2, axis=1), initial=0))
    if kind == "box":
        return jnp.sqrt(so3.dot(body.size, body.size))
    if kind == "cylinder":
        return jnp.sqrt(body.size[0] ** 2 + body.size[1] ** 2)
    if kind == "capsule":
        return body.size[0] + body.size[1]
    return jnp.max(body.size)
