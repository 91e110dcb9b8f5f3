"""A learned policy without JAX, for another simulator or a real robot."""

from collections.abc import Callable

import numpy as np

from ._networks import Policy, Symmetric


def in_numpy(policy: Policy) -> Callable[[np.ndarray], np.ndarray]:
    """The policy without noise, as a function of NumPy arrays in float64."""
    mean, variance = (np.asarray(x, float) for x in (policy.normalizer.mean,
                                                     policy.normalizer.variance))  # fmt: skip
    network = policy.network
    net = network.network if isinstance(network, Symmetric) else network
    layers = [(np.asarray(l.weight, float), np.asarray(l.bias, float)) for l in net.layers]
    norms = [(np.asarray(n.weight, float), np.asarray(n.bias, float), n.eps) for n in net.norms]

    def outputs(x: np.ndarray) -> np.ndarray:
        for (W, b), (scale, shift, eps) in zip(layers[:-1], norms, strict=True):
            x = W @ x + b
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
            x = scale * (x - x.mean()) / np.sqrt(x.var() + eps) + shift
        W, b = layers[-1]
        return W @ x + b

    def act(x: np.ndarray) -> np.ndarray:
        x = np.clip((x - mean) / np.sqrt(variance + 1e-4), -10, 10)
        return np.tanh(network.mean(outputs, x) if isinstance(network, Symmetric) else outputs(x))

    return act
