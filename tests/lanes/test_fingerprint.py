"""Names of programs: the same for the same program in every process, others for all others."""

import subprocess
import sys
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rbd_jax.lanes import lanes
from rbd_jax.lanes.cpu import _cpu_kernels, _kernel_cache
from rbd_jax.lanes.frontend._fingerprint import fingerprint

X = jnp.ones((6, 6), "float32")


def rolled(reverse=False, length=3, unit=1.0, carried=0):
    def f(x):
        def step(c, row):
            return (c[1], c[0] + unit * row), c[carried]

        return lax.scan(step, (x[0], x[1]), x[:length], reverse=reverse)

    return f


TABLE = np.arange(6)
LONG = np.arange(600) % 6
PROGRAMS = {
    "sum": lambda x: x + x,
    "product": lambda x: x * x,
    "another operand": lambda x: x + x.T,
    "number": lambda x: x + 1.5,
    "another number": lambda x: x + 1.25,
    "-0": lambda x: x * -0.0,
    "0": lambda x: x * 0.0,
    "nan": lambda x: x * jnp.nan,
    "rows": lambda x: x.sum(0),
    "columns": lambda x: x.sum(1),
    "largest": lambda x: x.max(1),
    "table": lambda x: x[TABLE],
    "another table": lambda x: x[TABLE[::-1]],
    "long table": lambda x: x[LONG],
    "another long table": lambda x: x[LONG[::-1]],
    "out of range is clipped": lambda x: x.at[TABLE + 2].get(mode="clip"),
    "out of range is filled": lambda x: x.at[TABLE + 2].get(mode="fill"),
    "scan": rolled(),
    "scan backwards": rolled(reverse=True),
    "longer scan": rolled(length=4),
    "scan with another number": rolled(unit=2.0),
    "scan with another row": rolled(carried=1),
    "two results": lambda x: (x + x, x),
    "in another order": lambda x: (x, x + x),
    "call": lambda x: jax.jit(lambda x: x * 2 + 1)(x),
    "another call": lambda x: jax.jit(lambda x: x * 2 - 1)(x),
    "branches": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "branches exchanged": lambda x: lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, x),
    "lanes in lanes": lambda x: lanes(jnp.sin)(x),
    "other lanes in lanes": lambda x: lanes(jnp.cos)(x),
}


def name_of(f, *args):
    return fingerprint(jax.make_jaxpr(f)(*args))


def test_no_two_programs_have_the_same_name():
    names = {k: name_of(f, X) for k, f in PROGRAMS.items()}
    names["another shape"] = name_of(PROGRAMS["sum"], X[:5])
    names["another dtype"] = name_of(PROGRAMS["sum"], X.astype("int32"))
    assert None not in names.values()
    for (a, x), (b, y) in combinations(names.items(), 2):
        assert x != y, f"{a}, {b}"
    assert {k: name_of(f, X) for k, f in PROGRAMS.items()}.items() <= names.items()


def test_a_program_that_nobody_can_name_has_no_name():
    def f(x):
        return jax.pure_callback(lambda x: x, x, x)

    assert name_of(f, X) is None


PROCESS = """
import jax, jax.numpy as jnp
from rbd_jax.lanes import lanes
from rbd_jax.lanes.cpu import _cpu_kernels
from rbd_jax.lanes.llvm import _compiler

written, compiled = [], []
write, make = _cpu_kernels.kernel_text, _compiler._made
_cpu_kernels.kernel_text = lambda *args: written.append(0) or write(*args)
_compiler._made = lambda *args: compiled.append(0) or make(*args)

def rollout(x, u):
    def step(x, u):
        y = jax.lax.scan(lambda c, r: (c * 0.5 + jnp.sin(r), c), x, jnp.outer(u, x))[0]
        return y, (y, x.sum(), y * u[0])
    return jax.lax.scan(step, x, u)

def loss(x, u):
    return jnp.sum(jax.tree.leaves(lanes(rollout)(x, u))[1] ** 2)

x, u = jnp.ones(5), jnp.linspace(0, 1, 150).reshape(50, 3)
print(float(jax.jit(jax.grad(loss))(x, u)[0]), len(written), len(compiled))
"""


@pytest.mark.slow
def test_another_process_reads_what_one_has_written(tmp_path, monkeypatch):
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(tmp_path / "cache"))
    found = []
    for seed in "123":  # the order of sets differs
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        made = subprocess.run(
            [sys.executable, "-c", PROCESS], check=True, capture_output=True, text=True
        )
        found.append(made.stdout.split())
    (first, written, compiled), *others = found
    assert int(written) >= 2 and int(compiled) >= 3
    assert others == [[first, "0", "0"]] * 2


def test_a_text_is_read_under_the_same_settings_only(tmp_path, monkeypatch):
    """Neither vectors of another length, nor another version, nor other code of ours takes it."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(tmp_path / "cache"))
    closed, text = (
        jax.make_jaxpr(PROGRAMS["sum"])(X),
        (_cpu_kernels.Text("text", "symbol", 1, 2), 8),
    )

    def is_written(how="how") -> bool:
        made = []
        assert _kernel_cache.found_or_made(closed, how, lambda: made.append(0) or text) == text
        return bool(made)

    assert [is_written(), is_written()] == [True, False]
    for place, name, value in (
        (jax, "__version__", "0"),
        (_kernel_cache, "_sources", lambda: "other"),
        (_kernel_cache._compiler, "vector_bits", lambda: 64),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(place, name, value)
            assert is_written()
    with jax.default_matmul_precision("highest"):
        assert is_written()
    assert is_written("another way")
    assert not is_written()
