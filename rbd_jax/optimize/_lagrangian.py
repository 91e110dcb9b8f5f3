"""The augmented Lagrangian of a constrained problem, which the solvers see as a problem."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._constraints import Rows, Stack
from ._problem import Problem, Terms, total


class Lagrangian(eqx.Module):
    """``J + Σ ρ/2 |P(c + λ/ρ)|² − |λ|²/(2ρ)``, where P drops the rows of ``g ≤ 0`` that are negative.

    Source: Nocedal, Wright (2006), (17.36) and (17.55). The terms with c are residuals, whose
    Hessian is that of Gauss and Newton. Everything else is that of the problem.
    """

    problem: Problem
    stack: Stack
    multipliers: Rows
    penalty: Float[Array, ""]
    """ρ, the same for all rows."""

    def __getattr__(self, name: str) -> Any:
        """What the constraints do not change."""
        if name == "problem":  # while the module is being built
            raise AttributeError(name)
        return getattr(self.problem, name)

    def _pushed(self, c: Array, lam: Array, equality) -> Array:
        shifted = c + lam / self.penalty
        return jnp.where(jnp.asarray(equality), shifted, jnp.maximum(shifted, 0))

    def stage_terms(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Terms:
        """The costs of step k and its constraints."""
        k = jnp.asarray(k)
        c, lam = self.stack.stage(self.problem, k, q, v, u), self.multipliers.stage[k]
        row = self._pushed(c, lam, self.stack.equality.stage)
        return (*self.problem.stage_terms(k, q, v, u), (self.penalty, row))

    def final_terms(self, q: Array, v: Array) -> Terms:
        """The costs of the last state and its constraints."""
        c, lam = self.stack.final(self.problem, q, v), self.multipliers.final
        row = self._pushed(c, lam, self.stack.equality.final)
        return (*self.problem.final_terms(q, v), (self.penalty, row))

    def stage_cost(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Float[Array, ""]:
        """The share of step k."""
        lam = self.multipliers.stage[jnp.asarray(k)]
        return total(self.stage_terms(k, q, v, u)) - 0.5 * jnp.sum(lam * lam) / self.penalty

    def final_cost(self, q: Array, v: Array) -> Float[Array, ""]:
        """The share of the last state."""
        lam = self.multipliers.final
        return total(self.final_terms(q, v)) - 0.5 * jnp.sum(lam * lam) / self.penalty

    def cost(self, q: Array, v: Array, u: Array) -> Float[Array, ""]:
        """The augmented Lagrangian of a trajectory."""
        k = jnp.arange(self.stack.steps)
        stages = jax.vmap(self.stage_cost)(k, q[:-1], v[:-1], u)
        return jnp.sum(stages) + self.final_cost(q[-1], v[-1])


class Multipliers(NamedTuple):
    """How far the outer loop has come."""

    rows: Rows
    penalty: Float[Array, ""]
    tol: Float[Array, ""]
    """Promised relative decrease at which the multipliers are updated next."""
    violation: Float[Array, ""]
    """The greatest violation at their last update."""


def update(c: Rows, rows: Rows, penalty: Array, equality: Rows, limit: float) -> Rows:
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
    m: Multipliers, c: Rows, equality: Rows, ready: Bool[Array, ""], least: float, most: float
) -> Multipliers:
    """The multipliers after a step, updated where the inner problem is ``ready``, solved to ``m.tol``.

    Source: Birgin, Martínez (2014), Alg. 4.1: the penalty grows tenfold where the violation has not
    fallen to a quarter. ``least`` is the last of the tolerances, ``most`` the greatest penalty.
    """
    size = violation(c, m.rows, m.penalty, equality)
    slow = size > 0.25 * m.violation
    new = Multipliers(
        update(c, m.rows, m.penalty, equality, 10 * most),
        jnp.where(slow, jnp.minimum(10 * m.penalty, most), m.penalty),
        jnp.maximum(0.1 * m.tol, least),
        size,
    )
    return jax.tree.map(lambda a, b: jnp.where(ready, a, b), new, m)
