"""Code for NVIDIA GPUs, without one: its functions run on the CPU, and ptxas accepts its PTX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.lane_programs import close, numbers

import rbd_jax as rbd
from benchmarks import _ptxas
from benchmarks._robots import load

pytest.importorskip("llvmlite")

from support.lane_threads import functions as threads, program, run  # noqa: E402

from rbd_jax.lanes import Unsupported  # noqa: E402
from rbd_jax.lanes.gpu import _ptx  # noqa: E402

DTYPES = ["float32", pytest.param("float64", marks=pytest.mark.float64)]
COUNT = 13
ROWS = np.arange(24.0, dtype="float32").reshape(6, 4)
PARENTS = np.array([0, 0, 1, 1, 2, 4])


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


TEAMS = (1, 2, 32, 128)


def check(f, *args, shared=(), tolerance=None):
    """The code of every team agrees with JAX, and its PTX is accepted where that can be asked."""
    axes = tuple(None if k in shared else 0 for k in range(len(args)))
    wanted = jax.tree.leaves(jax.jit(jax.vmap(lambda *xs: f(*xs), axes))(*args))
    for team in TEAMS:
        made, shapes = threads(f, *args, shared=shared, team=team)
        found = run(made, shapes, COUNT, *args, shared=shared)
        for x, y in zip(found, wanted, strict=True):
            close(x, y, tolerance=tolerance)
        again = run(made, shapes, COUNT, *args, shared=shared, seed=1)
        for x, y in zip(again, found, strict=True):
            np.testing.assert_array_equal(x, y)
        ptx = _ptx.ptx_of(made)
        assert f".entry {ptx.entry}(" in ptx.text and f".entry {ptx.prologue}(" in ptx.text
        if _ptxas.path():
            usage = _ptxas.assemble(ptx.text, ptx.entry)
            assert 0 < usage.registers <= 255


def tables(x, k):
    """A scan over rows of constants and of the sample, with places that tables and samples name."""

    def step(carry, row):
        const, own, parent = row
        carry = carry.at[parent].add(own * const)
        return carry * 0.5, (carry[parent] + own, jnp.sum(carry))

    start = jnp.zeros((6, 4), x.dtype)
    end, rows = lax.scan(step, start, (jnp.asarray(ROWS, x.dtype), x, PARENTS), reverse=True)
    return end, rows, x[jnp.argmax(x[:, 0])], x[k], x.T, k


def functions(x, c):
    """Functions of ``_math``, branches, a loop whose length the sample decides, booleans."""
    odd = lax.while_loop(lambda s: s[0] < 5.0, lambda s: (s[0] + s[1], s[1] * 1.5),
                         (x[0], jnp.abs(x[1]) + 0.1))  # fmt: skip
    both = lax.cond(c[0] > 0, jnp.sin, jnp.cos, x)
    whole = jnp.round(x).astype("int32")
    waves = [jnp.tan(x), jnp.exp(x), jnp.log(x), jnp.tanh(x), jnp.arctan2(x, c), jnp.arcsin(x)]
    return waves, odd, both, whole, whole % 3, x > c, jnp.maximum(x, c), x[:0], jnp.outer(x, c) @ x


def alike(x, a, k):
    """Nearly all of it is the same for all samples: what threads divide, and what one does."""
    end, rows, *_ = tables(a, k)
    sums = jnp.cumsum(rows[0], axis=0) @ a.T
    joined = jnp.concatenate([end, rows[0]]).at[k].add(jnp.max(sums))
    odd = lax.while_loop(lambda s: s[0] < 5.0, lambda s: (s[0] + s[1], s[1] * 1.5),
                         (a[0, 0], jnp.abs(a[1, 1]) + 0.1))  # fmt: skip
    return x * joined[3, 1], joined, sums, jnp.argmax(sums, axis=1), odd


def test_what_all_samples_share():
    a = numbers((6, 4), "float64", samples=1)[0]
    check(alike, numbers((2,), "float64", samples=COUNT), a, jnp.asarray(4), shared=(1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scan_with_tables(dtype):
    check(tables, numbers((6, 4), dtype, samples=COUNT), jnp.arange(COUNT) % 6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_and_odd_numbers(dtype):
    c = jnp.asarray([0.5, -1.0, 2.0], dtype)
    check(functions, numbers((3,), dtype, samples=COUNT), c, shared=(1,))
    check(lambda x: (jnp.sin(x), jnp.cos(x), jnp.sqrt(x), jnp.maximum(x, 0.5), x / x),
          numbers((5,), dtype, samples=COUNT, odd=True))  # fmt: skip


@pytest.mark.slow
@pytest.mark.float64
def test_articulated_bodies_against_xla(monkeypatch):
    monkeypatch.setenv("RBD_JAX_LANES", "0")
    model = load("ur5", "float64") if rbd.example_robots() else rbd.samples.arm(dtype="float64")
    state = [numbers((model.nv,), "float64", seed, COUNT) for seed in range(3)]
    text = jax.jit(jax.vmap(rbd.aba, (None, 0, 0, 0))).lower(model, *state).as_text()
    assert "rbd_jax.lanes" not in text
    check(rbd.aba, model, *state, shared=(0,), tolerance=1e-12)


@pytest.mark.slow
def test_gradient_of_a_floating_robot_against_a_cpus_lanes():
    model = rbd.samples.chain(4, floating_base=True, dtype="float32")
    q, v, a = (numbers((n,), "float32", n, COUNT) for n in (model.nq, model.nv, model.nv))

    def pulled(m, q, v, a):
        return jax.vjp(lambda *xs: rbd.inverse_dynamics(m, *xs), q, v, a)[1](v)

    check(pulled, model, q, v, a, shared=(0,), tolerance=1e-4)


def test_what_only_the_library_has():
    x = jnp.float32(0.5)
    with pytest.raises(Unsupported, match="'erf', which only the C library has"):
        _ptx.ptx_text(program(jax.scipy.special.erf, x))
    with pytest.raises(Unsupported, match="remainder"):
        _ptx.ptx_text(program(lambda x: lax.rem(x, x + 1), x))


def test_too_much_memory_for_a_thread():
    with pytest.raises(Unsupported, match="KiB a sample"):
        _ptx.ptx_text(program(lambda x: jnp.outer(x, x) @ jnp.outer(x, x).T @ x, jnp.ones(400)))


@pytest.mark.parametrize(
    "dtype, limit", [("float32", 1e5), pytest.param("float64", 1e9, marks=pytest.mark.float64)]
)
def test_huge_angles_are_not_guessed(dtype, limit):
    x = jnp.asarray([limit, -limit, 1.01 * limit, -1e30, np.inf], dtype)
    sin, cos = run(*threads(lambda x: (jnp.sin(x), jnp.cos(x)), x), 5, x)
    for found, wanted in ((sin, jnp.sin(x)), (cos, jnp.cos(x))):
        close(found[:2], wanted[:2])
        assert np.isnan(found[2:]).all()
