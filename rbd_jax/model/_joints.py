"""The joint kinds: transform, motion subspace, ⊕, ⊖, random, and the maps between q̇ and v.

Each kind is a namespace of functions of all joints of that kind at once, with leading axis n. Every
kind has a motion subspace S that is constant in the child frame, so that Kim's Ṡ is zero. Joints
whose S depends on the configuration (universal, planar) are built as chains of these kinds by
:func:`rbd_jax.build_model`.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import se3, so3
from ..spatial.motion import cross_wrench

_FAR = 1e6  # rad or m: a limit as far away as this is no limit


def _uniform(key: Array, low: Float[Array, "n k"], high: Float[Array, "n k"]) -> Array:
    """Uniform between two arrays, in their dtype throughout."""
    zero, one = jnp.zeros((), low.dtype), jnp.ones((), low.dtype)
    return low + (high - low) * jax.random.uniform(key, low.shape, low.dtype, zero, one)


class Screw:
    """Revolute, prismatic and helical: motion along ``S = (ρ a, h a)``, ρ = 0 if prismatic.

    ``h`` is the pitch (m/rad; 1 for a prismatic joint). ``a`` is the axis. It is normalized here,
    so that only its direction matters.
    """

    kinds = ("revolute", "prismatic", "helical")
    nq = nv = 1

    @staticmethod
    def transform(q: Float[Array, "n 1"], j: SimpleNamespace):
        """``exp(S q)``."""
        angle = q[:, 0] * j.turns
        return so3.about(j.axis, angle), j.axis * (j.advance * q[:, 0])[:, None]

    @staticmethod
    def subspace(j: SimpleNamespace) -> Float[Array, "n 1 6"]:
        """S, in the child frame."""
        S = jnp.concatenate([j.axis * j.turns[:, None], j.axis * j.advance[:, None]], axis=-1)
        return S[:, None, :]

    @staticmethod
    def plus(q: Float[Array, "n k"], dv: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """``q ⊕ dv``."""
        return q + dv

    @staticmethod
    def minus(q0: Float[Array, "n k"], q1: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """``q1 ⊖ q0``."""
        return q1 - q0

    displacement = minus

    @staticmethod
    def rate(q: Float[Array, "n k"], v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """The rate q̇ of v."""
        return v

    @staticmethod
    def velocity(q: Float[Array, "n k"], dq: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """The velocity v of an ambient q̇."""
        return dq

    @staticmethod
    def chart_rate(u: Float[Array, "n k"], v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """The rate of u at which ``q ⊕ u`` moves with velocity v."""
        return v

    @staticmethod
    def chart_velocity(u: Float[Array, "n k"], du: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """The velocity of ``q ⊕ u`` when u moves at the rate du."""
        return du

    @staticmethod
    def coadjoint(v: Float[Array, "n k"], p: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """``ad*_v p``, the rate of a momentum that is constant in space."""
        return jnp.zeros_like(p)

    @staticmethod
    def random(key: Array, lower: Array, upper: Array) -> Float[Array, "n 1"]:
        """Uniform within the limits, ±π (rad or m) where there are none or they are inverted.

        If there is one limit, the range is at least π wide on its other side. A limit of 1e6 or
        more counts as no limit.
        """
        inverted = lower > upper
        has_low, has_high = (lower > -_FAR) & ~inverted, (upper < _FAR) & ~inverted
        zero = jnp.zeros_like(lower)
        below = jnp.where(has_high, jnp.minimum(upper, zero), zero) - jnp.pi
        above = jnp.where(has_low, jnp.maximum(lower, zero), zero) + jnp.pi
        low, high = jnp.where(has_low, lower, below), jnp.where(has_high, upper, above)
        return _uniform(key, low, high)


class Translation:
    """Three translations along the axes of the joint frame: q is the position (m)."""

    kinds = ("translation",)
    nq = nv = 3

    @staticmethod
    def transform(q: Float[Array, "n 3"], j: SimpleNamespace):
        """``(1, q)``."""
        return jnp.broadcast_to(jnp.eye(3, dtype=q.dtype), (q.shape[0], 3, 3)), q

    @staticmethod
    def subspace(j: SimpleNamespace) -> Float[Array, "n 3 6"]:
        """S, in the child frame."""
        S = jnp.eye(6, dtype=j.axis.dtype)[3:]
        return jnp.broadcast_to(S, (j.axis.shape[0], 3, 6))

    plus, minus, rate, velocity = Screw.plus, Screw.minus, Screw.rate, Screw.velocity
    chart_rate, chart_velocity = Screw.chart_rate, Screw.chart_velocity
    coadjoint, displacement = Screw.coadjoint, Screw.displacement

    @staticmethod
    def random(key: Array, lower: Array, upper: Array) -> Float[Array, "n 3"]:
        """Uniform within ±1 m."""
        return _uniform(key, jnp.full_like(lower, -1), jnp.ones_like(lower))


class Spherical:
    """A ball: q is a quaternion ``wxyz``, v the angular velocity in the child frame (rad/s)."""

    kinds = ("spherical",)
    nq, nv = 4, 3

    @staticmethod
    def transform(q: Float[Array, "n 4"], j: SimpleNamespace):
        """``(R(q/|q|), 0)``."""
        R = so3.quat_to_matrix(so3.quat_normalize(q))
        return R, jnp.zeros((q.shape[0], 3), q.dtype)

    @staticmethod
    def subspace(j: SimpleNamespace) -> Float[Array, "n 3 6"]:
        """S, in the child frame."""
        S = jnp.eye(6, dtype=j.axis.dtype)[:3]
        return jnp.broadcast_to(S, (j.axis.shape[0], 3, 6))

    @staticmethod
    def plus(q: Float[Array, "n 4"], dv: Float[Array, "n 3"]) -> Float[Array, "n 4"]:
        """``q ⊗ exp(dv)``, a unit quaternion."""
        return so3.quat_normalize(so3.quat_multiply(so3.quat_normalize(q), so3.quat_exp(dv)))

    @staticmethod
    def minus(q0: Float[Array, "n 4"], q1: Float[Array, "n 4"]) -> Float[Array, "n 3"]:
        """``log(q0⁻¹ ⊗ q1)``, of length at most π."""
        q0, q1 = so3.quat_normalize(q0), so3.quat_normalize(q1)
        return so3.quat_log(so3.quat_multiply(so3.quat_conjugate(q0), q1))

    displacement = minus

    @staticmethod
    def rate(q: Float[Array, "n 4"], v: Float[Array, "n 3"]) -> Float[Array, "n 4"]:
        """``q̇ = ½ q ⊗ (0, ω)``."""
        return 0.5 * so3.quat_multiply(q, jnp.concatenate([jnp.zeros_like(v[:, :1]), v], axis=-1))

    @staticmethod
    def velocity(q: Float[Array, "n 4"], dq: Float[Array, "n 4"]) -> Float[Array, "n 3"]:
        """``ω = 2 Im(q* ⊗ q̇) / |q|²``; a change of the length of q does not count."""
        w = so3.quat_multiply(so3.quat_conjugate(q), dq)[:, 1:]
        return 2 * w / so3.dot(q, q)[:, None]

    @staticmethod
    def chart_rate(u: Float[Array, "n 3"], v: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """``dexp⁻¹_{−u} v`` of SO(3). Source: Müller §7."""
        return so3.rotate(so3.right_jacobian_inverse(u), v)

    @staticmethod
    def chart_velocity(u: Float[Array, "n 3"], du: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """``dexp_{−u} u̇`` of SO(3). Source: Müller (89)."""
        return so3.rotate(so3.right_jacobian(u), du)

    @staticmethod
    def coadjoint(v: Float[Array, "n 3"], p: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """``ad*_v p = p × ω``."""
        return so3.cross(p, v)

    @staticmethod
    def random(key: Array, lower: Array, upper: Array) -> Float[Array, "n 4"]:
        """Uniform over the rotations."""
        return so3.quat_normalize(jax.random.normal(key, lower.shape, lower.dtype))


class Free:
    """Six degrees of freedom: ``q = (p, quat)``, v the body-fixed twist (ω, v). Source: Kim (9)."""

    kinds = ("free",)
    nq, nv = 7, 6

    @staticmethod
    def transform(q: Float[Array, "n 7"], j: SimpleNamespace):
        """``(R(quat/|quat|), p)``."""
        return Spherical.transform(q[:, 3:], j)[0], q[:, :3]

    @staticmethod
    def subspace(j: SimpleNamespace) -> Float[Array, "n 6 6"]:
        """S, in the child frame."""
        S = jnp.eye(6, dtype=j.axis.dtype)
        return jnp.broadcast_to(S, (j.axis.shape[0], 6, 6))

    @staticmethod
    def plus(q: Float[Array, "n 7"], dv: Float[Array, "n 6"]) -> Float[Array, "n 7"]:
        """``T exp(dv)`` on SE(3)."""
        R = so3.quat_to_matrix(so3.quat_normalize(q[:, 3:]))
        step = so3.rotate(so3.left_jacobian(dv[:, :3]), dv[:, 3:])
        p = q[:, :3] + so3.rotate(R, step)
        return jnp.concatenate([p, Spherical.plus(q[:, 3:], dv[:, :3])], axis=-1)

    @staticmethod
    def minus(q0: Float[Array, "n 7"], q1: Float[Array, "n 7"]) -> Float[Array, "n 6"]:
        """``log(T0⁻¹ T1)`` on SE(3)."""
        w = Spherical.minus(q0[:, 3:], q1[:, 3:])
        R0 = so3.quat_to_matrix(so3.quat_normalize(q0[:, 3:]))
        step = so3.rotate_inverse(R0, q1[:, :3] - q0[:, :3])
        return jnp.concatenate([w, so3.rotate(so3.left_jacobian_inverse(w), step)], axis=-1)

    @staticmethod
    def displacement(q0: Float[Array, "n 7"], q1: Float[Array, "n 7"]) -> Float[Array, "n 6"]:
        """``(log(R0ᵀ R1), R1ᵀ (p1 − p0))``."""
        R1 = so3.quat_to_matrix(so3.quat_normalize(q1[:, 3:]))
        p = so3.rotate_inverse(R1, q1[:, :3] - q0[:, :3])
        return jnp.concatenate([Spherical.minus(q0[:, 3:], q1[:, 3:]), p], axis=-1)

    @staticmethod
    def rate(q: Float[Array, "n 7"], v: Float[Array, "n 6"]) -> Float[Array, "n 7"]:
        """``ṗ = R v`` and ``½ quat ⊗ (0, ω)``."""
        R = so3.quat_to_matrix(so3.quat_normalize(q[:, 3:]))
        dp = so3.rotate(R, v[:, 3:])
        return jnp.concatenate([dp, Spherical.rate(q[:, 3:], v[:, :3])], axis=-1)

    @staticmethod
    def velocity(q: Float[Array, "n 7"], dq: Float[Array, "n 7"]) -> Float[Array, "n 6"]:
        """Body-fixed twist of an ambient q̇."""
        R = so3.quat_to_matrix(so3.quat_normalize(q[:, 3:]))
        w = Spherical.velocity(q[:, 3:], dq[:, 3:])
        return jnp.concatenate([w, so3.rotate_inverse(R, dq[:, :3])], axis=-1)

    @staticmethod
    def chart_rate(u: Float[Array, "n 6"], v: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        """``dexp⁻¹_{−u} v`` of SE(3). Source: Müller §7."""
        return jnp.sum(se3.right_jacobian_inverse(u) * v[:, None, :], axis=-1)

    @staticmethod
    def chart_velocity(u: Float[Array, "n 6"], du: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        """``dexp_{−u} u̇`` of SE(3). Source: Müller (89)."""
        return jnp.sum(se3.right_jacobian(u) * du[:, None, :], axis=-1)

    @staticmethod
    def coadjoint(v: Float[Array, "n 6"], p: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        """``ad*_V Π = ad_Vᵀ Π``. Source: Müller (41)."""
        return -cross_wrench(v, p)

    @staticmethod
    def random(key: Array, lower: Array, upper: Array) -> Float[Array, "n 7"]:
        """Position uniform within ±1 m, orientation uniform."""
        a, b = jax.random.split(key)
        p = Translation.random(a, lower[:, :3], upper[:, :3])
        return jnp.concatenate([p, Spherical.random(b, lower[:, 3:], upper[:, 3:])], axis=-1)


GROUPS = (Screw, Spherical, Translation, Free)
