"""Frictional contacts: their rows, reference accelerations and Jacobians.

Source: MuJoCo's documentation, "Computation", constraint model, contact.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...algorithms import formulations
from ...lanes import common_rounds, unfilled
from ...model import Topology
from ...model.functions import as_module
from ...spatial import so3
from ..collision.detection import (
    CHUNK,
    Candidates,
    ContactGroup,
    Pairs,
    Touching,
    candidates,
    grouped,
    room_for,
    touching,
)
from ..collision.shapes import Shapes
from ..solver import force_laws
from ..solver.force_laws import (
    Cone,
    SolverParams,
    impedance,
    regularization,
    stiffness_and_damping,
)
from ..solver.rows import (
    Bodies,
    Constraint,
    Friction,
    Jacobian,
    Loads,
    Rows,
    State,
    Subspaces,
    coupled_dofs,
    moving,
)

FAINT = 1e-6
"""The least impedance of a contact at a distance."""
BLOCK = 16
"""Points that this loop takes at a time where derivatives are taken."""
MOST_BLOCKS = 16
"""Points that the same degrees of freedom move share a block of the Jacobian. With more sets of
degrees of freedom than this, one block has all points."""


class AtDistance(eqx.Module):
    """How contacts act on shapes that do not touch yet, see :meth:`Scene.at_distance`."""

    reach: Float[Array, ""]
    """How far beyond their margin they act (m)."""
    softness: Float[Array, ""]
    """How softly they begin to push (m/s²), see :func:`rbd_jax.contact.solver.force_laws.push`."""

    def share(self, violation: Float[Array, " n"]) -> Float[Array, " n"]:
        """The share of the impedance that is left: one in contact, zero at the reach and beyond.

        It falls by the polynomial ``1 − 3x² + 2x³``, whose slope is zero at both ends.
        """
        x = jnp.clip(violation / self.reach, 0, 1)
        return 1 - x * x * (3 - 2 * x)


class Contacts(Constraint):
    """The contacts of a scene: shapes, pairs that may touch, and options."""

    shapes: Shapes
    pairs: Pairs
    impratio: Float[Array, ""]
    """Impedance of friction over impedance of the normal direction."""
    least_time: Float[Array, ""]
    """The least time constant of every ``solref`` in time steps: 2, or 0 for no bound."""
    terrain: Callable[[Array], Array] | None = eqx.field(converter=as_module)
    """A height function ``(x, y) -> z`` (m) that replaces the planes, or None. A function with
    parameters is a module."""
    elliptic: bool = eqx.field(static=True)
    """Whether friction cones are elliptic; otherwise they are pyramidal."""
    most: int | None = eqx.field(static=True, default=None)
    """How many points may act at once; None for all candidates. A solver that finds more ends with
    ``RESULTS.crowded``. See :meth:`Scene.keeping`."""
    at_distance: AtDistance | None = None
    """How contacts act at a distance; None if they act where shapes touch. If they do, their cones
    are pyramidal."""

    @property
    def may_be_crowded(self) -> bool:
        """Whether a step may find more points than it has room for."""
        return self.most is not None or bool(self.pairs.cells)

    @property
    def has_elliptic_cones(self) -> bool:
        """Whether the cones of the rows are elliptic."""
        return self.elliptic and self.at_distance is None

    def reaching(self) -> Pairs:
        """The pairs with the distances at which their contacts begin to act as their margins."""
        if self.at_distance is None:
            return self.pairs
        margin = self.pairs.margin + self.at_distance.reach
        return eqx.tree_at(lambda x: x.margin, self.pairs, margin)

    def candidates(self, state: State) -> list[Candidates]:
        """The candidate points at a state."""
        bodies = state.bodies
        return candidates(self.shapes, self.reaching(), self.terrain, bodies.R, bodies.p)

    def rows(self, state: State) -> Sequence[Rows]:
        """The rows of all candidate points, one group for each ``condim``.

        While the accelerations are searched, many candidates are one loop over those that act.
        """
        if not self.pairs.shapes:
            return ()
        part, pairs, world = self.shapes.parts, self.reaching(), len(state.bodies.p) - 1
        weights = state.constants.weights
        weight = weights.of(tuple((part[i], part[j]) for i, j in self.pairs.shapes))[:, 0]
        found = self.candidates(state) if state.candidates is None else state.candidates
        most = self.most if state.solving else None
        if state.solving and state.loops:
            if room_for(found, most) > formulations.points_at_once(state.dense):
                points = touching(self.shapes, pairs, found, world, most)
                return (TouchingRows(jnp.zeros_like(state.v), self, points, state, weight),)
        groups = grouped(self.shapes, pairs, found, world, most)
        return [self.rows_of(x, state.bodies, state.least_time, weight) for x in groups]

    def rows_of(
        self,
        group: ContactGroup,
        bodies: Bodies,
        least_time: Float[Array, ""],
        weight: Float[Array, " np"],
    ) -> "ContactRows":
        """``a_ref = −b v − k d r`` and the regularized cone of every contact.

        Source: MuJoCo's documentation, "Computation", constraint model. Friction rows have no k.
        """
        pairs, own, friction = self.pairs, group.pair, self.pairs.friction[group.pair]
        elliptic = self.has_elliptic_cones
        far, velocity = self.at_distance, _relative(bodies, group)
        if self.shapes.surface is not None:
            velocity = velocity + self._running(bodies, group, self.shapes.surface)
        violation, solimp = group.distance - pairs.margin[own], pairs.solimp[own]
        weight, friction = weight[own], jnp.maximum(friction[:, : group.dim - 1], 1e-5)
        active, share = violation < 0, None
        if far is not None:
            active, share = violation < far.reach, far.share(violation)
            violation = jnp.minimum(violation, 0)
        single = used = None
        if group.dims is not None:  # rows beyond the condim of a contact have no friction
            single, row = group.dims == 1, np.arange(1, group.dim, dtype=np.int32)[None]
            friction = jnp.where(row < group.dims[:, None], friction, 0)
            used = jnp.asarray(row) < jnp.maximum(group.dims, 2)[:, None]
        d, solref = impedance(solimp, violation), pairs.solref[own]
        d = d if share is None else jnp.maximum(share * d, FAINT)
        k, b = stiffness_and_damping(SolverParams(solref, solimp), least_time)
        b = b[:, None]
        if elliptic and group.dim > 1:
            other = pairs.solref_friction[own]
            plain = (other == 0).all(axis=-1)
            safe = jnp.where(plain[:, None], solref, other)
            _, slip = stiffness_and_damping(SolverParams(safe, solimp), least_time)
            b = jnp.concatenate([b, jnp.repeat(slip[:, None], group.dim - 1, axis=1)], axis=1)
        a_ref = -b * velocity
        stiff = (k * d * violation)[:, None]
        a_ref = a_ref - jnp.concatenate([stiff, jnp.zeros_like(a_ref[:, 1:])], axis=1)
        if group.dim == 1:
            R, mu = regularization(d, weight), jnp.zeros_like(d)
        else:
            slide = friction[:, 0] if single is None else jnp.where(single, 1, friction[:, 0])
            mu = slide / jnp.sqrt(self.impratio)
            if elliptic:
                R = regularization(d, weight)
            else:
                R = regularization(d, weight * (1 + slide**2)) * 2 * mu * mu
                if single is not None:  # the two edges of one direction push along the normal
                    R = jnp.where(single, 2 * regularization(d, weight), R)
        softness = None if far is None else far.softness
        cone = Cone(1 / R, mu, friction, active, softness, None if elliptic else used)
        return ContactRows(a_ref, group, cone, elliptic)

    def _running(
        self, bodies: Bodies, group: ContactGroup, surface: Float[Array, "ng 6"]
    ) -> Float[Array, "n d"]:
        """Relative velocity of moving surfaces at each contact, along its tangents and its spin.

        Source: MuJoCo's documentation, "XML reference", geom, ``surfacevel``.
        """
        R, p = self.shapes.placed(bodies.R, bodies.p)
        linear, angular = so3.rotate(R, surface[:, :3]), so3.rotate(R, surface[:, 3:])
        shapes = jnp.asarray(np.array(self.pairs.shapes, dtype=np.int32))[group.pair]
        at = lambda k: linear[k] + so3.cross(angular[k], group.point - p[k])  # noqa: E731
        one, two = shapes[:, 0], shapes[:, 1]
        along = so3.rotate(group.frame, at(two) - at(one))
        spin = so3.rotate(group.frame, angular[two] - angular[one])
        zero = jnp.zeros_like(spin[:, :1])
        six = jnp.concatenate([zero, along[:, 1:], spin[:, :1], zero, zero], axis=1)
        return six[:, : group.dim]


class ContactRows(Rows):
    """Rows of contacts of one ``condim``: normal, tangents, spinning, rolling."""

    a_ref: Float[Array, "n d"]
    group: ContactGroup
    cone: Cone
    elliptic: bool = eqx.field(static=True)

    @property
    def is_static(self) -> bool:
        """Whether the points are those of all candidates, so that their bodies are constants."""
        return isinstance(self.group.bodies, np.ndarray)

    def force(self, z: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The force on the second body in the frame of each contact (N, N m)."""
        return force_laws.contact(z, self.cone, self.elliptic)

    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> Float[Array, "n d"]:
        """``J a`` body by body."""
        return _relative(bodies, self.group)

    def load(self, f: Float[Array, "n d"], bodies: Bodies, loads: Loads) -> Loads:
        """Adds the forces on both bodies."""
        force, moment = self.world_forces(f)
        for k, sign in ((0, -1.0), (1, 1.0)):
            on = self.group.bodies[:, k]
            if not self.is_static or (on >= 0).any():
                loads = loads.push(bodies, on, self.group.point, force, moment, sign)
        return loads

    def world_forces(self, f: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Forces (N) and moments (N m) on the second bodies, in world axes."""
        wrench, frame = jnp.pad(f, ((0, 0), (0, 6 - self.group.dim))), self.group.frame
        return so3.rotate_inverse(frame, wrench[:, :3]), so3.rotate_inverse(frame, wrench[:, 3:])

    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """The dense Jacobian, in one block for each set of degrees of freedom."""
        moves = moving(subspaces.topology, self.group.every)
        if not self.is_static:
            points, dofs = np.arange(len(self.a_ref)), np.flatnonzero(moves.any(axis=0))
            J = _point_jacobian(self.group, subspaces, points, dofs)
            return ContactJacobian(self, [_Block(points, dofs, J)])
        sets, of = np.unique(moves, axis=0, return_inverse=True)
        if len(sets) > MOST_BLOCKS:
            sets, of = np.asarray(moves.any(axis=0))[None], np.zeros(len(moves), int)
        blocks = []
        for k, row in enumerate(sets):
            points, dofs = np.flatnonzero(of.reshape(-1) == k), np.flatnonzero(row)
            blocks.append(
                _Block(points, dofs, _point_jacobian(self.group, subspaces, points, dofs))
            )
        return ContactJacobian(self, blocks)

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """The degrees of freedom that move either body."""
        return coupled_dofs(topology, self.group.every)

    def acting(self) -> tuple[np.ndarray | Array, Bool[Array, " n"]]:
        """Both bodies of each contact, and whether it acts."""
        return self.group.bodies, self.cone.active

    def friction(self, jacobian: Any, z: Array, f: Array, topology: Topology) -> Friction | None:
        """The tangents of each contact: one block if the cone is elliptic, else one block each.

        The edges of a pyramid keep the sum of the forces of two opposite edges.
        """
        size = self.group.dim - 1
        if not size:
            return None
        J, own, scale = jacobian.dense(topology.nv)[:, 1:], self.group, self.cone.friction
        if self.elliptic:
            return Friction(
                J, self.a_ref[:, 1:], f[:, 1:], scale, f[:, 0], own.bodies, pair=own.pair
            )
        each = lambda x: x.reshape(-1, 1, *x.shape[2:])  # noqa: E731
        bodies, pair = own.bodies.repeat(size, axis=0), own.pair.repeat(size)
        plus, minus = force_laws.edges(z, self.cone)
        J, a_ref, f, scale = map(each, (J, self.a_ref[:, 1:], f[:, 1:], scale))
        return Friction(J, a_ref, f, scale, (plus + minus).reshape(-1), bodies, pair=pair)

    def with_friction(self, f: Float[Array, "n d"], new: Float[Array, "m k"]) -> Array:
        """The forces f with new forces along the tangents."""
        return jnp.concatenate([f[:, :1], new.reshape(len(f), -1)], axis=1)

    def crowded(self) -> Bool[Array, ""]:
        """Whether points that act had to be left out."""
        return self.group.crowded


class TouchingRows(Rows):
    """The rows of many candidate points, as a loop over those that act.

    Their residual is all accelerations, and their force is the sum of their generalized forces, so
    that no array has an entry for each candidate.
    """

    a_ref: Float[Array, " nv"]
    """Zeros, because the residual is the accelerations."""
    contacts: Contacts
    points: Touching
    state: State
    weight: Float[Array, " np"]
    """The inverse weight of each pair of shapes."""

    def chunk(self, k: Int[Array, ""]) -> ContactRows:
        """The rows of a few points."""
        state, group = self.state, self.points.chunk(k)
        return self.contacts.rows_of(group, state.bodies, state.least_time, self.weight)

    def force(self, z: Float[Array, " nv"]) -> Array:
        """Its Jacobian knows it, see :class:`TouchingJacobian`."""
        raise NotImplementedError

    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> Array:
        """See :meth:`loaded`."""
        raise NotImplementedError

    def load(self, f: Array, bodies: Bodies, loads: Loads) -> Loads:
        """See :meth:`loaded`."""
        raise NotImplementedError

    def loaded(self, bodies: Bodies, a: Float[Array, " nv"], loads: Loads) -> tuple[Loads, None]:
        """Adds the loads at the accelerations a, chunk by chunk. It has all derivatives."""

        state, points = self.state, self.points

        @jax.checkpoint  # no block keeps anything for the way back
        def one(loads: Loads, chunk):
            first, *rows = chunk

            @jax.checkpoint
            def added() -> Loads:
                group = points.group(first, *rows)
                own = self.contacts.rows_of(group, state.bodies, state.least_time, self.weight)
                return own.loaded(bodies, a, loads)[0]

            return jax.lax.cond(first < points.count, added, lambda: loads), None

        return jax.lax.scan(one, loads, points.blocks(BLOCK))[0], None

    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """The dense Jacobians of all chunks that have points which act."""
        moves = moving(subspaces.topology, self.points.every)
        dofs, points = np.flatnonzero(moves.any(axis=0)), np.arange(CHUNK)

        def made(k: Int[Array, ""]) -> _Stored:
            rows = self.chunk(k)
            return _Stored(
                _point_jacobian(rows.group, subspaces, points, dofs), rows.a_ref, rows.cone
            )

        def fill(k, stored: _Stored) -> _Stored:
            return jax.tree.map(lambda every, x: every.at[k].set(x), stored, made(k))

        like = jax.eval_shape(made, jnp.zeros((), jnp.int32))
        size = len(self.points.place)
        start = jax.tree.map(lambda x: unfilled((size, *x.shape), x.dtype), like)
        chunks = self.points.chunks
        stored = common_rounds(chunks, fill, start)
        return TouchingJacobian(self.a_ref, self, stored, chunks, dofs)

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """The degrees of freedom that move either body."""
        return coupled_dofs(topology, self.points.every)

    def crowded(self) -> Bool[Array, ""]:
        """Whether points that act had to be left out."""
        return self.points.crowded


class _Stored(NamedTuple):
    """What the solver needs of the rows of each chunk."""

    J: Float[Array, "*chunks k d s"]
    a_ref: Float[Array, "*chunks k d"]
    cone: Cone


class TouchingJacobian(Rows, Jacobian):
    """Rows and dense Jacobian of the points that act, chunk by chunk."""

    a_ref: Float[Array, " nv"]
    """Zeros, because the residual is the accelerations."""
    rows: TouchingRows
    stored: _Stored
    chunks: Int[Array, ""]
    dofs: np.ndarray

    def _at(self, k, z: Float[Array, " nv"]) -> tuple[Array, Array, Callable]:
        """The Jacobian of a chunk, its own residuals, and their force law."""
        J, a_ref, cone = jax.tree.map(lambda x: x[k], self.stored)
        elliptic = self.rows.contacts.has_elliptic_cones
        own = jnp.matmul(J, z[self.dofs], precision="highest") - a_ref
        return J, own, lambda y: force_laws.contact(y, cone, elliptic)

    def force(self, z: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces of all contacts at the accelerations z."""

        def add(k, tau):
            J, own, law = self._at(k, z)
            return tau.at[self.dofs].add(_over_rows(law(own), J))

        return common_rounds(self.chunks, add, jnp.zeros_like(z))

    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The accelerations."""
        return a

    def load(self, f: Float[Array, " nv"], bodies: Bodies, loads: Loads) -> Loads:
        """Adds the generalized forces."""
        return loads._replace(tau=loads.tau + f)

    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """It itself."""
        return self

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The accelerations."""
        return a

    def pull(self, f: Float[Array, " nv"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + f``."""
        return tau + f

    def curvature(self, z: Float[Array, " nv"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J`` of all contacts."""

        def add(k, H):
            J, own, law = self._at(k, z)
            return _added(H, self.dofs, J, _slopes(law, own))

        return common_rounds(self.chunks, add, H)

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """The degrees of freedom that move either body of a point."""
        return self.rows.coupled(topology)

    def crowded(self) -> Bool[Array, ""]:
        """Whether points that act had to be left out."""
        return self.rows.crowded()


class _Block(eqx.Module):
    """The Jacobian of contact points that the same degrees of freedom move."""

    points: np.ndarray
    """The numbers of the points in their group."""
    dofs: np.ndarray
    J: Float[Array, "n d s"]


class ContactJacobian(Jacobian):
    """The dense Jacobian of contacts of one ``condim``."""

    rows: ContactRows
    blocks: list[_Block]

    def map(self, a: Float[Array, " nv"]) -> Float[Array, "n d"]:
        """``J a``."""
        parts = [jnp.matmul(x.J, a[x.dofs], precision="highest") for x in self.blocks]
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([x.points for x in self.blocks]))
        return jnp.concatenate(parts)[order]

    def dense(self, nv: int) -> Float[Array, "n d nv"]:
        """All columns of the Jacobian."""
        J = jnp.zeros((*self.rows.a_ref.shape, nv), self.rows.a_ref.dtype)
        for x in self.blocks:
            J = J.at[np.ix_(x.points, np.arange(self.rows.group.dim), x.dofs)].set(x.J)
        return J

    def pull(self, f: Float[Array, "n d"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        for x in self.blocks:
            tau = tau.at[x.dofs].add(_over_rows(f[x.points], x.J))
        return tau

    def curvature(self, z: Float[Array, "n d"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        B = _slopes(self.rows.force, z)
        for x in self.blocks:
            H = _added(H, x.dofs, x.J, B[x.points])
        return H


def _slopes(law: Callable, z: Float[Array, "n d"]) -> Float[Array, "n d d"]:
    """``−∂f/∂z`` of each contact."""
    unit = jnp.eye(z.shape[1], dtype=z.dtype)
    columns = [jax.jvp(law, (z,), (jnp.broadcast_to(e, z.shape),))[1] for e in unit]
    return -jnp.stack(columns, axis=-1)


def _over_rows(x: Float[Array, "n d *s"], y: Float[Array, "n d t"]) -> Float[Array, "*s t"]:
    """The products of x and y, summed over all rows of all contacts."""
    return jax.lax.dot_general(x, y, (((0, 1), (0, 1)), ((), ())), precision="highest")


PART = 12
"""Rows and columns of the blocks of a Hessian that are added at once."""


def _added(
    H: Float[Array, "nv nv"], dofs: np.ndarray, J: Float[Array, "n d s"], B: Float[Array, "n d d"]
) -> Float[Array, "nv nv"]:
    """Adds ``Jᵀ B J`` of some contacts to H, by blocks of which none is above the diagonal."""
    BJ = jnp.sum(B[..., None] * J[:, None], axis=2)
    parts = [slice(k, k + PART) for k in range(0, len(dofs), PART)]
    for i, rows in enumerate(parts):
        for columns in parts[: i + 1]:
            block = _over_rows(J[..., rows], BJ[..., columns])
            H = H.at[_index(dofs[rows], dofs[columns])].add(block)
    return H


def _index(rows: np.ndarray, columns: np.ndarray):
    """The index of a block in a matrix: slices where the numbers follow each other."""
    both = rows, columns
    if all(len(x) and x[-1] - x[0] + 1 == len(x) for x in both):
        return tuple(slice(int(x[0]), int(x[-1]) + 1) for x in both)
    return np.ix_(*both)


def _relative(bodies: Bodies, group: ContactGroup) -> Float[Array, "n d"]:
    """Velocity of the second body against the first at each contact, in its frame."""
    i, j = group.bodies[:, 0], group.bodies[:, 1]
    at = lambda b: bodies.v[b] + so3.cross(bodies.w[b], group.point - bodies.p[b])  # noqa: E731
    linear = so3.rotate(group.frame, at(j) - at(i))
    if group.dim <= 3:
        return linear[:, : group.dim]
    turning = so3.rotate(group.frame, bodies.w[j] - bodies.w[i])
    return jnp.concatenate([linear, turning], axis=-1)[:, : group.dim]


def _point_jacobian(
    group: ContactGroup, subspaces: Subspaces, points: np.ndarray, dofs: np.ndarray
) -> Float[Array, "n d s"]:
    """The Jacobian of some points, for the degrees of freedom that move them."""
    total, point, frame = None, group.point[points], group.frame[points]
    d = frame[:, : min(group.dim, 3)]
    for k, sign in ((0, -1.0), (1, 1.0)):
        body = group.bodies[points, k]
        if isinstance(body, np.ndarray) and (body < 0).all():
            continue
        arm = point - subspaces.root[body]
        lines = [jnp.concatenate([so3.cross(arm[:, None], d), d], axis=-1)]
        if group.dim > 3:
            turn = frame[:, : group.dim - 3]
            lines.append(jnp.concatenate([turn, jnp.zeros_like(turn)], axis=-1))
        J = sign * subspaces.lines(body, jnp.concatenate(lines, axis=1), dofs)
        total = J if total is None else total + J
    return jnp.zeros((len(points), group.dim, 0), point.dtype) if total is None else total
