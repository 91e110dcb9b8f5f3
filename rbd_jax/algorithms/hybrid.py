"""Articulated-body forward and hybrid dynamics in body frames. Source: Kim, Tables 3 and 4."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..lanes import lanes
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import articulated, inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .articulated import Factor
from .gravity import base_acceleration
from .springs import minus_springs, plus_springs
from .tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs


@checked
@lanes
def hybrid_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nb"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Accelerations of the free joints and torques of the joints whose acceleration is prescribed.

    Source: Kim, Table 4. Raw: derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalised inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have their acceleration given; data, it may be mapped over.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        ``(a, tau)`` complete: inputs where given, results elsewhere. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    by_dof = per_dof(model.topology, prescribed[:, None])[:, 0]
    tau = minus_springs(model, q, tau)
    a, tau = articulated_dynamics(model, q, v, a, tau, by_dof, f_ext)[:2]
    return a, plus_springs(model, q, tau)


@checked
@lanes
def aba(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations under the torques ``tau``, by the articulated-body algorithm.

    Source: Kim, Table 3 (Table 4 with no prescribed joint). Raw: derivatives are those of autodiff.
    Arguments and frames as in :func:`hybrid_dynamics`. Cost: O(n).
    """
    tau = minus_springs(model, q, tau)
    return articulated_dynamics(model, q, v, jnp.zeros_like(v), tau, None, f_ext)[0]


def articulated_dynamics(model, q, v, a, tau, prescribed, f_ext):
    """``(a, tau, factor)`` by Table 4 on the tree of degrees of freedom.

    ``prescribed`` is a flag for each degree of freedom, or None.

    A joint of several degrees of freedom is eliminated one column of S at a time, which is block
    elimination by Ψ = (SᵀÎS)⁻¹ without the matrix inverse. Between its columns lie massless
    nodes whose placement is the identity. Reverse mode keeps the inputs of a node and computes its
    inside again: half the memory, and no slower.
    """
    again = partial(jax.checkpoint, prevent_cse=False)
    topology, tree = model.topology, model.topology.dof_tree
    T_body, S = joint_placements(model, q), motion_subspace(model)
    Sv = sum_dofs(topology, S * v[:, None])

    def velocity(parent, x):
        T, Sv = x
        return to_child(T, parent) + Sv

    V = root_to_leaf(topology.tree, again(velocity), (T_body, Sv), jnp.zeros((6,), S.dtype))
    eta = cross_twist(V, Sv)
    B = cross_wrench(V, inertia.apply(model.inertia, V))
    if f_ext is not None:
        B = B - f_ext

    # from bodies to degrees of freedom: T and η belong to a joint's first, I and B to its last
    first, last = (np.isin(np.arange(topology.nv), k) for k in joint_ends(topology))
    eye = jnp.broadcast_to(jnp.eye(3, dtype=S.dtype), (topology.nv, 3, 3))
    pick = lambda x: per_dof(topology, x)  # noqa: E731
    T = (
        jnp.where(first[:, None, None], pick(T_body[0]), eye),
        jnp.where(first[:, None], pick(T_body[1]), 0),
    )
    eta = jnp.where(first[:, None], pick(eta), 0)
    I = jnp.where(last[:, None], pick(model.inertia), 0)
    B = jnp.where(last[:, None], pick(B), 0)
    known = jnp.zeros(topology.nv, bool) if prescribed is None else prescribed
    tau_in = jnp.where(known, 0, tau - model.damping * v)

    def backward(x, children):
        T, S, eta, I, B, tau, a, armature, known = x
        Ia = jax.tree.map(jnp.add, articulated.from_inertia(I), children[0])  # Î
        Ba = B + children[1]  # B̂
        U = articulated.apply(Ia, S)
        D = jnp.sum(S * U) + armature
        psi = jnp.where(known > 0, 0, 1 / jnp.where(known > 0, 1, D))  # Ψ
        u = tau - jnp.sum(S * Ba)
        Pi = articulated.less(Ia, psi, U)
        beta = Ba + articulated.apply(Pi, eta) + U * jnp.where(known > 0, a, psi * u)
        return (articulated.to_parent(T, Pi), wrench_to_parent(T, beta)), (U, psi, u)

    zero = articulated.from_inertia(jnp.zeros((10,), S.dtype)), jnp.zeros((6,), S.dtype)
    rows = (T, S, eta, I, B, tau_in, a, model.armature, known.astype(S.dtype))
    U, psi, u = leaf_to_root(tree, again(backward), rows, zero)

    def forward(parent, x):
        T, S, eta, U, psi, u, tau, a, armature, known = x
        dV = to_child(T, parent[0]) + eta
        pull = jnp.sum(U * dV)
        qdd = jnp.where(known > 0, a, psi * (u - pull))
        torque = pull + (tau - u) + qdd * (jnp.sum(U * S) + armature)  # Sᵀ(Î V̇ + B̂)
        return dV + S * qdd, qdd, torque

    start = base_acceleration(model), jnp.zeros((), S.dtype), jnp.zeros((), S.dtype)
    rows = (T, S, eta, U, psi, u, tau_in, a, model.armature, known.astype(S.dtype))
    _, qdd, torque = root_to_leaf(tree, again(forward), rows, start)
    factor = Factor(S, U, psi, T)
    if prescribed is None:
        return qdd, tau, factor
    return qdd, jnp.where(prescribed, torque + model.damping * v, tau), factor


def joint_ends(topology):
    """The first and the last degree of freedom of every joint."""
    return topology.v_starts[:-1], topology.v_starts[1:] - 1
