"""Back onto the constraint manifold: the nearest configuration and velocity in the metric of M."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.constrained import solve_constrained
from ..derivatives.rules import at_rest
from ..lanes import lanes
from ..model import Model, integrate
from ..model.arguments import checked
from ._dynamics import Held, impact
from ._rows import errors, velocities
from ._set import Constraints, check


class State(NamedTuple):
    """Configuration and velocity."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]


class Closed(Held):
    """The law of a displacement that closes the gaps to first order: ``J a + c(q) = 0``."""

    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """The left side of the law."""
        return velocities(model, self.constraints, q, a) + errors(model, self.constraints, q)


@checked
@lanes
def project(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    constraints: Constraints,
    iterations: int = 2,
) -> State:
    """Move a state that has drifted back onto the active constraints: positions and velocities.

    Source: Gauss–Newton with ``J a = −c(q)`` and ``M a = Jᵀ λ``, which changes the configuration
    least in the metric of the mass matrix; then ``J v = 0``, an impact without restitution.
    Differentiable: each iteration has the rule of :func:`rbd_jax.constrained_dynamics`.

    Args:
        model: the robot.
        q: configuration near the manifold.
        v: velocity.
        constraints: the set.
        iterations: of Gauss–Newton; each squares the error. After a time step one or two are
            enough, from further away more are needed.

    Returns:
        ``(q, v)``. Contradictory constraints are met in the sense of least squares.
    """
    check("project", model, constraints)
    still, rest = jnp.zeros_like(v), at_rest(model)
    for _ in range(iterations):
        step = solve_constrained(rest, q, still, still, None, Closed(constraints))[0]
        q = integrate(model, q, step)
    sticking = jnp.zeros_like(constraints.restitution)
    sticks = eqx.tree_at(lambda c: c.restitution, constraints, sticking)
    return State(q, impact(model, q, v, sticks).v)
