"""Compiled kernels behind the dispatcher: through JAX, and with a runtime made of paper."""

import ctypes
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from support.lane_kernels import SHAPE, Paper, check, inputs, kernel  # noqa: E402

from rbd_jax.lanes.cpu import _cpu_kernels  # noqa: E402
from rbd_jax.lanes.xla import _c_api  # noqa: E402

two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")


@pytest.fixture(autouse=True)
def nothing_on_disk(monkeypatch):
    """The user's cache of kernels is none of these tests' business."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")


def test_the_header():
    """Constants and offsets, read from the header, are those of a 64-bit ABI."""
    assert _c_api.constant("API_MAJOR") == 0 and _c_api.constant("API_MINOR") >= 3
    assert _c_api.constant("Extension_Metadata") == 1
    assert _c_api.constant("Error_Code_RESOURCE_EXHAUSTED") == 8
    known = {"CallFrame": {"extension_start": 8, "api": 16, "ctx": 24, "args.args": 72}}
    known["CallFrame"] |= {"args.size": 56, "rets.size": 96, "rets.rets": 112}
    known["Buffer"] = {"data": 24, "rank": 32, "dims": 40}
    known["Metadata_Extension"] = {"extension_base.type": 8, "metadata": 24}
    known["Metadata"] = {"api_version.major_version": 24, "api_version.minor_version": 28}
    known["Api"] = {"XLA_FFI_Error_Create": 48, "XLA_FFI_ThreadPool_NumThreads": 144}
    for struct, fields in known.items():
        assert fields.items() <= _c_api.layout(struct)[0].items()
    assert _c_api.layout("Error_Create_Args")[1] == 28  # no padding at the end
    for what in (_c_api.constant, _c_api.layout):
        with pytest.raises(NotImplementedError, match="XLA_FFI_Nothing"):
            what("Nothing")


@pytest.mark.parametrize("grain", [0, 1, 7, SHAPE["grain"]])
@pytest.mark.parametrize("count", [0, 4, 5, 1000, 100_000])
def test_counts(count, grain):
    """Every sample once, but for the overlap of the last block; the prologue once a call."""
    k = kernel(grain=grain)
    x, c = inputs(count)
    y, thread = jax.jit(k)(x, c)
    check(x, y)
    assert k.counted("prologues") == (count > 0) and k.counted("blocks") == -(-count // 4)
    assert k.counted("crooked") == 0
    if grain == SHAPE["grain"] and count:
        assert len(np.unique(thread)) == 1


@two_cores
@pytest.mark.parametrize("grain", [0, 1])
def test_threads_share_the_blocks(grain):
    """With slow blocks a second thread has time to come, and does so by every second block."""
    k = kernel(grain=grain, sleep=500)
    y, thread = jax.jit(k)(*inputs(401))
    check(inputs(401)[0], y)
    threads, samples = np.unique(thread, return_counts=True)
    assert len(threads) >= 2 and k.counted("blocks") == 101
    assert samples.max() < 390


def test_one_sample():
    """A kernel of one sample has no leading axis, and no limit on its lanes."""
    k = kernel(batched=False, width=1)
    check(np.float32(5), jax.jit(k)(jnp.float32(5), jnp.float32(0.25))[0])
    with pytest.raises(ValueError, match="one lane"):
        kernel(batched=False, width=4)
    with pytest.raises(ValueError, match="negative"):
        kernel(scratch_bytes=-1)


def test_large_memory():
    """Scratch and shared memory that no stack has room for, aligned all the same."""
    k = kernel(grain=1, scratch_bytes=64 << 20, shared_bytes=16 << 20)
    for count in (4, 1000):
        check(inputs(count)[0], jax.jit(k)(*inputs(count))[0])
    assert k.counted("crooked") == 0


def test_errors():
    """Calls that cannot be computed say so, and the next call works."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT.*fewer samples"):
        jax.block_until_ready(jax.jit(kernel())(*inputs(3)))
    for memory in ("scratch_bytes", "shared_bytes"):
        with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED.*no memory"):
            jax.block_until_ready(jax.jit(kernel(**{memory: 1 << 60}))(*inputs(9)))
    wrong = jax.ffi.ffi_call(_cpu_kernels.TARGET, jax.ShapeDtypeStruct((8,), jnp.float32))
    for key, text in (kernel().key, "INVALID_ARGUMENT.*not those"), (5, "NOT_FOUND.*not loaded"):
        call = jax.jit(lambda *a, key=key: wrong(*a, kernel=np.int64(key)))
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.block_until_ready(call(*inputs(8)))
    check(inputs(9)[0], jax.jit(kernel())(*inputs(9))[0])


@pytest.mark.parametrize("scratch_bytes", [16, 1 << 16])
def test_many_callers(scratch_bytes):
    """Eight threads call at once, each call for the whole pool, several calls a program."""
    k = kernel(grain=1, scratch_bytes=scratch_bytes)

    @jax.jit
    def program(x, c):
        return [k(x + i, c)[0] for i in np.arange(4, dtype=np.float32)]

    x, c = inputs(1001)
    right = []

    def caller():
        for _ in range(25):
            for i, y in enumerate(program(x, c)):
                check(x + i, y)
        right.append(True)

    callers = [threading.Thread(target=caller, daemon=True) for _ in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(timeout=60)
    assert len(right) == len(callers)


@pytest.mark.parametrize("schedule", ["inline", "thread", "later", "never"])
def test_the_fate_of_tasks(schedule):
    """A call ends whatever the pool does, and a task that starts after it does no harm."""
    k, x = kernel(grain=2), np.arange(101, dtype=np.float32)
    paper = Paper(schedule=schedule)
    check(x, paper.call(k, x)[0])
    assert k.counted("blocks") == 26 and k.counted("prologues") == 1
    assert len(paper.late) == (3 if schedule in ("thread", "later") else 0)
    assert paper.destroyed == (schedule == "never") and not paper.errors
    paper.keep.clear()  # what the call worked on is gone
    for task in paper.late:
        if schedule == "later":
            task.start()
        task.join(timeout=60)
        assert not task.is_alive()
    assert k.counted("blocks") == 0


@pytest.mark.parametrize("threads", [None, 1, 2, 50])
def test_the_size_of_the_pool(threads):
    """No more tasks than there are other threads, or other chunks; none without a pool."""
    k, x = kernel(grain=5), np.arange(101, dtype=np.float32)
    paper = Paper(threads=threads, schedule="later")
    check(x, paper.call(k, x)[0])
    assert len(paper.late) == {None: 0, 1: 0, 2: 1, 50: 5}[threads]
    assert paper.destroyed == (threads is None)
    for task in paper.late:
        task.run()


def test_few_blocks_ask_for_nobody():
    """As many blocks as the grain are computed without a look at the pool; none without work."""
    k, x = kernel(grain=5), np.arange(20, dtype=np.float32)
    check(x, Paper(threads=None).call(k, x)[0])
    paper = Paper(threads=None)
    paper.call(k, np.zeros(0, np.float32))
    assert paper.destroyed == 0 and k.counted("prologues") == 1 and k.counted("blocks") == 5


def test_frames_that_do_not_fit():
    """Errors come from XLA's own function, with code and message."""
    k, paper = kernel(), Paper()
    x = np.arange(8, dtype=np.float32)
    assert paper.call(k, x[:3]) == 1001
    assert paper.call(k, x, [np.zeros(8, np.float32)]) == 1002
    assert paper.call(k, x, [np.zeros((), np.float32), np.zeros((), np.int64)]) == 1003
    assert paper.call(kernel(scratch_bytes=1 << 60), x) == 1004
    assert paper.call(k, x, key=k.key + 1) == 1005
    assert paper.call(k, x.astype(np.float64)) == 1006  # of 8 bytes, where the kernel has 4
    assert paper.call(k, x, [np.zeros(8, np.float32), np.zeros(8, np.int32)]) == 1007
    assert paper.call(k, np.ones((8, 2), np.float32), [x, np.zeros(8, np.int64)]) == 1008
    assert [e.split()[0] for e in paper.errors] == ["3", "3", "3", "8", "5", "3", "3", "3"]
    assert k.counted("prologues") == k.counted("blocks") == 0


def test_measured_work_decides():
    """Blocks without work stay with the calling thread; long ones are shared."""
    x = np.arange(4000, dtype=np.float32)
    for k, many in (kernel(grain=0), False), (kernel(grain=0, sleep=200), True):
        paper = Paper(schedule="later")
        check(x[:400], paper.call(k, x[:400])[0])
        assert k.counted("blocks") == 100
        assert len(paper.late) == (3 if many else 0)
        for task in paper.late:
            task.run()


def test_registration():
    """Asked for its version, wherever among the extensions, a handler answers and does no more."""
    k, paper = kernel(), Paper()
    x = np.arange(8, dtype=np.float32)
    metadata = paper.struct("Metadata", traits=-1)
    base = "extension_base"
    kind = _c_api.constant("Extension_Metadata")
    fields = {f"{base}.type": kind, "metadata": metadata}
    asked = paper.struct("Metadata_Extension", **fields)
    other = paper.struct("Metadata_Extension", **{f"{base}.type": kind + 1, f"{base}.next": asked})
    for extension in (asked, other):
        assert not paper.call(k, x, extension=extension)[0].any()
        for part in ("major", "minor"):
            at = metadata + _c_api.offset(f"Metadata.api_version.{part}_version")
            number = ctypes.c_int32.from_address(at)
            assert number.value == _c_api.constant(f"API_{part.upper()}")
            number.value = -1
    alone = paper.struct("Metadata_Extension", **{f"{base}.type": kind + 1})
    check(x, paper.call(k, x, extension=alone)[0])


LATE = """
import gc, sys, jax, jax.numpy as jnp, rbd_jax as rbd
f = jax.jit(jax.vmap(rbd.lanes(lambda x: jnp.sin(x), strict=True)))
kept = f.lower(jnp.ones(9)).compile()
for name in ("xla._kernel_registry", "cpu._cpu_kernels"):
    vars(sys.modules[f"rbd_jax.lanes.{name}"]).clear()  # as at the end of Python
gc.collect()
del kept, f
jax.clear_caches()
gc.collect()
"""


def test_an_executable_may_go_after_the_module():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
