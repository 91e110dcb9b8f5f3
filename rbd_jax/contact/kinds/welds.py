"""Connects and welds: two points that stay together, two bodies that stay fixed to each other.

Source: MuJoCo's documentation, "Computation", constraint model, equality. Unlike other constraints
their reference takes the acceleration ``J̇ v`` of the bodies into account.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.kinematics import body_accelerations, body_velocities
from ...model import Topology
from ...spatial import so3
from ..solver import force_laws
from ..solver.force_laws import SolverParams, impedance, regularization, stiffness_and_damping
from ..solver.rows import (
    Bodies,
    Constraint,
    Jacobian,
    Loads,
    Rows,
    State,
    Subspaces,
    classical_offset,
    coupled_dofs,
    indices,
    slope,
)
from ..weights import Anchors, with_world


class Welds(Constraint):
    """Connects (three rows) and welds (six rows) of two bodies; −1 is the world."""

    p1: Float[Array, "n 3"]
    p2: Float[Array, "n 3"]
    """The anchors in the frames of both bodies (m). The second anchor of a connect that ``refers``
    and the first anchor of a weld that ``refers`` are not used."""
    quat1: Float[Array, "n 4"]
    quat2: Float[Array, "n 4"]
    """For welds, the frames that are to have one orientation, in the frames of the bodies. The
    first frame of a weld that ``refers`` is not used."""
    torque_scale: Float[Array, " n"]
    """For welds, how many meters of distance count as much as a radian."""
    params: SolverParams
    active: Float[Array, " n"]
    """One, or zero where the equality is switched off."""
    bodies: tuple[tuple[int, int], ...] = eqx.field(static=True)
    parts: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Which of :class:`Parts` are tied; −1 is the world."""
    rigid: tuple[bool, ...] = eqx.field(static=True)
    """True for welds, False for connects."""
    refers: tuple[bool, ...] = eqx.field(static=True)
    """Whether the bodies are held as they are to each other in the reference configuration."""

    def anchors(self, R: Float[Array, "frames 3 3"], p: Float[Array, "frames 3"]) -> Anchors:
        """The anchors and frames that are held, for the poses in the reference configuration."""
        one, two = _ends(self.bodies)
        refers, rigid = (np.array(x, dtype=bool)[:, None] for x in (self.refers, self.rigid))
        x1 = p[one] + so3.rotate(R[one], self.p1)
        x2 = p[two] + so3.rotate(R[two], self.p2)
        of_two = so3.quat_to_matrix(so3.quat_normalize(self.quat2))
        turn = so3.matmul(so3.transpose(R[one]), so3.matmul(R[two], of_two))
        return Anchors(
            jnp.where(refers & rigid, so3.rotate_inverse(R[one], x2 - p[one]), self.p1),
            jnp.where(refers & ~rigid, so3.rotate_inverse(R[two], x1 - p[two]), self.p2),
            jnp.where(refers & rigid, so3.quat_from_matrix(turn), self.quat1),
        )

    def rows(self, state: State) -> Sequence["WeldRows"]:
        """Six rows for each connect or weld; D is zero for the last three of a connect."""
        if not self.bodies:
            return ()
        held = state.constants.anchors or Anchors(self.p1, self.p2, self.quat1)
        s, ds = _pairs(state.bodies, self.bodies), _pairs(_rates(state), self.bodies)
        (x1, x2), (_, e, _) = _points(held, s), _orientation_error(self, held, s)
        r = jnp.concatenate([x1 - x2, _scale(self) * e], axis=-1)
        rate, bias = jax.jvp(lambda s: _error_rate(self, held, s), (s,), (ds,))
        size2 = jnp.sum(r * r, axis=-1)
        size = jnp.where(size2 > 0, jnp.sqrt(jnp.where(size2 > 0, size2, 1)), 0)
        d = impedance(self.params.solimp, size)
        k, b = stiffness_and_damping(self.params, state.least_time)
        a_ref = -b[:, None] * rate - (k * d)[:, None] * r - bias
        weight = jnp.repeat(state.constants.weights.of(self.parts), 3, axis=1)
        D = self.active[:, None] / regularization(d[:, None], weight)
        rigid = np.array(self.rigid, dtype=bool).reshape(-1, 1)
        used = np.repeat(np.concatenate([np.ones_like(rigid), rigid], axis=1), 3, axis=1)
        turn = _turn(self, held, s)
        return [WeldRows(a_ref, jnp.where(used, D, 0), turn, x1, x2, self.bodies)]


class WeldRows(Rows):
    """Rows of connects and welds: three of the distance, three of the orientation."""

    a_ref: Float[Array, "n 6"]
    D: Float[Array, "n 6"]
    turn: Float[Array, "n 3 3"]
    """Takes the relative angular velocity to the rate of the orientation error."""
    point1: Float[Array, "n 3"]
    point2: Float[Array, "n 3"]
    """The anchors in the world (m)."""
    bodies: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def force(self, z: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        """The force on the first body in world axes, and multipliers of the orientation error."""
        return force_laws.equality(z, self.D)

    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> Float[Array, "n 6"]:
        """``J a`` body by body."""
        s = _pairs(bodies, self.bodies)
        linear = s.v1 + so3.cross(s.w1, self.point1 - s.p1)
        linear = linear - s.v2 - so3.cross(s.w2, self.point2 - s.p2)
        return jnp.concatenate([linear, so3.rotate(self.turn, s.w1 - s.w2)], axis=-1)

    def load(self, f: Float[Array, "n 6"], bodies: Bodies, loads: Loads) -> Loads:
        """Adds the forces on both bodies."""
        one, two = _ends(self.bodies)
        force, moment = f[:, :3], so3.rotate_inverse(self.turn, f[:, 3:])
        loads = loads.push(bodies, one, self.point1, force, moment, 1.0)
        return loads.push(bodies, two, self.point2, force, moment, -1.0)

    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """The dense Jacobian over all degrees of freedom."""
        dtype, nv = self.turn.dtype, subspaces.topology.nv
        eye = jnp.broadcast_to(jnp.eye(3, dtype=dtype), self.turn.shape)
        total = jnp.zeros((len(self.bodies), 6, nv), dtype)
        sides = zip(_ends(self.bodies), (1.0, -1.0), (self.point1, self.point2), strict=True)
        for body, sign, point in sides:
            arm = point - subspaces.root[body]
            linear = jnp.concatenate([so3.cross(arm[:, None], eye), eye], axis=-1)
            turning = jnp.concatenate([self.turn, jnp.zeros_like(self.turn)], axis=-1)
            lines = jnp.concatenate([linear, turning], axis=1)
            total = total + sign * subspaces.lines(body, lines, np.arange(nv))
        return WeldJacobian(self, total)

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """The degrees of freedom that move either body."""
        return coupled_dofs(topology, indices(self.bodies))

    def report(self, f: Float[Array, "n 6"], joints: list[str]) -> dict[str, Array]:
        """The forces in the order of the file."""
        return {"welds": f}


class WeldJacobian(Jacobian):
    """The dense Jacobian of connects and welds."""

    rows: WeldRows
    J: Float[Array, "n 6 nv"]

    def map(self, a: Float[Array, " nv"]) -> Float[Array, "n 6"]:
        """``J a``."""
        return jnp.matmul(self.J, a, precision="highest")

    def pull(self, f: Float[Array, "n 6"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        flat = self.J.reshape(-1, tau.shape[0])
        return tau + jnp.matmul(f.reshape(-1), flat, precision="highest")

    def curvature(self, z: Float[Array, "n 6"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        J = self.J.reshape(-1, H.shape[0])
        steep = -slope(self.rows.force, z).reshape(-1, 1)
        return H + jnp.matmul(J.T, steep * J, precision="highest")


class _Pairs(NamedTuple):
    """Poses and twists of both bodies of every weld, in world axes."""

    R1: Float[Array, "n 3 3"]
    p1: Float[Array, "n 3"]
    w1: Float[Array, "n 3"]
    v1: Float[Array, "n 3"]
    R2: Float[Array, "n 3 3"]
    p2: Float[Array, "n 3"]
    w2: Float[Array, "n 3"]
    v2: Float[Array, "n 3"]


def _ends(pairs: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    both = indices(pairs)
    return both[:, 0], both[:, 1]


def _pairs(bodies: Bodies, ends: tuple[tuple[int, int], ...]) -> _Pairs:
    return _Pairs(*(x[end] for end in _ends(ends) for x in bodies))


def _rates(state: State) -> Bodies:
    """The rates of poses and twists for the joint accelerations that the rows call zero.

    The rates of the twists are then ``J̇ v``.
    """
    model, q, v, body = state.model, state.q, state.v, state.bodies
    R, V = state.poses.R, body_velocities(model, q, v)
    A = body_accelerations(model, q, v, -classical_offset(model, v))
    rate = with_world(so3.rotate(R, A[:, 3:] + so3.cross(V[:, :3], V[:, 3:])), body.v[-1])
    spin = with_world(so3.rotate(R, A[:, :3]), body.w[-1])
    return Bodies(so3.matmul(so3.hat(body.w), body.R), body.v, spin, rate)


def _points(held: Anchors, s: _Pairs):
    """Both anchors in the world (m)."""
    return s.p1 + so3.rotate(s.R1, held.p1), s.p2 + so3.rotate(s.R2, held.p2)


def _orientation_error(welds: Welds, held: Anchors, s: _Pairs):
    """The scalar and the vector part of ``q2⁻¹ q1``, and the frame of q2."""
    A = so3.matmul(s.R1, so3.quat_to_matrix(so3.quat_normalize(held.quat1)))
    B = so3.matmul(s.R2, so3.quat_to_matrix(so3.quat_normalize(welds.quat2)))
    quat = so3.quat_from_matrix(so3.matmul(so3.transpose(B), A))
    return quat[:, :1], quat[:, 1:], B


def _scale(welds: Welds) -> Float[Array, "n 1"]:
    return jnp.where(np.array(welds.rigid, dtype=bool), welds.torque_scale, 0)[:, None]


def _turn(welds: Welds, held: Anchors, s: _Pairs) -> Float[Array, "n 3 3"]:
    """From the relative angular velocity ω to the rate of the error e, ``½ (w ω + ω × e)``."""
    w, e, B = _orientation_error(welds, held, s)
    half = 0.5 * (w[..., None] * jnp.eye(3, dtype=w.dtype)[None] - so3.hat(e))
    return _scale(welds)[..., None] * so3.matmul(half, so3.transpose(B))


def _error_rate(welds: Welds, held: Anchors, s: _Pairs) -> Float[Array, "n 6"]:
    """The rate of the distance of the anchors and of the scaled orientation error."""
    x1, x2 = _points(held, s)
    linear = s.v1 + so3.cross(s.w1, x1 - s.p1) - s.v2 - so3.cross(s.w2, x2 - s.p2)
    return jnp.concatenate([linear, so3.rotate(_turn(welds, held, s), s.w1 - s.w2)], axis=-1)
