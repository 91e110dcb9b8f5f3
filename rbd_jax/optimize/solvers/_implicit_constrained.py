"""The derivative of a constrained solution, by the implicit function theorem on its KKT system."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ...derivatives.custom_jvp.mechanism import custom_jvp
from ...spatial import linear
from ..linear_quadratic._active_set import add_curvature
from ..linear_quadratic._lq_approximation import costates, curvature, linear_dynamics, quadratic
from ..linear_quadratic._riccati import lqr_rollout, riccati_backward
from ..problems._constraints import Rows, Stack
from ..problems._local_models import times
from ..problems._problem import Problem
from ._implicit import States, held_controls, motion, without_derivatives
from ._lagrangian import Weighted, with_terms
from ._tolerances import tolerances

ROUNDS = 50
"""Greatest number of steps of the proximal method."""


@custom_jvp
def constrained_stationary(
    problem: Problem,
    rows: Stack,
    q0: Array,
    v0: Array,
    u: Float[Array, "T nu"],
    multipliers: Rows,
    good: Bool[Array, ""],
    states: States,
) -> tuple[Float[Array, "T nu"], Rows]:
    """Controls and multipliers, a KKT point if ``good``, as a function of problem and constraints.

    The controls are corrections of the feedback about ``states``, as in :func:`stationary`. With
    ``L = J + λᵀ c``, the equations are ``∂L/∂u = 0`` for the free controls, ``u = bound`` for the
    others, ``c = 0`` for the active rows (equalities, and inequalities with λ > 0), and
    ``λ = 0`` for the other rows. Their matrix is symmetric. :func:`_kkt` solves them by Riccati
    sweeps. Derivatives are NaN if the point is not ``good`` or if the sweeps do not converge,
    because the point is then no strict minimum.
    """
    return u, multipliers


@constrained_stationary.def_jvp
def _jvp(primals, tangents):
    *parameters, u, lam, good, states = primals
    rates = tuple(tangents[:-4])
    is_none = lambda x: x is None  # noqa: E731
    moving = jax.tree.map(
        lambda t, p: None if t is None else p, rates, tuple(parameters), is_leaf=is_none
    )
    at_low, at_high = held_controls(parameters[0], u)
    free = ~(at_low | at_high)
    equality, holds = parameters[1].equality, parameters[1].holds()
    active = Rows(*(
        h & (jnp.broadcast_to(jnp.asarray(e), h.shape) | (x > 0))
        for h, e, x in zip(holds, equality, lam, strict=True)
    ))  # fmt: skip

    def condition(moving, u, lam):
        problem, rows, q0, v0 = eqx.combine(moving, tuple(parameters))
        low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
        at = jnp.where(at_low, low, jnp.where(at_high, high, u))
        on = jax.tree.map(lambda a, x: jnp.where(a, x, 0), active, lam)

        def values(u):
            path = motion(problem, q0, v0, u, states)
            return problem.cost(*path), rows.values(problem, *path)

        (_, c), pull = jax.vjp(values, at)
        slope = pull((jnp.ones((), u.dtype), on))[0]
        c = jax.tree.map(lambda a, c, x: jnp.where(a, c, x), active, c, lam)
        return jnp.where(free, slope, u - at), c

    change = jax.jvp(lambda x: condition(x, u, lam), (moving,), (rates,))[1]
    here = without_derivatives((*parameters[:2], u, lam, states))

    minus, unravel = ravel_pytree(jax.tree.map(jnp.negative, change))

    def matvec(w):  # the identity for controls that are held
        du, mu = unravel(w)
        y = jax.jvp(lambda *x: condition(moving, *x), (u, lam), (jnp.where(free, du, 0), mu))[1]
        return ravel_pytree((jnp.where(free, y[0], du), y[1]))[0]

    def solve(_, y):
        (yu, yc), only = unravel(y), lambda on, x: jnp.where(on, x, 0)
        w, mu, fine = _kkt(here, active, free, (only(free, yu), jax.tree.map(only, active, yc)))
        w = jnp.where(free, w, yu), jax.tree.map(jnp.where, active, mu, yc)
        lost = ~(good & fine) & jnp.any(y != 0)
        return jnp.where(lost, jnp.nan, ravel_pytree(w)[0])

    moved = jax.lax.custom_linear_solve(matvec, minus, solve, symmetric=True)
    return (u, lam), unravel(moved)


def _kkt(here: tuple, active: Rows, free: Array, y: tuple[Array, Rows]):
    """``w, μ`` with ``H w + Cᵀ μ = y_u`` and ``C w = y_c``, and whether they solve it.

    Source: the method of multipliers on the linear–quadratic problem. Each round minimizes
    ``½ wᵀ H w − y_uᵀ w + μᵀ(C w − y_c) + ρ/2 |C w − y_c|²`` by one Riccati sweep and adds
    ``ρ (C w − y_c)`` to μ. The term with ρ makes a Hessian definite that is definite only in the
    tangent space of the constraints.
    """
    problem, rows, u, lam, (q, v, K) = here
    f = linear_dynamics(problem, q, v, u, gaps=False)
    n = f.d.shape[-1]
    l, end, C = _lagrangian_expansion(problem, rows, q, v, u, active, lam)
    l = add_curvature(l, curvature(problem, q, v, u, costates(f, l, end, K)))
    size = jnp.max(jnp.abs(jnp.diagonal(l.uu, axis1=1, axis2=2))) + jnp.max(jnp.abs(end.xx))
    # a row that weighs little in C is pushed as much as the others
    rho = tolerances(u.dtype).multiplier_penalty * size
    Cs, Ce = C
    wide = linear.einsum("tri,trj->tij", Cs, Cs)
    l = l._replace(
        xx=l.xx + rho * wide[:, :n, :n],
        ux=l.ux + rho * wide[:, n:, :n],
        uu=l.uu + rho * wide[:, n:, n:],
    )
    end = end._replace(xx=end.xx + rho * times(Ce.T, Ce))
    many = jax.vmap(times)

    def apply(mu, y):
        at_stage, at_end = mu.stage - rho * y[1].stage, mu.final - rho * y[1].final
        push = many(jnp.swapaxes(Cs, 1, 2), at_stage)
        back = jnp.sum(K * y[0][..., None], axis=1)
        row = l._replace(x=push[:, :n] + back, u=push[:, n:] - y[0])
        gains = riccati_backward(
            f, row, end._replace(x=times(Ce.T, at_end)), jnp.zeros((), u.dtype), free=free
        )
        x, w = lqr_rollout(f, gains)
        gap = Rows(
            many(Cs, jnp.concatenate([x[:-1], w], 1)) - y[1].stage, times(Ce, x[-1]) - y[1].final
        )
        return w - jnp.sum(K * x[:-1, None], axis=-1), gap, gains.definite

    most = lambda tree: jnp.stack(  # noqa: E731
        [jnp.max(jnp.abs(x), initial=0) for x in jax.tree.leaves(tree)]
    ).max()
    reach = jnp.maximum(most(Cs), most(Ce))
    small = tolerances(u.dtype).multiplier_error

    def go_on(state):
        _, _, left, fine, k = state
        return fine & (k < ROUNDS) & (left > small)

    def step(state):
        mu, _, _, _, k = state
        w, gap, fine = apply(mu, y)
        mu = jax.tree.map(lambda m, g: m + rho * g, mu, gap)
        usual = most(y[1]) + reach * (most(w) + most(y[0]) / size) + jnp.finfo(u.dtype).tiny
        left = most(gap) / usual
        return mu, w, left, fine, k + 1

    far, zero = jnp.full((), jnp.inf, u.dtype), jax.tree.map(jnp.zeros_like, y[1])
    start = zero, jnp.zeros_like(u), far, jnp.ones((), bool), jnp.zeros((), jnp.int32)
    mu, w, left, fine, _ = jax.lax.while_loop(go_on, step, start)
    return w, mu, fine & (left <= 100 * small)


def _lagrangian_expansion(
    problem: Problem, rows: Stack, q: Array, v: Array, u: Array, active: Rows, lam: Rows
):
    """Exact expansions of ``J + λᵀ c`` and the Jacobians of the active rows, zero in the others."""
    on = jax.tree.map(lambda a, x: jnp.where(a, x, 0), active, lam)
    whole = with_terms(problem, Weighted(rows, on))
    l, end = quadratic(whole, q, v, u, exact=True)
    C = rows.jacobians(problem, q, v, u)
    Cs = jnp.where(active.stage[:, :, None], C[0], 0)
    Ce = jnp.where(active.final[:, None], C[1], 0)
    return l, end, (Cs, Ce)
