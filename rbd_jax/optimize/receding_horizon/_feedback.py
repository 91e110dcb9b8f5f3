"""The feedback of a solution as a policy of time and state."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...lanes import lanes
from ...simulate import StatePolicy, with_tangent
from ..problems._problem import Problem
from ..solvers._solution import Solution


class Feedback(StatePolicy):
    """``u_k + K_k (x ⊖ x(t))`` as a policy ``(t, q, v) -> u`` for :func:`rbd_jax.rollout`.

    If the plant of the solution has a memory, so has the feedback: it is called as ``(t, q, v,
    memory)``, as rollouts do.

    Between two steps of the solution, the reference x(t) moves along the geodesic from x_k to
    x_{k+1}. So the policy also works with a shorter time step than that of the problem. After the
    last step it holds the last state with the last controls and gains.
    """

    problem: Problem
    q: Float[Array, "N nq"]
    y: Float[Array, "N ny"]
    """The velocities and memories of the plan, see :class:`Problem`."""
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]

    def __call__(
        self,
        t: float | Array,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        memory: PyTree = None,
    ) -> Float[Array, " nu"]:
        """The controls at a time (s) and a state, within the bounds of the problem.

        Raises:
            ValueError: for a memory that is not like the one of the solution's plant.
        """
        sizes = [x.size for x in jax.tree.leaves(with_tangent(memory))]
        wanted = self.problem.layout.size
        if wanted and sum(sizes) != wanted:
            kind = type(self.problem.plant).__name__
            raise ValueError(
                f"Feedback: its plant, a {kind}, has a memory of {wanted} numbers, got "
                f"{sum(sizes)}; let it act in a plant with the same memory"
            )
        return _feedback(self, t, q, self.problem.packed(v, memory))


@lanes
def _feedback(f: Feedback, t: float | Array, q: Array, y: Array) -> Float[Array, " nu"]:
    problem = f.problem
    steps = (t - problem.start) / problem.dt
    # a time that is a step but for rounding is that step
    k = jnp.clip(jnp.floor(steps + 1e-4).astype(jnp.int32), 0, len(f.u) - 1)
    part = jnp.clip(steps - k.astype(steps.dtype), 0, 1)
    here = f.q[k], f.y[k]
    way = part * problem.difference(*here, f.q[k + 1], f.y[k + 1])
    x = problem.difference(*problem.integrate(*here, way), q, y)
    return problem.clip(f.u[k] + jnp.sum(f.K[k] * x[None], axis=-1))


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
    q, v, u, K = (jnp.asarray(x) for x in (solution.q, solution.v, solution.u, solution.K))
    return Feedback(problem, q, problem.packed(v, solution.memory), u, K)
