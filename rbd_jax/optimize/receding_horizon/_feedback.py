"""The feedback of a solution as a policy of time and state."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...lanes import lanes
from ...model import Model, difference, integrate
from ..problems._problem import Problem
from ..solvers._solution import Solution


class Feedback(eqx.Module):
    """``u_k + K_k (x ⊖ x(t))`` as a policy ``(t, q, v) -> u`` for :func:`rbd_jax.rollout`.

    Between two steps of the solution, the reference x(t) moves along the geodesic from x_k to
    x_{k+1}. So the policy also works with a shorter time step than that of the problem. After the
    last step it holds the last state with the last controls and gains.
    """

    model: Model
    start: Float[Array, ""]
    dt: Float[Array, ""]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    lower: Float[Array, " nu"]
    upper: Float[Array, " nu"]

    def __call__(
        self, t: Float[Array, ""], q: Float[Array, " nq"], v: Float[Array, " nv"]
    ) -> Float[Array, " nu"]:
        """The controls at a time (s) and a state, within the bounds of the problem."""
        return _feedback(self, t, q, v)


@lanes
def _feedback(f: Feedback, t: Array, q: Array, v: Array) -> Float[Array, " nu"]:
    steps = (t - f.start) / f.dt
    # a time that is a step but for rounding is that step
    k = jnp.clip(jnp.floor(steps + 1e-4).astype(jnp.int32), 0, len(f.u) - 1)
    part = jnp.clip(steps - k.astype(steps.dtype), 0, 1)
    qk, vk = f.q[k], f.v[k]
    q_ref = integrate(f.model, qk, part * difference(f.model, qk, f.q[k + 1]))
    v_ref = vk + part * (f.v[k + 1] - vk)
    x = jnp.concatenate([difference(f.model, q_ref, q), v - v_ref])
    return jnp.clip(f.u[k] + jnp.sum(f.K[k] * x[None], axis=-1), f.lower, f.upper)


def feedback(problem: Problem, solution: Solution) -> Feedback:
    """The policy that follows a solution of a problem by its gains.

    Args:
        problem: what was solved.
        solution: of a solver that returns gains: iLQR, DDP, multiple shooting, augmented
            Lagrangian.

    Returns:
        The policy. It returns the controls of the problem; ``problem.torques`` turns them into
        torques where an actuation stands in between.
    """
    low, high = problem.bounds()
    q, v, u, K = (jnp.asarray(x) for x in (solution.q, solution.v, solution.u, solution.K))
    start = jnp.asarray(problem.start)
    return Feedback(problem.model, start, problem.dt, q, v, u, K, low, high)
