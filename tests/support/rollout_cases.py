"""A policy, weights, and a score of the rollouts of a robot."""

import equinox as eqx
import jax
import jax.numpy as jnp

from rbd_jax.simulate import Checkpoint

T, DT = 12, 0.01
MODES = {
    "full": {},
    "levels": {"gradient": "checkpoint"},
    "three levels": {"gradient": Checkpoint(levels=3)},
    "every step": {"gradient": Checkpoint(levels=1)},
    "every 5": {"gradient": Checkpoint(every=5)},  # with a remainder
    "adjoint": {"gradient": "adjoint"},
}


class Policy(eqx.Module):
    """A small network of the time, the cosine of the state and a noise."""

    net: eqx.nn.MLP

    def __init__(self, model, key):
        self.net = eqx.nn.MLP(
            1 + model.nq + model.nv, model.nv, 4, 1, activation=jnp.tanh, key=key,
            dtype=model.dtype,
        )  # fmt: skip

    def __call__(self, t, q, v, key=None):
        noise = 0.0 if key is None else jax.random.normal(key, v.shape, v.dtype)
        return self.net(jnp.concatenate([t[None], jnp.cos(q), v])) + 0.1 * noise


def weights_of(x):
    return jnp.sin(1.0 + jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape)


def score(path):
    """Of all states and controls, so that every cotangent of the rollout is there."""
    return sum(jnp.sum(weights_of(x) * x) for x in (path.q, path.v, path.controls))
