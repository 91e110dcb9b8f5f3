"""What the adapters to other libraries share."""

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._environment import Environment


def needed(function: str, package: str) -> Any:
    """The module of an optional package.

    Raises:
        ImportError: if the package is missing, with the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        extra = package.partition(".")[0]
        raise ImportError(
            f"{function} needs the package {extra}, which is not there or does not load ({error}); "
            f"install it with: pip install 'rbd-jax[{extra}]'"
        ) from error


def check(function: str, env: Any) -> None:
    """Raise TypeError if this is no environment."""
    if not isinstance(env, Environment):
        raise TypeError(
            f"{function}: env must be an rbd_jax.learn.Environment, got {type(env).__name__}"
        )


def bounded(action: Array, dtype: Any) -> Array:
    """The action between -1 and 1, in the precision of the environment."""
    return jnp.clip(jnp.asarray(action, dtype), -1, 1)


def typed(key: Array) -> Array:
    """A typed key of a key that may be of the older kind, an array of integers."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def observation_size(env: Environment) -> int:
    """The number of observations."""
    return jax.eval_shape(env.reset, jax.random.key(0))[1].shape[0]
