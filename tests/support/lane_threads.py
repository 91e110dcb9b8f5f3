"""The functions that become PTX, run on the CPU.

A loop stands in for the threads of samples, threads of the CPU for those of the prologue.
"""

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from rbd_jax.lanes.frontend._read_program import read_program
from rbd_jax.lanes.gpu import _ptx
from rbd_jax.lanes.llvm import _compiler


def program(f, *args, shared=()):
    """The program of a function of one sample; ``shared`` says which arguments all have alike."""
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(f(*xs)))(*args)
    flags = [k in shared for k, x in enumerate(args) for _ in jax.tree.leaves(x)]
    return read_program(closed, flags)


def _loop(f: _ptx.Functions) -> str:
    """Both functions with the tables of pointers as arguments, the second one for all samples."""
    loads = []
    for x in f.pointers:
        table, k = x.split(".")
        loads.append(f"  %at{x[1:]} = getelementptr ptr, ptr {table}, i64 {k}")
        loads.append(f"  {x} = load ptr, ptr %at{x[1:]}")
    given = ", ".join(f"ptr {x}" for x in [*f.pointers, "%shared"])
    lines = "\n".join(loads)
    return f"""
@barrier = global ptr null
define internal void @lanes.barrier() noinline nounwind {{
  %wait = load ptr, ptr @barrier
  call void %wait()
  ret void
}}
define void @first(ptr %args, ptr %rets, ptr %shared, i64 %thread, i64 %threads) nounwind {{
entry:
{lines}
  call void @prologue({given}, i64 %thread, i64 %threads)
  ret void
}}
define void @second(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %n) nounwind {{
entry:
{lines}
  br label %look
look:
  %sample = phi i64 [ 0, %entry ], [ %next, %work ]
  %more = icmp slt i64 %sample, %n
  br i1 %more, label %work, label %done
work:
  call void @sample({given}, ptr %scratch, i64 %n, i64 %sample)
  %next = add i64 %sample, 1
  br label %look
done:
  ret void
}}
"""


def functions(f, *args, shared=()):
    """The functions of a thread for samples of arguments with a leading axis, see :func:`run`."""
    one = [x if k in shared else jax.tree.map(lambda y: y[0], x) for k, x in enumerate(args)]
    shapes = jax.tree.leaves(jax.eval_shape(f, *one))
    return _ptx.functions(program(f, *one, shared=shared)), shapes


def run(made, shapes, count, *args, shared=(), threads=1):
    """Results of functions for many samples, in the layout and by the code of a GPU.

    Arguments have a leading axis of samples, except those that are ``shared``. So many threads
    compute the prologue.
    """
    code = _compiler.load(made.text + _loop(made), opt=1)
    inputs = []
    for k, x in enumerate(args):
        for y in map(np.asarray, jax.tree.leaves(x)):
            y = y if k in shared else np.moveaxis(y, 0, -1)
            inputs.append(np.array(y, order="C"))
    outputs = [np.full((*s.shape, count), 77, s.dtype) for s in shapes]
    memory = [np.full(n + 64, 77, np.uint8) for n in (made.shared_bytes, made.scratch_bytes)]
    starts = [-(-x.ctypes.data // 64) * 64 for x in memory]
    tables = [(ctypes.c_void_p * max(len(xs), 1))(*(x.ctypes.data for x in xs))
              for xs in (inputs, outputs)]  # fmt: skip
    barrier = threading.Barrier(threads)
    wait = ctypes.CFUNCTYPE(None)(lambda: barrier.wait(60) and None)
    ctypes.c_void_p.from_address(code.address("barrier")).value = ctypes.cast(
        wait, ctypes.c_void_p
    ).value
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    first = ctypes.CFUNCTYPE(None, *[pointer] * 3, number, number)(code.address("first"))
    second = ctypes.CFUNCTYPE(None, *[pointer] * 4, number)(code.address("second"))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda k: first(*tables, starts[0], k, threads), range(threads)))
    second(*tables, *starts, count)
    return [np.moveaxis(x, -1, 0) for x in outputs]
