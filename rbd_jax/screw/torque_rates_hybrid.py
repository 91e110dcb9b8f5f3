"""Time derivatives of inverse dynamics in hybrid form. Source: Müller §6.3 [63], (72), (75)–(76).

Hybrid vectors have world axes and refer to the origin of the body. So a change of body is a shift
by d, and the components of body-fixed vectors obey ``d/dt(R y) = R ẏ + ω × R y``. Letters: V is the
twist, w the angular velocity, d the vector from the parent's origin to the body's, W the wrench,
and S the joint screws. ``X[k]`` is the k-th time derivative of X.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import base_acceleration
from ..algorithms.tree import leaf_to_root, per_dof
from ..model import Model, motion_subspace
from ..spatial import inertia, so3
from ..spatial.motion import turn
from ._series import in_moving_frame, leibniz
from .body_fixed import world_rates
from .hybrid import motion_at, spin, to_parents


def _inertia_rate(w: Float[Array, "*b 3"], I10: Float[Array, "*b 10"]) -> Float[Array, "*b 10"]:
    """The rate of the ten parameters in world axes: ``ω × mc`` and ``ω̃ Θ − Θ ω̃``."""
    W, J = so3.hat(w), inertia.rotational(I10)
    blocks = inertia.matrix(jnp.zeros_like(I10))
    turned = so3.matmul(W, J) - so3.matmul(J, W)
    mc = so3.hat(so3.cross(w, I10[..., 1:4]))
    blocks = blocks.at[..., :3, :3].set(turned).at[..., :3, 3:].set(mc)
    return inertia.from_matrix(blocks)


def _turned(y: Array, w: list[Array], rate=spin) -> list[Array]:
    """Derivatives of a body-fixed quantity in world axes, one more than there are of ω."""
    return list(in_moving_frame([y, *[jnp.zeros_like(y)] * len(w)], w, rate))


def _shift(d: Float[Array, "*b 3"], f: Float[Array, "*b 3"]) -> Float[Array, "*b 6"]:
    """``(d × f, 0)``: the moment of a force at d."""
    return jnp.concatenate([so3.cross(d, f), jnp.zeros_like(f)], axis=-1)


def hybrid_rates(
    model: Model, q: Float[Array, " nq"], motion: Float[Array, "n nv"], f_ext: Array | None
) -> Float[Array, "n-1 nv"]:
    """Rigid-body torques and their derivatives; ``motion`` are the derivatives of v, v first."""
    topology, order = model.topology, len(motion) - 1
    R, p = forward_kinematics(model, q)
    S = motion_subspace(model)
    rows = topology.tree.parent_rows
    # Gravity is a constant acceleration of the world.
    base = base_acceleration(model)
    V = motion_at(model, p, turn(per_dof(topology, R), S), tuple(motion), base)
    above = [
        jnp.concatenate([x, world[None]])[rows]
        for x, world in zip(V, world_rates(S.dtype, order + 1, base), strict=True)
    ]
    d = [-to_parents(topology, p)]
    d += [(x - y)[:, 3:] for x, y in zip(V[: order - 1], above, strict=False)]
    d = jnp.stack(d, axis=1)

    w = [x[..., :3] for x in V[: order - 1]]
    I10 = _world_inertia(model, R)
    I = _turned(I10, w, _inertia_rate)
    rotation = [jnp.concatenate([x[..., :3], jnp.zeros_like(x[..., :3])], axis=-1) for x in V]
    L = [leibniz(inertia.apply, I, rotation, k) for k in range(order)]
    W = [  # (53)
        leibniz(inertia.apply, I, V[1:], k) + leibniz(spin, [x[..., :3] for x in V], L, k)
        for k in range(order)
    ]
    if f_ext is not None:
        push = _turned(turn(R, f_ext), w)
        W = [x - y for x, y in zip(W, push, strict=True)]

    def backward(x, below):  # (76b) and its derivatives
        d, W = x
        W = W + below
        up = [W[k] + leibniz(_shift, d, W[:, 3:], k) for k in range(order)]
        return jnp.stack(up), W

    zero = jnp.zeros((order, 6), S.dtype)
    W = leaf_to_root(topology.tree, backward, (d, jnp.stack(W, axis=1)), zero)
    W = list(jnp.moveaxis(per_dof(topology, W), 1, 0))
    screws = _turned(turn(per_dof(topology, R), S), [per_dof(topology, x) for x in w])
    power = lambda x, y: jnp.sum(x * y, axis=-1)  # noqa: E731
    return jnp.stack([leibniz(power, screws, W, k) for k in range(order)])  # (76c)


def _world_inertia(model: Model, R: Float[Array, "nb 3 3"]) -> Float[Array, "nb 10"]:
    """Inertias in world axes about the origins of the bodies. Source: Müller (76a)."""
    return inertia.rotate(R, model.inertia)
