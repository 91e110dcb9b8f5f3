"""Quadrupeds that stand up and take pushes through contact: receding horizons and policies."""

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

from . import _box_jump, _objects, _stand_plans
from ._report import Report
from ._robots import available, load

ABOUT = (
    "`rbd_jax.tasks.stand_up`: a quadruped with servos on soft ground, in float32. From "
    "random states of `tasks.lying` (it fell limp, from joints up to 1.2 rad and a trunk up to "
    "0.4 rad off) it has 2.4 s to stand up. From its stance it is pushed at the trunk, after "
    "0.2 s, for 0.12 s, in a random horizontal direction, and has the rest of 2.4 s to stand. "
    "Successful is who ends upright, at 85 % of its height or more, near its posture and at rest; "
    "pushed robots must not have sunk to half their height. The plant takes steps half as long as "
    "those of the controller. Servos alone hold the standing posture. Receding horizon: `opt.mpc` "
    "with `opt.sampler`, which does not know the push. Every 0.16 s it plans 1.6 s, by four steps "
    "of the cross-entropy method with 64 samples each, from the plan before. The first guess is "
    "`tasks.rise` for a robot that lies, and the standing posture for one that stands. Seconds "
    "are those of the whole batch, compiling excluded. The column later tells who is successful "
    "after 0.8 s more."
)
POLICIES = (
    "`learn.shac` teaches `tasks.stander`, which acts every 20 ms, in other states of "
    "`tasks.lying` and with random pushes. Every 50 updates `tasks.stand_judge` judges the policy "
    "and the running mean of the policies (`Settings.average`), with a third set of starts and "
    "other pushes. The result is what had the highest score. The column validation is that "
    "score. The time of training includes compiling and judging. The policies then act without "
    "noise from the same starts and with the same pushes as above, in the same plant, and in "
    "MuJoCo itself, whose steps are those of the training."
)
METHODS = {"servos alone": 0, "receding horizon": 64}
"""Samples in each step of the search."""
SEARCH = {"noise": 0.6, "knots": 6, "elites": 8, "max_steps": 4}
SECONDS, LATER = 2.4, 0.8
"""When it is decided who is successful, and for how long controllers go on after that (s)."""
PARTS = "policies", "controllers", "plans", "box", "objects"


def closed_loop(task: tasks.Task, samples: int):
    """``(q, v, impulse, key) -> (q, v)`` of the states after 0, 1, … steps."""
    horizon, dt = task.u, task.problem.dt
    steps = round((SECONDS + LATER) / float(dt))

    def run(q, v, impulse, key):
        plant = tasks.pushed(task, impulse)
        lies = q[2] < 0.85 * task.q0[2]
        guess = jnp.where(lies, tasks.rise(task, q), horizon)
        problem = at(task.problem, task.q0.at[:2].set(q[:2]))
        if samples:
            control = opt.sampler(problem, key, samples=samples, rest=horizon[-1], **SEARCH)
            loop = opt.mpc(control, q, v, guess, steps, every=2, plant=plant)
            return loop.q, loop.v

        held, substeps = jnp.tile(horizon[0], (steps, 1)), task.problem.substeps
        path = rbd.rollout(plant, q, v, held, dt, substeps=substeps)
        return path.q, path.v

    return jax.jit(jax.vmap(run))


def at(problem, goal):
    """The same problem with another place to stand."""
    return eqx.tree_at(lambda p: (p.stage.q, p.final.q), problem, (goal, goal))


def planned(task: tasks.Task, samples: int):
    """``(q, v, key, steps) -> (q, v, u)`` of the receding horizon in its own model."""

    def run(q, v, key, steps):
        problem = at(task.problem, task.q0.at[:2].set(q[:2]))
        control = opt.sampler(problem, key, samples=samples, rest=task.u[-1], **SEARCH)
        loop = opt.mpc(control, q, v, tasks.rise(task, q), steps, every=2)
        return loop.q, loop.v, loop.u

    return run


class Cases(NamedTuple):
    """What each method has to do, (batch, …) each."""

    task: tasks.Task
    fallen: tuple[jax.Array, jax.Array]
    stance: tuple[jax.Array, jax.Array]
    way: np.ndarray
    """Directions of the pushes."""
    keys: jax.Array
    impulses: tuple[float, ...]
    """Of the pushes (N s)."""

    @classmethod
    def of(cls, task: tasks.Task, batch: int, impulses: tuple[float, ...]) -> "Cases":
        """Random starts and directions."""
        keys = jax.random.split(jax.random.key(0), batch)
        fallen = jax.jit(jax.vmap(tasks.lying, (None, 0)))(task, keys)
        stance = tuple(jnp.tile(x, (batch, 1)) for x in (task.q0, task.v0))
        angle = np.random.default_rng(0).uniform(0, 2 * np.pi, batch)
        way = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
        return cls(task, fallen, stance, way, keys, impulses)

    def each(self):
        """``(name, impulse, (q, v))`` of every case."""
        yield "stand up", 0.0, self.fallen
        for impulse in self.impulses:
            yield "push", impulse, self.stance


def judge(
    table, cases: Cases, robot: str, method: str, function, theirs=None, more: int = 0, **cells
) -> None:
    """Rows of a method, ``function(q, v, impulse, key) -> (q, v)`` of the states of a batch.

    ``theirs(q, v, impulse)`` tells whether one robot is successful in MuJoCo. The last ``more``
    states come after the decision.
    """
    task, way = cases.task, cases.way
    began = time.perf_counter()
    inputs = [*cases.stance, jnp.asarray(0 * way, jnp.float32), cases.keys]
    run = function.lower(*inputs).compile()
    compiling = time.perf_counter() - began
    mass = float(np.asarray(task.problem.model.inertia)[:, 0].sum())
    for what, impulse, start in cases.each():
        began = time.perf_counter()
        push = jnp.asarray(impulse * way, jnp.float32)
        q, v = jax.block_until_ready(run(*start, push, cases.keys))
        seconds = time.perf_counter() - began

        def count(k, q=q, v=v, what=what):
            good = jax.vmap(tasks.stands, (None, 0, 0))(task, q[:, k], v[:, k])
            lowest = q[:, : k + 1, 2].min(axis=1) / task.q0[2]
            return int((good & ((lowest > 0.5) | (what != "push"))).sum())

        last = q.shape[1] - 1
        found = {"later": count(last)} if more else {}
        if theirs is not None:
            all_cases = zip(*(np.asarray(x) for x in (*start, push)), strict=True)
            found["successful_in_MuJoCo"] = sum(theirs(*x) for x in all_cases)
        table.add(robot=robot, mass_kg=mass, task=what, impulse_N_s=impulse, method=method,
                  successful=count(last - more), of=len(q), **found, seconds=seconds,
                  compile_s=compiling, **cells)  # fmt: skip


def learned(table, cases: Cases, robot: str, seed: int, tiny: bool) -> None:
    """Rows of a policy that is trained here."""
    import mujoco

    from rbd_jax import learn

    task, settings = cases.task, tasks.STAND_UP
    if tiny:
        settings = settings._replace(updates=2, robots=8, horizon=4)
    env = tasks.stander(task=task, fallen=8 if tiny else 512)
    scored = tasks.stand_judge(env, task, starts=4 if tiny else 64)
    processor = time.process_time()
    training = learn.shac(env, jax.random.key(seed), settings, judge=scored, every=50)
    processor = time.process_time() - processor
    policy = training.policy
    model = mujoco.MjModel.from_xml_string(tasks.stander_mjcf(env))
    steps = round(SECONDS / float(env.period))

    @jax.jit
    @jax.vmap
    def run(q, v, impulse, key):
        plant = tasks.pushed(task, impulse)
        return learn.closed_loop(env, policy, env.state(q, v, q[7:]), steps, plant)

    def theirs(q, v, impulse):
        return tasks.stand_in_mujoco(env, policy, model, q, v, impulse=impulse).stood

    judge(table, cases, robot, f"policy of shac, seed {seed}", run, theirs,
          training_s=float(training.seconds[-1]), training_processor_s=processor,
          updates=settings.updates, validation=float(training.learner.score))  # fmt: skip


def main(options) -> None:
    """Both tasks by each method, and the jump onto a box."""
    report = Report("standing", options, ABOUT)
    table = report.table("Quadrupeds that stand up, and that are pushed")
    policies = report.table("The same with policies that learned", POLICIES)
    plans = report.table("Plans of standing up", _stand_plans.ABOUT)
    boxes = report.table("A quadruped gets onto a box of 12 cm", _box_jump.ABOUT)
    moved = report.table(
        "Objects that are pushed over a table and turned in a hand", _objects.ABOUT
    )
    moved.subject = "task", "method"
    batch, parts = options.batch or (4 if options.tiny else 64), options.parts or PARTS
    impulses = (40.0,) if options.tiny else (30.0, 40.0, 50.0, 60.0)
    for robot in options.robots or ["quadruped"]:
        if not available([robot]):
            continue
        task = tasks.stand_up(load(robot, "float32"))
        cases = Cases.of(task, batch, impulses)
        for seed in range(1 if options.tiny else 3) if "policies" in parts else ():
            learned(policies, cases, robot, seed, options.tiny)
            report.write()
        for name, samples in METHODS.items() if "controllers" in parts else ():
            samples = min(samples, 8) if options.tiny else samples
            more = round(LATER / float(task.problem.dt))
            judge(table, cases, robot, name, closed_loop(task, samples), more=more)
            report.write()
        if "plans" in parts:
            some = jax.tree.map(
                lambda x: x[: 2 if options.tiny else 16], (cases.fallen, cases.keys)
            )
            search = planned(task, 8 if options.tiny else METHODS["receding horizon"])
            _stand_plans.plans(plans, task, *some, search, at, options.tiny)
            report.write()
        if "box" in parts:
            _box_jump.box_jump(boxes, load(robot, "float32"), options.tiny, report.write)
    if "objects" in parts:
        _objects.objects(moved, batch, options.tiny, options.again, report.write)
