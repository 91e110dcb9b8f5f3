"""The public function ``lanes``: the ``vmap`` of a function computes one sample in a SIMD lane."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache, wraps
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import ShapedArray, Tracer, eval_jaxpr

from ._failures import leave_to_xla
from ._jax_internals import (
    ArrayImpl,
    cleared_by_jax,
    debugs_nans,
    is_staged,
    jit_enabled,
    trace_context,
)
from ._lowering import enabled
from ._progress import tracing
from .frontend._read_program import read_program
from .primitive._primitive import LARGEST, Form, Program, bind, tracing_for

F = TypeVar("F", bound=Callable)
_CONCRETE = {ArrayImpl}


def lanes(f: F, strict: bool = False) -> F:
    """A function of one sample whose ``vmap`` computes one sample in every SIMD lane of a CPU.

    The result is the same function: it can be differentiated, mapped, compiled and nested as any
    other function of JAX. Under ``jax.vmap`` the whole of it becomes one loop over blocks of 4
    to 8 samples, which are spread over the cores. On an NVIDIA GPU, a team of threads computes a
    sample. Without ``llvmlite``, with the environment variable ``RBD_JAX_LANES=0`` and on other
    platforms it runs through XLA as it is; with ``RBD_JAX_LANES=cpu`` also on GPUs. While
    ``jax_debug_nans`` or ``jax_debug_infs`` is set, it runs operation by operation, as JAX does.

    Args:
        f: a function of arrays and pytrees of them; everything else is taken as static. It must
            be pure, as for ``jax.jit``.
        strict: raise where something cannot be compiled. Otherwise XLA takes the function then.

    Returns:
        The function, with the same arguments and results.

    Raises:
        ValueError: when called with ``strict=True`` and an operation is not supported; it is named.
    """

    @wraps(f)
    def wrapper(*args, **kwargs):
        if not enabled() or debugs_nans():  # then JAX names the operation that gave a NaN
            return f(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        if set(map(type, leaves)) == _CONCRETE and jit_enabled():
            return _eager(f, strict, tree)(*leaves)
        return _apply(f, strict, tree, leaves)

    return wrapper  # type: ignore[return-value]


@cleared_by_jax
@lru_cache(maxsize=256)
def _eager(f, strict: bool, tree):
    """The function of the leaves of arguments that are all arrays, compiled by JAX."""
    return jax.jit(lambda *leaves: _apply(f, strict, tree, list(leaves)))


def _apply(f, strict: bool, tree, leaves: list):
    """Bind the program of a function to arguments."""
    there = [isinstance(x, jax.Array | np.ndarray | np.generic) for x in leaves]
    staged = jax.default_backend() != "cpu" and any(map(is_staged, leaves))
    known = [staged and isinstance(x, ArrayImpl) and x.size <= LARGEST for x in leaves]
    there = [t and not k for t, k in zip(there, known, strict=True)]
    dynamic = [x for x, t in zip(leaves, there, strict=True) if t]
    static = tuple(None if t else _Constant(x) if k else _Static(x)
                   for x, t, k in zip(leaves, there, known, strict=True))  # fmt: skip
    avals = tuple(_alone(jax.typeof(x)) for x in dynamic)
    try:
        found = _traced(f, strict, tree, static, avals, (trace_context(), tracing_for.get()))
    except _Captured as captured:
        found = captured.args[0]
    if found is None:
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return f(*args, **kwargs)
    program, out_tree, consts = found
    return jax.tree.unflatten(out_tree, bind(program, [*consts, *dynamic]))


def _alone(aval):
    """The type of an argument without the devices that it is spread over."""
    if aval.sharding.mesh.empty:
        return aval
    return ShapedArray(aval.shape, aval.dtype, aval.weak_type)


class _Static:
    """A static argument, compared with its type: 1, 1.0 and True are different programs.

    So are 0.0 and −0.0, which are equal in Python, and NaN is the same as itself.
    """

    def __init__(self, value: Any):
        self.value = value
        self._key = type(value), repr(value) if isinstance(value, float | complex) else value
        try:
            hash(self._key)
        except TypeError:
            raise TypeError(
                f"lanes: {value!r} is neither an array nor hashable; pass arrays, numbers, strings "
                f"or other static values"
            ) from None

    def __eq__(self, other) -> bool:
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class _Constant(_Static):
    """An array that a program of ``jax.jit`` has closed over, compared by its numbers.

    On a GPU it becomes a part of the code: what is made of it alone is computed while the program
    is read, and not by a launch of its own in every call.
    """

    def __init__(self, value: Any):
        self.value = value
        numbers = np.asarray(value)
        weak = jax.typeof(value).weak_type
        self._key = str(numbers.dtype), numbers.shape, numbers.tobytes(), weak


class _Captured(Exception):
    """A program with values of a transformation around it, which must not be kept."""


@cleared_by_jax
@lru_cache(maxsize=256)
def _traced(f, strict: bool, tree, static: tuple, avals: tuple, context: Any):
    """The program of a function for arguments of these types, or None if it does more than that.

    ``context`` are the settings of JAX under which it is traced, which are part of the key.
    """
    del context
    out_tree = None

    def flat(*dynamic):
        nonlocal out_tree
        rest = iter(dynamic)
        leaves = [next(rest) if s is None else s.value for s in static]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        out, out_tree = jax.tree.flatten(f(*args, **kwargs))
        return out

    name = getattr(f, "__name__", type(f).__name__)
    with _without_mesh(), tracing():
        closed = jax.make_jaxpr(flat)(*avals)
        if closed.effects:
            if strict:
                raise ValueError(f"lanes cannot compile {name}: it has {closed.effects}")
            return None
        closed, consts = _consts_to_operands(closed)
    bound = any(isinstance(c, Tracer) for c in consts)

    def retrace(form: Form) -> Program:
        del form  # which is the one that functions are traced for now
        whole = [jax.typeof(c) for c in consts], avals
        return Program(jax.make_jaxpr(lambda _, xs: flat(*xs))(*whole), name, strict)

    program = Program(closed, name, strict, None if bound else retrace)
    if strict:
        try:
            read_program(closed, [False] * len(program.avals_in))
        except Exception as e:
            leave_to_xla(e, name, strict)
    found = program, out_tree, consts
    if bound:
        raise _Captured(found)
    return found


def _without_mesh() -> AbstractContextManager:
    """Trace for one device. Where there is no mesh the settings stay as they are, because functions
    inside would be traced once more for others."""
    if jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))


def _consts_to_operands(closed):
    """Tables become part of the code; large arrays and values of outer transformations do not."""
    jaxpr, consts = closed.jaxpr, closed.consts
    kept = [k for k, c in enumerate(consts)
            if not isinstance(c, Tracer) and np.size(c) <= LARGEST]  # fmt: skip
    if len(kept) == len(consts):
        return closed, []
    moved = [k for k in range(len(consts)) if k not in kept]
    values = [consts[k] for k in moved]

    def function(*args):
        own: list = [None] * len(consts)
        for k in kept:
            own[k] = consts[k]
        for k, x in zip(moved, args, strict=False):
            own[k] = x
        return eval_jaxpr(jaxpr, own, *args[len(moved) :])

    avals = [jax.typeof(v) for v in values] + [v.aval for v in jaxpr.invars]
    return jax.make_jaxpr(function)(*avals), values


def trace_once(function: Callable, args: tuple) -> tuple[Any, Any]:
    """The jaxpr of a function, and the structure of its result, kept for the next call.

    A function that a derivative, a batch and another function call is traced once for all of them.

    Args:
        function: a pure function; it is known by its identity.
        args: its arguments. Arrays become the operands of the jaxpr, in their order among the
            leaves. The other leaves are static. Where these cannot be hashed, or where they hold
            values of a transformation, the function is traced anew in every call.
    """
    leaves, tree = jax.tree.flatten(args)
    avals = tuple(jax.typeof(x) for x in leaves if isinstance(x, jax.Array))
    static = tuple(None if isinstance(x, jax.Array) else _Known(x) for x in leaves)
    settings = trace_context(), enabled(), tracing_for.get()
    try:
        return _once(function, tree, static, avals, settings)
    except _Captured as captured:
        return captured.args[0]
    except _Unhashable:
        return _once.__wrapped__(function, tree, static, avals, settings)


class _Unhashable(TypeError):
    """A static argument cannot be part of a key."""


class _Known:
    """A static argument of any kind, compared with its type; arrays of NumPy by their content."""

    def __init__(self, value: Any):
        self.value = value

    @cached_property
    def _key(self) -> tuple:
        x = self.value
        if isinstance(x, np.ndarray) and x.dtype != object:
            return np.ndarray, str(x.dtype), x.shape, x.tobytes()
        try:
            return _Static(x)._key
        except TypeError:
            raise _Unhashable from None

    def __eq__(self, other) -> bool:
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@cleared_by_jax
@lru_cache(maxsize=256)
def _once(function: Callable, tree, static: tuple, avals: tuple, settings: Any):
    """See :func:`trace_once`. ``settings`` are part of the key only."""
    del settings
    out_tree = None

    def flat(*dynamic):
        nonlocal out_tree
        rest = iter(dynamic)
        leaves = [next(rest) if s is None else s.value for s in static]
        out, out_tree = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
        return out

    with tracing():
        closed = jax.make_jaxpr(flat)(*avals)
    if any(isinstance(c, Tracer) for c in closed.consts):
        raise _Captured((closed, out_tree))
    return closed, out_tree


def clear_caches() -> None:
    """Drop the traced programs of all functions, so that they are traced again when called.

    ``jax.clear_caches`` does this too, and drops what JAX has compiled.
    """
    _traced.cache_clear()
    _eager.cache_clear()
    _once.cache_clear()
