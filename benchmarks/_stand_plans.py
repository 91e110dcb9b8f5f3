"""Plans of standing up, as trajectories: samples find one, shooting improves it."""

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

from ._box_jump import gap

ABOUT = (
    "Standing up as one problem of optimal control: 30 steps of 0.08 s from the same fallen "
    "states, in float32, where the last state has ten times its weight. Samples: the states and "
    "controls of the receding horizon, in the steps of its own model. `opt.ilqr` and "
    "`opt.multiple_shooting` start from them and take at most 60 steps each. Standing: plans whose "
    "last state is successful as above, and which have no gap above 0.01 (m, rad, m/s and rad/s) "
    "between a state and the step from the state before. Then: also under the feedback of the "
    "solution, in steps half as long; the last target is held for the rest of 3.2 s. Cost and gap "
    "are medians. Seconds are those of the whole batch, compiling excluded."
)
STEPS, MOST = 30, 60
FIRM = 10.0
"""A plan ends with its last state, which therefore counts more than that of a receding horizon."""
SMALL_GAP = 1e-2
MORE = 10
"""Steps for which the last target is held after a plan."""


def solvers(most: int) -> dict:
    """From a name to ``(problem, q0, v0, (q, v, u)) -> solution``."""

    def ilqr(problem, q0, v0, plan):
        return opt.ilqr(problem, q0, v0, plan[2], max_steps=most, throw=False)

    def multiple_shooting(problem, q0, v0, plan):
        q, v, u = plan
        return opt.multiple_shooting(problem, q0, v0, u, q=q, v=v, max_steps=most, throw=False)

    return {"ilqr": ilqr, "multiple shooting": multiple_shooting}


def followed(task: tasks.Task, problem, q, v, u, K):
    """The state after a plan, and some steps more, under its feedback in finer steps."""
    control = opt.Feedback(problem.starting(0 * problem.dt), q, v, u, K)

    def policy(t, q, v):
        return jnp.where(t < (problem.steps - 0.5) * problem.dt, control(t, q, v), u[-1])

    how = {"steps": problem.steps + MORE, "substeps": problem.substeps}
    path = rbd.rollout(tasks.pushed(task), q[0], v[0], policy, problem.dt, **how)
    return path.q[-1], path.v[-1]


def plans(table, task: tasks.Task, fallen, keys, search, place, tiny: bool) -> None:
    """Rows of the plan by samples, and of what each solver makes of it.

    ``search(q, v, key) -> (q, v, u)`` makes a plan, and ``place(problem, goal)`` the problem of
    standing at another place.
    """
    steps = 4 if tiny else STEPS

    def problem_of(q):
        there = place(task.problem, task.q0.at[:2].set(q[:2]))
        last = there.final
        weights = FIRM * last.q_weight, FIRM * last.v_weight
        last = eqx.tree_at(lambda c: (c.q_weight, c.v_weight), last, weights)
        return dataclasses.replace(there, final=last, steps=steps)

    def seen(name, function, *inputs):
        began = time.perf_counter()
        run = jax.jit(jax.vmap(function)).lower(*inputs).compile()
        compiling = time.perf_counter() - began
        began = time.perf_counter()
        (q, v, u), K = jax.block_until_ready(run(*inputs))
        seconds = time.perf_counter() - began

        def looked_at(q0, q, v, u, K):
            problem = problem_of(q0)
            last = followed(task, problem, q, v, u, K)
            return (problem.cost(q, v, u), gap(task._replace(problem=problem), q, v, u),
                    tasks.stands(task, q[-1], v[-1]), tasks.stands(task, *last))  # fmt: skip

        cost, gaps, good, then = jax.jit(jax.vmap(looked_at))(fallen[0], q, v, u, K)
        whole = np.asarray(good & (gaps < SMALL_GAP))
        table.add(robot=task.problem.model.topology.name, method=name, cost=float(np.median(cost)),
                  gap=float(np.median(gaps)), standing=int(whole.sum()),
                  standing_then=int(np.asarray(then).sum()), of=len(q), seconds=seconds,
                  compile_s=compiling)  # fmt: skip
        return q, v, u

    def sampled(q, v, key):
        plan = search(q, v, key, steps)
        return plan, jnp.zeros((*plan[2].shape, 2 * task.v0.size), q.dtype)

    first = seen("samples", sampled, *fallen, keys)
    for name, solver in solvers(1 if tiny else MOST).items():

        def solved(q0, v0, plan, solver=solver):
            s = solver(problem_of(q0), q0, v0, plan)
            return (s.q, s.v, s.u), s.K

        seen(name, solved, *fallen, first)
