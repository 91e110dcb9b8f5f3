"""Linear maps that are applied in O(n) to one vector, and to many vectors at once.

A map is a JAX primitive, so that each transformation takes the cheapest way:

- One vector, or the transpose on one vector, takes the operator.
- ``vmap`` over vectors alone is what ``jacfwd`` and ``jacrev`` do. It assembles the matrix once.
- ``vmap`` over robots or states takes the operator on a batch. The result is still a primitive, so
  that a later ``vmap`` over vectors alone assembles too.
- Differentiating again uses that the map is linear in the vector, and plain autodiff through the
  residual.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ...lanes import trace_once
from ...model import Topology


class LinearMap:
    """``y = A(residual) x``, given as an operator for one vector and for many.

    Args:
        name: of the JAX primitive.
        operator: ``(topology, residual, x) -> y``, linear in the vector x of ``size(topology)``.
        many: ``(topology, residual, X, transposed) -> Y``, the same for all rows of X at once.
        size: ``topology -> length of x``.
        symmetric: whether A is symmetric; its operator is then its own transpose.
    """

    def __init__(
        self, name: str, operator: Callable, many: Callable, size: Callable, symmetric=False
    ):
        self._operator, self._many, self._size = operator, many, size
        self._symmetric = symmetric
        self._primitive = Primitive(name)
        self._primitive.def_impl(self._impl)
        # lanes compile the operations of the operator in its place
        self._primitive.expand = self._impl  # type: ignore[attr-defined]
        self._primitive.def_abstract_eval(self._abstract)
        ad.primitive_jvps[self._primitive] = self._jvp
        ad.primitive_transposes[self._primitive] = self._transpose
        batching.primitive_batchers[self._primitive] = self._batch
        lowering = mlir.lower_fun(self._impl, multiple_results=False)
        mlir.register_lowering(self._primitive, lowering)

    def __call__(
        self, topology: Topology, residual: Any, x: Float[Array, " m"]
    ) -> Float[Array, " n"]:
        """``A x``; the residual is a pytree of arrays."""
        leaves, treedef = jax.tree.flatten(residual)
        return self._primitive.bind(
            *leaves, x, topology=topology, treedef=treedef, transposed=False, lead=0
        )

    def _apply(self, topology, treedef, transposed: bool, *operands: Array) -> Array:
        """One sample, one vector."""
        *leaves, x = operands
        operator = partial(self._operator, topology, jax.tree.unflatten(treedef, leaves))
        if not transposed or self._symmetric:
            return operator(x)
        shape = jax.ShapeDtypeStruct((self._size(topology),), x.dtype)
        return jax.linear_transpose(operator, shape)(x)[0]

    def _apply_many(self, topology, treedef, transposed: bool, *operands: Array) -> Array:
        """One sample, a stack of vectors."""
        *leaves, x = operands
        return self._many(topology, jax.tree.unflatten(treedef, leaves), x, transposed)

    def _impl(self, *operands, **params):
        operands = tuple(map(jnp.asarray, operands))
        closed, _ = trace_once(self._traced, (operands, params))
        return jaxpr_as_fun(closed)(*operands)[0]

    def _traced(self, operands: tuple, params: dict) -> Array:
        topology, treedef, transposed = (params[k] for k in ("topology", "treedef", "transposed"))
        apply = partial(self._apply, topology, treedef, transposed)
        return _mapped(apply, params["lead"])(*operands)

    def _abstract(self, *operands, topology, treedef, transposed, lead):
        x = operands[-1]
        size = self._size(topology) if transposed else topology.nv
        return x.update(shape=(*x.shape[:lead], size))

    def _jvp(self, primals, tangents, **params):
        out = self._primitive.bind(*primals, **params)
        total = None
        if not isinstance(tangents[-1], ad.Zero):
            total = self._primitive.bind(*primals[:-1], tangents[-1], **params)
        moving = [k for k, t in enumerate(tangents[:-1]) if not isinstance(t, ad.Zero)]
        if moving:

            def of_residual(*values):
                operands = list(primals)
                for k, value in zip(moving, values, strict=True):
                    operands[k] = value
                return self._impl(*operands, **params)

            values = tuple(primals[k] for k in moving)
            rates = tuple(tangents[k] for k in moving)
            _, part = jax.jvp(of_residual, values, rates)
            total = part if total is None else total + part
        return out, total

    def _transpose(self, ct, *operands, transposed, **params):
        none = [None] * (len(operands) - 1)
        if isinstance(ct, ad.Zero):
            return [*none, None]
        return [
            *none,
            self._primitive.bind(*operands[:-1], ct, transposed=not transposed, **params),
        ]

    def _batch(self, args, dims, *, topology, treedef, transposed, lead):
        if all(d is None for d in dims[:-1]):
            x = jnp.moveaxis(args[-1], dims[-1], lead)
            many = _mapped(partial(self._apply_many, topology, treedef, transposed), lead)
            return many(*args[:-1], x), lead
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        front = [
            jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
            for a, d in zip(args, dims, strict=True)
        ]
        params = {"topology": topology, "treedef": treedef, "transposed": transposed}
        return self._primitive.bind(*front, lead=lead + 1, **params), 0


def _mapped(function: Callable, lead: int) -> Callable:
    """``vmap`` over some leading axes."""
    for _ in range(lead):
        function = jax.vmap(function)
    return function
