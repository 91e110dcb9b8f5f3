"""Legged plans under feedback in the contact simulator, and what they keep: limits and friction."""

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

from ._report import Table
from ._robots import load

ABOUT = (
    "Multiple shooting from a robot that stands still, with the damping of the URDF, to the usual "
    "tolerance. The first columns are of the plan: the largest torque over its limit, the largest "
    "horizontal part of a force (of x and y) over its bound 0.7 times the vertical part, and the "
    "smallest vertical force of a foot that stands over the weight. Then `opt.feedback` controls "
    "the robot in `rbd.rollout` with a scene: soft contacts with friction 0.7, in steps of 2 ms, "
    "and 0.5 s more under the last reference. Away is the largest distance of the trunk from the "
    "plan. Standing is a robot that is then upright and within 3 cm of its height, and did not "
    "touch the ground with its trunk's origin below 0.7 of that height. From a batch of starts, "
    "every coordinate of the tangent space is off by a normal random number of 0.01 (m, rad), and "
    "the joints' and the trunk's velocities by one of 0.05 (m/s, rad/s)."
)
FRICTION, FINER, MORE = 0.7, 10, 25


def forces_of(problem: opt.Problem, s: opt.Solution) -> np.ndarray:
    """Forces (n, 3) of all feet that stand (N), z is normal."""
    f = jax.jit(jax.vmap(problem.outputs))(s.t[:-1], s.q[:-1], s.v[:-1], s.u)[0]
    return np.asarray(f).reshape(problem.steps, -1, 3)[np.asarray(problem.plant.active)]


def play_back(table: Table, name: str, robot: str, batch: int) -> None:
    """The row of one task."""
    task = getattr(tasks, name)(load(robot))
    problem, model = task.problem, task.problem.model

    @jax.jit
    def solve(task):
        guess = tasks.standing_guess(task)
        return opt.multiple_shooting(*task, **guess, max_steps=100, throw=False)

    s = solve(task)
    ground = rbd.contact.Surface((FRICTION, 0.005, 1e-4))
    points = rbd.contact.points(tasks.FEET)
    scene = rbd.contact.scene_on_ground(model, points, surface=ground, reference=task.q0)
    keys = jax.random.split(jax.random.key(0), 2)
    off = 0.01 * jax.random.normal(keys[0], (batch, model.nv), model.dtype)
    push = 0.05 * jax.random.normal(keys[1], (batch, model.nv), model.dtype)

    @jax.jit
    @jax.vmap
    def play(off, push):
        q0, steps = rbd.integrate(model, task.q0, off), FINER * (problem.steps + MORE)
        policy, dt = opt.feedback(problem, s), problem.dt / FINER
        path = rbd.rollout(scene, q0, push, policy, dt, steps=steps, stride=FINER)
        q = path.q
        tall = (jnp.abs(q[-1, 2] - task.q0[2]) < 0.03) & (q[:, 2].min() > 0.7 * task.q0[2])
        away = jnp.linalg.norm(q[: problem.steps + 1, :3] - s.q[:, :3], axis=1).max()
        return away, tall & (tasks.uprightness(q[-1]) > 0.95)

    away, stands = play(0 * off[:1], 0 * push[:1])
    some, risen = play(off, push)
    f, limit = forces_of(problem, s), np.asarray(problem.bounds()[1])
    weight = 9.81 * float(rbd.total_mass(model))
    table.add(task=name, robot=robot, converged=bool(s.result == opt.RESULTS.successful),
              iterations=int(s.steps), torque=float((np.abs(s.u) / limit).max()),
              friction=float((np.abs(f[:, :2]).max(axis=1) / (FRICTION * f[:, 2])).max()),
              smallest_normal=float(f[:, 2].min()) / weight, away_m=float(away[0]),
              standing=bool(stands[0]), starts=batch, of_them_standing=int(risen.sum()),
              farthest_m=float(some.max()))  # fmt: skip
