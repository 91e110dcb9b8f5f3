"""How long a kernel takes on an NVIDIA GPU, estimated from its LLVM text and the batch.

The estimate needs no GPU. It counts how many instructions a thread issues: the text says how often
each loop runs, and the threads of a team divide the rounds of loops over elements among them. How
many samples a multiprocessor holds at a time follows from their memory on the chip and from the
registers of their threads. An instruction then takes ``waiting + sharing · w`` cycles, where w
warps share a scheduler: a warp waits for its own results, and for its turn.

The constants were fitted to times of an H200 (``python -m benchmarks gpu_model``, which states the
errors). Between most sizes of a team the differences are smaller than these errors. So the library
goes by a rule of thumb, and by this model only where the difference is large, see
``_gpu_kernels.SURE``.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from . import _ptx
from ._team import WARP

MULTIPROCESSORS, SCHEDULERS, THREADS = 132, 4, 2048
"""Of an H200: multiprocessors; the schedulers, and the most threads, of each of them."""
CLOCK, BANDWIDTH = 1.98e9, 2.87e12
"""Cycles a second, and bytes a second that copies of large arrays reach (``gpu``)."""
CACHE_BYTES = 50 * 2**20
"""The second cache, which all multiprocessors share."""
ROUNDS, SLOWEST = 2, 5
"""Rounds that loops with an unknown end are assumed to take: usually, and in the slowest sample.

Robots on the ground took 1.6 to 1.9 of Newton's steps, and one of 256 took 4 to 6. Inside such a
loop, another one is counted once.
"""


class Constants(NamedTuple):
    """What was fitted: cycles of an instruction."""

    waiting: float = 5.12
    """Cycles that a warp waits from one instruction to the next, however many others there are."""
    sharing: float = 2.09
    """Cycles that each warp of a scheduler adds, its own included."""
    far: float = 53.5
    """Cycles that an element of local memory adds where the second cache has no room for it."""


FITTED = Constants()

# --- counting -----------------------------------------------------------------------------


class Counts(NamedTuple):
    """What a thread does in one run of a function."""

    issued: float = 0.0
    """Instructions."""
    meetings: float = 0.0
    """How often it waits for the others of its team."""
    own: float = 0.0
    """Elements of its scratch that it reads or writes."""
    given: float = 0.0
    """Other elements: of operands, results, tables, and what all samples share."""
    a_round: float = 0.0
    """Instructions that another round of the loops with an unknown end takes."""


_FUNCTION = re.compile(r"^define [^@\n]*@([\w.]+)\((.*?)\)[^\n]*\{\n(.*?)^\}", re.M | re.S)
_NAME = re.compile(r"[%@][\w.]+")
_FREE = frozenset("zext sext trunc bitcast phi ret extractvalue insertvalue freeze".split())
"""What a GPU does inside another instruction, or not at all."""
_LONG = {"fdiv": 10.0, "udiv": 4.0, "urem": 4.0}
"""Operations that become several instructions; so many, about."""
_ROOT = 8.0
"""Instructions of a square root."""


def counts(text: str, name: str, threads: int) -> Counts:
    """What a thread of a function does.

    Both branches of a condition count, and so does what only some threads do.

    Args:
        text: LLVM text of the emitters, with all functions that it calls.
        name: of the function.
        threads: that divide loops over elements among them.
    """
    functions = {m[1]: (m[2], m[3]) for m in _FUNCTION.finditer(text)}
    done: dict[str, Counts] = {}

    def of(name: str) -> Counts:
        if name not in done:
            parameters, body = functions[name]
            called = {f: of(f) for f in functions if f != name and f"@{f}(" in body}
            own = {"%scratch"} & set(_NAME.findall(parameters))
            done[name] = _counted(body.splitlines(), own, threads, called)
        return done[name]

    return of(name)


def _counted(lines: list[str], own: set[str], threads: int, called: dict[str, Counts]) -> Counts:
    heads = _loops(lines, threads)
    ends = {end: head for head, (_, end) in heads.items()}
    products: set[str] = set()
    around = [("", 1.0, 0.0)]  # label of a loop, how often its inside runs, and more by a round
    total, block = [0.0] * len(Counts._fields), [0.0] * len(Counts._fields)
    for line in [*lines, "end:"]:
        if not line.endswith(":"):
            for k, x in enumerate(_instruction(line, own, products, called)):
                block[k] += x
            continue
        label, (head, times, more) = line[:-1], around[-1]
        total = [a + times * b for a, b in zip(total, block, strict=True)]
        total[-1] += more * block[0]
        block = [0.0] * len(total)
        if head and head == ends.get(label):
            around.pop()
        if label in heads:
            _, times, more = around[-1]
            rounds = heads[label][0]
            if rounds is not None:
                around.append((label, rounds * times, rounds * more))
            elif any(k.startswith("while") for k, *_ in around):
                around.append((label, times, more))
            else:
                around.append((label, ROUNDS * times, times))
    return Counts(*total)


def _loops(lines: list[str], threads: int) -> dict[str, tuple[float | None, str]]:
    """Label of the head of a loop -> how often it runs (None: nobody knows), label of its end."""
    first, limit, found, label = {}, {}, {}, ""
    for line in lines:
        if line.endswith(":"):
            label = line[:-1]
        elif " = phi " in line:  # the first one of a loop is the number of the round
            if label not in first and (m := re.search(r" = phi i\d+ \[ (\S+), ", line)):
                first[label] = m[1]
        elif " = icmp " in line:
            if m := re.match(r"  (%\S+) = icmp (?:ne|ult) i\d+ \S+, (\d+)$", line):
                limit[m[1]] = int(m[2])
        elif m := re.match(r"  br i1 (\S+), label %([a-z]+)(\d+), label %(\w+)", line):
            flag, kind, number, end = m.groups()
            if kind == "loop":
                head = kind + number
                found[head] = float(abs(limit[flag] - int(first[head])) + 1), end
            elif kind == "round":
                found[label] = float(-(-limit[flag] // threads)), end
            elif kind == "if":
                found[f"once{int(number) - 1}"] = 1.0, end
            elif kind == "do":
                found[f"while{int(number) - 1}"] = None, end  # labels are numbered in a row
    return found


def _instruction(line: str, own: set[str], products: set[str], called: dict[str, Counts]) -> tuple:
    """What one line is; ``own`` are pointers to scratch, ``products`` may be fused with a sum."""
    result, _, rest = line.strip().rpartition(" = ")
    operation, _, rest = rest.partition(" ")
    if operation in _FREE or not operation:
        return ()
    names = _NAME.findall(rest)
    if operation == "call":
        function = next((n[1:] for n in names if n[0] == "@"), "")
        if function in called:
            return called[function]
        if function.startswith("lanes.meet"):
            return Counts(issued=1, meetings=1)
        return Counts(issued=_ROOT if "sqrt" in function else bool(function))
    if operation in ("load", "store"):
        mine = names[0 if operation == "load" else -1] in own
        return Counts(issued=1, own=mine, given=not mine)
    if operation == "getelementptr":
        if names[0] in own:
            own.add(result)
        return (len(names) > 1,)  # a known distance is a part of the access
    if operation in ("fadd", "fsub"):
        return (not products.intersection(names),)
    if operation == "fmul":
        products.add(result)
    if operation == "br":
        return (rest.startswith("i1"),)
    return (_LONG.get(operation, 1.0),)


# --- time ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A kernel, as the model sees it."""

    team: int
    scratch_bytes: int
    moved_bytes: int
    """Of operands and results of a sample."""
    shared: Counts
    """Of a thread of the prologue."""
    sample: Counts
    """Of a thread of the body."""

    @property
    def block(self) -> int:
        """Samples of a block."""
        return _ptx.samples_of_block(self.scratch_bytes, self.team)

    @property
    def warps(self) -> int:
        """Warps of a block, the last of which may be a part of one."""
        return -(-self.block * self.team // WARP)

    @property
    def resident(self) -> int:
        """How many samples a multiprocessor holds at a time."""
        k, registers, blocks = self.block, _ptx.MOST, _ptx.BLOCKS
        if self.team > 1:
            registers = _ptx.registers_of_thread(self.scratch_bytes, self.team, k)
            blocks = _ptx.resident_blocks(self.scratch_bytes, self.team, k)
        most = min(_ptx.REGISTERS // (registers * WARP), THREADS // WARP) // self.warps
        return max(min(blocks, most), 1) * k


def work_of(made: _ptx.Functions, moved_bytes: int = 0) -> Work:
    """What the functions of a program do; ``moved_bytes`` are those of operands and results."""
    shared = counts(made.text, "prologue", _ptx.TOGETHER)
    sample = counts(made.text, "sample", made.team)
    return Work(made.team, made.scratch_bytes, moved_bytes, shared, sample)


def seconds(work: Work, samples: int, fitted: Constants = FITTED) -> float:
    """How long a kernel takes for so many samples, without its launch.

    If more samples are asked for than the multiprocessors hold, the others follow as room becomes
    free. At last, the slowest sample may be at work alone.
    """
    each = samples / MULTIPROCESSORS
    resident = min(max(each, 1.0), work.resident)
    turns = max(each / work.resident, 1.0)
    warps = max(resident / work.block * work.warps / SCHEDULERS, 1.0)
    alone = fitted.waiting + fitted.sharing
    cycles = turns * work.sample.issued * (fitted.waiting + fitted.sharing * warps)
    cycles += turns * _outside(work, samples) * work.sample.own * fitted.far
    cycles += (SLOWEST - ROUNDS) * work.sample.a_round * alone
    prologue = _ptx.TOGETHER / WARP / SCHEDULERS
    cycles += work.shared.issued * (fitted.waiting + fitted.sharing * prologue)
    return max(cycles / CLOCK, samples * work.moved_bytes / BANDWIDTH)


def _outside(work: Work, samples: int) -> float:
    """The share of the memory of the samples at work for which the second cache has no room."""
    if work.team > 1:  # it lies on the chip
        return 0.0
    local = min(samples, work.resident * MULTIPROCESSORS) * work.scratch_bytes
    return max(0.0, 1 - CACHE_BYTES / max(local, 1))
