"""Fits by stochastic gradient descent, for losses and data of any kind."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..model import Model
from ._extras import extra
from ._parameters import Parameters
from .data import Dataset


def fit_by_descent(
    learn: Parameters,
    loss: Callable[[Model, Dataset], Array],
    data: Dataset,
    key: Key[Array, ""],
    *,
    optimizer: Any = None,
    epochs: int = 20,
    size: int = 64,
    start: Float[Array, " k"] | None = None,
) -> tuple[Model, Float[Array, " k"], Float[Array, " epochs"]]:
    """Minimise ``loss(model, batch)`` over random minibatches, with any optax optimiser.

    Args:
        learn: what to learn.
        loss: a number for a robot and a part of the data along their first axis.
        data: samples, or windows of motions.
        key: of the order of the data.
        optimizer: an optax ``GradientTransformation``, ``adam(1e-2)`` if None.
        epochs: how often the data are gone through. size: of a minibatch.
        start: first guess of z.

    Returns:
        The robot, its coordinates, and the mean loss of each epoch.
    """
    optax = extra("optax")
    optimizer = optax.adam(1e-2) if optimizer is None else optimizer
    z = learn.start if start is None else start

    def batch_step(state, batch):
        z, memory = state
        cost, slope = jax.value_and_grad(lambda z: loss(learn.model(z), batch))(z)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            change, memory = optimizer.update(slope, memory, z)
        return (z + change, memory), cost

    def epoch(state, key):
        state, costs = jax.lax.scan(batch_step, state, data.minibatches(key, size))
        return state, jnp.mean(costs)

    (z, _), history = jax.lax.scan(epoch, (z, optimizer.init(z)), jax.random.split(key, epochs))
    return learn.model(z), z, history
