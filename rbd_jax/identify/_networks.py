"""Networks of a robot's state: inputs that respect the manifold, scales, and the perceptron."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ..derivatives.rules import inverse_dynamics
from ..model import Model, Topology
from ..model.arguments import checked
from ..spatial import so3
from .data import Dataset, required


def _places(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where q holds angles (n,), lengths (n,) and quaternions (n, 4)."""
    start = lambda *kinds: topology.q_starts[topology.bodies_of(*kinds)]  # noqa: E731
    points = start("translation", "free")[:, None] + np.arange(3)
    lengths = np.concatenate([start("prismatic", "helical"), points.reshape(-1)])
    quaternions = np.concatenate([start("spherical"), start("free") + 3])[:, None] + np.arange(4)
    return start("revolute", "helical"), np.sort(lengths), quaternions


@checked
def features(model: Model, q: Float[Array, " nq"]) -> Float[Array, " features"]:
    """A smooth embedding of the configuration space: what networks see of q.

    Cosine and sine of angles, so that a full turn changes nothing; rotation matrices of spherical
    and free joints, so that a quaternion's sign and length change nothing; lengths as they are (m).
    A helical joint has cosine, sine and its coordinate, for it advances as it turns.
    """
    angles, lengths, quaternions = _places(model.topology)
    R = so3.quat_to_matrix(so3.quat_normalize(q[quaternions]))
    turns = q[angles]
    return jnp.concatenate([jnp.cos(turns), jnp.sin(turns), q[lengths], R.reshape(-1)])


def feature_count(topology: Topology) -> int:
    """The number of :func:`features`."""
    angles, lengths, quaternions = _places(topology)
    return 2 * len(angles) + len(lengths) + 9 * len(quaternions)


class Scaling(eqx.Module):
    """Typical sizes, which bring the inputs and outputs of networks to order one. Never trained."""

    center: Float[Array, "*b features"]
    """Mean of the features."""
    spread: Float[Array, "*b features"]
    """Their standard deviation."""
    velocity: Float[Array, "*b nv"]
    """Speeds (rad/s, m/s)."""
    slow: Float[Array, "*b nv"]
    """Speeds over which dry friction changes its sign (rad/s, m/s)."""
    acceleration: Float[Array, "*b nv"]
    """Accelerations (rad/s², m/s²)."""
    torque: Float[Array, "*b nv"]
    """Torques that drive the joints (N m, N)."""
    residual: Float[Array, "*b nv"]
    """Torques that the rigid-body model does not explain (N m, N)."""

    def configuration(self, phi: Float[Array, " features"]) -> Float[Array, " features"]:
        """The features, centred and scaled."""
        return (phi - self.center) / self.spread

    def motion(self, v: Float[Array, " nv"]) -> Float[Array, " 3*nv"]:
        """The velocity on three scales; the finest is a smooth sign.

        Networks of smooth units find no jump by themselves, and dry friction has one.
        """
        middle = jnp.sqrt(self.velocity * self.slow)
        fine = [jnp.tanh(v / speed) for speed in (middle, self.slow)]
        return jnp.concatenate([v / self.velocity, *fine])


@checked
def unit_scaling(model: Model) -> Scaling:
    """All sizes one; dry friction changes its sign within 0.05 rad/s or m/s."""
    zero = jnp.zeros((feature_count(model.topology),), model.dtype)
    one = jnp.ones((model.nv,), model.dtype)
    return Scaling(zero, zero + 1, one, 0.05 * one, one, one, one)


def unexplained(model: Model, data: Dataset) -> Dataset:
    """The data with those torques alone that the rigid bodies do not explain (N m, N).

    Args:
        model: the robot.
        data: samples (N,) of q, v, a and tau, and f_ext if there are wrenches.
    """
    _, _, tau = required("unexplained", data, "v", "a", "tau")
    rigid = jax.vmap(lambda x: inverse_dynamics(model, x.q, x.v, x.a, x.f_ext))(data)
    return eqx.tree_at(lambda d: d.tau, data, tau - rigid)


def scaling_of(model: Model, data: Dataset, *, rigid: bool = True, slow: float = 0.02) -> Scaling:
    """Typical sizes from recorded q, v, a and tau: standard deviations and root mean squares.

    Args:
        model: the robot.
        data: samples, or trajectories of samples.
        rigid: False if no rigid bodies explain a part of the torques.
        slow: speeds over which dry friction changes its sign, as a fraction of typical speeds.
    """
    data = data.samples()
    v, a, tau = required("scaling_of", data, "v", "a", "tau")
    phi = jax.vmap(lambda q: features(model, q))(data.q)
    # what hardly moves is not blown up
    spread = jnp.maximum(jnp.std(phi, axis=0), 0.1)
    (rest,) = required("scaling_of", unexplained(model, data) if rigid else data, "tau")
    speed, acceleration, torque, residual = (_size(x) for x in (v, a, tau, rest))
    return Scaling(
        jnp.mean(phi, axis=0), spread, speed, slow * speed, acceleration, torque, residual
    )


def _size(x: Float[Array, "N n"]) -> Float[Array, " n"]:
    """Root mean squares, at least a thousandth of the greatest, 1 if all is zero."""
    size = jnp.sqrt(jnp.mean(x * x, axis=0))
    most = jnp.max(size, initial=0)
    return jnp.where(most > 0, jnp.maximum(size, 1e-3 * most), 1)


class Sizes(NamedTuple):
    """Of the networks: units in a layer, hidden layers."""

    width: int = 32
    depth: int = 2


SIZES = Sizes()


class Network(eqx.Module):
    """A perceptron of tanh units, smooth, so that energies made of it have smooth forces.

    All its leaves are arrays, so that it passes through plain ``jax.jit``.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(
        self, inputs: int, outputs: int, sizes: Sizes, key: Key[Array, ""], dtype, start: float
    ):
        """``start`` multiplies the last layer: with 0 the network starts as the zero function."""
        widths = [inputs, *[sizes.width] * sizes.depth, outputs]
        keys = jax.random.split(key, len(widths) - 1)
        *hidden, last = (
            eqx.nn.Linear(m, n, dtype=dtype, key=k)
            for m, n, k in zip(widths[:-1], widths[1:], keys, strict=True)
        )
        self.layers = (*hidden, jax.tree.map(lambda x: start * x, last))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs, of order one for inputs of order one."""
        with jax.default_matmul_precision("highest"):  # else a GPU multiplies in TF32
            for layer in self.layers[:-1]:
                x = jnp.tanh(layer(x))
            return self.layers[-1](x)
