"""The rule of dynamics under constraints: accelerations and forces, and their implicit derivative.

With inverse dynamics ID, constraint Jacobian J and a law for the accelerations, a robot solves

    ID(q, v, a) − τ − Jᵀ λ = 0,        J a + γ = 0        (Featherstone, ch. 8)

so that its tangents obey, at fixed (a, λ) on the right,

    [ M  Jᵀ ] [  δa ]   [ δτ − δ(ID − Jᵀ λ) ]
    [ J  0  ] [ −δλ ] = [ −δ(J a + γ)       ]

The first line on the right is the operator of inverse dynamics with λ as wrenches on the bodies,
the second one the tangent of a function of positions, velocities and accelerations; the factors of
the value solve it. What is tied is told by a :class:`Law`; nothing here knows points or frames.

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
from ...algorithms.springs import minus_springs, unsprung
from ...model import CoordinateModel, Model
from ...model.expansion import Expansion
from ..linearization import residual
from .driven_joints import CoordinateSolver, coordinate_accelerations, torque_change
from .forward_dynamics import accelerations
from .inverse_dynamics import torque_tangent
from .mass_matrix_solver import Solver
from .matrix_inverse import factorized, independent, once_if, pseudoinverse
from .mechanism import ruled


class Law(eqx.Module):
    """Constraints on accelerations, as the rule needs them; m rows."""

    @abc.abstractmethod
    def active(self) -> Bool[Array, " m"]:
        """Which rows hold."""

    @abc.abstractmethod
    def support(self, model: Model) -> Bool[np.ndarray, "m nv"]:
        """Where J may differ from zero."""

    @abc.abstractmethod
    def jacobian(self, model: Model, q: Array, g: world_frame.Placed) -> Float[Array, "m nv"]:
        """J, with zeros for rows that do not hold."""

    @abc.abstractmethod
    def rows(self, model: Model, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
        """``J a + γ``, which is zero for rows that hold."""

    @abc.abstractmethod
    def velocity(self, model: Model, q: Array, v: Array) -> Float[Array, " m"]:
        """``J v``."""

    @abc.abstractmethod
    def transmitted(
        self, model: Model, q: Array, g: world_frame.Placed, forces: Array
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
            top = self.solver.product(topology, x) + _times(self.J.T, y)
            return jnp.concatenate([top, _times(self.J, x)])

        # one vector: a transposition needs all of the right side to be linear, or nothing
        b = jnp.concatenate([torque, rows])
        xy = jax.lax.custom_linear_solve(product, b, solve, symmetric=True)
        return xy[:nv], -xy[nv:]

    def corrected(self, x: Array, rows: Array) -> tuple[Array, Array]:
        """``(x + Y y, y)`` with ``J (x + Y y) = rows``, in two steps: the second one removes most
        of the rounding of G⁺. Both may be matrices with one problem a column.
        """
        y = _times(self.inverse, rows - _times(self.J, x))
        moved = x + _times(self.Y, y)
        more = _times(self.inverse, rows - _times(self.J, moved))
        return moved + _times(self.Y, more), y + more


def _times(A: Array, x: Array) -> Array:
    return jnp.matmul(A, x, precision="highest")


class _Projected(Law):
    """The law of a robot whose joints are independent, for one with driven joints."""

    law: Law

    def active(self):
        return self.law.active()

    def support(self, model):
        x = Expansion(model, jnp.zeros((model.nq,), model.dtype))
        return (self.law.support(x.robot).astype(int) @ x.pattern) > 0

    def jacobian(self, model, q, g):
        x = Expansion(model, q)
        return x.project_axes(self.law.jacobian(x.robot, x.q, world_frame.pose(x.robot, x.q)), (1,))

    def rows(self, model, q, v, a):
        x = Expansion(model, q)
        return self.law.rows(x.robot, x.q, x.velocity(v), x.acceleration(v, a))

    def velocity(self, model, q, v):
        x = Expansion(model, q)
        return self.law.velocity(x.robot, x.q, x.velocity(v))

    def transmitted(self, model, q, g, forces):
        x = Expansion(model, q)
        W, torque = self.law.transmitted(x.robot, x.q, world_frame.pose(x.robot, x.q), forces)
        return W, x.project(torque)


def solve_constrained(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
    law: Law,
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Accelerations and constraint forces, with analytical derivatives.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8; Carpentier, Budhiraja, Mansard,
    RSS 2021. Cost: O(n) for forward dynamics, O(n d) a column of ``M⁻¹ Jᵀ``, O(m³).
    """
    model, tau, law = prepared(model, q, tau, law)
    return _constrained(model, q, v, tau, f_ext, law)[:2]


def prepared(model: Model, q: Array, tau: Array, law: Law) -> tuple[Model, Array, Law]:
    """The robot, its torques and the law as the rule takes them.

    Springs become torques. Laws of driven joints are told in the independent coordinates, whose
    forward dynamics counts springs itself.
    """
    if isinstance(model, CoordinateModel):
        return model, tau, _Projected(law)
    return unsprung(model), minus_springs(model, q, tau), law


@ruled
def _constrained(model, q, v, tau, f_ext, law):
    """Accelerations, forces, and the factors, of which no derivative is taken."""
    topology, active = model.topology, law.active()
    if isinstance(model, CoordinateModel):
        free, solver = coordinate_accelerations(model, q, v, tau, f_ext)
        g: Any = None  # each function of the law finds its own poses
    else:
        free, _, g, _, solver = accelerations(model, q, v, jnp.zeros_like(v), tau, None, f_ext)
    J = law.jacobian(model, q, g)
    W, X = solver.halves(topology, J.T, law.support(model).T)
    G = inner(W, X, (~active).astype(J.dtype))

    missing = jnp.where(active, -law.rows(model, q, v, free), 0)

    def least_norm():
        J = law.jacobian(model, q, g)
        Y = solver.columns(topology, J.T)
        inverse, _ = independent(J, Y, active)
        forces = _times(inverse, missing)
        change = _times(Y, forces)
        # What is left goes along the tree, as the rows do: points of one body then share their
        # rounding, which G⁺ does not enlarge. This removes most of the rounding of G⁺.
        left = missing - jnp.where(active, law.velocity(model, q, change), 0)
        more = _times(inverse, left)
        return free + (change + _times(Y, more)), forces + more

    f = factorized(G)
    forces = f.apply(missing[:, None])[:, 0]
    a = free + solver.down(topology, X.times(forces, len(v))[:, None])[:, 0]
    a, forces = once_if(f.dependent, least_norm, (a, forces))
    Y = solver.down(topology, X.dense(len(v)))
    return a, forces, (solver.factor, G, Y, *pseudoinverse(G, J, Y, active))


def motion_of(model, q, v, tau, f_ext, law: Law):
    """Accelerations, forces, poses, ``M⁻¹``, and the saddle, of what ``prepared`` gives."""
    a, forces, (factor, G, *_) = _constrained(model, q, v, tau, f_ext, law)
    g, solver = _factorized(model, q, factor)
    J = law.jacobian(model, q, g)
    inverse = solver.columns(model.topology, jnp.eye(len(v), dtype=a.dtype))
    Y = times(inverse, J.T, law.support(model).T)
    saddle = Saddle(solver, J, Y, *pseudoinverse(G, J, Y, law.active()))
    return a, forces, g, inverse, saddle


def _factorized(model, q, factor) -> tuple[Any, Solver | CoordinateSolver]:
    """Poses, and what solves with the mass matrix, for a known factor."""
    if isinstance(model, CoordinateModel):
        return None, CoordinateSolver(model, q, factor)  # functions of the law find their own poses
    g = world_frame.pose(model, q)
    ones = jnp.ones_like(model.armature)
    return g, Solver(factor, g.R, g.p, g.S_own, g.I_own, model.armature, ones)


@_constrained.def_jvp
def _constrained_jvp(primals, tangents):
    model, q, v, tau, f_ext, law = primals
    dmodel, dq, dv, dtau, df_ext, dlaw = tangents
    a, forces, kept = _constrained(*primals)
    factor, _, Y, inverse, null = jax.lax.stop_gradient(kept)
    g, solver = _factorized(model, q, factor)
    s = Saddle(solver, law.jacobian(model, q, g), Y, inverse, null)
    W, torque = law.transmitted(model, q, g, forces)
    pushed = W if f_ext is None else W + f_ext
    z = _times(Y, _times(inverse, forces))
    dW, dtorque, drows, dnull = _law_tangents(primals, tangents, a, forces, z)
    dpush = dW if df_ext is None else df_ext if dW is None else dW + df_ext
    if g is None:
        change = torque_change(model, q, v, a, pushed, dmodel, dq, dv, dpush)
    else:
        r = residual(model, g, world_frame.motion(model, g, v, a, pushed))
        change = torque_tangent(model, q, v, a, g, r, dmodel, dq, dv, None, dpush)
    right = jnp.zeros_like(v)
    for sign, part in ((1, dtau), (-1, change), (1, dtorque)):
        right = right if part is None else right + sign * part
    active = law.active()
    rows = jnp.zeros_like(forces) if drows is None else jnp.where(active, -drows, 0)
    da, dforces = s(model.topology, right, rows)
    if dnull is not None:
        dforces = dforces + _times(null, jnp.where(active, dnull, 0))
    return (a, forces, kept), (da, dforces, jax.tree.map(jnp.zeros_like, kept))


def _law_tangents(primals, tangents, a, forces, z):
    """Tangents at fixed a, forces and z of the wrenches, the torques, the law's rows, and J z."""
    model, q, v, _, _, law = primals
    dmodel, dq, dv, _, _, dlaw = tangents
    moved = jax.tree.leaves((dmodel, dq, dv, dlaw))
    if not moved:
        return None, None, None, None

    def told(model, q, v, law):
        g = None if isinstance(model, CoordinateModel) else world_frame.pose(model, q)
        W, torque = law.transmitted(model, q, g, forces)
        return W, torque, law.rows(model, q, v, a), law.velocity(model, q, z)

    return eqx.filter_jvp(told, (model, q, v, law), (dmodel, dq, dv, dlaw))[1]
