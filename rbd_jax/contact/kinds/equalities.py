"""Soft equalities: two points that stay together, two bodies welded, coupled joints.

Source: MuJoCo's documentation, "Computation", equality constraints. Unlike other constraints their
reference takes the acceleration ``J̇ v`` of the bodies into account.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...spatial import so3
from ..solver.impedance import Softness, impedance, regularization, stiffness_and_damping


class Welds(eqx.Module):
    """Connects (three rows) and welds (six rows) of two bodies (−1: the world)."""

    p1: Float[Array, "n 3"]
    p2: Float[Array, "n 3"]
    """The anchors in the frames of both bodies (m). The second one of a connect that ``refers``,
    and the first one of a weld, are not used."""
    quat1: Float[Array, "n 4"]
    quat2: Float[Array, "n 4"]
    """Welds: the frames that are to have one orientation, in the frames of the bodies. The first
    one of a weld that ``refers`` is not used."""
    torque_scale: Float[Array, " n"]
    """Welds: meters that count as much as a radian."""
    solref: Float[Array, "n 2"]
    solimp: Float[Array, "n 5"]
    active: Float[Array, " n"]
    """One, or zero where the equality is switched off."""
    bodies: tuple[tuple[int, int], ...] = eqx.field(static=True)
    parts: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Which of :class:`Parts` are tied, −1 for the world."""
    rigid: tuple[bool, ...] = eqx.field(static=True)
    """Whether each is a weld."""
    refers: tuple[bool, ...] = eqx.field(static=True)
    """Whether the bodies are held as they are to each other in the reference configuration."""

    def held(self, R: Float[Array, "nb+1 3 3"], p: Float[Array, "nb+1 3"]) -> "Anchors":
        """The anchors and frames that hold, for the poses in the reference configuration."""
        one, two = (np.array([b[k] for b in self.bodies], dtype=np.int32) for k in (0, 1))
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


class Anchors(NamedTuple):
    """What connects and welds hold together, see :class:`Welds`."""

    p1: Float[Array, "n 3"]
    p2: Float[Array, "n 3"]
    quat1: Float[Array, "n 4"]


class JointEqualities(eqx.Module):
    """``q1 − q1⁰ = polynomial(q2 − q2⁰)`` for joints of one degree of freedom.

    Degree of freedom −1 for the second joint: the first is held at the constant.
    """

    polynomial: Float[Array, "n 5"]
    start: Float[Array, "n 2"]
    """``q1⁰`` and ``q2⁰``."""
    solref: Float[Array, "n 2"]
    solimp: Float[Array, "n 5"]
    active: Float[Array, " n"]
    dofs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)


class Equalities(eqx.Module):
    """All soft equalities."""

    welds: Welds
    couplings: JointEqualities


class WeldRow(NamedTuple):
    """Six rows for each connect or weld, the last three of a connect switched off."""

    D: Float[Array, "n 6"]
    target: Float[Array, "n 6"]
    turn: Float[Array, "n 3 3"]
    """Rows that take the relative angular velocity to the rate of the orientation error."""
    point1: Float[Array, "n 3"]
    point2: Float[Array, "n 3"]


class CouplingRow(NamedTuple):
    """``z = a1 − slope a2 − target``."""

    D: Float[Array, " n"]
    target: Float[Array, " n"]
    slope: Float[Array, " n"]


def coupling_rows(
    c: JointEqualities, q: Array, v: Array, weight: Float[Array, " nv"], least: Array
) -> CouplingRow:
    """The rows of coupled joints."""
    one, two = (np.array([d[k] for d in c.dofs], dtype=np.int32) for k in (0, 1))
    at1, at2 = (np.array([d[k] for d in c.places], dtype=np.int32) for k in (0, 1))
    alone = two < 0
    x = jnp.where(alone, 0, q[at2] - c.start[:, 1])
    a = [c.polynomial[:, k] for k in range(5)]
    error = q[at1] - c.start[:, 0] - (a[0] + x * (a[1] + x * (a[2] + x * (a[3] + x * a[4]))))
    slope = a[1] + x * (2 * a[2] + x * (3 * a[3] + x * 4 * a[4]))
    slope = jnp.where(alone, 0, slope)
    d = impedance(c.solimp, error)
    k, b = stiffness_and_damping(Softness(c.solref, c.solimp), least)
    target = -b * (v[one] - slope * v[two]) - k * d * error
    both = weight[one] + jnp.where(alone, 0, weight[two])
    return CouplingRow(c.active / regularization(d, both), target, slope)


class State(NamedTuple):
    """Poses and twists of both bodies of every weld, in world axes."""

    R1: Float[Array, "n 3 3"]
    p1: Float[Array, "n 3"]
    w1: Float[Array, "n 3"]
    v1: Float[Array, "n 3"]
    R2: Float[Array, "n 3 3"]
    p2: Float[Array, "n 3"]
    w2: Float[Array, "n 3"]
    v2: Float[Array, "n 3"]


def _anchors(held: Anchors, s: State):
    """Both anchors in the world."""
    return s.p1 + so3.rotate(s.R1, held.p1), s.p2 + so3.rotate(s.R2, held.p2)


def _turned(welds: Welds, held: Anchors, s: State):
    """The error of orientation: scalar and vector part of ``q2⁻¹ q1``, and the frame of q2."""
    A = so3.matmul(s.R1, so3.quat_to_matrix(so3.quat_normalize(held.quat1)))
    B = so3.matmul(s.R2, so3.quat_to_matrix(so3.quat_normalize(welds.quat2)))
    quat = so3.quat_from_matrix(so3.matmul(so3.transpose(B), A))
    return quat[:, :1], quat[:, 1:], B


def _scale(welds: Welds) -> Float[Array, "n 1"]:
    return jnp.where(np.array(welds.rigid, dtype=bool), welds.torque_scale, 0)[:, None]


def _turn(welds: Welds, held: Anchors, s: State) -> Float[Array, "n 3 3"]:
    """From the relative angular velocity to the rate of the error e: ``½ (w ω + ω × e)``."""
    w, e, B = _turned(welds, held, s)
    half = 0.5 * (w[..., None] * jnp.eye(3, dtype=w.dtype)[None] - so3.hat(e))
    return _scale(welds)[..., None] * so3.matmul(half, so3.transpose(B))


def _rate(welds: Welds, held: Anchors, s: State) -> Float[Array, "n 6"]:
    """The rate of the error."""
    x1, x2 = _anchors(held, s)
    linear = s.v1 + so3.cross(s.w1, x1 - s.p1) - s.v2 - so3.cross(s.w2, x2 - s.p2)
    return jnp.concatenate([linear, so3.rotate(_turn(welds, held, s), s.w1 - s.w2)], axis=-1)


def weld_rows(
    welds: Welds,
    held: Anchors,
    weight: Float[Array, "n 2"],
    s: State,
    ds: State,
    least: Float[Array, ""],
) -> WeldRow:
    """The rows of connects and welds.

    Args:
        welds: the equalities.
        held: what they hold together.
        weight: how much both bodies give way to forces (1/kg) and torques (1/(kg m²)).
        s: poses and velocities.
        ds: their rates for the joint accelerations that the rows call zero, ``J̇ v`` in s.
        least: the least time constant (s).
    """
    (x1, x2), (_, e, _) = _anchors(held, s), _turned(welds, held, s)
    r = jnp.concatenate([x1 - x2, _scale(welds) * e], axis=-1)
    rate, bias = jax.jvp(lambda s: _rate(welds, held, s), (s,), (ds,))
    size2 = jnp.sum(r * r, axis=-1)
    size = jnp.where(size2 > 0, jnp.sqrt(jnp.where(size2 > 0, size2, 1)), 0)
    d = impedance(welds.solimp, size)
    k, b = stiffness_and_damping(Softness(welds.solref, welds.solimp), least)
    target = -b[:, None] * rate - (k * d)[:, None] * r - bias
    D = welds.active[:, None] / regularization(d[:, None], jnp.repeat(weight, 3, axis=1))
    rigid = np.array(welds.rigid, dtype=bool).reshape(-1, 1)
    used = np.repeat(np.concatenate([np.ones_like(rigid), rigid], axis=1), 3, axis=1)
    return WeldRow(jnp.where(used, D, 0), target, _turn(welds, held, s), x1, x2)
