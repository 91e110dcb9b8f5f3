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

from ._robots import over_batch, states


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


def _difference(ours, theirs) -> float:
    scaled = [jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)) for x, y in zip(ours, theirs)]  # noqa: B905
    return float(max(scaled))


def check(model: rbd.Model, samples: int = 4, tolerance: float = 1e-9) -> float:
    """Largest relative difference of the baselines and IDSVA, FDSVA, in float64; raise if large."""
    s = states(model, samples)

    def compare(m, q, v, a, tau):
        fdsva = rbd.forward_dynamics_derivatives(m, q, v, tau)
        aza = rbd.forward_dynamics_derivatives(m, q, v, tau, method="aza")
        idsva = rbd.inverse_dynamics_derivatives(m, q, v, a)
        inverse = rneacr_kim(m, q, v, a), rneacr(m, q, v, a)
        return idsva, fdsva, inverse, (abacr(m, q, v, tau), fdcr(m, q, v, tau), aza)

    batched = jax.jit(over_batch(compare, 4))
    idsva, fdsva, inverse, forward = batched(model, s.q, s.v, s.a, s.tau)
    found = [_difference(idsva, x) for x in inverse] + [_difference(fdsva, x) for x in forward]
    if not max(found) < tolerance:
        names = ("RNEACR Kim", "RNEACR", "ABACR", "FDCR", "AZA")
        raise AssertionError(f"{model.topology.name}: {dict(zip(names, found, strict=True))}")
    return max(found)
