"""The linear-quadratic approximation of a problem about a trajectory, in the tangent space.

Letters: x = (δq, δv, δm) is the change of the state in the tangent space of the plant, and u is the
change of the control. In ``x⁺ = A x + B u + d``, d is the gap between the end of the step and the
next state of the trajectory. In the code v is the vector y of a :class:`Problem`: the velocity, and
behind it the memory of the plant if it has one.
"""

from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...derivatives.custom_jvp.forward_dynamics import forward_dynamics
from ...derivatives.explicit.fdsva import forward_dynamics_derivatives
from ...derivatives.explicit.second_order import forward_dynamics_hessian
from ...lanes import lanes
from ...model import difference, integrate
from ...simulate import Robot, step_derivatives
from ...spatial.linear import matmul
from ..problems._kinds import torque_slopes
from ..problems._local_models import Dynamics, Quadratic, times
from ..problems._problem import Problem, cost_value
from ..problems._residuals import dense, gauss_newton_blocks


def linear_dynamics(problem: Problem, q: Array, v: Array, u: Array, gaps: bool = True) -> Dynamics:
    """The dynamics about states (T+1, …) and controls (T, …).

    Without ``gaps``, the states must be the rollout of the controls, and d is zero.
    """
    return _linear(problem, problem.derivatives(q[:-1], v[:-1], u), q, v, u, gaps)


def _linear(problem: Problem, slopes: tuple[Array, Array], q, v, u, gaps: bool) -> Dynamics:
    k, (A, B) = jnp.arange(problem.steps), slopes
    if not gaps:
        return Dynamics(A, B, jnp.zeros(A.shape[:2], q.dtype))

    prepared = problem.prepared()

    def one(*row):
        return _with_gap(prepared, *row)

    return jax.vmap(one)(A, B, k, q[:-1], v[:-1], u, q[1:], v[1:])


def gauss_newton(
    problem: Problem, q: Array, v: Array, u: Array, gaps: bool = True
) -> tuple[Dynamics, Quadratic, Quadratic]:
    """:func:`linear_dynamics` and :func:`quadratic`, which share what they can."""
    slopes, own = problem.kind.expansions(problem, q[:-1], v[:-1], u)
    assert slopes is not None
    f = _linear(problem, slopes, q, v, u, gaps)
    return f, *_quadratic(problem, own, q, v, u, False)


@lanes
def _with_gap(problem: Problem, A, B, k, q, v, u, q_next, v_next) -> Dynamics:
    """The dynamics of one step, seen from the next state of the trajectory."""
    model, space = problem.model, problem.model.space
    q1, v1 = problem.step(k, q, v, u)
    gap = problem.difference(q_next, v_next, q1, v1)
    # the end of the step as seen from the next state: only rotations and free joints turn
    for b in (*space.bodies_of("free"), *space.bodies_of("spherical")):
        start, size = int(space.v_starts[b]), 6 if space.kinds[b] == "free" else 3
        rows = slice(start, start + size)

        def from_next(x, rows=rows):
            e = jnp.zeros((model.nv,), q.dtype).at[rows].set(x)
            return difference(model, q_next, integrate(model, q1, e))[rows]

        D = jax.jacfwd(from_next)(jnp.zeros((size,), q.dtype))
        A, B = (X.at[rows].set(times(D, X[rows])) for X in (A, B))
    if (nm := gap.size - 2 * model.nv) > 0:  # the memory may turn too
        still = jnp.zeros((model.nv,), q.dtype)

        def memory_from_next(m):
            moved = problem.varied(q1, v1, still, still, m)
            return problem.difference(q_next, v_next, *moved)[-nm:]

        D = jax.jacfwd(memory_from_next)(jnp.zeros((nm,), q.dtype))
        A, B = (X.at[-nm:].set(times(D, X[-nm:])) for X in (A, B))
    return Dynamics(A, B, gap)


def _jacobian(f, sizes: tuple[int, ...], dtype) -> Array:
    """``∂f/∂z`` at zero for z in parts: the parts that a value does not depend on cost nothing."""
    at = [jnp.zeros((n,), dtype) for n in sizes]
    blocks = [jax.jacfwd(f, argnums=k)(*at) for k, n in enumerate(sizes) if n]
    return jnp.concatenate(blocks, axis=-1)


def _expand(terms, sizes: tuple[int, ...], dtype, exact: bool):
    """Gradient and Hessian at zero of a sum of costs of the parts of z.

    The Hessian of residuals is that of Gauss and Newton unless ``exact``.
    """
    zero, size = [jnp.zeros((n,), dtype) for n in sizes], sum(sizes)
    every = tuple(range(len(sizes)))
    g, H = jnp.zeros((size,), dtype), jnp.zeros((size, size), dtype)
    for i, (_, shape) in enumerate(jax.eval_shape(terms, *zero)):
        weight = terms(*zero)[i][0]
        if shape.ndim and not exact:
            parts, blocks = gauss_newton_blocks(lambda *z, i=i: terms(*z)[i][1], zero)
            more = jnp.concatenate(parts), dense(blocks, sizes, dtype)
        else:
            slopes = jax.grad(lambda *z, i=i: cost_value(terms(*z)[i][1]), argnums=every)
            slope = lambda *z, slopes=slopes: jnp.concatenate(slopes(*z))  # noqa: E731
            more = slope(*zero), _jacobian(slope, sizes, dtype)
        g, H = g + weight * more[0], H + weight * more[1]
    return g, 0.5 * (H + H.T)


def quadratic(
    problem: Problem, q: Array, v: Array, u: Array, exact: bool = False
) -> tuple[Quadratic, Quadratic]:
    """Quadratic models of the stage costs and of the final cost about a trajectory."""
    own = None
    if not exact:
        own = problem.kind.expansions(problem, q[:-1], v[:-1], u, slopes=False)[1]
    return _quadratic(problem, own, q, v, u, exact)


def _quadratic(problem: Problem, own, q, v, u, exact: bool) -> tuple[Quadratic, Quadratic]:
    def one(k, q, v, u):
        return quadratic_stage(problem, k, q, v, u, exact)

    end = quadratic_end(problem, q[-1], v[-1], exact)
    if own is not None:
        return own, end
    return jax.vmap(one)(jnp.arange(problem.steps), q[:-1], v[:-1], u), end


@lanes
def quadratic_stage(problem: Problem, k, q, v, u, exact: bool) -> Quadratic:
    """The model of one stage cost."""
    sizes = *_parts(problem), u.size

    def terms(*z):
        return problem.stage_terms(k, *problem.varied(q, v, *z[:-1]), u + z[-1])

    return _blocks(*_expand(terms, sizes, q.dtype, exact), problem.nx)


def _parts(problem: Problem) -> tuple[int, ...]:
    """The sizes of δq, δv and, if there is a memory, δm."""
    nv, nm = problem.model.nv, problem.nx - 2 * problem.model.nv
    return (nv, nv, nm) if nm else (nv, nv)


def _blocks(g: Array, H: Array, n: int) -> Quadratic:
    return Quadratic(g[:n], g[n:], H[:n, :n], H[n:, :n], H[n:, n:])


@lanes
def quadratic_end(problem: Problem, q, v, exact: bool) -> Quadratic:
    """The model of the final cost."""
    none, n = jnp.zeros((0,), q.dtype), problem.nx

    def terms(*z):
        return problem.final_terms(*problem.varied(q, v, *z))

    g, H = _expand(terms, _parts(problem), q.dtype, exact)
    return Quadratic(g, none, H, jnp.zeros((0, n), q.dtype), jnp.zeros((0, 0), q.dtype))


def costates(
    f: Dynamics, l: Quadratic, end: Quadratic, K: Float[Array, "T m n"] | None = None
) -> Float[Array, "T n"]:
    """``λ_{k+1} = ∂J/∂x_{k+1}`` for each step k, from the adjoint equation of the trajectory.

    With gains K, those under the feedback ``u + K x``. At a minimum both are the same if K is zero
    for controls at their bounds, but for an unstable robot only the latter keep their digits.
    """
    A, lx = f.A, l.x
    if K is not None:
        A = A + matmul(f.B, K)
        lx = lx + jnp.sum(K * l.u[..., None], axis=1)

    def back(lam, row):
        A, lx = row
        return lx + times(A.T, lam), lam

    return jax.lax.scan(back, end.x, (A, lx), reverse=True)[1]


def curvature(problem: Problem, q: Array, v: Array, u: Array, lam: Float[Array, "T n"]):
    """``λᵀ`` times the second derivatives of every step: Hessians (T, n+m, n+m) in (x, u).

    For semi-implicit Euler they are computed in closed form from
    :func:`rbd_jax.derivatives.forward_dynamics_hessian`, for other integrators by forward over
    reverse mode through the step.
    """
    model, nv, prepared = problem.model, problem.model.nv, problem.prepared()

    def one(k, q, v, u, lam):
        if not (problem.kind.free and problem.kind.robot(problem)):
            return _autodiff_curvature(prepared, k, q, v, u, lam)

        def torques(z):
            return problem.torques(problem.time(k), *problem.moved(q, v, u, z))

        tau = problem.torques(problem.time(k), q, v, u)
        H = _euler_curvature(problem, q, v, tau, lam)
        by_x, by_u = torque_slopes(problem, problem.time(k), q, v, u)
        by_x = jnp.zeros((nv, 2 * nv), q.dtype) if by_x is None else by_x
        state = jnp.eye(2 * nv, 2 * nv + u.size, dtype=q.dtype)
        T = jnp.concatenate([state, jnp.concatenate([by_x, by_u], axis=1)])
        H = times(T.T, H, T)
        robot = cast(Robot, problem.plant)
        if callable(robot.actuation):
            how = {"integrator": robot.integrator, "f_ext": robot.f_ext}
            B = step_derivatives(model, q, v, tau, problem.dt, **how)[1]
            zero = jnp.zeros((2 * nv + u.size,), q.dtype)
            H = H + jax.jacfwd(jax.grad(lambda z: jnp.sum(times(B.T, lam) * torques(z))))(zero)
        return 0.5 * (H + H.T)

    return jax.vmap(one)(jnp.arange(problem.steps), q[:-1], v[:-1], u, lam)


def _autodiff_curvature(problem: Problem, k, q, v, u, lam):
    """λᵀ times the second derivatives of any step, in (δq, δv, δu)."""
    to = problem.step(k, q, v, u)

    def weighted(z):
        return jnp.sum(lam * problem.difference(*to, *problem.step(k, *problem.moved(q, v, u, z))))

    H = jax.jacfwd(jax.grad(weighted))(jnp.zeros((problem.nx + u.size,), q.dtype))
    return 0.5 * (H + H.T)


def _euler_curvature(problem: Problem, q, v, tau, lam):
    """λᵀ times the second derivatives of a step of semi-implicit Euler, in (δq, δv, δτ).

    The step is ``y = v + dt a, v⁺ = end(y), q⁺ = q ⊕ dt v⁺``. With ``φ(δq, δy) = λ_qᵀ ((q ⊕ δq ⊕
    dt v⁺(y + δy)) ⊖ q⁺) + λ_vᵀ v⁺(y + δy)`` and J the derivative of (δq, y), the result is
    ``Jᵀ ∇²φ J + ∇²(μᵀ a)``, where ``μ = dt ∂φ/∂δy``.
    """
    plant = cast(Robot, problem.plant)
    model, nv, dt = problem.kind.robot(problem), problem.model.nv, problem.dt
    f_ext, euler = plant.f_ext, plant.integrator.euler
    assert euler is not None
    y = v + dt * forward_dynamics(model, q, v, tau, f_ext)
    to = integrate(model, q, dt * euler.end(model, y, dt))

    def phi(z):
        end = euler.end(model, y + z[nv:], dt)
        at = integrate(model, integrate(model, q, z[:nv]), dt * end)
        return jnp.sum(lam[:nv] * difference(model, to, at)) + jnp.sum(lam[nv:] * end)

    slope, zero = jax.grad(phi), jnp.zeros((2 * nv,), q.dtype)
    H_phi, by_y = jax.jacfwd(slope)(zero), slope(zero)[nv:]
    aq, av, Minv = forward_dynamics_derivatives(model, q, v, tau, f_ext)
    one = jnp.eye(nv, dtype=q.dtype)
    J = jnp.concatenate([dt * aq, one + dt * av, dt * Minv], axis=1)
    J = jnp.concatenate([jnp.eye(nv, 3 * nv, dtype=q.dtype), J])
    h = forward_dynamics_hessian(model, q, v, tau, dt * by_y, f_ext)
    none = jnp.zeros_like(one)
    rows = [[h.qq, h.qv, h.uq.T], [h.qv.T, h.vv, none], [h.uq, none, none]]
    return times(J.T, H_phi, J) + jnp.concatenate([jnp.concatenate(r, axis=1) for r in rows])
