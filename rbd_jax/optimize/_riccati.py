"""The backward pass: feedforward k, feedback K and the value function, step by step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._box import box_qp, restrict, solve_free
from ._expansion import Dynamics, Quadratic, times


class Gains(NamedTuple):
    """``u = k + K x``, and what it promises."""

    k: Float[Array, "T m"]
    K: Float[Array, "T m n"]
    Vx: Float[Array, "T n"]
    """Slope of the cost to go after each step …"""
    Vxx: Float[Array, "T n n"]
    """… and its Hessian."""
    slope: Float[Array, ""]
    """First-order change of the cost for a full step, negative."""
    bend: Float[Array, ""]
    """Second-order change."""
    definite: Bool[Array, ""]
    """Whether every Quu was positive definite."""


def backward(
    f: Dynamics,
    l: Quadratic,
    end: Quadratic,
    mu: Float[Array, ""],
    box: tuple[Float[Array, "T m"], Float[Array, "T m"]] | None = None,
    free: Bool[Array, "T m"] | None = None,
) -> Gains:
    """Dynamic programming through ``x⁺ = A x + B u + d`` with quadratic costs.

    Source: Tassa, Erez, Todorov (2012), (5)–(11), with ``μ`` added to the diagonal of Quu; the gap
    d shifts the slope, ``Vx + Vxx d`` (Mastalli et al. 2020, (15)).

    Args:
        f: dynamics. l: stage costs; second-order terms of the dynamics are added to them.
        end: final cost.
        mu: regularisation.
        box: least and greatest u of each step; k then solves the quadratic program in the box and
            controls held at a bound have no feedback (Tassa, Mansard, Todorov 2014).
        free: instead, which controls may move.

    Cost: O(T (n + m)³), sequential in T.
    """
    m = l.u.shape[1]

    def step(state, row):
        Vx, Vxx, slope, bend, definite = state
        (A, B, d), c, where = row
        shifted = Vx + times(Vxx, d)
        Qx, Qu = c.x + times(A.T, shifted), c.u + times(B.T, shifted)
        VA = times(Vxx, A)
        Qxx, Qux, Quu = c.xx + times(A.T, VA), c.ux + times(B.T, VA), c.uu + times(B.T, Vxx, B)
        H = Quu + mu * jnp.eye(m, dtype=Quu.dtype)
        whole, fine = restrict(H, jnp.ones((m,), bool))
        if box is not None:
            safe = jnp.where(fine, H, jnp.eye(m, dtype=H.dtype))
            k, moving = box_qp(safe, Qu, *where)
            L, _ = restrict(H, moving)
        elif free is not None:
            moving = where
            L, fine = restrict(H, moving)
            k = -solve_free(L, moving, Qu)
        else:
            moving, L = jnp.ones((m,), bool), whole
            k = -solve_free(L, moving, Qu)
        K = -solve_free(L, moving, Qux)
        slope, bend = slope + jnp.sum(k * Qu), bend + 0.5 * jnp.sum(k * times(Quu, k))
        new_x = Qx + times(K.T, times(Quu, k) + Qu) + times(Qux.T, k)
        cross = times(K.T, Qux)
        new_xx = Qxx + times(K.T, Quu, K) + cross + cross.T
        new_xx = 0.5 * (new_xx + new_xx.T)
        return (new_x, new_xx, slope, bend, definite & fine), (k, K, Vx, Vxx)

    zero = jnp.zeros((), l.u.dtype)
    start = end.x, end.xx, zero, zero, jnp.ones((), bool)
    state, (k, K, Vx, Vxx) = jax.lax.scan(
        step, start, (tuple(f), l, box if free is None else free), reverse=True
    )
    return Gains(k, K, Vx, Vxx, *state[2:])


def forward(f: Dynamics, gains: Gains) -> tuple[Float[Array, "N n"], Float[Array, "T m"]]:
    """The motion of the linear system under its gains, from x = 0."""

    def step(x, row):
        (A, B, d), k, K = row
        u = k + times(K, x)
        new = times(A, x) + times(B, u) + d
        return new, (new, u)

    zero = jnp.zeros_like(f.d[0])
    _, (x, u) = jax.lax.scan(step, zero, (tuple(f), gains.k, gains.K))
    return jnp.concatenate([zero[None], x]), u
