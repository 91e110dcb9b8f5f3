"""The constraint problem of one moment: all rows, their forces, the gradient and the Hessian.

    a = argmin ½ ‖a − a_free‖²_M + s(J a − a_ref)            gradient  M a − b − Jᵀ f(J a − a_ref)

Source: MuJoCo's documentation, "Computation", constraint model and solvers. The unknown a is
MuJoCo's ``qacc``: for a free joint the classical acceleration of its origin, in our body axes.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms.crba import composite_mass_matrix
from ..algorithms.kinematics import body_accelerations, body_velocities
from ..derivatives.rules import inverse_dynamics
from ..model import Model, joint_placements
from ..spatial import so3
from . import laws
from .contacts import Contacts, Reference, find, reference
from .equalities import CouplingRow, Equalities, State, WeldRow, coupling_rows, weld_rows
from .joints import BallRow, Joints, Row, ball_rows, dry_row, limit_rows

_EXACT = jax.lax.Precision.HIGHEST


class Constraints(eqx.Module):
    """Everything that pushes, stops or holds."""

    contacts: Contacts
    joints: Joints
    equalities: Equalities


class Theta(NamedTuple):
    """All that the accelerations depend on."""

    model: Model
    constraints: Constraints
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]
    dt: Float[Array, ""]


def classical(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ω × v`` of every free joint: the classical acceleration of its origin is ``v̇ + ω × v``."""
    c = jnp.zeros_like(v)
    topology = model.topology
    for b in topology.bodies_of("free"):
        s = int(topology.v_starts[b])
        c = c.at[s + 3 : s + 6].set(so3.cross(v[s : s + 3], v[s + 3 : s + 6]))
    return c


class Body(NamedTuple):
    """Poses of the bodies in the world and twists in world axes; the world is the last row."""

    R: Float[Array, "nb+1 3 3"]
    p: Float[Array, "nb+1 3"]
    w: Float[Array, "nb+1 3"]
    v: Float[Array, "nb+1 3"]
    """Velocity of the body's origin."""


def _with_world(x: Array, row: Array) -> Array:
    return jnp.concatenate([x, row[None]])


def _bodies(R: Array, p: Array, V: Float[Array, "nb 6"]) -> Body:
    zero = jnp.zeros((3,), p.dtype)
    return Body(
        _with_world(R, jnp.eye(3, dtype=p.dtype)),
        _with_world(p, zero),
        _with_world(so3.rotate(R, V[:, :3]), zero),
        _with_world(so3.rotate(R, V[:, 3:]), zero),
    )


def _relative(body: Body, group) -> Float[Array, "n d"]:
    """Velocity of the second body against the first at each contact, in its frame."""
    i, j = group.bodies[:, 0], group.bodies[:, 1]
    at = lambda b: body.v[b] + so3.cross(body.w[b], group.point - body.p[b])  # noqa: E731
    linear = so3.rotate(group.frame, at(j) - at(i))
    if group.dim <= 3:
        return linear[:, : group.dim]
    turning = so3.rotate(group.frame, body.w[j] - body.w[i])
    return jnp.concatenate([linear, turning], axis=-1)[:, : group.dim]


class Rows(NamedTuple):
    """Where everything touches and the laws at the present velocity."""

    groups: list
    references: list[Reference]
    lower: Row
    upper: Row
    dry: Row
    balls: BallRow
    welds: WeldRow | None
    couplings: CouplingRow


class Values(NamedTuple):
    """One number a row: residuals ``J a − a_ref``, forces, or tangents of either."""

    contacts: tuple[Array, ...]
    lower: Array
    upper: Array
    dry: Array
    balls: Array
    welds: Array
    couplings: Array


def _weld_state(body: Body, ends: np.ndarray) -> State:
    return State(*(x[ends[:, k]] for k in (0, 1) for x in body))


def rows(theta: Theta, R: Array, p: Array) -> Rows:
    """All rows at a state, for the poses of its bodies."""
    model, c, q, v, _, dt = theta
    least = c.contacts.least_time * dt
    body = _bodies(R, p, body_velocities(model, q, v))
    groups = find(c.contacts, R, p)
    references = [reference(c.contacts, g, _relative(body, g), dt) for g in groups]
    lower, upper = limit_rows(c.joints.limits, model, q, v, least)
    welds = None
    if c.equalities.welds.bodies:
        ends = np.array(c.equalities.welds.bodies, dtype=np.int32)
        V = body_velocities(model, q, v)
        A = body_accelerations(model, q, v, -classical(model, v))
        rate = _with_world(so3.rotate(R, A[:, 3:] + so3.cross(V[:, :3], V[:, 3:])), body.v[-1])
        spin = _with_world(so3.rotate(R, A[:, :3]), body.w[-1])
        moved = Body(so3.matmul(so3.hat(body.w), body.R), body.v, spin, rate)
        s, ds = _weld_state(body, ends), _weld_state(moved, ends)
        welds = weld_rows(c.equalities.welds, s, ds, least)
    return Rows(
        groups,
        references,
        lower,
        upper,
        dry_row(c.joints.dry, v, least),
        ball_rows(c.joints.balls, q, v, least),
        welds,
        coupling_rows(c.equalities.couplings, q, v, least),
    )


def forces(theta: Theta, r: Rows, z: Values) -> Values:
    """The force of every row."""
    c = theta.constraints
    dry = np.array(c.joints.dry.dofs, dtype=np.int32)
    elliptic = c.contacts.elliptic
    return Values(
        tuple(
            laws.contact(x, y.cone, elliptic) for x, y in zip(z.contacts, r.references, strict=True)
        ),
        laws.one_sided(z.lower, r.lower.D),
        laws.one_sided(z.upper, r.upper.D),
        laws.dry(z.dry, r.dry.D, theta.model.friction[dry]),
        laws.one_sided(z.balls, r.balls.D),
        z.welds if r.welds is None else laws.two_sided(z.welds, r.welds.D),
        laws.two_sided(z.couplings, r.couplings.D),
    )


def targets(r: Rows) -> Values:
    """``a_ref`` of every row."""
    none = jnp.zeros((0, 6), r.lower.D.dtype)
    return Values(
        tuple(x.target for x in r.references),
        r.lower.target,
        r.upper.target,
        r.dry.target,
        r.balls.target,
        none if r.welds is None else r.welds.target,
        r.couplings.target,
    )


def _joint_values(c: Constraints, r: Rows, a: Array):
    """``J a`` of the rows that act on joints alone."""
    limit, dry = (np.array(x.dofs, dtype=np.int32) for x in (c.joints.limits, c.joints.dry))
    one, two = (
        np.array([d[k] for d in c.equalities.couplings.dofs], dtype=np.int32) for k in (0, 1)
    )
    turning = [a[d : d + 3] for d in c.joints.balls.dofs]
    balls = -so3.dot(r.balls.axis, jnp.stack(turning)) if turning else r.balls.D
    return a[limit], -a[limit], a[dry], balls, a[one] - r.couplings.slope * a[two]


def _joint_torques(c: Constraints, r: Rows, f: Values, tau: Array) -> Float[Array, " nv"]:
    """``tau + Jᵀ f`` of the same rows."""
    limit, dry = (np.array(x.dofs, dtype=np.int32) for x in (c.joints.limits, c.joints.dry))
    one, two = (
        np.array([d[k] for d in c.equalities.couplings.dofs], dtype=np.int32) for k in (0, 1)
    )
    tau = tau.at[limit].add(f.lower - f.upper).at[dry].add(f.dry)
    tau = tau.at[one].add(f.couplings).at[two].add(-r.couplings.slope * f.couplings)
    for k, d in enumerate(c.joints.balls.dofs):
        tau = tau.at[d : d + 3].add(-r.balls.axis[k] * f.balls[k])
    return tau


# --- the residual, body by body: what the derivative is taken of ----------------------------------


def residual(theta: Theta, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ID(q, v, a) − τ − Jᵀ f(J a − a_ref)`` in O(n), zero at the solution."""
    model, c, q, v, tau, _ = theta
    nothing = jnp.zeros((model.nb, 6), v.dtype)
    tree = model.topology.tree
    g = ground.pose(model, q)
    p = g.p + joint_placements(model, q)[1][tree.roots]
    r = rows(theta, g.R, p)
    A = _bodies(g.R, p, body_velocities(model, q, a))
    welds = jnp.zeros((0, 6), v.dtype)
    if r.welds is not None:
        s = _weld_state(A, np.array(c.equalities.welds.bodies, dtype=np.int32))
        linear = s.v1 + so3.cross(s.w1, r.welds.point1 - s.p1)
        linear = linear - s.v2 - so3.cross(s.w2, r.welds.point2 - s.p2)
        welds = jnp.concatenate([linear, so3.rotate(r.welds.turn, s.w1 - s.w2)], axis=-1)
    Ja = Values(
        tuple(_relative(A, x) for x in r.groups), *_joint_values(c, r, a)[:4], welds,
        _joint_values(c, r, a)[4],
    )  # fmt: skip
    f = forces(theta, r, jax.tree.map(jnp.subtract, Ja, targets(r)))
    push = _with_world(nothing, nothing[0]) if model.nb else jnp.zeros((1, 6), v.dtype)

    def add(push, body, point, force, moment, sign):
        R, at = A.R[body], A.p[body]
        n = so3.rotate_inverse(R, moment + so3.cross(point - at, force))
        return push.at[body].add(sign * jnp.concatenate([n, so3.rotate_inverse(R, force)], axis=-1))

    for x, y in zip(r.groups, f.contacts, strict=True):
        wrench = jnp.pad(y, ((0, 0), (0, 6 - x.dim))) if x.dim > 1 else jnp.pad(y, ((0, 0), (0, 5)))
        force = so3.rotate_inverse(x.frame, wrench[:, :3])
        moment = so3.rotate_inverse(x.frame, wrench[:, 3:])
        for k, sign in ((0, -1.0), (1, 1.0)):
            if (x.bodies[:, k] >= 0).any():
                push = add(push, x.bodies[:, k], x.point, force, moment, sign)
    if r.welds is not None:
        ends = np.array(c.equalities.welds.bodies, dtype=np.int32)
        moment = so3.rotate_inverse(r.welds.turn, f.welds[:, 3:])
        for k, sign, point in ((0, 1.0, r.welds.point1), (1, -1.0, r.welds.point2)):
            push = add(push, ends[:, k], point, f.welds[:, :3], moment, sign)
    offset = classical(model, v)
    torque = inverse_dynamics(model, q, v, a - offset, push[:-1]) + model.armature * offset
    return torque - _joint_torques(c, r, f, tau)


# --- the same with dense Jacobians: what the solver works on --------------------------------------


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
        self.S, self.root = g.S, _with_world(root, jnp.zeros((3,), q.dtype))
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
        lower, upper, dry, balls, couplings = _joint_values(self.c, self.rows, a)
        times = lambda J: jnp.matmul(J, a, precision=_EXACT)  # noqa: E731
        return Values(
            tuple(times(J) for J in self.contacts),
            lower,
            upper,
            dry,
            balls,
            times(self.welds),
            couplings,
        )

    def values(self, a: Float[Array, " nv"]) -> Values:
        """``J a − a_ref``."""
        return jax.tree.map(jnp.subtract, self.map(a), self.target)

    def forces(self, z: Values) -> Values:
        """Forces of all rows."""
        return forces(self.theta, self.rows, z)

    def pull(self, f: Values) -> Float[Array, " nv"]:
        """``Jᵀ f``."""
        total = _joint_torques(self.c, self.rows, f, jnp.zeros_like(self.b))
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
