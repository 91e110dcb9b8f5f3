"""Training by gradients: losses of samples and of rollouts, and a deterministic loop."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ...model import Model, difference
from .._extras import extra
from .._progress import Progress, report
from ..data._dataset import Dataset, required
from ._dynamics import Dynamics
from ._learned import LearnedDynamics
from ._networks import Scaling

D = TypeVar("D")


class TorqueLoss(eqx.Module):
    """Mean square of the error of inverse dynamics, in units of ``size``. It needs no M⁻¹."""

    size: Float[Array, " nv"]
    """Typical torques (N m, N)."""

    def __call__(self, dynamics: LearnedDynamics, sample: Dataset) -> Float[Array, ""]:
        """The loss of one sample of q, v, a and tau."""
        v, a, tau = required("TorqueLoss", sample, "v", "a", "tau")
        error = dynamics.inverse(sample.q, v, a, sample.f_ext) - tau
        return jnp.mean((error / self.size) ** 2)


class ResidualLoss(eqx.Module):
    """The same number as :class:`TorqueLoss`, for data from :func:`residual_torques`.

    The torques of the rigid bodies are computed only once, before the training. This makes training
    several times faster.
    """

    size: Float[Array, " nv"]
    """Typical torques (N m, N)."""

    def __call__(self, dynamics: LearnedDynamics, sample: Dataset) -> Float[Array, ""]:
        """The loss of one sample of q, v, a and the residual torques tau."""
        v, a, tau = required("ResidualLoss", sample, "v", "a", "tau")
        error = dynamics.learned(sample.q, v, a) - tau
        return jnp.mean((error / self.size) ** 2)


class AccelerationLoss(eqx.Module):
    """Mean square of the error of forward dynamics, in units of ``size``."""

    size: Float[Array, " nv"]
    """Typical accelerations (rad/s², m/s²)."""

    def __call__(self, dynamics: Dynamics, sample: Dataset) -> Float[Array, ""]:
        """The loss of one sample of q, v, a and tau."""
        v, a, tau = required("AccelerationLoss", sample, "v", "a", "tau")
        error = dynamics(sample.q, v, tau, sample.f_ext) - a
        return jnp.mean((error / self.size) ** 2)


class RolloutLoss(eqx.Module):
    """Mean square of the error of simulated states, in units of ``q_size`` and ``v_size``.

    It needs no accelerations. The simulation starts at the first state of a window. Each recorded
    torque is held for a time step.
    """

    dt: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    """Time between samples (s)."""
    q_size: Float[Array, " nv"]
    """Typical size of ``difference(q, simulated q)`` (rad, m)."""
    v_size: Float[Array, " nv"]
    """Typical error of velocities (rad/s, m/s)."""
    integrator: str | Callable = eqx.field(static=True, default="implicit_damping")
    gradient: Literal["full", "checkpoint", "adjoint"] = eqx.field(static=True, default="full")
    substeps: int = eqx.field(static=True, default=1)

    def __call__(self, dynamics: Dynamics, window: Dataset) -> Float[Array, ""]:
        """The loss of one window of q, v and tau; the last torque is not used."""
        q, v = self.errors(dynamics, window)
        return jnp.mean((q / self.q_size[None]) ** 2) + jnp.mean((v / self.v_size[None]) ** 2)

    def errors(self, dynamics: Dynamics, window: Dataset):
        """Errors of q (in the tangent space) and of v for each simulated state, (T, nv) each."""
        v, tau = required("RolloutLoss", window, "v", "tau")
        path = dynamics.rollout(
            window.q[0],
            v[0],
            tau[:-1],
            self.dt,
            integrator=self.integrator,
            gradient=self.gradient,
            substeps=self.substeps,
        )
        apart = jax.vmap(lambda q0, q1: difference(dynamics.model, q0, q1))
        return apart(window.q[1:], path.q[1:]), path.v[1:] - v[1:]


def trainable(dynamics: PyTree) -> PyTree:
    """The leaves that :func:`train` changes: float arrays outside of models and scalings."""
    fixed = lambda x: isinstance(x, Model | Scaling)  # noqa: E731

    def mark(x):
        return jax.tree.map(lambda _: False, x) if fixed(x) else eqx.is_inexact_array(x)

    return jax.tree.map(mark, dynamics, is_leaf=fixed)


def train(
    loss: Callable[[D, Any], Float[Array, ""]],
    dynamics: D,
    data: PyTree,
    key: Key[Array, ""],
    *,
    steps: int = 1000,
    batch: int = 64,
    optimizer: Any = None,
    where: PyTree | None = None,
    progress: Progress | None = None,
) -> tuple[D, Float[Array, " steps"]]:
    """Minimize the mean loss over the data by stochastic gradients.

    It is one loop in one compiled program; call it under ``jax.jit``. The same key gives the same
    result. Map it over keys to train an ensemble:
    ``eqx.filter_vmap(lambda key: train(loss, make(key), data, key))(keys)``. To train coordinates
    of :class:`Parameters` with any loss, use ``train(lambda z, sample: loss(parameters.model(z),
    sample), parameters.start, data, key)``.

    Args:
        loss: ``loss(dynamics, sample) -> number``.
        dynamics: what to train, any equinox module or array.
        data: a pytree such as a :class:`Dataset`, with samples along the first axis of each array.
        key: random key of the batches.
        steps: number of updates.
        batch: number of samples in a batch, drawn with replacement.
        optimizer: an optax ``GradientTransformation``. If None, Adam with a learning rate that
            falls from 3e-3 to zero along a cosine, and with gradients clipped to length 1.
        where: booleans in the structure of ``dynamics`` that mark the leaves to change;
            :func:`trainable` if None.
        progress: called with the step and the loss about a hundred times.

    Returns:
        The trained dynamics, and the loss of each step's batch.

    Raises:
        ImportError: without optax.
    """
    optax = extra("optax")
    if optimizer is None:
        schedule = optax.cosine_decay_schedule(3e-3, steps)
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    moving, fixed = eqx.partition(dynamics, trainable(dynamics) if where is None else where)
    count = jax.tree.leaves(data)[0].shape[0]

    def objective(moving, rows):
        each = jax.vmap(lambda row: loss(eqx.combine(moving, fixed), row))
        return jnp.mean(each(rows))

    every = max(steps // 100, 1)

    def update(state, x):
        moving, memory = state
        key, step = x
        index = jax.random.randint(key, (batch,), 0, count)
        rows = jax.tree.map(lambda x: x[index], data)
        value, slope = jax.value_and_grad(objective)(moving, rows)
        # optax does not run under the strict promotion settings that a user may have.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            change, memory = optimizer.update(slope, memory, moving)
            moving = jax.tree.map(lambda x, d: x + d.astype(x.dtype), moving, change)
        if progress is not None:
            jax.lax.cond(step % every == 0, lambda: report(progress, step, value), lambda: None)
        return (moving, memory), value

    start = moving, optimizer.init(moving)
    rows = jax.random.split(key, steps), jnp.arange(steps, dtype=jnp.int32)
    (moving, _), losses = jax.lax.scan(update, start, rows)
    return eqx.combine(moving, fixed), losses
