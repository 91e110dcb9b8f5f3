"""Quadrupeds that learn to walk from exact gradients, judged in MuJoCo: wall time and quality."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import learn

from ._report import Report, Table

ABOUT = (
    "`rbd.learn.shac` teaches a quadruped of 14 kg to follow commanded velocities, from nothing: "
    "64 robots with random masses, friction, servos and delays, exact gradients through 24 control "
    "steps (0.48 s). Reward: of a control step, three at most. The last policy then walks in "
    "MuJoCo: 10 s for each command, without noise, and 8 s with a push of 0.1 s on the trunk from "
    "one of eight directions. The error is the root mean square of the velocity's error in the "
    "plane, averaged over a cycle of the gait. A seed's first column of time has no compiling in "
    "it; the processor time is that of all threads. Run it with `--cores 1` or `2`."
)
GOOD = 2.3
"""A reward with which the robot walks."""
SPEEDS = (0.3, 0.5, 0.7, 1.0)
PUSHES = (100, 150, 200)


def main(options) -> None:
    """Three seeds, and what their policies do in MuJoCo."""
    report = Report("train", options, ABOUT)
    robots = options.robots.split(",") if options.robots else ["quadruped"]
    curve = report.table("Reward while learning")
    walks = report.table("Walks in MuJoCo")
    pushed = report.table("Pushes in MuJoCo", "Walking at 0.6 m/s; pushed for 0.1 s, of 8 pushes.")
    for robot in robots:
        env, mjcf = getattr(learn, robot)(jnp.float32), getattr(learn, f"{robot}_mjcf")()
        for seed in range(1 if options.tiny else 3):
            learned = train(curve, env, robot, seed, 2 if options.tiny else 300)
            judge(walks, pushed, env, learned.policy, robot, seed, mjcf, options.tiny)
            report.write()


def train(table: Table, env, robot: str, seed: int, updates: int) -> learn.Learned:
    """Learn with one seed; a row with the reward after parts of the updates."""
    settings, key = learn.Settings(updates=updates), jax.random.key(seed)
    if updates < 10:
        settings = settings._replace(robots=8, horizon=4)
    began = time.perf_counter()
    first = learn.start(env, settings, key)
    jax.block_until_ready(learn.update(env, settings, first)[1].reward)
    compiling, processor = time.perf_counter() - began, time.process_time()
    learned = learn.shac(env, key, settings)
    processor = time.process_time() - processor
    reward, seconds = learned.history.reward, learned.seconds
    smooth = np.convolve(reward, np.ones(10) / 10, "valid") if updates >= 10 else reward
    reached = np.flatnonzero(smooth >= GOOD)
    marks = [0, *(round(f * (updates - 1)) for f in (0.1, 0.25, 0.5, 1.0))]
    table.add(robot=f"{robot}, seed {seed}", updates=updates, compile_s=compiling,
              seconds=float(seconds[-1]), processor_s=processor,
              **{f"update {k + 1}": float(reward[k]) for k in marks},
              **{f"seconds to {GOOD}": float(seconds[reached[0]]) if len(reached) else None},
              steps_simulated=updates * settings.robots * settings.horizon * env.substeps,
          )  # fmt: skip
    return learned


def judge(walks: Table, pushed: Table, env, policy, robot: str, seed: int, mjcf, tiny) -> None:
    """Walks at several speeds, and with pushes."""
    name = f"{robot}, seed {seed}"
    for speed in SPEEDS[:1] if tiny else SPEEDS:
        seconds = 2.0 if tiny else 10.0
        walk = learn.walk_in_mujoco(env, policy, mjcf, (speed, 0.0, 0.0), seconds)
        late = walk.velocity[walk.t > 1]
        mean = float(late[:, 0].mean()) if len(late) else None
        walks.add(robot=name, command=speed, seconds=float(walk.t[-1]),
                  fell=str(walk.fell), mean_speed=mean, error=walk.error())  # fmt: skip
    for force in PUSHES[:1] if tiny else PUSHES:
        survived = 0
        for k in range(1 if tiny else 8):
            angle = 2 * np.pi * k / 8
            push = force * np.cos(angle), force * np.sin(angle)
            walk = learn.walk_in_mujoco(env, policy, mjcf, (0.6, 0.0, 0.0), 2.0 if tiny else 8.0,
                                        push=push, push_at=0.5 if tiny else 3 + 0.07 * k,
            )  # fmt: skip
            survived += not walk.fell
        pushed.add(robot=name, force_N=force, survived=survived)
