"""The value of one function with the derivative of another one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from .mechanism import custom_jvp


@custom_jvp
def straight_through_custom_jvp(value: Callable, smooth: Callable, args: PyTree) -> Any:
    """``value(args)`` with the derivatives of ``smooth(args, value(args))`` in its first argument.

    This is the straight-through estimator, for values whose own derivatives are not of use. Only
    derivatives evaluate the second function.
    """
    return value(args)


@straight_through_custom_jvp.def_jvp
def _straight_through_jvp(primals, tangents):
    value, smooth, args = primals
    out = straight_through_custom_jvp(value, smooth, args)
    fixed = jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, out)
    _, rate = eqx.filter_jvp(lambda x: smooth(x, fixed), (args,), (tangents[2],))
    return out, rate
