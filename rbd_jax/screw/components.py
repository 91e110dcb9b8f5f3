"""Recursive Newton–Euler in components, frames at the centers of mass. Source: the notes §5–§7.

Letters: (R, p) is the pose of frame i in frame λ (the notes' T_{i,i+1} is its inverse), (z, b) the
joint screw, (ω, v) the twist, (dw, dv) its rate, (n, f) the wrench through the joint, and I the
rotational inertia about the center of mass. All belong to body i, in a frame at its center of mass
with the axes of the body frame.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.passive import BaseMotion, plus_springs, world_motion
from ..algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked, projected
from ..spatial import inertia, so3
from ..spatial.so3 import cross, rotate, rotate_inverse


@checked
@projected(0)
def component_inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    base_motion: BaseMotion | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of a motion by the component equations of the notes (N m, N).

    Arguments, armature, damping and springs are those of :func:`rbd_jax.rnea`. Sums run over all
    children, and joints may have several screws. The equations use mass and center of mass, so they
    ignore the first moment of a body without mass. Derivatives are those of autodiff. Cost: O(n).

    Source: the notes §4, §7 and §8.1 (motion of the base), with two corrections: the frame indices
    of ``exp(−[A]θ) M``, and the signs of the first term of §6.2. A child's wrench arrives as
    ``n + p × f`` in the parent's axes.
    """
    topology, parents = model.topology, model.topology.tree.parent_rows
    m, c, I = (g(model.inertia) for g in (inertia.mass, inertia.com, inertia.inertia_com))
    R, p = joint_placements(model, q)
    c_up = jnp.concatenate([c, jnp.zeros((1, 3), c.dtype)])[parents]
    p = p + rotate(R, c) - c_up
    S = motion_subspace(model)
    z, b = S[:, :3], S[:, 3:] + cross(S[:, :3], per_dof(topology, c))
    screws = jnp.concatenate([z, b], axis=-1)
    s, ds = (sum_dofs(topology, screws * x[:, None]) for x in (v, a))

    def forward(parent, x):
        R, p, s, ds = x
        w0, v0, dw0, dv0 = parent
        z, b = s[:3], s[3:]  # times θ̇
        w = rotate_inverse(R, w0) + z
        v = rotate_inverse(R, v0 - cross(p, w0)) + b
        dw = rotate_inverse(R, dw0) + cross(w, z) + ds[:3]
        dv = rotate_inverse(R, dv0 - cross(p, dw0)) + cross(v, z) + cross(w, b) + ds[3:]
        return w, v, dw, dv

    zero = jnp.zeros((3,), S.dtype)
    base = [half for x in world_motion(model, base_motion) for half in jnp.split(x, 2)]
    w, v_c, dw, dv = root_to_leaf(topology.tree, forward, (R, p, s, ds), tuple(base))
    n = rotate(I, dw) + cross(w, rotate(I, w))
    f = m[:, None] * (dv + cross(w, v_c))
    if f_ext is not None:
        n, f = n - (f_ext[:, :3] - cross(c, f_ext[:, 3:])), f - f_ext[:, 3:]

    def backward(x, below):
        R, p, n, f = x
        n, f = n + below[0], f + below[1]
        f_up = rotate(R, f)
        return (rotate(R, n) + cross(p, f_up), f_up), (n, f)

    n, f = leaf_to_root(topology.tree, backward, (R, p, n, f), (zero, zero))
    tau = so3.dot(per_dof(topology, n), z) + so3.dot(per_dof(topology, f), b)
    return plus_springs(model, q, tau + model.armature * a + model.damping * v)
