"""A linear map that is applied in O(n) to one tangent and assembled once for many.

``apply(topology, residual, tangent)`` is :func:`joint_operator`, and every mode is fast:

- one tangent, or its transpose: the operator, O(n);
- ``vmap`` over tangents alone, which is what ``jacfwd`` and ``jacrev`` do: the matrices of IDSVA
  are assembled once and multiplied by all tangents in one product;
- ``vmap`` over robots or states: the operator on a batch, still a primitive, so that a later
  ``vmap`` over tangents alone assembles;
- differentiating again: linear in the tangent, plain autodiff through the residual.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ..model import Topology
from ._operator import Residual, joint_matrices, joint_operator

_FIELDS = len(Residual._fields)
operator_p = Primitive("rbd_joint_operator")


def apply(topology: Topology, r: Residual, dqva: Float[Array, "3 nv"]) -> Float[Array, " nv"]:
    """``∂τ/∂q δq + ∂τ/∂v δv + M δa``, fast in every mode; see the module."""
    return operator_p.bind(*r, dqva, topology=topology, transposed=False, lead=0)


def _operator(topology: Topology, transposed: bool, *operands: Array) -> Array:
    """The map on one sample."""
    r, x = Residual(*operands[:-1]), operands[-1]
    if not transposed:
        return joint_operator(topology, r, x)
    shape = jax.ShapeDtypeStruct((3, topology.nv), x.dtype)
    return jax.linear_transpose(partial(joint_operator, topology, r), shape)(x)[0]


def _assembled(topology: Topology, transposed: bool, *operands: Array) -> Array:
    """The map on a stack of tangents of one sample, by the assembled matrices."""
    r, x = Residual(*operands[:-1]), operands[-1]
    A = jnp.stack(joint_matrices(topology, r))  # (3, i, j)
    if transposed:
        return jnp.einsum("aij,bi->baj", A, x, precision="highest")
    return jnp.einsum("aij,baj->bi", A, x, precision="highest")


def _batched(function, lead: int):
    for _ in range(lead):
        function = jax.vmap(function)
    return function


def _impl(*operands: Array, topology: Topology, transposed: bool, lead: int) -> Array:
    return _batched(partial(_operator, topology, transposed), lead)(*operands)


def _abstract(*operands, topology: Topology, transposed: bool, lead: int):
    x = operands[-1]
    batch = x.shape[:lead]
    shape = (3, topology.nv) if transposed else (topology.nv,)
    return x.update(shape=(*batch, *shape))


def _jvp(primals, tangents, **params):
    out = operator_p.bind(*primals, **params)
    total = None
    if not isinstance(tangents[-1], ad.Zero):
        total = operator_p.bind(*primals[:-1], ad.instantiate_zeros(tangents[-1]), **params)
    moving = [k for k, t in enumerate(tangents[:-1]) if not isinstance(t, ad.Zero)]
    if moving:

        def of_residual(*values):
            operands = list(primals)
            for k, value in zip(moving, values, strict=True):
                operands[k] = value
            return _impl(*operands, **params)

        values = tuple(primals[k] for k in moving)
        rates = tuple(ad.instantiate_zeros(tangents[k]) for k in moving)
        _, part = jax.jvp(of_residual, values, rates)
        total = part if total is None else total + part
    return out, jnp.zeros_like(out) if total is None else total


def _transpose(ct, *operands, topology: Topology, transposed: bool, lead: int):
    if isinstance(ct, ad.Zero):
        return [None] * (_FIELDS + 1)
    params = {"topology": topology, "transposed": not transposed, "lead": lead}
    return [None] * _FIELDS + [operator_p.bind(*operands[:-1], ct, **params)]


def _batch(args, dims, *, topology: Topology, transposed: bool, lead: int):
    if all(d is None for d in dims[:-1]):
        x = jnp.moveaxis(args[-1], dims[-1], lead)
        many = _batched(partial(_assembled, topology, transposed), lead)
        return many(*args[:-1], x), lead
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    front = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(args, dims, strict=True)
    ]
    params = {"topology": topology, "transposed": transposed, "lead": lead + 1}
    return operator_p.bind(*front, **params), 0


operator_p.def_impl(_impl)
operator_p.def_abstract_eval(_abstract)
ad.primitive_jvps[operator_p] = _jvp
ad.primitive_transposes[operator_p] = _transpose
batching.primitive_batchers[operator_p] = _batch
mlir.register_lowering(operator_p, mlir.lower_fun(_impl, multiple_results=False))
