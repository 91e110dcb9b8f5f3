"""How the rows of constraints change with each coordinate and velocity, pair by pair.

A degree of freedom j above body b moves everything of b by its screw S_j, and changes its twist and
acceleration by more than that (Singh, Algorithm 1, with Ψ̇, Ψ̈ and Ṡ + Ψ̇ of the paper):

    along q_j:  δV = S_j × V + Ψ̇_j,   δA = S_j × A + Ψ̈_j − V × Ψ̇_j
    along v_j:  δV = S_j,              δA = Ṡ_j + Ψ̇_j − V × S_j

The rest is a function of two frames, whose tangents are taken by autodiff.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.block_columns import times
from ..algorithms.tree import per_dof
from ..model import Model, Topology
from ..spatial import so3
from ..spatial.motion import cross_twist
from . import _motion as motion
from ._jacobian import moving, supports
from ._motion import Bodies, Side
from ._rows import law, of_pairs
from ._set import Constraints


class Screws(NamedTuple):
    """Of each degree of freedom, in ground coordinates: S, Ψ̇, Ψ̈ and Ṡ + Ψ̇, without gravity."""

    S: Float[Array, "nv 6"]
    dPsi: Float[Array, "nv 6"]
    ddPsi: Float[Array, "nv 6"]
    dS: Float[Array, "nv 6"]


def screws(topology: Topology, g: world_frame.WorldQuantities, V: Array, A: Array) -> Screws:
    """The screws of a motion."""
    above = topology.tree.parent_rows[topology.dof_bodies]
    V_up, A_up = (jnp.concatenate([x, jnp.zeros_like(x[:1])])[above] for x in (V, A))
    dPsi = cross_twist(V_up, g.S)
    ddPsi = cross_twist(A_up, g.S) + cross_twist(V_up, dPsi)
    return Screws(g.S, dPsi, ddPsi, cross_twist(per_dof(topology, V), g.S) + dPsi)


def _picked(side: Side, k: np.ndarray) -> Side:
    return Side(*(x[k] for x in side))


def _along_q(s: Side, x: Screws, j: np.ndarray) -> Side:
    """The tangent of a frame along each coordinate."""
    S, dPsi = x.S[j], x.dPsi[j]
    dR = so3.matmul(so3.hat(S[:, :3]), s.R)
    dr = motion.twist_at(S, s.r)[:, 3:]
    dA = cross_twist(S, s.A) + x.ddPsi[j] - cross_twist(s.V, dPsi)
    return Side(dR, dr, jnp.zeros_like(s.o), cross_twist(S, s.V) + dPsi, dA)


def _along_v(s: Side, x: Screws, j: np.ndarray) -> Side:
    """The tangent of a frame along each velocity."""
    zero, S = jnp.zeros_like(s.r), x.S[j]
    return Side(jnp.zeros_like(s.R), zero, zero, S, x.dS[j] - cross_twist(s.V, S))


def law_blocks(
    model: Model, c: Constraints, b: Bodies, x: Screws
) -> tuple[Float[Array, "m nv"], Float[Array, "m nv"]]:
    """``∂(J a + γ)/∂q`` and ``∂γ/∂v``, all rows, active or not."""
    nv, n = model.nv, len(c.pairs)
    six = [jnp.zeros((n, nv, 6), b.p.dtype)] * 2
    if c.pairs:
        six = [_spread(model, c, b, x, along, _law_at(c)) for along in (_along_q, _along_v)]
    kp, kd = c.position_gain[n:, None], c.velocity_gain[n:, None]
    coupled = kp * c.coupling, kd * c.coupling
    q, v = (of_pairs(c, jnp.swapaxes(s, 1, 2), y) for s, y in zip(six, coupled, strict=True))
    return q, v


def velocity_block(model: Model, c: Constraints, b: Bodies, x: Screws) -> Float[Array, "m nv"]:
    """``∂(J v)/∂q`` at fixed v, all rows, active or not."""
    if not c.pairs:
        return jnp.zeros_like(c.coupling)

    def at(k, kinds, one, two):
        return motion.velocity_of(kinds, one, two)

    six = _spread(model, c, b, x, _along_q, at)
    return of_pairs(c, jnp.swapaxes(six, 1, 2), jnp.zeros_like(c.coupling))


def _law_at(c: Constraints):
    return lambda k, kinds, one, two: law(c, kinds, one, two, k)


def _spread(model: Model, c: Constraints, b: Bodies, x: Screws, along, function) -> Array:
    """Tangents of a function of the two frames along every degree of freedom that moves them."""
    both, total = motion.sides(c, b), None
    kinds = motion.kinds(c)
    for which, (k, j) in enumerate(supports(model.topology, c)):
        if len(k) == 0:
            continue
        at = _picked(both[0], k), _picked(both[1], k)
        still = tuple(jax.tree.map(jnp.zeros_like, s) for s in at)
        rates = tuple(along(s, x, j) if i == which else still[i] for i, s in enumerate(at))

        def of_sides(one, two, k=k):
            return function(k, kinds.at(k), one, two)

        _, rows = jax.jvp(of_sides, at, rates)
        part = jnp.zeros((len(c.pairs), model.nv, 6), b.p.dtype).at[k, j].set(rows)
        total = part if total is None else total + part
    return jnp.zeros((len(c.pairs), model.nv, 6), b.p.dtype) if total is None else total


def force_block(
    model: Model, c: Constraints, b: Bodies, S: Float[Array, "nv 6"], F: Float[Array, "n 6"]
) -> Float[Array, "nv nv"] | None:
    """``∂(Jᵀ λ)/∂q`` beyond forces that are fixed in their bodies; None if there is nothing.

    Args:
        model: the robot.
        c: the set.
        b: poses of the bodies.
        S: screws of the degrees of freedom.
        F: wrench of each pair on its first body, world axes, at the lever.
    """
    points, local = (x[:, 0] for x in motion.kinds(c)[:2])
    one, two = motion.sides(c, b)
    levers = motion.levers(points[:, None], one, two)
    (k1, j1), (k2, j2) = supports(model.topology, c)
    looped = motion.numbers(c)[1] >= 0
    zero = jnp.zeros((len(c.pairs), model.nv, 6), S.dtype)
    total = None
    # the wrench on body 1 keeps its direction in the world while the body turns
    keep = ~local[k1]
    if keep.any():
        k, j = k1[keep], j1[keep]
        total = _power(model, c, S, 0, levers[0], zero.at[k, j].set(_turned(-S[j], F[k])))
    if not looped.any():
        return total
    # the wrench on body 2 follows frame 1 and the place where it acts, not body 2
    S1, F1 = motion.twist_at(S[j1], levers[0][k1]), F[k1]
    own = jnp.where(local[k1][:, None], _turned(S1, F1), 0)
    shifted = jnp.where(points[k1][:, None], 0, so3.cross(S1[:, 3:], F1[:, 3:]))
    one_moves = own + jnp.concatenate([shifted, jnp.zeros_like(shifted)], axis=-1)
    S2, F2 = motion.twist_at(S[j2], levers[1][k2]), F[k2]
    shifted = jnp.where(points[k2][:, None], 0, so3.cross(S2[:, 3:], F2[:, 3:]))
    two_moves = _turned(S2, F2) + jnp.concatenate([shifted, jnp.zeros_like(shifted)], axis=-1)
    change = zero.at[k1, j1].set(one_moves) - zero.at[k2, j2].set(two_moves)
    part = _power(model, c, S, 1, levers[1], -change)
    return part if total is None else total + part


def _turned(S: Array, F: Array) -> Array:
    """``ω × n, ω × f``."""
    w = S[:, :3]
    return jnp.concatenate([so3.cross(w, F[:, :3]), so3.cross(w, F[:, 3:])], axis=-1)


def _power(model, c, S, which: int, r: Array, dF: Float[Array, "n nv 6"]) -> Float[Array, "nv nv"]:
    """``Σ_k S_iᵀ δF_kj`` over the pairs whose body degree of freedom i moves."""
    k, i = supports(model.topology, c)[which]
    rows = jnp.zeros_like(dF).at[k, i].set(motion.twist_at(S[i], r[k]))
    moved, frames = np.logical_or(*moving(model.topology, c)), ~motion.kinds(c).points
    nonzero = moved[:, None] & (frames | (np.arange(6) >= 3))[:, :, None]  # points take no moments
    left, right = (x.reshape(-1, model.nv) for x in (jnp.swapaxes(y, 1, 2) for y in (rows, dF)))
    return times(left.T, right, nonzero.reshape(-1, model.nv))
