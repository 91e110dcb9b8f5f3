"""The policy and the value function: perceptrons of observations that are scaled to unit size.

If the task has mirror symmetry, both networks are equivariant.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ._mirror import Mirror, Reflection


class Normalizer(eqx.Module):
    """Mean and variance of all observations so far."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    count: Float[Array, ""]

    @classmethod
    def new(cls, n: int, dtype) -> "Normalizer":
        """Zero mean and unit variance, with the weight of a single observation."""
        return cls(jnp.zeros((n,), dtype), jnp.ones((n,), dtype), jnp.ones((), dtype))

    def __call__(self, x: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        """The observations in units of their spread, cut at ten."""
        scale = jax.lax.rsqrt(self.variance + 1e-4)
        return jnp.clip((x - self.mean) * scale, -10, 10)

    def after(self, x: Float[Array, "b n"]) -> "Normalizer":
        """The normalizer updated with more observations.

        Source: Chan, Golub, LeVeque (1983), merging of variances.
        """
        n, m = self.count, jnp.asarray(len(x), x.dtype)
        mean, variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
        apart, total = mean - self.mean, n + m
        spread = (n * self.variance + m * variance + n * m / total * apart**2) / total
        # Old observations are forgotten in the end, because the policy that made them changed.
        return Normalizer(self.mean + apart * m / total, spread, jnp.minimum(total, 1e6))


class Perceptron(eqx.Module):
    """Layers of ELU units, each followed by a layer norm, as in SHAC."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]

    def __init__(self, widths: Sequence[int], key: Key[Array, ""], dtype, last: float = 1.0):
        """``last`` scales the last layer."""
        keys = jax.random.split(key, len(widths) - 1)
        ends = zip(widths[:-1], widths[1:], keys, strict=True)
        layers = [eqx.nn.Linear(m, n, dtype=dtype, key=k) for m, n, k in ends]
        layers[-1] = jax.tree.map(lambda x: last * x, layers[-1])
        self.layers = tuple(layers)
        self.norms = tuple(eqx.nn.LayerNorm(n, dtype=dtype) for n in widths[1:-1])

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """The outputs for one input."""
        with jax.default_matmul_precision("highest"):
            for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
                x = norm(jax.nn.elu(layer(x)))
            return self.layers[-1](x)


class Symmetric(eqx.Module):
    """An equivariant perceptron: the mean of the outputs for the input and for its mirror image.

    The image of the input gives the image of the output, for any weights.
    """

    network: Perceptron
    input: Reflection = eqx.field(static=True)
    output: Reflection | None = eqx.field(static=True)
    """None if the output is invariant, as for a value function."""

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """The outputs for one input."""
        return self.mean(self.network, x)

    def mean(self, network: Callable[[Any], Any], x: Any) -> Any:
        """The outputs for one input, where ``network`` computes what the perceptron does."""
        one, image = network(x), network(self.input(x))
        return 0.5 * (one + (image if self.output is None else self.output(image)))


class Policy(eqx.Module):
    """A Gaussian policy whose actions pass through tanh, so that they lie between -1 and 1."""

    normalizer: Normalizer
    network: Perceptron | Symmetric
    log_std: Float[Array, " na"]
    """Logarithm of the standard deviation, before tanh."""

    def __call__(self, observation: Float[Array, " n"]) -> Float[Array, " na"]:
        """The action without noise."""
        return jnp.tanh(self.network(self.normalizer(observation)))

    def sample(self, observation: Array, noise: Float[Array, " na"]) -> Float[Array, " na"]:
        """A random action; its derivatives follow the noise (reparameterization)."""
        mean = self.network(self.normalizer(observation))
        return jnp.tanh(mean + jnp.exp(self.log_std) * noise)


def new_policy(
    observations: int, actions: int, hidden, key, dtype, std: float, mirror: Mirror | None
) -> Policy:
    """A policy whose first actions are near zero. With a mirror it is equivariant."""
    network = Perceptron((observations, *hidden, actions), key, dtype, last=0.1)
    spread = jnp.full((actions,), jnp.log(std), dtype)
    if mirror is not None:
        network = Symmetric(network, mirror.observation, mirror.action)
    return Policy(Normalizer.new(observations, dtype), network, spread)


def new_value(observations: int, hidden, key, dtype, mirror: Mirror | None):
    """A value function. With a mirror it is invariant."""
    network = Perceptron((observations, *hidden, 1), key, dtype)
    return network if mirror is None else Symmetric(network, mirror.observation, None)
