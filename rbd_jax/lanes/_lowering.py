"""The lowering of the primitive: a call of compiled code on CPUs and on NVIDIA GPUs.

Elsewhere, and where something cannot be compiled, it is the plain function.
"""

import math
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.interpreters import mlir

from ._failures import leave_to_xla
from ._jax_internals import needs_devices, on_backend_start
from ._sharding import over_devices, partitioned
from .cpu import _cpu_kernels
from .gpu import _gpu_kernels
from .llvm import _compiler
from .primitive import _loop_fission
from .primitive._primitive import Mapped, Program, lanes_p, plain, traced_for, tracing_for

_PLATFORMS: dict[str, Any] = {"cpu": _cpu_kernels, "cuda": _gpu_kernels}
_HANDLERS: dict[str, Callable] = {
    "cpu": _cpu_kernels.for_cpus, "cuda": _gpu_kernels.for_gpus, "gpu": _gpu_kernels.for_gpus,
}  # fmt: skip


def enabled(platform: str | None = None) -> bool:
    """Whether functions are compiled to lanes, on any platform or on this one.

    The environment variable RBD_JAX_LANES is ``1`` for CPUs and NVIDIA GPUs, the default,
    ``cpu`` for CPUs alone, or ``0``. ``llvmlite`` has to be there, and for a GPU its driver.
    """
    asked = os.environ.get("RBD_JAX_LANES", "1")
    if asked not in ("0", "1", "cpu"):
        raise ValueError(f"RBD_JAX_LANES is {asked!r}, but it can be '0', '1' or 'cpu'")
    places = {"0": (), "1": ("cpu", "cuda", "gpu"), "cpu": ("cpu",)}[asked]
    if not _compiler.available() or not places or tracing_for.get() == "xla":
        return False
    return (
        platform is None or platform in places and (platform == "cpu" or _gpu_kernels.available())
    )


def for_one_thread() -> bool:
    """Whether a program is traced for a GPU of which one thread computes a sample, not a team."""
    return tracing_for.get() == "thread"


def _lower(platform: str, ctx, *operands, program: Program, sizes, mapped: Mapped, linear):
    form: Any = nullcontext()
    if not math.prod(sizes):
        function: Callable = partial(_nothing, program, sizes)
    elif (compiled := _compiled(platform, ctx, program, sizes, mapped)) is not None:
        function = compiled
    else:
        if _PLATFORMS[platform] is _gpu_kernels and enabled(platform):
            program, form = program.in_form("xla"), traced_for("xla")
        function = partial(plain, program=program, sizes=sizes, mapped=mapped, linear=linear)
    with form:  # rules of derivatives may be traced as late as this
        return mlir.lower_fun(function, multiple_results=True)(ctx, *operands)


def _nothing(program: Program, sizes, *operands) -> list:
    """The results for no samples, which nobody has to compile."""
    del operands
    return [jnp.zeros((*sizes, *a.shape), a.dtype) for a in program.avals_out]


def _compiled(platform: str, ctx, program: Program, sizes, mapped: Mapped) -> Callable | None:
    """The call of a kernel, or None where XLA has to do it."""
    exported = ctx.module_context.lowering_parameters.for_export
    if exported or not enabled(platform):
        return None
    room = _PLATFORMS[platform]
    try:
        if not sizes and platform == "cpu" and not over_devices(ctx):
            pieces = _loop_fission.fission(program)
            if pieces is not None:
                return pieces
        kernel = room.kernel_of(program, sizes, mapped)
    except Exception as e:
        leave_to_xla(e, program.name, program.strict)
        return None
    ctx.module_context.add_keepalive(kernel)  # until the executable is there, which counts itself
    call = partial(room.call_kernel, kernel, program)
    if sizes and over_devices(ctx):
        return partitioned(call, sizes, mapped)
    return partial(call, sizes, mapped)


def _register(backend) -> None:
    """Make the handlers of a platform known to XLA, for executables that were made elsewhere.

    JAX would not start if this failed, so whoever compiles a program is told of a failure.
    """
    with suppress(Exception):
        if enabled(backend.platform):
            _HANDLERS[backend.platform]()


mlir.register_lowering(lanes_p, mlir.lower_fun(plain, multiple_results=True))
for _platform in _PLATFORMS:
    mlir.register_lowering(lanes_p, partial(_lower, _platform), platform=_platform)
needs_devices(lanes_p)
on_backend_start(_register)
