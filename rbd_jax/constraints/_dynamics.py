"""Accelerations under constraints, impacts, and the Delassus matrix."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..algorithms import world_frame
from ..algorithms.passive import at_rest
from ..derivatives.custom_jvp.constrained_dynamics import ConstraintSystem, solve_constrained
from ..derivatives.custom_jvp.driven_joints import factorized
from ..derivatives.custom_jvp.forward_dynamics import accelerations
from ..model import CoordinateModel, Model
from ..model.arguments import algorithm
from ..model.coordinates import CoordinateMap
from ..spatial import linear
from . import _motion as motion
from ._jacobian import jacobian, jacobian_rows, support, transmitted
from ._rows import accelerations as acceleration_rows, velocities, without_gains
from ._set import Constraints, check


class ConstrainedMotion(NamedTuple):
    """Accelerations (rad/s², m/s²) and constraint forces (N m, N), one a row of the set."""

    a: Float[Array, " nv"]
    forces: Float[Array, " m"]


class Impact(NamedTuple):
    """Velocities after an impact (rad/s, m/s) and impulses (N m s, N s), one a row of the set."""

    v: Float[Array, " nv"]
    impulses: Float[Array, " m"]


class Held(ConstraintSystem):
    """The law of constraints that hold: ``J a + J̇ v + K_d ċ + K_p c = 0``."""

    constraints: Constraints

    def active(self) -> Bool[Array, " m"]:
        """Which rows hold."""
        return self.constraints.per_row(self.constraints.active)

    def support(self, model: Model) -> Bool[np.ndarray, "m nv"]:
        """Where J may differ from zero."""
        return support(model.topology, self.constraints)

    def jacobian(
        self, model: Model, q: Array, g: world_frame.WorldQuantities
    ) -> Float[Array, "m nv"]:
        """J, with zeros for rows that do not hold."""
        return jacobian_rows(model, self.constraints, g, motion.ground_origins(model, q))

    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """The left side of the law."""
        return acceleration_rows(model, self.constraints, q, v, a)

    def velocity(self, model: Model, q: Array, v: Array) -> Float[Array, " m"]:
        """``J v``."""
        return velocities(model, self.constraints, q, v)

    def transmitted(
        self, model: Model, q: Array, g: world_frame.WorldQuantities, forces: Array
    ) -> tuple[Float[Array, "nb 6"], Float[Array, " nv"]]:
        """``Jᵀ forces`` as wrenches on the bodies in their frames, and torques."""
        return transmitted(model, self.constraints, g, motion.ground_origins(model, q), forces)


class Driven(Held):
    """The law of constraints whose relative accelerations are given: ``J a + J̇ v = rates``."""

    rates: Float[Array, " m"]

    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """The left side of the law minus its right side; the gains of the set are zero."""
        return acceleration_rows(model, self.constraints, q, v, a) - self.rates


class Struck(Held):
    """The law of an impact: ``J (v⁺ − v) + (1 + e) J v = 0``; a stands for v⁺ − v."""

    before: Float[Array, " nv"]

    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """The left side of the law; the velocity of the robot at rest, v, is not used."""
        after = velocities(model, self.constraints, q, a + self.before)
        before = velocities(model, self.constraints, q, self.before)
        return after + self.constraints.per_row(self.constraints.restitution) * before


@algorithm(driven_joints=True)
def constrained_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    constraints: Constraints,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ConstrainedMotion:
    """Accelerations and constraint forces under torques, with exact analytical derivatives.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8: ``M a + h = τ + Jᵀ λ`` and
    ``J a + J̇ v + K_d ċ + K_p c = 0``; rank-deficient sets as in Carpentier, Budhiraja, Mansard,
    RSS 2021. Derivatives, with respect to everything, are implicit.

    Forces of dependent rows have the least norm. Rows that contradict each other are met in the
    sense of least squares, and derivatives then hold the violation fixed. Forces of inactive
    constraints are zero.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
        v: velocity; it need not satisfy the constraints.
        tau: torques (N m, N).
        constraints: see :mod:`rbd_jax.constraints`.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        ``(a, forces)``; a force acts on the first body of a constraint, its opposite on the second.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    check("constrained_dynamics", model, constraints)
    return ConstrainedMotion(*solve_constrained(model, q, v, tau, f_ext, Held(constraints)))


@algorithm(driven_joints=True)
def driven_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    constraints: Constraints,
    rates: Float[Array, " m"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ConstrainedMotion:
    """Accelerations and forces where the relative accelerations of all rows are given.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 3, rheonomic constraints:
    ``M a + h = τ + Jᵀ λ`` and ``J a + J̇ v = rates``. Baumgarte's gains do not count. Dependent and
    inactive rows, and derivatives, are as in :func:`constrained_dynamics`.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        tau: torques (N m, N).
        constraints: the set.
        rates: the accelerations of the rows (m/s², rad/s²); those of inactive rows do not count.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).
    """
    check("driven_dynamics", model, constraints)
    law = Driven(without_gains(constraints), rates)
    return ConstrainedMotion(*solve_constrained(model, q, v, tau, f_ext, law))


@algorithm(driven_joints=True)
def impact(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], constraints: Constraints
) -> Impact:
    """Velocities after, and impulses of, an impact with all active constraints at once.

    Source: ``M (v⁺ − v) = Jᵀ Λ`` and ``J v⁺ = −e J v``, Featherstone, ch. 11, with the restitution
    e of each constraint. Derivatives are implicit, as those of :func:`constrained_dynamics`.

    Args:
        model: the robot.
        q: configuration.
        v: velocity before the impact.
        constraints: those that strike; a foot that sticks has the restitution 0.

    Returns:
        ``(v, impulses)``: velocity after the impact, and impulses (N m s, N s).
    """
    check("impact", model, constraints)
    still, driven = jnp.zeros_like(v), isinstance(model, CoordinateModel)
    law = Struck(constraints, CoordinateMap(model, q).velocity(v) if driven else v)
    change, impulses = solve_constrained(at_rest(model), q, still, still, None, law)
    return Impact(v + change, impulses)


@algorithm(driven_joints=True)
def delassus(model: Model, q: Float[Array, " nq"], constraints: Constraints) -> Float[Array, "m m"]:
    """``J M⁻¹ Jᵀ``, the accelerations that unit forces cause; zero where inactive.

    Source: Carpentier, Budhiraja, Mansard, RSS 2021, §III.
    """
    check("delassus", model, constraints)
    zero = jnp.zeros((model.nv,), model.dtype)
    if isinstance(model, CoordinateModel):
        solver, J = factorized(model, q), jacobian(model, q, constraints)
    else:
        *_, g, _, solver = accelerations(model, q, zero, zero, zero, None, None)
        J = jacobian_rows(model, constraints, g, motion.ground_origins(model, q))
    G = linear.matmul(J, solver.columns(model.topology, J.T))
    return 0.5 * (G + G.T)
