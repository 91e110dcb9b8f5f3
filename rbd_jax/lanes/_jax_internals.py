"""What lanes needs of JAX that JAX does not promise or that changed, for jax 0.10.2 to 0.12."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src import config, source_info_util, xla_bridge
from jax._src.array import ArrayImpl as ArrayImpl
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax._src.interpreters import ad, batching
from jax._src.interpreters.partial_eval import DynamicJaxprTracer, dce_jaxpr
from jax._src.util import register_cache
from jax.core import ShapedArray
from jax.extend import core as jcore
from jax.interpreters import mlir
from jaxlib.mlir import ir


def needs_devices(primitive: Any) -> None:
    """Let JAX say at each lowering of a primitive which devices it is for."""
    prim_requires_devices_during_lowering.add(primitive)


def on_backend_start(hook: Callable[[Any], None]) -> None:
    """Call a function with each backend that JAX has, or as soon as it has it.

    JAX 0.12 has no such hooks. There the functions with which JAX makes its backends call it. If a
    later version makes them in another way, the function is never called.
    """
    register = getattr(xla_bridge, "register_backend_initialization_hook", None)
    if register is not None:
        register(hook)
        return
    with suppress(Exception):
        _follow_factories(hook)


def _follow_factories(hook: Callable[[Any], None]) -> None:
    """Let every factory of JAX call a function with the backend that it has made."""
    internals: Any = xla_bridge
    followed: set[str] = set()

    def follow(**_: Any) -> None:
        for name, registration in internals._backend_factories.items():
            if name not in followed:
                followed.add(name)
                registration.factory = partial(made, registration.factory)

    def made(factory: Callable[[], Any]) -> Any:
        backend = factory()
        if backend is not None:
            hook(backend)
        return backend

    follow()
    internals.register_plugin_callbacks(follow)  # plugins, such as CUDA's, register theirs later
    if internals.backends_are_initialized():
        for backend in internals.backends().values():
            hook(backend)


def cleared_by_jax(cache: Any) -> Any:
    """A cache made by ``functools.lru_cache``, which ``jax.clear_caches`` empties from now on."""
    register_cache(cache, cache.__name__)
    return cache


def kernel_call(
    target: str,
    key: int,
    operands: list[Any],
    outs: list[jax.ShapeDtypeStruct],
    layouts: tuple[tuple, tuple] | None = None,
) -> list[Any]:
    """``jax.ffi.ffi_call`` with one attribute, ``kernel``, in a form that XLA does not lose.

    JAX writes attributes into ``mhlo.backend_config``, which MLIR may drop from an operation that
    it rewrites. XLA did so for every call before an empty slice, ``x[n:]`` of n numbers, and then
    knew no handler of an "untyped custom call".

    Args:
        target: the name of the handler.
        key: the attribute, a number of 64 bits.
        operands: the operands.
        outs: shapes and dtypes of the results.
        layouts: for operands and for results, the axes of each from the greatest stride to the
            least; None for the usual order.
    """
    like = tuple((tuple(x.shape), np.dtype(x.dtype)) for x in outs)
    return _kernel_call_p.bind(*operands, target=target, key=int(key), outs=like, layouts=layouts)


_kernel_call_p: Any = jcore.Primitive("rbd_jax_kernel")
_kernel_call_p.multiple_results = True


@_kernel_call_p.def_abstract_eval
def _(*_, outs, **__):
    return [ShapedArray(shape, dtype) for shape, dtype in outs]


def _lower_kernel_call(ctx, *operands, target, key, outs, layouts):
    ins, results = (None, None) if layouts is None else layouts
    turned = lambda every: every and [x[::-1] for x in every]  # noqa: E731
    rule: Any = jax.ffi.ffi_lowering(
        target, operand_layouts=turned(ins), result_layouts=turned(results)
    )
    found = rule(ctx, *operands, kernel=np.int64(key))
    attributes = found[0].owner.attributes
    if "mhlo.backend_config" in attributes:
        attributes["backend_config"] = attributes["mhlo.backend_config"]
        attributes["api_version"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4)
        del attributes["mhlo.backend_config"]
    return found


mlir.register_lowering(_kernel_call_p, _lower_kernel_call)


def trace_context() -> Any:
    """All settings of JAX on which a traced program depends, such as x64 and promotion."""
    return config.trace_context()


def debugs_nans() -> bool:
    """Whether JAX looks for NaN or infinity in each result, as ``jax_debug_nans`` asks for."""
    config: Any = jax.config
    return config.jax_debug_nans or config.jax_debug_infs


def source_of(eqn: Any) -> str:
    """The operation of an equation, and the line of the user's code that it comes from."""
    try:
        frame = source_info_util.user_frame(eqn.source_info.traceback)
        place = f" ({frame.file_name}:{frame.start_line})" if frame is not None else ""
    except Exception:  # JAX promises nothing about it
        place = ""
    return f"operation {eqn.primitive.name!r}{place}"


def jit_enabled() -> bool:
    """Whether ``jax.jit`` compiles, which ``jax.disable_jit`` turns off."""
    config: Any = jax.config
    return not config.jax_disable_jit


def literal(atom: Any) -> np.ndarray:
    """A number that stands in a jaxpr, in the dtype that it has there.

    The number itself may be one of Python, which NumPy takes for 64 bits in any mode.
    """
    return np.asarray(atom.val, atom.aval.dtype)


def dead_code_eliminated(closed: Any) -> Any:
    """A jaxpr without the equations, and the parts of loops, that no result needs."""
    inner = getattr(closed, "jaxpr", closed)
    lean = dce_jaxpr(inner, True, True)[0]
    return lean if inner is closed else closed.replace(jaxpr=lean)


def lean_for(closed: Any, results: list[bool]) -> tuple[Any, list[bool]]:
    """A jaxpr of the chosen results alone, and which of its operands it still has."""
    inner = getattr(closed, "jaxpr", closed)
    lean, needed = dce_jaxpr(inner, results)
    return lean if inner is closed else closed.replace(jaxpr=lean), list(needed)


def jaxpr_and_consts(closed):
    """Jaxpr and constants of what is a ``ClosedJaxpr`` in one version, a ``Jaxpr`` in another."""
    inner = getattr(closed, "jaxpr", closed)
    return inner, getattr(closed, "consts", ())


def closed_jaxpr(like: Any, eqns: list, invars: list, outvars: list, consts: dict) -> Any:
    """A jaxpr of given equations, in the class that this version of JAX has.

    Args:
        like: the jaxpr that the equations come from.
        eqns: the equations, in an order in which they can be carried out.
        invars: its operands.
        outvars: its results, variables or literals.
        consts: variable -> value, for what the equations read from elsewhere.
    """
    debug_info = getattr(like, "jaxpr", like).debug_info.with_unknown_names()
    effects = set().union(*(e.effects for e in eqns))
    inner = jcore.Jaxpr(list(consts), invars, outvars, eqns, effects, debug_info)
    return jcore.ClosedJaxpr(inner, list(consts.values()))


def new_variable(aval: Any) -> Any:
    """A variable for a jaxpr. Its type is not weak, since nothing is promoted any more."""
    return jcore.Var(aval.strip_weak_type())


def scan_counts(params: dict) -> tuple[int, int]:
    """How many constants and carries a scan has, in the terms of any version of JAX."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry = (len(list(part)) for part in params["ft_in"].unpack()[:2])  # from JAX 0.11 on
    return consts, carry


def is_perturbed(x: Any) -> bool:
    """Whether the derivative that is being taken is one of this value."""
    return isinstance(x, ad.JVPTracer)


def is_staged(x: Any) -> bool:
    """Whether ``jax.jit`` and the like are tracing the program of which a value is a part."""
    while isinstance(x, batching.BatchTracer | ad.JVPTracer):
        x = x.val if isinstance(x, batching.BatchTracer) else x.primal
    return isinstance(x, DynamicJaxprTracer)
