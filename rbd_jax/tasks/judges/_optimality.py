"""First-order optimality of a trajectory, from its problem alone: the judge of all solvers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...optimize import Constraint, Problem, Solution

ACTIVE, ACTIVE_FLOAT32 = 1e-5, 1e-3
"""An inequality may have a multiplier if it holds with no more than this; solvers in float32 leave
larger gaps."""


class Optimality(NamedTuple):
    """How far a trajectory is from the conditions of first order."""

    slope: float
    """Greatest entry of the gradient of the Lagrangian by controls and states, by the controls
    projected onto their bounds, over one plus the size of the cost."""
    gap: float
    """Greatest entry of the gaps between the steps and the states."""
    violation: float
    """Greatest violation of a constraint."""

    def within(self, tol: float) -> bool:
        """Whether all three are at most ``tol``; never if one of them is NaN."""
        return bool(max(*self) <= tol and not np.isnan(sum(self)))


class Expansion(NamedTuple):
    """First derivatives of a problem about a trajectory, in its tangent spaces."""

    cost: Float[Array, ""]
    by_x: Float[Array, "N n"]
    """Gradient of the costs by the states."""
    by_u: Float[Array, "T m"]
    gap: Float[Array, "T n"]
    A: Float[Array, "T n n"]
    """Derivatives of each step by its state."""
    B: Float[Array, "T n m"]
    c: Float[Array, "N r"]
    """Constraints at the steps and states; zero where they do not hold."""
    C: Float[Array, "N r n"]
    D: Float[Array, "T r m"]
    holds: Bool[Array, "N r"]


def expansion(problem: Problem, constraints: Sequence[Constraint] = ()) -> Callable[..., Expansion]:
    """A function of ``(q, v, u)`` that expands the problem there, to be compiled and mapped.

    Costs, steps and constraints are differentiated by autodiff.
    """
    T, n = problem.steps, problem.nx

    def at(q, v, u) -> Expansion:
        zero, none, k = jnp.zeros((n,), u.dtype), jnp.zeros((u.shape[1],), u.dtype), jnp.arange(T)

        def step(k, q, v, u, q1, v1):
            def one(x, du):
                to = problem.step(k, *problem.integrate(q, v, x), u + du)
                return problem.difference(q1, v1, *to)

            def cost(x, du):
                return problem.stage_cost(k, *problem.integrate(q, v, x), u + du)

            gap, slopes = one(zero, none), jax.jacfwd(one, argnums=(0, 1))(zero, none)
            return gap, slopes, jax.value_and_grad(cost, argnums=(0, 1))(zero, none)

        gap, (A, B), (costs, (lx, lu)) = jax.vmap(step)(k, q[:-1], v[:-1], u, q[1:], v[1:])
        end = jax.value_and_grad(lambda x: problem.final_cost(*problem.integrate(q[-1], v[-1], x)))
        last, last_x = end(zero)
        by_x = jnp.concatenate([lx, last_x[None]])

        u_all, ks = jnp.concatenate([u, jnp.zeros_like(u[:1])]), jnp.arange(T + 1)

        def rows(k, q, v, u, x, du):
            q, v = problem.integrate(q, v, x)
            v, u = problem.velocity(v), u + du
            m, t, found = problem.model, problem.time(k), [jnp.zeros((0,), q.dtype)]
            for c in constraints:
                value = c.function(m, t, q, v, u) if c.at == "stage" else c.function(m, q, v)
                found.append(jnp.where(_holds(c, T)[k], jnp.reshape(value, (-1,)), 0))
            return jnp.concatenate(found)

        def expand(k, q, v, u):
            at = lambda x, du: rows(k, q, v, u, x, du)  # noqa: E731
            size = at(zero, none).size
            on = [jnp.broadcast_to(_holds(c, T)[k], (s,)) for c, s in _sizes(problem, constraints)]
            on = jnp.concatenate([jnp.zeros((0,), bool), *on])
            if not size:
                return at(zero, none), jnp.zeros((0, n)), jnp.zeros((0, len(none))), on
            return at(zero, none), *jax.jacfwd(at, argnums=(0, 1))(zero, none), on

        c, C, D, holds = jax.vmap(expand)(ks, q, v, u_all)
        return Expansion(jnp.sum(costs) + last, by_x, lu, gap, A, B, c, C, D[:-1], holds)

    return at


def _holds(c: Constraint, T: int) -> Bool[Array, " N"]:
    """At which of the states 0 … T a constraint holds."""
    k = np.arange(T + 1)
    where = {"stage": k < T, "states": k > 0, "final": k == T}[c.at]
    if c.active is None:
        return jnp.asarray(where)
    pad = (0, 1) if c.at == "stage" else (1, 0)
    return jnp.asarray(where) & jnp.pad(c.active, pad)


def _sizes(problem: Problem, constraints: Sequence[Constraint]) -> list[tuple[Constraint, int]]:
    m = problem.model
    q, v = jnp.zeros((m.nq,), m.dtype), jnp.zeros((m.nv,), m.dtype)
    t, u = jnp.zeros((), m.dtype), jnp.zeros((problem.controls,), m.dtype)
    args = lambda c: (m, t, q, v, u) if c.at == "stage" else (m, q, v)  # noqa: E731
    shape = lambda c: jax.eval_shape(c.function, *args(c)).shape  # noqa: E731
    return [(c, int(np.prod(shape(c)))) for c in constraints]


def residual(
    problem: Problem,
    constraints: Sequence[Constraint],
    u: Any,
    found: Expansion,
    active: float = ACTIVE,
) -> Optimality:
    """The residual of one expansion, on the host.

    The states are eliminated by the linear steps, once with the controls alone, and once under a
    feedback ``δu = K δx + w``, which keeps digits where the motion is unstable. Then the slope of
    the Lagrangian by the states is ``−Kᵀ`` times that by the controls, which counts too. Either is
    a proof of the conditions, so the lesser one is taken. Controls at their bounds have no
    feedback. The multipliers of the constraints are those of the least residual; one of an
    inequality is not negative, and zero where the inequality holds with more than ``active``.
    """
    u = np.asarray(u, float)
    e: Any = jax.tree.map(np.asarray, found)
    equal = [np.full(n, c.equality) for c, n in _sizes(problem, constraints)]
    equal = np.concatenate([np.zeros(0, bool), *equal]) & np.ones(e.c.shape, bool)
    wrong = np.where(e.holds, np.where(equal, np.abs(e.c), e.c), 0).max(initial=0)
    scale = 1 + abs(float(e.cost))
    if not all(np.isfinite(x).all() for x in e):
        return Optimality(np.nan, np.nan, np.nan)
    low, high = np.full(u.shape, -np.inf), np.full(u.shape, np.inf)
    if problem.bounded:
        low, high = (np.broadcast_to(np.asarray(x, float), u.shape) for x in problem.bounds())
    near = 1e-7 * (1 + np.abs(u))
    at_low, at_high = u <= low + near, u >= high - near
    on = e.holds & (equal | (e.c > -active))
    least = np.where(equal[on], -np.inf, 0.0)
    free = ~(at_low | at_high)
    only_low, only_high = at_low & ~at_high, at_high & ~at_low

    def slope(K) -> float:
        """The greatest slope of the Lagrangian, with the costates under the feedback K."""
        under, g = _under_feedback(e, K), np.empty_like(u)
        lam = under.by_x[-1]
        for k in reversed(range(len(u))):
            g[k] = under.by_u[k] + under.B[k].T @ lam
            lam = under.by_x[k] + under.A[k].T @ lam
        J, g, counted = _reduced(under, on).T, g.ravel(), free.ravel()
        r = g
        for _ in range(20 if J.shape[1] else 0):
            # A control at a bound counts only where its slope has the wrong sign. Between equal
            # bounds no sign is wrong.
            r = g + J @ _least_squares(J[counted], -g[counted], least)
            wrong_sign = only_low.ravel() & (r < 0) | only_high.ravel() & (r > 0)
            now = free.ravel() | wrong_sign
            if (now == counted).all():
                break
            counted = now
        r = r.reshape(u.shape)
        by_u, by_x = u - np.clip(u - r, low, high), np.einsum("tmn,tm->tn", K, r)
        return max(np.abs(x).max(initial=0) for x in (by_u, by_x))

    gains = np.zeros((*u.shape, e.A.shape[-1])), _feedback(e, free)
    least_slope = min(map(slope, gains)) / scale
    return Optimality(float(least_slope), float(np.abs(e.gap).max()), float(wrong))


def _feedback(e: Any, free) -> np.ndarray:
    """Gains of the linear-quadratic regulator with unit weights, for the ``free`` controls."""
    T, n, m = e.B.shape
    K, P = np.zeros((T, m, n)), np.eye(n)
    for k in reversed(range(T)):
        A, B = e.A[k], e.B[k][:, free[k]]
        K[k][free[k]] = -np.linalg.solve(np.eye(B.shape[1]) + B.T @ P @ B, B.T @ P @ A)
        P = np.eye(n) + A.T @ P @ (A + e.B[k] @ K[k])
        P = 0.5 * (P + P.T)
    return K


def _under_feedback(e: Any, K: np.ndarray) -> Any:
    """The expansion by ``δu = K δx + w`` instead of δu."""
    by_x, C = e.by_x.copy(), e.C.copy()
    by_x[:-1] += np.einsum("tmn,tm->tn", K, e.by_u)
    C[:-1] += e.D @ K
    return e._replace(A=e.A + e.B @ K, by_x=by_x, C=C)


def _reduced(e: Any, on) -> np.ndarray:
    """Derivatives of the rows that are ``on`` by all controls."""
    T, n, m = e.B.shape
    G, rows = np.zeros((n, T * m)), []
    for k in range(T + 1):
        if on[k].any():
            new = e.C[k][on[k]] @ G
            if k < T:
                new[:, k * m : (k + 1) * m] += e.D[k][on[k]]
            rows.append(new)
        if k < T:
            G = e.A[k] @ G
            G[:, k * m : (k + 1) * m] += e.B[k]
    return np.concatenate([np.zeros((0, T * m)), *rows])


def _least_squares(A: np.ndarray, b: np.ndarray, least: np.ndarray) -> np.ndarray:
    from scipy.optimize import lsq_linear  # its import takes longer than that of this room

    size = np.linalg.norm(A, axis=0)
    size = np.where(size > 0, size, 1)
    if not np.isfinite(least).any() or not len(b):
        return np.linalg.lstsq(A / size, b, rcond=1e-12)[0] / size
    return lsq_linear(A / size, b, (least, np.inf), method="bvls", tol=1e-14).x / size


def optimality(
    problem: Problem, solution: Solution, constraints: Iterable[Constraint] = ()
) -> Optimality:
    """How well a solution fulfils the conditions of first order, computed without any solver.

    Use it where you do not want to take a solver's word for its success. On the host, in float64
    where the problem has it.

    Args:
        problem: what was minimized.
        solution: one solution, not a batch.
        constraints: those that had to hold.
    """
    v = problem.packed(solution.v, solution.memory)
    constraints = tuple(constraints)
    found = jax.jit(expansion(problem, constraints))(solution.q, v, solution.u)
    active = ACTIVE if solution.u.dtype == np.float64 else ACTIVE_FLOAT32
    return residual(problem, constraints, solution.u, found, active)
