"""Tendons: lengths that are linear in joints, or of strings through sites and around bodies.

Source: MuJoCo's documentation, "Modeling", tendons, and "Computation", actuation model and passive
forces. A fixed tendon is a weighted sum of hinge and slide positions. A spatial tendon is the
shortest string through its sites, around spheres and cylinders between them, and over pulleys,
which divide the length of the part after them. The moment of a tendon is the derivative of its
length with respect to the motion of the joints.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.world_frame import WorldQuantities
from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_inverse
from ..derivatives.custom_jvp.kinematics import world_quantities_custom_jvp
from ..model import Model, rate_from_velocity
from ..spatial import so3
from .weights import TendonConstants, with_world
from .wrapping import directed, root, wrap


class TendonState(eqx.Module):
    """Lengths and moments of the tendons of a scene at a configuration."""

    length: Float[Array, " nt"]
    """(m, or the unit of the coefficients)"""
    J: Float[Array, "nt s"]
    """The moments: derivative of the length by each of ``dofs``."""
    actfrcrange: Float[Array, "nt 2"] | None
    """The least and the greatest sum of actuator forces on each tendon (N); None for none."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    """The degrees of freedom that move any tendon."""
    nv: int = eqx.field(static=True)

    def speed(self, v: Float[Array, " nv"]) -> Float[Array, " nt"]:
        """The rates of the lengths."""
        return jnp.matmul(self.J, v[self._at], precision="highest")

    def pull(self, f: Float[Array, " nt"]) -> Float[Array, " nv"]:
        """The generalized forces of forces along the tendons, which are positive where they push.

        A muscle has a negative force.
        """
        tau = jnp.matmul(f, self.J, precision="highest")
        return jnp.zeros((self.nv,), tau.dtype).at[self._at].set(tau)

    def dense(self) -> Float[Array, "nt nv"]:
        """The moments of all degrees of freedom."""
        rows = jnp.zeros((len(self.length), self.nv), self.J.dtype)
        return rows.at[:, self._at].set(self.J)

    @property
    def _at(self) -> np.ndarray:
        return np.array(self.dofs, dtype=np.int32)


class Strings(eqx.Module):
    """The paths of the spatial tendons of a scene."""

    points: Float[Array, "np 3"]
    """The sites of the paths and of the sides, in the frames of their bodies (m)."""
    divisor: Float[Array, " nd"]
    """The divisors of the pulleys; the first is 1."""
    R: Float[Array, "nw 3 3"]
    p: Float[Array, "nw 3"]
    """The bodies that strings wrap around, in the frames of the bodies that carry them (m)."""
    radius: Float[Array, " nw"]
    """(m)"""
    bodies: tuple[int, ...] = eqx.field(static=True)
    """The body of each point; −1 is the world."""
    straight: tuple[tuple[int, int, int, int], ...] = eqx.field(static=True)
    """The straight parts: tendon, both points, divisor."""
    wrapped: tuple[tuple[int, int, int, int, int], ...] = eqx.field(static=True)
    """The parts around a body: tendon, both points, divisor, and the point on a side or −1."""
    carriers: tuple[int, ...] = eqx.field(static=True)
    """The body that carries what each of those parts wraps around."""
    spheres: tuple[bool, ...] = eqx.field(static=True)
    """Whether it is a sphere; else it is a cylinder."""

    def pulled(self, of: Sequence[int], carriers: Sequence[int]) -> list[int]:
        """The entry of each pull of :func:`pulls`, in their order.

        Args:
            of: one number for each point. carriers: one for each part around a body.
        """
        apart = [x for x in self.straight if self.bodies[x[1]] != self.bodies[x[2]]]
        straight = [of[x[k]] for k in (1, 2) for x in apart]
        ends = [[of[x[k]] for x in self.wrapped] for k in (1, 2)]
        return [*straight, *ends[0], *carriers, *carriers, *ends[1]]


class Pull(NamedTuple):
    """Where strings pull: points of bodies, and the derivative of the length by their motion."""

    tendon: np.ndarray
    body: np.ndarray
    at: Float[Array, "n 3"]
    by: Float[Array, "n 3"]


class Tendons(eqx.Module):
    """The tendons of a scene, with their springs and dampers; every float array is a leaf."""

    coef: Float[Array, " nj"]
    """The coefficient of each of ``joints`` in the length of its tendon."""
    strings: Strings | None
    """The paths of spatial tendons; None if all tendons are fixed."""
    stiffness: Float[Array, " nt"]
    """(N/m)"""
    damping: Float[Array, " nt"]
    """(N s/m)"""
    rest: Float[Array, "nt 2"]
    """The shortest and the longest length at which the spring has no force (m). It is not used for
    a tendon that ``refers``."""
    armature: Float[Array, " nt"] | None
    """Inertia of the lengths (kg); None if no tendon has one."""
    actfrcrange: Float[Array, "nt 2"] | None
    """The least and the greatest sum of actuator forces on each tendon (N); None for none."""
    names: tuple[str, ...] = eqx.field(static=True)
    joints: tuple[tuple[int, int, int], ...] = eqx.field(static=True)
    """The joints of fixed tendons: tendon, place in q, degree of freedom."""
    refers: tuple[bool, ...] = eqx.field(static=True)
    """Whether the spring of a tendon has no force at the joints' own rest positions."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    """The degrees of freedom that move any tendon."""
    sets: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """The degrees of freedom that move each tendon."""

    def at(self, model: Model, q: Float[Array, " nq"]) -> TendonState:
        """Lengths and moments at a configuration."""
        length = jnp.zeros((len(self.names),), q.dtype)
        J = jnp.zeros((len(self.names), len(self.dofs)), q.dtype)
        if self.joints:
            tendon, place, dof = np.array(self.joints, dtype=np.int32).T
            column = np.searchsorted(np.array(self.dofs), dof)
            length = length.at[tendon].add(self.coef * q[place])
            J = J.at[tendon, column].add(self.coef)
        if self.strings is not None:
            more, rows = _strings(self.strings, model, q, len(self.names), self.dofs)
            length, J = length + more, J + rows
        return TendonState(length, J, self.actfrcrange, self.dofs, model.nv)

    def passive(
        self, s: TendonState, v: Float[Array, " nv"], rest: Float[Array, "nt 2"]
    ) -> Float[Array, " nt"]:
        """The forces of springs and dampers along the tendons (N).

        Args:
            s: the tendons. v: velocity.
            rest: of :class:`rbd_jax.contact.Constants`.
        """
        return -self.stiffness * self.stretch(s, rest) - self.damping * s.speed(v)

    def stretch(self, s: TendonState, rest: Float[Array, "nt 2"]) -> Float[Array, " nt"]:
        """How much longer than the second length of ``rest`` each tendon is (m).

        It is negative below the first length, and zero between both.
        """
        low, high = s.length - rest[:, 0], s.length - rest[:, 1]
        return jnp.where(high >= 0, high, jnp.where(low < 0, low, 0))

    def drift(self, model: Model, q: Array, v: Array) -> Float[Array, " nt"]:
        """``J̇ v``."""
        rate = rate_from_velocity(model, q, v)
        return jax.jvp(lambda q: self.at(model, q).speed(v), (q,), (rate,))[1]

    def mass(self, s: TendonState) -> Float[Array, "nv nv"]:
        """``Jᵀ armature J``, what the armature adds to the mass matrix."""
        J = s.dense()
        return jnp.matmul(J.T, self.inertia[:, None] * J, precision="highest")

    @property
    def inertia(self) -> Float[Array, " nt"]:
        """The armature, zero where there is none."""
        return jnp.zeros_like(self.stiffness) if self.armature is None else self.armature


def tendon_constants(
    tendons: Tendons | None, model: Model, q0: Float[Array, " nq"]
) -> TendonConstants | None:
    """Inverse weights and lengths of tendons in the reference configuration.

    Source: MuJoCo's ``mj_setConst``.
    """
    if tendons is None:
        return None
    s, rest = tendons.at(model, q0), tendons.rest
    J = s.dense()
    weight = jnp.sum(jnp.matmul(J, inverse_mass(tendons, model, q0), precision="highest") * J, 1)
    if any(tendons.refers):
        own = tendons.at(model, _resting(model, q0)).length[:, None]
        rest = jnp.where(np.array(tendons.refers)[:, None], own, rest)
    return TendonConstants(weight, s.length, rest)


def inverse_mass(
    tendons: Tendons | None, model: Model, q: Float[Array, " nq"]
) -> Float[Array, "nv nv"]:
    """The inverse of the mass matrix, with the armature of tendons."""
    inverse = mass_matrix_inverse(model, q)
    if tendons is None or tendons.armature is None:
        return inverse
    s = tendons.at(model, q)
    J = s.dense()
    W = jnp.matmul(J, inverse, precision="highest")
    small = jnp.matmul(J, W.T, precision="highest") * tendons.armature[None]
    change = jnp.linalg.solve(jnp.eye(len(small), dtype=small.dtype) + small, W)
    return inverse - jnp.matmul(W.T, tendons.armature[:, None] * change, precision="highest")


def _resting(model: Model, q0: Array) -> Float[Array, " nq"]:
    """The configuration in which all springs of joints rest."""
    return q0 if model.rest is None else model.rest


def _strings(x: Strings, model: Model, q: Array, nt: int, dofs: tuple[int, ...]):
    """Lengths and moments of the spatial tendons."""
    poses = world_quantities_custom_jvp(model, q)
    length, pull = pulls(x, *poses, nt)
    g, origin = poses[0], with_world(poses[1], jnp.zeros((3,), q.dtype))
    lines = jnp.concatenate([so3.cross(pull.at - origin[pull.body], pull.by), pull.by], axis=-1)
    own = np.array(dofs, dtype=np.int32)
    topology = model.topology
    mask = np.concatenate([topology.tree.ancestor_mask, np.zeros((1, topology.nb), bool)])
    moves = np.asarray(mask[pull.body])[:, topology.dof_bodies[own]]
    rows = jnp.matmul(lines, g.S[own].T, precision="highest")
    rows = jnp.where(moves, rows, 0)
    return length, jnp.zeros((nt, len(dofs)), q.dtype).at[pull.tendon].add(rows)


def pulls(
    x: Strings, g: WorldQuantities, root_: Float[Array, "nb 3"], nt: int
) -> tuple[Float[Array, " nt"], Pull]:
    """Lengths of the spatial tendons, and where they pull at bodies."""
    q = root_
    zero = jnp.zeros((3,), q.dtype)
    R = with_world(g.R, jnp.eye(3, dtype=q.dtype))
    p = with_world(g.p + root_, zero)
    body = np.array(x.bodies, dtype=np.int32)
    places = p[body] + so3.rotate(R[body], x.points)
    length, found = jnp.zeros((nt,), q.dtype), []
    if x.straight:
        tendon, i, j, part = np.array(x.straight, dtype=np.int32).T
        along, share = places[j] - places[i], 1 / x.divisor[part]
        length = length.at[tendon].add(root(so3.dot(along, along)) * share)
        by = directed(along) * share[:, None]
        apart = body[i] != body[j]
        for end, sign in ((i, -1.0), (j, 1.0)):
            found.append(Pull(tendon[apart], body[end][apart], places[end][apart],
                               sign * by[apart]))  # fmt: skip
    if x.wrapped:
        tendon, i, j, part, side = np.array(x.wrapped, dtype=np.int32).T
        carrier = np.array(x.carriers, dtype=np.int32)
        turned = so3.matmul(R[carrier], so3.orthonormalize(x.R))
        center = p[carrier] + so3.rotate(R[carrier], x.p)
        w = wrap((places[i], places[j]), turned, center, x.radius, places[side],
                 np.array(x.spheres), side >= 0)  # fmt: skip
        along, share = places[j] - places[i], 1 / x.divisor[part]
        free = root(so3.dot(along, along))
        length = length.at[tendon].add(jnp.where(w.wraps, w.length, free) * share)
        on, plain = w.wraps[:, None], directed(along)
        go, leave = (jnp.where(on, y, plain) for y in (w.arrives, w.leaves))
        first, last = (jnp.where(on, y, center) for y in (w.first, w.last))
        both = (body[i], places[i], -go), (carrier, first, go)
        both += (carrier, last, -leave), (body[j], places[j], leave)
        found += [Pull(tendon, b, at, by * share[:, None]) for b, at, by in both]
    pull = jax.tree.map(lambda *y: _joined(y), *found)
    return length, pull


def _joined(parts):
    return (np if isinstance(parts[0], np.ndarray) else jnp).concatenate(parts)
