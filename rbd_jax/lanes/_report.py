"""What the kernels of a call are made of: memory, size, and the code to look at."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import subjaxprs

from ._failures import Unsupported, explained
from ._progress import collected
from .cpu._cpu_kernels import text_of
from .llvm import _compiler
from .primitive._primitive import lanes_p


class Report(NamedTuple):
    """What one kernel is made of.

    Attributes:
        name: the function of one sample, with what was derived from it.
        samples: the sizes of the batch, none for a single sample.
        width: samples that are computed at a time.
        shared_bytes: memory of a call for what all samples share.
        scratch_bytes: memory of each thread for ``width`` samples.
        code_bytes: size of the machine code, with its tables.
        lines: lines of LLVM text.
        seconds: of the phases ``read`` and ``write`` (from the jaxpr to LLVM text) and ``compile``
            (LLVM), 0 for what lay in the cache on disk.
        text: the LLVM text.
    """

    name: str
    samples: tuple[int, ...]
    width: int
    shared_bytes: int
    scratch_bytes: int
    code_bytes: int
    lines: int
    seconds: dict[str, float]
    text: str

    def __str__(self) -> str:
        return (
            f"{self.name}{list(self.samples)}: {self.width} samples at a time, memory "
            f"{self.scratch_bytes} bytes a thread and {self.shared_bytes} a call, code "
            f"{self.code_bytes} bytes from {self.lines} lines of LLVM, made in "
            f"{sum(self.seconds.values()):.1f} s"
        )

    def assembly(self) -> str:
        """The machine code in the notation of this machine."""
        return _compiler.assembly(self.text)


def report(f: Callable, *args, **kwargs) -> list[Report]:
    """What the kernels are made of that a call of a function takes.

    Args:
        f: a function that uses functions made by ``lanes``, for instance the ``vmap`` of one.
        *args: arguments of a call. Only the types of arrays matter.
        **kwargs: the same.

    Returns:
        One report for each kernel, in the order of their calls.

    Raises:
        ValueError: something cannot be compiled, or llvmlite is not there.
    """
    if not _compiler.available():
        raise ValueError("no function is compiled to lanes: llvmlite is not installed")
    leaves, tree = jax.tree.flatten((args, kwargs))
    there = [isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct) for x in leaves]

    def flat(*dynamic):
        rest = iter(dynamic)
        args, kwargs = tree.unflatten(
            [next(rest) if t else x for x, t in zip(leaves, there, strict=True)]
        )
        return f(*args, **kwargs)

    jaxpr = jax.make_jaxpr(flat)(*(x for x, t in zip(leaves, there, strict=True) if t))
    return [_report(**params) for params in calls(jaxpr.jaxpr)]


def calls(jaxpr) -> Iterator[dict]:
    """The parameters of all calls of the primitive, inner ones included."""
    for eqn in jaxpr.eqns:
        if eqn.primitive is lanes_p:
            yield eqn.params
    for inner in subjaxprs(jaxpr):
        yield from calls(inner)


def _report(program, sizes, mapped, linear) -> Report:
    del linear
    with collected() as spent:
        try:
            text, width = text_of(program, sizes, mapped)
        except Unsupported as e:
            raise ValueError(f"lanes cannot compile {program.name}: {explained(e)}") from e
        size, lines = len(_compiler.compile(text.text)), text.text.count("\n")
    memory = text.shared_bytes, text.scratch_bytes
    seconds = {name: spent[name] for name in ("read", "write", "compile")}
    return Report(program.name, sizes, width, *memory, size, lines, seconds, text.text)
