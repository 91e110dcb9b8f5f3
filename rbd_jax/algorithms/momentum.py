"""The momentum ``∂T/∂v`` of all joints and the slope ``∂T/∂q``, in one pass."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import CoordinateModel, Model, coadjoint
from ..model.arguments import algorithm, projected
from ..model.coordinates import CoordinateMap
from ..spatial import inertia
from ..spatial.motion import cross_twist, wrench_to_parent
from . import world_frame
from .kinematics import body_velocities, forward_kinematics
from .tree import ancestor_sum, per_dof, subtree_sum, sum_dofs


def kinetic_gradients(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """``(∂T/∂v, ∂T/∂q)`` of the kinetic energy, the second along ``integrate(q, ε e_k)``.

    Source: Müller (35) and (79), ``∂T/∂v = Sᵀ Π`` with the momenta Π of subtrees, and the part of
    the rotors. Moving joint k adds the twist ``v_λ × S``, seen from the body (Singh, Algorithm 1,
    line of Ψ̇), so that ``∂T/∂q = (v_λ × S)ᵀ Π``. At a free root ∂T/∂q is exactly zero. Cost: O(n).
    With driven joints ``∂T/∂ẏ = Φᵀ ∂T/∂v`` and ``∂T/∂y = Φᵀ ∂T/∂q + (∂(Φ ẏ)/∂y)ᵀ ∂T/∂v``.
    """
    if isinstance(model, CoordinateModel):
        x = CoordinateMap(model, q)
        p, slope = kinetic_gradients(x.robot, x.q, x.velocity(v))
        total = x.project(slope)
        for law, at, u in x.laws:
            if not law.linear:
                moved = jax.vjp(lambda u, law=law, du=v[at.by_v]: law.velocity(u, du), u)[1]
                total = total.at[at.by_v].add(moved(p[at.v])[0])
        return x.project(p), total
    topology, g = model.topology, world_frame.quantities(model, q)
    Sv = sum_dofs(topology, g.S * v[:, None])
    V = ancestor_sum(topology.tree, Sv)
    Pi = per_dof(topology, subtree_sum(topology.tree, inertia.apply(g.I, V)))
    V_up = jnp.concatenate([V, jnp.zeros_like(V[:1])])[topology.tree.parent_rows]
    slope = cross_twist(per_dof(topology, V_up), g.S)
    return jnp.sum(g.S * Pi, axis=-1) + model.armature * v, jnp.sum(slope * Pi, axis=-1)


@projected(0)
def rotor_coadjoint(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``ad*_v`` of the rotors' part of the momentum, which equations of motion do not have."""
    return coadjoint(model, v, model.armature * v)


@algorithm(driven_joints=True)
def spatial_momentum(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "6"]:
    """Momentum (angular about the world's origin, linear) in world axes (N m s, N s).

    Source: Müller (35), summed over the bodies. Its rate is the sum of the external wrenches (36).
    Momentum-preserving integrators keep it. Derivatives are those of autodiff.
    """
    L = inertia.apply(model.inertia, body_velocities(model, q, v))
    return jnp.sum(wrench_to_parent(forward_kinematics(model, q), L), axis=0)
