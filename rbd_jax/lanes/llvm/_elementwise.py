"""Elementwise operations as LLVM instructions: one entry of a table each.

Products with a constant 0 or 1 and sums with a constant 0 are left out, which is what makes the
zeros of a robot's matrices free. All other arithmetic keeps NaN and infinity: of LLVM's liberties
only the fusion of products into sums and the sign of zero are taken.
"""

from collections.abc import Callable

import numpy as np

from .._failures import Unsupported
from ..ir._blocks import converted
from ._llvm_writer import BOOL, Elem, Reg, Writer, number
from ._math_functions import FUNCTIONS, symbol

_FLAGS = "contract nsz"


def _is(x: Elem, number: float | int) -> bool:
    return not isinstance(x, Reg) and bool(x == number)


def _float(w: Writer, name: str, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    wide = w.wide(x, y)
    a, b = w.operand(x, dtype, wide), w.operand(y, dtype, wide)
    return w.emit(f"{name} {_FLAGS} {w.type(dtype, wide)} {a}, {b}", dtype, wide)


def _integer(w: Writer, name: str, x: Elem, y: Elem, dtype: np.dtype) -> Reg:
    wide = w.wide(x, y)
    a, b = w.operand(x, dtype, wide), w.operand(y, dtype, wide)
    return w.emit(f"{name} {w.type(dtype, wide)} {a}, {b}", dtype, wide)


def add(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """``x + y``."""
    if _is(x, 0):
        return y
    if _is(y, 0):
        return x
    if dtype.kind == "f":
        return _float(w, "fadd", x, y, dtype)
    return _integer(w, "or" if dtype.kind == "b" else "add", x, y, dtype)


def sub(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """``x − y``."""
    if _is(y, 0):
        return x
    if dtype.kind == "f":
        return neg(w, y, dtype) if _is(x, 0) else _float(w, "fsub", x, y, dtype)
    return _integer(w, "sub", x, y, dtype)


def mul(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """``x y``."""
    for a, b in ((x, y), (y, x)):
        if _is(a, 0):
            return dtype.type(0)
        if _is(a, 1):
            return b
        if _is(a, -1) and dtype.kind == "f":
            return neg(w, b, dtype)
    if dtype.kind == "f":
        return _float(w, "fmul", x, y, dtype)
    return _integer(w, "and" if dtype.kind == "b" else "mul", x, y, dtype)


def div(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """``x / y``; of integers towards zero, −1 where y is 0 (as XLA)."""
    if _is(y, 1):
        return x
    if dtype.kind == "f":
        return _float(w, "fdiv", x, y, dtype)
    zero, minus, safe = _safe(w, y, dtype)
    out = _integer(w, "udiv" if dtype.kind == "u" else "sdiv", x, safe, dtype)
    if dtype.kind == "i":
        out = select(w, minus, neg(w, x, dtype), out, dtype)
    return select(w, zero, _all_bits(dtype), out, dtype)


def rem(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """The remainder with the sign of x; x where an integer y is 0 (as XLA)."""
    if dtype.kind == "f":
        return _float(w, "frem", x, y, dtype)
    zero, minus, safe = _safe(w, y, dtype)
    out = _integer(w, "urem" if dtype.kind == "u" else "srem", x, safe, dtype)
    if dtype.kind == "i":
        out = select(w, minus, dtype.type(0), out, dtype)
    return select(w, zero, x, out, dtype)


def _safe(w: Writer, y: Elem, dtype: np.dtype) -> tuple[Elem, Elem, Elem]:
    """Whether an integer divisor is 0 or −1, and the divisor with 1 in place of those."""
    zero, minus = (compare(w, "eq", y, k) for k in (dtype.type(0), _all_bits(dtype)))
    safe = select(w, zero, dtype.type(1), y, dtype)
    if dtype.kind == "i":  # the least integer by −1 would be a trap
        safe = select(w, minus, dtype.type(1), safe, dtype)
    return zero, minus, safe


def _all_bits(dtype: np.dtype) -> np.generic:
    """The integer of which all bits are 1."""
    return number(True if dtype.kind == "b" else -1, dtype)


def neg(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    """``−x``."""
    if dtype.kind != "f":
        return _integer(w, "sub", dtype.type(0), x, dtype)
    wide = w.wide(x)
    a = w.operand(x, dtype, wide)
    return w.emit(f"fneg {_FLAGS} {w.type(dtype, wide)} {a}", dtype, wide)


_FLOAT_TESTS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def compare(w: Writer, name: str, x: Elem, y: Elem) -> Elem:
    """A comparison; false for NaN, but for ``ne``."""
    dtype = x.dtype
    wide = w.wide(x, y)
    a, b = w.operand(x, dtype, wide), w.operand(y, dtype, wide)
    kind = w.type(dtype, wide)
    if dtype.kind == "f":
        return w.emit(f"fcmp {_FLOAT_TESTS[name]} {kind} {a}, {b}", BOOL, wide)
    sign = "" if name in ("eq", "ne") else ("s" if dtype.kind == "i" else "u")
    return w.emit(f"icmp {sign}{name} {kind} {a}, {b}", BOOL, wide)


def select(w: Writer, c: Elem, yes: Elem, no: Elem, dtype: np.dtype) -> Elem:
    """``yes`` where c, else ``no``."""
    if not isinstance(c, Reg):
        return yes if c else no
    if not isinstance(yes, Reg) and not isinstance(no, Reg) and yes == no:
        return yes
    wide = w.wide(c, yes, no)
    kind = w.type(dtype, wide)
    a, b = w.operand(yes, dtype, wide), w.operand(no, dtype, wide)
    return w.emit(f"select {w.type(BOOL, c.wide)} {c.ref}, {kind} {a}, {kind} {b}", dtype, wide)


def convert(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    """The number in another dtype."""
    if not isinstance(x, Reg):
        return number(converted(np.asarray(x), dtype), dtype)
    old, wide = x.dtype, x.wide
    bits, old_bits = dtype.itemsize, old.itemsize
    if old.kind == "f" and dtype.kind in "iu":
        return w.intrinsic(f"fpto{'s' if dtype.kind == 'i' else 'u'}i.sat", dtype, x)
    if old.kind == dtype.kind == "f":
        name = "fpext" if bits > old_bits else "fptrunc"
    elif dtype.kind == "f":
        name = "sitofp" if old.kind == "i" else "uitofp"
    elif old.kind == "b":
        name = "zext"
    elif bits == old_bits:
        return Reg(x.ref, dtype, wide)
    else:
        name = "trunc" if bits < old_bits else ("sext" if old.kind == "i" else "zext")
    text = f"{name} {w.type(old, wide)} {x.ref} to {w.type(dtype, wide)}"
    return w.emit(text, dtype, wide)


def sign(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    """−1, 0 or 1; NaN of NaN."""
    zero = dtype.type(0)
    down = select(w, compare(w, "lt", x, zero), _all_bits(dtype), x, dtype)
    return select(w, compare(w, "gt", x, zero), dtype.type(1), down, dtype)


def _extremum(name: str):
    def apply(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
        if dtype.kind == "f":
            return w.intrinsic(f"{name}imum", dtype, x, y)
        if dtype.kind == "b":
            return _integer(w, "or" if name == "max" else "and", x, y, dtype)
        return w.intrinsic(("s" if dtype.kind == "i" else "u") + name, dtype, x, y)

    return apply


maximum, minimum = _extremum("max"), _extremum("min")


def _shift(name: str):
    def apply(w: Writer, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
        bits, unsigned = dtype.type(8 * dtype.itemsize), np.dtype(f"u{dtype.itemsize}")
        fits = compare(w, "lt", convert(w, y, unsigned), convert(w, bits, unsigned))
        inside = select(w, fits, y, dtype.type(0), dtype)
        over = _integer(w, "ashr", x, bits - 1, dtype) if name == "ashr" else dtype.type(0)
        return select(w, fits, _integer(w, name, x, inside, dtype), over, dtype)

    return apply


def _abs(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    if dtype.kind == "f":
        return w.intrinsic("fabs", dtype, x)
    return select(w, compare(w, "lt", x, dtype.type(0)), neg(w, x, dtype), x, dtype)


def _is_finite(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    return compare(w, "lt", w.intrinsic("fabs", x.dtype, x), x.dtype.type(np.inf))


def _rsqrt(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    return div(w, dtype.type(1), w.intrinsic("sqrt", dtype, x), dtype)


def _not(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    return _integer(w, "xor", x, _all_bits(dtype), dtype)


def _bitcast(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    if not isinstance(x, Reg):
        return number(np.asarray(x).view(dtype), dtype)
    return w.emit(f"bitcast {w.type(x.dtype, x.wide)} {x.ref} to {w.type(dtype, x.wide)}",
                  dtype, x.wide)  # fmt: skip


def _leading_zeros(w: Writer, x: Elem, dtype: np.dtype) -> Elem:
    wide, kind = w.wide(x), w.type(dtype, w.wide(x))
    call = f"@llvm.ctlz.{w.suffix(dtype, wide)}"
    w.declared.add(f"declare {kind} {call}({kind}, i1)")
    return w.emit(f"call {kind} {call}({kind} {w.operand(x, dtype, wide)}, i1 false)", dtype, wide)


def _bits(name: str):
    return lambda w, x, y, dtype: _integer(w, name, x, y, dtype)


def _intrinsic(name: str):
    return lambda w, x, dtype: w.intrinsic(name, dtype, x)


MAPS: dict[str, Callable] = {
    "add": add, "sub": sub, "mul": mul, "div": div, "rem": rem, "neg": neg, "sign": sign,
    "max": maximum, "min": minimum, "abs": _abs, "is_finite": _is_finite, "rsqrt": _rsqrt,
    "not": _not, "and": _bits("and"), "or": _bits("or"), "xor": _bits("xor"),
    "shl": _shift("shl"), "lshr": _shift("lshr"), "ashr": _shift("ashr"),
    "convert": lambda w, x, dtype: convert(w, x, dtype),
    "select": lambda w, c, no, yes, dtype: select(w, c, yes, no, dtype),
    "copy": lambda w, x, dtype: x, "bitcast": _bitcast, "ctlz": _leading_zeros,
    "ctpop": _intrinsic("ctpop"),
    "sqrt": _intrinsic("sqrt"), "floor": _intrinsic("floor"), "ceil": _intrinsic("ceil"),
    "rint": _intrinsic("roundeven"), "round": _intrinsic("round"),
}  # fmt: skip
for _name in _FLOAT_TESTS:
    MAPS[_name] = lambda w, x, y, dtype, name=_name: compare(w, name, x, y)


def apply(w: Writer, name: str, xs: list[Elem], dtype: np.dtype) -> Elem:
    """One operation on one element."""
    if name in MAPS:
        return MAPS[name](w, *xs, dtype)
    return call(w, name, xs, dtype)


def call(w: Writer, name: str, xs: list[Elem], dtype: np.dtype) -> Elem:
    """A function of ``_math_functions``."""
    if name in ("sin", "cos"):
        return w.part(call_both(w, xs[0], dtype), ("sin", "cos").index(name), dtype)
    if name not in FUNCTIONS or dtype.kind != "f":
        raise Unsupported(f"the function {name!r} of {dtype}")
    wide = w.wide(*xs)
    width, bits = (w.width if wide else 1), 8 * dtype.itemsize
    w.math.add((name, bits, width))
    kind = w.type(dtype, wide)
    args = ", ".join(f"{kind} {w.operand(x, dtype, wide)}" for x in xs)
    return w.emit(f"call {kind} @{symbol(name, bits, width)}({args})", dtype, wide)


def call_both(w: Writer, x: Elem, dtype: np.dtype) -> Reg:
    """Sine and cosine, which cost little more than one of them; what is not used disappears."""
    wide = w.wide(x)
    width, bits = (w.width if wide else 1), 8 * dtype.itemsize
    w.math.add(("sincos", bits, width))
    kind = w.type(dtype, wide)
    text = f"call {{ {kind}, {kind} }} @{symbol('sincos', bits, width)}"
    return w.emit(f"{text}({kind} {w.operand(x, dtype, wide)})", dtype, wide)


NEUTRAL = {"sum": 0, "prod": 1, "or": 0, "xor": 0}
COMBINE = {"sum": add, "prod": mul, "max": maximum, "min": minimum,
           "or": _bits("or"), "and": _bits("and"), "xor": _bits("xor")}  # fmt: skip


def neutral(fn: str, dtype: np.dtype) -> np.generic:
    """What a reduction starts with."""
    if fn in NEUTRAL:
        return dtype.type(NEUTRAL[fn])
    if fn == "and":
        return _all_bits(dtype)
    if dtype.kind == "f":
        return dtype.type(-np.inf if fn == "max" else np.inf)
    if dtype.kind == "b":
        return np.bool_(fn == "min")
    info = np.iinfo(dtype)
    return dtype.type(info.min if fn == "max" else info.max)
