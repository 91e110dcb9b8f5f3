"""The three forms of the hybrid acceleration. Source: Müller (72), (73), (74).

The letters are those of :mod:`rbd_jax.screw.hybrid`: d = r_λ − r_i, Xv = X⁰ q̇, V = (ω, ṙ). The
recursions use form (72), because it is the cheapest. The others are here for comparison and study.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.tree import root_to_leaf, sum_dofs
from ..model import Model
from ..model.arguments import checked
from ..spatial.motion import cross_twist, shift
from .hybrid import joint_screws, lever, spin, to_parents


def _form_72(V, V_up, Xv):
    return lever(V_up[3:] - V[3:], V_up) + spin(V[:3], Xv)


def _form_73(V, V_up, Xv):
    return lever(V_up[3:], V_up) - lever(V[3:], V) + cross_twist(V, Xv)


def _form_74(V, V_up, Xv):
    return lever(V_up[3:] - V[3:], V) + cross_twist(V, Xv) - lever(V_up[3:], Xv)


_FORMS = {72: _form_72, 73: _form_73, 74: _form_74}


@checked
def hybrid_accelerations(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    equation: Literal[72, 73, 74] = 72,
) -> Float[Array, "nb 6"]:
    """Rates of the hybrid twists by one of three recursions, without gravity (rad/s², m/s²).

    The numbers are those of :func:`accelerations`. Derivatives are those of autodiff. Cost: O(n).

    Source: Müller (72), (73) and (74), which share ``Ad_d V̇_λ + X⁰ q̈``. Form (73) is corrected:
    its term ``ad V_λ`` takes the velocity of the parent's origin, where the paper prints the
    velocity of the parent relative to the body.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        a: acceleration.
        equation: 72, 73 or 74.

    Raises:
        ValueError: for another equation.
    """
    if equation not in _FORMS:
        raise ValueError(f"hybrid_accelerations: equation must be 72, 73 or 74, got {equation}")
    form, topology = _FORMS[equation], model.topology
    R, r = forward_kinematics(model, q)
    X = joint_screws(model, R)
    Xv, Xa = (sum_dofs(topology, X * x[:, None]) for x in (v, a))

    def step(parent, x):
        d, Xv, Xa = x
        V_up, dV_up = parent
        V = shift(d, V_up) + Xv
        return V, shift(d, dV_up) + Xa + form(V, V_up, Xv)

    zero = jnp.zeros((6,), X.dtype)
    rows = to_parents(topology, r), Xv, Xa
    return root_to_leaf(topology.tree, step, rows, (zero, zero))[1]
