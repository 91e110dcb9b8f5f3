"""PPO of Brax on a task of this library, in a process of its own.

The simulation, reward and robots are those of the task, through :func:`rbd_jax.learn.as_brax`. Only
the learner is Brax's. Reads a JSON of options from the standard input and writes the curve as JSON:
control steps, seconds of training, reward, length of the episodes.
"""

import functools
import json
import os
import sys
import time

import jax
import jax.numpy as jnp
from brax.training.agents.ppo import networks, train as ppo  # pyright: ignore

from rbd_jax import learn, tasks

# Brax 0.14 calls a function that JAX 0.10 no longer has. Here is one device.
jax.device_put_replicated = lambda tree, devices: jax.tree.map(  # pyright: ignore
    lambda x: jnp.stack([x] * len(devices)), tree
)


class Enough(Exception):
    """The time is over."""


def main() -> None:
    """Learn until the time is over or the reward is good."""
    options = json.load(sys.stdin)
    name, hidden = options["robot"], tuple(options["hidden"])
    of_gymnasium = name.endswith("-v5")
    env = (
        tasks.from_gymnasium(name, jnp.float32)
        if of_gymnasium
        else getattr(tasks, name)(jnp.float32)
    )
    rows, began = [], time.perf_counter()

    def progress(step: int, metrics) -> None:
        length = float(metrics["eval/avg_episode_length"])
        reward = float(metrics["eval/episode_reward"]) / (1 if of_gymnasium else length)
        trained = float(metrics.get("training/walltime", 0.0))
        rows.append((int(step), trained, reward, length))
        print(*rows[-1], file=sys.stderr, flush=True)
        if time.perf_counter() - began > options["seconds"] or reward > options["good"]:
            raise Enough

    network = functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=hidden,
        value_hidden_layer_sizes=hidden,
    )
    try:
        ppo.train(
            environment=learn.as_brax(env), episode_length=env.episode, normalize_observations=True,
            network_factory=network, progress_fn=progress, num_eval_envs=64, seed=options["seed"],
            deterministic_eval=of_gymnasium, **options["settings"],
        )  # fmt: skip
    except Enough:
        pass
    print(json.dumps(rows))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
