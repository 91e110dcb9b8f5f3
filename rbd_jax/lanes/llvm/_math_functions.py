"""Elementary functions as LLVM code in which every lane of a vector is an independent sample.

LLVM has no vector code of its own for functions such as the sine. Those that robots use most are
written here with fused multiply-adds and blends, and are right to 2 units in the last place. The
others call the C library once for each lane, and so does the trigonometry of huge angles. Signed
zeros, infinities, NaNs and subnormal numbers give what NumPy gives.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache, partial

from ._math_builder import Code, Value

# --- formulas ---------------------------------------------------------------------------


def _rounder(f: Code) -> float:
    """A number that rounds what is added to it to an integer, found in the low bits of the sum."""
    return 1.5 * 2.0**f.mantissa


def _remainder(f: Code, x: Value) -> tuple[Value, Value, Value]:
    """``|x|`` less the nearest multiple of π/2, its rounding error, and the multiple's low bits."""
    high, middle, low = f.table["pi/2"]
    x = f.abs(x)
    f.far = x > {32: 1e5, 64: 1e9}[f.bits]
    magic = _rounder(f)
    shifted = f.fma(x, 2 / math.pi, magic)
    multiple = shifted - magic
    x = f.fma(multiple, -high, x)  # exact
    y = f.fma(multiple, -middle, x)
    r = f.fma(multiple, -low, y)
    # close to a multiple, x − y is inexact, and only the last of the roundings is known
    lost = f.where(f.abs(y) > 0.01, f.fma(multiple, -middle, x - y), 0.0)
    return r, f.fma(multiple, -low, y - r) + lost, shifted.bits()


def _sincos(f: Code, x: Value) -> tuple[Value, Value]:
    r, _, multiple = _remainder(f, x)
    s = r * r
    sin = f.fma(r * s, f.polynomial(s, f.table["sin"]), r)
    cos = f.fma(s, f.fma(s, f.polynomial(s, f.table["cos"]), -0.5), 1.0)
    even = (multiple & 1).equals(0)
    top = f.bits - 2  # moves the quadrant's second bit to the sign
    sin_sign = ((multiple << top) ^ x.bits()) & f.sign
    cos_sign = ((multiple + 1) << top) & f.sign
    return (
        (f.where(even, sin, cos).bits() ^ sin_sign).real(),
        (f.where(even, cos, sin).bits() ^ cos_sign).real(),
    )


def _sin(f: Code, x: Value) -> Value:
    return _sincos(f, x)[0]


def _cos(f: Code, x: Value) -> Value:
    return _sincos(f, x)[1]


def _tan(f: Code, x: Value) -> Value:
    r, lost, multiple = _remainder(f, x)
    s = r * r
    rest = f.fma(r * s, f.halves(s, f.table["tan"]), f.fma(lost, s, lost))
    tan = r + rest
    lost = rest - (tan - r)
    inverse = -1.0 / tan
    inverse = f.fma(inverse, f.fma(inverse, lost, f.fma(inverse, tan, 1.0)), inverse)
    tan = f.where((multiple & 1).equals(0), tan, inverse)
    return (tan.bits() ^ (x.bits() & f.sign)).real()


def _power(f: Code, x: Value, base: float = math.e) -> tuple[Value, Value, Value]:
    """``(p, q, d)`` such that ``base^x = (1 + p + d) q²``, where ``d`` is a rounding error.

    The power of two that is taken out of ``base^x`` is even, so that its square root exists.
    """
    high, low = f.table["ln2"]
    unit = 1 / math.log2(base)  # what one power of two takes from x
    largest, smallest = (f.bias + 1.5) * unit, -(f.bias + f.mantissa + 1.0) * unit
    x = f.where(x > largest, largest, x)
    x = f.where(x < smallest, smallest, x)
    magic = _rounder(f) + f.bias  # so that the low bits are a biased exponent
    shifted = f.fma(x, 0.5 / unit, magic)
    half = shifted - magic
    if base == 2:
        x = f.fma(half, -2.0, x)
        r = x * high
        lost = f.fma(x, low, f.fma(x, high, -r))
    else:
        x = f.fma(half, -2 * high, x)
        r = f.fma(half, -2 * low, x)
        lost = f.fma(half, -2 * low, x - r)
    p = f.fma(r * r, f.halves(r, f.table["exp"]), r)
    return p, (shifted.bits() << f.mantissa).real(), f.fma(lost, p, lost)


def _exp(f: Code, x: Value) -> Value:
    p, q, _ = _power(f, x)
    return (p + 1.0) * q * q


def _exp2(f: Code, x: Value) -> Value:
    p, q, _ = _power(f, x, 2.0)
    return (p + 1.0) * q * q


def _expm1(f: Code, x: Value) -> Value:
    p, q, _ = _power(f, x)
    half = q * 0.5 * q  # q² may overflow where the result does not
    result = f.fma(p, half, half - 0.5)
    return f.signed(result + result, x)


def _tanh(f: Code, x: Value) -> Value:
    size = f.abs(x)
    s = size * size
    near = f.fma(size * s, f.halves(s, f.table["tanh"]), size)
    e = _exp(f, size * -2.0)
    far = 1.0 - (e + e) / (e + 1.0)
    return f.signed(f.where(size < 0.55, near, far), x)


def _logistic(f: Code, x: Value) -> Value:
    p, q, lost = _power(f, -f.abs(x))
    total = p + 1.0
    e, lost = total * q * q, (p - (total - 1.0) + lost) * q * q
    rest = e / (e + 1.0)
    return f.where(x < 0.0, e + f.fma(rest, -e, lost), 1.0 - rest)


def _normal(f: Code, x: Value) -> tuple[Value, Value]:
    """``(y, k)``, where ``y`` is not subnormal and ``x = 2^k y``."""
    shift = f.mantissa + 1.0
    subnormal = x < 2.0 ** (1 - f.bias)
    return f.where(subnormal, x * 2.0**shift, x), f.where(subnormal, -shift, 0.0)


def _split(f: Code, x: Value) -> tuple[Value, Value]:
    """``(k, r)`` with ``x = 2^k (1 + r)``, and ``1 + r`` between the square roots of 1/2 and 2."""
    root, magic = f.pattern(math.sqrt(0.5)), 2.0**f.mantissa
    bits = x.bits() + (f.pattern(1.0) - root)
    k = ((bits >> f.mantissa) | f.pattern(magic)).real() - (magic + f.bias)
    return k, ((bits & ((1 << f.mantissa) - 1)) + root).real() - 1.0


def _log(f: Code, x: Value) -> Value:
    return _log_of_normal(f, *_normal(f, x), None)


def _log1p(f: Code, x: Value) -> Value:
    total = x + 1.0
    back = total - x
    lost = (x - (total - back)) + (1.0 - back)  # what the addition rounded away
    return f.signed(_log_of_normal(f, total, None, lost / total), x)


def _log_of_normal(f: Code, x: Value, exponent: Value | None, rest: Value | None) -> Value:
    """``log x + exponent log 2 + rest``, where ``rest`` is below the rounding of ``x``."""
    high, low = f.table["ln2"]
    k, r = _split(f, x)
    k = k if exponent is None else k + exponent
    half = r * 0.5 * r
    t = r / (r + 2.0)
    s = t * t
    small = k * low if rest is None else f.fma(k, low, rest)
    small = f.fma(t, f.fma(s, f.polynomial(s, f.table["log"]), half), small)
    result = f.fma(k, high, r - (half - small))
    result = f.where(x < math.inf, result, x)  # a NaN is not below infinity
    result = f.where(x < 0.0, math.nan, result)
    return f.where(x.equals(0.0), -math.inf, result)


def _sum(x: Value, y: Value) -> tuple[Value, Value]:
    """``x + y``, ``x`` the larger one, and its rounding error."""
    total = x + y
    return total, y - (total - x)


def _product(f: Code, x: tuple[Value, Value], y: tuple[Value, Value]) -> tuple[Value, Value]:
    """The product of two numbers of two parts each."""
    high = x[0] * y[0]
    return high, f.fma(x[0], y[0], -high) + f.fma(x[0], y[1], x[1] * y[0])


def _long_log(f: Code, x: Value) -> tuple[Value, Value]:
    """The logarithm of a finite positive number in two parts."""
    x, exponent = _normal(f, x)
    k, r = _split(f, x)
    k = k + exponent
    below = _sum(f.real_of(2.0), r)
    t = r / below[0]
    t = t, f.fma(t, -below[1], f.fma(t, -below[0], r)) / below[0]
    s = _product(f, t, t)
    third = f.table["2/3"]
    high, low = _sum(f.real_of(third[0]), s[0] * f.polynomial(s[0], f.table["log beyond"]))
    rest = _product(f, t, _product(f, s, (high, low + third[1])))
    high, low = _sum(t[0] + t[0], rest[0])
    low = low + (t[1] + t[1] + rest[1])
    ln2 = f.table["ln2"]
    turns = k * ln2[0]
    total = turns + high
    back = total - turns
    lost = (turns - (total - back)) + (high - back)
    return _sum(total, lost + f.fma(k, ln2[1], f.fma(k, ln2[0], -turns)) + low)


def _pow(f: Code, x: Value, y: Value) -> Value:
    size = f.abs(x)
    high, low = _long_log(f, size)
    high = f.where(size < math.inf, high, size)
    high = f.where(size.equals(0.0), -math.inf, high)
    exponent = y * high
    lost = f.fma(y, low, f.fma(y, high, -exponent))
    lost = f.where(f.abs(exponent) < 4.0 * f.bias, lost, 0.0)
    exponent = f.where(size.equals(1.0), 0.0, f.where(y.equals(0.0), 0.0, exponent))
    p, q, d = _power(f, exponent)
    total = p + 1.0
    result = (total + f.fma(lost, total, d + (p - (total - 1.0)))) * q * q
    whole, half = y.equals(f.call("rint", y)), y * 0.5
    odd = f.where(half.equals(f.call("rint", half)), 0.0, f.where(whole, -0.0, 0.0))
    # a power of a finite number below 0 is a number for integers only
    strange = f.where(x < 0.0, f.where(x > -math.inf, f.where(whole, 1.0, math.nan), 1.0), 1.0)
    return ((result * strange).bits() ^ (odd.bits() & x.bits())).real()


def _atan_of_ratio(f: Code, t: Value, inverted: Value) -> Value:
    """Arctangent of ``t``, at least 0 and at most 1, or of its inverse."""
    high, low, _ = f.table["pi/2"]
    s = t * t
    rest = t * s * f.polynomial(s, f.table["atan"])
    return f.where(inverted, (high - t) + (low - rest), t + rest)


def _less(f: Code, turns: float, angle: Value) -> Value:
    """``turns π − angle``."""
    high, low, _ = f.table["pi/2"]
    return 2 * turns * high - (angle - 2 * turns * low)


def _atan(f: Code, x: Value) -> Value:
    size = f.abs(x)
    large = size > 1.0
    angle = _atan_of_ratio(f, f.where(large, 1.0 / size, size), large)
    return f.signed(angle, x)


def _atan2(f: Code, y: Value, x: Value) -> Value:
    rise, run = f.abs(y), f.abs(x)
    steep = rise > run
    small, large = f.where(steep, run, rise), f.where(steep, rise, run)
    large = f.where(large.equals(0.0), 1.0, large)  # the ratio of two zeros is 0,
    ratio = f.where(small.equals(large), 1.0, small / large)  # that of two infinities is 1
    angle = _atan_of_ratio(f, ratio, steep)
    angle = f.where(x.bits() < 0, _less(f, 1.0, angle), angle)
    return f.signed(angle, y)


def _half_angle(f: Code, x: Value) -> tuple[Value, Value, Value, Value]:
    """``(far, r, t, p)``: the arcsine of ``r`` is ``r + t p``.

    Where ``|x|`` is ``far`` from 0, above 1/2, twice that is the arccosine of ``|x|``; elsewhere
    ``r`` is ``|x|``.
    """
    size = f.abs(x)
    far = size > 0.5
    s = f.where(far, f.fma(size, -0.5, 0.5), size * size)
    r = f.where(far, f.call("sqrt", s), size)
    return far, r, r * s, f.polynomial(s, f.table["asin"])


def _asin(f: Code, x: Value) -> Value:
    high, low, _ = f.table["pi/2"]
    far, r, t, p = _half_angle(f, x)
    rest = f.fma(r, -2.0, high)
    lost = f.fma(r, -2.0, high - rest)
    rest = rest + f.fma(t * -2.0, p, lost + low)
    return f.signed(f.where(far, rest, f.fma(t, p, r)), x)


def _acos(f: Code, x: Value) -> Value:
    far, r, t, p = _half_angle(f, x)
    angle = f.fma(t, p, r)
    near = _less(f, 0.5, f.signed(angle, x))
    double = angle + angle
    return f.where(far, f.where(x < 0.0, _less(f, 1.0, double), double), near)


VECTOR: dict[str, Callable] = {
    "sin": _sin, "cos": _cos, "sincos": _sincos, "tan": _tan, "exp": _exp, "exp2": _exp2,
    "expm1": _expm1, "log": _log, "log1p": _log1p, "tanh": _tanh, "logistic": _logistic,
    "atan": _atan, "atan2": _atan2, "asin": _asin, "acos": _acos, "pow": _pow,
}  # fmt: skip
"""Name of a function -> its formula."""

# --- definitions ------------------------------------------------------------------------

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
