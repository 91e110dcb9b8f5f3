"""The articulated-body algorithm: forward and hybrid dynamics in body frames.

Source: Kim, Table 4 (hybrid dynamics). Table 3 (forward dynamics) is Table 4 without prescribed
joints.

Letters, all of body i and in frame i, with λ its parent:

==== ==========================================  ==== ==============================================
T    placement in the parent                     Ia   articulated inertia Î
S    motion subspace, constant in the body       Ba   bias wrench B̂ of the articulated body
V    twist                                       U    Î S
η    ad_V S q̇, the velocity's part of V̇          Ψ    1 / (Sᵀ Î S + armature), 0 if prescribed
β    bias wrench that the parent feels           Π    Î − U Ψ Uᵀ, inertia that the parent feels
dV   V̇, gravity included                         u    τ − Sᵀ B̂
==== ==========================================  ==== ==============================================
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..model import CoordinateModel, Model, joint_placements, motion_subspace
from ..model.arguments import algorithm
from ..spatial import articulated, inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .embedding import embedded_dynamics
from .factor import Factor
from .passive import BaseMotion, minus_springs, plus_springs, world_motion
from .tree import at_first_dof, at_last_dof, leaf_to_root, per_dof, root_to_leaf, sum_dofs


@algorithm(driven_joints=True)
def hybrid_aba(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nj"],
    f_ext: Float[Array, "nb 6"] | None = None,
    base_motion: BaseMotion | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Torques of joints whose acceleration is prescribed, and accelerations of the other joints.

    Source: Kim, Table 4. Its derivatives are those of autodiff; :func:`rbd_jax.hybrid_dynamics`
    has the same value and an analytical rule.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have a prescribed acceleration, (nj,); data, it may be mapped
            over. Of a robot with driven joints: which of the independent joints and coordinates,
            in the order of ``model.space.joint_names``.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).
        base_motion: twist and acceleration of the base; None for a base at rest. Gravity is given
            in the axes of the base, as it is at that instant.

    Returns:
        ``(a, tau)`` of all joints, the inputs among them. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    prescribed = prescribed_dofs(model, prescribed)
    if isinstance(model, CoordinateModel):
        return embedded_dynamics(model, q, v, a, tau, prescribed, f_ext, base_motion)[:2]
    tau = minus_springs(model, q, tau)
    a, tau, _ = articulated_dynamics(model, q, v, a, tau, prescribed, f_ext, base_motion)
    return a, plus_springs(model, q, tau)


@algorithm(driven_joints=True)
def aba(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    base_motion: BaseMotion | None = None,
) -> Float[Array, " nv"]:
    """Accelerations under the torques ``tau``, by the articulated-body algorithm.

    Source: Kim, Table 3. Its derivatives are those of autodiff; :func:`rbd_jax.forward_dynamics`
    has an analytical rule. Arguments and frames as in :func:`hybrid_aba`. Cost: O(n). Robots with
    driven joints take the form of :mod:`rbd_jax.algorithms.embedding`.
    """
    if isinstance(model, CoordinateModel):
        still = jnp.zeros_like(v)
        return embedded_dynamics(model, q, v, still, tau, None, f_ext, base_motion)[0]
    tau = minus_springs(model, q, tau)
    still = jnp.zeros_like(v)
    return articulated_dynamics(model, q, v, still, tau, None, f_ext, base_motion)[0]


def prescribed_dofs(model: Model, prescribed: Bool[Array, " nj"]) -> Bool[Array, " nv"]:
    """A flag for each degree of freedom, from one for each independent joint."""
    return per_dof(model.space, prescribed[:, None])[:, 0]


def articulated_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"] | None,
    f_ext: Float[Array, "nb 6"] | None,
    base_motion: BaseMotion | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"], Factor]:
    """``(a, tau, factor)`` by Table 4 on the tree of degrees of freedom.

    ``prescribed`` is a flag for each degree of freedom here, or None for none.

    A joint of several degrees of freedom is eliminated one column of S at a time. This is block
    elimination by Ψ = (SᵀÎS)⁻¹ without the inverse of a matrix. Between its columns lie massless
    nodes whose placement is the identity: T and η belong to a joint's first node, the inertia and
    its bias wrench to its last. Reverse mode keeps the inputs of a node and computes the inside of
    the node again, which halves the memory and is no slower.
    """
    again = partial(jax.checkpoint, prevent_cse=False)
    topology, I = model.topology, model.inertia
    T, S = joint_placements(model, q), motion_subspace(model)
    Sv = sum_dofs(topology, S * v[:, None])

    def velocity(V_up, x):
        T, Sv = x
        return to_child(T, V_up) + Sv

    V_base, A_base = world_motion(model, base_motion)
    V = root_to_leaf(topology.tree, again(velocity), (T, Sv), V_base)
    eta = cross_twist(V, Sv)
    B = cross_wrench(V, inertia.apply(I, V))
    if f_ext is not None:
        B = B - f_ext

    eye = jnp.eye(3, dtype=S.dtype)[None]
    T = at_first_dof(topology, T[0], eye), at_first_dof(topology, T[1])
    eta = at_first_dof(topology, eta)
    I, B = at_last_dof(topology, I), at_last_dof(topology, B)
    flags = jnp.zeros(topology.nv, bool) if prescribed is None else prescribed
    tau_in = jnp.where(flags, 0, tau - model.damping * v)
    flags = flags.astype(S.dtype)

    def backward(x, children):
        T, S, eta, I, B, tau, a, armature, prescribed = x
        Ia = jax.tree.map(jnp.add, articulated.from_inertia(I), children[0])
        Ba = B + children[1]
        U, psi, Pi = articulated.eliminate(Ia, S, armature, prescribed)
        u = tau - jnp.sum(S * Ba)
        beta = Ba + articulated.apply(Pi, eta) + U * jnp.where(prescribed > 0, a, psi * u)
        return (articulated.to_parent(T, Pi), wrench_to_parent(T, beta)), (U, psi, u)

    leaf = articulated.from_inertia(jnp.zeros((10,), S.dtype)), jnp.zeros((6,), S.dtype)
    rows = T, S, eta, I, B, tau_in, a, model.armature, flags
    U, psi, u = leaf_to_root(topology.dof_tree, again(backward), rows, leaf)

    def forward(above, x):
        T, S, eta, U, psi, u, tau, a, armature, prescribed = x
        dV = to_child(T, above[0]) + eta
        pull = jnp.sum(U * dV)
        qdd = jnp.where(prescribed > 0, a, psi * (u - pull))
        torque = pull + (tau - u) + qdd * (jnp.sum(U * S) + armature)  # Sᵀ(Î V̇ + B̂)
        return dV + S * qdd, qdd, torque

    world = A_base, jnp.zeros((), S.dtype), jnp.zeros((), S.dtype)
    rows = T, S, eta, U, psi, u, tau_in, a, model.armature, flags
    _, qdd, torque = root_to_leaf(topology.dof_tree, again(forward), rows, world)
    factor = Factor(S, U, psi, T)
    if prescribed is None:
        return qdd, tau, factor
    return qdd, jnp.where(prescribed, torque + model.damping * v, tau), factor
