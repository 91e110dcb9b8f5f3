"""Dry friction of joints, MuJoCo's ``frictionloss``.

Source: MuJoCo's documentation, "Computation", constraint model, friction loss.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Topology
from ..solver import force_laws
from ..solver.force_laws import SolverParams, impedance, regularization, stiffness_and_damping
from ..solver.rows import Constraint, DryRows, State, indices, slope


class JointFriction(Constraint):
    """Dry friction of some degrees of freedom; its size is ``model.friction``."""

    params: SolverParams
    dofs: tuple[int, ...] = eqx.field(static=True)

    def rows(self, state: State) -> Sequence["JointFrictionRows"]:
        """One row for each degree of freedom, whose reference acceleration damps the velocity."""
        if not self.dofs:
            return ()
        dof = indices(self.dofs)
        speed = state.v[dof]
        _, b = stiffness_and_damping(self.params, state.least_time)
        d = impedance(self.params.solimp, jnp.zeros_like(speed))
        R = regularization(d, state.constants.weights.dofs[dof])
        return [JointFrictionRows(-b * speed, 1 / R, state.model.friction[dof], self.dofs)]


class JointFrictionRows(DryRows):
    """``z = a − a_ref`` of degrees of freedom with dry friction."""

    a_ref: Float[Array, " n"]
    D: Float[Array, " n"]
    loss: Float[Array, " n"]
    """The greatest force (N m, N)."""
    dofs: tuple[int, ...] = eqx.field(static=True)

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The force against the motion, at most ``loss``."""
        return force_laws.friction_loss(z, self.D, self.loss)

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " n"]:
        """``J a``."""
        return a[indices(self.dofs)]

    def pull(self, f: Float[Array, " n"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        return tau.at[indices(self.dofs)].add(f)

    def diagonal(self, z: Float[Array, " n"], total: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        return total.at[indices(self.dofs)].add(-slope(self.force, z))

    def places(self, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
        """The degrees of freedom follow each other."""
        return indices(self.dofs), 2 * indices(self.dofs)

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, dict[str, Array]]:
        """The forces by the names of the joints, one for each degree of freedom of a joint."""
        forces: dict[str, list] = {}
        for k, d in enumerate(self.dofs):
            forces.setdefault(joints[d], []).append(f[k])
        return {"joint_friction": {name: jnp.stack(x) for name, x in forces.items()}}
