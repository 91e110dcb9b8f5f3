"""All solvers on the public problem set, judged by a test of optimality that knows no solver."""

import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize.solvers._ilqr import roll
from rbd_jax.tasks.judges._optimality import Optimality, expansion, residual

from . import _action_models, _ipopt, legged, optimize
from ._ipopt import Found
from ._report import Report

ABOUT = (
    "The problems of `rbd_jax.tasks.PROBLEM_SET`, from 20 starts each, in float64. A start counts"
    " as solved if `rbd_jax.tasks.optimality` finds it within 1e-6: the projected gradient of the"
    " Lagrangian relative to one plus the cost, the gaps, and the violations of the constraints. "
    "`claimed` is the share that the solver calls successful, and `false` counts the claims that "
    "are not solved. The default choice of the guide is `ddp`, and under constraints "
    "`augmented_lagrangian`, or `interior_point` where forces of contact are controls. All starts "
    "are one batch of at most 600 steps. Times are processor "
    "times for one start without compilation. Iterations are the median over the starts. "
    "`back` is the greatest number of steps that lead back to a solution from controls that are "
    "disturbed by normal noise of 1e-4, under the feedback of the solution, because motions that "
    "are unstable without it would end far away, and with its multipliers, for the solvers with "
    "exact second derivatives. "
    "IPOPT gets the same steps, "
    "costs and constraints with exact derivatives by JAX, and states as unknowns. Its tolerance "
    "is 1e-13, because it keeps controls off their bounds by its barrier parameter over their "
    "multiplier, and small multipliers leave it outside of 1e-6 with a tolerance of 1e-9. "
    "`above_ipopt` counts the starts whose "
    "cost is more than 1e-4 (relative to one plus the cost) above IPOPT's from the same start, "
    "`below_ipopt` those that are below by more than that: several minima are common. "
    "BoxFDDP is Crocoddyl's and CSQP that of mim-solvers, from the first 5 starts, with the steps, "
    "costs, constraints and Gauss-Newton models of this library as their action models in Python, "
    "so that their iterations count and their times do not. Only CSQP takes constraints; bounds of "
    "the controls are constraints to it. Each of its iterations solves a quadratic program by up "
    "to 1000 sweeps. IPOPT, BoxFDDP and CSQP begin no new start after `--patience` seconds of "
    "the processor, which CSQP spends at most on each start; the column `starts` has the number of "
    "those they tried."
)
ON_LEGS = (
    "Tasks of `rbd_jax.tasks.LEGGED` on HyQ and Talos without joint friction and damping, judged "
    "in the same way. The starts are those of `rbd_jax.tasks.nudged`: first velocities are random, "
    "up to 0.2 m/s and rad/s, but the feet that stand do not move. Both solvers get a first guess "
    "that stands still. BoxFDDP has its own models of robots and contacts in C++, in a process of "
    "its own (`--peer-python`), and its time counts. `above` and `below` count the starts whose "
    "cost is more than 1e-4 (relative to one plus the cost) above or below BoxFDDP's."
)
LEGS = "trot", "walk", "pace", "jump", "squat", "step"
LIMIT, TOL = 600, 1e-6
SOLVERS = "ddp", "ilqr", "multiple_shooting"
CONSTRAINED = (
    "augmented_lagrangian, second order",
    "augmented_lagrangian",
    "interior_point, second order",
)
EXACT = "ddp", "augmented_lagrangian, second order"


class Run(NamedTuple):
    """What a solver found from all starts."""

    judged: list[Optimality]
    claimed: np.ndarray
    cost: np.ndarray
    steps: np.ndarray
    ms: float
    """Processor time of one start."""
    back: int | None = None
    """Greatest number of steps back to a solution from a disturbance of 1e-4."""

    @property
    def solved(self) -> np.ndarray:
        """Which starts the judge calls solved."""
        return np.array([x.within(TOL) for x in self.judged])


def solver(name: str, limit: int = LIMIT) -> Callable[..., Any]:
    """A function ``(problem, constraints, q0, v0, u, **first multipliers) -> Solution``."""
    how: dict[str, Any] = {"throw": False, "max_steps": limit}
    if name.startswith("augmented"):
        how["second_order"] = name.endswith("second order")

        def augmented(p, c, q0, v0, u, **first):
            return opt.augmented_lagrangian(p, q0, v0, u, c, **how, **first)

        return augmented
    if name.startswith("interior"):
        how["second_order"] = name.endswith("second order")
        return lambda p, c, q0, v0, u: opt.interior_point(p, q0, v0, u, c, **how)
    if name.endswith("standing"):

        def stands(p, _, q0, v0, u):
            guess = tasks.standing_guess(tasks.Task(p, q0, 0 * v0, u))
            return opt.multiple_shooting(p, q0, v0, u, **guess, **how)

        return stands
    return lambda p, _, *start: getattr(opt, name)(p, *start, **how)


def judge(trials: tasks.Trials, q, v, u) -> list[Optimality]:
    """The optimality of all trajectories (S, …), of the first S starts."""
    few = trials.first(len(u))
    found = jax.jit(few.mapped(lambda p, c, *motion: expansion(p, c)(*motion)))(q, v, u)
    found = jax.tree.map(np.asarray, found)
    one = lambda k: jax.tree.map(lambda x: x[k], found)  # noqa: E731
    return [residual(*trials.at(k), u[k], one(k)) for k in range(len(u))]


def solve(name: str, trials: tasks.Trials, limit: int = LIMIT) -> Run:
    """All starts in one batch, judged."""
    one = solver(name, limit)

    disturb = jnp.asarray(1e-4 * np.random.default_rng(1).normal(size=trials.u.shape))

    def run(problem, constraints, q0, v0, u, first, disturb):
        s = one(problem, constraints, q0, v0, u, **first)
        kept = {"multipliers": s.multipliers, "penalty": s.penalty} if constraints else {}
        near = roll(problem, s.q, s.v, s.u, disturb, s.K)[2]
        kept = kept if name in EXACT else {}
        return s.q, s.v, s.u, s.cost, s.steps, s.result == opt.RESULTS.successful, kept, near

    args = (trials.q0, trials.v0, trials.u, {}, disturb)
    batch = jax.jit(trials.mapped(run))
    compiled = batch.lower(*args).compile()
    begin = time.process_time()
    q, v, u, cost, steps, good, kept, near = jax.block_until_ready(compiled(*args))
    ms = 1e3 * (time.process_time() - begin) / len(u)
    out = Run(judge(trials, q, v, u), np.asarray(good), np.asarray(cost), np.asarray(steps), ms)
    if name not in EXACT or not out.solved.any():
        return out
    again = batch if kept else compiled
    q, v, u, _, steps, good, *_ = again(trials.q0, trials.v0, near, kept, disturb)
    found = np.asarray(good) & [x.within(TOL) for x in judge(trials, q, v, u)]
    return out._replace(back=int(np.where(found, steps, limit)[out.solved].max()))


def main(options) -> None:
    """Each problem with each solver that takes it; ``--robots`` and ``--parts`` choose both."""
    report = Report("problems", options, ABOUT)
    table = report.table("Solvers on the problem set")
    table.subject = "problem", "solver"
    starts, limit = (2, 30) if options.tiny else (options.batch or 20, LIMIT)
    legs = report.table("Robots on legs", ON_LEGS)
    legs.subject = table.subject
    every = [*tasks.PROBLEM_SET, *LEGS]
    names = options.robots or (["double-integrator"] if options.tiny else every)
    packages = {"IPOPT": "ipyopt"} | _action_models.PACKAGES
    there = {peer: importlib.util.find_spec(package) for peer, package in packages.items()}
    for peer in (peer for peer, found in there.items() if not found):
        print(f"  {peer} skipped: it needs the package {packages[peer]}")
    parts = tuple(options.parts or [""])
    chosen = lambda s: there.get(s, True) and s.startswith(parts)  # noqa: E731
    last = time.monotonic() + (options.limit or np.inf)
    for name in names:
        known = [r["solver"] for r in (*table.kept, *legs.kept) if r["problem"] == name]
        if known and not options.again or time.monotonic() > last:
            continue
        if name in LEGS:
            on_legs(legs, name, starts, limit, options)
            report.write()
            jax.clear_caches()
            continue
        trials = tasks.PROBLEM_SET[name](starts=starts)
        theirs = None
        if chosen("IPOPT"):
            theirs = _found(trials, _ipopt.solve_all(trials, options.patience))
            _add(table, name, "IPOPT", theirs, None)
        for s in filter(chosen, CONSTRAINED if trials.constraints else SOLVERS):
            _add(table, name, s, solve(s, trials, limit), theirs)
            report.write()
        few = trials.first(5)
        for peer in filter(chosen, _action_models.PACKAGES):
            if peer == "CSQP" or not trials.constraints:
                found = _action_models.solve_all(peer, few, limit, options.patience)
                _add(table, name, peer, _found(few, found), theirs)
        report.write()
        jax.clear_caches()


def on_legs(table, name: str, starts: int, limit: int, options) -> None:
    """A gait or a task on soles, by Crocoddyl with models of its own and by multiple shooting."""
    robot, python = legged.TASKS[name], optimize.python_of(options)
    task = legged.task_of(name, robot)
    trials, theirs = tasks.nudged(task, starts), None
    if python is not None:
        found, last = [], time.monotonic() + options.patience
        for k in range(starts):
            if found and time.monotonic() > last:
                break
            spec = legged.spec_of(trials.start(k), robot, 1)
            found.append(optimize.crocoddyl(python, spec, "_crocoddyl_legged.py"))
        keys = "q", "v", "u", "converged", "iterations", "cost", "ms_a_solve"
        q, v, u, good, steps, cost, ms = (np.array([x[key] for x in found]) for key in keys)
        motion = jnp.asarray(q), jnp.asarray(v), jnp.asarray(u)
        theirs = _found(trials, Found(*motion, good, steps, cost, float(ms.mean())))
        _add(table, name, "BoxFDDP", theirs, None)
    run = solve("multiple_shooting, standing", trials, limit)
    _add(table, name, "multiple_shooting", run, theirs, "")


def _found(trials: tasks.Trials, found: Found) -> Run:
    q, v, u, good, steps, cost, ms = found
    return Run(judge(trials, q, v, u), good, cost, steps, ms)


def _add(table, name, solver: str, run: Run, theirs: Run | None, peer: str = "_ipopt") -> None:
    solved = run.solved
    row = {"problem": name, "solver": solver, "starts": len(solved), "solved": float(solved.mean()),
           "claimed": float(run.claimed.mean()), "false": int((run.claimed & ~solved).sum()),
           "iterations": float(np.median(run.steps)), "back": run.back,
           "ms_a_start": run.ms if np.isfinite(run.ms) else None,
           "worst_cost": float(np.max(run.cost, initial=-np.inf))}  # fmt: skip
    if theirs is not None:
        n = min(len(theirs.cost), len(run.cost))
        cost, good = theirs.cost[:n], theirs.claimed[:n]
        off, both = (run.cost[:n] - cost) / (1 + np.abs(cost)), solved[:n] & good
        row[f"above{peer}"] = int((both & (off > 1e-4)).sum())
        row[f"below{peer}"] = int((both & (off < -1e-4)).sum())
    table.add(**row)
