"""The functions that become PTX, run on the CPU: a loop stands in for the threads."""

import ctypes

import jax
import numpy as np

from rbd_jax.lanes import _machine, _ptx
from rbd_jax.lanes._read import read_program


def program(f, *args, shared=()):
    """The program of a function of one sample; ``shared`` says which arguments all have alike."""
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(f(*xs)))(*args)
    flags = [k in shared for k, x in enumerate(args) for _ in jax.tree.leaves(x)]
    return read_program(closed, flags)


def _loop(f: _ptx.Functions) -> str:
    """A loop over all samples, with the tables of pointers as arguments."""
    loads = []
    for x in f.pointers:
        table, k = x.split(".")
        loads.append(f"  %at{x[1:]} = getelementptr ptr, ptr {table}, i64 {k}")
        loads.append(f"  {x} = load ptr, ptr %at{x[1:]}")
    given = ", ".join(f"ptr {x}" for x in [*f.pointers, "%shared"])
    lines = "\n".join(loads)
    return f"""
define void @run(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %n) nounwind {{
entry:
{lines}
  call void @prologue({given})
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


def run(made, shapes, count, *args, shared=()):
    """Results of functions for many samples, in the layout and by the code of a GPU.

    Arguments have a leading axis of samples, except those that are ``shared``.
    """
    code = _machine.load(_machine.compile(made.text + _loop(made), 1))
    inputs = []
    for k, x in enumerate(args):
        for y in map(np.asarray, jax.tree.leaves(x)):
            y = y if k in shared else np.moveaxis(y, 0, -1)
            inputs.append(np.array(y, order="C"))
    outputs = [np.full((*s.shape, count), 77, s.dtype) for s in shapes]
    memory = [np.empty(n + 64, np.uint8) for n in (made.shared_bytes, made.scratch_bytes)]
    starts = [-(-x.ctypes.data // 64) * 64 for x in memory]
    tables = [(ctypes.c_void_p * max(len(xs), 1))(*(x.ctypes.data for x in xs))
              for xs in (inputs, outputs)]  # fmt: skip
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)
    kind(code.address("run"))(*tables, *starts, count)
    return [np.moveaxis(x, -1, 0) for x in outputs]
