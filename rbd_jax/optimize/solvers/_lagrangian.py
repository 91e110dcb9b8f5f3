"""The terms that constraints add to a problem, and how their multipliers are updated."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..problems._constraints import Rows, Stack
from ..problems._problem import Problem, Terms


class Penalties(eqx.Module):
    """``Σ ρ/2 |P(c + λ/ρ)|² − |λ|²/(2ρ)``, where P drops the rows of ``g ≤ 0`` that are negative.

    Source: Nocedal, Wright (2006), (17.36) and (17.55). The terms with c are residuals, whose
    Hessian is that of Gauss and Newton.
    """

    stack: Stack
    multipliers: Rows
    penalty: Float[Array, ""]
    """ρ, the same for all rows."""

    def stage_terms(self, problem: Problem, k, q: Array, v: Array, u: Array) -> Terms:
        """The constraints of step k."""
        k = jnp.asarray(k)
        c, lam = self.stack.stage(problem, k, q, v, u), self.multipliers.stage[k]
        return self._terms(c, lam, self.stack.equality.stage)

    def final_terms(self, problem: Problem, q: Array, v: Array) -> Terms:
        """The constraints of the last state."""
        c, lam = self.stack.final(problem, q, v), self.multipliers.final
        return self._terms(c, lam, self.stack.equality.final)

    def _terms(self, c: Array, lam: Array, equality) -> Terms:
        pushed = c + lam / self.penalty
        pushed = jnp.where(jnp.asarray(equality), pushed, jnp.maximum(pushed, 0))
        return (self.penalty, pushed), (-0.5 / self.penalty, jnp.sum(lam * lam))


class Weighted(eqx.Module):
    """``Σ λᵀ c``: what the constraints add to the Lagrangian itself."""

    stack: Stack
    multipliers: Rows

    def stage_terms(self, problem: Problem, k, q: Array, v: Array, u: Array) -> Terms:
        """The constraints of step k."""
        c = self.stack.stage(problem, k, q, v, u)
        return ((1.0, jnp.sum(self.multipliers.stage[k] * c)),)

    def final_terms(self, problem: Problem, q: Array, v: Array) -> Terms:
        """The constraints of the last state."""
        return ((1.0, jnp.sum(self.multipliers.final * self.stack.final(problem, q, v))),)


def with_terms(problem: Problem, added: Penalties | Weighted | None) -> Problem:
    """The problem with the terms of its constraints among its costs, or without them."""
    return eqx.tree_at(lambda p: p.added, problem, added, is_leaf=lambda x: x is None)


class Multipliers(NamedTuple):
    """State of the outer loop: the multipliers, the penalty and the next tolerance."""

    rows: Rows
    penalty: Float[Array, ""]
    tol: Float[Array, ""]
    """Promised relative decrease at which the multipliers are updated next."""
    violation: Float[Array, ""]
    """The greatest violation at the last update of the multipliers."""


def update(c: Rows, rows: Rows, penalty: Array, equality: Rows, limit: float | Array) -> Rows:
    """``λ + ρ c``, without the negative entries of inequalities (Nocedal, Wright, (17.52))."""

    def one(c, lam, equality):
        new = jnp.clip(lam + penalty * c, -limit, limit)
        return jnp.where(jnp.asarray(equality), new, jnp.maximum(new, 0))

    return Rows(*(one(*x) for x in zip(c, rows, equality, strict=True)))


def violation(c: Rows, rows: Rows, penalty: Array, equality: Rows) -> Float[Array, ""]:
    """The greatest ``|h|`` and ``|max(g, −λ/ρ)|``: of feasibility and complementarity together.

    Source: Birgin, Martínez (2014), Practical augmented Lagrangian methods, (4.9).
    """

    def one(c, lam, equality):
        size = jnp.where(jnp.asarray(equality), c, jnp.maximum(c, -lam / penalty))
        return jnp.max(jnp.abs(size), initial=0)

    return jnp.maximum(*(one(*x) for x in zip(c, rows, equality, strict=True)))


def excess(c: Rows, equality: Rows) -> Rows:
    """By how much each row is violated: ``|h|`` or ``max(g, 0)``."""
    one = lambda c, e: jnp.where(jnp.asarray(e), jnp.abs(c), jnp.maximum(c, 0))  # noqa: E731
    return Rows(*(one(*x) for x in zip(c, equality, strict=True)))


def advance(
    m: Multipliers,
    c: Rows,
    equality: Rows,
    ready: Bool[Array, ""],
    least: float,
    most: float | Array,
    feasible: float,
) -> Multipliers:
    """The multipliers after a step. They change if the inner problem is ``ready``.

    Source: Birgin, Martínez (2014), Alg. 4.1: the penalty grows tenfold where the violation has not
    fallen to a quarter. ``least`` is the last of the tolerances, ``most`` the greatest penalty.
    Departure: it does not grow where the violation is at most ``feasible``, because a violation
    that is nothing but rounding never falls.
    """
    size = violation(c, m.rows, m.penalty, equality)
    slow = (size > 0.25 * m.violation) & (size > feasible)
    penalty = jnp.where(slow, jnp.minimum(10 * m.penalty, most), m.penalty)
    tol = jnp.maximum(0.1 * m.tol, least)
    # What was found to a looser tolerance or with a smaller penalty is nothing to compare with.
    first = final_stage(penalty, tol, least, most) & ~final_stage(m.penalty, m.tol, least, most)
    new = Multipliers(
        update(c, m.rows, m.penalty, equality, 100 * most),
        penalty,
        tol,
        jnp.where(first, jnp.inf, size),
    )
    return jax.tree.map(lambda a, b: jnp.where(ready, a, b), new, m)


def final_stage(penalty: Array, tol: Array, least: float, most: float | Array) -> Bool[Array, ""]:
    """Whether the penalty is at its greatest and the tolerance at its least."""
    return (penalty >= most) & (tol <= least)
