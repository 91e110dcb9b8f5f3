"""Expansions of dynamics and costs about a trajectory, in the tangent space of its states.

Letters: x = (δq, δv) is the change of the state along ``integrate(q, δq)`` and ``v + δv``, and u is
the change of the control. In ``x⁺ = A x + B u + d``, d is the gap between the end of the step and
the next state of the trajectory.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.fdsva import forward_dynamics_derivatives
from ..derivatives.rules import forward_dynamics
from ..derivatives.second_order import forward_dynamics_hessian
from ..model import difference, integrate
from ..simulate import step, step_derivatives
from ._problem import Problem, cost_value


class Dynamics(NamedTuple):
    """``x⁺ = A x + B u + d``, stacked over the steps."""

    A: Float[Array, "T n n"]
    B: Float[Array, "T n m"]
    d: Float[Array, "T n"]


class Quadratic(NamedTuple):
    """``lx·x + lu·u + ½ (x, u)ᵀ L (x, u)``. The final cost has no u."""

    x: Float[Array, "*T n"]
    u: Float[Array, "*T m"]
    xx: Float[Array, "*T n n"]
    ux: Float[Array, "*T m n"]
    uu: Float[Array, "*T m m"]


def times(*factors: Array) -> Array:
    """The product of matrices, and of a vector in the last place, in full precision."""
    out = factors[-1]
    for f in reversed(factors[:-1]):
        out = jnp.matmul(f, out, precision="highest")
    return out


def _split(x: Array, nv: int) -> tuple[Array, Array, Array]:
    return x[:nv], x[nv : 2 * nv], x[2 * nv :]


def _moved(problem: Problem, q, v, u, z):
    """The state and control at the tangent z = (δq, δv, δu)."""
    dq, dv, du = _split(z, problem.model.nv)
    return integrate(problem.model, q, dq), v + dv, u + du


def linear(problem: Problem, q: Array, v: Array, u: Array) -> Dynamics:
    """The dynamics about states (T+1, …) and controls (T, …), with their gaps."""

    def one(k, q, v, u, q_next, v_next):
        model, nv, dt = problem.model, problem.model.nv, problem.dt
        tau = problem.torques(problem.time(k), q, v, u)
        A, B = step_derivatives(model, q, v, tau, dt, integrator=problem.integrator)
        by_x, by_u = _torque_slopes(problem, k, q, v, u)
        A, B = A if by_x is None else A + times(B, by_x), times(B, by_u)
        q1, v1 = step(model, q, v, tau, dt, integrator=problem.integrator)
        gap = difference(model, q_next, q1)

        def from_next(e):  # the end of the step, relative to the next state of the trajectory
            return difference(model, q_next, integrate(model, q1, e))

        D = jax.jacfwd(from_next)(jnp.zeros_like(v))
        A, B = (jnp.concatenate([times(D, X[:nv]), X[nv:]]) for X in (A, B))
        return Dynamics(A, B, jnp.concatenate([gap, v1 - v_next]))

    k = jnp.arange(problem.steps)
    return jax.vmap(one)(k, q[:-1], v[:-1], u, q[1:], v[1:])


def _torque_slopes(problem: Problem, k, q, v, u):
    """``∂τ/∂x`` (None stands for zero) and ``∂τ/∂u``."""
    nv = problem.model.nv
    if problem.actuation is None:
        return None, jnp.eye(nv, dtype=q.dtype)
    if not callable(problem.actuation):
        return None, problem.actuation

    def torques(z):
        return problem.torques(problem.time(k), *_moved(problem, q, v, u, z))

    J = jax.jacfwd(torques)(jnp.zeros((2 * nv + u.size,), q.dtype))
    return J[:, : 2 * nv], J[:, 2 * nv :]


def _expand(function, size: int, dtype, exact: bool):
    """Gradient and Hessian of a cost at zero.

    The Hessian of a cost of residuals is the Gauss–Newton Hessian unless ``exact``.
    """
    zero = jnp.zeros((size,), dtype)
    if not exact and jax.eval_shape(function, zero).ndim:
        r, J = function(zero), jax.jacfwd(function)(zero)
        return times(J.T, r), times(J.T, J)
    slope = jax.grad(lambda z: cost_value(function(z)))
    H = jax.jacfwd(slope)(zero)
    return slope(zero), 0.5 * (H + H.T)


def quadratic(
    problem: Problem, q: Array, v: Array, u: Array, exact: bool = False
) -> tuple[Quadratic, Quadratic]:
    """Quadratic models of the stage costs and of the final cost about a trajectory."""
    n, model = 2 * problem.model.nv, problem.model

    def one(k, q, v, u):
        def cost(z):
            return problem.stage(model, problem.time(k), *_moved(problem, q, v, u, z))

        g, H = _expand(cost, n + u.size, q.dtype, exact)
        g, H = problem.dt * g, problem.dt * H
        return Quadratic(g[:n], g[n:], H[:n, :n], H[n:, :n], H[n:, n:])

    def last(z):
        return problem.final(model, *_moved(problem, q[-1], v[-1], u[-1, :0], z)[:2])

    g, H = _expand(last, n, q.dtype, exact)
    none = jnp.zeros((0,), q.dtype)
    end = Quadratic(g, none, H, jnp.zeros((0, n), q.dtype), jnp.zeros((0, 0), q.dtype))
    return jax.vmap(one)(jnp.arange(problem.steps), q[:-1], v[:-1], u), end


def costates(f: Dynamics, l: Quadratic, end: Quadratic) -> Float[Array, "T n"]:
    """``λ_{k+1} = ∂J/∂x_{k+1}`` for each step k, from the adjoint equation of the trajectory."""

    def back(lam, row):
        A, lx = row
        return lx + times(A.T, lam), lam

    return jax.lax.scan(back, end.x, (f.A, l.x), reverse=True)[1]


def curvature(problem: Problem, q: Array, v: Array, u: Array, lam: Float[Array, "T n"]):
    """``λᵀ`` times the second derivatives of every step: Hessians (T, n+m, n+m) in (x, u).

    For semi-implicit Euler they are computed in closed form from
    :func:`rbd_jax.derivatives.forward_dynamics_hessian`, for other integrators by forward over
    reverse mode through the step.
    """
    model, nv = problem.model, problem.model.nv
    closed = problem.integrator == "semi_implicit_euler"
    step_curvature = _euler_curvature if closed else _autodiff_curvature

    def one(k, q, v, u, lam):
        def torques(z):
            return problem.torques(problem.time(k), *_moved(problem, q, v, u, z))

        tau = problem.torques(problem.time(k), q, v, u)
        H = step_curvature(problem, q, v, tau, lam)
        by_x, by_u = _torque_slopes(problem, k, q, v, u)
        by_x = jnp.zeros((nv, 2 * nv), q.dtype) if by_x is None else by_x
        state = jnp.eye(2 * nv, 2 * nv + u.size, dtype=q.dtype)
        T = jnp.concatenate([state, jnp.concatenate([by_x, by_u], axis=1)])
        H = times(T.T, H, T)
        if callable(problem.actuation):
            B = step_derivatives(model, q, v, tau, problem.dt, integrator=problem.integrator)[1]
            zero = jnp.zeros((2 * nv + u.size,), q.dtype)
            H = H + jax.jacfwd(jax.grad(lambda z: jnp.sum(times(B.T, lam) * torques(z))))(zero)
        return 0.5 * (H + H.T)

    return jax.vmap(one)(jnp.arange(problem.steps), q[:-1], v[:-1], u, lam)


def _autodiff_curvature(problem: Problem, q, v, tau, lam):
    """λᵀ times the second derivatives of a step of any integrator, in (δq, δv, δτ)."""
    model, nv, dt = problem.model, problem.model.nv, problem.dt
    to = step(model, q, v, tau, dt, integrator=problem.integrator)[0]

    def weighted(z):
        dq, dv, dtau = _split(z, nv)
        at = integrate(model, q, dq), v + dv, tau + dtau
        q1, v1 = step(model, *at, dt, integrator=problem.integrator)
        return jnp.sum(lam * jnp.concatenate([difference(model, to, q1), v1]))

    return jax.jacfwd(jax.grad(weighted))(jnp.zeros((3 * nv,), q.dtype))


def _euler_curvature(problem: Problem, q, v, tau, lam):
    """λᵀ times the second derivatives of a step of semi-implicit Euler, in (δq, δv, δτ).

    The step is ``v⁺ = v + dt a, q⁺ = q ⊕ w, w = dt v⁺``. With ``φ(δq, w) = (q ⊕ δq ⊕ w) ⊖ q⁺`` and
    J the derivative of (δq, w), the result is ``Jᵀ ∇²(λ_qᵀ φ) J + ∇²(μᵀ a)``, where
    ``μ = dt λ_v + dt² ∂φ/∂wᵀ λ_q``.
    """
    model, nv, dt = problem.model, problem.model.nv, problem.dt
    w = dt * (v + dt * forward_dynamics(model, q, v, tau))
    to = integrate(model, q, w)

    def phi(z):
        at = integrate(model, integrate(model, q, z[:nv]), w + z[nv:])
        return jnp.sum(lam[:nv] * difference(model, to, at))

    slope, zero = jax.grad(phi), jnp.zeros((2 * nv,), q.dtype)
    H_phi, g_w = jax.jacfwd(slope)(zero), slope(zero)[nv:]
    aq, av, Minv = forward_dynamics_derivatives(model, q, v, tau)
    one = jnp.eye(nv, dtype=q.dtype)
    J = jnp.concatenate([dt * dt * aq, dt * (one + dt * av), dt * dt * Minv], axis=1)
    J = jnp.concatenate([jnp.eye(nv, 3 * nv, dtype=q.dtype), J])
    h = forward_dynamics_hessian(model, q, v, tau, dt * lam[nv:] + dt * dt * g_w)
    none = jnp.zeros_like(one)
    rows = [[h.qq, h.qv, h.uq.T], [h.qv.T, h.vv, none], [h.uq, none, none]]
    return times(J.T, H_phi, J) + jnp.concatenate([jnp.concatenate(r, axis=1) for r in rows])
