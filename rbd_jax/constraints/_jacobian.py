"""The Jacobian of a set of constraints, and the wrenches on the bodies that its forces are."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..model import CoordinateModel, Model, Topology
from ..model.arguments import algorithm
from ..model.coordinates import CoordinateMap
from ..spatial import so3
from . import _motion as motion
from ._rows import of_pairs, row_index
from ._set import Constraints, check


def moving(topology: Topology, constraints: Constraints) -> list[np.ndarray]:
    """For both sides: which degrees of freedom move the body of each pair, (n, nv)."""
    found = []
    for index in motion.numbers(constraints):
        above = topology.tree.ancestor_mask[index][:, topology.dof_bodies]
        found.append((above != 0) & (index >= 0)[:, None])
    return found


def supports(topology: Topology, constraints: Constraints) -> list[tuple[np.ndarray, np.ndarray]]:
    """For both sides: each pair with each degree of freedom that moves its body, as indices."""
    return [np.nonzero(m) for m in moving(topology, constraints)]  # type: ignore[misc]


def support(topology: Topology, c: Constraints) -> np.ndarray:
    """Where J may differ from zero, bool (m, nv)."""
    one, two = moving(topology, c)
    sizes = [len(p.rows) for p in c.pairs]
    coupled = np.ones((len(c.couplings), topology.nv), dtype=bool)
    return np.concatenate([np.repeat(one | two, sizes, axis=0), coupled])


def jacobian_rows(
    model: Model, c: Constraints, g: world_frame.WorldQuantities, o: Float[Array, "nb 3"]
) -> Float[Array, "m nv"]:
    """J with zeros for inactive rows, for known poses and ground origins."""
    n, nv, zero = len(c.pairs), model.nv, jnp.zeros((model.nb, 6), g.p.dtype)
    six = [jnp.zeros((n, nv, 6), g.p.dtype)]
    if c.pairs:
        points, local, _ = motion.kinds(c)
        one, two = motion.sides(c, motion.bodies_at(g, o, zero, zero))
        at = motion.levers(points, one, two)
        found = []
        for sign, r, (k, j) in zip((1, -1), at, supports(model.topology, c), strict=True):
            if len(k):  # else this side is the world
                columns = motion.turn_back(local[k], one.R[k], motion.twist_at(g.S[j], r[k]))
                columns = jnp.where(c.active[k, None], sign * columns, 0)
                place = np.full((n, nv), len(k))
                place[k, j] = np.arange(len(k))
                found.append(jnp.concatenate([columns, zero[:1]])[place])
        six = found or six
    coupled = jnp.where(c.active[n:, None], c.coupling, 0)
    return of_pairs(c, jnp.swapaxes(sum(six[1:], six[0]), 1, 2), coupled)


def world_wrenches(
    c: Constraints, b: motion.Bodies, forces: Float[Array, " m"]
) -> Float[Array, "n 6"]:
    """The wrench of each pair on its first body, world axes, at the lever."""
    index, local = row_index(c), motion.kinds(c).local
    F = jnp.zeros((6 * len(c.pairs),), forces.dtype).at[index].set(forces[: len(index)])
    F, R = F.reshape(-1, 6), motion.sides(c, b)[0].R
    turned = jnp.concatenate([so3.rotate(R, x) for x in (F[:, :3], F[:, 3:])], axis=-1)
    return jnp.where(local, turned, F)


def transmitted(
    model: Model,
    c: Constraints,
    g: world_frame.WorldQuantities,
    o: Float[Array, "nb 3"],
    forces: Float[Array, " m"],
) -> tuple[Float[Array, "nb 6"], Float[Array, " nv"]]:
    """Wrenches on the bodies in their frames, and joint torques of the couplings."""
    zero, held = jnp.zeros((model.nb, 6), g.p.dtype), len(row_index(c))
    coupled = jnp.sum(c.coupling * forces[held:, None], axis=0)
    if not c.pairs:
        return zero, coupled
    b = motion.bodies_at(g, o, zero, zero)
    F, points = world_wrenches(c, b, forces), motion.kinds(c).points
    one, two = motion.sides(c, b)
    total = jnp.zeros((model.nb + 1, 6), g.p.dtype)
    at = motion.levers(points, one, two)
    for sign, r, body in zip((1, -1), at, motion.numbers(c), strict=True):
        n = F[:, :3] + so3.cross(r - b.p[body], F[:, 3:])
        own = jnp.concatenate([so3.rotate_inverse(b.R[body], x) for x in (n, F[:, 3:])], axis=-1)
        total = total.at[np.where(body < 0, model.nb, body)].add(sign * own)
    return total[:-1], coupled


@algorithm(project=(1,))
def jacobian(
    model: Model, q: Float[Array, " nq"], constraints: Constraints
) -> Float[Array, "m nv"]:
    """J with ``J v`` the relative velocities of all rows, zero where inactive.

    Source: Müller (103)–(105), for the frames of each pair; Featherstone, ch. 8.
    """
    check("jacobian", model, constraints)
    g = world_frame.quantities(model, q)
    return jacobian_rows(model, constraints, g, motion.ground_origins(model, q))


@algorithm(driven_joints=True)
def wrenches(
    model: Model, q: Float[Array, " nq"], constraints: Constraints, forces: Float[Array, " m"]
) -> tuple[Float[Array, "nb 6"], Float[Array, " nv"]]:
    """What constraint forces are for the robot: wrenches on bodies and torques of couplings.

    The wrenches (n, f) are in body frames, as ``f_ext`` (N m, N). Together with the torques they
    have the effect of ``Jᵀ forces``.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8.
    """
    check("wrenches", model, constraints)
    if isinstance(model, CoordinateModel):
        x = CoordinateMap(model, q)
        W, torque = wrenches(x.robot, x.q, constraints, forces)
        return W, x.project(torque)
    g = world_frame.quantities(model, q)
    active = jnp.where(constraints.per_row(constraints.active), forces, 0)
    return transmitted(model, constraints, g, motion.ground_origins(model, q), active)
