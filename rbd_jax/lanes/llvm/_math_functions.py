"""Elementary functions as LLVM code in which every lane of a vector is an independent sample.

LLVM has no vector code of its own for functions such as the sine. Those that robots use most are
written here with fused multiply-adds and blends, and are right to 2 units in the last place. The
others call the C library once for each lane, and so does the trigonometry of huge angles. Signed
zeros, infinities, NaNs and subnormal numbers give what NumPy gives.
"""

import math
from collections.abc import Iterable
from functools import cache, partial

from ._math_builder import Code, Value
from ._math_formulas import VECTOR

LIBRARY = ("sinh", "cosh", "asinh", "acosh", "atanh", "cbrt", "erf", "erfc", "lgamma")
"""Functions that only the C library computes."""

FUNCTIONS: dict[str, int] = {x: 2 if x in ("atan2", "pow") else 1 for x in (*VECTOR, *LIBRARY)}
"""Name of a function -> number of its arguments. ``sincos`` gives a structure, sine first."""


def symbol(name: str, bits: int, width: int) -> str:
    """The name, without ``@``, of a function in LLVM code."""
    return f"lanes_{name}_f{bits}x{width}"


def definition(name: str, bits: int, width: int, libm: bool = True) -> str:
    """The LLVM code of a function of one or two vectors; for a width of 1, of plain numbers.

    Without ``libm``, on machines that have no C library, sines, cosines and tangents of angles
    beyond 1e5 (32 bits) or 1e9 (64 bits) are NaN.
    """
    return _written(name, bits, width, libm=libm)[0]


def declarations(names: Iterable[str], bits: int, width: int, libm: bool = True) -> set[str]:
    """The lines that declare what the definitions of functions call, each line once."""
    return set().union(*(_written(name, bits, width, libm=libm)[1] for name in names))


@cache
def _written(
    name: str, bits: int, width: int, library: bool = False, libm: bool = True
) -> tuple[str, frozenset[str]]:
    """The text of a function and its declarations.

    With ``library``, it is the function to which one in vector code turns in far lanes.
    """
    f = Code(bits, width)
    full, qualities = symbol(name, bits, width), "nounwind willreturn memory(none)"
    if library:
        full, qualities = f"{full}_by_lane", f"cold noinline {qualities}"
    arguments = [Value(f, "real", x) for x in ("%x", "%y")[: FUNCTIONS[name]]]
    function = VECTOR[name] if name in VECTOR and not library else partial(_by_lane, name)
    result, others = function(f, *arguments), ""
    if f.far is not None and not libm:
        result, f.far = _nan_where(f, f.far, result), None
    kind, returned = f.pair(*result) if isinstance(result, tuple) else (f.real, result.name)
    parameters = ", ".join(f"{f.real} {x.name}" for x in arguments)
    if f.far is not None:
        f.lines += [f"br i1 {f.any(f.far)}, label %far, label %near", "far:"]
        other = f.append("real", f"call {kind} @{full}_by_lane({parameters})").name
        f.lines += [f"ret {kind} {other}", "near:"]
        others, declared = _written(name, bits, width, library=True)
        f.declarations |= declared
    f.lines.append(f"ret {kind} {returned}")
    head = f"define internal {kind} @{full}({parameters}) {qualities} {{"
    return "\n".join([head, *f.lines, "}", others]), frozenset(f.declarations)


def _by_lane(name: str, f: Code, *arguments: Value) -> Value | tuple[Value, Value]:
    if name == "sincos":
        return f.by_lane("sin", *arguments), f.by_lane("cos", *arguments)
    return f.by_lane(name, *arguments)


def _nan_where(f: Code, far: Value, result: Value | tuple) -> Value | tuple:
    if isinstance(result, tuple):
        return tuple(f.where(far, math.nan, x) for x in result)
    return f.where(far, math.nan, result)
