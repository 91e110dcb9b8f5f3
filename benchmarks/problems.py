"""All solvers on the public problem set, judged by a test of optimality that knows no solver."""

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from rbd_jax import optimize as opt, tasks
from rbd_jax.tasks.judges._optimality import Optimality, expansion, residual

from . import _ipopt
from ._report import Report

ABOUT = (
    "The problems of `rbd_jax.tasks.PROBLEM_SET`, from 20 starts each, in float64. A start counts"
    " as solved if `rbd_jax.tasks.optimality` finds it within 1e-6: the projected gradient of the"
    " Lagrangian relative to one plus the cost, the gaps, and the violations of the constraints. "
    "`claimed` is the share that the solver calls successful, and `false` counts the claims that "
    "are not solved. The default choice of the guide is `ddp`, and under constraints "
    "`augmented_lagrangian`. All starts are one batch. Times are processor times for one start "
    "without compilation. Iterations are the median over the starts. IPOPT gets the same steps, "
    "costs and constraints with exact derivatives by JAX, and states as unknowns. Its tolerance "
    "is 1e-9. It keeps controls off their bounds by its barrier parameter over their multiplier, "
    "so that small multipliers leave it outside of 1e-6. `above_ipopt` counts the starts whose "
    "cost is more than 1e-4 (relative to one plus the cost) above IPOPT's from the same start, "
    "`below_ipopt` those that are below by more than that: several minima are common."
)
LIMIT, TOL = 600, 1e-6
SOLVERS = "ddp", "ilqr", "multiple_shooting"


class Run(NamedTuple):
    """What a solver found from all starts."""

    judged: list[Optimality]
    claimed: np.ndarray
    cost: np.ndarray
    steps: np.ndarray
    ms: float
    """Processor time of one start."""


def solver(name: str, trials: tasks.Trials, limit: int = LIMIT):
    """A function ``(q0, v0, u) -> Solution`` of one start."""
    p, c = trials.problem, trials.constraints
    how: dict[str, Any] = {"throw": False, "max_steps": limit}
    if name.startswith("augmented"):
        how["second_order"] = name.endswith("second order")
        return lambda q, v, u: opt.augmented_lagrangian(p, q, v, u, c, **how)
    return lambda *start: getattr(opt, name)(p, *start, **how)


def judge(trials: tasks.Trials, q, v, u) -> list[Optimality]:
    """The optimality of all trajectories (S, …)."""
    problem, constraints = trials.problem, trials.constraints
    found = jax.jit(jax.vmap(expansion(problem, constraints)))(q, v, u)
    found = jax.tree.map(np.asarray, found)
    one = lambda k: jax.tree.map(lambda x: x[k], found)  # noqa: E731
    return [residual(problem, constraints, u[k], one(k)) for k in range(len(u))]


def solve(name: str, trials: tasks.Trials, limit: int = LIMIT) -> Run:
    """All starts in one batch, judged."""
    one = solver(name, trials, limit)

    def run(q0, v0, u):
        s = one(q0, v0, u)
        return s.q, s.v, s.u, s.cost, s.steps, s.result == opt.RESULTS.successful

    args = trials.q0, trials.v0, trials.u
    compiled = jax.jit(jax.vmap(run)).lower(*args).compile()
    start = time.process_time()
    q, v, u, cost, steps, good = jax.block_until_ready(compiled(*args))
    ms = 1e3 * (time.process_time() - start) / len(u)
    return Run(judge(trials, q, v, u), np.asarray(good), np.asarray(cost), np.asarray(steps), ms)


def main(options) -> None:
    """Each problem with each solver that takes it; ``--robots`` names problems here."""
    report = Report("problems", options, ABOUT)
    table = report.table("Solvers on the problem set")
    table.subject = "problem", "solver"
    starts, limit = (2, 30) if options.tiny else (options.batch or 20, LIMIT)
    names = options.robots or (["double-integrator"] if options.tiny else list(tasks.PROBLEM_SET))
    if not _ipopt.available():
        print("  IPOPT skipped: it needs the package ipyopt")
    for name in names:
        trials = tasks.PROBLEM_SET[name](starts=starts)
        which = SOLVERS
        if trials.constraints:
            which = "augmented_lagrangian, second order", "augmented_lagrangian"
        theirs = _ipopt.solve_all(trials) if _ipopt.available() else None
        if theirs is not None:
            q, v, u, good, steps, cost, ms = theirs
            found = Run(judge(trials, q, v, u), good, cost, steps, ms)
            _add(table, name, "IPOPT", found, None)
        for s in which:
            _add(table, name, s, solve(s, trials, limit), theirs and (theirs.cost, theirs.good))
            report.write()
        jax.clear_caches()


def _add(table, name: str, solver: str, run: Run, theirs) -> None:
    solved = np.array([x.within(TOL) for x in run.judged])
    row = {"problem": name, "solver": solver, "solved": float(solved.mean()),
           "claimed": float(run.claimed.mean()), "false": int((run.claimed & ~solved).sum()),
           "iterations": float(np.median(run.steps)), "ms_a_start": run.ms,
           "worst_cost": float(np.max(run.cost, initial=-np.inf))}  # fmt: skip
    if theirs is not None:
        cost, good = theirs
        off, both = (run.cost - cost) / (1 + np.abs(cost)), solved & good
        row["above_ipopt"] = int((both & (off > 1e-4)).sum())
        row["below_ipopt"] = int((both & (off < -1e-4)).sum())
    table.add(**row)
