"""The constraint problem of one moment with a dense mass matrix and dense Jacobians.

    a = argmin ½ ‖a − a_free‖²_M + s(J a − a_ref)            gradient  M a − b − Jᵀ f(J a − a_ref)

Source: MuJoCo's documentation, "Computation", constraint model and solvers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms.crba import composite_mass_matrix
from ..derivatives.rules import inverse_dynamics
from ..model import joint_placements
from ..spatial import so3
from . import laws
from .rows import (
    Constraints,
    Rows,
    Theta,
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


class Problem:
    """The problem of one state with a dense mass matrix and dense Jacobians."""

    def __init__(self, theta: Theta):
        model, self.c, q, v, tau, _ = theta
        self.theta = theta
        topology = model.topology
        g = ground.pose(model, q)
        root = joint_placements(model, q)[1][topology.tree.roots]
        self.M = composite_mass_matrix(topology, g.p, g.S_own, g.I_own, model.armature)
        self.rows = rows(theta, g.R, g.p + root)
        self.S, self.root = g.S, with_world(root, jnp.zeros((3,), q.dtype))
        self.topology = topology
        offset = classical(model, v)
        self.b = tau - inverse_dynamics(model, q, v, -offset) - model.armature * offset
        self.contacts = [self._contact_jacobian(x) for x in self.rows.groups]
        self.welds = self._weld_jacobian()
        self.target = targets(self.rows)

    def _line(self, body: np.ndarray, wrench: Float[Array, "n k 6"]) -> Float[Array, "n k nv"]:
        """``wrench · S`` on the degrees of freedom that move each body."""
        mask = np.concatenate(
            [self.topology.tree.ancestor_mask, np.zeros((1, self.topology.nb), bool)]
        )
        moves = mask[body][:, self.topology.dof_bodies]
        n, k, _ = wrench.shape
        J = jnp.matmul(wrench.reshape(n * k, 6), self.S.T, precision=_EXACT).reshape(n, k, -1)
        return jnp.where(moves[:, None, :], J, 0)

    def _contact_jacobian(self, group) -> Float[Array, "n d nv"]:
        total, n = None, len(group.pair)
        d = group.frame[:, : min(group.dim, 3)]
        for k, sign in ((0, -1.0), (1, 1.0)):
            body = group.bodies[:, k]
            if (body < 0).all():
                continue
            arm = group.point - self.root[body]
            lines = [jnp.concatenate([so3.cross(arm[:, None], d), d], axis=-1)]
            if group.dim > 3:
                turn = group.frame[:, : group.dim - 3]
                lines.append(jnp.concatenate([turn, jnp.zeros_like(turn)], axis=-1))
            J = sign * self._line(body, jnp.concatenate(lines, axis=1))
            total = J if total is None else total + J
        return jnp.zeros((n, group.dim, self.topology.nv)) if total is None else total

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
            total = total + sign * self._line(body, jnp.concatenate([linear, turning], axis=1))
        return total

    def map(self, a: Float[Array, " nv"]) -> Values:
        """``J a``."""
        times = lambda J: jnp.matmul(J, a, precision=_EXACT)  # noqa: E731
        touching = tuple(times(J) for J in self.contacts)
        return Values(touching, *joint_values(self.c, self.rows, a), welds=times(self.welds))

    def values(self, a: Float[Array, " nv"]) -> Values:
        """``J a − a_ref``."""
        return jax.tree.map(jnp.subtract, self.map(a), self.target)

    def forces(self, z: Values) -> Values:
        """Forces of all rows."""
        return forces(self.theta, self.rows, z)

    def pull(self, f: Values) -> Float[Array, " nv"]:
        """``Jᵀ f``."""
        total = joint_torques(self.c, self.rows, f, jnp.zeros_like(self.b))
        for J, x in zip((*self.contacts, self.welds), (*f.contacts, f.welds), strict=True):
            if x.size:
                flat = J.reshape(-1, J.shape[-1])
                total = total + jnp.matmul(x.reshape(-1), flat, precision=_EXACT)
        return total

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
        for J, x, ref in zip(self.contacts, z.contacts, self.rows.references, strict=True):
            law = lambda x, ref=ref: laws.contact(x, ref.cone, elliptic)  # noqa: E731
            unit = jnp.eye(x.shape[1], dtype=x.dtype)
            columns = [jax.jvp(law, (x,), (jnp.broadcast_to(e, x.shape),))[1] for e in unit]
            B = -jnp.stack(columns, axis=-1)  # (n, d, d)
            BJ = jnp.sum(B[..., None] * J[:, None], axis=2)
            flat = J.reshape(-1, J.shape[-1])
            H = H + jnp.matmul(flat.T, BJ.reshape(flat.shape), precision=_EXACT)
        return H


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
