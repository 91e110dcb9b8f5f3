"""The functions of lanes, compiled and called: their errors, special values and widths."""

import ctypes
from functools import cache

import numpy as np
import pytest

from rbd_jax.lanes.llvm import _math_functions

llvm = pytest.importorskip("llvmlite.binding")

WIDTHS = (1, 4, 8, 16)
BITS = (32, 64)
ULPS = 2
POINTS = 4800  # of each kind, a multiple of all widths
DTYPE = {32: np.dtype(np.float32), 64: np.dtype(np.float64)}
HIGHER = {32: np.dtype(np.float64), 64: np.dtype(np.longdouble)}
EXACT = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "atan": np.arctan, "atan2": np.arctan2,
    "asin": np.arcsin, "acos": np.arccos, "pow": np.power,
}  # fmt: skip
LIBRARY = sorted(set(_math_functions.FUNCTIONS) - {*EXACT, "sincos"})

both = pytest.mark.parametrize("bits", BITS)


def loop(name: str, bits: int, width: int) -> str:
    """A function that goes through arrays; ``sincos`` puts the cosines behind the sines."""
    scalar = {32: "float", 64: "double"}[bits]
    real = scalar if width == 1 else f"<{width} x {scalar}>"
    kind = f"{{ {real}, {real} }}" if name == "sincos" else real
    names = "xy"[: _math_functions.FUNCTIONS[name]]
    load = "\n".join(
        f"%at{x} = getelementptr {scalar}, ptr %{x}s, i64 %i\n"
        f"%{x} = load {real}, ptr %at{x}, align {bits // 8}"
        for x in names
    )
    inputs = ", ".join(f"{real} %{x}" for x in names)
    store = f"%out = getelementptr {scalar}, ptr %result, i64 %i\n"
    if name == "sincos":
        for k in (0, 1):
            store += (
                f"%f{k} = extractvalue {kind} %f, {k}\n"
                f"%i{k} = mul i64 %n, {k}\n"
                f"%out{k} = getelementptr {scalar}, ptr %out, i64 %i{k}\n"
                f"store {real} %f{k}, ptr %out{k}, align {bits // 8}\n"
            )
    else:
        store += f"store {real} %f, ptr %out, align {bits // 8}"
    return f"""
    define void @run_{name}_{width}(ptr %result, i64 %n, ptr %xs, ptr %ys) {{
      br label %body
    body:
      %i = phi i64 [0, %0], [%next, %body]
      {load}
      %f = call {kind} @{_math_functions.symbol(name, bits, width)}({inputs})
      {store}
      %next = add i64 %i, {width}
      %more = icmp slt i64 %next, %n
      br i1 %more, label %body, label %end
    end:
      ret void
    }}
    """


@cache
def engine(bits: int):
    """All functions in all widths, in one module."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    lines = set()
    for width in WIDTHS:
        lines |= _math_functions.declarations(_math_functions.FUNCTIONS, bits, width)
    lines = sorted(lines)
    for width in WIDTHS:
        for name in _math_functions.FUNCTIONS:
            lines += [_math_functions.definition(name, bits, width), loop(name, bits, width)]
    module = llvm.parse_assembly("\n".join(lines))
    module.verify()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    result = llvm.create_mcjit_compiler(module, target)
    result.finalize_object()
    return result


def called(name: str, bits: int, width: int, *inputs: np.ndarray) -> np.ndarray:
    """What a function makes of arrays; ``sincos`` has a row of sines and one of cosines."""
    n = len(inputs[0])
    padded = [np.resize(x, -(-n // 16) * 16) for x in inputs]
    assert all(x.dtype == DTYPE[bits] for x in padded)
    outs = np.full((2, len(padded[0])), 7, DTYPE[bits])
    address = engine(bits).get_function_address(f"run_{name}_{width}")
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int64, pointer, pointer)(address)
    function(outs.ctypes.data, len(padded[0]), padded[0].ctypes.data, padded[-1].ctypes.data)
    return outs[:, :n] if name == "sincos" else outs[0, :n]


def special(bits: int) -> np.ndarray:
    """Numbers of which something special may be expected."""
    info = np.finfo(DTYPE[bits])
    positive = [0, info.smallest_subnormal, 77 * info.smallest_subnormal, info.tiny / 3, info.tiny]
    positive += [info.eps / 4, info.eps, 0.5, 1 - info.eps / 2, 1, 1 + info.eps, 2, 3, 1e5, 1e9]
    positive += [info.maxexp * x for x in (0.5, np.log(2), 1 - info.eps, 1, 1 + info.eps, 1.2)]
    positive += [1e30, info.max / 3, info.max, np.inf, np.nan]
    values = np.array(positive).astype(DTYPE[bits])
    return np.concatenate([values, -values])


@cache
def points(bits: int) -> np.ndarray:
    """Numbers of all magnitudes, many of them where some function is difficult."""
    rng = np.random.default_rng(bits)
    dtype, info = DTYPE[bits], np.finfo(DTYPE[bits])
    signs = rng.choice([-1, 1], POINTS)
    parts = [rng.integers(0, 2**bits, POINTS, dtype=f"u{bits // 8}").view(dtype)]
    spans = (1, 4, 100, info.maxexp * 1.1, -info.minexp + info.nmant + 4, 1e5, 1e9)
    parts += [rng.uniform(-x, x, POINTS) for x in spans]
    parts += [signs * (1 + rng.normal(size=POINTS) * 10 ** rng.uniform(-17, -1, POINTS))]
    parts += [signs * 10 ** rng.uniform(np.log10(info.smallest_subnormal), 1, POINTS)]
    for multiples in (10, 6e4, 6e8 if bits == 64 else 100):
        multiple = rng.integers(-multiples, multiples, POINTS) * (np.arccos(HIGHER[bits].type(0)))
        parts += [multiple.astype(dtype) * (1 + rng.integers(-2, 3, POINTS) * info.eps)]
    mixed = np.concatenate([x.astype(dtype) for x in parts])
    return np.concatenate([np.resize(special(bits), 80), mixed])


def assert_right(found: np.ndarray, exact: np.ndarray, *inputs: np.ndarray) -> None:
    """All errors are at most :data:`ULPS`; NaNs, infinities and signs of zeros are as expected."""
    info = np.finfo(found.dtype)
    rounded = exact.astype(found.dtype)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    same &= np.isnan(found) | (np.signbit(found) == np.signbit(exact))
    exponent = np.maximum(np.frexp(exact)[1] - 1, info.minexp)
    errors = np.abs(found - exact) / np.ldexp(exact.dtype.type(1), exponent - info.nmant)
    right = same | (errors <= ULPS) & (np.signbit(found) == np.signbit(exact))
    worst = np.argmin(right)
    assert right.all(), [x[worst] for x in (*inputs, found, exact, errors)]


def wide_enough(bits: int) -> None:
    if np.finfo(HIGHER[bits]).nmant < np.finfo(DTYPE[bits]).nmant + 10:
        pytest.skip("NumPy has no longer numbers on this machine")


@both
@pytest.mark.parametrize("name", [x for x in EXACT if _math_functions.FUNCTIONS[x] == 1])
@np.errstate(all="ignore")
def test_functions_of_one_number(name, bits):
    """Vector code is right to 2 units in the last place, in every width."""
    wide_enough(bits)
    x = points(bits)
    exact = EXACT[name](x.astype(HIGHER[bits]))
    for width in WIDTHS:
        assert_right(called(name, bits, width, x), exact, x)


@both
@np.errstate(all="ignore")
def test_atan2(bits):
    """All quadrants, ratios that overflow or vanish, and the sixteen zeros and infinities."""
    wide_enough(bits)
    rng = np.random.default_rng(bits)
    y, x = (v.ravel() for v in np.meshgrid(special(bits), special(bits)))
    around = rng.normal(size=(2, 5 * POINTS)).astype(DTYPE[bits])
    y = np.concatenate([y, points(bits), around[0], np.full(POINTS, 2, DTYPE[bits])])
    shuffled = rng.permutation(points(bits))
    x = np.concatenate([x, shuffled, around[1], rng.uniform(-2, 2, POINTS).astype(DTYPE[bits])])
    exact = np.arctan2(y.astype(HIGHER[bits]), x.astype(HIGHER[bits]))
    for width in WIDTHS:
        assert_right(called("atan2", bits, width, y, x), exact, y, x)


@both
@np.errstate(all="ignore")
def test_pow(bits):
    """Powers from zero to infinity, of bases of both signs, and whole, odd and other exponents."""
    wide_enough(bits)
    rng = np.random.default_rng(bits)
    x, y = (v.ravel() for v in np.meshgrid(special(bits), special(bits)))
    base = np.abs(rng.permutation(points(bits)))
    logs = np.log(base.astype(HIGHER[bits]))
    reach = np.finfo(DTYPE[bits]).maxexp * np.log(2) * 1.05 / np.where(logs == 0, 1, logs)
    spread = (rng.uniform(-1, 1, len(base)) * reach).astype(DTYPE[bits])  # so that all can result
    small = rng.uniform(-3, 3, len(base)).astype(DTYPE[bits])
    whole = rng.integers(-9, 10, len(base)).astype(DTYPE[bits])
    near = (1 + rng.normal(size=len(base)) * 1e-3).astype(DTYPE[bits])
    x = np.concatenate([x, base, base, base * rng.choice([-1, 1], len(base)), near, -near])
    y = np.concatenate([y, spread, small, whole, 1e3 * small, rng.permutation(points(bits))])
    x, y = x.astype(DTYPE[bits]), y.astype(DTYPE[bits])
    exact = np.power(x.astype(HIGHER[bits]), y.astype(HIGHER[bits]))
    for width in WIDTHS:
        assert_right(called("pow", bits, width, x, y), exact, x, y)


@both
def test_sincos(bits):
    """The pair is exactly what the sine and the cosine are alone."""
    x = points(bits)
    for width in WIDTHS:
        separate = [called(name, bits, width, x) for name in ("sin", "cos")]
        np.testing.assert_array_equal(called("sincos", bits, width, x), separate)


@both
@pytest.mark.parametrize("name", LIBRARY)
def test_functions_of_the_c_library(name, bits):
    """Each lane has what the C library gives for it, to the last bit."""
    count = _math_functions.FUNCTIONS[name]
    rng = np.random.default_rng(bits)
    x = np.concatenate([special(bits), rng.choice(points(bits), 900)])
    inputs = [x, rng.permutation(x)][:count]
    number = {32: ctypes.c_float, 64: ctypes.c_double}[bits]
    address = llvm.address_of_symbol(name + ("f" if bits == 32 else ""))
    scalar = ctypes.CFUNCTYPE(number, *[number] * count)(address)
    expected = np.array([scalar(*map(float, xs)) for xs in zip(*inputs, strict=True)], DTYPE[bits])
    for width in WIDTHS:
        found = called(name, bits, width, *inputs)
        np.testing.assert_array_equal(found, expected)
        signs = (np.signbit(v[~np.isnan(v)]) for v in (found, expected))
        np.testing.assert_array_equal(*signs)


def test_text():
    """Names and declarations are as a caller expects them."""
    assert _math_functions.symbol("sin", 32, 8) == "lanes_sin_f32x8"
    assert "<8 x float> @lanes_sin_f32x8(<8 x float> %x)" in _math_functions.definition(
        "sin", 32, 8
    )
    assert "double @lanes_pow_f64x1(double %x, double %y)" in _math_functions.definition(
        "pow", 64, 1
    )
    shared = _math_functions.declarations(["sin", "cos", "exp"], 32, 8)
    assert "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)" in shared
    assert sum("@sinf" in line for line in shared) == 1 and not any("\n" in x for x in shared)
