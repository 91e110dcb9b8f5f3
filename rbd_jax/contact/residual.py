"""The stationarity of the constraint problem, body by body: what the derivative is taken of."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms.kinematics import body_velocities
from ..derivatives.rules import inverse_dynamics
from ..model import joint_placements
from ..spatial import so3
from .rows import (
    Theta,
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


def residual(theta: Theta, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ID(q, v, a) − τ − Jᵀ f(J a − a_ref)`` in O(n), zero at the solution."""
    model, c, q, v, tau, _ = theta
    tree = model.topology.tree
    g = ground.pose(model, q)
    p = g.p + joint_placements(model, q)[1][tree.roots]
    r = rows(theta, g.R, p)
    A = bodies(g.R, p, body_velocities(model, q, a))
    welds = jnp.zeros((0, 6), v.dtype)
    if r.welds is not None:
        s = weld_state(A, np.array(c.equalities.welds.bodies, dtype=np.int32))
        linear = s.v1 + so3.cross(s.w1, r.welds.point1 - s.p1)
        linear = linear - s.v2 - so3.cross(s.w2, r.welds.point2 - s.p2)
        welds = jnp.concatenate([linear, so3.rotate(r.welds.turn, s.w1 - s.w2)], axis=-1)
    Ja = Values(tuple(relative(A, x) for x in r.groups), *joint_values(c, r, a), welds=welds)
    f = forces(theta, r, jax.tree.map(jnp.subtract, Ja, targets(r)))
    push = jnp.zeros((model.nb + 1, 6), v.dtype)  # the last row is the world

    def add(push, body, point, force, moment, sign):
        R, at = A.R[body], A.p[body]
        n = so3.rotate_inverse(R, moment + so3.cross(point - at, force))
        return push.at[body].add(sign * jnp.concatenate([n, so3.rotate_inverse(R, force)], axis=-1))

    for x, y in zip(r.groups, f.contacts, strict=True):
        wrench = jnp.pad(y, ((0, 0), (0, 6 - x.dim)))
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
    return torque - joint_torques(c, r, f, tau)
