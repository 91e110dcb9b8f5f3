"""The Newton–Euler equations of one body in every representation. Source: Müller §3.

Letters: M inertia (ten numbers), V twist, dV its rate, W the wrench that the motion takes. All
functions work on one body or, by broadcasting, on stacked bodies; they know no robot.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import inertia, so3
from ..spatial.motion import cross_twist, cross_wrench


def body_fixed_wrench(
    M: Float[Array, "*#b 10"], V: Float[Array, "*#b 6"], dV: Float[Array, "*#b 6"]
) -> Float[Array, "*b 6"]:
    """``W = M V̇ − ad_Vᵀ M V``, all in the body frame or all spatial (N m, N).

    Source: Müller (41), formally identical (38), with M in the same frame as V.
    """
    return inertia.apply(M, dV) + cross_wrench(V, inertia.apply(M, V))


spatial_wrench = body_fixed_wrench


def hybrid_wrench(
    M: Float[Array, "*#b 10"], V: Float[Array, "*#b 6"], dV: Float[Array, "*#b 6"]
) -> Float[Array, "*b 6"]:
    """``W = M V̇ + ad_ω M (ω, 0)``: at the body's origin, in world axes (N m, N).

    Source: Müller (53)–(55); M in world axes about the body's origin, see (51).
    """
    w = V[..., :3]
    turning = inertia.apply(M, jnp.concatenate([w, jnp.zeros_like(w)], axis=-1))
    rate = jnp.concatenate([so3.cross(w, turning[..., :3]), so3.cross(w, turning[..., 3:])], -1)
    return inertia.apply(M, dV) + rate


def mixed_wrench(
    M: Float[Array, "*#b 10"],
    R: Float[Array, "*#b 3 3"],
    V: Float[Array, "*#b 6"],
    dV: Float[Array, "*#b 6"],
) -> Float[Array, "*b 6"]:
    """``(t, f)``: moment about the body's origin in body axes, force in world axes (N m, N).

    Source: Müller (56)–(57); M in the body frame, ``V = (ωᵇ, ṙ)``, R from body to world.
    """
    w, dw, ddr = V[..., :3], dV[..., :3], dV[..., 3:]
    Theta, m, md = inertia.rotational(M), M[..., 0:1], M[..., 1:4]
    t = so3.rotate(Theta, dw) + so3.cross(w, so3.rotate(Theta, w))
    t = t + so3.cross(md, so3.rotate_inverse(R, ddr))
    f = m * ddr + so3.rotate(R, so3.cross(dw, md) + so3.cross(w, so3.cross(w, md)))
    return jnp.concatenate([t, f], axis=-1)


def wrench_in_frame(
    M: Float[Array, "*#b 10"],
    V: Float[Array, "*#b 6"],
    dV: Float[Array, "*#b 6"],
    V_frame: Float[Array, "*#b 6"],
) -> Float[Array, "*b 6"]:
    """``W = M (V̇ + ad_{V_frame} V) − ad_Vᵀ M V`` in any moving frame (N m, N).

    Source: Müller (60) and (63). M, V, W are those of the body measured at the origin of a frame
    j and resolved in the axes of a frame k; dV is the rate of these components. ``V_frame`` is
    ``(ω of frame k, velocity of the origin of frame j)``, resolved in k: the frame's body-fixed
    twist if j = k (60), zero for the spatial, ``(0, ṙ)`` for the hybrid equations. In (63) as
    printed the second bracket has the twist of the body for that of the measuring frame.
    """
    return inertia.apply(M, dV + cross_twist(V_frame, V)) + cross_wrench(V, inertia.apply(M, V))
