"""The models of one step of legged motion: its slopes, and the quadratic model of its cost."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...constraints import constrained_dynamics_derivatives
from ...lanes import lanes
from ...model import integrate, rate_from_velocity, velocity_from_rate
from ..linear_quadratic._lq_approximation import times
from ._residuals import Quadratic, dense, gauss_newton_blocks, mirrored, summed

if TYPE_CHECKING:
    from ._legged import LeggedProblem


@lanes
def landing_derivatives(problem: "LeggedProblem", t, q, v) -> Float[Array, "n n"]:
    """``∂(q, v)/∂(q, v)`` of a landing, in the tangent space."""
    nv = problem.model.nv

    def at(z):
        return problem.landed(t, integrate(problem.model, q, z[:nv]), v + z[nv:])

    eye = jnp.eye(2 * nv, dtype=q.dtype)
    return eye.at[nv:].set(jax.jacfwd(at)(jnp.zeros((2 * nv,), q.dtype)))


def motion_slopes(problem: "LeggedProblem", t, q, v, u):
    """``∂a/∂(x, u)`` and ``∂forces/∂(x, u)`` after the landing."""
    tau = problem.torques(t, q, v, u)
    d = constrained_dynamics_derivatives(problem.robot, q, v, tau, problem.phase(t)[0])
    by_x, by_u = problem.torque_slopes(t, q, v, u)

    def chain(by_q, by_v, by_tau):
        x = jnp.concatenate([by_q, by_v], axis=1)
        x = x if by_x is None else x + times(by_tau, by_x)
        return jnp.concatenate([x, times(by_tau, by_u)], axis=1)

    return chain(*d[:3]), chain(*d[3:])


@lanes
def step_derivatives(problem: "LeggedProblem", t, q, v, u) -> tuple[tuple[Array, Array], None]:
    """``(A, B)`` of one step after the landing."""
    a, slopes = problem.motion(t, q, v, u, land=False).a, motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, a, slopes[0]), None


def stage_model(problem: "LeggedProblem", t, q, v, u) -> tuple[None, Quadratic]:
    """The Gauss–Newton model of a stage cost of residuals after the landing."""
    return None, step_and_stage(problem, t, q, v, u)[1]


def step_and_stage(problem: "LeggedProblem", t, q, v, u):
    """Both of them, in two kernels: one for everything would need much more memory."""
    slopes, forces, by_z = _step_and_forces(problem, t, q, v, u)
    return slopes, stage_of_forces(problem, t, q, v, u, forces, by_z)


@lanes
def _step_and_forces(problem: "LeggedProblem", t, q, v, u):
    """``(A, B)`` of one step after the landing, its contact forces, and their slopes."""
    motion, slopes = problem.motion(t, q, v, u, land=False), motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, motion.a, slopes[0]), motion.forces, slopes[1]


def _step(problem: "LeggedProblem", q, v, a, da) -> tuple[Array, Array]:
    """``(A, B)`` from ``∂a/∂(x, u)``."""
    model, dt, n = problem.model, problem.dt, 2 * problem.model.nv
    dq, dv = jnp.split(jnp.eye(n, da.shape[1], dtype=q.dtype), 2)

    def advance(q, v, a):
        v = v + dt * a
        return integrate(model, q, dt * v), v

    def push(dq, dv, da):
        rates = rate_from_velocity(model, q, dq), dv, da
        (q1, _), (rate, dv1) = jax.jvp(advance, (q, v, a), rates)
        return jnp.concatenate([velocity_from_rate(model, q1, rate), dv1])

    AB = jax.vmap(push, in_axes=1, out_axes=1)(dq, dv, da)
    return AB[:, :n], AB[:, n:]


@lanes
def stage_of_forces(problem: "LeggedProblem", t, q, v, u, forces, slope) -> Quadratic:
    """The model of a stage cost from ``S = ∂forces/∂(x, u)``.

    With the blocks of states, controls and forces, x, u and f, its Hessian is
    ``H_ab + S_aᵀ (H_ff S_b + H_fb) + H_faᵀ S_b``. Most blocks are zero.
    """
    dt, n = problem.dt, 2 * v.size

    def residuals(dq, dv, du, df):
        moved = integrate(problem.model, q, dq), v + dv, u + du, forces + df
        return problem.stage(problem.model, t, *moved)

    at = [jnp.zeros_like(x) for x in (v, v, u, forces)]
    g, H = gauss_newton_blocks(residuals, at)
    g = [dt * x for x in g]
    H = [[None if x is None else dt * x for x in row] for row in H]
    S = slope[:, :n], slope[:, n:]
    ends = np.cumsum([0, *(x.size for x in at)])
    own = slice(0, 2), slice(2, 3)  # the parts of states and of controls
    mixed = [dense([H[3][part]], [x.size for x in at[part]], q.dtype, [forces.size])
             if any(x is not None for x in H[3][part]) else None for part in own]  # fmt: skip
    pushed = [summed(None if H[3][3] is None else times(H[3][3], S_b), m)
              for S_b, m in zip(S, mixed, strict=True)]  # fmt: skip

    def block(a, b):
        left, right = pushed[b], mixed[a]
        alike = a == b and right is None
        by_forces = mirrored if alike else lambda A, B: times(A.T, B)
        X = summed(
            None if left is None else by_forces(S[a], left),
            None if right is None else times(right.T, S[b]),
        )
        X = jnp.zeros((S[a].shape[1], S[b].shape[1]), q.dtype) if X is None else X
        for i in range(4)[own[a]]:
            for j in range(4)[own[b]]:
                if H[i][j] is not None:
                    rows = slice(ends[i] - ends[2 * a], ends[i + 1] - ends[2 * a])
                    columns = slice(ends[j] - ends[2 * b], ends[j + 1] - ends[2 * b])
                    X = X.at[rows, columns].add(H[i][j])
        return X

    gx, gu = (times(S_a.T, g[3]) for S_a in S)
    return Quadratic(jnp.concatenate(g[:2]) + gx, g[2] + gu, block(0, 0), block(1, 0), block(1, 1))
