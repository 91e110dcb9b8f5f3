"""Time derivatives of inverse dynamics, body-fixed, recursive. Source: Müller §6.3 [63].

Letters: T is the placement in the parent, V the twist, F the wrench through the joint, and w the
joint twist ``Σ S v``. ``X[k]`` is the k-th time derivative of the components of X in frame i. A
motion vector Y of the parent has the rate ``d/dt(Ad Y) = Ad Ẏ − w × Ad Y`` in the frame of the
child. A wrench of the child has the rate ``Ad* (Ḟ + w ×* F)`` in the frame of the parent.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.passive import base_acceleration
from ..algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from ._series import in_moving_frame, leibniz
from .torque_rates_hybrid import hybrid_rates


@checked
def inverse_dynamics_rates(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    rates: Float[Array, "k n"],
    f_ext: Float[Array, "nb 6"] | None = None,
    representation: str = "body_fixed",
) -> Float[Array, "k nv"]:
    """The torques of a motion and their time derivatives: ``τ, τ̇, τ̈ …``.

    It covers any number of derivatives, trees, and joints of several degrees of freedom. Rotor
    inertia and damping are added as in :func:`rbd_jax.rnea`. Derivatives are those of autodiff.
    Cost: O(n k²).

    Source: Müller §6.3: the time derivatives, term by term, of the recursions (66), (67) body-fixed
    or (75), (76) hybrid.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        rates: time derivatives of v, one in each row: acceleration, jerk, snap, … τ̈ needs three
            rows.
        f_ext: external wrench (n, f) on each body, constant in its frame.
        representation: ``"body_fixed"`` or ``"hybrid"``, the twists of the recursion. The result is
            the same.

    Returns:
        As many rows as ``rates`` has.

    Raises:
        ValueError: for a wrong shape or an unknown representation.
    """
    forms = {"body_fixed": _body_fixed, "hybrid": hybrid_rates}
    if representation not in forms:
        raise ValueError(f"representation must be one of {sorted(forms)}, got {representation!r}")
    if rates.ndim != 2 or rates.shape[1] != model.nv or not len(rates):
        raise ValueError(
            f"inverse_dynamics_rates: rates has shape {rates.shape}, expected (k, nv) = "
            f"(k ≥ 1, {model.nv}): acceleration, jerk, snap, …"
        )
    motion = jnp.concatenate([v[None], rates])
    tau = forms[representation](model, q, motion, f_ext)
    return tau + model.armature[None] * motion[1:] + model.damping[None] * motion[:-1]


def _body_fixed(model: Model, q: Array, motion: Float[Array, "n nv"], f_ext: Array | None) -> Array:
    """Rigid-body torques and their derivatives; ``motion`` are the derivatives of v, v first."""
    topology, I, order = model.topology, model.inertia, len(motion) - 1
    T, S = joint_placements(model, q), motion_subspace(model)
    w = jnp.stack([sum_dofs(topology, S * x[:, None]) for x in motion], axis=1)

    def forward(parent, x):
        T, w = x
        carried = in_moving_frame([to_child(T, y) for y in parent], w, cross_twist, -1)
        return jnp.stack([a + b for a, b in zip(carried, w, strict=True)])

    # Gravity is a constant acceleration of the world.
    world = jnp.zeros((order + 1, 6), S.dtype).at[1].set(base_acceleration(model))
    V = jnp.moveaxis(root_to_leaf(topology.tree, forward, (T, w), world), 1, 0)
    momentum = inertia.apply(I[None], V)
    F = [momentum[k + 1] + leibniz(cross_wrench, V, momentum, k) for k in range(order)]
    if f_ext is not None:
        F[0] = F[0] - f_ext

    def backward(x, below):
        T, w, F = x
        F = F + below
        up = in_moving_frame(F, w, cross_wrench)
        return jnp.stack([wrench_to_parent(T, f) for f in up]), F

    rows = T, w[:, :order], jnp.stack(F, axis=1)
    F = leaf_to_root(topology.tree, backward, rows, jnp.zeros((order, 6), S.dtype))
    return jnp.sum(S[:, None] * per_dof(topology, F), axis=-1).T
