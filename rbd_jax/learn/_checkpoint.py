"""Checkpoints: the complete state of a learner in one ``.npz`` file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._environment import Environment
from ._networks import Policy
from ._shac import Learner, Settings, start


def save_checkpoint(
    path: Path, settings: Settings, learner: Learner, rows: Sequence[np.ndarray]
) -> None:
    """Write a checkpoint. An existing file is replaced atomically."""
    leaves = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(learner)]
    named: dict[str, Any] = {f"leaf{k}": np.asarray(x) for k, x in enumerate(leaves)}
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, settings=_told(settings), history=np.array(rows), **named)
    os.replace(partial, path)


def load_checkpoint(
    path: str | os.PathLike, env: Environment, settings: Settings | None = None
) -> tuple[Learner, list[np.ndarray]]:
    """The learner of a checkpoint, and the rows of its history.

    Raises:
        ValueError: if the file was written with other settings than these, or for another task.
    """
    with np.load(path) as stored:
        told, history = str(stored["settings"]), list(stored["history"])
        leaves = [stored[f"leaf{k}"] for k in range(len(stored.files) - 2)]
    if settings is not None and told != _told(settings):
        raise ValueError(
            f"{path} was written with the settings {told}, and now they are {_told(settings)}. "
            "Use the same settings or another file"
        )
    numbers = json.loads(told)
    written = Settings(**{**numbers, "hidden": tuple(numbers["hidden"])})
    like = eqx.filter_eval_shape(start, env, written, jax.random.key(0))
    wanted, tree = jax.tree.flatten(like)
    leaves = [
        jax.random.wrap_key_data(jnp.asarray(x)) if _is_key(y) else jnp.asarray(x)
        for x, y in zip(leaves, wanted, strict=False)
    ]
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in wanted]:
        raise ValueError(f"{path} was written for another task, precision or version")
    return jax.tree.unflatten(tree, leaves), history


def load_policy(path: str | os.PathLike, env: Environment) -> Policy:
    """The policy of a checkpoint: the best one if policies were judged, and the last one otherwise.

    Args:
        path: a file that :func:`shac` or :func:`bptt` wrote.
        env: the task that the policy was learned for.

    Raises:
        ValueError: if the file was written for another task or in another precision.
    """
    return load_checkpoint(path, env)[0].chosen


def _is_key(x) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _told(settings: Settings) -> str:
    return json.dumps(settings._asdict())
