"""The functions that become PTX, run on the CPU, see :mod:`.lane_crew`."""

import jax
import numpy as np

from rbd_jax.lanes.frontend._read_program import read_program
from rbd_jax.lanes.gpu import _ptx

from .lane_crew import GUARD, Crew


def program(f, *args, shared=()):
    """The program of a function of one sample; ``shared`` says which arguments all have alike."""
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(f(*xs)))(*args)
    flags = [k in shared for k, x in enumerate(args) for _ in jax.tree.leaves(x)]
    return read_program(closed, flags)


def functions(f, *args, shared=(), team=1):
    """The functions of a thread for samples of arguments with a leading axis, see :func:`run`."""
    one = [x if k in shared else jax.tree.map(lambda y: y[0], x) for k, x in enumerate(args)]
    shapes = jax.tree.leaves(jax.eval_shape(f, *one))
    return _ptx.functions(program(f, *one, shared=shared), team), shapes


def run(made, shapes, count, *args, shared=(), seed=0, watch=True):
    """Results of functions for many samples, in the layout and by the code of a GPU.

    Arguments have a leading axis of samples, except those that are ``shared``. Races of the threads
    are errors if one has to ``watch``, and ``seed`` is that of their order.
    """
    last = made.team == 1
    inputs = []
    for k, x in enumerate(args):
        for y in map(np.asarray, jax.tree.leaves(x)):
            y = np.moveaxis(y, 0, -1) if last and k not in shared else y
            inputs.append(np.array(y, order="C"))
    axes = [(*s.shape, count) if last else (count, *s.shape) for s in shapes]
    outputs = [np.full(a, 77, s.dtype) for a, s in zip(axes, shapes, strict=True)]
    size = made.shared_bytes
    memory = np.full(size + 2 * GUARD + 64, 77, np.uint8)
    shared_memory = -(-(memory.ctypes.data + GUARD) // 64) * 64
    begin = shared_memory - memory.ctypes.data
    pointers = [x.ctypes.data for x in (*inputs, *outputs)]
    crew = Crew(made, seed=seed, watch=watch)
    crew.prologue(pointers, shared_memory)
    assert (memory[:begin] == 77).all() and (memory[begin + size :] == 77).all()
    crew.samples(pointers, shared_memory, count)
    return [np.moveaxis(x, -1, 0) if last else x for x in outputs]
