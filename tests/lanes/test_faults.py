"""What lanes must never do in silence: numbers of another type, programs of another mode, faults.

Everything here also runs in JAX's default mode, see ``as_users_have_it``.
"""

import warnings
from contextlib import ExitStack, contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("llvmlite")

from rbd_jax.lanes import LanesWarning, _failures, common_rounds, lanes  # noqa: E402
from rbd_jax.lanes.frontend import _reader  # noqa: E402
from rbd_jax.lanes.llvm import _compiler  # noqa: E402


@contextmanager
def as_users_have_it():
    """JAX's default mode, whatever the tests run in."""
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(False))
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        yield


@pytest.fixture(autouse=True, params=["mode of users", "mode of the tests"])
def mode(request):
    """Both modes: in one, numbers of Python have 32 bits."""
    if request.param == "mode of the tests":
        yield
    else:
        with as_users_have_it():
            yield


ROWS = np.arange(12.0, dtype="float32").reshape(4, 3)
ZERO = np.float32(0)
PROGRAMS = {
    "while": lambda x: lax.while_loop(
        lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 0.5, c[2] + x[0]), (0, 1.0, x[0])
    ),
    "while by data": lambda x: lax.while_loop(
        lambda c: c < x[0].astype(int), lambda c: c + 1, jnp.asarray(0)
    ),
    "number": lambda x: (jnp.asarray(2.0), jnp.asarray(1), jnp.asarray(True)),
    "scan": lambda x: lax.scan(lambda c, r: (c + r, 0.0), ZERO, x),
    "scan of constants": lambda x: lax.scan(
        lambda c, _: (c * 2, (0.5, 3, True)), x, None, length=3
    ),
    "long scan": lambda x: lax.scan(lambda c, _: (c * x, (1.5, c)), x, None, length=20),
    "branches": lambda x: lax.cond(x[0] > 2, lambda: 1.0, lambda: 0.0),
    "switch": lambda x: lax.switch(
        x[0].astype("int32"), [lambda: (0, 1.0), lambda: (1, 2.0), lambda: (2, 0.0)]
    ),
    "table": lambda x: jnp.array([0.25, 0.5, 0.75])[jnp.array([2, 0, 1])].astype(x.dtype) * x,
    "half of a program": lambda x: lax.scan(
        lambda c, r: (lax.scan(lambda d, _: (d + 0.5, None), c, None, length=2)[0], 1.0),
        ZERO, jnp.concatenate([x] * 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_python_have_the_type_that_jax_gives_them(name):
    f = PROGRAMS[name]
    g = lanes(f, strict=True)
    for found, wanted in (
        (jax.vmap(g)(ROWS), [f(x) for x in jnp.asarray(ROWS)]),
        (jax.tree.map(lambda y: y[None], g(jnp.asarray(ROWS[0]))), [f(jnp.asarray(ROWS[0]))]),
    ):
        wanted = jax.tree.map(lambda *ys: jnp.stack(list(map(jnp.asarray, ys))), *wanted)
        for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-6)


def test_a_result_that_is_a_number_does_not_write_beside_its_memory():
    g = jax.jit(jax.vmap(lanes(lambda x: jnp.asarray(2.0), strict=True)))
    for _ in range(300):
        assert (g(ROWS) == 2).all()


@pytest.mark.parametrize("length", [5, 20])
@pytest.mark.parametrize("constant", [lambda c: 0.0, lambda c: (1, c), lambda c: (c, True, 2.5)])
def test_the_gradient_of_a_loop_that_gives_out_numbers(constant, length):
    def f(x):
        return lax.scan(lambda c, _: (c * x, constant(c)), x, None, length=length)[0]

    x = jnp.asarray([0.9, 1.1], "float32")
    wanted = (length + 1) * x**length
    np.testing.assert_allclose(jax.vmap(jax.grad(lanes(f)))(x), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lanes(f))(x[0]), wanted[0], rtol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(lanes(f))(x[1]), wanted[1], rtol=1e-5)


def test_a_program_is_of_the_mode_in_which_it_is_called():
    """Not that of the first call: x64 decides what a number of Python is."""
    f = lanes(lambda x: (x * jnp.arange(3), jnp.linspace(0, 1, 2)))
    n = np.arange(9, dtype="int32")
    for _ in range(2):
        for on, kinds in ((True, ["int64", "float64"]), (False, ["int32", "float32"])):
            with jax.enable_x64(on), jax.numpy_dtype_promotion("standard"):
                assert [y.dtype for y in jax.vmap(f)(n)] == kinds
                assert [y.dtype for y in f(jnp.asarray(n[0]))] == kinds


def test_derived_programs_are_of_their_mode_too():
    program = lanes(lambda x: jnp.sin(x) * jnp.asarray(np.float32(2)))
    found = []
    for on in (True, False):
        with jax.enable_x64(on):
            rate = jax.jvp(jax.vmap(program), (ROWS,), (np.ones_like(ROWS),))[1]
            found.append(rate)
            assert rate.dtype == np.float32
    np.testing.assert_array_equal(*found)


def test_static_numbers_with_signs():
    f = lanes(lambda x, s: jnp.copysign(x, s))
    x = jnp.ones(9, "float32")
    for s in (0.0, -0.0, 0.0, float("nan")):
        found = jax.vmap(lambda x, s=s: f(x, s))(x)
        assert (np.asarray(found) == np.copysign(1, s)).all()


@pytest.mark.parametrize("call", ["batch", "jit", "one", "grad"])
def test_jax_debug_nans_names_the_operation(call):
    f = lanes(lambda x: jnp.log(x) * np.float32(2))
    x = jnp.linspace(-1, 1, 9).astype("float32")
    calls = {
        "batch": lambda: jax.vmap(f)(x), "jit": lambda: jax.jit(jax.vmap(f))(x),
        "one": lambda: f(x[0]), "grad": lambda: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))(x),
    }  # fmt: skip
    if call != "grad":  # the same program without the check, compiled before
        calls[call]()
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="encountered in (log|div)"):
        calls[call]()


# --- faults of the compiler itself --------------------------------------------------------


@pytest.fixture
def untold(monkeypatch):
    monkeypatch.setattr(_failures, "_told", set())
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")


def wrong_rule(r, eqn, x):
    return r.map("sin", r.map("convert", x, dtype=np.dtype("float64")))


def test_a_value_of_another_type_than_jax_has_is_refused(monkeypatch, untold):
    monkeypatch.setitem(_reader.RULES, "sin", wrong_rule)
    f = lambda x: jnp.sin(x) + 1  # noqa: E731
    with pytest.warns(LanesWarning, match="'sin'.*test_faults.*float64.*f32"):
        found = jax.vmap(lanes(f))(ROWS)
    np.testing.assert_allclose(found, np.sin(ROWS) + 1, rtol=1e-6)
    with pytest.raises(ValueError, match="cannot compile.*'sin'.*float64"):
        jax.vmap(lanes(lambda x: jnp.sin(x), strict=True))(ROWS)


@pytest.mark.parametrize(
    "error", [RuntimeError("LLVM IR parsing error"), AssertionError(), OSError(5)]
)
def test_xla_computes_what_the_compiler_fails_at(monkeypatch, untold, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(_compiler, "load", fails)
    f = lambda x: jnp.cos(x) * type(error).__name__.count("r")  # noqa: E731
    with pytest.warns(LanesWarning, match=f"{type(error).__name__}.*report") as told:
        for _ in range(3):
            found = jax.jit(jax.vmap(lanes(f)))(ROWS)
    assert len(told) == 1
    np.testing.assert_allclose(found, f(ROWS), rtol=1e-6)
    with pytest.raises(ValueError, match=f"cannot compile.*{type(error).__name__}"):
        jax.vmap(lanes(f, strict=True))(ROWS)


def test_what_is_not_supported_is_left_to_xla_without_a_word():
    f = lanes(lambda x: jnp.sort(jnp.tile(x, 9)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.vmap(f)(ROWS).shape == (4, 27)


def test_signed_and_unsigned_numbers_share_instructions():
    """The second sum is the instruction of the first, but not its type."""

    def f(x, y):
        a = x + y
        b = lax.bitcast_convert_type(x, jnp.uint32) + lax.bitcast_convert_type(y, jnp.uint32)
        return a > 0, b > 0, jnp.maximum(a, 1), jnp.maximum(b, jnp.uint32(1))

    x, y = np.array([-3, 5, 0], "int32"), np.array([1, -9, 0], "int32")
    for found, wanted in zip(jax.vmap(lanes(f, strict=True))(x, y), jax.vmap(f)(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("way", ["add", "max", "min", "multiply", "set"])
def test_places_out_of_bounds_change_nothing(way):
    """Also where they are promised not to be there, as in derivatives of JAX's own."""

    def f(a, n, u):
        return getattr(a.at[n], way)(u, mode="promise_in_bounds", unique_indices=True)

    def g(f):
        return lambda a, n, u: jax.vjp(lambda a, u: f(a, n, u), a, u)[1](2 * a)

    a, u = jnp.asarray([1.0, 2.0], "float32"), jnp.asarray(5.0, "float32")
    for n in map(np.int32, (0, 1, 2, 5, -1, -2, -3)):
        for call in (lambda h, n=n: h(a, n, u), lambda h, n=n: jax.vmap(h)(
            jnp.tile(a, (9, 1)), jnp.full(9, n), jnp.full(9, u))):  # fmt: skip
            for transform in (lambda f: f, g):
                found, wanted = call(transform(lanes(f, strict=True))), call(transform(f))
                for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
                    np.testing.assert_array_equal(x, y)


TURNED = {
    "in another order": lambda x: lax.reshape(x, (3, 2), dimensions=(1, 0)),
    "with more axes": lambda x: lax.reshape(x, (1, 3, 2), dimensions=(1, 0)),
    "a product's derivative": lambda x: jax.jvp(lambda x: jnp.prod(x, axis=1), (x,), (x + 1,))[1],
    "a product's gradient": lambda x: jax.grad(lambda x: jnp.sum(jnp.prod(x, axis=1)))(x),
    "column by column": lambda x: x.reshape(3, 2, order="F"),
}


@pytest.mark.parametrize("name", TURNED)
def test_reshaping_may_turn_the_axes_first(name):
    """The order of the axes was ignored, so that derivatives of products were wrong in silence."""
    f, x = TURNED[name], jnp.arange(1.0, 25).reshape(4, 2, 3) / 8
    np.testing.assert_allclose(jax.vmap(lanes(f, strict=True))(x), jax.vmap(f)(x), rtol=1e-6)


def test_parameters_that_no_rule_knows_are_refused(monkeypatch):
    """Every parameter of an operation is read by its rule, or is known to change nothing."""
    ignorant = lambda r, eqn, x: r.reshape(x, eqn.outvars[0].aval.shape)  # noqa: E731
    monkeypatch.setitem(_reader.RULES, "reshape", ignorant)
    monkeypatch.setattr(_failures, "_told", set())  # a fault is told of once
    f = lambda x: lax.reshape(x, (3, 2), dimensions=(1, 0)) * 2  # noqa: E731
    x = jnp.arange(24.0).reshape(4, 2, 3)
    with pytest.raises(ValueError, match="no rule knows its parameter 'dimensions'"):
        jax.vmap(lanes(f, strict=True))(x)
    with pytest.warns(LanesWarning, match="no rule knows its parameter 'dimensions'"):
        y = jax.jit(jax.vmap(lanes(f)))(x)
    np.testing.assert_array_equal(y, jax.vmap(f)(x))  # by XLA


def test_calls_before_an_empty_slice_keep_their_handler():
    """XLA rewrites what stands before an empty slice, and lost the attributes of the calls there.

    Programs with empty rows of constraints had such slices, and failed in XLA.
    """
    f = lanes(lambda x: jnp.sin(x) * 2, strict=True)

    def program(x):
        y = jax.vmap(f)(x).ravel()
        both = jnp.concatenate([y, y * 2, jnp.zeros(0, y.dtype)])
        rest = both[12:]
        return both[:6], both[6:12], jnp.where(rest > 0, rest, jnp.zeros_like(rest))

    x = jnp.arange(6.0).reshape(3, 2)
    one, two, none = jax.jit(program)(x)
    np.testing.assert_allclose(one, 2 * np.sin(np.arange(6.0)), rtol=1e-6)
    np.testing.assert_array_equal(two, 2 * one)
    assert none.shape == (0,)


@pytest.mark.parametrize(
    ("count", "error", "said"),
    [(np.array([1, 2]), ValueError, "shape"), (2.5, TypeError, "integer")],
)
def test_counts_of_rounds_that_are_no_integer_are_refused(count, error, said):
    with pytest.raises(error, match=f"common_rounds: .*{said}"):
        common_rounds(count, lambda k, x: x + k, jnp.zeros(2))
