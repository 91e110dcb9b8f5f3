"""The Riccati sweep: feedforward k, feedback K and the value function, step by step.

This sweep serves the linear-quadratic problems of all integrators and of the derivatives of
solutions; multiple shooting with semi-implicit Euler uses the faster one in ``_euler_sweep.py``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms.formulations import for_cost_to_go
from ...lanes import lanes
from ..problems._local_models import Dynamics, Quadratic, times
from ._box_qp import box_qp, restricted_cholesky, solve_free


class Gains(NamedTuple):
    """The control law ``u = k + K x``, the cost to go and the predicted change of the cost."""

    k: Float[Array, "T m"]
    K: Float[Array, "T m n"]
    Vx: Float[Array, "T n"]
    """Gradient of the cost to go after each step."""
    Vxx: Float[Array, "T n n"]
    """Hessian of the cost to go after each step."""
    slope: Float[Array, ""]
    """First-order change of the regularized cost for a full step. It is negative."""
    bend: Float[Array, ""]
    """Second-order change of the regularized cost for a full step."""
    definite: Bool[Array, ""]
    """Whether every Quu was positive definite."""


@lanes
def riccati_backward(
    f: Dynamics,
    l: Quadratic,
    end: Quadratic,
    mu: Float[Array, ""],
    box: tuple[Float[Array, "T m"], Float[Array, "T m"]] | None = None,
    free: Bool[Array, "T m"] | None = None,
    fixed: Float[Array, "T m"] | None = None,
) -> Gains:
    """Dynamic programming through ``x⁺ = A x + B u + d`` with quadratic costs.

    Derivatives are those of autodiff; with a ``box`` there is no reverse mode.

    Source: Tassa, Erez, Todorov (2012), (5)–(11). Departure: the regularization ``½ μ |u|²`` is a
    part of the costs, so the cost to go belongs to the regularized problem. Then the step is that
    of Levenberg and Marquardt and lowers the cost if it is short enough. Tassa et al. add μ to Quu
    alone; with a large μ their step may raise the cost, however short it is. The gap d shifts the
    gradient to ``Vx + Vxx d`` (Mastalli et al. 2020, (15)).

    The Hessian of the cost to go has two forms, :func:`_closed` and :func:`_difference`.

    Args:
        f: dynamics. l: stage costs, with the second-order terms of the dynamics added if wanted.
        end: final cost.
        mu: regularization.
        box: lower and upper bounds of u in each step. Then k solves the quadratic program with
            these bounds, and controls at a bound have no feedback (Tassa, Mansard, Todorov 2014).
        free: instead of ``box``, which controls may change.
        fixed: the changes of the others; zero if None.

    Returns:
        The gains. ``definite`` says whether they are valid.

    Cost: O(T (n + m)³), sequential in T.
    """
    m, single = l.u.shape[1], l.u.dtype == jnp.float32
    cost_to_go = for_cost_to_go(single, closed=_closed, difference=_difference)

    def step(state, row):
        Vx, Vxx, slope, bend, definite = state
        (A, B, d), c, limits, given = row
        shifted = Vx + times(Vxx, d)
        Qx, Qu = c.x + times(A.T, shifted), c.u + times(B.T, shifted)
        BV = times(B.T, Vxx)
        Qux, Quu = c.ux + times(BV, A), c.uu + times(BV, B)
        damping = mu * jnp.eye(m, dtype=Quu.dtype)
        H = 0.5 * (Quu + Quu.T) + damping
        L_all, definite_here = restricted_cholesky(H, jnp.ones((m,), bool))
        if box is not None:
            safe = jnp.where(definite_here, H, jnp.eye(m, dtype=H.dtype))
            k, moving = box_qp(safe, Qu, *limits)
            L, _ = restricted_cholesky(H, moving)
        elif free is not None:
            moving = limits
            L, definite_here = restricted_cholesky(H, moving)
            k = 0 * Qu if given is None else jnp.where(moving, 0, given)
            k = k - solve_free(L, moving, Qu + times(H, k))
        else:
            moving, L = jnp.ones((m,), bool), L_all
            k = -solve_free(L, moving, Qu)
        K = -solve_free(L, moving, Qux)
        Hk = times(H, k)
        slope, bend = slope + jnp.sum(k * Qu), bend + 0.5 * jnp.sum(k * Hk)
        new_x = Qx + times(Qux.T, k) + times(K.T, Qu + Hk)
        new_xx = cost_to_go(A, B, c, c.uu + damping, Qux, Vxx, K)
        new_xx = 0.5 * (new_xx + new_xx.T)
        return (new_x, new_xx, slope, bend, definite & definite_here), (k, K, Vx, Vxx)

    zero = jnp.zeros((), l.u.dtype)
    start = end.x, end.xx, zero, zero, jnp.ones((), bool)
    state, (k, K, Vx, Vxx) = jax.lax.scan(
        step, start, (tuple(f), l, box if free is None else free, fixed), reverse=True
    )
    return Gains(k, K, Vx, Vxx, *state[2:])


def _closed(A, B, c: Quadratic, R, Qux, Vxx, K) -> Float[Array, "n n"]:
    """That of the motion under feedback and of the costs on the way; R is Luu with μ.

    Source: Joseph's form of the Kalman filter (Bucy, Joseph 1968).
    """
    closed, cross = A + times(B, K), times(K.T, c.ux)
    paid = times(K.T, R, K) + cross + cross.T
    return c.xx + paid + times(closed.T, Vxx, closed)


def _difference(A, B, c: Quadratic, R, Qux, Vxx, K) -> Float[Array, "n n"]:
    """``Qxx + Quxᵀ K``, because K solves ``H K = −Qux`` in the rows that are not zero."""
    return c.xx + times(A.T, Vxx, A) + times(Qux.T, K)


@lanes
def lqr_rollout(
    f: Dynamics,
    gains: Gains,
    box: tuple[Float[Array, "T m"], Float[Array, "T m"]] | None = None,
) -> tuple[Float[Array, "N n"], Float[Array, "T m"]]:
    """The motion of the linear system under its gains, from x = 0, with u clipped to the box.

    Derivatives are those of autodiff.
    """

    def step(x, row):
        (A, B, d), k, K, limits = row
        u = k + times(K, x)
        u = u if limits is None else jnp.clip(u, *limits)
        new = times(A, x) + times(B, u) + d
        return new, (new, u)

    zero = jnp.zeros_like(f.d[0])
    _, (x, u) = jax.lax.scan(step, zero, (tuple(f), gains.k, gains.K, box))
    return jnp.concatenate([zero[None], x]), u
