"""The functions that become PTX, run on a CPU: threads of a GPU are contexts of one CPU thread.

Contexts (``swapcontext`` of the C library) run one after the other until each waits for the
others. Then they go on in another random order, so that a thread that does not wait where it has
to reads what is not there yet, or what is not there any more.

Not every race shows in this way, because each thread goes on alone until it waits. So accesses of
the memory that threads share are watched, too (:data:`WATCH`): between two meetings, no thread may
touch a byte that another one writes, unless both write the same number before they read it.
"""

import ctypes
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rbd_jax.lanes.gpu import _ptx
from rbd_jax.lanes.llvm import _compiler

STACK = 2**17
GUARD = 64
"""Bytes before and behind the memory of a team that nobody may write to."""
_CELL = 8 + 32 + 32
"""Bytes that are noted of each: the meeting, and who writes or reads it since then, a bit each."""
WATCH = f"""
%cell = type {{ i64, i256, i256 }}
@crew.begin = global i64 0
@crew.bytes = global i64 0
@crew.cells = global ptr null
@crew.meeting = global i64 0
@crew.races = global i64 0
@crew.race = global i64 0
@crew.slot = global i64 0
define internal void @crew.touch(ptr %at, i64 %size, i64 %thread, i1 %writes) noinline nounwind {{
  %address = ptrtoint ptr %at to i64
  %begin = load i64, ptr @crew.begin
  %bytes = load i64, ptr @crew.bytes
  %cells = load ptr, ptr @crew.cells
  %now = load i64, ptr @crew.meeting
  %first = sub i64 %address, %begin
  %far = icmp uge i64 %first, %bytes
  %number = zext i64 %thread to i256
  %own = shl i256 1, %number
  %others = xor i256 %own, -1
  br i1 %far, label %done, label %next
next:
  %k = phi i64 [ 0, %0 ], [ %following, %kept ]
  %offset = add i64 %first, %k
  %cell = getelementptr [{_CELL} x i8], ptr %cells, i64 %offset
  %writers.at = getelementptr i8, ptr %cell, i64 8
  %readers.at = getelementptr i8, ptr %cell, i64 40
  %before = load i64, ptr %cell, align 1
  %recent = icmp eq i64 %before, %now
  %writers.old = load i256, ptr %writers.at, align 1
  %readers.old = load i256, ptr %readers.at, align 1
  %writers = select i1 %recent, i256 %writers.old, i256 0
  %readers = select i1 %recent, i256 %readers.old, i256 0
  %wrote = and i256 %writers, %own
  %never = icmp eq i256 %wrote, 0
  %writers.other = and i256 %writers, %others
  %readers.other = and i256 %readers, %others
  %is.written = icmp ne i256 %writers.other, 0
  %is.read = icmp ne i256 %readers.other, 0
  %slot.at = getelementptr i8, ptr @crew.slot, i64 %k
  %byte.at = getelementptr i8, ptr %at, i64 %k
  %new = load i8, ptr %slot.at
  %old = load i8, ptr %byte.at
  %changes = icmp ne i8 %new, %old
  %clash = and i1 %is.written, %changes
  %bad.write = or i1 %clash, %is.read
  %bad.read = and i1 %is.written, %never
  %bad = select i1 %writes, i1 %bad.write, i1 %bad.read
  %more.writers = or i256 %writers, %own
  %more.readers = or i256 %readers, %own
  %writers.new = select i1 %writes, i256 %more.writers, i256 %writers
  %readers.read = select i1 %never, i256 %more.readers, i256 %readers
  %readers.new = select i1 %writes, i256 %readers, i256 %readers.read
  store i64 %now, ptr %cell, align 1
  store i256 %writers.new, ptr %writers.at, align 1
  store i256 %readers.new, ptr %readers.at, align 1
  br i1 %bad, label %race, label %kept
race:
  %count = load i64, ptr @crew.races
  %count.new = add i64 %count, 1
  store i64 %count.new, ptr @crew.races
  store i64 %offset, ptr @crew.race
  br label %kept
kept:
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, %size
  br i1 %more, label %next, label %done
done:
  ret void
}}
"""
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_CONTEXT, _LINK, _STACK, _SIZE = 4096, 8, 16, 32  # bytes of ucontext_t, and offsets in it


def text(f: _ptx.Functions) -> str:
    """The LLVM text of the functions, and how a context begins in each of them."""

    def start(name: str, call: str) -> str:
        names = [*f.pointers, "%shared", "%scratch", "%far", "%n", "%sample", "%thread"]
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
{start("second", f"@sample({given}ptr %shared, ptr %scratch, ptr %far, i64 %n, i64 %sample, i64 %thread)")}
"""


def watched(text: str) -> str:
    """The same text, in which all accesses of memory are watched."""
    head, *bodies = re.split(r"(?=define internal void @(?:prologue|sample)\()", text)

    def read(line: re.Match) -> str:
        kind, at = line[1], line[2]
        call = f"call void @crew.touch(ptr {at}, i64 {_BYTES[kind]}, i64 %thread, i1 false)"
        return f"  {call}\n{line[0]}"

    def write(line: re.Match) -> str:
        kind, x, at = line[1], line[2], line[3]
        call = f"call void @crew.touch(ptr {at}, i64 {_BYTES[kind]}, i64 %thread, i1 true)"
        return f"  store {kind} {x}, ptr @crew.slot\n  {call}\n{line[0]}"

    for k, body in enumerate(bodies):
        body, end, rest = body.partition("\n}\n")
        body = re.sub(r"^  %\S+ = load (\w+), ptr (%[^ ,\n]+).*$", read, body, flags=re.M)
        body = re.sub(r"^  store (\w+) ([^ ,]+), ptr (%[^ ,\n]+).*$", write, body, flags=re.M)
        bodies[k] = body + end + rest
    return WATCH + "".join([head, *bodies])


class Race(AssertionError):
    """Threads touched the same memory without a meeting in between."""


class Crew:
    """Runs the functions of a kernel.

    Args:
        f: the functions.
        opt: how much to optimize them.
        seed: of the order of the threads.
        watch: whether a race is an error, see :func:`watched`.
    """

    def __init__(self, f: _ptx.Functions, opt: int = 1, seed: int = 0, watch: bool = False):
        self.functions, self._random, self._watch = f, random.Random(seed), watch
        own = text(f)
        self._code = _compiler.load(watched(own) if watch else own, opt=opt)
        self._c = ctypes.CDLL(None)
        self._main = np.zeros(_CONTEXT, np.uint8)
        self._stacks: list[np.ndarray] = []
        self._variable("main", ctypes.c_void_p).value = self._main.ctypes.data

    def _variable(self, name: str, kind):
        return kind.from_address(self._code.address(f"crew.{name}"))

    def prologue(self, pointers: list[int], shared: int) -> None:
        """Compute what all samples share."""
        with self._watching(shared, self.functions.shared_bytes):
            self._run("first", [*pointers, shared, 0, 0, 0, 0], _ptx.TOGETHER)

    def samples(self, pointers: list[int], shared: int, n: int) -> None:
        """Compute all samples, one after the other, in memory that holds odd numbers before."""
        near = self.functions.scratch_bytes
        begin_far = -(-(near + GUARD) // 64) * 64 if self.functions.far_bytes else near
        size = begin_far + self.functions.far_bytes
        memory = np.full(size + 2 * GUARD + 64, 0x7B, np.uint8)
        at = -(-(memory.ctypes.data + GUARD) // 64) * 64
        for sample in range(n):
            with self._watching(at, size):
                given = [*pointers, shared, at, at + begin_far, n, sample]
                self._run("second", given, self.functions.team)
        begin = at - memory.ctypes.data
        assert (memory[:begin] == 0x7B).all(), "something was written before the memory"
        assert (memory[begin + size :] == 0x7B).all(), "something was written behind the memory"
        between = memory[begin + near : begin + begin_far]
        assert (between == 0x7B).all(), "something was written between both memories"

    @contextmanager
    def _watching(self, begin: int, size: int) -> Iterator[None]:
        if not self._watch:
            yield
            return
        cells = np.zeros(max(size, 1) * _CELL, np.uint8)
        for name, value in (("begin", begin), ("bytes", size), ("races", 0), ("meeting", 0),
                            ("cells", cells.ctypes.data)):  # fmt: skip
            self._variable(name, ctypes.c_int64).value = value
        yield
        races, race = (self._variable(x, ctypes.c_int64).value for x in ("races", "race"))
        if races:
            raise Race(f"threads race {races} times, at last for byte {race} of {size}")

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
            if self._watch:
                self._variable("meeting", ctypes.c_int64).value += 1
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
