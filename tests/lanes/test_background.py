"""LLVM compiles on other threads: code is the same, XLA waits for it, and faults are told."""

import gc
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from rbd_jax.lanes import LanesWarning, _progress, lanes  # noqa: E402
from rbd_jax.lanes.cpu import _cpu_kernels  # noqa: E402
from rbd_jax.lanes.cpu._cpu_kernels import text_of  # noqa: E402
from rbd_jax.lanes.llvm import _background, _compiler  # noqa: E402
from rbd_jax.lanes.primitive._primitive import lanes_p  # noqa: E402

X = np.arange(12.0, dtype="float32").reshape(4, 3)


@pytest.fixture
def threads(monkeypatch):
    """Two threads, that take small kernels too, and no cache on disk."""
    monkeypatch.setenv("RBD_JAX_COMPILE_THREADS", "2")
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")
    monkeypatch.setattr(_cpu_kernels, "LATER_BYTES", 0)


@pytest.fixture
def gate(threads, monkeypatch):
    """An event without which no thread comes to an end."""
    event, emitted = threading.Event(), _compiler._emitted

    def wait(*args):
        assert threading.current_thread() is not threading.main_thread() and event.wait(60)
        return emitted(*args)

    _cpu_kernels.dispatcher()  # is compiled at once
    monkeypatch.setattr(_compiler, "_emitted", wait)
    yield event
    event.set()


def program(c):
    """A function that no other test has, and its values."""
    return lanes(lambda x: jnp.sin(x) * jnp.float32(c), strict=True), np.sin(X) * np.float32(c)


def test_lowering_goes_on_and_xla_waits(gate):
    f, wanted = program(0.1875)
    lowered = jax.jit(jax.vmap(f)).lower(X)  # ends although no thread does
    again = jax.jit(lambda x: jax.vmap(f)(x) + 1).lower(X)  # takes the kernel that is on its way
    threading.Timer(0.2, gate.set).start()
    np.testing.assert_allclose(lowered.compile()(X), wanted, rtol=1e-6)
    np.testing.assert_allclose(again.compile()(X), wanted + 1, rtol=1e-6)


def test_same_code_from_all_threads(threads):
    """Modules that are compiled side by side become the code that each becomes alone."""
    texts = []
    for k in range(4):
        f = lanes(lambda x, k=k: jnp.cos(x @ x.T + k) @ jnp.exp(x - k))
        (call,) = jax.make_jaxpr(jax.vmap(f))(np.zeros((8, 3, 3), "float32")).eqns
        assert call.primitive is lanes_p
        params = call.params
        texts.append(text_of(params["program"], params["sizes"], params["mapped"])[0].text)
    alone = [_compiler.compile(t) for t in texts]
    tasks = [_background.start(lambda t=t: _compiler.compile(t)) for t in texts * 3]
    assert [t.result() for t in tasks] == alone * 3


def test_fault_of_a_thread_is_told_and_leaves_the_function_to_xla(threads, monkeypatch):
    def broken(*args):
        raise RuntimeError("no code today")

    f, wanted = program(0.3125)
    f = jax.vmap(lanes(f.__wrapped__))  # not strict
    _cpu_kernels.dispatcher()
    monkeypatch.setattr(_compiler, "_emitted", broken)
    with pytest.warns(LanesWarning, match=r"no code today.*clear_caches"):
        with pytest.raises(Exception, match="compile the function again"):
            jax.jit(f)(X)
    jax.clear_caches()
    with pytest.warns(LanesWarning, match="no code today"):
        np.testing.assert_allclose(jax.jit(f)(X), wanted, rtol=1e-6)


def test_what_fails_on_a_thread_is_compiled_on_this_one(threads, monkeypatch):
    def apart(*args):
        assert threading.current_thread().name != "rbd_jax compiler"
        return emitted(*args)

    f, wanted = program(0.4375)
    emitted = _compiler._emitted
    _cpu_kernels.dispatcher()
    monkeypatch.setattr(_compiler, "_emitted", apart)
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(X), wanted, rtol=1e-6)


def test_wrong_text_is_found_at_once(threads):
    with pytest.raises(RuntimeError, match="expected"):
        _compiler.load_later("define nonsense", "lanes")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory by /proc")
def test_modules_are_freed_before_their_contexts(threads):
    """Also those in cycles, as an error's frames are, and those that nobody compiles."""
    table = ", ".join(f"i64 {k}" for k in range(20000))
    text = f"@lanes = constant [20000 x i64] [{table}]\n"

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    def after_some() -> int:
        for _ in range(30):
            cycle: list = [_compiler.load_later(text, "lanes")]
            cycle.append(cycle)
        return pages()

    before = after_some()
    assert (max(after_some() for _ in range(3)) - before) * 4096 < 30 * 2**20  # of 150 if none is


def test_number_of_threads(monkeypatch):
    monkeypatch.setenv("RBD_JAX_COMPILE_THREADS", "0")
    assert _background.threads() == 0
    monkeypatch.setenv("RBD_JAX_COMPILE_THREADS", "two")
    with pytest.raises(ValueError, match="RBD_JAX_COMPILE_THREADS is 'two'"):
        _background.threads()


def test_forked_process():
    """What a thread had begun is an error in a forked process; what waits is done there."""
    lost, kept = _background.Task(lambda: 1), _background.Task(lambda: 2)
    _background._begun.add(lost)
    _background._waiting.append(kept)
    _background._forked()
    with pytest.raises(RuntimeError, match="forked"):
        lost.result()
    assert kept.result() == 2


def test_long_compilations_tell_of_themselves(monkeypatch, capfd):
    """Lines come after the first seconds and at the end, and name the phases."""
    monkeypatch.setenv("RBD_JAX_PROGRESS", "1")
    monkeypatch.setattr(_progress, "FIRST", 0.3)
    monkeypatch.setattr(_progress, "_PAUSE", 0.2)
    with _progress.collected() as seconds, _progress.phase("trace"):
        with _progress.phase("compile"):
            time.sleep(0.5)
    assert 0 <= seconds["trace"] < 0.3 and 0.5 <= seconds["compile"] < 2
    for _ in range(100):
        if _progress._now is None:
            break
        time.sleep(0.05)
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith("rbd_jax is compiling: 0 s, 0 kernels compiled")
    assert last.startswith("rbd_jax compiled in") and "1 kernel compiled" in last
    assert "compile 0." in last and "trace 0.0" in last


def test_short_compilations_say_nothing(monkeypatch, capfd):
    monkeypatch.setenv("RBD_JAX_PROGRESS", "1")
    monkeypatch.setattr(_progress, "_PAUSE", 0.1)
    with _progress.phase("trace"):
        pass
    while _progress._now is not None:
        time.sleep(0.05)
    assert capfd.readouterr().err == ""
