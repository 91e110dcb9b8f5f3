"""Recorded motions: a container, and ways to cut it into windows, parts and batches."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key


class Dataset(eqx.Module):
    """Samples of motions. A quantity that was not recorded is None.

    All arrays have the same leading axes, either samples (N,), or trajectories and samples (B, T).
    It is a pytree: ``jax.tree.map(lambda x: x[:100], data)`` cuts it, and ``jax.vmap`` maps over
    it.
    """

    t: Float[Array, "*b"] | None
    """Time (s)."""
    q: Float[Array, "*b nq"]
    """Configuration (rad, m; quaternions wxyz)."""
    v: Float[Array, "*b nv"] | None = None
    """Velocity (rad/s, m/s; body-fixed twist for a free joint)."""
    a: Float[Array, "*b nv"] | None = None
    """Acceleration, the time derivative of v."""
    tau: Float[Array, "*b nv"] | None = None
    """Joint torques and forces (N m, N)."""
    f_ext: Float[Array, "*b nb 6"] | None = None
    """External wrench (n, f) on each body, in its frame (N m, N)."""
    controls: Float[Array, "*b nu"] | None = None
    """Controls of the actuators of a scene, held from each sample to the next."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.q.shape[:-1]

    def samples(self) -> "Dataset":
        """All samples along one leading axis."""
        n = len(self.shape)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[n:]), self)

    def windows(self, length: int, stride: int | None = None) -> "Dataset":
        """Windows of ``length`` samples, (windows, length), one every ``stride`` samples.

        If ``stride`` is None, windows follow one another without a gap and share no sample. Samples
        that are left over at the end of a trajectory are dropped. Raises ValueError if no window
        fits.
        """
        data = self if len(self.shape) == 2 else jax.tree.map(lambda x: x[None], self)
        T = data.shape[1]
        if len(data.shape) != 2 or not 1 <= length <= T:
            raise ValueError(
                f"windows: no window of {length} samples fits into data of shape {self.shape}"
            )
        starts = np.arange(0, T - length + 1, stride or length)
        index = starts[:, None] + np.arange(length)
        return jax.tree.map(lambda x: x[:, index].reshape(-1, length, *x.shape[2:]), data)

    def split(self, fraction: float = 0.8) -> tuple["Dataset", "Dataset"]:
        """The first part along the first axis, for training, and the rest, for validation."""
        n = round(fraction * self.shape[0])
        if not 0 < n < self.shape[0]:
            raise ValueError(f"split: {fraction} of {self.shape[0]} leaves one part empty")
        return jax.tree.map(lambda x: x[:n], self), jax.tree.map(lambda x: x[n:], self)

    def minibatches(self, key: Key[Array, ""], size: int) -> "Dataset":
        """One epoch in random order as (batches, size, …), to scan over the first axis.

        Samples that do not fill a batch are dropped; another key drops other samples.
        """
        n = self.shape[0]
        if not 1 <= size <= n:
            raise ValueError(f"minibatches: size must be within 1 and {n}, got {size}")
        order = jax.random.permutation(key, n)[: n // size * size].reshape(-1, size)
        return jax.tree.map(lambda x: x[order], self)


def required(name: str, data: Dataset, *what: str) -> tuple[Array, ...]:
    """The arrays of the data that the function ``name`` needs; ValueError if one is None."""
    missing = [w for w in what if getattr(data, w) is None]
    if missing:
        raise ValueError(
            f"{name}: the data have no {missing}; if it is v or a, compute it with "
            "rbd_jax.identify.filter_and_differentiate"
        )
    return tuple(getattr(data, w) for w in what)
