"""Every operation that lanes compile, against XLA: batch sizes, shapes, arguments, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxprs_in_params
from support.lane_operations import PROGRAMS, booleans, floats, integers
from support.lane_programs import agree, close, numbers
from support.lane_smooth_programs import SMOOTH

from rbd_jax.lanes import lanes
from rbd_jax.lanes._report import report
from rbd_jax.lanes.frontend._read_program import RULES
from rbd_jax.lanes.llvm import _compiler

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


WITHOUT_NAN = {
    "products",
    "scans",
    "whiles",
    "neural",
    "transposed",
    "views_of_views",
    "calls",
    "counted",
    "reduced",
    "factors",
    "together",
}


@pytest.mark.parametrize("rows", [pytest.param(3, marks=pytest.mark.slow), 9])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays(name, rows):
    odd = name not in WITHOUT_NAN
    x, y = (numbers((rows, 4), "float32", seed, odd=odd) for seed in (1, 2))
    agree(
        PROGRAMS[name], x, y, sizes=(0, 1, 8, 9, 1000) if rows == 9 else (1, 7, 9), tolerance=3e-5
    )


@pytest.mark.float64
@pytest.mark.parametrize("name", PROGRAMS)
def test_double(name):
    x, y = (numbers((9, 4), "float64", seed) for seed in (1, 2))
    agree(PROGRAMS[name], x, y, sizes=(1000,), tolerance=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_shared_operand(name):
    """One array is shared by all samples."""
    x, y = (numbers((9, 4), "float32", seed) for seed in (1, 2))
    agree(PROGRAMS[name], x[0], y, axes=(None, 0), sizes=(9,), tolerance=3e-5)
    agree(PROGRAMS[name], x, y[0], axes=(0, None), sizes=(9,), tolerance=3e-5)


LONG = ("scans", "whiles", "factors")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in LONG else pytest.mark.slow) for n in PROGRAMS]
)
def test_passes_of_long_kernels(name, monkeypatch, tmp_path):
    """LLVM's few passes for long kernels leave the results as they are."""
    passed, llvm = [], _compiler.bindings()
    few = llvm.create_new_module_pass_manager
    note = lambda: passed.append(few()) or passed[-1]  # noqa: E731
    monkeypatch.setattr(llvm, "create_new_module_pass_manager", note)
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RBD_JAX_LANES_OPT", "2")
    monkeypatch.setattr(_compiler, "LONG_TEXT", -1)
    x, y = (numbers((7, 4), "float32", seed) for seed in (1, 2))  # texts that nobody has loaded
    agree(PROGRAMS[name], x, y, sizes=(9,), tolerance=3e-5)
    assert passed
    levels, tune = [], llvm.create_pipeline_tuning_options

    def noted(speed_level):
        levels.append(speed_level)
        return tune(speed_level=speed_level)

    monkeypatch.setattr(llvm, "create_pipeline_tuning_options", noted)
    found = jax.jit(lanes(PROGRAMS[name], strict=True))(x[0], y[0])
    wanted = jax.jit(PROGRAMS[name])(x[0], y[0])
    jax.tree.map(lambda a, b: close(a, b, tolerance=3e-5), found, wanted)
    assert 1 in levels  # that of the kernel of one sample


# --- how functions are called ---------------------------------------------------------


def test_closures():
    """A function in lanes may close over values of the transformations around it."""

    def outer(lanes):
        def f(a, x):
            table = jnp.sin(a)
            g = lanes(lambda x: jnp.sum(jnp.tanh(x * table)) + x)
            return jnp.sum(jax.vmap(g)(x) ** 2)

        return f

    a, x = numbers((3,), "float64", 1, 5), numbers((3,), "float64", 2, 7)
    for transform in (jax.jit, jax.grad, lambda f: jax.jit(jax.grad(f, (0, 1))), jax.hessian):
        jax.tree.map(
            close, transform(outer(lanes))(a[0], x), transform(outer(lambda f: f))(a[0], x)
        )
    inside, plain = (jax.vmap(jax.grad(outer(d)), (0, None))(a, x) for d in (lanes, lambda f: f))
    close(inside, plain)


def test_a_loop_of_which_all_samples_share_a_part():
    """What is made of the shared part alone cannot come before the loop."""

    def f(a, x):
        def step(carry, row):
            shared, own = carry
            return (0.5 * shared + row, own + row * x), (shared + row, own)

        _, (shared, own) = lax.scan(step, (a[0], x), a)
        return jnp.sin(shared) * jnp.arange(30.0)[:, None], jnp.cumsum(shared, 0), own

    agree(f, numbers((30, 4), "float64", samples=1)[0], numbers((4,), "float64", samples=9),
          axes=(None, 0), sizes=(1, 9))  # fmt: skip


def test_arguments():
    """Pytrees, keywords, static values, numbers of Python, None."""

    def f(tree, k, *, power=2, mode="sum", flag=None, weights=(1.0, 2.0)):
        out = tree["a"] ** power * weights[1] + tree["b"][0] * k
        return {"out": out.sum() if mode == "sum" else out, "none": flag, "k": k, "n": 3}

    g = lanes(f, strict=True)
    tree = {"a": jnp.arange(3.0), "b": (jnp.ones(3), None)}
    for kwargs in ({}, {"power": 3}, {"mode": "none", "weights": (0.5, 4.0)}):
        for k in (2, 2.5, jnp.float32(1.5), jnp.arange(3)):
            found, wanted = g(tree, k, **kwargs), f(tree, k, **kwargs)
            assert jax.tree.structure(found) == jax.tree.structure(wanted)
            for p, q in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                assert jnp.asarray(p).dtype == jnp.asarray(q).dtype
                np.testing.assert_allclose(p, q, rtol=1e-6)


def test_weak_types():
    g = lanes(lambda x, k: (x * k, k + 1), strict=True)
    with jax.numpy_dtype_promotion("standard"):
        out = g(jnp.ones(2, "float32"), 2.0)
        assert (
            out[0].dtype == "float32" and (g(2.0, 1)[0] + jnp.ones(1, "float32")).dtype == "float32"
        )


def test_integer_arguments_under_grad():
    def f(x, k, flag):
        return jnp.where(flag, x[k], -x[0]) * 2, k + 1

    x, k, flag = numbers((4,), "float64", 1, 9), jnp.arange(9) % 4, jnp.arange(9) % 2 == 0
    first = lambda f: lambda *a: jax.grad(lambda *a: f(*a)[0], allow_int=True)(*a)  # noqa: E731
    agree(f, x, k, flag, sizes=(9,), transform=first)
    agree(f, x, k, flag, sizes=(9,), transform=lambda f: lambda *a: jax.vjp(f, *a)[0])


def test_nothing():
    """No results, no operands, results that are operands or constants."""
    agree(lambda x: (), jnp.ones((9, 2)), sizes=(9,))
    agree(lambda x: (x, x, jnp.arange(3), 1.5, x[:0]), jnp.ones((9, 2)), sizes=(0, 1, 9))
    assert lanes(lambda: jnp.arange(3), strict=True)().shape == (3,)
    agree(lambda x: x + 1, jnp.ones((9, 0, 3)), sizes=(0, 1, 9))
    agree(lambda x, y: jnp.concatenate([x, y]).sum() + y[0], jnp.ones((9, 0)), jnp.ones((9, 2)))


# --- what is not supported -------------------------------------------------------------


UNSUPPORTED = {
    "eigh": lambda x: jnp.linalg.eigh(x @ x.T)[0],
    "fft": lambda x: jnp.abs(jnp.fft.rfft(x[0])),
    "conv_general_dilated": lambda x: jnp.convolve(x[0], x[1]),
    "digamma": lambda x: lax.digamma(x),
    "erf_inv": lambda x: lax.erf_inv(x),
    "sort": lambda x: jnp.sort(jnp.concatenate([x.ravel()] * 4)),
    "convert_element_type": lambda x: (x.astype("float16") * 2).astype(x.dtype),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 10),
    "scatter": lambda x: x.at[0].apply(jnp.sin),
    "random_seed": lambda x: x + jax.random.normal(jax.random.key(0), x.shape, x.dtype),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_operations_are_named(name):
    x = numbers((4, 4), "float32", 1, 9)
    f = UNSUPPORTED[name]
    with pytest.raises(ValueError, match=rf"'{name}'") as error:
        lanes(f, strict=True)(x[0])
    assert "site-packages" not in str(error.value)
    close(jax.vmap(lanes(f))(x), jax.vmap(f)(x))


@pytest.mark.float64
def test_every_rule_is_tested():
    """Each operation that has a rule occurs in a program of this file."""
    seen = set()

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            seen.add(eqn.primitive.name)
            for inner in jaxprs_in_params(eqn.params):
                visit(inner)

    x, k = jnp.ones((9, 4)), jnp.ones((), "int32")
    programs = [(floats, (x[0, 0], x[0, 0])), (integers, (k, k)), (booleans, (k > 0, k > 0))]
    programs += [(f, (x, x)) for f in (*PROGRAMS.values(), *SMOOTH)]
    for f, args in programs:
        visit(jax.make_jaxpr(f)(*args).jaxpr)
    aliases = {name for name in RULES if name.replace("_", "-") in seen}
    inner = {
        "add_any",
        "closed_call",
        "empty",
        "empty2",
        "eval_jaxpr",
        "pcast",
        "pvary",
    }  # made by JAX itself
    inner |= {"log2", "one_minus_square"}  # not in every version
    left = set(RULES) - seen - aliases - inner
    assert not left, " ".join(sorted(left))


def test_long_branches_are_left_out():
    """A branch with loops or calls of programs, such as the library's functions, is a loop of no or
    one round, which ends where no sample takes it."""
    many = lambda x: lax.fori_loop(0, 9, lambda _, x: x * x - 1, x)  # noqa: E731
    few = lambda x: -x  # noqa: E731
    call = lanes(lambda x: x * x + 1)
    x = jnp.linspace(0, 1, 64)
    for ways, loops in (((many, few), 1), ((few, many), 1), ((few, few), 0), ((many, many), 2),
                        ((call, few), 1), ((call, many), 2)):  # fmt: skip
        f = jax.vmap(lanes(lambda x, ways=ways: lax.cond(x > 0.5, *ways, x)))
        assert report(f, x)[0].text.count("= call i1 @llvm.vector.reduce.or") == loops


def test_branches_hand_on_their_operands():
    """Results that are operands are right in branches that give the same one, and another one."""
    ways = {
        "the same": (lambda x, y: (x, y, x), lambda x, y: (x, y, x)),
        "others": (lambda x, y: (x, y, x), lambda x, y: (y, y, x + y)),
        "nothing": (lambda x, y: (lax.empty(x.shape, x.dtype), y, x), lambda x, y: (x, y * y, y)),
    }
    x, y = numbers((4,), "float32", 1, 9), numbers((4,), "float32", 2, 9)
    for name, (one, two) in ways.items():

        def f(x, y, one=one, two=two, name=name):
            taken = x[0] < 0 if name != "nothing" else x[0] < -1e9  # what is nothing is not read
            alike = lax.cond(y[0, None].sum() < 0, lambda x: (x, 2 * x), lambda x: (x, x), x)
            return lax.cond(taken, one, two, x, y), alike

        agree(f, x, y, sizes=(9,))
        agree(f, x[0], y, axes=(None, 0), sizes=(9,))


def test_branches_keep_no_tables():
    """The way back through a branch reads a table where it lies, which JAX hands on as a result."""
    table = jnp.sin(jnp.arange(900.0))

    def f(x, table):
        here = jax.checkpoint(lambda x: jnp.sum(jnp.sin(x * table[:3])) * table[7])
        return lax.cond(x > 0.5, here, lambda x: 0 * x, x)

    x = jnp.linspace(0, 1, 64)
    back = jax.vmap(lanes(jax.grad(f)), (0, None))
    close(jax.jit(back)(x, table), jax.vmap(jax.grad(f), (0, None))(x, table))
    every = jax.vmap(lanes(jax.grad(f)))
    (kernel,) = report(every, x, jnp.broadcast_to(table, (64, 900)))
    assert kernel.scratch_bytes < 2 * 900 * kernel.width * table.dtype.itemsize
