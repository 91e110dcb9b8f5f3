"""Limits and dry friction of joints as soft constraints.

Source: MuJoCo's documentation, "Computation", constraint model: frictionloss and limits. Ranges and
dry friction themselves are leaves of the model.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Model
from ...spatial import so3
from ..solver.impedance import Softness, impedance, regularization, stiffness_and_damping


class Soft(eqx.Module):
    """Parameters of n constraints of joints."""

    solref: Float[Array, "n 2"]
    solimp: Float[Array, "n 5"]

    def law(
        self,
        violation: Float[Array, " n"],
        velocity: Float[Array, " n"],
        weight: Float[Array, " n"],
        least: Float[Array, ""],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """``(D, a_ref)`` at a violation r and its rate, by the weight of the dof."""
        d = impedance(self.solimp, violation)
        k, b = stiffness_and_damping(Softness(self.solref, self.solimp), least)
        return 1 / regularization(d, weight), -b * velocity - k * d * violation


class Limits(eqx.Module):
    """Position limits of hinges and slides, both sides of each, by ``model.position_*``."""

    soft: Soft
    margin: Float[Array, " n"]
    dofs: tuple[int, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)
    """Where the joints live in q."""


class BallLimits(eqx.Module):
    """The largest angle of ball joints from their neutral orientation."""

    soft: Soft
    margin: Float[Array, " n"]
    angle: Float[Array, " n"]
    """(rad)"""
    dofs: tuple[int, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)


class JointFriction(eqx.Module):
    """JointFriction friction, as large as ``model.friction`` says, at some degrees of freedom."""

    soft: Soft
    dofs: tuple[int, ...] = eqx.field(static=True)


class Joints(eqx.Module):
    """The constraints of single joints."""

    limits: Limits
    balls: BallLimits
    dry: JointFriction


class Row(NamedTuple):
    """Constraints that act on single degrees of freedom: ``z = sign a[dof] − target``."""

    D: Float[Array, " n"]
    target: Float[Array, " n"]


def limit_rows(
    limits: Limits, model: Model, q: Array, v: Array, weight: Float[Array, " nv"], least: Array
) -> tuple[Row, Row]:
    """Lower and upper limits; D is zero where a limit is farther away than its margin."""
    place, dof = (np.array(x, dtype=np.int32) for x in (limits.places, limits.dofs))
    rows = []
    for side, bound in ((1.0, model.position_lower), (-1.0, model.position_upper)):
        violation = side * (q[place] - bound[place]) - limits.margin
        near = violation < 0
        rate = side * v[dof]
        D, target = limits.soft.law(jnp.where(near, violation, 0), rate, weight[dof], least)
        rows.append(Row(jnp.where(near, D, 0), target))
    return rows[0], rows[1]


def dry_row(dry: JointFriction, v: Array, weight: Float[Array, " nv"], least: Array) -> Row:
    """JointFriction friction: a reference that damps the velocity."""
    dof = np.array(dry.dofs, dtype=np.int32)
    speed = v[dof]
    k, b = stiffness_and_damping(Softness(dry.soft.solref, dry.soft.solimp), least)
    d = impedance(dry.soft.solimp, jnp.zeros_like(speed))
    return Row(1 / regularization(d, weight[dof]), -b * speed)


class BallRow(NamedTuple):
    """Limits of ball joints: ``z = −axis · a − target``."""

    D: Float[Array, " n"]
    target: Float[Array, " n"]
    axis: Float[Array, "n 3"]


def ball_rows(
    balls: BallLimits, q: Array, v: Array, weight: Float[Array, " nv"], least: Array
) -> BallRow:
    """The angle of each ball joint against its limit; the axis is the joint's rotation axis."""
    n = len(balls.dofs)
    if n == 0:
        none = jnp.zeros((0,), q.dtype)
        return BallRow(none, none, jnp.zeros((0, 3), q.dtype))
    quat = jnp.stack([q[k : k + 4] for k in balls.places])
    speed = jnp.stack([v[k : k + 3] for k in balls.dofs])
    turn = so3.quat_log(so3.quat_normalize(quat))
    n2 = so3.dot(turn, turn)
    some = n2 > 0
    angle = jnp.where(some, jnp.sqrt(jnp.where(some, n2, 1)), 0)
    axis = jnp.where(some[:, None], turn / jnp.where(some, angle, 1)[:, None], 0)
    violation = balls.angle - angle - balls.margin
    near = violation < 0
    rate = -so3.dot(axis, speed)
    own = weight[np.array(balls.dofs, dtype=np.int32)]
    D, target = balls.soft.law(jnp.where(near, violation, 0), rate, own, least)
    return BallRow(jnp.where(near, D, 0), target, axis)
