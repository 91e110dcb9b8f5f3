"""Kernels of programs: which one a batch takes, and its call from XLA."""

import hashlib
import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from . import _handler, _machine
from ._kernel import kernel_text, natural_width
from ._read import read_program

if TYPE_CHECKING:
    from ._primitive import Mapped, Program


class Kernel(NamedTuple):
    """Compiled code of a program for so many samples at a time."""

    target: str
    width: int
    shared_bytes: int
    scratch_bytes: int


_LOADED: dict[str, _machine.Code] = {}


def kernel_of(program: "Program", sizes: tuple[int, ...], mapped: "Mapped") -> Kernel:
    """The kernel for a batch, compiled when it is first asked for."""
    shared = tuple(not any(m) for m in mapped) if sizes else (False,) * len(mapped)
    samples = math.prod(sizes)
    key = ("kernel", shared, bool(sizes), min(samples, 64) if sizes else 1)
    if key not in program.derived:
        block = read_program(program.closed, list(shared))
        width = natural_width(block) if sizes else 1
        while width > samples:
            width //= 2
        key_of_width = ("kernel", shared, bool(sizes), "width", width)
        if key_of_width not in program.derived:
            text = kernel_text(block, width, bool(sizes))
            program.derived[key_of_width] = _load(text, width)
        program.derived[key] = program.derived[key_of_width]
    return program.derived[key]


def _load(text, width: int) -> Kernel:
    """Compile, load and register under a name made of the code itself."""
    target = "rbd_jax.lanes." + hashlib.sha256(text.text.encode()).hexdigest()[:32]
    if target not in _LOADED:
        code = _machine.load(_machine.compile(text.text))
        _handler.register(target, code.address(text.symbol))
        _LOADED[target] = code
    return Kernel(target, width, text.shared_bytes, text.scratch_bytes)


def run_kernel(ctx, kernel: Kernel, program: "Program", sizes, mapped, *operands):
    """Call a kernel on operands whose batch axes lie in front."""
    return _call(kernel, program, sizes, mapped, *operands)


def _call(kernel: Kernel, program: "Program", sizes, mapped, *operands):
    samples = math.prod(sizes)
    flat = []
    for x, m, a in zip(operands, mapped, program.avals_in, strict=True):
        if any(m):
            if not all(m):
                axes = [k for k, there in enumerate(m) if not there]
                x = jnp.expand_dims(x, axes)
                x = jnp.broadcast_to(x, (*sizes, *a.shape))
            x = x.reshape(samples, *a.shape) if len(sizes) != 1 else x
        flat.append(x)
    lead = (samples,) if sizes else ()
    outs = [jax.ShapeDtypeStruct((*lead, *a.shape), a.dtype) for a in program.avals_out]
    results = jax.ffi.ffi_call(kernel.target, outs)(*flat)
    return [r.reshape(*sizes, *a.shape) for r, a in zip(results, program.avals_out, strict=True)]
