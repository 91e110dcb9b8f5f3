"""Constraint forces at given accelerations, body by body, and the stationarity of the problem.

The residual is what the implicit derivative is taken of.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...derivatives.poses import placed
from ...derivatives.rules import inverse_dynamics
from ...spatial import so3
from .rows import (
    Rows,
    SolverInputs,
    Values,
    bodies,
    classical,
    forces,
    joint_torques,
    joint_values,
    relative,
    rows,
    targets,
    weld_state,
)


class Push(NamedTuple):
    """All constraint rows of a moment and their forces."""

    rows: Rows
    forces: Values
    R: Float[Array, "nb+1 3 3"]
    p: Float[Array, "nb+1 3"]


def push(theta: SolverInputs, a: Float[Array, " nv"]) -> Push:
    """The rows and the forces that they have at the accelerations a, in O(n)."""
    model, c, _, q, v, _, _ = theta
    g, root = placed(model, q)
    r = rows(theta, g, root)
    A = bodies(model, g, root, a)
    welds = jnp.zeros((0, 6), v.dtype)
    if r.welds is not None:
        s = weld_state(A, np.array(c.equalities.welds.bodies, dtype=np.int32))
        linear = s.v1 + so3.cross(s.w1, r.welds.point1 - s.p1)
        linear = linear - s.v2 - so3.cross(s.w2, r.welds.point2 - s.p2)
        welds = jnp.concatenate([linear, so3.rotate(r.welds.turn, s.w1 - s.w2)], axis=-1)
    Ja = Values(tuple(relative(A, x) for x in r.groups), *joint_values(c, r, a), welds=welds)
    return Push(r, forces(theta, r, jax.tree.map(jnp.subtract, Ja, targets(r))), A.R, A.p)


def residual(theta: SolverInputs, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ID(q, v, a) − τ − Jᵀ f(J a − a_ref)`` in O(n), zero at the solution."""
    model, _, _, q, v, tau, _ = theta
    offset = classical(model, v)
    on_bodies, on_joints = generalized(theta, push(theta, a), tau)
    torque = inverse_dynamics(model, q, v, a - offset, on_bodies) + model.armature * offset
    return torque - on_joints


def generalized(theta: SolverInputs, pushed: Push, tau: Float[Array, " nv"]):
    """Wrenches on the bodies, each in its frame; ``tau`` plus the forces on single joints."""
    c, (r, f, R_all, p_all) = theta.constraints, pushed
    wrenches = jnp.zeros((len(p_all), 6), p_all.dtype)  # the last row is the world

    def add(wrenches, body, point, force, moment, sign):
        R, at = R_all[body], p_all[body]
        n = so3.rotate_inverse(R, moment + so3.cross(point - at, force))
        both = jnp.concatenate([n, so3.rotate_inverse(R, force)], axis=-1)
        return wrenches.at[body].add(sign * both)

    for x, y in zip(r.groups, f.contacts, strict=True):
        wrench = jnp.pad(y, ((0, 0), (0, 6 - x.dim)))
        force = so3.rotate_inverse(x.frame, wrench[:, :3])
        moment = so3.rotate_inverse(x.frame, wrench[:, 3:])
        for k, sign in ((0, -1.0), (1, 1.0)):
            if (x.bodies[:, k] >= 0).any():
                wrenches = add(wrenches, x.bodies[:, k], x.point, force, moment, sign)
    if r.welds is not None:
        ends = np.array(c.equalities.welds.bodies, dtype=np.int32)
        moment = so3.rotate_inverse(r.welds.turn, f.welds[:, 3:])
        for k, sign, point in ((0, 1.0, r.welds.point1), (1, -1.0, r.welds.point2)):
            wrenches = add(wrenches, ends[:, k], point, f.welds[:, :3], moment, sign)
    return wrenches[:-1], joint_torques(c, r, f, tau)
