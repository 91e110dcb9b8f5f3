"""The rule of dynamics under constraints: accelerations and forces, and their implicit derivative.

With inverse dynamics ID, constraint Jacobian J and a system for the accelerations, a robot solves

    ID(q, v, a) − τ − Jᵀ λ = 0,        J a + γ = 0        (Featherstone, ch. 8)

so that its tangents obey, at fixed (a, λ) on the right,

    [ M  Jᵀ ] [  δa ]   [ δτ − δ(ID − Jᵀ λ) ]
    [ J  0  ] [ −δλ ] = [ −δ(J a + γ)       ]

The first line on the right is the operator of inverse dynamics with λ as wrenches on the bodies.
The second one is the tangent of a function of positions, velocities and accelerations. The factors
of the value solve it. A :class:`ConstraintSystem` supplies the rows; nothing here knows points or
frames.

Where rows of J depend on each other, ``λ = G⁺ b`` is the force of least norm: with ``N`` the
projector on the null space of ``Jᵀ``, ``N λ = 0``, and with any z for which ``λ = J z``,
``N δλ = N δJ z``. That is added to δλ. Where rows contradict each other the accelerations violate
them least in the metric of M, and the violation is held fixed by derivatives.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...algorithms import world_frame
from ...algorithms.block_columns import inner, times
from ...algorithms.passive import minus_springs, without_springs
from ...model import CoordinateModel, Model
from ...model.coordinates import CoordinateMap
from ...spatial import linear
from ..linearization import linearization_point
from .driven_joints import CoordinateSolver, coordinate_accelerations, torque_change
from .forward_dynamics import accelerations
from .inverse_dynamics import torque_tangent
from .mass_matrix_solver import Solver
from .matrix_inverse import factorized, independent, once_if, pseudoinverse_custom_jvp
from .mechanism import custom_jvp


class ConstraintSystem(eqx.Module):
    """Constraints on accelerations, as the rule needs them; m rows."""

    @abc.abstractmethod
    def active(self) -> Bool[Array, " m"]:
        """Which rows hold."""

    @abc.abstractmethod
    def support(self, model: Model) -> Bool[np.ndarray, "m nv"]:
        """Where J may differ from zero."""

    @abc.abstractmethod
    def jacobian(
        self, model: Model, q: Array, g: world_frame.WorldQuantities
    ) -> Float[Array, "m nv"]:
        """J, with zeros for rows that do not hold."""

    @abc.abstractmethod
    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """``J a + γ``, which is zero for rows that hold."""

    @abc.abstractmethod
    def velocity(self, model: Model, q: Array, v: Array) -> Float[Array, " m"]:
        """``J v``."""

    @abc.abstractmethod
    def transmitted(
        self, model: Model, q: Array, g: world_frame.WorldQuantities, forces: Array
    ) -> tuple[Float[Array, "nb 6"], Float[Array, " nv"]]:
        """``Jᵀ forces`` as wrenches on the bodies in their frames, and torques."""


class Saddle(NamedTuple):
    """The matrix ``[M Jᵀ; J 0]`` and what solves with it."""

    solver: Solver | CoordinateSolver
    J: Float[Array, "m nv"]
    Y: Float[Array, "nv m"]
    """``M⁻¹ Jᵀ``."""
    inverse: Float[Array, "m m"]
    """Pseudoinverse of the Delassus matrix ``G = J M⁻¹ Jᵀ``."""
    null: Float[Array, "m m"]
    """Projector on the null space of G."""

    def __call__(self, topology, torque: Array, rows: Array) -> tuple[Array, Array]:
        """``(x, y)`` with ``M x − Jᵀ y = torque`` and ``J x = rows``.

        The derivative is implicit, as that of ``Solver``: no factorization is differentiated.
        """
        frozen, nv = jax.lax.stop_gradient(self), torque.shape[0]

        def solve(_, b):
            x, y = frozen.corrected(frozen.solver(topology, b[:nv]), b[nv:])
            return jnp.concatenate([x, -y])

        def product(xy):
            x, y = xy[:nv], xy[nv:]
            top = self.solver.product(topology, x) + linear.matmul(self.J.T, y)
            return jnp.concatenate([top, linear.matmul(self.J, x)])

        # one vector: a transposition needs all of the right side to be linear, or nothing
        b = jnp.concatenate([torque, rows])
        xy = jax.lax.custom_linear_solve(product, b, solve, symmetric=True)
        return xy[:nv], -xy[nv:]

    def corrected(self, x: Array, rows: Array) -> tuple[Array, Array]:
        """``(x + Y y, y)`` with ``J (x + Y y) = rows``, in two steps: the second one removes most
        of the rounding of G⁺. Both may be matrices with one problem a column.
        """
        y = linear.matmul(self.inverse, rows - linear.matmul(self.J, x))
        moved = x + linear.matmul(self.Y, y)
        more = linear.matmul(self.inverse, rows - linear.matmul(self.J, moved))
        return moved + linear.matmul(self.Y, more), y + more


class _Projected(ConstraintSystem):
    """The system of a robot whose joints are independent, for one with driven joints."""

    system: ConstraintSystem

    def active(self):
        return self.system.active()

    def support(self, model):
        x = CoordinateMap(model, jnp.zeros((model.nq,), model.dtype))
        return (self.system.support(x.robot).astype(int) @ x.pattern) > 0

    def jacobian(self, model, q, g):
        x = CoordinateMap(model, q)
        return x.project_axes(
            self.system.jacobian(x.robot, x.q, world_frame.quantities(x.robot, x.q)), (1,)
        )

    def rows(self, model, q, v, a):
        x = CoordinateMap(model, q)
        return self.system.rows(x.robot, x.q, x.velocity(v), x.acceleration(v, a))

    def velocity(self, model, q, v):
        x = CoordinateMap(model, q)
        return self.system.velocity(x.robot, x.q, x.velocity(v))

    def transmitted(self, model, q, g, forces):
        x = CoordinateMap(model, q)
        W, torque = self.system.transmitted(
            x.robot, x.q, world_frame.quantities(x.robot, x.q), forces
        )
        return W, x.project(torque)


def solve_constrained(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
    system: ConstraintSystem,
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Accelerations and constraint forces, with analytical derivatives.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8; Carpentier, Budhiraja, Mansard,
    RSS 2021. Cost: O(n) for forward dynamics, O(n d) a column of ``M⁻¹ Jᵀ``, O(m³).
    """
    model, tau, system = prepared(model, q, tau, system)
    return constrained_dynamics_custom_jvp(model, q, v, tau, f_ext, system)[:2]


def prepared(
    model: Model, q: Array, tau: Array, system: ConstraintSystem
) -> tuple[Model, Array, ConstraintSystem]:
    """The robot, its torques and the system as the rule takes them.

    Springs become torques. Laws of driven joints are told in the independent coordinates, whose
    forward dynamics counts springs itself.
    """
    if isinstance(model, CoordinateModel):
        return model, tau, _Projected(system)
    return without_springs(model), minus_springs(model, q, tau), system


@custom_jvp
def constrained_dynamics_custom_jvp(model, q, v, tau, f_ext, system):
    """Accelerations, forces, and the factors, of which no derivative is taken."""
    topology, active = model.topology, system.active()
    if isinstance(model, CoordinateModel):
        free, solver = coordinate_accelerations(model, q, v, tau, f_ext)
        g: Any = None  # each function of the system finds its own poses
    else:
        free, _, g, _, solver = accelerations(model, q, v, jnp.zeros_like(v), tau, None, f_ext)
    J = system.jacobian(model, q, g)
    W, X = solver.half_solve(topology, J.T, system.support(model).T)
    G = inner(W, X, (~active).astype(J.dtype))

    missing = jnp.where(active, -system.rows(model, q, v, free), 0)

    def least_norm():
        J = system.jacobian(model, q, g)
        Y = solver.columns(topology, J.T)
        inverse, _ = independent(J, Y, active)
        forces = linear.matmul(inverse, missing)
        change = linear.matmul(Y, forces)
        # What is left goes along the tree, as the rows do: points of one body then share their
        # rounding, which G⁺ does not enlarge. This removes most of the rounding of G⁺.
        left = missing - jnp.where(active, system.velocity(model, q, change), 0)
        more = linear.matmul(inverse, left)
        return free + (change + linear.matmul(Y, more)), forces + more

    f = factorized(G)
    forces = f.apply(missing[:, None])[:, 0]
    a = free + solver.down(topology, X.times(forces, len(v))[:, None])[:, 0]
    a, forces = once_if(f.dependent, least_norm, (a, forces))
    Y = solver.down(topology, X.dense(len(v)))
    return a, forces, (solver.factor, G, Y, *pseudoinverse_custom_jvp(G, J, Y, active))


def motion_of(model, q, v, tau, f_ext, system: ConstraintSystem):
    """Accelerations, forces, poses, ``M⁻¹``, and the saddle, of what ``prepared`` gives."""
    a, forces, (factor, G, *_) = constrained_dynamics_custom_jvp(model, q, v, tau, f_ext, system)
    g, solver = _factorized(model, q, factor)
    J = system.jacobian(model, q, g)
    inverse = solver.columns(model.topology, jnp.eye(len(v), dtype=a.dtype))
    Y = times(inverse, J.T, system.support(model).T)
    saddle = Saddle(solver, J, Y, *pseudoinverse_custom_jvp(G, J, Y, system.active()))
    return a, forces, g, inverse, saddle


def _factorized(model, q, factor) -> tuple[Any, Solver | CoordinateSolver]:
    """Poses, and what solves with the mass matrix, for a known factor."""
    if isinstance(model, CoordinateModel):
        return None, CoordinateSolver(
            model, q, factor
        )  # functions of the system find their own poses
    g = world_frame.quantities(model, q)
    ones = jnp.ones_like(model.armature)
    return g, Solver(factor, g.R, g.p, g.S_own, g.I_own, model.armature, ones)


@constrained_dynamics_custom_jvp.def_jvp
def _constrained_dynamics_jvp(primals, tangents):
    model, q, v, tau, f_ext, system = primals
    dmodel, dq, dv, dtau, df_ext, dsystem = tangents
    a, forces, kept = constrained_dynamics_custom_jvp(*primals)
    factor, _, Y, inverse, null = jax.lax.stop_gradient(kept)
    g, solver = _factorized(model, q, factor)
    s = Saddle(solver, system.jacobian(model, q, g), Y, inverse, null)
    W, torque = system.transmitted(model, q, g, forces)
    pushed = W if f_ext is None else W + f_ext
    z = linear.matmul(Y, linear.matmul(inverse, forces))
    dW, dtorque, drows, dnull = _system_tangents(primals, tangents, a, forces, z)
    dpush = dW if df_ext is None else df_ext if dW is None else dW + df_ext
    if g is None:
        change = torque_change(model, q, v, a, pushed, dmodel, dq, dv, None, dpush)
    else:
        r = linearization_point(model, g, world_frame.motion(model, g, v, a, pushed))
        change = torque_tangent(model, q, v, a, g, r, dmodel, dq, dv, None, dpush)
    right = jnp.zeros_like(v)
    for sign, part in ((1, dtau), (-1, change), (1, dtorque)):
        right = right if part is None else right + sign * part
    active = system.active()
    rows = jnp.zeros_like(forces) if drows is None else jnp.where(active, -drows, 0)
    da, dforces = s(model.topology, right, rows)
    if dnull is not None:
        dforces = dforces + linear.matmul(null, jnp.where(active, dnull, 0))
    return (a, forces, kept), (da, dforces, jax.tree.map(jnp.zeros_like, kept))


def _system_tangents(primals, tangents, a, forces, z):
    """Tangents of the wrenches, the torques, the rows and J z, at fixed a, forces and z."""
    model, q, v, _, _, system = primals
    dmodel, dq, dv, _, _, dsystem = tangents
    moved = jax.tree.leaves((dmodel, dq, dv, dsystem))
    if not moved:
        return None, None, None, None

    def told(model, q, v, system):
        g = None if isinstance(model, CoordinateModel) else world_frame.quantities(model, q)
        W, torque = system.transmitted(model, q, g, forces)
        return W, torque, system.rows(model, q, v, a), system.velocity(model, q, z)

    return eqx.filter_jvp(told, (model, q, v, system), (dmodel, dq, dv, dsystem))[1]
