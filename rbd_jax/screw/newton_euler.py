"""The Newton–Euler equations of one body in every representation. Source: Müller §3.

Letters: M is the inertia (ten numbers), V the twist, dV its rate, and W the wrench that causes the
motion. All functions take one body or stacked bodies, which broadcast. They do not depend on a
robot. Derivatives are those of autodiff.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import inertia, so3
from ..spatial.motion import cross_twist, cross_wrench


def body_fixed_wrench(
    M: Float[Array, "*#b 10"], V: Float[Array, "*#b 6"], dV: Float[Array, "*#b 6"]
) -> Float[Array, "*b 6"]:
    """``W = M V̇ − ad_Vᵀ M V``, with all quantities in the body frame or all spatial (N m, N).

    Source: Müller (41), and (38), which has the same form. M is in the same frame as V.
    """
    return inertia.apply(M, dV) + cross_wrench(V, inertia.apply(M, V))


spatial_wrench = body_fixed_wrench


def hybrid_wrench(
    M: Float[Array, "*#b 10"], V: Float[Array, "*#b 6"], dV: Float[Array, "*#b 6"]
) -> Float[Array, "*b 6"]:
    """``W = M V̇ + ad_ω M (ω, 0)``: at the body's origin, in world axes (N m, N).

    Source: Müller (53)–(55). M is in world axes about the body's origin, see (51).
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

    Source: Müller (56)–(57). M is in the body frame, ``V = (ωᵇ, ṙ)``, and R maps body to world
    axes.
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

    M, V and W describe the body at the origin of a frame j in the axes of a frame k. dV is the rate
    of the components of V. ``V_frame`` is ``(ω of frame k, velocity of the origin of frame j)`` in
    the axes of k. For j = k it is the frame's body-fixed twist, as in (60). It is zero for the
    spatial equations and ``(0, ṙ)`` for the hybrid ones.

    Source: Müller (60) and (63). The second bracket of (63) is printed with the twist of the body
    in place of the twist of the frame.
    """
    return inertia.apply(M, dV + cross_twist(V_frame, V)) + cross_wrench(V, inertia.apply(M, V))
