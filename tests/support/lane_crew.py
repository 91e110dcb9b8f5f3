"""The functions that become PTX, run on a CPU: threads of a GPU are contexts of one CPU thread.

Contexts (``swapcontext`` of the C library) run one after the other until each waits for the
others. Then they go on in another random order, so that a thread that does not wait where it has
to reads what is not there yet, or what is not there any more.
"""

import ctypes
import random

import numpy as np

from rbd_jax.lanes.gpu import _ptx
from rbd_jax.lanes.llvm import _compiler

STACK = 2**17
_CONTEXT, _LINK, _STACK, _SIZE = 4096, 8, 16, 32  # bytes of ucontext_t, and offsets in it


def text(f: _ptx.Functions) -> str:
    """The LLVM text of the functions, and how a context begins in each of them."""

    def start(name: str, call: str) -> str:
        names = [*f.pointers, "%shared", "%scratch", "%n", "%sample", "%thread"]
        lines = [f"define void @{name}() nounwind {{", "  %table = load ptr, ptr @crew.table"]
        for k, x in enumerate(names):
            kind = "ptr" if k < len(names) - 3 else "i64"
            lines += [f"  %at.{k} = getelementptr i64, ptr %table, i64 {k}",
                      f"  {x} = load {kind}, ptr %at.{k}"]  # fmt: skip
        return "\n".join([*lines, f"  call void {call}", "  store i8 1, ptr @crew.done",
                          "  ret void", "}"])  # fmt: skip

    given = ", ".join(f"ptr {x}" for x in f.pointers)
    given += ", " if given else ""
    meet = "\n".join(
        f"""define internal void @lanes.meet.{kind}() noinline nounwind {{
  %own = load ptr, ptr @crew.own
  %main = load ptr, ptr @crew.main
  %status = call i32 @swapcontext(ptr %own, ptr %main)
  ret void
}}"""
        for kind in ("block", "team")
    )
    swaps = "\n".join(
        f"""define internal {kind} @lanes.swap.{name}({kind} %x, i64 %thread, i32 %d) noinline {{
  %far = zext i32 %d to i64
  %other = xor i64 %thread, %far
  %own.at = getelementptr i64, ptr @crew.slots, i64 %thread
  %other.at = getelementptr i64, ptr @crew.slots, i64 %other
  store {kind} %x, ptr %own.at
  call void @lanes.meet.team()
  %y = load {kind}, ptr %other.at
  call void @lanes.meet.team()
  ret {kind} %y
}}"""
        for kind, name in (("float", "f32"), ("double", "f64"), ("i32", "i32"), ("i64", "i64"))
    )
    return f"""{f.text}
@crew.slots = global [1024 x i64] zeroinitializer
@crew.own = global ptr null
@crew.main = global ptr null
@crew.table = global ptr null
@crew.done = global i8 0
declare i32 @swapcontext(ptr, ptr)
{meet}
{swaps}
{start("first", f"@prologue({given}ptr %shared, i64 %thread)")}
{start("second", f"@sample({given}ptr %shared, ptr %scratch, i64 %n, i64 %sample, i64 %thread)")}
"""


class Crew:
    """Runs the functions of a kernel."""

    def __init__(self, f: _ptx.Functions, opt: int = 1, seed: int = 0):
        self.functions, self._random = f, random.Random(seed)
        self._code = _compiler.load(text(f), opt=opt)
        self._c = ctypes.CDLL(None)
        self._main = np.zeros(_CONTEXT, np.uint8)
        self._stacks: list[np.ndarray] = []
        self._variable("main", ctypes.c_void_p).value = self._main.ctypes.data

    def _variable(self, name: str, kind):
        return kind.from_address(self._code.address(f"crew.{name}"))

    def prologue(self, pointers: list[int], shared: int) -> None:
        """Compute what all samples share."""
        self._run("first", [*pointers, shared, 0, 0, 0], _ptx.TOGETHER)

    def samples(self, pointers: list[int], shared: int, n: int) -> None:
        """Compute all samples, one after the other, in memory that holds odd numbers before."""
        scratch = np.full(self.functions.scratch_bytes + 128, 0x7B, np.uint8)
        at = -(-scratch.ctypes.data // 64) * 64
        for sample in range(n):
            self._run("second", [*pointers, shared, at, n, sample], self.functions.team)
        assert (scratch[at - scratch.ctypes.data + self.functions.scratch_bytes :] == 0x7B).all()

    def _run(self, entry: str, arguments: list[int], threads: int) -> None:
        address = self._code.address(entry)
        tables = [(ctypes.c_int64 * (len(arguments) + 1))(*arguments, k) for k in range(threads)]
        if threads == 1:
            self._variable("table", ctypes.c_void_p).value = ctypes.addressof(tables[0])
            ctypes.CFUNCTYPE(None)(address)()
            return
        contexts = [self._context(k, address) for k in range(threads)]
        done, waiting = self._variable("done", ctypes.c_int8), list(range(threads))
        table, own = (self._variable(x, ctypes.c_void_p) for x in ("table", "own"))
        main = ctypes.c_void_p(self._main.ctypes.data)
        while waiting:
            self._random.shuffle(waiting)
            still = []
            for k in waiting:
                done.value, table.value = 0, ctypes.addressof(tables[k])
                own.value = contexts[k].ctypes.data
                self._c.swapcontext(main, ctypes.c_void_p(own.value))
                if not done.value:
                    still.append(k)
            assert len(still) in (0, len(waiting)), "some threads wait for others that have ended"
            waiting = still

    def _context(self, k: int, address: int) -> np.ndarray:
        while len(self._stacks) <= k:
            self._stacks.append(np.empty(STACK, np.uint8))
        context = np.zeros(_CONTEXT, np.uint8)
        at, stack = context.ctypes.data, self._stacks[k]
        self._c.getcontext(ctypes.c_void_p(at))
        for offset, value in ((_LINK, self._main.ctypes.data), (_STACK, stack.ctypes.data),
                              (_SIZE, STACK)):  # fmt: skip
            ctypes.c_int64.from_address(at + offset).value = value
        self._c.makecontext(ctypes.c_void_p(at), ctypes.c_void_p(address), 0)
        return context
