"""A small builder of LLVM functions of vectors, with which formulas are ordinary arithmetic.

Each operation on a :class:`Value` appends one instruction to its :class:`Code`. A Python number
may stand for either side of an operation and becomes a constant.
"""

import struct
from typing import Any

from ._math_tables import TABLES


def _operator(real: str, integer: str = "", kind: str | None = None, swap: bool = False) -> Any:
    """A method that appends an instruction with two operands of the same type."""

    def method(self: "Value", other: Any) -> "Value":
        code = self.code
        pair = [self.name, code.operand(other, self.kind)]
        first, second = reversed(pair) if swap else pair
        name = real if self.kind == "real" else integer
        return code.append(kind or self.kind, f"{name} {code.types[self.kind]} {first}, {second}")

    return method


class Value:
    """The result of an instruction: a ``"real"``, ``"int"`` or ``"bool"`` number in each lane.

    Comparisons with a NaN are false.
    """

    __slots__ = ("code", "kind", "name")

    def __init__(self, code: "Code", kind: str, name: str):
        self.code, self.kind, self.name = code, kind, name

    __add__ = _operator("fadd", "add")
    __sub__ = _operator("fsub", "sub")
    __rsub__ = _operator("fsub", "sub", swap=True)
    __mul__ = _operator("fmul")
    __truediv__ = _operator("fdiv")
    __rtruediv__ = _operator("fdiv", swap=True)
    __and__ = _operator("", "and")
    __or__ = _operator("", "or")
    __xor__ = _operator("", "xor")
    __lshift__ = _operator("", "shl")
    __rshift__ = _operator("", "lshr")
    __lt__ = _operator("fcmp olt", "icmp slt", "bool")
    __gt__ = _operator("fcmp ogt", "icmp sgt", "bool")
    equals = _operator("fcmp oeq", "icmp eq", "bool")

    def __neg__(self) -> "Value":
        return self.code.append("real", f"fneg {self.code.real} {self.name}")

    def bits(self) -> "Value":
        """The representation of a real number as an integer."""
        return self._cast("int")

    def real(self) -> "Value":
        """The real number that an integer represents."""
        return self._cast("real")

    def _cast(self, kind: str) -> "Value":
        types = self.code.types
        return self.code.append(kind, f"bitcast {types[self.kind]} {self.name} to {types[kind]}")


class Code:
    """Instructions of a function under construction, and what they declare.

    A number has ``mantissa`` stored bits of its fraction, the bias of its exponent is ``bias``,
    and its sign is the bit ``sign``. ``table`` holds the constants in its precision.
    """

    def __init__(self, bits: int, width: int):
        self.bits, self.width = bits, width
        self.scalar, self._format = {32: ("float", ">f"), 64: ("double", ">d")}[bits]
        self._scalars = {"real": self.scalar, "int": f"i{bits}", "bool": "i1"}
        vector = "{}" if width == 1 else f"<{width} x {{}}>"
        self.types = {kind: vector.format(scalar) for kind, scalar in self._scalars.items()}
        self.real = self.types["real"]
        self.mantissa, self.bias = {32: (23, 127), 64: (52, 1023)}[bits]
        self.sign = 1 << (bits - 1)
        self.table = TABLES[bits]
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.far: Value | None = None  # the lanes where only the C library can help

    def operand(self, x: Any, kind: str) -> str:
        """How an instruction refers to a value or to a constant."""
        if isinstance(x, Value):
            return x.name
        if kind == "int":
            text = str(x - (x & self.sign) * 2)
        else:  # LLVM writes a float as the double that it equals
            (rounded,) = struct.unpack(self._format, struct.pack(self._format, x))
            text = f"0x{struct.pack('>d', rounded).hex().upper()}"
        return text if self.width == 1 else f"splat ({self._scalars[kind]} {text})"

    def pattern(self, x: float) -> int:
        """The bits of a real constant."""
        return int.from_bytes(struct.pack(self._format, x), "big")

    def append(self, kind: str, text: str) -> Value:
        """Append an instruction that has a result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(self, kind, name)

    def call(self, name: str, *operands: Any) -> Value:
        """Call ``llvm.name`` with real numbers."""
        real = self.real
        symbol = f"@llvm.{name}.{'' if self.width == 1 else f'v{self.width}'}f{self.bits}"
        self.declarations.add(f"declare {real} {symbol}({', '.join([real] * len(operands))})")
        inputs = ", ".join(f"{real} {self.operand(x, 'real')}" for x in operands)
        return self.append("real", f"call {real} {symbol}({inputs})")

    def real_of(self, x: float) -> Value:
        """A constant as a value."""
        return Value(self, "real", self.operand(x, "real"))

    def fma(self, x: Any, y: Any, z: Any) -> Value:
        """``x y + z``, rounded once."""
        return self.call("fma", x, y, z)

    def abs(self, x: Value) -> Value:
        """The magnitude of a number."""
        return self.call("fabs", x)

    def signed(self, x: Value, sign: Value) -> Value:
        """The magnitude of one number with the sign of another one."""
        return self.call("copysign", x, sign)

    def where(self, condition: Value, yes: Any, no: Any) -> Value:
        """A choice between two real numbers in each lane."""
        yes, no = (f"{self.real} {self.operand(x, 'real')}" for x in (yes, no))
        return self.append("real", f"select {self.types['bool']} {condition.name}, {yes}, {no}")

    def any(self, condition: Value) -> str:
        """The name of the scalar that says whether a condition holds in some lane."""
        if self.width == 1:
            return condition.name
        kind, symbol = self.types["bool"], f"@llvm.vector.reduce.or.v{self.width}i1"
        self.declarations.add(f"declare i1 {symbol}({kind})")
        return self.append("bool", f"call i1 {symbol}({kind} {condition.name})").name

    def polynomial(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """A polynomial by Horner's rule, the lowest power first."""
        result: Any = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def halves(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """A long polynomial as two, of even and of odd powers, that are computed side by side."""
        even, odd = (self.polynomial(x * x, coefficients[k::2]) for k in (0, 1))
        return self.fma(x, odd, even)

    def by_lane(self, name: str, *arguments: Value) -> Value:
        """Values of a function of the C library, one lane after another."""
        scalar, real = self.scalar, self.real
        symbol = f"@{name}{'f' if self.bits == 32 else ''}"
        signature = f"{scalar} {symbol}({', '.join([scalar] * len(arguments))})"
        self.declarations.add(f"declare {signature} nounwind willreturn memory(none)")
        result = "poison"
        for lane in range(self.width):
            scalars = [x.name for x in arguments]
            if self.width > 1:
                take = f"extractelement {real} {{}}, i32 {lane}"
                scalars = [self.append("real", take.format(x)).name for x in scalars]
            inputs = ", ".join(f"{scalar} {x}" for x in scalars)
            result_of_lane = self.append("real", f"call {scalar} {symbol}({inputs})").name
            if self.width == 1:
                result = result_of_lane
            else:
                put = f"insertelement {real} {result}, {scalar} {result_of_lane}, i32 {lane}"
                result = self.append("real", put).name
        return Value(self, "real", result)

    def pair(self, first: Value, second: Value) -> tuple[str, str]:
        """A structure of two values: its type and its name."""
        real = self.real
        kind, result = f"{{ {real}, {real} }}", "poison"
        for k, value in enumerate((first, second)):
            put = f"insertvalue {kind} {result}, {real} {value.name}, {k}"
            result = self.append("pair", put).name
        return kind, result
