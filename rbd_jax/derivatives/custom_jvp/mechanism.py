"""Functions with derivative rules that hold in loops too, to any order.

The derivative of a loop is found by JAX in two parts: what depends on tangents, and the rest. Out
of the rest JAX moves what is the same in every round. On the way it puts the body of a function
with ``custom_jvp`` in the place of the function. The value is the same, but the second derivative
of the loop then differentiates the body, which may search for a solution or hold something fixed
that only the rule accounts for (``process_custom_jvp_call`` of JAX's partial evaluation, to 0.10.2
at least). A body that is one operation of JAX stays whole, and its derivative is the rule.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ...lanes import trace_once


class custom_jvp:
    """``equinox.filter_custom_jvp`` whose rule JAX keeps in the derivatives of a loop."""

    def __init__(self, function: Callable):
        self._function = function
        self._known: Any = None
        self._with_rule = eqx.filter_custom_jvp(self._body)
        self.def_jvp = self._with_rule.def_jvp

    def __call__(self, *args) -> Any:
        """The function's value; its derivative is the rule."""
        return self._with_rule(*args)

    def def_known(self, known: Callable) -> Callable:
        """Say what the derivatives of a value are that was found before.

        ``known(value, *args)`` returns the value, with the derivatives that the rule gives, and
        searches for nothing. It is called where a loop keeps its values for its derivatives.
        """
        self._known = known
        return known

    def _body(self, *args):
        """The value as one operation."""
        dynamic, static = eqx.partition(args, eqx.is_array)
        operands, tree = jax.tree.flatten(dynamic)

        def of(function, *operands):
            return function(*eqx.combine(jax.tree.unflatten(tree, operands), static))

        def again(*operands):
            return jax.tree.leaves(of(self._with_rule, *operands))

        def from_value(value, *operands):
            value = jax.tree.unflatten(out_tree, value)
            return jax.tree.leaves(of(partial(self._known, value), *operands))

        known = None if self._known is None else from_value
        closed, out_tree = trace_once(self._function, args)
        n = len(closed.consts)
        if any(isinstance(x, Tracer) for x in closed.consts):  # of a function among the arguments
            body, operands = closed.jaxpr, [*closed.consts, *operands]
            closed = jax.make_jaxpr(lambda *xs: eval_jaxpr(body, xs[:n], *xs[n:]))(*operands)
            without, again, known = again, lambda *xs: without(*xs[n:]), None
        out = _custom_jvp_p.bind(*operands, closed=closed, again=again, known=known)
        return jax.tree.unflatten(out_tree, out)


_custom_jvp_p = Primitive("rbd_custom_jvp")
_custom_jvp_p.multiple_results = True


@_custom_jvp_p.def_impl
def _plain(*operands, closed, again, known):
    """The body. Lanes and XLA compile its operations in the place of the one."""
    del again, known
    return jaxpr_as_fun(closed)(*operands)


@_custom_jvp_p.def_abstract_eval
def _abstract(*avals, closed, again, known):
    if list(avals) == list(closed.in_avals):
        return closed.out_avals
    return jax.make_jaxpr(jaxpr_as_fun(closed))(*avals).out_avals  # in a mesh, for example


def _jvp(primals, tangents, *, closed, again, known):
    del closed, known
    moving = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]

    def of_moving(*values):
        operands = list(primals)
        for k, x in zip(moving, values, strict=True):
            operands[k] = x
        return again(*operands)

    out, rates = jax.jvp(of_moving, [primals[k] for k in moving], [tangents[k] for k in moving])
    return out, [ad.Zero(t.aval) if t.dtype == jax.dtypes.float0 else t for t in rates]


def _transpose(cts, *operands, closed, again, known):
    """Of a body that is linear in some operands, as bodies are in loops too."""
    del again, known
    wanted = [k for k, x in enumerate(operands) if ad.is_undefined_primal(x)]
    given = [k for k, ct in enumerate(cts) if type(ct) is not ad.Zero]

    def of_wanted(*values):
        everything = list(operands)
        for k, x in zip(wanted, values, strict=True):
            everything[k] = x
        out = jaxpr_as_fun(closed)(*everything)
        return [out[k] for k in given]

    shapes = [jax.ShapeDtypeStruct(operands[k].aval.shape, operands[k].aval.dtype) for k in wanted]
    found = iter(jax.linear_transpose(of_wanted, *shapes)([cts[k] for k in given]))
    return [next(found) if k in wanted else None for k in range(len(operands))]


def _batch(operands, dims, *, closed, again, known):
    mapped = partial(jax.vmap, in_axes=dims)
    found = jax.make_jaxpr(mapped(jaxpr_as_fun(closed)))(*operands)
    if known is not None:
        known = jax.vmap(known, (0, *dims))
    out = _custom_jvp_p.bind(*operands, closed=found, again=mapped(again), known=known)
    return out, [0] * len(out)


_custom_jvp_p.expand = _plain  # pyright: ignore[reportAttributeAccessIssue]
ad.primitive_jvps[_custom_jvp_p] = _jvp
ad.primitive_transposes[_custom_jvp_p] = _transpose
batching.primitive_batchers[_custom_jvp_p] = _batch
mlir.register_lowering(_custom_jvp_p, mlir.lower_fun(_plain, multiple_results=True))
