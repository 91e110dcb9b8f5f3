"""The backward and forward passes as associative scans, of depth O(log T) instead of O(T)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problems._local_models import Dynamics, Quadratic, times
from ._riccati import Gains

Element = tuple[Array, Array, Array, Array, Array]


def parallel_backward(
    f: Dynamics, l: Quadratic, end: Quadratic, mu: Float[Array, ""] | float = 0.0
) -> Gains:
    """The result of :func:`riccati_backward` without bounds, for all steps at once.

    ``l.uu`` must be positive definite. Derivatives are those of autodiff.

    Source: Särkkä, García-Fernández (2023), Temporal parallelization of dynamic programming and
    linear quadratic control, (36)–(41). Departures: the cross term ``ux`` is removed by
    ``u = −R⁻¹(S x + r) + ũ``. The regularization μ is added to the costs of the controls, so the
    cost to go belongs to the regularized problem.

    Cost: the work is O(T n³), a few times the work of :func:`riccati_backward`. The depth is
    O(log T).
    """
    T, m = l.u.shape
    R = l.uu + mu * jnp.eye(m, dtype=l.uu.dtype)[None]
    L = jnp.linalg.cholesky(R)
    solve = jax.vmap(lambda L, b: jax.scipy.linalg.cho_solve((L, True), b))
    transpose = lambda x: jnp.swapaxes(x, -1, -2)  # noqa: E731
    many = jax.vmap(times)
    # one solve for all columns: several at a time can hang, see spatial/linear.py
    right = jnp.concatenate([l.ux, l.u[..., None], transpose(f.B)], axis=-1)
    RS, Rr, RB = jnp.split(solve(L, right), [f.A.shape[-1], f.A.shape[-1] + 1], axis=-1)
    Rr = Rr[..., 0]
    A, b = f.A - many(f.B, RS), f.d - many(f.B, Rr)
    C = many(f.B, RB)
    J = l.xx - many(transpose(l.ux), RS)
    eta = -(l.x - many(transpose(l.ux), Rr))
    zero = jnp.zeros_like(end.xx), jnp.zeros_like(end.x)
    tail = zero[0], zero[1], zero[0], -end.x, end.xx
    rows = (A, b, C, eta, J)
    rows = tuple(jnp.concatenate([x, y[None]]) for x, y in zip(rows, tail, strict=True))
    _, _, _, eta, J = jax.lax.associative_scan(jax.vmap(_combine), rows, reverse=True)
    Vx, Vxx = -eta[1:], 0.5 * (J[1:] + transpose(J[1:]))

    def gain(A, B, d, c, Vx, Vxx, R):
        shifted = Vx + times(Vxx, d)
        Qu, Qux = c.u + times(B.T, shifted), c.ux + times(B.T, Vxx, A)
        Quu = times(B.T, Vxx, B) + R
        factor = jax.scipy.linalg.cho_factor(Quu)
        both = -jax.scipy.linalg.cho_solve(factor, jnp.concatenate([Qu[:, None], Qux], axis=1))
        k, K = both[:, 0], both[:, 1:]
        return k, K, jnp.sum(k * Qu), 0.5 * jnp.sum(k * times(Quu, k))

    k, K, slope, bend = jax.vmap(gain)(*f, l, Vx, Vxx, R)
    definite = jnp.all(jnp.isfinite(k)) & jnp.all(jnp.isfinite(K))
    return Gains(k, K, Vx, Vxx, jnp.sum(slope), jnp.sum(bend), definite)


def _combine(later: Element, earlier: Element) -> Element:
    """The conditional value function of two adjacent intervals, (39)–(41).

    A reverse scan passes the later interval first.
    """
    A1, b1, C1, eta1, J1 = earlier
    A2, b2, C2, eta2, J2 = later
    eye = jnp.eye(A1.shape[0], dtype=A1.dtype)
    n = A1.shape[0]
    # (I + C1 J2)⁻¹ on the left of A1, C1 and b1 + C1 η2; its transpose is (I + J2 C1)⁻¹
    right = jnp.concatenate([A1, C1, (b1 + times(C1, eta2))[:, None]], axis=1)
    X = jnp.linalg.solve(eye + times(C1, J2), right)
    MA, MC, Mb = X[:, :n], X[:, n : 2 * n], X[:, 2 * n]
    A, b, C = times(A2, MA), times(A2, Mb) + b2, times(A2, MC, A2.T) + C2
    # A1ᵀ (I + J2 C1)⁻¹ = (M A1)ᵀ
    eta = times(MA.T, eta2 - times(J2, b1)) + eta1
    J = times(MA.T, J2, A1) + J1
    return A, b, 0.5 * (C + C.T), eta, 0.5 * (J + J.T)


def parallel_forward(f: Dynamics, gains: Gains) -> tuple[Float[Array, "N n"], Float[Array, "T m"]]:
    """The motion of the linear system under its gains from x = 0, by composing affine maps.

    Derivatives are those of autodiff.
    """
    many = jax.vmap(times)
    maps = f.A + many(f.B, gains.K), f.d + many(f.B, gains.k)

    def compose(first, second):
        (A1, b1), (A2, b2) = first, second
        return many(A2, A1), many(A2, b1) + b2

    x = jax.lax.associative_scan(compose, maps)[1]
    x = jnp.concatenate([jnp.zeros_like(x[:1]), x])
    return x, gains.k + many(gains.K, x[:-1])
