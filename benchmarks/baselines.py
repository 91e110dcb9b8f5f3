"""The baselines of Singh, Table II: what IDSVA and FDSVA are compared with.

- RNEACR: the chain rule on RNEA, one directional derivative for each of the 2 nv tangents. Twice:
  by Kim's Table 5, which is that chain rule written out, and by forward-mode autodiff.
- ABACR: the chain rule on ABA, by forward-mode autodiff.
- FDCR: ``∂FD = −M⁻¹ RNEACR``, M⁻¹ apart.

All work in the tangent space: column k is along ``integrate(q, ε e_k)``.
"""

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.derivatives.kim import perturbation_of
from rbd_jax.derivatives.kim_inverse import kim_inverse_dynamics_derivative


def rneacr_kim(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v)`` by Kim, Table 5, over all unit tangents."""
    eye = jnp.eye(model.nv, dtype=q.dtype)

    def along_q(e):
        p = perturbation_of(model, q, dq=rbd.rate_from_velocity(model, q, e))
        return kim_inverse_dynamics_derivative(model, q, v, a, p)[1]

    def along_v(e):
        p = perturbation_of(model, q, dv=e)
        return kim_inverse_dynamics_derivative(model, q, v, a, p)[1]

    return jax.vmap(along_q, out_axes=1)(eye), jax.vmap(along_v, out_axes=1)(eye)


def _in_chart(function, model, q, v, u):
    def at(dq, v):
        return function(model, rbd.integrate(model, q, dq), v, u)

    return jax.jacfwd(at, (0, 1))(jnp.zeros_like(v), v)


def rneacr(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v)`` by forward-mode autodiff of RNEA."""
    return _in_chart(rbd.rnea, model, q, v, a)


def abacr(model, q, v, tau):
    """``(∂a/∂q, ∂a/∂v)`` by forward-mode autodiff of ABA."""
    return _in_chart(rbd.aba, model, q, v, tau)


def fdcr(model, q, v, tau):
    """``(∂a/∂q, ∂a/∂v, M⁻¹)`` with RNEACR; Singh (5)."""
    a = rbd.aba(model, q, v, tau)
    dq, dv = rneacr(model, q, v, a)
    factor = jax.scipy.linalg.cho_factor(rbd.crba(model, q))
    Minv = jax.scipy.linalg.cho_solve(factor, jnp.eye(model.nv, dtype=q.dtype))
    return -jnp.matmul(Minv, dq), -jnp.matmul(Minv, dv), Minv


def check(name: str, reference: tuple, other: tuple) -> float:
    """Largest difference of two results over the largest entry; raise if it is not rounding.

    Long chains are ill-conditioned (M of a hundred links: about 1e8), which the limit allows for.
    """
    pairs = zip(other, reference[: len(other)], strict=True)
    found = max(float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y))) for x, y in pairs)
    limit = 1e-9 if reference[0].shape[-1] <= 50 else 1e-6
    if not found < limit:
        raise AssertionError(f"{name} differs from its reference by {found:.1e}")
    return found
