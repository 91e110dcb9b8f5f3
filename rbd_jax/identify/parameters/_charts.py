"""Charts: one-to-one smooth maps between parameter values and unconstrained coordinates.

A chart works on stacked rows: ``coordinates(x)`` gives (n, k), and ``value(z)`` is its exact
inverse. Derivatives of both are those of autodiff.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...spatial import inertia, linear, se3, so3
from ._physical import Ellipsoid, relative_factor, upper_cholesky


def _flat(x: Array) -> Float[Array, "n k"]:
    return x.reshape(x.shape[0], -1)


class Real(eqx.Module):
    """Any real number, in multiples of ``scale``."""

    scale: float = eqx.field(static=True, default=1.0)

    def coordinates(self, x: Array) -> Float[Array, "n k"]:
        """``x / scale``."""
        return _flat(x) / self.scale

    def value(self, z: Array) -> Array:
        """``scale · z``."""
        return self.scale * z


class Positive(eqx.Module):
    """Positive numbers, with their logarithm as the coordinate."""

    def coordinates(self, x: Array) -> Float[Array, "n k"]:
        """``log x``."""
        return jnp.log(_flat(x))

    def value(self, z: Array) -> Array:
        """``eᶻ``."""
        return jnp.exp(z)


class Bounded(eqx.Module):
    """Numbers between two bounds. The coordinate is the logit of their relative position."""

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
    """Vectors of the nominal vector's length. Coordinates are two angles of rotation away from it.

    The chart covers all directions but the opposite one. It serves unit axes, and gravity of known
    strength.
    """

    nominal: Float[Array, "n 3"]

    def _normals(self) -> Float[Array, "n 2 3"]:
        """Two unit vectors that are normal to the nominal vector and to each other."""
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
        return so3.dot(self._normals(), jnp.broadcast_to(w[:, None], (len(w), 2, 3)))

    def value(self, z: Array) -> Array:
        """The nominal vector rotated by z (rad)."""
        w = jnp.sum(self._normals() * z[..., None], axis=-2)
        return so3.rotate(so3.exp(w), self.nominal)


class PoseChart(eqx.Module):
    """Poses ``T₀ exp(z)``, where z is a screw in the nominal frame. Source: Müller §6.2.

    ``components`` selects from (ω_x, ω_y, ω_z, v_x, v_y, v_z). The others stay zero.
    """

    R: Float[Array, "n 3 3"]
    p: Float[Array, "n 3"]
    components: tuple[int, ...] = eqx.field(static=True, default=(0, 1, 2, 3, 4, 5))

    def coordinates(self, x: se3.Pose) -> Float[Array, "n k"]:
        """``log(T₀⁻¹ T)`` (rad, m), for rotations of less than π."""
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
    """All inertias with a positive definite pseudo-inertia, relative to a nominal inertia.

    Source: Rucker, Wensing, "Smooth parameterization of rigid-body inertia", 2022: coordinates
    (α, d1, d2, d3, s12, s23, s13, t1, t2, t3) of an upper triangular factor of the
    pseudo-inertia. Here it is the factor of ``U₀⁻¹ P U₀⁻ᵀ``. So the coordinates are dimensionless
    and of order one for every body, and they are zero at the nominal inertia ``P₀ = U₀ U₀ᵀ``.
    """

    U0: Float[Array, "n 4 4"]

    def coordinates(self, x: Array) -> Float[Array, "n 10"]:
        """Coordinates of inertias, each a row of ten parameters."""
        return _from_triangular(relative_factor(self.U0, x))

    def value(self, z: Array) -> Float[Array, "n 10"]:
        """Inertias, each a row of ten parameters."""
        U = linear.matmul(self.U0, _triangular(z))
        return inertia.from_pseudo(linear.matmul(U, so3.transpose(U)))


class InEllipsoid(eqx.Module):
    """All inertias that belong to a mass distribution within an ellipsoid.

    Source: Wensing, Kim, Slotine (2018), ``tr(P Q) > 0``. In coordinates in which the ellipsoid is
    the unit ball, the factor of the pseudo-inertia is ``√m [[D, t], [0, 1]]`` and the condition
    reads ``|D|² + |t|² < 1``. The map ``(D, t) = (D′, t′) / √(1 + |D′|² + |t′|²)`` takes the
    log-Cholesky coordinates (D′, t′) of an unconstrained inertia into that ball. It keeps the
    diagonal of D positive. Its inverse has a minus sign in place of the plus signs.
    """

    ellipsoid: Ellipsoid

    @staticmethod
    def _scaled(U: Float[Array, "n 4 4"], sign: float) -> Float[Array, "n 4 4"]:
        square = jnp.sum(U[:, :3] ** 2, axis=(-2, -1)) / U[:, 3, 3] ** 2
        top = U[:, :3] * jax.lax.rsqrt(1 + sign * square)[:, None, None]
        return jnp.concatenate([top, U[:, 3:]], axis=-2)

    def coordinates(self, x: Array) -> Float[Array, "n 10"]:
        """Coordinates of inertias, each a row of ten parameters."""
        U = upper_cholesky(self.ellipsoid.to_unit_ball(x))
        return _from_triangular(self._scaled(U, -1.0))

    def value(self, z: Array) -> Float[Array, "n 10"]:
        """Inertias, each a row of ten parameters."""
        U = self._scaled(_triangular(z), 1.0)
        return self.ellipsoid.from_unit_ball(linear.matmul(U, so3.transpose(U)))


Chart = Real | Positive | Bounded | Direction | PoseChart | LogCholesky | InEllipsoid


def check_inside(chart: Chart, x, names: tuple[str, ...], what: str) -> None:
    """Raise ValueError, naming the rows, if the nominal value lies outside the chart."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((chart, x))):
        return
    z = np.asarray(chart.coordinates(x))
    bad = [n for n, row in zip(names, np.all(np.isfinite(z), axis=1), strict=True) if not row]
    if bad:
        remedies = {
            Positive: "start from a positive value, or use chart=Real()",
            Bounded: "start between the bounds",
            LogCholesky: "no mass distribution has this inertia; see identify.made_consistent",
            InEllipsoid: "no mass distribution within the ellipsoid has this inertia; enlarge it",
        }
        kind = type(chart)
        raise ValueError(
            f"select: the {what} of {bad} lies outside the chart {kind.__name__}: "
            f"{remedies.get(kind, 'start elsewhere')}"
        )
