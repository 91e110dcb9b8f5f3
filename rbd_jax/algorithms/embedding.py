"""The articulated-body algorithm of a robot with driven joints: forward and hybrid dynamics.

Source: Kim, Table 4 with S(q) and Ṡ, and with the elimination of a coordinate put off. A coordinate
that moves several joints is *open* at all nodes from these joints up to the first node above all of
them; there it is closed, which means eliminated. An articulated body with open coordinates is

    F = Î A + B̂ + Uᵀ s̈,      0 = U A + D s̈ − u      for each open coordinate s,

so that a driven joint with ``q̈ = m s̈ + bias`` adds ``m S`` to its coordinate, and any other one is
eliminated from Î, B̂, U, D and u at once (constraint embedding: Jain, Robot and Multibody Dynamics,
ch. 15, for trees of single joints).

Letters beside those of :mod:`rbd_jax.algorithms.aba`: ``m`` of a node are its entries of Φ, one a
channel. A channel holds one open coordinate at a time; most robots need one. ``e`` marks the
channel that a node closes.
"""

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model import CoordinateModel, Topology, Tree, joint_placements, motion_subspace
from ..model.coordinates import CoordinateMap, places_of
from ..model.rows import take_rows
from ..model.topology import depth_first
from ..spatial import articulated, inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from ..spatial.se3 import Pose
from .coordinates import entries_of_rows
from .passive import BaseMotion, minus_springs, world_motion
from .tree import at_first_dof, at_last_dof, leaf_to_root, root_to_leaf, sum_dofs


class EmbeddedFactor(NamedTuple):
    """What the elimination leaves behind of each node: the mass matrix of the coordinates.

    A node eliminates one coordinate, or none. ``column`` and ``coupled`` are the wrench and the
    forces on open coordinates that its unit acceleration takes, ``psi`` is its inverse inertia.
    """

    T: Pose
    S: Float[Array, "n 6"]
    m: Float[Array, "n k"]
    closing: Float[Array, "n k"]
    free: Float[Array, " n"]
    column: Float[Array, "n 6"]
    coupled: Float[Array, "n k"]
    psi: Float[Array, " n"]


def embedded_dynamics(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"] | None,
    f_ext: Float[Array, "nb 6"] | None,
    base_motion: BaseMotion | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"], EmbeddedFactor]:
    """``(a, tau, factor)`` of the independent coordinates by Table 4.

    ``prescribed`` is a flag for each coordinate, or None for none. A coordinate whose acceleration
    is prescribed has Ψ = 0, as in :func:`rbd_jax.algorithms.aba.articulated_dynamics`. The factor
    is of the mass matrix of the others. Cost: O(n) for few open coordinates.
    """
    again = partial(jax.checkpoint, prevent_cse=False)
    x, plan, k = CoordinateMap(model, q), plan_of(model), plan_of(model).channels
    robot, topology, kind = x.robot, model.topology, model.dtype
    V_joint, still = x.velocity(v), jnp.zeros_like(v)
    bias = x.acceleration(v, still)
    T, S = joint_placements(robot, x.q), motion_subspace(robot)
    Sv = sum_dofs(topology, S * V_joint[:, None])

    def velocity(V_up, row):
        T, Sv = row
        return to_child(T, V_up) + Sv

    V_base, A_base = world_motion(robot, base_motion)
    V = root_to_leaf(topology.tree, again(velocity), (T, Sv), V_base)
    B = cross_wrench(V, inertia.apply(robot.inertia, V))
    B = B if f_ext is None else B - f_ext
    eta = at_first_dof(topology, cross_twist(V, Sv)) + S * bias[:, None]
    eye = jnp.eye(3, dtype=kind)
    T = at_first_dof(topology, T[0], eye[None]), at_first_dof(topology, T[1])
    I, B = at_last_dof(topology, robot.inertia), at_last_dof(topology, B)
    passive = minus_springs(robot, x.q, -robot.damping * V_joint) - robot.armature * bias

    def placed(rows):  # rows of the degrees of freedom, zeros where a coordinate is closed
        there = (plan.dof < topology.nv).reshape(-1, *[1] * (rows.ndim - 1))
        return jnp.where(there, take_rows(rows, np.minimum(plan.dof, topology.nv - 1)), 0)

    closing = jnp.asarray(plan.closes, kind)
    turns = placed(T[0]) + jnp.asarray(plan.dof == topology.nv, kind)[:, None, None] * eye[None]
    Phi = jnp.concatenate([jnp.ones((1,), kind), *x.entries])
    m = jnp.zeros((len(plan.dof), k), kind).at[plan.row, plan.channel].set(Phi[plan.entry])
    free = jnp.asarray(plan.y >= 0, kind)  # nodes that eliminate a coordinate
    flags = jnp.zeros_like(v) if prescribed is None else prescribed.astype(kind)
    given = _at_nodes(plan, jnp.where(flags > 0, a, 0))
    held = _at_nodes(plan, flags)
    applied = _at_nodes(plan, jnp.where(flags > 0, 0, tau))
    numbers = applied + placed(passive), placed(robot.armature), free, held, given
    rows = (turns, placed(T[1])), placed(S), placed(eta), placed(I), placed(B), *numbers, m, closing

    def backward(row, children):
        T, S, eta, I, B, tau, armature, free, held, given, m, e = row
        Ia = jax.tree.map(jnp.add, articulated.from_inertia(I), children[0])
        Ba, (U, D, u) = B + children[1], children[2:]
        own, w = articulated.apply(Ia, S), jnp.sum(U * S[None], axis=1)
        d, rest = jnp.sum(S * own) + armature, tau - jnp.sum(S * Ba)
        opened = (1 - free) * rest
        U, u = U + m[:, None] * own[None], u + m * opened
        D = D + m[:, None] * w[None] + w[:, None] * m[None] + d * m[:, None] * m[None]
        column = free * own + jnp.sum(e[:, None] * U, axis=0)
        coupled = free * w + jnp.sum(D * e[None], axis=1)
        pivot = free * d + jnp.sum(e * coupled) + (1 - free)
        psi, right = free * (1 - held) / pivot, free * rest + jnp.sum(e * u)
        moved = jnp.where(held > 0, given, psi * right)
        Pi, stay = articulated.subtract(Ia, psi, column), 1 - e
        coupled = stay * coupled
        U = stay[:, None] * (U - psi * coupled[:, None] * column[None])
        D = stay[:, None] * stay[None] * (D - psi * coupled[:, None] * coupled[None])
        u = stay * (u - moved * coupled) - jnp.sum(U * eta[None], axis=1)
        beta = Ba + articulated.apply(Pi, eta) + moved * column
        above = wrench_to_parent(T, beta), jax.vmap(lambda F: wrench_to_parent(T, F))(U), D, u
        return (articulated.to_parent(T, Pi), *above), (column, coupled, psi, right, pivot)

    nothing = jnp.zeros((6,), kind), jnp.zeros((k, 6), kind), jnp.zeros((k, k), kind)
    leaf = articulated.from_inertia(jnp.zeros((10,), kind)), *nothing, jnp.zeros((k,), kind)
    column, coupled, psi, right, pivot = leaf_to_root(plan.tree, again(backward), rows, leaf)

    world = A_base, jnp.zeros((k,), kind), *[jnp.zeros((), kind)] * 2
    factor = EmbeddedFactor(rows[0], rows[1], m, closing, free, column, coupled, psi)
    rows = factor, rows[2], right, given
    _, _, a, pull = root_to_leaf(plan.tree, again(_accelerate), rows, world)
    if prescribed is None:
        return a[plan.node], tau, factor
    torque = pull + pivot * a - right + applied  # of the coordinate, driven joints included
    return a[plan.node], jnp.where(prescribed, torque[plan.node], tau), factor


def _at_nodes(plan: "Plan", x: Float[Array, " nv"]) -> Float[Array, " n"]:
    """Numbers of coordinates at the nodes that eliminate them, zero at others."""
    return jnp.where(plan.y >= 0, x[np.maximum(plan.y, 0)], 0)


def _accelerate(above, row):
    """The accelerations of a body, of the open coordinates, and of the coordinate of a node.

    Also what these accelerations ask of that coordinate.
    """
    f, eta, right, given = row
    dV, s = to_child(f.T, above[0]) + eta, above[1]
    pull = jnp.sum(f.column * dV) + jnp.sum(f.coupled * s)
    a = given + f.psi * (right - pull)
    s = s + f.closing * (a - s)
    return dV + f.S * (f.free * a + jnp.sum(f.m * s)), s, a, pull


def solve(
    model: CoordinateModel, factor: EmbeddedFactor, b: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M_y⁻¹ b``: the algorithm at rest, with the inertias already eliminated. Cost: O(n).

    Coordinates whose acceleration was prescribed stay at rest.

    Source: Singh (34), ``ABA(q, 0, b, 0)``, with the elimination of this file.
    """
    plan, kind = plan_of(model), b.dtype
    k = plan.channels

    def backward(row, children):
        f, tau = row
        Ba, u = children
        rest = tau - jnp.sum(f.S * Ba)
        u = u + f.m * ((1 - f.free) * rest)
        right = f.free * rest + jnp.sum(f.closing * u)
        u = (1 - f.closing) * (u - f.psi * right * f.coupled)
        return (wrench_to_parent(f.T, Ba + f.psi * right * f.column), u), right

    leaf = jnp.zeros((6,), kind), jnp.zeros((k,), kind)
    right = leaf_to_root(plan.tree, backward, (factor, _at_nodes(plan, b)), leaf)
    still = jnp.zeros_like(factor.S)
    world = *leaf, *[jnp.zeros((), kind)] * 2
    rows = factor, still, right, jnp.zeros_like(right)
    return root_to_leaf(plan.tree, _accelerate, rows, world)[2][plan.node]


class Plan(NamedTuple):
    """The nodes of the algorithm: degrees of freedom, and places where coordinates are closed."""

    tree: Tree
    dof: np.ndarray
    """The degree of freedom of each node; nv of the robot where a coordinate is closed."""
    y: np.ndarray
    """The coordinate that the node eliminates, −1 for none."""
    node: np.ndarray
    """The node that eliminates each coordinate."""
    closes: np.ndarray
    """The channel that a node closes, as rows of a 0/1 matrix."""
    row: np.ndarray
    """Nodes that are driven; for each of their entries of Φ the channel and the entry."""
    channel: np.ndarray
    entry: np.ndarray
    channels: int


def plan_of(model: CoordinateModel) -> Plan:
    """The nodes for a robot."""
    patterns = tuple(law.pattern for law in model.laws)
    named = tuple((law.driven.joint_names, law.by) for law in model.laws)
    return _plan(model.topology, model.space, named, patterns)


@lru_cache(maxsize=256)
def _plan(topology: Topology, space: Topology, named: tuple, patterns: tuple) -> Plan:
    columns = entries_of_rows(topology, places_of(topology, space, named), patterns)
    moved = [[i for i, c in enumerate(columns) if any(y == k for y, _ in c)]
             for k in range(space.nv)]  # fmt: skip
    parents, nv = list(topology.dof_tree.parents), topology.nv
    shared = [y for y, rows in enumerate(moved) if len(rows) > 1 or columns[rows[0]] != [(y, 0)]]
    place = {y: rows[0] for y, rows in enumerate(moved)}
    for y in shared:  # a node between the first one above all rows and those below it
        paths = [_path(parents, i) for i in moved[y]]
        common = [n for n in paths[0] if all(n in p for p in paths)]
        own = common and common[0] in moved[y]
        top = (common[1:] or [-1])[0] if own else (common or [-1])[0]
        below = {n for p in paths for n in p if parents[n] == top}
        place[y] = len(parents)
        parents.append(top)
        for n in below:
            parents[n] = place[y]
    numbers = depth_first(lambda n: [i for i, p in enumerate(parents) if p == n], -1)[1:]
    at = {old: new for new, old in enumerate(numbers)}
    open_at = [{y for y in shared if any(i in _path(parents, r, place[y]) for r in moved[y])}
               for i in range(len(parents))]  # fmt: skip
    channel: dict[int, int] = {}
    for y in shared:
        taken = {channel[z] for s in open_at if y in s for z in s if z in channel}
        channel[y] = next(c for c in range(len(shared) + 1) if c not in taken)
    count = max(channel.values(), default=-1) + 1
    driven = [(at[i], channel[y], entry) for i, c in enumerate(columns) for y, entry in c
              if y in channel]  # fmt: skip
    row, slot, entry = np.array(driven, dtype=np.int32).reshape(-1, 3).T
    y, closes = np.full(len(parents), -1, dtype=np.int32), np.zeros((len(parents), count))
    node = np.array([at[place[k]] for k in range(space.nv)], dtype=np.int32)
    y[node] = np.arange(space.nv)
    for k in shared:
        closes[at[place[k]], channel[k]] = 1.0
    tree = Tree(tuple(at[parents[n]] if parents[n] >= 0 else -1 for n in numbers))
    dof = np.minimum(np.array(numbers, dtype=np.int32), nv)
    return Plan(tree, dof, y, node, closes, row, slot, entry, count)


def _path(parents: list[int], node: int, end: int = -1) -> list[int]:
    """The node and those above it, up to but without ``end``."""
    found = []
    while node not in (-1, end):
        found.append(node)
        node = parents[node]
    return found
