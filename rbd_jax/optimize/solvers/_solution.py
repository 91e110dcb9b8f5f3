"""The solution that every solver returns, and the checks of the arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ...model.arguments import ArrayArgument, check_array
from ...model.outcome import RESULTS, throw_unless_successful
from ..problems._constraints import Rows
from ..problems._problem import Problem
from ._implicit import States, cost_at, held_controls, reached, stationary, without_derivatives


class History(NamedTuple):
    """One entry for each step of the solver, and NaN after the last step."""

    cost: Float[Array, " I"]
    """Objective before the step. Multiple shooting adds the penalty of the gaps."""
    expected: Float[Array, " I"]
    """Decrease that the quadratic model predicts for a full step."""
    step: Float[Array, " I"]
    """Fraction of the full step that was taken; 0 if the step was rejected."""
    regularization: Float[Array, " I"]
    q: Float[Array, "I N nq"] | None = None
    """Configurations before the step, if the solver was told to keep its ``iterates``."""
    v: Float[Array, "I N nv"] | None = None
    u: Float[Array, "I T nu"] | None = None

    def of(self, problem: Problem) -> "History":
        """The history of a loop, whose states have the memory of the plant beside the velocity."""
        return self if self.v is None else self._replace(v=problem.velocity(self.v))


class Solution(eqx.Module):
    """A trajectory, the feedback around it, and how the solver ended.

    Controls, states and cost are differentiable with respect to every array of the problem and the
    initial state, by the implicit function theorem. Gains and history have no derivatives. The
    theorem applies only to a strict minimum. If the solver did not succeed (with ``throw=False``),
    or the minimum is not strict, the derivatives are NaN. In a batch this holds for each sample. A
    control whose bounds are equal moves with the lower one.
    """

    t: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    """Gains of the feedback ``u + K (q ⊖ q_k, v − v_k)``; zeros from a solver without feedback."""
    cost: Float[Array, ""]
    result: RESULTS
    """How the solver ended."""
    steps: Int[Array, ""]
    """Number of steps of the solver."""
    history: History
    memory: PyTree
    """The memory of the plant after 0, 1, …, T steps, without the parts that have no tangent; ()
    for most plants. The gains of a plant with memory have a column for each of its coordinates."""


class Found(NamedTuple):
    """The result of a solver before it is made differentiable."""

    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    result: RESULTS
    steps: Int[Array, ""]
    history: History
    states: tuple[Array, Array] | None = None
    """The q and y that the solver ended with; the simulation of u if None."""
    cost: Float[Array, ""] | None = None
    """The objective at u and these states; computed if None."""


def checked_arguments(name: str, problem: Problem, q0: Any, v0: Any, u: Any) -> tuple[Array, ...]:
    """The initial state and the guess in the precision of the robot, if they fit the problem.

    The state comes back as the pair (q, y) of a :class:`Problem`.
    """
    m = problem.model
    if problem.controls == 0:
        raise ValueError(f"{name}: a plant without controls leaves nothing to optimize")
    wanted = {"q0": (q0, (m.nq,)), "v0": (v0, (m.nv,)), "u": (u, (problem.steps, problem.controls))}
    q0, v0, u = (checked_argument(name, problem, what, *x) for what, x in wanted.items())
    return q0, problem.initial(q0, v0), u


def checked_argument(name: str, problem: Problem, what: str, value: Any, shape: tuple) -> Array:
    """One argument of a solver in the precision of the robot.

    Raises:
        ValueError: for a wrong shape. TypeError: for a value that is no array, or of integers.
    """
    wanted = ArrayArgument(shape, "float", optional=False, others=False)
    return jnp.asarray(check_array(name, problem.model, what, value, wanted))


def solution_of(
    solve: Callable[..., Found], problem: Problem, q0: Array, v0: Array, u: Array, throw: bool
) -> Solution:
    """Run ``solve(problem, q0, v0, u)`` and make its solution differentiable."""
    found = without_derivatives(solve(*without_derivatives((problem, q0, v0, u))))
    here, at_q, at_v = without_derivatives((problem, q0, v0))
    if found.states is None:
        at_q, at_v = here.stacked(here.simulate(at_q, at_v, found.u))
    else:
        at_q, at_v = found.states
    at_low, at_high = held_controls(here, found.u)
    states = without_derivatives(States(at_q, at_v, found.K).holding(at_low | at_high))
    good = found.result == RESULTS.successful
    w = stationary(problem, q0, v0, found.u, good, states)
    q, v, u = at = reached(problem, q0, v0, w, states)
    cost = problem.cost(*at) if found.cost is None else cost_at(problem, at, found.cost)
    result = checked_result(found.result, problem, (q, v, u, found.K, cost))
    rest = found.K, cost, result, found.steps, found.history.of(problem)
    v, memory = problem.unpacked(v)
    solution = Solution(times_of(problem), q, v, u, *rest, memory)
    return throw_unless_successful(solution, result) if throw else solution


def times_of(problem: Problem) -> Float[Array, " N"]:
    """The times of the states (s)."""
    return jax.vmap(problem.time)(jnp.arange(problem.steps + 1))


def checked_result(result: RESULTS, problem: Problem, values: PyTree) -> RESULTS:
    """``nonfinite`` instead of ``successful`` where a number of ``values`` is infinite or NaN, and
    ``crossed`` as :func:`checked_bounds` says."""
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(values)]).all()
    lost = (result == RESULTS.successful) & ~finite
    return checked_bounds(RESULTS.where(lost, RESULTS.nonfinite, result), problem)


def checked_bounds(result: RESULTS, problem: Problem) -> RESULTS:
    """``crossed`` where no control lies between the bounds, which may be known at run time only."""
    if not problem.bounded:
        return result
    return RESULTS.where(problem.crossed(), RESULTS.crossed, result)


class ConstrainedSolution(Solution):
    """A :class:`Solution` with the multipliers of its constraints.

    The multipliers are differentiable too.
    """

    multipliers: Rows
    """λ of each row: the cost falls by λ for each unit by which the row is relaxed. To be given to
    the next solve as its first guess."""
    penalty: Float[Array, ""]
    """The last penalty, for the next solve."""
    violation: Rows
    """By how much each row is violated, zero where it holds."""
    names: Rows = eqx.field(static=True)
    """For each row, the name of its constraint and the number of the row in that constraint."""

    def explain(self, count: int = 5) -> str:
        """Which constraints are violated most: where, which entry, by how much. On the host.

        Args:
            count: how many of them.
        """
        if np.ndim(self.violation.final) != 1:
            raise ValueError("explain: takes one solution, pick one of the batch with jax.tree.map")
        stage, final = np.asarray(self.violation.stage), np.asarray(self.violation.final)
        times = np.asarray(self.t)
        lines = [
            (stage[k, i], f"at step {k} (t = {times[k]:.4g} s)", *self.names.stage[i])
            for k, i in zip(*np.nonzero(~(stage <= 0)), strict=True)
        ]
        for i in np.flatnonzero(~(final <= 0)):
            lines.append((final[i], f"at the end (t = {times[-1]:.4g} s)", *self.names.final[i]))
        lines.sort(key=lambda x: -x[0] if x[0] == x[0] else -np.inf)
        how = "converged" if bool(self.result == RESULTS.successful) else str(self.result)
        text = [f"{amount:.3g} too much: {name!r}, entry {i}, {where}"
                for amount, where, name, i in lines[:count]]  # fmt: skip
        return "\n".join([how, *(text or ["all constraints hold"])])


def finished(solution: ConstrainedSolution, throw: bool) -> ConstrainedSolution:
    """The solution, or with ``throw`` an error that names the constraint violated most."""
    if not throw:
        return solution
    names = list(dict.fromkeys(n for rows in solution.names for n, _ in rows))
    where = [[names.index(n) for n, _ in rows] for rows in solution.names]
    worst = jnp.zeros((len(names),), solution.cost.dtype)
    worst = worst.at[np.array(where[0], int)].max(jnp.max(solution.violation.stage, 0, initial=0))
    worst = worst.at[np.array(where[1], int)].max(solution.violation.final)
    failed = solution.result == RESULTS.infeasible
    if names:
        texts = [
            f"The constraint {name!r} cannot be held: the penalty is at its greatest. Use "
            "`throw=False` and `solution.explain()` to see at which step and by how much; then "
            "relax it, or begin with a guess that is closer to holding it."
            for name in names
        ]
        solution = eqx.branched_error_if(solution, failed, jnp.argmax(worst), texts)
    return throw_unless_successful(solution, solution.result)


def worst(solution: ConstrainedSolution) -> Float[Array, ""]:
    """The greatest violation of all constraints."""
    sizes: list[Array] = [jnp.max(x, initial=0) for x in solution.violation]
    return jnp.maximum(*sizes)
