"""Evaluate a function of small arrays number by number.

An array becomes a numpy array of numbers, each of them whatever the caller puts there: in
:mod:`benchmarks._lanes` a vector of one number a robot. Moving numbers about (slices, transposes,
stacks) then costs nothing, and products with a constant zero or one vanish.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


def evaluate(program: ClosedJaxpr, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs, as arrays of numbers, of a function of arrays of numbers.

    Raises:
        NotImplementedError: for a primitive that is neither done number by number nor listed here.
    """
    return _evaluate(program.jaxpr, [_constant(c) for c in program.consts], inputs)


def operations(program: ClosedJaxpr) -> int:
    """How many operations on numbers that takes."""

    def run(*numbers):
        rest = iter(numbers)
        outputs = evaluate(program, [array(rest, x.shape) for x in program.in_avals])
        return [x for y in outputs for x in y.flat]

    numbers = [jax.ShapeDtypeStruct((), a.dtype) for a in program.in_avals for _ in range(a.size)]
    return len(jax.make_jaxpr(run)(*numbers).eqns)


def array(numbers: Iterable, shape: tuple[int, ...]) -> np.ndarray:
    """So many of the numbers as fit into the shape."""
    result = np.empty(shape, object)
    for i, x in zip(np.ndindex(shape), numbers, strict=False):
        result[i] = x
    return result


def _evaluate(jaxpr: Jaxpr, consts: list, inputs: list) -> list[np.ndarray]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

    def read(x):
        return _constant(x.val) if isinstance(x, Literal) else values[x]

    for equation in jaxpr.eqns:
        arguments, parameters = [read(x) for x in equation.invars], equation.params
        inner = parameters.get("jaxpr") or parameters.get("call_jaxpr")
        name = equation.primitive.name
        if isinstance(inner, ClosedJaxpr):
            outputs = evaluate(inner, arguments)
        elif inner is not None:
            outputs = _evaluate(inner, [], arguments)
        elif name in _MOVES:
            outputs = [_numbers(_MOVES[name](*arguments, **parameters))]
        elif name in _ELEMENTWISE:
            operation = partial(_apply, equation.primitive, parameters)
            outputs = [_numbers(np.frompyfunc(operation, len(arguments), 1)(*arguments))]
        else:
            raise NotImplementedError(f"{name} cannot be done number by number")
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _numbers(x) -> np.ndarray:
    """An array of numbers: of one, numpy returns the number itself."""
    whole = isinstance(x, np.ndarray) and x.dtype == object
    return x if whole else array([x], ())


def _constant(x) -> np.ndarray:
    return array(np.asarray(x).flat, np.shape(x))


# --- number by number ----------------------------------------------------------------------------

_ELEMENTWISE = set(
    "add sub mul div neg max min abs sign sqrt rsqrt sin cos integer_pow square select_n "
    "convert_element_type eq ne lt le gt ge and or not".split()
)


def is_constant(x) -> bool:
    """Whether a number is known before the kernel runs."""
    return not isinstance(x, jax.Array)


def _apply(primitive, parameters, *numbers):
    """One operation; zeros and ones that are known are left out."""
    if all(is_constant(x) for x in numbers):
        with jax.ensure_compile_time_eval():
            result = primitive.bind(*(jnp.asarray(x) for x in numbers), **parameters)
            return np.asarray(result)[()]
    if primitive.name == "select_n" and is_constant(numbers[0]):
        return numbers[1 + int(numbers[0])]
    if primitive.name in ("add", "mul"):
        for one, other in (numbers, numbers[::-1]):
            if is_constant(one) and one == (primitive.name == "mul"):
                return other
            if is_constant(one) and one == 0:
                return one
    if primitive.name == "sub" and is_constant(numbers[1]) and numbers[1] == 0:
        return numbers[0]
    shape = np.broadcast_shapes(*(jnp.shape(x) for x in numbers))
    return primitive.bind(*(jnp.broadcast_to(x, shape) for x in numbers), **parameters)


# --- moving numbers about ------------------------------------------------------------------------


def _slice(x, *, start_indices, limit_indices, strides):
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _broadcast(x, *, shape, broadcast_dimensions, **_):
    full = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        full[axis] = size
    return np.broadcast_to(x.reshape(full), shape)


def _sum(x, *, axes, **_):
    rest = [a for a in range(x.ndim) if a not in axes]
    kept = [x.shape[a] for a in rest]
    rows = x.transpose(*rest, *axes).reshape(*kept, math.prod(x.shape[a] for a in axes))
    total = rows[..., 0]
    for k in range(1, rows.shape[-1]):
        add = np.frompyfunc(partial(_apply, jax.lax.add_p, {}), 2, 1)
        total = _numbers(add(total, rows[..., k]))
    return total


def _iota(*, dtype, shape, dimension, **_):
    axis = np.arange(shape[dimension], dtype=dtype)
    others = [i for i in range(len(shape)) if i != dimension]
    return _constant(np.broadcast_to(np.expand_dims(axis, others), shape))


_MOVES: dict[str, Callable] = {
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _sum,
    "iota": _iota,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, dimensions),
    "reshape": lambda x, *, new_sizes, **_: x.reshape(new_sizes),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "stack": lambda *xs, axis, **_: np.stack(xs, axis),
}
