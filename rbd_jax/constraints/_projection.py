"""Back onto the constraint manifold: the nearest configuration and velocity in the metric of M."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..algorithms.passive import at_rest
from ..derivatives.custom_jvp.constrained_dynamics import solve_constrained
from ..lanes import lanes
from ..model import Model, integrate
from ..model.arguments import check_number, checked, takes_coordinates
from ..model.outcome import RESULTS, throw_unless_successful
from ._dynamics import Held, impact
from ._rows import errors, residual, velocities
from ._set import Constraints, check


class Projected(NamedTuple):
    """A state on the constraint manifold, and how the projection ended."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    result: RESULTS
    """``successful`` if no position error exceeds √ε (m, rad) of the dtype; ``stalled`` if the last
    step moved the robot no more although errors remain, because constraints contradict each other;
    otherwise ``max_steps_reached`` or ``nonfinite``."""
    steps: Int[Array, ""]
    """Gauss–Newton steps, always ``max_steps``."""


class Closed(Held):
    """The law of a displacement that closes the gaps to first order: ``J a + c(q) = 0``."""

    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """The left side of the law."""
        return velocities(model, self.constraints, q, a) + errors(model, self.constraints, q)


@checked
@takes_coordinates
def project(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    constraints: Constraints,
    max_steps: int = 2,
    *,
    throw: bool = False,
) -> Projected:
    """Move a state that has drifted back onto the active constraints: positions and velocities.

    Source: Gauss–Newton with ``J a = −c(q)`` and ``M a = Jᵀ λ``, which changes the configuration
    least in the metric of the mass matrix; then ``J v = 0``, an impact without restitution.
    Differentiable: each step has the rule of :func:`rbd_jax.constrained_dynamics`.

    Args:
        model: the robot.
        q: configuration near the manifold.
        v: velocity.
        constraints: the set.
        max_steps: number of Gauss–Newton steps. Each one squares the error, and all of them are
            taken, so that the derivative is exact. After a time step one or two are enough, from
            further away more are needed.
        throw: raise an error if the constraints do not hold at the end; otherwise ``result`` says
            it. The error needs a look at the result on the host, so it is not the default.

    Returns:
        The state, ``result`` and ``steps``. Contradictory constraints are met in the sense of
        least squares.

    Raises:
        ValueError: for fewer than one step.
        RuntimeError: if the constraints do not hold at the end and ``throw`` is set.
    """
    check("project", model, constraints)
    check_number("project", "max_steps", max_steps, least=1, whole=True)
    new = _project(model, q, v, constraints, max_steps)
    return throw_unless_successful(new, new.result) if throw else new


@lanes
def _project(model: Model, q, v, constraints: Constraints, max_steps: int) -> Projected:
    still, rest = jnp.zeros_like(v), at_rest(model)

    def correct(q, _):
        step = solve_constrained(rest, q, still, still, None, Closed(constraints))[0]
        return integrate(model, q, step), jnp.max(jnp.abs(step), initial=0)

    q, moved = jax.lax.scan(correct, q, length=max_steps)
    sticking = jnp.zeros_like(constraints.restitution)
    sticks = eqx.tree_at(lambda c: c.restitution, constraints, sticking)
    v = impact(model, q, v, sticks).v
    error = jnp.max(jnp.abs(residual(model, q, constraints)), initial=0)
    small = float(jnp.finfo(q.dtype).eps) ** 0.5
    result = RESULTS.where(moved[-1] <= small, RESULTS.stalled, RESULTS.max_steps_reached)
    result = RESULTS.where(jnp.isfinite(error), result, RESULTS.nonfinite)
    result = RESULTS.where(error <= small, RESULTS.successful, result)
    return Projected(q, v, result, jnp.asarray(max_steps, jnp.int32))
