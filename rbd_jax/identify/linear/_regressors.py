"""The parameters that enter torques linearly: inertias, rotor inertias, damping, dry friction.

The torques are ``τ = Y θ − Jᵀ f_ext``. θ holds the terms one after the other, each in the order of
the model's leaf.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms.regressors import joint_torque_regressor
from ...algorithms.rnea import rnea
from ...model import Model
from ...model.arguments import checked, projected
from ..data._dataset import Dataset, required

TERMS = ("inertia", "armature", "damping", "friction")
WIDTH = 1e-2
_CHUNK = 1024  # Samples at a time; the regressors of all bodies need much memory before the sum.
_TEN = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")


@checked
def friction_torque(
    model: Model, v: Float[Array, " nv"], width: float | Array = WIDTH
) -> Float[Array, " nv"]:
    """``friction · tanh(v / width)``: dry friction, smoothed within ``width`` (rad/s, m/s) of rest.

    Add it to the torques of inverse dynamics, or subtract it from the torques that drive forward
    dynamics. Derivatives are those of autodiff.
    """
    return model.friction * jnp.tanh(v / width)


def parameter_names(model: Model, terms: tuple[str, ...] = TERMS) -> tuple[str, ...]:
    """Names of the entries of θ: ``m:upper_arm``, ``mcx:upper_arm`` …, ``damping:elbow``."""
    _check_terms(terms)
    topology, names = model.topology, []
    for term in terms:
        if term == "inertia":
            names += [f"{x}:{body}" for body in model.body_names for x in _TEN]
            continue
        for joint, start, end in zip(
            model.joint_names, topology.v_starts[:-1], topology.v_starts[1:], strict=True
        ):
            labels = [""] if end - start == 1 else [f"[{k}]" for k in range(end - start)]
            names += [f"{term}:{joint}{label}" for label in labels]
    return tuple(names)


def _check_terms(terms: tuple[str, ...]) -> None:
    if not terms or len(set(terms)) < len(terms) or not set(terms) <= set(TERMS):
        raise ValueError(f"terms must be some of {TERMS}, each at most once, got {terms!r}")


def linear_parameters(model: Model, terms: tuple[str, ...] = TERMS) -> Float[Array, " p"]:
    """The parameters θ of a robot."""
    _check_terms(terms)
    return jnp.concatenate([getattr(model, term).reshape(-1) for term in terms])


def with_linear_parameters(
    model: Model, theta: Float[Array, " p"], terms: tuple[str, ...] = TERMS
) -> Model:
    """The robot with the parameters θ."""
    _check_terms(terms)
    at, new = 0, []
    for term in terms:
        old = getattr(model, term)
        new.append(theta[at : at + old.size].reshape(old.shape))
        at += old.size
    return eqx.tree_at(lambda m: [getattr(m, term) for term in terms], model, new)


@checked
@projected(0)
def torque_regressor(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    terms: tuple[str, ...] = TERMS,
    width: float = WIDTH,
) -> Float[Array, "nv p"]:
    """``Y(q, v, a)`` with ``τ = Y θ`` for inverse dynamics with dry friction.

    It is :func:`rbd_jax.algorithms.joint_torque_regressor`, and a diagonal block for each of the
    other terms. Derivatives are those of autodiff. Cost: O(nv · nb).

    Source: Müller §6.
    """
    _check_terms(terms)
    parts = []
    for term in terms:
        if term == "inertia":
            parts.append(joint_torque_regressor(model, q, v, a))
        else:
            rate = {"armature": a, "damping": v, "friction": jnp.tanh(v / width)}[term]
            parts.append(jnp.diag(rate))
    return jnp.concatenate(parts, axis=1)


@projected(0)
def _torque(model: Model, q, v, a, f_ext, width) -> Any:
    return rnea(model, q, v, a, f_ext) + friction_torque(model, v, width)


def regression(
    model: Model, data: Dataset, terms: tuple[str, ...] = TERMS, width: float = WIDTH
) -> tuple[Float[Array, "N nv p"], Float[Array, "N nv"]]:
    """``Y`` and the torques that ``Y θ`` has to predict, for all samples of the data.

    The torques of external wrenches and of parameters that are not in ``terms`` are computed from
    the model and subtracted. Derivatives are those of autodiff.
    """
    s = data.samples()
    required("regression", s, "v", "a", "tau")
    nothing = with_linear_parameters(model, jnp.zeros_like(linear_parameters(model, terms)), terms)

    def one(s):
        Y = torque_regressor(model, s.q, s.v, s.a, terms, width)
        rest = _torque(nothing, s.q, s.v, s.a, s.f_ext, width)
        return Y, s.tau - rest

    if s.shape[0] <= _CHUNK:
        return jax.vmap(one)(s)
    return jax.lax.map(one, s, batch_size=_CHUNK)
