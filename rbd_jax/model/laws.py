"""Laws by which joints are driven by other joints, or by coordinates that are no joints.

``u`` are the coordinates that drive, m numbers; a law gives the coordinates q of the driven joints.
Their velocity is ``Φ(u) u̇`` and their acceleration ``Φ ü + Φ̇ u̇``, where ``Φ̇ u̇`` is Kim's ``Ṡ q̇``.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._configuration import per_joint
from .topology import Topology


class Law(eqx.Module):
    """How some joints move when others do. Subclasses say ``position``; autodiff says the rest."""

    driven: eqx.AbstractVar[Topology]
    """The driven joints, by their names and kinds."""
    by: eqx.AbstractVar[tuple[str, ...]]
    """Names of the joints or coordinates that drive, in the order of u."""
    linear = False
    """Whether Φ is constant."""

    @abc.abstractmethod
    def position(self, u: Float[Array, " m"]) -> Float[Array, " k_q"]:
        """The coordinates of the driven joints, one joint after the other."""

    @property
    def pattern(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Row and column in Φ of each of its entries."""
        rows, columns = np.indices((self.driven.nv, len(self.by))).reshape(2, -1)
        return tuple(rows.tolist()), tuple(columns.tolist())

    def velocity(self, u: Float[Array, " m"], du: Float[Array, " m"]) -> Float[Array, " k"]:
        """``Φ(u) u̇``, the velocity of the driven joints. Source: Kim (36), S(q) q̇."""
        q, dq = jax.jvp(self.position, (u,), (du,))
        if self.driven.nq == self.driven.nv:
            return dq
        return per_joint(self.driven, "velocity", False, ((q, True), (dq, True)))

    def entries(self, u: Float[Array, " m"]) -> Float[Array, " entries"]:
        """The entries of Φ, in the order of ``pattern``."""
        eye = jnp.eye(len(self.by), dtype=u.dtype)
        columns = jax.vmap(lambda du: self.velocity(u, du), out_axes=1)(eye)
        return columns.reshape(-1)

    def bias(self, u: Float[Array, " m"], du: Float[Array, " m"]) -> Float[Array, " k"]:
        """``Φ̇ u̇``, the acceleration of the driven joints for ü = 0. Source: Kim (40), Ṡ q̇."""
        return jax.jvp(lambda u: self.velocity(u, du), (u,), (du,))[1]


class Affine(Law):
    """``q_k = multiplier_k · u_source(k) + offset_k``: mimic joints and gears."""

    multiplier: Float[Array, "*b k"]
    offset: Float[Array, "*b k"]
    """In rad or m."""
    driven: Topology = eqx.field(static=True)
    by: tuple[str, ...] = eqx.field(static=True)
    source: tuple[int, ...] = eqx.field(static=True)
    """Which number of u drives each joint."""
    linear = True

    def position(self, u: Float[Array, " m"]) -> Float[Array, " k"]:
        """The positions of the driven joints."""
        return self.multiplier * u[np.array(self.source)] + self.offset

    @property
    def pattern(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One entry for each driven joint."""
        return tuple(range(len(self.source))), self.source

    def entries(self, u: Float[Array, " m"]) -> Float[Array, " k"]:
        """The multipliers."""
        return self.multiplier


class Function(Law):
    """A law given by a function of JAX, or by a module such as a neural network."""

    function: PyTree
    """``u -> q``. Its arrays are leaves of the robot."""
    driven: Topology = eqx.field(static=True)
    by: tuple[str, ...] = eqx.field(static=True)

    def position(self, u: Float[Array, " m"]) -> Float[Array, " k_q"]:
        """The value of the function."""
        return self.function(u)
