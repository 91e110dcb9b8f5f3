"""The physical robot nearest to an estimate of base parameters, and its values with deviations."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Model
from ...spatial import inertia, linear
from ...spatial.linear import cholesky, solve_lower
from ..linear._base import BaseParameters
from ..linear._convex import learned_values
from ..linear._records import RecordEstimate, linear_terms
from ..parameters._parameters import Parameters
from ._minimize import Options, minimize
from ._solve import Fit


def fit_estimate(
    parameters: Parameters,
    base: BaseParameters,
    estimate: RecordEstimate,
    *,
    prior: float = 0.0,
    max_steps: int = 500,
    throw: bool = True,
) -> Fit:
    """The robot with ``minimize ½ |B x − π|² + ½ prior · Σ entropic distance``.

    The distance from the estimate π is measured by its covariance, so the covariance of the fit is
    as honest as the one of the estimate. The problem is a convex program with the charts of
    :func:`fit_torques`, and the best physical robot is found from any start.

    Source: Sousa, Cortesão, "Physical feasibility of robot base inertial parameter identification:
    a linear matrix inequality approach", 2014, for the two steps.

    Args:
        parameters: what is unknown, as for the estimate.
        base: its combinations, see :func:`selected_base`.
        estimate: see :func:`estimate_from_record`.
        prior: weight of the entropic distance from the nominal values, see :func:`fit_torques`.
        max_steps: limit of the solver's steps.
        throw: raise an error if the fit does not converge; else say so in ``result``.

    Raises:
        ValueError: if the estimate has another number of values than ``base``.
        RuntimeError: if the fit does not converge and ``throw`` is set.
    """
    linear_terms(parameters)
    if estimate.value.shape != (base.count,):
        raise ValueError(
            f"fit_estimate: the estimate has values of shape {estimate.value.shape}, expected "
            f"({base.count},) for this base; use the same parameters and base for both"
        )
    scale = jnp.where(estimate.deviation > 0, estimate.deviation, 1)
    L = cholesky(estimate.covariance / (scale[:, None] * scale[None]))
    B = jnp.asarray(base.B, L.dtype) / scale[:, None]
    rows = solve_lower(L, jnp.concatenate([B, (estimate.value / scale)[:, None]], axis=1))
    W, right = rows[:, :-1], rows[:, -1]
    left = right - linear.matmul(W, learned_values(parameters, parameters.nominal))
    coefficients = jnp.concatenate([W, left[:, None]], axis=1)

    def errors(model: Model) -> Float[Array, "r 1"]:
        return (linear.matmul(W, learned_values(parameters, model)) - right)[:, None]

    def equations(factor: Array) -> Float[Array, "r c"]:
        return coefficients * factor

    options = Options(prior, "squares", max_steps, None, None, throw, None)
    one = jnp.ones((1,), L.dtype)
    measured = jnp.zeros_like(right)[:, None]
    fit = minimize(parameters, errors, measured, one, None, options, equations)
    return eqx.tree_at(lambda f: f.sigma, fit, estimate.sigma)


class Quantities(NamedTuple):
    """Values that people weigh and measure, with their standard deviations and units."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    values: Float[Array, " n"]
    deviation: Float[Array, " n"]
    """To first order. A value that the record does not determine has a huge one."""


_BODY = ("mass", "com x", "com y", "com z", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
_BODY_UNITS = ("kg", "m", "m", "m", *["kg m²"] * 6)
_TURNING = {"armature": "kg m²", "damping": "N m s", "friction": "N m"}
_SLIDING = {"armature": "kg", "damping": "N s/m", "friction": "N"}


def quantities(parameters: Parameters, fit: Fit, payload: str | None = None) -> Quantities:
    """Masses, centers of mass, inertias about these, and what joints have, with deviations.

    Inertias have the axes of the body's frame. Deviations come from ``fit.covariance`` to first
    order.

    Args:
        parameters: what was fitted, made of inertias, armature, damping and friction.
        fit: the result of :func:`fit_estimate` or :func:`fit_torques`.
        payload: name of a link. What its inertia has more than the nominal robot's is told as the
            payload ``payload:LINK``, in the frame of the link, and not the link itself.

    Raises:
        ValueError: for a payload whose link is not among the fitted ones.
    """
    linear_terms(parameters)
    model = parameters.nominal
    kinds = np.array(model.topology.kinds)[model.topology.dof_bodies]
    names, units, loaded = [], [], []
    for b in parameters.blocks:
        for row in b.rows:
            if b.leaf == "inertia":
                body = model.body_names[row]
                loaded += [body == payload]
                what = f"payload:{body}" if body == payload else body
                names += [f"{what} {x}" for x in _BODY]
                units += _BODY_UNITS
    if payload is not None and not any(loaded):
        raise ValueError(f"quantities: the inertia of the payload's link {payload!r} is not fitted")
    for b in parameters.blocks:
        if b.leaf != "inertia":
            names += [name.replace(":", " ") for name in b.names]
            units += [(_SLIDING if kinds[r] == "prismatic" else _TURNING)[b.leaf] for r in b.rows]
    carried = np.array(loaded, bool)

    def at(z: Float[Array, " k"]) -> Float[Array, " n"]:
        robot, bodies, joints = parameters.model(z), [], []
        for b in parameters.blocks:
            rows = np.array(b.rows, np.int32)
            value = getattr(robot, b.leaf)[rows]
            if b.leaf == "inertia":
                bodies.append(jnp.stack([value, value - model.inertia[rows]]))
            else:
                joints.append(value.reshape(-1))
        parts = [jnp.zeros((0,), z.dtype)]
        if bodies:
            both = jnp.concatenate(bodies, axis=1)
            parts.append(_weighed(jnp.where(carried[:, None], both[1], both[0])).reshape(-1))
        return jnp.concatenate([*parts, *joints])

    J = jax.jacfwd(at)(fit.z)
    variance = jnp.sum(linear.matmul(J, fit.covariance) * J, axis=1)
    return Quantities(tuple(names), tuple(units), at(fit.z), jnp.sqrt(variance))


def _weighed(I10: Float[Array, "n 10"]) -> Float[Array, "n 10"]:
    """Mass, center of mass, and the inertia about it."""
    mass = jnp.where(I10[:, :1] != 0, I10[:, :1], 1)
    com = jnp.where(I10[:, :1] != 0, I10[:, 1:4] / mass, 0)
    J = inertia.inertia_com(I10)
    entries = [J[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))]
    return jnp.concatenate([I10[:, :1], com, jnp.stack(entries, axis=1)], axis=1)
