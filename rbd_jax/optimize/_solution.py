"""What a solver returns, and how it says that it did not succeed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._implicit import frozen, stationary
from ._problem import Problem


class RESULTS(eqx.Enumeration):
    """How a solve ended; ``results == RESULTS.successful`` is a boolean array."""

    successful = ""
    max_iterations_reached = (
        "The maximum number of iterations was reached without convergence. Try more of them, a "
        "better first guess, or `throw=False` to look at the history."
    )
    stalled = (
        "No step lowers the cost although the regularisation is at its greatest. Try a better "
        "first guess or scaling, or `throw=False` to look at the history."
    )
    nonfinite = (
        "The motion or its cost is not finite, at the first guess or at a later one. Try a smaller "
        "time step or another guess, or a shorter step of the optimiser."
    )
    infeasible = (
        "The constraints do not hold although their penalty is at its greatest. Use `throw=False` "
        "and `solution.explain()` to see which constraint fails, at which step and by how much; "
        "then relax it, or begin with a guess that is closer to holding it."
    )


class History(NamedTuple):
    """One row an iteration, NaN after the last one."""

    cost: Float[Array, " I"]
    """Objective before the iteration; with multiple shooting, plus the penalty of the gaps."""
    expected: Float[Array, " I"]
    """Decrease that the quadratic model promises for a full step."""
    step: Float[Array, " I"]
    """Fraction of the full step taken; 0 if none lowered the cost."""
    regularisation: Float[Array, " I"]


class Solution(eqx.Module):
    """A trajectory, the feedback around it, and how it was found.

    Controls, states and cost are differentiable with respect to everything in the problem and the
    initial state, by the implicit function theorem; gains and history are not. That holds at a
    strict minimum alone: the derivatives of a solution that is not ``successful`` (``throw=False``)
    or not strict are NaN, also where only some samples of a batch are.
    """

    t: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    """Feedback ``u + K (q ⊖ q_k, v − v_k)``; zeros from solvers that have none."""
    cost: Float[Array, ""]
    result: RESULTS
    iterations: Int[Array, ""]
    history: History


class Outcome(NamedTuple):
    """What a solver knows before it is made differentiable."""

    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    result: RESULTS
    iterations: Int[Array, ""]
    history: History


def check(name: str, problem: Problem, q0: Any, v0: Any, u: Any) -> tuple[Array, ...]:
    """The start and the guess as arrays; ValueError for a wrong shape or dtype, naming it."""
    m = problem.model
    wanted = {"q0": (q0, (m.nq,)), "v0": (v0, (m.nv,)), "u": (u, (problem.steps, problem.controls))}
    return tuple(check_one(name, problem, what, *x) for what, x in wanted.items())


def check_one(name: str, problem: Problem, what: str, value: Any, shape: tuple) -> Array:
    """One argument of a solver as an array of the model's dtype; lists of numbers are taken."""
    dtype = problem.model.dtype
    value = value if hasattr(value, "dtype") else jnp.asarray(value, dtype)
    if value.shape != shape:
        hint = "; solvers take one problem, use jax.vmap for a batch"
        raise ValueError(
            f"{name}: {what} has shape {value.shape}, expected {shape}"
            + hint * (value.ndim == len(shape) + 1)
        )
    if value.dtype != dtype:
        raise ValueError(
            f"{name}: {what} is {value.dtype}, the problem's robot {dtype}; use "
            f"{what}.astype({str(dtype)!r})"
        )
    return jnp.asarray(value)


def solved(
    solve: Callable[..., Outcome], problem: Problem, q0: Array, v0: Array, u: Array, throw: bool
) -> Solution:
    """Run ``solve(problem, q0, v0, u)`` outside differentiation, and differentiate its solution."""
    out = frozen(solve(*frozen((problem, q0, v0, u))))
    u = stationary(problem, q0, v0, out.u, out.result == RESULTS.successful)
    path = problem.simulate(q0, v0, u)
    cost = problem.cost(path.q, path.v, u)
    rest = out.K, cost, out.result, out.iterations, out.history
    solution = Solution(path.t, path.q, path.v, u, *rest)
    if throw:
        return out.result.error_if(solution, out.result != RESULTS.successful)
    return solution
