"""Quadrupeds that learn to walk from exact gradients, judged in MuJoCo: wall time and quality."""

import json
import os
import subprocess
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import learn, tasks

from ._report import Report, Table

ABOUT = (
    "`rbd.learn.shac` teaches a quadruped of 14 kg to follow commanded velocities, from nothing: "
    "64 robots with random masses, friction, servos and delays, exact gradients through 24 control "
    "steps (0.48 s). Reward: of a control step, three at most. The last policy then walks in "
    "MuJoCo: 10 s for each command, without noise, and 8 s with a push of 0.1 s on the trunk from "
    "one of eight directions. The error is the root mean square of the velocity's error in the "
    "plane, averaged over a cycle of the gait. A seed's first column of time has no compiling in "
    "it; the processor time is that of all threads. Run it with `--cores 1` or `2`. Go1 is "
    "Unitree's, from the file `go1.xml` of mjlab: `--robots go1 --keep --model PATH`. So is the "
    "humanoid G1 of 33 kg with 29 servos (`--robots g1 --keep --model PATH`), with the settings "
    "`tasks.G1_WALK`; at most four of reward."
)
PPO = (
    "The same task, simulation, reward and cores with the PPO of Brax 0.14.2 (`_ppo.py`; "
    "`--robots ppo --keep --peer-python ppo=PYTHON`, a Python with Brax and rbd_jax). Settings are "
    "those of MuJoCo Playground for Go1, with 512 robots, minibatches of 128 stretches of 20 "
    "control steps, networks of 128 and 64 units, rewards times 0.1 and a rate of 1e-3. With "
    "the smaller batches of the next table it takes as long (295 s for 2.27, one core). Reward: of "
    "a control step, the mean over 64 episodes of the random "
    "policy. Seconds are those of training, with compiling but without these episodes."
)
GYMNASIUM = (
    "Robots of gymnasium (`tasks.from_gymnasium`) by `learn.shac` and by Brax's PPO, in the same "
    "simulation, on the same cores, until an episode has the return of the third column: seconds "
    "with compiling, which `shac` does for the first seed alone and PPO for each, without the "
    "episodes that measure the return. The last column is the best "
    "policy of `shac` in gymnasium itself, with MuJoCo. With the settings that Brax's notebook "
    "has for these robots on a GPU (2048 robots, batches of 512 stretches), PPO had a return of "
    "-20 after 235 s on one core; with small batches it learns. Run it with `--robots "
    "HalfCheetah-v5,Ant-v5 --keep --peer-python ppo=PYTHON`."
)
PATIENCE = 300
"""Seconds that PPO has for one seed (s)."""
GOOD = 2.3
"""A reward with which the robot walks."""
GOOD_G1 = 3.0
"""The same for G1, whose reward is at most four."""
RUNNERS = {
    "HalfCheetah-v5": learn.Settings(
        horizon=16, updates=400, hidden=(256, 128), average=0.95, std=0.5, state_clip=30.0
    ),
    "Ant-v5": learn.Settings(
        robots=128, horizon=8, updates=400, hidden=(256, 128), average=0.95, std=0.5,
        state_clip=100.0,
    ),
}  # fmt: skip
"""Settings of :func:`rbd_jax.learn.shac` for robots of gymnasium."""
RETURNS = {"HalfCheetah-v5": 1500.0, "Ant-v5": 2000.0}
"""Returns of an episode of 1000 control steps whose times are compared."""
SMALL_BATCHES = {
    "num_envs": 128, "batch_size": 64, "unroll_length": 16, "num_minibatches": 16,
    "num_updates_per_batch": 4, "learning_rate": 1e-3, "entropy_cost": 1e-2, "discounting": 0.99,
    "gae_lambda": 0.95, "reward_scaling": 0.1, "max_grad_norm": 1.0, "num_timesteps": 20_000_000,
    "num_evals": 200,
}  # fmt: skip
"""Settings of Brax's PPO for gymnasium's robots: the best of those tried, see :data:`GYMNASIUM`."""
OF_PLAYGROUND = SMALL_BATCHES | {
    "num_envs": 512, "batch_size": 128, "unroll_length": 20, "discounting": 0.97,
    "clipping_epsilon": 0.2, "num_evals": 40,
}  # fmt: skip
"""Settings of Brax's PPO for the quadruped."""
SPEEDS = (0.3, 0.5, 0.7, 0.8, 1.0)
PUSHES = (100, 150, 200, 300)


def main(options) -> None:
    """Three seeds, and what their policies do in MuJoCo."""
    report = Report("train", options, ABOUT)
    robots = options.robots or ["quadruped"]
    curves = {"g1": report.table("Reward while learning, G1")}
    curve = report.table("Reward while learning")
    walks = report.table("Walks in MuJoCo")
    pushed = report.table("Pushes in MuJoCo", "Walking at 0.6 m/s; pushed for 0.1 s, of 8 pushes.")
    others = report.table("Reward with PPO", PPO)
    returns = report.table("Returns of gymnasium's robots", GYMNASIUM)
    python = dict(x.split("=", 1) for x in options.peer_python or []).get("ppo")
    if python and "ppo" in robots:
        add_curve(others, "quadruped", 0, ppo(python, "quadruped", 0, 20 if options.tiny else 420))
        report.write()
    for robot in (r for r in robots if r in RUNNERS):
        for seed in range(1 if options.tiny else 3):
            row = {"robot": f"{robot}, seed {seed}", "return": RETURNS[robot]}
            returns.add(**row, learner="shac", **shac_returns(robot, seed, options.tiny))
            report.write()
            if python:
                found = ppo(python, robot, seed, 20 if options.tiny else PATIENCE)
                returns.add(**row, learner="PPO of Brax", **ppo_returns(robot, found))
                report.write()
    for robot in (r for r in robots if r != "ppo" and r not in RUNNERS):
        given = {"path": options.model} if robot != "quadruped" and options.model else {}
        env, mjcf = (
            getattr(tasks, robot)(jnp.float32, **given),
            getattr(tasks, f"{robot}_mjcf")(**given),
        )
        for seed in range(1 if options.tiny else 3):
            learned = train(curves.get(robot, curve), env, robot, seed, options.tiny)
            judge(walks, pushed, env, learned.policy, f"{robot}, seed {seed}", mjcf, options.tiny)
            if robot == "g1":
                whole, name = tasks.g1_mjcf(whole_soles=True, **given), "g1, whole soles"
                judge(
                    walks, pushed, env, learned.policy, f"{name}, seed {seed}", whole, options.tiny
                )
            report.write()


def train(table: Table, env, robot: str, seed: int, tiny: bool) -> learn.TrainResult:
    """Learn with one seed; a row with the reward after parts of the updates."""
    settings, good = learn.Settings(updates=300), GOOD
    if robot == "g1":
        settings, good = tasks.G1_WALK, GOOD_G1
    if tiny:
        settings = settings._replace(updates=2, robots=8, horizon=4)
    updates, key = settings.updates, jax.random.key(seed)
    began = time.perf_counter()
    first = learn.start(env, settings, key)
    jax.block_until_ready(learn.update(env, settings, first)[1].reward)
    compiling, processor = time.perf_counter() - began, time.process_time()
    learned = learn.shac(env, key, settings)
    processor = time.process_time() - processor
    reward, seconds = learned.history.reward, learned.seconds
    smooth = np.convolve(reward, np.ones(10) / 10, "valid") if updates >= 10 else reward
    reached = np.flatnonzero(smooth >= good)
    marks = [0, *(round(f * (updates - 1)) for f in (0.1, 0.25, 0.5, 1.0))]
    table.add(robot=f"{robot}, seed {seed}", updates=updates, compile_s=compiling,
              seconds=float(seconds[-1]), processor_s=processor,
              **{f"update {k + 1}": float(reward[k]) for k in marks},
              **{f"seconds to {good}": float(seconds[reached[0]]) if len(reached) else None},
              steps_simulated=updates * settings.robots * settings.horizon * env.substeps,
          )  # fmt: skip
    return learned


def ppo(python: str, robot: str, seed: int, seconds: float) -> list:
    """Control steps, seconds, reward and length of episodes while Brax's PPO learns."""
    good, hidden = RETURNS.get(robot, GOOD), (256, 128) if robot in RETURNS else (128, 64)
    spec = {"robot": robot, "seed": seed, "seconds": seconds, "good": good, "hidden": hidden,
            "settings": SMALL_BATCHES if robot in RETURNS else OF_PLAYGROUND}  # fmt: skip
    root = Path(__file__).parent
    where = os.environ | {"PYTHONPATH": str(root.parent), "JAX_PLATFORMS": "cpu"}
    command = [python, root / "_ppo.py"]
    done = subprocess.run(
        command, input=json.dumps(spec), capture_output=True, text=True, env=where
    )
    if done.returncode:
        raise RuntimeError(f"the process of PPO failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def ppo_returns(robot: str, rows: list) -> dict:
    """The columns of PPO: when the return was reached, and the best one."""
    reached = [seconds for _, seconds, reward, _ in rows if reward > RETURNS[robot]]
    return {"seconds to it": reached[0] if reached else None, "seconds": rows[-1][1],
            "control_steps": rows[-1][0], "best": max(r[2] for r in rows)}  # fmt: skip


def shac_returns(robot: str, seed: int, tiny: bool) -> dict:
    """The columns of SHAC. Returns are means of 32 episodes without noise, here; the last one is
    that of three episodes in gymnasium, simulated by MuJoCo itself."""
    env, settings = tasks.from_gymnasium(robot, jnp.float32), RUNNERS[robot]
    if tiny:
        settings = settings._replace(robots=8, horizon=2, updates=2)
    clock, found = {"judging": 0.0}, []
    began = time.perf_counter()

    def judge(policy) -> float:
        start = time.perf_counter()
        found.append(
            (start - began - clock["judging"], mean_return(env, policy, 5 if tiny else 1000))
        )
        clock["judging"] += time.perf_counter() - start
        return found[-1][1]

    learned = learn.shac(env, jax.random.key(seed), settings, judge=judge, every=25)
    total = time.perf_counter() - began - clock["judging"]
    reached = [seconds for seconds, x in found if x > RETURNS[robot]]
    return {"seconds to it": reached[0] if reached else None, "seconds": total,
            "control_steps": settings.updates * settings.robots * settings.horizon,
            "best": max(x for _, x in found),
            "best policy in MuJoCo": in_gymnasium(robot, learned.policy, tiny)}  # fmt: skip


def mean_return(env, policy, steps: int) -> float:
    """The mean return of 32 episodes of a policy without noise."""
    keys = jax.random.split(jax.random.key(1), 32)
    return float(_mean_return(env, policy, keys, steps))


@eqx.filter_jit
def _mean_return(env, policy, keys, steps: int):
    state = jax.vmap(env.begin)(keys)

    def control_step(carry, _):
        state, alive, total = carry
        action = jax.vmap(lambda s: policy(learn.observe(env, s)))(state)
        t = jax.vmap(env.transition)(state, action, keys)
        return (t.state, alive & ~t.terminated, total + jnp.where(alive, t.reward, 0)), None

    start = state, jnp.ones(len(keys), bool), jnp.zeros(len(keys), state.q.dtype)
    (_, _, total), _ = jax.lax.scan(control_step, start, None, length=steps)
    return total.mean()


def in_gymnasium(robot: str, policy, tiny: bool) -> float:
    """The mean return of three episodes in gymnasium itself."""
    import gymnasium

    forces = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}
    env = gymnasium.make(robot, **(forces if robot.startswith("Ant") else {}))
    act, total = learn.in_numpy(policy), 0.0
    for seed in range(3):
        seen, over, count = env.reset(seed=seed)[0], False, 0
        while not over and count < (5 if tiny else 1000):
            action = act(seen).astype(np.float32) * env.action_space.high
            seen, reward, failed, cut, _ = env.step(action)
            total, over, count = total + float(reward), failed or cut, count + 1
    return total / 3


def add_curve(table: Table, robot: str, seed: int, rows: list) -> None:
    """One row: the reward after parts of the time, and when it was good."""
    reached = [seconds for _, seconds, reward, _ in rows if reward > GOOD]
    marks = sorted({round(f * (len(rows) - 1)) for f in (0, 0.25, 0.5, 0.75, 1)})
    parts = {f"after {int(rows[k][1])} s": rows[k][2] for k in marks}
    table.add(robot=f"{robot}, seed {seed}", control_steps=rows[-1][0], seconds=rows[-1][1],
              **{f"seconds to {GOOD}": reached[0] if reached else None}, **parts,
              best=max(r[2] for r in rows), episode_steps=rows[-1][3])  # fmt: skip


def judge(walks: Table, pushed: Table, env, policy, name: str, mjcf, tiny) -> None:
    """Walks at several speeds, and with pushes."""
    for speed in SPEEDS[:1] if tiny else SPEEDS:
        seconds = 2.0 if tiny else 10.0
        walk = tasks.walk_in_mujoco(env, policy, mjcf, (speed, 0.0, 0.0), seconds)
        late = walk.velocity[walk.t > 1]
        mean = float(late[:, 0].mean()) if len(late) else None
        walks.add(robot=name, command=speed, seconds=float(walk.t[-1]),
                  fell=str(walk.fell), mean_speed=mean, error=walk.error())  # fmt: skip
    for force in PUSHES[:1] if tiny else PUSHES:
        survived = 0
        for k in range(1 if tiny else 8):
            angle = 2 * np.pi * k / 8
            push = force * np.cos(angle), force * np.sin(angle)
            walk = tasks.walk_in_mujoco(env, policy, mjcf, (0.6, 0.0, 0.0), 2.0 if tiny else 8.0,
                                        push=push, push_at=0.5 if tiny else 3 + 0.07 * k,
            )  # fmt: skip
            survived += not walk.fell
        pushed.add(robot=name, force_N=force, survived=survived)
