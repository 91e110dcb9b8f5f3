"""The layout of q, v, tau, M and J in another library, and the maps to and from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spatial import so3

Numbers = Array | np.ndarray


class Form(NamedTuple):
    """A kind of joint in another library: which of our numbers stands at each of its places."""

    q: tuple[int, ...]
    v: tuple[int, ...]
    trig: str = ""
    """A letter for each place of q: ``c`` for a cosine, ``s`` for a sine, blank otherwise."""
    quat: int | None = None
    """Where the quaternion starts in theirs."""
    turned: tuple[int, ...] = ()
    """Where those parts of our v start that they express in another frame."""


class Turn(NamedTuple):
    """``part of v in theirs = R(q) part of v in ours``, by a quaternion or the angle of a plane."""

    q: int
    v: int
    w: int
    planar: bool


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Layout:
    """The map between this library's layout ("ours") and another one's ("theirs").

    All methods are pure functions for one sample, to be used under ``jit`` and ``vmap``; the layout
    itself is static. **The q and v that a method takes besides the quantity it converts are
    always in our layout.** With ``v_ours = G(q) v_theirs`` (G is orthogonal, since frames and
    orders differ and units do not): ``tau_theirs = Gᵀ tau_ours``, ``M_theirs = Gᵀ M_ours G``,
    ``J_theirs = J_ours G`` with the rows in their order.
    """

    library: str
    nq: int
    """Length of q in ours."""
    nv: int
    """Length of v, in ours and in theirs."""
    q_places: np.ndarray
    """For each place of their q, the place in ours."""
    q_back: np.ndarray
    """For each place of our q, the place in theirs (of the cosine, for an angle given by two)."""
    trig: np.ndarray
    """For each place of their q: 0 plain, 1 cosine, 2 sine."""
    offset: np.ndarray
    """Their q minus ours, for each place of our q."""
    quats: tuple[tuple[int, int], ...]
    """Where quaternions start, (ours, theirs)."""
    v_places: np.ndarray
    """For each place of their v, the place in ours."""
    turns: tuple[Turn, ...]
    linear_first: bool
    """Whether their 6-vectors are (linear, angular); ours are (angular, linear)."""

    @cached_property
    def _key(self) -> tuple:
        values = (getattr(self, f) for f in self.__dataclass_fields__)
        return tuple(tuple(x.tolist()) if isinstance(x, np.ndarray) else x for x in values)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self._key == other._key)

    def __getstate__(self) -> dict:
        """Only the fields: hashes differ in another process."""
        return {f: getattr(self, f) for f in self.__dataclass_fields__}

    @property
    def nq_theirs(self) -> int:
        """Length of q in theirs."""
        return len(self.q_places)

    def q_to(self, q: Float[Numbers, " nq"]) -> Float[Array, " nq_theirs"]:
        """Their configuration; quaternions come out normalized."""
        q = _length("q", q, self.nq)
        for ours, _ in self.quats:
            q = _put(q, ours, so3.quat_normalize(q[ours : ours + 4]))
        x = (q + self.offset.astype(q.dtype))[self.q_places]
        if not self.trig.any():
            return x
        return jnp.where(self.trig == 1, jnp.cos(x), jnp.where(self.trig == 2, jnp.sin(x), x))

    def q_from(self, q: Float[Numbers, " nq_theirs"]) -> Float[Array, " nq"]:
        """Our configuration; an angle that they hold as (cos, sin) comes out within ±π."""
        q = _length("their q", q, self.nq_theirs)
        x = q[self.q_back] - self.offset.astype(q.dtype)
        for place in np.flatnonzero(self.trig == 1):
            angle = jnp.arctan2(q[place + 1], q[place])
            x = _put(x, int(self.q_places[place]), angle[None])
        return x

    def v_to(self, q: Float[Numbers, " nq"], v: Float[Numbers, " nv"]) -> Float[Array, " nv"]:
        """Their velocity, ``Gᵀ v``."""
        v = self._turn(_length("q", q, self.nq), _length("v", v, self.nv), False)
        return v[self.v_places]

    def v_from(self, q: Float[Numbers, " nq"], v: Float[Numbers, " nv"]) -> Float[Array, " nv"]:
        """Our velocity, ``G v``, of their ``v``."""
        v = _length("their v", v, self.nv)[np.argsort(self.v_places)]
        return self._turn(_length("q", q, self.nq), v, True)

    def a_to(
        self, q: Float[Numbers, " nq"], v: Float[Numbers, " nv"], a: Float[Numbers, " nv"]
    ) -> Float[Array, " nv"]:
        """Their acceleration, the time derivative of their v: ``Gᵀ a + Ġᵀ v``."""
        return self.v_to(q, a) + self._moving(lambda x: self.v_to(x, v), q, v)

    def a_from(
        self, q: Float[Numbers, " nq"], v: Float[Numbers, " nv"], a: Float[Numbers, " nv"]
    ) -> Float[Array, " nv"]:
        """Our acceleration, ``G a + Ġ v_theirs``, of their ``a``; q and v are ours."""
        theirs = self.v_to(q, v)
        return self.v_from(q, a) + self._moving(lambda x: self.v_from(x, theirs), q, v)

    def tau_to(self, q: Float[Numbers, " nq"], tau: Float[Numbers, " nv"]) -> Float[Array, " nv"]:
        """Their joint forces, ``Gᵀ tau``: the same power."""
        return self.v_to(q, tau)

    def tau_from(self, q: Float[Numbers, " nq"], tau: Float[Numbers, " nv"]) -> Float[Array, " nv"]:
        """Our joint forces, ``G tau``, of their ``tau``."""
        return self.v_from(q, tau)

    def velocity_map(self, q: Float[Numbers, " nq"]) -> Float[Array, "nv nv"]:
        """The orthogonal matrix G with ``v_ours = G v_theirs``."""
        return self._rows(self.v_to, q, jnp.eye(self.nv, dtype=q.dtype))

    def mass_matrix_to(
        self, q: Float[Numbers, " nq"], M: Float[Numbers, "nv nv"]
    ) -> Float[Array, "nv nv"]:
        """Their mass matrix (or any form on velocities), ``Gᵀ M G``."""
        return self._rows(self.v_to, q, self._rows(self.v_to, q, M).T).T

    def mass_matrix_from(
        self, q: Float[Numbers, " nq"], M: Float[Numbers, "nv nv"]
    ) -> Float[Array, "nv nv"]:
        """Our mass matrix, ``G M Gᵀ``, of their ``M``."""
        return self._rows(self.v_from, q, self._rows(self.v_from, q, M).T).T

    def jacobian_to(
        self, q: Float[Numbers, " nq"], J: Float[Numbers, "m nv"]
    ) -> Float[Array, "m nv"]:
        """Their Jacobian, ``J G``; the rows of a (6, nv) one are put in their order too."""
        J = self._rows(self.v_to, q, J)
        return self.spatial_to(J.T).T if J.shape[0] == 6 else J

    def jacobian_from(
        self, q: Float[Numbers, " nq"], J: Float[Numbers, "m nv"]
    ) -> Float[Array, "m nv"]:
        """Our Jacobian, ``J Gᵀ``, of their ``J``."""
        J = self._rows(self.v_from, q, J)
        return self.spatial_from(J.T).T if J.shape[0] == 6 else J

    def spatial_to(self, x: Float[Numbers, "*b 6"]) -> Float[Array, "*b 6"]:
        """A twist or wrench with the halves in their order; frame and reference stay."""
        return jnp.roll(jnp.asarray(x), 3 if self.linear_first else 0, axis=-1)

    def spatial_from(self, x: Float[Numbers, "*b 6"]) -> Float[Array, "*b 6"]:
        """A twist or wrench with the halves in our order (angular, linear)."""
        return self.spatial_to(x)

    def _rows(self, function: Callable, q: Numbers, A: Numbers) -> Array:
        return jax.vmap(lambda row: function(q, row))(A)

    def _turn(self, q: Array, v: Array, inverse: bool) -> Array:
        for t in self.turns:
            if t.planar:
                s, c = jnp.sin(q[t.q]), jnp.cos(q[t.q])
                x, y, s = v[t.v], v[t.v + 1], (-s if inverse else s)
                part = jnp.stack([c * x + s * y, c * y - s * x])  # into the body frame
            else:
                R = so3.quat_to_matrix(so3.quat_normalize(q[t.q : t.q + 4]))
                rotate = so3.rotate_inverse if inverse else so3.rotate
                part = rotate(R, v[t.v : t.v + 3])
            v = _put(v, t.v, part)
        return v

    def _moving(self, function: Callable, q: Numbers, v: Numbers) -> Array:
        """Time derivative of ``function(q)`` when the velocity is v, for the q of the turns."""
        q, v = jnp.asarray(q), jnp.asarray(v)
        dq = jnp.zeros_like(q)
        for t in self.turns:
            if t.planar:
                dq = _put(dq, t.q, v[t.w : t.w + 1])
            else:
                w = jnp.concatenate([jnp.zeros_like(v[:1]), v[t.w : t.w + 3]])
                dq = _put(dq, t.q, 0.5 * so3.quat_multiply(q[t.q : t.q + 4], w))
        return jax.jvp(function, (q,), (dq,))[1]


def _put(x: Array, start: int, part: Array) -> Array:
    """``x`` with ``part`` written over it from ``start``.

    Not ``x.at[...].set``: where ``part`` is computed from what it overwrites, XLA:CPU (jaxlib
    0.10.2) updates in place under ``jit`` and reads numbers that it has already overwritten.
    """
    return jnp.concatenate([x[:start], part, x[start + len(part) :]])


def _length(name: str, x, n: int) -> Array:
    x = jnp.asarray(x)
    if x.shape != (n,):
        hint = "; methods take one sample, use jax.vmap for a batch" if x.ndim == 2 else ""
        raise ValueError(f"{name} has shape {x.shape}, expected ({n},){hint}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {x.dtype}; use astype(float)")
    return x
