"""The accelerations of a step whose damping and Coriolis torques are those of its end.

The equation of the step is linear in the accelerations a,

    (M + dt (D + C)) a = τ − h − D v,

with the joint damping D, the Coriolis matrix C of Singh (28) and the torques h of inverse dynamics
at rest. The matrix is not symmetric. Like M, it has entries only where one degree of freedom is an
ancestor of another, so that elimination along the branches costs O(n d²), d the depth of the tree.

The derivative is implicit, ``A δa = δb − δA a``, with products of A in O(n); no elimination is
differentiated.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.crba import composite_mass_pairs, crba
from ...algorithms.factor import product
from ...algorithms.tree import BranchLU, lu_along_branches, lu_solve
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...spatial.linear import qr_factor, solve_upper
from ..explicit.coriolis import coriolis_matrix, coriolis_pairs, coriolis_product
from ..linearization import LinearizationPoint, linearization_point
from .inverse_dynamics import inverse_dynamics


def implicitly_damped(model: Model, dt: float | Float[Array, ""]) -> Model:
    """The robot with ``dt D`` added to its rotor inertias, where D is its joint damping.

    A step with implicit damping takes the accelerations of this robot, ``(M + dt D) a = τ − h −
    D v``. So its :func:`rbd_jax.inverse_dynamics` gives the torques with which one such step
    reaches the velocity ``v + dt a`` exactly, and a controller that computes torques should take
    them from it. Gradients with respect to ``damping`` pass through both places where it acts.

    Args:
        model: the robot.
        dt: length of the step of the integrator (s).
    """
    armature = model.armature + jnp.asarray(dt, model.dtype) * model.damping
    return eqx.tree_at(lambda m: m.armature, model, armature)


@algorithm(driven_joints=True)
def implicit_step_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: Float[Array, ""],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations a with ``M a + (D + C) (v + dt a) = τ − g``, for a step of ``dt`` seconds.

    Source: the implicit step of MuJoCo, with C of Singh (28); see this module. Arguments, frames
    and units as :func:`rbd_jax.forward_dynamics`; dt in s. Derivatives are implicit and exact.
    Cost: O(n d²); O(n³) for robots with driven joints.
    """
    b = tau - inverse_dynamics(model, q, v, jnp.zeros_like(v), f_ext)
    model = implicitly_damped(model, dt)
    if isinstance(model, CoordinateModel):
        return _dense_solve(crba(model, q) + dt * coriolis_matrix(model, q, v), b)
    topology = model.topology
    g = world_frame.quantities(model, q)
    r = linearization_point(model, g, world_frame.motion(model, g, v, jnp.zeros_like(v), None))
    factor = jax.lax.stop_gradient(_factorize(model, g, r, dt))

    def matvec(x):
        return product(topology, g.S, g.I, model.armature, x) + dt * coriolis_product(
            topology, r, x
        )

    def solve(_, y):
        return lu_solve(topology.dof_tree, factor, y)

    def solve_transposed(_, y):
        return lu_solve(topology.dof_tree, BranchLU(factor.H, factor.L, factor.psi), y)

    return jax.lax.custom_linear_solve(matvec, b, solve, solve_transposed)


def _factorize(
    model: Model, g: world_frame.WorldQuantities, r: LinearizationPoint, dt: Float[Array, ""]
) -> BranchLU:
    """The factors of ``M + dt C``."""
    tree = model.topology.dof_tree
    M, M_ii = composite_mass_pairs(model.topology, g.p, g.S_own, g.I_own, model.armature)
    C_low, C_high, C_ii = coriolis_pairs(model.topology, r)
    (i, j), n = tree.pairs, tree.n
    i, depth = np.r_[i, :n], tree.depths[np.r_[j, :n]]
    empty = jnp.zeros((n, int(tree.depths.max(initial=-1)) + 1), M.dtype)
    low, high = (
        empty.at[i, depth].set(jnp.concatenate([M + dt * C, M_ii + dt * C_ii]))
        for C in (C_low, C_high)
    )
    return lu_along_branches(tree, low, high)


def _dense_solve(A: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """``A⁻¹ b``, differentiated through its QR factorization."""
    R = qr_factor(jnp.concatenate([A, b[:, None]], axis=1))
    return solve_upper(R[:, :-1], R[:, -1:])[:, 0]
