"""The contacts of a scene: shapes on bodies, the pairs that may touch, and where they do.

The list of candidates is fixed when the scene is made; a contact acts where its distance is below
its margin. Everything that can be differentiated is a leaf.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model.functions import as_module
from ...spatial import so3
from ..collision import geometry
from ..collision.geometry import ContactPoints, Ground
from ..collision.primitives import PAIRS
from ..solver.force_laws import Cone
from ..solver.impedance import Softness, impedance, regularization, stiffness_and_damping


class Shapes(eqx.Module):
    """Shapes fixed to bodies (−1: the world)."""

    R: Float[Array, "ng 3 3"]
    """Orientation in the body's frame."""
    p: Float[Array, "ng 3"]
    """Place in the body's frame (m)."""
    size: Float[Array, "ng 3"]
    """See :mod:`rbd_jax.contact.collision.geometry`."""
    corners: Float[Array, "nm k 3"]
    """Of the convex hulls of meshes, in the shapes' frames (m)."""
    kinds: tuple[str, ...] = eqx.field(static=True)
    bodies: tuple[int, ...] = eqx.field(static=True)
    parts: tuple[int, ...] = eqx.field(static=True)
    """Which of the scene's :class:`Parts` each belongs to, −1 for the world."""
    names: tuple[str, ...] = eqx.field(static=True)
    faces: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...] = eqx.field(static=True)
    """For each corner of each convex hull its faces, each by the numbers of four corners."""
    hulls: tuple[int, ...] = eqx.field(static=True)
    """Which hull each shape has, −1 for none."""


class Pairs(eqx.Module):
    """Pairs of shapes that may touch, and what happens then.

    A pair of a ground and a shape has the ground first. Pairs are sorted by ``condim`` and kinds.
    """

    friction: Float[Array, "np 5"]
    """Sliding along both tangents, spinning, rolling about both tangents (1, m)."""
    solref: Float[Array, "np 2"]
    solref_friction: Float[Array, "np 2"]
    """The same for the tangents of elliptic cones; zeros: as ``solref``."""
    solimp: Float[Array, "np 5"]
    margin: Float[Array, " np"]
    """Distance at which a contact begins to act (m)."""
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    condim: tuple[int, ...] = eqx.field(static=True)


class Contacts(eqx.Module):
    """All that can touch."""

    shapes: Shapes
    pairs: Pairs
    impratio: Float[Array, ""]
    """Resistance to slip over resistance to penetration."""
    least_time: Float[Array, ""]
    """The least time constant of ``solref`` in units of the time step: 2, or 0 for none."""
    terrain: Callable[[Array], Array] | None = eqx.field(converter=as_module)
    """A height function ``(x, y) -> z`` that replaces the planes, or None. A pytree if a module."""
    elliptic: bool = eqx.field(static=True)

    @property
    def groups(self) -> list[tuple[int, list[tuple[tuple[str, str], list[int]]]]]:
        """Pairs by dimension, and by kinds of shapes within: ``(condim, [(kinds, pairs), …])``."""
        found: dict[int, dict[tuple[str, str], list[int]]] = {}
        for i, (a, b) in enumerate(self.pairs.shapes):
            kinds = self.shapes.kinds[a], self.shapes.kinds[b]
            found.setdefault(self.pairs.condim[i], {}).setdefault(kinds, []).append(i)
        return [(d, list(k.items())) for d, k in sorted(found.items())]


class Group(NamedTuple):
    """The contact points of one dimension: where they are, and whom they belong to (static)."""

    distance: Float[Array, " n"]
    point: Float[Array, "n 3"]
    frame: Float[Array, "n 3 3"]
    """Rows: normal, first tangent, second tangent."""
    pair: np.ndarray
    bodies: np.ndarray
    """Both bodies, (n, 2)."""
    dim: int


def _terrain(height: Callable[[Array], Array], x: Array) -> Ground:
    z, slope = jax.value_and_grad(height)(x[:2])
    up = jnp.concatenate([-slope, jnp.ones_like(z)[None]])
    foot = jnp.concatenate([x[:2], z[None]])
    return Ground(foot, up / jnp.sqrt(so3.dot(up, up)))


def find(contacts: Contacts, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]) -> list[Group]:
    """All candidates, by dimension, for given poses of the bodies in the world."""
    shapes, pairs = contacts.shapes, contacts.pairs
    eye = jnp.eye(3, dtype=p.dtype)[None]
    R = jnp.concatenate([R, eye])  # the last row is the world
    p = jnp.concatenate([p, jnp.zeros((1, 3), p.dtype)])
    body = np.array(shapes.bodies, dtype=np.int32)
    R_shape = so3.matmul(R[body], so3.orthonormalize(shapes.R))
    p_shape = p[body] + so3.rotate(R[body], shapes.p)

    def touch(kinds, i, j) -> ContactPoints:
        def one(Ri, pi, si, Rj, pj, sj):
            if kinds[0] == "plane":
                if contacts.terrain is not None:
                    terrain = contacts.terrain
                    return geometry.on_ground(kinds[1], lambda x: _terrain(terrain, x), Rj, pj, sj)
                plane = Ground(pi, Ri[:, 2])
                return geometry.on_ground(kinds[1], lambda _: plane, Rj, pj, sj)
            return PAIRS[kinds](Ri, pi, si, Rj, pj, sj)

        both: list = [x[k] for k in (i, j) for x in (R_shape, p_shape, shapes.size)]
        if kinds[1] == "mesh":
            hull = np.array(shapes.hulls, dtype=np.int32)[j]
            faces = np.array(shapes.faces, dtype=np.int32)[hull]
            both[-1] = (shapes.corners[hull], jnp.asarray(faces))
        return jax.vmap(one)(*both)

    groups = []
    for dim, kinds in contacts.groups:
        touches, owners = [], []
        for names, members in kinds:
            ij = np.array([pairs.shapes[m] for m in members], dtype=np.int32)
            t = touch(names, ij[:, 0], ij[:, 1])
            owners.append(np.repeat(members, t.distance.shape[1]))
            touches.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), t))
        t = (
            touches[0]
            if len(touches) == 1
            else jax.tree.map(lambda *x: jnp.concatenate(x), *touches)
        )
        owner = np.concatenate(owners)
        ij = np.array([pairs.shapes[m] for m in owner], dtype=np.int32)
        frame = geometry.contact_frame(t.normal, t.tangent)
        groups.append(Group(t.distance, t.point, frame, owner, body[ij], dim))
    return groups


class Reference(NamedTuple):
    """The law of a group, and its reference acceleration."""

    cone: Cone
    target: Float[Array, "n d"]


def reference(
    contacts: Contacts,
    group: Group,
    velocity: Float[Array, "n d"],
    weight: Float[Array, " np"],
    dt: Float[Array, ""],
) -> Reference:
    """``a_ref = −b v − k d r`` and the regularized cone of every contact.

    Source: MuJoCo's documentation, "Computation", constraint model. Friction rows have no k.

    Args:
        contacts: the parameters.
        group: where they touch.
        velocity: relative velocity in the contact frames.
        weight: how much both bodies of each pair give way to forces (1/kg).
        dt: the time step, which bounds the time constants (s).
    """
    pairs, own = contacts.pairs, group.pair
    pick = lambda x: x[own]  # noqa: E731
    violation = group.distance - pick(pairs.margin)
    solimp, weight = pick(pairs.solimp), pick(weight)
    friction = jnp.maximum(pick(pairs.friction)[:, : group.dim - 1], 1e-5)
    d = impedance(solimp, violation)
    least = contacts.least_time * dt
    k, b = stiffness_and_damping(Softness(pick(pairs.solref), solimp), least)
    b = b[:, None]
    if contacts.elliptic and group.dim > 1:
        other = pick(pairs.solref_friction)
        own_ref = (other == 0).all(axis=-1)
        safe = jnp.where(own_ref[:, None], pick(pairs.solref), other)
        _, slip = stiffness_and_damping(Softness(safe, solimp), least)
        b = jnp.concatenate([b, jnp.repeat(slip[:, None], group.dim - 1, axis=1)], axis=1)
    target = -b * velocity
    push = jnp.concatenate([(k * d * violation)[:, None], jnp.zeros_like(target[:, 1:])], axis=1)
    if group.dim == 1:
        R, mu = regularization(d, weight), jnp.zeros_like(d)
    elif contacts.elliptic:
        R, mu = regularization(d, weight), friction[:, 0] / jnp.sqrt(contacts.impratio)
    else:
        mu = friction[:, 0] / jnp.sqrt(contacts.impratio)
        R = regularization(d, weight * (1 + friction[:, 0] ** 2)) * 2 * mu * mu
    return Reference(Cone(1 / R, mu, friction, violation < 0), target - push)
