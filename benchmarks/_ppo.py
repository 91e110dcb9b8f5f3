"""PPO of Brax on a walking task of ``rbd_jax.learn``, in a process of its own.

The simulation, reward, robots and commands are those of the task. Only the learner is Brax's, with
the settings of MuJoCo Playground for Go1 but for the sizes of batches and networks, which suit two
cores. Reads a JSON of options from the standard input and writes the curve as JSON.
"""

import functools
import json
import os
import sys
import time

import jax
import jax.numpy as jnp
from brax.envs import Env, State  # pyright: ignore
from brax.training.agents.ppo import networks, train as ppo  # pyright: ignore

from rbd_jax import learn, tasks
from rbd_jax.learn._environment import judge_step

# Brax 0.14 calls a function that JAX 0.10 no longer has. Here is one device.
jax.device_put_replicated = lambda tree, devices: jax.tree.map(  # pyright: ignore
    lambda x: jnp.stack([x] * len(devices)), tree
)


class Task(Env):
    """A task of ``rbd_jax.learn`` as an environment of Brax."""

    def __init__(self, env: learn.Environment):
        self.env = env
        state = jax.eval_shape(env.begin, jax.random.key(0))
        self.size = jax.eval_shape(learn.observe, env, state).shape[0]

    def reset(self, rng: jax.Array) -> State:
        """An episode begins."""
        begin, rest = jax.random.split(rng)
        state = self.env.begin(begin)
        seen, zero = learn.observe(self.env, state), jnp.zeros(())
        return State(state, seen, zero, zero, {}, {"pushes": rest})

    def step(self, state: State, action: jax.Array) -> State:
        """One control step, and the random events before the next one."""
        now, (push, rest) = state.pipeline_state, jax.random.split(state.info["pushes"])
        after = learn.advance(self.env, now, action)
        reward, failed = judge_step(self.env, now, action, after)
        after = self.env.disturb(after, push)
        return state.replace(
            pipeline_state=after,
            obs=learn.observe(self.env, after),
            reward=jnp.where(jnp.isfinite(reward), reward, 0),
            done=failed.astype(float),
            info=state.info | {"pushes": rest},
        )

    @property
    def observation_size(self) -> int:
        """Numbers that the policy sees."""
        return self.size

    @property
    def action_size(self) -> int:
        """Numbers that the policy chooses."""
        return self.env.actions

    @property
    def backend(self) -> str:
        """Brax asks for a name."""
        return "rbd_jax"


class Enough(Exception):
    """The time is over."""


def main() -> None:
    """Learn until the time is over."""
    options = json.load(sys.stdin)
    env = getattr(tasks, options["robot"])(jnp.float32)
    rows, began = [], time.perf_counter()

    def progress(step: int, metrics) -> None:
        length = float(metrics["eval/avg_episode_length"])
        reward = float(metrics["eval/episode_reward"]) / length
        trained = float(metrics.get("training/walltime", 0.0))
        rows.append((int(step), trained, reward, length))
        print(*rows[-1], file=sys.stderr, flush=True)
        if time.perf_counter() - began > options["seconds"] or reward > options["good"]:
            raise Enough

    network = functools.partial(
        networks.make_ppo_networks, policy_hidden_layer_sizes=(128, 64),
        value_hidden_layer_sizes=(128, 64),
    )  # fmt: skip
    try:
        ppo.train(
            environment=Task(env), num_timesteps=options["steps"], num_evals=options["evals"],
            episode_length=env.episode, num_envs=options["robots"], unroll_length=20,
            batch_size=options["robots"] // 4, num_minibatches=16, num_updates_per_batch=4,
            learning_rate=options["rate"], entropy_cost=1e-2, discounting=0.97, gae_lambda=0.95,
            clipping_epsilon=0.2, reward_scaling=options["scale"], normalize_observations=True,
            max_grad_norm=1.0, network_factory=network, progress_fn=progress,
            num_eval_envs=64, seed=options["seed"],
        )  # fmt: skip
    except Enough:
        pass
    print(json.dumps(rows))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
