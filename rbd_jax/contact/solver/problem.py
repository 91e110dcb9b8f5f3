"""The constrained accelerations of one state as the minimum of a convex cost.

    a = argmin ½ ‖a − a_free‖²_M + s(J a − a_ref)            gradient  M a − b − Jᵀ f(J a − a_ref)

:class:`Problem` is dense: Newton's method works with its mass matrix and Jacobians.
:func:`residual` is the same gradient, computed body by body in O(n). The implicit derivative of the
accelerations is taken of it, and solved with the factor of the dense Hessian.

Source: MuJoCo's documentation, "Computation", constraint model and solvers.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...algorithms import world_frame
from ...algorithms.crba import composite_mass_matrix
from ...algorithms.passive import plus_springs
from ...derivatives.custom_jvp.implicit_solve import Stationary, minimizer_custom_jvp
from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...lanes import columns_of, factorized, factorized_solve
from ...model import Model, Topology
from ..constraints import Constraints
from ..tendons import TendonState
from ..weights import Constants
from .noslip import Soft, without_slip
from .rows import Bodies, Loads, Rows, State, Subspaces, classical_offset, state_of


class SolverInputs(NamedTuple):
    """All inputs of the constrained accelerations; their derivatives are with respect to these."""

    model: Model
    constraints: Constraints
    constants: Constants
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]
    """Forces of actuators, applied forces, gravity compensation and drag (N m, N)."""
    dt: Float[Array, ""]
    tendons: TendonState | None = None
    """The tendons at q; computed if None and the scene has tendons."""

    def state(self, solving: bool = False) -> State:
        """Poses and twists of the bodies. ``solving`` as in :class:`State`."""
        least = self.constraints.contacts.least_time * self.dt
        tendons = self.tendons
        if tendons is None and self.constraints.tendons is not None:
            tendons = self.constraints.tendons.at(self.model, self.q)
        state = state_of(self.model, self.q, self.v, self.constants, least, tendons)
        found = self.constraints.contacts.candidates(state)
        loops = self.constraints.noslip is None
        return state._replace(candidates=found, solving=solving, loops=loops)


class Factor(eqx.Module):
    """A symmetric matrix, factorized."""

    entries: Float[Array, " entries"]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Where the entries are, see :func:`rbd_jax.lanes.factorized`."""

    def solve(self, r: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``H⁻¹ r`` for the matrix H."""
        return factorized_solve(self.entries, r, self.columns)


class Problem:
    """The dense problem of one state. Residuals z and forces f have one entry for each ``rows``."""

    def __init__(self, inputs: SolverInputs, state: State | None = None):
        """``state`` is that of the inputs, ``inputs.state(solving=True)`` if it is None."""
        self.inputs = inputs
        state = inputs.state(solving=True) if state is None else state
        state = state._replace(dense=True)
        model, topology, g = inputs.model, inputs.model.topology, state.poses
        self.M = composite_mass_matrix(topology, g.p, g.S_own, g.I_own, model.armature)
        self.b = inputs.tau - _bias(state)
        self.rows = inputs.constraints.rows(state)
        subspaces = Subspaces.of(state)
        self.jacobians = [x.jacobian(subspaces) for x in self.rows]
        self.rows = [
            J if isinstance(J, Rows) else x for x, J in zip(self.rows, self.jacobians, strict=True)
        ]
        self.a_ref = [x.a_ref for x in self.rows]
        self.columns = columns_of(_pattern(topology, self.rows))
        """Columns of the factor."""
        crowded = [x.crowded() for x in self.rows]
        self.crowded = jnp.stack(crowded).any() if crowded else jnp.zeros((), bool)

    def map(self, a: Float[Array, " nv"]) -> list[PyTree]:
        """``J a``."""
        return [x.map(a) for x in self.jacobians]

    def residuals(self, a: Float[Array, " nv"]) -> list[PyTree]:
        """``z = J a − a_ref``."""
        return jax.tree.map(jnp.subtract, self.map(a), self.a_ref)

    def inertia(self) -> Float[Array, "nv nv"]:
        """The mass matrix, with the armature of tendons."""
        M = self.M
        for rows, J in zip(self.rows, self.jacobians, strict=True):
            M = J.curvature(rows.a_ref, M) if rows.inertial else M
        return M

    def without_slip(self, a: Float[Array, " nv"]) -> tuple[Float[Array, " nv"], list[PyTree]]:
        """Accelerations and forces after the noslip pass; a and no forces if there is no pass.

        Args:
            a: the accelerations that minimize the cost.
        """
        noslip = self.inputs.constraints.noslip
        if noslip is None:
            return a, []
        z = self.residuals(a)
        f = self.forces(z)
        mean, topology = self.inputs.constants.mean_inertia, self.inputs.model.topology
        mean = noslip.inertia if mean is None else mean
        assert mean is not None
        return without_slip(
            noslip, Soft(topology, self.inertia(), mean, self.rows, self.jacobians, z, f, a)
        )

    def forces(self, z: list[PyTree]) -> list[PyTree]:
        """The forces f of all rows."""
        return [rows.force(x) for rows, x in zip(self.rows, z, strict=True)]

    def pull(self, f: list[PyTree]) -> Float[Array, " nv"]:
        """``Jᵀ f``."""
        total = jnp.zeros_like(self.b)
        for J, x in zip(self.jacobians, f, strict=True):
            total = J.pull(x, total)
        return total

    def hessian(self, z: list[PyTree]) -> Float[Array, "nv nv"]:
        """``M − Jᵀ (∂f/∂z) J``, positive definite; contacts may be missing above the diagonal."""
        diagonal = jnp.zeros_like(self.b)
        for J, x in zip(self.jacobians, z, strict=True):
            diagonal = J.diagonal(x, diagonal)
        H = self.M + jnp.diag(diagonal)
        for J, x in zip(self.jacobians, z, strict=True):
            H = J.curvature(x, H)
        return H

    def factor(self, z: list[PyTree]) -> Factor:
        """The Hessian, factorized."""
        return Factor(factorized(self.hessian(z), self.columns), self.columns)


def _bias(state: State) -> Float[Array, " nv"]:
    """Bias forces and springs: the forces at which the unknown a is zero (N m, N)."""
    model, q, v, g = state.model, state.q, state.v, state.poses
    offset = classical_offset(model, v)
    held = world_frame.motion(model, g, v, -offset, None)
    held = plus_springs(model, q, world_frame.torque(model, g, held, v, -offset))
    return held + model.armature * offset


def _pattern(topology: Topology, rows: list[Rows]) -> np.ndarray:
    """Where the Hessian may not be zero."""
    pattern = np.array(topology.dof_tree.ancestor_mask)
    for dofs in (dofs for x in rows for dofs in x.coupled(topology)):
        pattern[np.ix_(dofs, dofs)] = True
    return pattern


class RowForces(NamedTuple):
    """All rows of a state, the forces that they have, and what these forces act on."""

    rows: list[Rows]
    forces: list[PyTree]
    bodies: Bodies
    loads: Loads


def row_forces(inputs: SolverInputs, state: State, a: Float[Array, " nv"]) -> RowForces:
    """The forces of all rows at the accelerations a, body by body in O(n).

    The loads on the joints include ``inputs.tau``. ``state`` is a state of the inputs.

    Without ``state.solving``, the forces are those after the noslip pass of the scene, if it has
    one; a are the accelerations before it.
    """
    rows, bodies = inputs.constraints.rows(state), state.moving(a)
    loads = Loads(jnp.zeros((len(bodies.p), 6), inputs.q.dtype), inputs.tau)
    forces = []
    if state.solving or inputs.constraints.noslip is None:
        for x in rows:
            loads, f = x.loaded(bodies, a, loads)
            forces.append(f)
    else:
        forces = Problem(inputs, state).without_slip(a)[1]
        for x, f in zip(rows, forces, strict=True):
            loads = x.load(f, bodies, loads)
    return RowForces(rows, forces, bodies, loads)


def residual(inputs: SolverInputs, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ID(q, v, a) − τ − Jᵀ f(J a − a_ref)`` in O(n), zero at the solution."""
    return _residual(_prepared(inputs), a)


def _prepared(inputs: SolverInputs) -> tuple[SolverInputs, State]:
    """What does not depend on the accelerations, above all the search for contacts."""
    return inputs, inputs.state(solving=True)


def _residual(prepared: tuple[SolverInputs, State], a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    inputs, state = prepared
    model, q, v = inputs.model, inputs.q, inputs.v
    offset, loads = classical_offset(model, v), row_forces(inputs, state, a).loads
    torque = inverse_dynamics(model, q, v, a - offset, loads.wrenches[:-1])
    return torque + model.armature * offset - loads.tau


def _solver(
    prepared: tuple[SolverInputs, State], a: Float[Array, " nv"], kept: Factor | None
) -> Callable[[Array], Array]:
    """``H⁻¹ r`` with the Hessian at the accelerations a, whose factor may have been kept."""
    if kept is None:
        problem = Problem(*prepared)
        kept = problem.factor(problem.residuals(a))
    return kept.solve


_STATIONARY = Stationary(_residual, _solver, _prepared)


def differentiable(
    inputs: SolverInputs, a: Float[Array, " nv"], kept: Factor | None = None
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Solved accelerations ``a`` with their implicit derivatives with respect to the inputs.

    The first result is after the noslip pass, the second one before it. ``kept`` is the factor of
    the Hessian at a, which is computed again if it is None.

    Source: MuJoCo's documentation, "Computation": ``H δa = δτ − δ(ID − Jᵀ f)`` at the solution.
    """
    a = minimizer_custom_jvp(_STATIONARY, inputs, a, kept)
    return (a if inputs.constraints.noslip is None else Problem(inputs).without_slip(a)[0]), a
