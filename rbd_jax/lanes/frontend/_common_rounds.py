"""Loops that the samples of a kernel run together, as often as the one of them that needs most.

A loop whose samples stop at different times has to keep what each of them had when it stopped. A
loop of :func:`common_rounds` need not: rounds beyond the count of a sample change nothing that
anybody looks at. So its arrays are updated in place, and those that it fills may begin without
numbers in them, see :func:`unfilled`.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..ir._blocks import Op, Value
from ._reader import Reader, rule

Carry = TypeVar("Carry")


def common_rounds(count: jax.Array, body: Callable[[jax.Array, Carry], Carry], start: Carry):
    """``jax.lax.fori_loop(0, count, body, start)``, with more rounds in kernels of many samples.

    There the loop runs as often as the sample with the greatest count needs, and body has to be
    such that more rounds than ``count`` change nothing that matters. It has no reverse derivative.

    Args:
        count: the number of rounds (int32).
        body: ``body(k, carry)`` gives the next carry.
        start: the first carry.

    Raises:
        ValueError: for a count with a shape. TypeError: for a count that is no integer.
    """
    if jnp.shape(count):
        raise ValueError(f"common_rounds: count has the shape {jnp.shape(count)}; it is one number")
    if not jnp.issubdtype(jnp.result_type(count), jnp.integer):
        raise TypeError(f"common_rounds: count is {jnp.result_type(count)}; it is an integer")
    bound = _common_bound_p.bind(count)

    def step(state):
        k, carry = state
        return k + 1, body(k, carry)

    first = jnp.zeros((), jnp.int32), start
    return jax.lax.while_loop(lambda state: state[0] < bound, step, first)[1]


_common_bound_p = Primitive("common_bound")
_common_bound_p.def_impl(lambda n: n)
_common_bound_p.def_abstract_eval(lambda n: ShapedArray(n.shape, n.dtype))
batching.primitive_batchers[_common_bound_p] = lambda xs, dims: (
    _common_bound_p.bind(*xs),
    dims[0],
)
mlir.register_lowering(_common_bound_p, lambda _, n: [n])


def unfilled(shape: tuple[int, ...], dtype) -> jax.Array:
    """An array for :func:`common_rounds` to fill; what stands in it before is not to be read."""
    return _unfilled_p.bind(shape=tuple(shape), dtype=np.dtype(dtype))


_unfilled_p = Primitive("unfilled")
_unfilled_p.def_impl(jnp.zeros)
_unfilled_p.def_abstract_eval(lambda *, shape, dtype: ShapedArray(shape, dtype))
mlir.register_lowering(_unfilled_p, mlir.lower_fun(jnp.zeros, multiple_results=False))


@rule("common_bound")
def _common_bound(r: Reader, eqn, n: Value):
    """The greatest number of the samples of a vector; one for all of them."""
    if n.uniform or n.shape:  # rows of one sample end together by themselves
        return n
    out = Value((), n.dtype, True)
    out.op = Op("common_bound", [n], [out], {}, eqn)
    r.ops.append(out.op)
    return out


@rule("unfilled")
def _unfilled(r: Reader, eqn):
    """A loop that begins with it writes nothing before its first round."""
    out = Value(eqn.params["shape"], np.dtype(eqn.params["dtype"]))
    out.op = Op("unfilled", [], [out], {}, eqn)
    r.ops.append(out.op)
    return out
