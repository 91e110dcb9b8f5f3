"""Time derivatives of inverse dynamics, body-fixed, recursive. Source: Müller §6.3 [63].

Letters: T is the placement in the parent, V the twist, F the wrench through the joint, and w the
joint twist ``Σ S v``. ``X[k]`` is the k-th time derivative of the components of X in frame i. A
motion vector Y of the parent has the rate ``d/dt(Ad Y) = Ad Ẏ − w × Ad Y`` in the frame of the
child. A wrench of the child has the rate ``Ad* (Ḟ + w ×* F)`` in the frame of the parent.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.passive import base_acceleration, spring_torque
from ..algorithms.tree import leaf_to_root, per_dof, sum_dofs
from ..model import Model, joint_placements, motion_subspace, rate_from_velocity
from ..model.arguments import checked
from ..spatial import inertia
from ..spatial.motion import cross_wrench, wrench_to_parent
from . import body_fixed
from ._series import in_moving_frame, leibniz
from .articulated import CARRIERS, bodies_of, factorize, forward_dynamics, solve
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
    inertia, damping and springs are added as in :func:`rbd_jax.rnea`. Derivatives are those of
    autodiff. Cost: O(n k²).

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
    tau = tau + model.armature[None] * motion[1:] + model.damping[None] * motion[:-1]
    return tau if model.stiffness is None else tau + _spring_rates(model, q, motion[:-1])


def _spring_rates(model: Model, q: Array, motion: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
    """The torques of the joint springs and their time derivatives."""

    def rate(k: int, q: Array, motion: tuple[Array, ...]) -> Array:
        if k == 0:
            return spring_torque(model, q)
        state = q, motion[: k - 1]
        along = rate_from_velocity(model, q, motion[0]), motion[1:k]
        return jax.jvp(partial(rate, k - 1), state, along)[1]

    return jnp.stack([rate(k, q, tuple(motion)) for k in range(len(motion))])


def _body_fixed(model: Model, q: Array, motion: Float[Array, "n nv"], f_ext: Array | None) -> Array:
    """Rigid-body torques and their derivatives; ``motion`` are the derivatives of v, v first."""
    topology, I, order = model.topology, model.inertia, len(motion) - 1
    T, S = joint_placements(model, q), motion_subspace(model)
    # Gravity is a constant acceleration of the world.
    V = jnp.stack(body_fixed.motion_at(model, T, S, tuple(motion), base_acceleration(model)))
    w = jnp.stack([sum_dofs(topology, S * x[:, None]) for x in motion[:order]], axis=1)
    momentum = inertia.apply(I[None], V)
    F = [momentum[k + 1] + leibniz(cross_wrench, V, momentum, k) for k in range(order)]
    if f_ext is not None:
        F[0] = F[0] - f_ext

    def backward(x, below):
        T, w, F = x
        F = F + below
        up = in_moving_frame(F, w, cross_wrench)
        return jnp.stack([wrench_to_parent(T, f) for f in up]), F

    rows = T, w, jnp.stack(F, axis=1)
    F = leaf_to_root(topology.tree, backward, rows, jnp.zeros((order, 6), S.dtype))
    return jnp.sum(S[:, None] * per_dof(topology, F), axis=-1).T


@checked
def forward_dynamics_rates(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    torques: Float[Array, "k n"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, "k nv"]:
    """The accelerations under torques and their time derivatives: ``a, ȧ, ä …`` from ``τ, τ̇, τ̈ …``.

    The inverse of :func:`inverse_dynamics_rates`. One row gives the accelerations, two rows also
    the jerk, three rows the snap. Derivatives are those of autodiff. Cost: O(n k³).

    Source: Müller §6.3. The time derivatives of the equations of motion are
    ``τ⁽ᵏ⁾ = M a⁽ᵏ⁾ + …`` with terms of lower derivatives alone, so that each one is solved for by
    the articulated bodies of §5.1.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        torques: joint torques (N m, N) and their time derivatives, one in each row.
        f_ext: external wrench (n, f) on each body, constant in its frame.

    Returns:
        As many rows as ``torques`` has (rad/s², m/s² and their rates).

    Raises:
        ValueError: for a wrong shape.
    """
    if torques.ndim != 2 or torques.shape[1] != model.nv or not len(torques):
        raise ValueError(
            f"forward_dynamics_rates: torques has shape {torques.shape}, expected (k, nv) = "
            f"(k ≥ 1, {model.nv}): τ, τ̇, τ̈, …"
        )
    carrier, still = CARRIERS["body_fixed"], jnp.zeros((model.nb, 6), model.dtype)
    factor = factorize(model, carrier, bodies_of(model, q, "body_fixed"), model.armature)
    rates = [forward_dynamics(model, q, v, torques[0], f_ext)]
    for k in range(1, len(torques)):
        so_far = jnp.stack([*rates, jnp.zeros_like(v)])
        bias = inverse_dynamics_rates(model, q, v, so_far, f_ext)[k]
        rates.append(solve(model, carrier, factor, torques[k] - bias, still))
    return jnp.stack(rates)
