"""A free body in absolute coordinates, from the balance of its spatial momentum.

Source: Müller (36).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import inertia, se3, so3
from ..spatial.motion import wrench_to_child, wrench_to_parent
from ._munthe_kaas import RK4, Tableau, increment


class FreeBody(NamedTuple):
    """A point of the phase space SE(3) × se*(3): pose in the world and spatial momentum."""

    R: Float[Array, "3 3"]
    p: Float[Array, "3"]
    momentum: Float[Array, "6"]
    """Angular momentum about the world's origin and linear momentum, in world axes (N m s, N s)."""


def free_body_twist(I10: Float[Array, "10"], body: FreeBody) -> Float[Array, "6"]:
    """The body-fixed twist ``(ω, v)`` that belongs to the momentum (rad/s, m/s).

    Derivatives are those of autodiff. Source: Müller (35).
    """
    Pi = wrench_to_child((body.R, body.p), body.momentum)
    return jnp.linalg.solve(inertia.matrix(I10), Pi)


def free_body_at(I10: Float[Array, "10"], pose: se3.Pose, V: Float[Array, "6"]) -> FreeBody:
    """The state of a body at ``pose`` that moves with the body-fixed twist V (rad/s, m/s).

    Derivatives are those of autodiff. Source: Müller (35).
    """
    return FreeBody(*pose, wrench_to_parent(pose, inertia.apply(I10, V)))


def free_body_step(
    I10: Float[Array, "10"],
    body: FreeBody,
    dt: float | Float[Array, ""],
    wrench: Callable[[Array, FreeBody], Float[Array, "6"]] | None = None,
    t: float | Float[Array, ""] = 0.0,
    tableau: Tableau = RK4,
) -> FreeBody:
    """One Munthe-Kaas step of ``Π̇ = W`` (36) with ``Ċ = C V̂``, ``V = M⁻¹ Ad*_C Π`` (35), (88).

    The balance is linear in the spatial momentum. So without a wrench the momentum does not change
    by a single bit, and a wrench that depends on time alone is integrated by quadrature.
    Derivatives are those of autodiff.

    Source: Müller (36), (88)–(89).

    Args:
        I10: ten inertial parameters in the body frame.
        body: the state. dt: length of the step (s).
        wrench: ``(t, body) -> (n, f)`` about the world's origin in world axes (N m, N).
        t: time at the start of the step (s).
        tableau: the Runge–Kutta method.

    Returns:
        The state after the step.
    """
    h = jnp.asarray(dt, body.p.dtype)
    zero = jnp.zeros_like(body.momentum)

    def moved(u, dPi):
        R, p = se3.compose((body.R, body.p), se3.exp(u))
        return FreeBody(R, p, body.momentum + dPi)

    def rate(c, x):
        stage = moved(*x)
        V = free_body_twist(I10, stage)
        du = jnp.sum(se3.right_jacobian_inverse(x[0]) * V[None], axis=-1)
        return du, zero if wrench is None else wrench(t + c, stage)

    u, dPi = increment(tableau, rate, (zero, zero), h)
    end = moved(u, dPi)
    return end._replace(R=so3.orthonormalize(end.R))


def free_body_path(
    I10: Float[Array, "10"],
    body: FreeBody,
    dt: float | Float[Array, ""],
    steps: int,
    wrench: Callable[[Array, FreeBody], Float[Array, "6"]] | None = None,
    tableau: Tableau = RK4,
) -> FreeBody:
    """The states after 0, 1, …, ``steps`` steps of :func:`free_body_step`, stacked.

    The other arguments and the derivatives are those of :func:`free_body_step`.
    """
    h = jnp.asarray(dt, body.p.dtype)

    def advance(body, k):
        new = free_body_step(I10, body, h, wrench, k.astype(h.dtype) * h, tableau)
        return new, new

    _, path = jax.lax.scan(advance, body, jnp.arange(steps))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), body, path)
