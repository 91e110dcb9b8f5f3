"""The constraint problem of one moment with a dense mass matrix and dense Jacobians.

    a = argmin ½ ‖a − a_free‖²_M + s(J a − a_ref)            gradient  M a − b − Jᵀ f(J a − a_ref)

Source: MuJoCo's documentation, "Computation", constraint model and solvers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import ground
from ...algorithms.crba import composite_mass_matrix
from ...algorithms.springs import plus_springs
from ...derivatives.poses import placed
from ...lanes import columns_of, factorized, factorized_solve
from ...model import Topology
from ...spatial import so3
from . import force_laws as laws
from .rows import (
    Constraints,
    Rows,
    SolverInputs,
    Values,
    classical,
    forces,
    joint_torques,
    joint_values,
    rows,
    targets,
    with_world,
)

_EXACT = jax.lax.Precision.HIGHEST
APART = 16
"""Sets of degrees of freedom that have Jacobians of their own; of more, one has all."""


class Lever(NamedTuple):
    """The Jacobians of contact points that the same degrees of freedom move."""

    points: np.ndarray
    """Which points of their group."""
    dofs: np.ndarray
    J: Float[Array, "n d s"]

    @property
    def rows(self) -> Float[Array, "nd s"]:
        """One row for each direction of each point."""
        return self.J.reshape(-1, len(self.dofs))


class Factor(NamedTuple):
    """The factor of a Hessian."""

    L: Float[Array, " entries"]
    columns: tuple[tuple[int, ...], ...]

    def solve(self, r: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``H⁻¹ r``."""
        return factorized_solve(self.L, r, self.columns)


class Problem:
    """The problem of one state: a dense mass matrix, and what moves each contact point."""

    def __init__(self, theta: SolverInputs):
        model, self.c, _, q, v, tau, _ = theta
        self.theta = theta
        topology = model.topology
        g, root = placed(model, q)
        self.M = composite_mass_matrix(topology, g.p, g.S_own, g.I_own, model.armature)
        self.rows = rows(theta, g, root)
        self.S, self.root = g.S, with_world(root, jnp.zeros((3,), q.dtype))
        self.topology = topology
        offset = classical(model, v)
        held = ground.motion(model, g, v, -offset, None)
        held = plus_springs(model, q, ground.torque(model, g, held, v, -offset))
        self.b = tau - held - model.armature * offset
        self.levers = [self._levers(x) for x in self.rows.groups]
        self.welds = self._weld_jacobian()
        self.target = targets(self.rows)
        self.columns = columns_of(self._pattern())

    def _pattern(self) -> np.ndarray:
        """Where the Hessian may not be zero."""
        pattern = np.array(self.topology.dof_tree.ancestor_mask)
        ends = [x.bodies for x in self.rows.groups]
        ends.append(np.array(self.c.equalities.welds.bodies, int).reshape(-1, 2))
        moves = np.unique(moving(self.topology, np.concatenate(ends)), axis=0)
        together = [np.flatnonzero(x) for x in moves]
        together += [
            np.array([d for d in pair if d >= 0]) for pair in self.c.equalities.couplings.dofs
        ]
        for dofs in together:
            pattern[np.ix_(dofs, dofs)] = True
        return pattern

    def _line(
        self, body: np.ndarray, wrench: Float[Array, "n k 6"], dofs: np.ndarray
    ) -> Float[Array, "n k s"]:
        """``wrench · S`` on some degrees of freedom, zero on those that do not move each body."""
        moves = moving(self.topology, body[:, None])[:, dofs]
        n, k, _ = wrench.shape
        J = jnp.matmul(wrench.reshape(n * k, 6), self.S[dofs].T, precision=_EXACT)
        J = J.reshape(n, k, len(dofs))
        return J if moves.all() else jnp.where(moves[:, None, :], J, 0)

    def _levers(self, group) -> list[Lever]:
        """The points of a group, by the degrees of freedom that move them."""
        moves = moving(self.topology, group.bodies)
        kinds, kind = np.unique(moves, axis=0, return_inverse=True)
        if len(kinds) > APART:
            kinds, kind = np.asarray(moves.any(axis=0))[None], np.zeros(len(moves), int)
        found = []
        for k, row in enumerate(kinds):
            points = np.flatnonzero(kind.reshape(-1) == k)
            dofs = np.flatnonzero(row)
            found.append(Lever(points, dofs, self._contact_jacobian(group, points, dofs)))
        return found

    def _contact_jacobian(self, group, points, dofs) -> Float[Array, "n d s"]:
        total, point, frame = None, group.point[points], group.frame[points]
        d = frame[:, : min(group.dim, 3)]
        for k, sign in ((0, -1.0), (1, 1.0)):
            body = group.bodies[points, k]
            if (body < 0).all():
                continue
            arm = point - self.root[body]
            lines = [jnp.concatenate([so3.cross(arm[:, None], d), d], axis=-1)]
            if group.dim > 3:
                turn = frame[:, : group.dim - 3]
                lines.append(jnp.concatenate([turn, jnp.zeros_like(turn)], axis=-1))
            J = sign * self._line(body, jnp.concatenate(lines, axis=1), dofs)
            total = J if total is None else total + J
        return jnp.zeros((len(points), group.dim, 0), point.dtype) if total is None else total

    def _weld_jacobian(self) -> Float[Array, "n 6 nv"]:
        r, nv = self.rows.welds, self.topology.nv
        if r is None:
            return jnp.zeros((0, 6, nv), self.M.dtype)
        ends = np.array(self.c.equalities.welds.bodies, dtype=np.int32)
        eye = jnp.broadcast_to(jnp.eye(3, dtype=self.M.dtype), r.turn.shape)
        total = jnp.zeros((len(ends), 6, nv), self.M.dtype)
        for k, sign, point in ((0, 1.0, r.point1), (1, -1.0, r.point2)):
            body = ends[:, k]
            arm = point - self.root[body]
            linear = jnp.concatenate([so3.cross(arm[:, None], eye), eye], axis=-1)
            turning = jnp.concatenate([r.turn, jnp.zeros_like(r.turn)], axis=-1)
            lines = jnp.concatenate([linear, turning], axis=1)
            total = total + sign * self._line(body, lines, np.arange(nv))
        return total

    def map(self, a: Float[Array, " nv"]) -> Values:
        """``J a``."""
        times = lambda J, a: jnp.matmul(J, a, precision=_EXACT)  # noqa: E731
        touching = tuple(
            _in_order([(x.points, times(x.J, a[x.dofs])) for x in levers]) for levers in self.levers
        )
        return Values(touching, *joint_values(self.c, self.rows, a), welds=times(self.welds, a))

    def values(self, a: Float[Array, " nv"]) -> Values:
        """``J a − a_ref``."""
        return jax.tree.map(jnp.subtract, self.map(a), self.target)

    def forces(self, z: Values) -> Values:
        """ConstraintForces of all rows."""
        return forces(self.theta, self.rows, z)

    def pull(self, f: Values) -> Float[Array, " nv"]:
        """``Jᵀ f``."""
        total = joint_torques(self.c, self.rows, f, jnp.zeros_like(self.b))
        for levers, y in zip(self.levers, f.contacts, strict=True):
            for x in levers:
                torque = jnp.matmul(y[x.points].reshape(-1), x.rows, precision=_EXACT)
                total = total.at[x.dofs].add(torque)
        if self.welds.size:
            flat = self.welds.reshape(-1, len(total))
            total = total + jnp.matmul(f.welds.reshape(-1), flat, precision=_EXACT)
        return total

    def factor(self, z: Values) -> Factor:
        """The factor of the Hessian."""
        return Factor(factorized(self.hessian(z), self.columns), self.columns)

    def hessian(self, z: Values) -> Float[Array, "nv nv"]:
        """``M − Jᵀ (∂f/∂z) J``, positive definite."""
        ones = jax.tree.map(jnp.ones_like, z)
        _, slope = jax.jvp(
            self.forces, (z,), (ones._replace(contacts=tuple(map(jnp.zeros_like, z.contacts))),)
        )
        H = self.M + jnp.diag(_joint_slopes(self.c, slope, self.b))
        H = _off_diagonal(self.c, self.rows, slope, H)
        if self.welds.size:
            W = self.welds.reshape(-1, H.shape[0])
            H = H + jnp.matmul(W.T, -slope.welds.reshape(-1, 1) * W, precision=_EXACT)
        elliptic = self.c.contacts.elliptic
        for levers, x, ref in zip(self.levers, z.contacts, self.rows.references, strict=True):
            law = lambda x, ref=ref: laws.contact(x, ref.cone, elliptic)  # noqa: E731
            unit = jnp.eye(x.shape[1], dtype=x.dtype)
            columns = [jax.jvp(law, (x,), (jnp.broadcast_to(e, x.shape),))[1] for e in unit]
            B = -jnp.stack(columns, axis=-1)  # (n, d, d)
            for lever in levers:
                BJ = jnp.sum(B[lever.points][..., None] * lever.J[:, None], axis=2)
                block = jnp.matmul(lever.rows.T, BJ.reshape(lever.rows.shape), precision=_EXACT)
                H = H.at[_rows_and_columns(lever.dofs)].add(block)
        return H


def moving(topology: Topology, bodies: np.ndarray) -> np.ndarray:
    """Which degrees of freedom move any of the bodies of each row; −1 is the world."""
    mask = np.concatenate([topology.tree.ancestor_mask, np.zeros((1, topology.nb), bool)])
    return np.asarray(mask[bodies].any(axis=1))[:, topology.dof_bodies]


def _rows_and_columns(dofs: np.ndarray):
    """The place of a block in a matrix: slices where the numbers follow each other."""
    if len(dofs) and dofs[-1] - dofs[0] + 1 == len(dofs):
        own = slice(int(dofs[0]), int(dofs[-1]) + 1)
        return own, own
    return np.ix_(dofs, dofs)


def _in_order(parts: list[tuple[np.ndarray, Array]]) -> Array:
    """Rows that were put apart, in their old order."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([points for points, _ in parts]))
    return jnp.concatenate([x for _, x in parts])[order]


def _joint_slopes(c: Constraints, slope: Values, like: Array) -> Float[Array, " nv"]:
    """The diagonal that rows on single degrees of freedom add to the Hessian."""
    limit, dry = (np.array(x.dofs, dtype=np.int32) for x in (c.joints.limits, c.joints.dry))
    diagonal = jnp.zeros_like(like)
    return diagonal.at[limit].add(-slope.lower - slope.upper).at[dry].add(-slope.dry)


def _off_diagonal(c: Constraints, r: Rows, slope: Values, H: Array) -> Float[Array, "nv nv"]:
    """What limits of balls and couplings of joints add to the Hessian."""
    for k, d in enumerate(c.joints.balls.dofs):
        block = -slope.balls[k] * r.balls.axis[k][:, None] * r.balls.axis[k][None]
        H = H.at[d : d + 3, d : d + 3].add(block)
    for k, (i, j) in enumerate(c.equalities.couplings.dofs):
        w, s = -slope.couplings[k], r.couplings.slope[k]
        H = H.at[i, i].add(w)
        if j >= 0:
            H = H.at[j, j].add(w * s * s).at[i, j].add(-w * s).at[j, i].add(-w * s)
    return H
