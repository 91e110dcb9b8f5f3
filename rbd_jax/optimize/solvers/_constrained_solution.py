"""What a constrained solve returns, and which constraint failed."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model.outcome import RESULTS, throw_unless_successful
from ..problems._constraints import Rows
from ._solution import Solution


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
    """Of each row: the name of its constraint, and its number there."""

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
