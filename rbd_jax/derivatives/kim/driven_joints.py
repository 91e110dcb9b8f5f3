"""Kim's Tables 5 to 7 for robots with driven joints, whose S depends on q and whose Ṡ is not zero.

The joints of such a robot move as ``q = φ(y)``, ``v = Φ ẏ``, ``a = Φ ÿ + Φ̇ ẏ``. To Kim they are one
joint with ``S_y = S Φ`` and ``Ṡ_y = S Φ̇``, where S is constant. So the quantities (64) of that
joint follow from the laws: ``∂S_y = ∂S Φ + S ∂Φ`` and ``∂Ṡ_y = ∂S Φ̇ + S ∂Φ̇``.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms.embedding import embedded_dynamics, solve
from ...model import CoordinateModel
from ...model.coordinates import CoordinateMap
from ..symbolic_zeros import add, unless_none
from .perturbation import Perturbation, ValueAndDerivative, fitting, law_tangents
from .table5 import table5


def driven_table5(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    d: Perturbation,
    f_ext: Float[Array, "nb 6"] | None,
) -> ValueAndDerivative:
    """``(τ_y, ∂τ_y/∂p)``. Cost: O(n).

    Source: Kim, Tables 2 and 5, with S(q) and Ṡ. The last line of Table 5 becomes
    ``∂τ_y = Φᵀ (∂Sᵀ F + Sᵀ ∂F) + ∂Φᵀ Sᵀ F``.
    """
    fitting(model, d)

    def joints(laws, q, v, a):
        x = CoordinateMap(dataclasses.replace(model, laws=laws), q)
        return x.q, x.velocity(v), x.acceleration(v, a)

    def forces(laws, q, tau):
        return CoordinateMap(dataclasses.replace(model, laws=laws), q).project(tau)

    dlaws = law_tangents(model, d.dlaws)
    rates = dlaws, d.dcoordinates, d.dv, d.da
    full, (_, dv, da) = _jvp(joints, (model.laws, q, v, a), rates)
    of_joints = d._replace(dv=dv, da=da, dtau=None, dcoordinates=None, dlaws=None)
    tau, dtau = table5(CoordinateMap(model, q).robot, *full, of_joints, f_ext)
    projected = _jvp(forces, (model.laws, q, tau), (dlaws, d.dcoordinates, dtau))
    return ValueAndDerivative(*projected)


def driven_table7(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"] | None,
    d: Perturbation,
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """``((ÿ, τ), (∂ÿ/∂p, ∂τ/∂p))``. Cost: O(n).

    Source: Kim, Tables 4 and 7. The derivative is that of Table 7 by another order of operations:
    the recursions of ∂Î, ∂Ψ and ∂Π are not written out, because the elimination of a coordinate is
    put off here (:mod:`rbd_jax.algorithms.embedding`). Table 5 gives the torques that are missing
    at ∂ÿ = 0, and the articulated inertias of Table 4 the ∂ÿ that they cause, Singh (5).
    """
    a, tau, factor = embedded_dynamics(model, q, v, a, tau, prescribed, f_ext)
    held = jnp.zeros_like(v) if prescribed is None else prescribed.astype(v.dtype)
    given = unless_none(lambda x: held * x, d.da)
    missing = driven_table5(model, q, v, a, d._replace(da=given), f_ext).derivative
    wanted = jnp.zeros_like(v) if d.dtau is None else (1 - held) * d.dtau
    solved = solve(model, factor, (1 - held) * (wanted - missing))
    da = add(solved, given)
    if prescribed is None:
        return (a, tau), (da, wanted)
    torque = driven_table5(model, q, v, a, d._replace(da=da), f_ext).derivative
    return (a, tau), (da, jnp.where(prescribed, torque, wanted))


def _jvp(f, primals, tangents):
    """The jvp along tangents of which some, or all, may be None."""
    laws, q, *rest = tangents
    q = jnp.zeros_like(primals[1]) if q is None else q
    return eqx.filter_jvp(f, primals, (laws, q, *rest))
