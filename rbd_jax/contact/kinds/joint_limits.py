"""Position limits of hinges and slides.

Source: MuJoCo's documentation, "Computation", constraint model, limits.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..solver import force_laws
from ..solver.force_laws import SolverParams
from ..solver.rows import Constraint, JointRows, State, indices, slope

Sides = tuple[Float[Array, " n"], Float[Array, " n"]]
"""One number for the lower and one for the upper limit of each joint."""


class JointLimits(Constraint):
    """Lower and upper limits of joints of one degree of freedom.

    The limits themselves are ``model.position_lower`` and ``model.position_upper``.
    """

    params: SolverParams
    margin: Float[Array, " n"]
    """Distance to the limit at which it begins to act (rad, m)."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    """The degree of freedom of each joint."""
    places: tuple[int, ...] = eqx.field(static=True)
    """Where each joint is in q."""

    def rows(self, state: State) -> Sequence["JointLimitRows"]:
        """Two rows for each joint; D is zero where a limit is farther away than its margin."""
        if not self.dofs:
            return ()
        model, dof, place = state.model, indices(self.dofs), indices(self.places)
        weight, sides = state.constants.weights.dofs, []
        for side, bound in ((1.0, model.position_lower), (-1.0, model.position_upper)):
            violation = side * (state.q[place] - bound[place]) - self.margin
            near = violation < 0
            rate, violation = side * state.v[dof], jnp.where(near, violation, 0)
            R, a_ref = self.params.regularized(violation, rate, weight[dof], state.least_time)
            sides.append((jnp.where(near, 1 / R, 0), a_ref))
        (lower, lower_ref), (upper, upper_ref) = sides
        return [JointLimitRows((lower_ref, upper_ref), (lower, upper), self.dofs)]


class JointLimitRows(JointRows):
    """``z = a − a_ref`` of lower limits and ``z = −a − a_ref`` of upper limits."""

    a_ref: Sides
    D: Sides
    dofs: tuple[int, ...] = eqx.field(static=True)

    def force(self, z: Sides) -> Sides:
        """A limit pushes away from itself only."""
        lower, upper = (force_laws.inequality(x, D) for x, D in zip(z, self.D, strict=True))
        return lower, upper

    def map(self, a: Float[Array, " nv"]) -> Sides:
        """``J a``."""
        dof = indices(self.dofs)
        return a[dof], -a[dof]

    def pull(self, f: Sides, tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        return tau.at[indices(self.dofs)].add(f[0] - f[1])

    def diagonal(self, z: Sides, total: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        lower, upper = slope(self.force, z)
        return total.at[indices(self.dofs)].add(-lower - upper)

    def report(self, f: Sides, joints: list[str]) -> dict[str, dict[str, Array]]:
        """The forces of the lower and upper limits by the names of the joints."""
        names = [joints[d] for d in self.dofs]
        lower, upper = (dict(zip(names, side, strict=True)) for side in f)
        return {"lower": lower, "upper": upper}
