"""Charts: one-to-one maps between values that mean something and unconstrained coordinates.

A chart works on stacked rows: ``coordinates(x)`` gives (n, k), ``value(z)`` takes it back, each
the exact inverse of the other, smooth in both directions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..spatial import inertia, se3, so3
from ._physical import Ellipsoid, relative_factor, upper_cholesky


def _flat(x: Array) -> Float[Array, "n k"]:
    return x.reshape(x.shape[0], -1)


class Real(eqx.Module):
    """Any number, in multiples of ``scale``."""

    scale: float = eqx.field(static=True, default=1.0)

    def coordinates(self, x: Array) -> Float[Array, "n k"]:
        """``x / scale``."""
        return _flat(x) / self.scale

    def value(self, z: Array) -> Array:
        """``scale · z``."""
        return self.scale * z


class Positive(eqx.Module):
    """Positive numbers by their logarithm."""

    def coordinates(self, x: Array) -> Float[Array, "n k"]:
        """``log x``."""
        return jnp.log(_flat(x))

    def value(self, z: Array) -> Array:
        """``eᶻ``."""
        return jnp.exp(z)


class Bounded(eqx.Module):
    """Numbers between two bounds, by the logit of where they are between them."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def coordinates(self, x: Array) -> Float[Array, "n k"]:
        """``log((x − lower) / (upper − x))``."""
        x = _flat(x)
        return jnp.log((x - self.lower) / (self.upper - x))

    def value(self, z: Array) -> Array:
        """``(lower + upper eᶻ) / (1 + eᶻ)``."""
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(z)


class Direction(eqx.Module):
    """Vectors of the nominal one's length, by the rotation (two angles) away from it.

    Everywhere but opposite to the nominal vector; the chart of unit axes, and of gravity whose
    strength is known.
    """

    nominal: Float[Array, "n 3"]

    def _across(self) -> Float[Array, "n 2 3"]:
        """Two unit vectors normal to the nominal one and to each other."""
        a = self._unit(self.nominal)
        least = jax.nn.one_hot(jnp.argmin(jnp.abs(a), axis=-1), 3, dtype=a.dtype)
        e1 = self._unit(so3.cross(a, least))
        return jnp.stack([e1, so3.cross(a, e1)], axis=-2)

    @staticmethod
    def _unit(x: Array) -> Array:
        return x / jnp.sqrt(so3.dot(x, x))[..., None]

    def coordinates(self, x: Array) -> Float[Array, "n 2"]:
        """Components of the shortest rotation (rad) from the nominal vector to x."""
        a, b = self._unit(self.nominal), self._unit(x)
        quat = jnp.concatenate([1 + so3.dot(a, b)[:, None], so3.cross(a, b)], axis=-1)
        w = so3.quat_log(so3.quat_normalize(quat))
        return so3.dot(self._across(), jnp.broadcast_to(w[:, None], (len(w), 2, 3)))

    def value(self, z: Array) -> Array:
        """The nominal vector turned by z (rad)."""
        w = jnp.sum(self._across() * z[..., None], axis=-2)
        return so3.rotate(so3.exp(w), self.nominal)


class Pose(eqx.Module):
    """Poses by ``T₀ exp(z)``, z a screw in the nominal frame. Source: Müller §6.2.

    ``components`` picks from (ω_x, ω_y, ω_z, v_x, v_y, v_z); the others stay zero.
    """

    R: Float[Array, "n 3 3"]
    p: Float[Array, "n 3"]
    components: tuple[int, ...] = eqx.field(static=True, default=(0, 1, 2, 3, 4, 5))

    def coordinates(self, x: se3.Pose) -> Float[Array, "n k"]:
        """``log(T₀⁻¹ T)`` (rad, m); rotations of less than π."""
        xi = se3.log(se3.compose(se3.inverse((self.R, self.p)), x))
        return xi[:, np.array(self.components)]

    def value(self, z: Array) -> se3.Pose:
        """``T₀ exp(z)``."""
        xi = jnp.zeros((len(z), 6), z.dtype).at[:, np.array(self.components)].set(z)
        return se3.compose((self.R, self.p), se3.exp(xi))


_S = (0, 1, 0), (1, 2, 2)  # rows and columns of s12, s23, s13


def _triangular(z: Float[Array, "n 10"]) -> Float[Array, "n 4 4"]:
    """``eᵅ [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]]``."""
    diagonal = jnp.concatenate([jnp.exp(z[:, 1:4]), jnp.ones_like(z[:, :1])], axis=-1)
    U = diagonal[:, :, None] * jnp.eye(4, dtype=z.dtype)[None]
    U = U.at[:, np.array(_S[0]), np.array(_S[1])].set(z[:, 4:7]).at[:, :3, 3].set(z[:, 7:])
    return jnp.exp(z[:, 0])[:, None, None] * U


def _from_triangular(U: Float[Array, "n 4 4"]) -> Float[Array, "n 10"]:
    unit = U / U[:, 3:, 3:]
    d = jnp.log(jnp.diagonal(unit, axis1=-2, axis2=-1)[:, :3])
    s = unit[:, np.array(_S[0]), np.array(_S[1])]
    return jnp.concatenate([jnp.log(U[:, 3, 3])[:, None], d, s, unit[:, :3, 3]], axis=-1)


class LogCholesky(eqx.Module):
    """Inertias with a positive definite pseudo-inertia, all of them, relative to a nominal one.

    Source: Rucker, Wensing, "Smooth parameterization of rigid-body inertia", 2022: coordinates
    (α, d1, d2, d3, s12, s23, s13, t1, t2, t3) of an upper triangular factor of the
    pseudo-inertia. Here it is the factor of ``U₀⁻¹ P U₀⁻ᵀ``, so that coordinates are dimensionless
    and of order one for every body, and zero at the nominal inertia ``P₀ = U₀ U₀ᵀ``.
    """

    U0: Float[Array, "n 4 4"]

    def coordinates(self, x: Array) -> Float[Array, "n 10"]:
        """Of ten inertial parameters a row."""
        return _from_triangular(relative_factor(self.U0, x))

    def value(self, z: Array) -> Float[Array, "n 10"]:
        """Ten inertial parameters a row."""
        U = jnp.matmul(self.U0, _triangular(z), precision="highest")
        return inertia.from_pseudo(jnp.matmul(U, so3.transpose(U), precision="highest"))


class InEllipsoid(eqx.Module):
    """Inertias that some mass distribution within an ellipsoid has, all of them.

    Source: Wensing, Kim, Slotine (2018), ``tr(P Q) > 0``. In coordinates in which the ellipsoid is
    the unit ball, the factor of the pseudo-inertia is ``√m [[D, t], [0, 1]]`` and the condition
    reads ``|D|² + |t|² < 1``; log-Cholesky coordinates (D′, t′) of an unconstrained inertia are
    drawn into that ball by ``(D, t) = (D′, t′) / √(1 + |D′|² + |t′|²)``, which keeps the diagonal
    of D positive and has the inverse with a minus sign.
    """

    ellipsoid: Ellipsoid

    @staticmethod
    def _scaled(U: Float[Array, "n 4 4"], sign: float) -> Float[Array, "n 4 4"]:
        square = jnp.sum(U[:, :3] ** 2, axis=(-2, -1)) / U[:, 3, 3] ** 2
        top = U[:, :3] * jax.lax.rsqrt(1 + sign * square)[:, None, None]
        return jnp.concatenate([top, U[:, 3:]], axis=-2)

    def coordinates(self, x: Array) -> Float[Array, "n 10"]:
        """Of ten inertial parameters a row."""
        U = upper_cholesky(self.ellipsoid.seen(x))
        return _from_triangular(self._scaled(U, -1.0))

    def value(self, z: Array) -> Float[Array, "n 10"]:
        """Ten inertial parameters a row."""
        U = self._scaled(_triangular(z), 1.0)
        return self.ellipsoid.unseen(jnp.matmul(U, so3.transpose(U), precision="highest"))


Chart = Real | Positive | Bounded | Direction | Pose | LogCholesky | InEllipsoid


def start_of(chart: Chart, x, names: tuple[str, ...], what: str) -> None:
    """Raise ValueError, naming the rows, if the nominal value lies outside the chart."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((chart, x))):
        return
    z = np.asarray(chart.coordinates(x))
    bad = [n for n, row in zip(names, np.all(np.isfinite(z), axis=1), strict=True) if not row]
    if bad:
        remedies = {
            Positive: "start from a positive value, or use chart=Real()",
            Bounded: "start between the bounds",
            LogCholesky: "no mass distribution has it; see rbd_jax.identify.made_consistent",
            InEllipsoid: "no mass distribution within the ellipsoid has it; take a greater one",
        }
        kind = type(chart)
        raise ValueError(
            f"choose: the {what} of {bad} lies outside the chart {kind.__name__}: "
            f"{remedies.get(kind, 'start elsewhere')}"
        )
