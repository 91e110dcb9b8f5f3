"""The primitive and the life of its kernels: sharding, caches, threads, memory, switched off."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from support.processes import run  # noqa: E402

from rbd_jax.lanes import clear_caches, lanes, report  # noqa: E402
from rbd_jax.lanes.cpu import _cpu_kernels  # noqa: E402
from rbd_jax.lanes.llvm import _compiler  # noqa: E402
from rbd_jax.lanes.xla import _kernel_registry  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def f(a, x):
    return {"y": jnp.sin(x) * a + jnp.sum(x), "n": x.shape[0]}["y"]


def inputs(n=20):
    x = np.random.default_rng(n).normal(size=(n, 3))
    return jnp.arange(1.0, 4.0), jnp.asarray(x)


@pytest.mark.slow
def test_batches_stay_spread():
    """Over four devices: values, derivatives, fleets, inside shard_map, explicit meshes."""
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests" / "support" / "lane_spread.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "spread over 4 devices" in done.stdout


def test_kernels_live_as_long_as_they_are_used():
    """A jitted function keeps its kernels; without it they go, and a call begins anew."""

    def count() -> int:
        gc.collect()
        return _kernel_registry.loaded()

    a, x = inputs()
    g = jax.jit(jax.vmap(lanes(lambda a, x: f(a, x) + 3, strict=True), (None, 0)))
    jax.clear_caches()
    before = count()
    y = g(a, x)
    clear_caches()
    assert count() == before + 1
    np.testing.assert_array_equal(g(a, x), y)
    del g
    jax.clear_caches()
    assert count() == before


def test_a_kernel_outlives_its_function_while_it_runs():
    """Code is not unloaded under a call that is still on its way."""
    program = """
    def slow(x):
        for _ in range(40):
            x = jnp.sin(x) + jnp.cos(x * 2)
        return x
    big = jnp.ones((400_000, 3), jnp.float32)
    wanted = jax.vmap(slow)(big[:1])
    pending = jax.jit(jax.vmap(lanes(slow, strict=True)))(big)
    ready = pending.is_ready()
    jax.clear_caches(); gc.collect()
    for k in range(3):
        jax.jit(jax.vmap(lanes(lambda x, k=k: x + k, strict=True)))(x)
    print(ready, bool(jnp.allclose(pending, wanted, atol=1e-4)))
    del pending
    jax.clear_caches(); gc.collect()
    print(_kernel_registry.loaded())
    """
    assert run(program).split()[1:] == ["True", "0"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory by /proc")
def test_three_hundred_functions_leave_nothing():
    """Functions compiled one after the other, caches dropped: less than 10 KiB each remain."""
    program = """
    def memory():
        jax.clear_caches(); gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4096
    for k in range(350):
        if k % 10 == 0:
            now = memory()
            assert _kernel_registry.loaded() == 0
        if k == 50:
            before = now
        g = lanes(lambda x: f(x) * (k + 0.5), strict=True)
        assert np.allclose(jax.jit(jax.vmap(g))(x), right * (k + 0.5), rtol=1e-5)
    print((memory() - before) / 300)
    """
    assert float(run(program, RBD_JAX_CACHE_DIR="")) < 10 * 1024


def test_threads_compile_at_once():
    """Eight threads compile the same functions and others, and run them."""
    a, x = inputs()
    wrong = []

    def work(number):
        for k in (*range(4), 10 + number):
            g = lanes(lambda a, x, k=k: f(a, x) * (k + 1), strict=True)
            for _ in range(5):
                y = jax.jit(jax.vmap(g, (None, 0)))(a, x)
                if not np.allclose(y, (k + 1) * jax.vmap(f, (None, 0))(a, x)):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
        assert not t.is_alive()
    assert not wrong


@pytest.mark.parametrize("persistent", [pytest.param(False, marks=pytest.mark.slow), True])
def test_another_process_compiles_nothing(tmp_path, persistent):
    """Code comes from the disk; an executable from JAX's cache finds it, or compiles it anew."""
    program = """
    if os.environ["SECOND"]:
        def _optimized(*args):
            raise AssertionError("compiled again")
        _compiler._optimized = _optimized
    g = jax.jit(jax.vmap(lanes(f, strict=True)))
    assert "rbd_jax.lanes" in g.lower(x).as_text()
    print(bool(np.allclose(g(x), right, atol=1e-5)))
    """
    settings = {"RBD_JAX_CACHE_DIR": str(tmp_path / "lanes")}
    if persistent:
        settings |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
        settings |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for second in ("", "1"):
        assert run(program, SECOND=second, **settings) == "True\n"
    if persistent:
        assert any((tmp_path / "jax").iterdir())
        settings["RBD_JAX_CACHE_DIR"] = str(tmp_path / "empty")
        assert run(program, SECOND="", **settings) == "True\n"


def test_spread_executables_from_the_cache(tmp_path):
    """A program over devices that JAX's cache holds does not need its partitioning again."""
    program = """
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.device_put(x, NamedSharding(mesh, PartitionSpec("i")))
    print(bool(np.allclose(jax.jit(jax.vmap(lanes(f, strict=True)))(spread), right, atol=1e-5)))
    """
    settings = {"RBD_JAX_CACHE_DIR": str(tmp_path / "lanes")}
    settings |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    settings |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    settings |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    for _ in range(2):
        assert run(program, **settings) == "True\n"


@pytest.mark.parametrize("how", ["RBD_JAX_LANES", "llvmlite", "old"])
def test_switched_off(how):
    """Without lanes the function is the plain one, with the same results."""
    before = {
        "RBD_JAX_LANES": "",
        "llvmlite": "sys.modules['llvmlite'] = None",
        "old": "import importlib.metadata; importlib.metadata.version = lambda name: '0.44.0'",
    }
    program = f"""
    {before[how]}
    _compiler.available.cache_clear()  # JAX has asked when it started
    g = jax.jit(jax.vmap(lanes(f, strict=True)))
    assert "rbd_jax.lanes" not in g.lower(x).as_text()
    print(bool(np.allclose(g(x), right, atol=1e-5)))
    """
    settings = {"RBD_JAX_LANES": "0"} if how == "RBD_JAX_LANES" else {}
    assert run(program, **settings) == "True\n"


def test_arguments():
    """NumPy arrays are arrays, other things are static, and two kinds of 1 are two programs."""
    seen = []

    def g(x, n, *, name="sin"):
        seen.append(n)
        return getattr(jnp, name)(x) * float(n)

    h, x = lanes(g, strict=True), np.arange(3.0)
    for n in (1, 2, 1.5, 1, True):
        np.testing.assert_allclose(h(x, n), np.sin(x) * n)
    assert seen == [1, 2, 1.5, True]
    np.testing.assert_allclose(h(x, n=2, name="cos"), 2 * np.cos(x))
    with pytest.raises(TypeError, match="neither an array nor hashable"):
        h(x, {1, 2})


@pytest.mark.float64
def test_without_jit():
    """Eager calls, eager transformations, and JAX told not to compile give the same."""
    a, x = inputs()
    g = lanes(f, strict=True)
    np.testing.assert_allclose(g(a, x[0]), f(a, x[0]), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(g, (None, 0))(a, x), jax.vmap(f, (None, 0))(a, x))
    np.testing.assert_allclose(jax.jacrev(g)(a, x[0]), jax.jacrev(f)(a, x[0]), atol=1e-15)
    with jax.disable_jit():
        np.testing.assert_allclose(g(a, x[0]), f(a, x[0]), rtol=1e-12)


@pytest.mark.float64
def test_what_is_not_compiled():
    """Effects and unknown operations: by XLA with the same result, or an error that names them."""

    def talks(x):
        jax.debug.callback(lambda x: said.append(float(x)), x)
        return x + 1

    def calls(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x)

    said: list[float] = []
    assert lanes(talks)(jnp.float64(2)) == 3
    jax.effects_barrier()
    assert said == [2.0]
    np.testing.assert_allclose(lanes(calls)(jnp.float64(2)), np.sin(2))
    for g, text in (talks, "talks: it has"), (calls, "calls.*pure_callback"):
        with pytest.raises(ValueError, match=text):
            lanes(g, strict=True)(jnp.float64(2))


@pytest.mark.float64
def test_exported_programs_do_without():
    """Code of this process is no part of a program that is meant for others."""
    a, x = inputs()
    g = jax.jit(jax.vmap(lanes(f, strict=True), (None, 0)))
    exported = jax.export.export(g)(a, x)
    assert "rbd_jax.lanes" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(a, x), g(a, x), rtol=1e-12)


@pytest.mark.float64
@pytest.mark.parametrize("bits", [256, 512])
def test_vectors_of_every_length(bits, monkeypatch):
    """Kernels use vectors of the length that is fast on the CPU, unless they need much memory."""
    monkeypatch.setattr(_compiler, "vector_bits", lambda: bits)
    for dtype, size in ((jnp.float32, 4), (jnp.float64, 8)):
        for n in (0, 1, 3, 7, 8, 9, 15, 16, 17, 40):
            a, x = (jnp.asarray(y, dtype) for y in inputs(n))

            @lanes
            def grown(a, x):
                y = f(a, jnp.cumsum(x))
                return jax.lax.fori_loop(0, 2, lambda _, z: jnp.where(z > 0, z - y, z * y), y)

            both = [jax.vmap(g, (None, 0))(a, x) for g in (grown, grown.__wrapped__)]
            np.testing.assert_allclose(*both, rtol=1e-5 if size == 4 else 1e-12)
        (one,) = report(jax.vmap(grown, (None, 0)), a, x)
        assert one.width == bits // 8 // size
        for reused, most, widest in ((0, 0, 256), (2**40, 1, 256), (0, 2**20, bits)):
            with monkeypatch.context() as m:
                m.setattr(_cpu_kernels, "WIDE_BYTES", most)
                m.setattr(_cpu_kernels, "REUSED", reused)
                m.setenv("RBD_JAX_CACHE_DIR", "")
                (one,) = report(jax.vmap(lanes(lambda a, x: jnp.cumsum(f(a, x))), (None, 0)), a, x)
            assert one.width == widest // 8 // size


@pytest.mark.float64
def test_the_length_for_which_a_kernel_is_written_first(monkeypatch):
    """A kernel that computes much is written for the usual vectors first, and others for long
    ones; what it needs decides."""
    monkeypatch.setattr(_compiler, "vector_bits", lambda: 512)
    monkeypatch.setattr(_cpu_kernels, "WIDE_BYTES", 2**15)
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")
    widths, write = [], _cpu_kernels.kernel_text

    def counted(block, width, *rest):
        widths.append(width)
        return write(block, width, *rest)

    monkeypatch.setattr(_cpu_kernels, "kernel_text", counted)

    cases = (12, 50, [8]), (12, 500, [8, 4]), (0, 50, [4, 8]), (0, 500, [4])
    for reused, size, expected in cases:
        widths.clear()
        monkeypatch.setattr(_cpu_kernels, "REUSED", reused)
        report(jax.vmap(lanes(lambda x: jnp.cumsum(jnp.sin(x)))), jnp.ones((16, size)))
        assert widths == expected


@pytest.mark.float64
def test_report(monkeypatch):
    """Memory and code of each kernel of a call can be asked for, and looked at."""
    monkeypatch.setattr(_compiler, "vector_bits", lambda: 256)
    a, x = inputs()
    g = jax.vmap(lanes(f), (None, 0))
    (one,) = report(g, a, x)
    assert (one.name, one.samples, one.width) == ("f", (20,), 4)
    assert one.lines == one.text.count("\n") and one.code_bytes > 500
    assert "ret" in one.assembly() and "4 samples at a time" in str(one)
    kernels = report(lambda *t: jax.jit(jax.grad(lambda a: jnp.sum(g(a, t[1]))))(t[0]), a, x)
    assert len(kernels) >= 1
    assert report(lambda x: x + 1, x) == []
    with pytest.raises(ValueError, match="pure_callback"):
        report(lanes(lambda x: jax.pure_callback(np.sin, jax.typeof(x), x)), x)


def test_memory_has_a_bound():
    """A function of too large samples says how much memory it would need, and XLA takes it."""

    def large(x):
        return jnp.cumsum(jnp.cumsum(x)[::-1])[-1]

    kind = jax.ShapeDtypeStruct((16, 10_000_000), jnp.float32)
    with pytest.raises(ValueError, match="large: a program that needs .* MiB for (8|16) samples"):
        report(jax.vmap(lanes(large)), kind)
    text = jax.jit(jax.vmap(lanes(large))).lower(kind).as_text()
    assert "rbd_jax.lanes" not in text


def _flags(address: int) -> list[str]:
    """What the operating system says of the memory around an address."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(x, 16) for x in first.split("-"))
            here = low <= address < high
        elif here and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError(f"no memory at {address:#x}")


@pytest.mark.float64
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux alone tells")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_results_ask_for_large_pages(dtype):
    f = jax.jit(jax.vmap(lanes(lambda x: x + jnp.arange(1000, dtype=dtype))))
    large = jax.block_until_ready(f(jnp.zeros((40_000, 1), dtype)))
    assert large.nbytes > 32 * 2**20  # the C library does not keep so much for itself
    assert "hg" in _flags(large.unsafe_buffer_pointer() + large.nbytes // 2)
