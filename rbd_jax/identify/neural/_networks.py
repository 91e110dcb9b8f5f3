"""Networks of a robot's state: inputs that respect the manifold, scaling, and the perceptron."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...model import Model, Topology
from ...model.arguments import checked
from ...spatial import so3
from ..data._dataset import Dataset, required


def _places(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices into q of angles (n,), lengths (n,) and quaternions (n, 4)."""
    start = lambda *kinds: topology.q_starts[topology.bodies_of(*kinds)]  # noqa: E731
    points = start("translation", "free")[:, None] + np.arange(3)
    lengths = np.concatenate([start("prismatic", "helical"), points.reshape(-1)])
    quaternions = np.concatenate([start("spherical"), start("free") + 3])[:, None] + np.arange(4)
    return start("revolute", "helical"), np.sort(lengths), quaternions


@checked
def features(model: Model, q: Float[Array, " nq"]) -> Float[Array, " features"]:
    """A smooth embedding of the configuration space, which is the input of networks.

    Angles give their cosine and sine, so that a full turn changes nothing. Spherical and free
    joints give rotation matrices, so that the sign and length of a quaternion change nothing.
    Lengths are used directly (m). A helical joint advances as it turns, so it gives cosine, sine
    and its coordinate. Derivatives are those of autodiff.
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
    """Typical sizes, which bring inputs and outputs of networks to order one. They stay fixed."""

    center: Float[Array, "*b features"]
    """Mean of the features."""
    spread: Float[Array, "*b features"]
    """Standard deviation of the features."""
    velocity: Float[Array, "*b nv"]
    """Speeds (rad/s, m/s)."""
    slow: Float[Array, "*b nv"]
    """Speeds over which dry friction changes its sign (rad/s, m/s)."""
    acceleration: Float[Array, "*b nv"]
    """Accelerations (rad/s², m/s²)."""
    torque: Float[Array, "*b nv"]
    """Torques that drive the joints (N m, N)."""
    residual: Float[Array, "*b nv"]
    """Torques that the rigid-body model does not predict (N m, N)."""

    def configuration(self, phi: Float[Array, " features"]) -> Float[Array, " features"]:
        """The features, centered and scaled."""
        return (phi - self.center) / self.spread

    def motion(self, v: Float[Array, " nv"]) -> Float[Array, " 3*nv"]:
        """The velocity on three scales. The finest one is a smooth sign function.

        Dry friction has a jump, which networks of smooth units cannot represent without such an
        input.
        """
        middle = jnp.sqrt(self.velocity * self.slow)
        fine = [jnp.tanh(v / speed) for speed in (middle, self.slow)]
        return jnp.concatenate([v / self.velocity, *fine])


@checked
def unit_scaling(model: Model) -> Scaling:
    """A scaling in which all sizes are one. Dry friction changes sign within 0.05 rad/s or m/s."""
    zero = jnp.zeros((feature_count(model.topology),), model.dtype)
    one = jnp.ones((model.nv,), model.dtype)
    return Scaling(zero, zero + 1, one, 0.05 * one, one, one, one)


def residual_torques(model: Model, data: Dataset) -> Dataset:
    """The data with the residual torques, which the rigid bodies do not predict, as tau (N m, N).

    Derivatives follow the analytical rule of :func:`rbd_jax.inverse_dynamics`.

    Args:
        model: the robot.
        data: samples (N,) of q, v, a and tau, and of f_ext if there are wrenches.
    """
    _, _, tau = required("residual_torques", data, "v", "a", "tau")
    rigid = jax.vmap(lambda x: inverse_dynamics(model, x.q, x.v, x.a, x.f_ext))(data)
    return eqx.tree_at(lambda d: d.tau, data, tau - rigid)


def scaling_of(model: Model, data: Dataset, *, rigid: bool = True, slow: float = 0.02) -> Scaling:
    """Typical sizes from recorded q, v, a and tau: standard deviations and root mean squares.

    Args:
        model: the robot.
        data: samples, or trajectories of samples.
        rigid: whether the dynamics contain rigid bodies. If False, all torques are residual.
        slow: speeds over which dry friction changes its sign, as a fraction of typical speeds.
    """
    data = data.samples()
    v, a, tau = required("scaling_of", data, "v", "a", "tau")
    phi = jax.vmap(lambda q: features(model, q))(data.q)
    # The lower bound keeps features that hardly change from becoming large.
    spread = jnp.maximum(jnp.std(phi, axis=0), 0.1)
    (rest,) = required("scaling_of", residual_torques(model, data) if rigid else data, "tau")
    speed, acceleration, torque, residual = (_size(x) for x in (v, a, tau, rest))
    return Scaling(
        jnp.mean(phi, axis=0), spread, speed, slow * speed, acceleration, torque, residual
    )


def _size(x: Float[Array, "N n"]) -> Float[Array, " n"]:
    """Root mean squares, at least a thousandth of the greatest one; 1 if all are zero."""
    size = jnp.sqrt(jnp.mean(x * x, axis=0))
    most = jnp.max(size, initial=0)
    return jnp.where(most > 0, jnp.maximum(size, 1e-3 * most), 1)


class Sizes(NamedTuple):
    """Size of a network: units in a layer, and number of hidden layers."""

    width: int = 32
    depth: int = 2


SIZES = Sizes()


class Network(eqx.Module):
    """A perceptron of tanh units. It is smooth, so that learned energies have smooth forces.

    All its leaves are arrays, so that it can be an argument of plain ``jax.jit``.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(
        self, inputs: int, outputs: int, sizes: Sizes, key: Key[Array, ""], dtype, start: float
    ):
        """The last layer is multiplied by ``start``; with 0 the network starts at zero."""
        widths = [inputs, *[sizes.width] * sizes.depth, outputs]
        keys = jax.random.split(key, len(widths) - 1)
        *hidden, last = (
            eqx.nn.Linear(m, n, dtype=dtype, key=k)
            for m, n, k in zip(widths[:-1], widths[1:], keys, strict=True)
        )
        self.layers = (*hidden, jax.tree.map(lambda x: start * x, last))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs, of order one for inputs of order one."""
        with jax.default_matmul_precision("highest"):  # Otherwise a GPU multiplies in TF32.
            for layer in self.layers[:-1]:
                x = jnp.tanh(layer(x))
            return self.layers[-1](x)
