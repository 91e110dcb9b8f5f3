"""Training by gradients: losses of samples and of rollouts, and a deterministic loop."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ..model import Model, difference
from ._dynamics import Dynamics
from ._extras import extra
from ._networks import Scaling
from .data import Dataset, required
from .hybrid_models import Hybrid

D = TypeVar("D")


class TorqueLoss(eqx.Module):
    """Mean square of the error of inverse dynamics, in units of ``size`` (no M⁻¹)."""

    size: Float[Array, " nv"]
    """Torques (N m, N)."""

    def __call__(self, dynamics: Hybrid, sample: Dataset) -> Float[Array, ""]:
        """Of one sample of q, v, a, tau."""
        v, a, tau = required("TorqueLoss", sample, "v", "a", "tau")
        error = dynamics.inverse(sample.q, v, a, sample.f_ext) - tau
        return jnp.mean((error / self.size) ** 2)


class ResidualLoss(eqx.Module):
    """The :class:`TorqueLoss` on data of :func:`unexplained` torques.

    The rigid bodies are computed once for all, which makes training several times faster.
    """

    size: Float[Array, " nv"]
    """Torques (N m, N)."""

    def __call__(self, dynamics: Hybrid, sample: Dataset) -> Float[Array, ""]:
        """Of one sample of q, v, a and unexplained tau."""
        v, a, tau = required("ResidualLoss", sample, "v", "a", "tau")
        error = dynamics.learned(sample.q, v, a) - tau
        return jnp.mean((error / self.size) ** 2)


class AccelerationLoss(eqx.Module):
    """Mean square of the error of forward dynamics, in units of ``size``."""

    size: Float[Array, " nv"]
    """Accelerations (rad/s², m/s²)."""

    def __call__(self, dynamics: Dynamics, sample: Dataset) -> Float[Array, ""]:
        """Of one sample of q, v, a, tau."""
        v, a, tau = required("AccelerationLoss", sample, "v", "a", "tau")
        error = dynamics(sample.q, v, tau, sample.f_ext) - a
        return jnp.mean((error / self.size) ** 2)


class RolloutLoss(eqx.Module):
    """Mean square of the error of simulated states, in units of ``q_size`` and ``v_size``.

    Needs no accelerations. The simulation starts at the first state of a window, under the
    recorded torques, each held for a time step.
    """

    dt: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    """Time between samples (s)."""
    q_size: Float[Array, " nv"]
    """Of ``difference(q, simulated q)`` (rad, m)."""
    v_size: Float[Array, " nv"]
    """Of velocities (rad/s, m/s)."""
    integrator: str | Callable = eqx.field(static=True, default="semi_implicit_euler")
    gradient: Literal["full", "checkpoint", "adjoint"] = eqx.field(static=True, default="full")
    substeps: int = eqx.field(static=True, default=1)

    def __call__(self, dynamics: Dynamics, window: Dataset) -> Float[Array, ""]:
        """Of one window of q, v and tau, see :meth:`Dataset.windows`; the last torque is unused."""
        q, v = self.errors(dynamics, window)
        return jnp.mean((q / self.q_size[None]) ** 2) + jnp.mean((v / self.v_size[None]) ** 2)

    def errors(self, dynamics: Dynamics, window: Dataset):
        """Errors of q (tangent) and v of each simulated state, (T, nv) twice."""
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
    """Which leaves :func:`train` changes: all arrays of floats but robots and scalings."""
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
) -> tuple[D, Float[Array, " steps"]]:
    """Minimise the mean loss over the data by stochastic gradients.

    One compiled loop, the same for the same key; put it under ``jax.jit``. Map it over keys for an
    ensemble: ``eqx.filter_vmap(lambda key: train(loss, make(key), data, key))(keys)``. Coordinates
    of :class:`Parameters` are trained with any loss by
    ``train(lambda z, sample: loss(learn.model(z), sample), learn.start, data, key)``.

    Args:
        loss: ``loss(dynamics, sample) -> number``; losses may be added up.
        dynamics: what to train, any equinox module or array.
        data: a pytree, as a :class:`Dataset`; samples along the first axis of each array.
        key: random key of the batches.
        steps: number of updates.
        batch: samples in each, drawn with replacement.
        optimizer: an optax ``GradientTransformation``; Adam with a learning rate that falls from
            3e-3 to zero along a cosine, and gradients clipped to length 1, if None.
        where: booleans of the structure of ``dynamics``, which leaves to change;
            :func:`trainable` if None.

    Returns:
        The trained dynamics, and the loss of the batch of each step.

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

    def update(state, key):
        moving, memory = state
        index = jax.random.randint(key, (batch,), 0, count)
        rows = jax.tree.map(lambda x: x[index], data)
        value, slope = jax.value_and_grad(objective)(moving, rows)
        # optimisers are not written for the strict settings that a user may have
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            change, memory = optimizer.update(slope, memory, moving)
            moving = jax.tree.map(lambda x, d: x + d.astype(x.dtype), moving, change)
        return (moving, memory), value

    start = moving, optimizer.init(moving)
    (moving, _), losses = jax.lax.scan(update, start, jax.random.split(key, steps))
    return eqx.combine(moving, fixed), losses
