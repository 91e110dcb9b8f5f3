"""The physical limit of a function: its floating-point operations over the peak of a core."""

import re
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.lanes import report

_FLOP = re.compile(r"= f(?:add|sub|mul|div) [a-z ]*<\d+ x (?:float|double)>")
_CALL = re.compile(r"call [^@]*<\d+ x (?:float|double)>[^@]*@([\w.]+)\(")
_LABEL = re.compile(r"^([\w.]+):")
_BACK = re.compile(r"br i1 [^,]+, label %([\w.]+), label ")
_LAST = re.compile(r"icmp ne i64 [^,]+, (-?\d+)")
_FIRST = re.compile(r"phi i64 \[ (-?\d+), ")


def flops(function: Callable, *args) -> int:
    """Floating-point operations of one sample of a batched function.

    They are counted in the code that lanes writes for a block of samples, each loop as often as it
    runs. Operations with constants 0 and 1 are not in it, nor is what all samples share. A fused
    product and sum are two operations, a division and a square root are one each.
    """
    total = 0
    for kernel in report(function, *args):
        bodies = dict(
            re.findall(r"^define [^@]*@([\w.]+)\(.*?\{\n(.*?)^\}", kernel.text, re.M | re.S)
        )
        counted: dict[str, int] = {}

        def count(name: str, bodies=bodies, counted=counted) -> int:
            if name not in bodies:
                return int("sqrt" in name or "fma" in name)
            if name not in counted:
                counted[name] = _count(bodies[name].splitlines(), count)
            return counted[name]

        total += count("block")
    return total


def _count(lines: list[str], called: Callable[[str], int]) -> int:
    """The operations of one function, loops included."""
    labels = {m[1]: k for k, line in enumerate(lines) if (m := _LABEL.match(line))}
    times = [1] * len(lines)
    for k, line in enumerate(lines):
        back = _BACK.search(line)
        if back and labels.get(back[1], k) < k:
            last, first = _LAST.search(lines[k - 1]), _FIRST.search(lines[labels[back[1]] + 1])
            if last is None or first is None:
                raise ValueError(f"a loop whose number of rounds is not known: {line}")
            rounds = abs(int(last[1]) - int(first[1])) + 1
            for n in range(labels[back[1]], k):
                times[n] *= rounds
    found = 0
    for line, n in zip(lines, times, strict=True):
        call = _CALL.search(line)
        found += n * (bool(_FLOP.search(line)) + (called(call[1]) if call else 0))
    return found


def peak(dtype: str, chains: int = 12, long: int = 64, rounds: int = 64) -> float:
    """Operations per second of one core in fused products and sums that stay in registers."""

    def one(x, a, b):
        def chained(x, _):
            rows = [x[k] for k in range(chains)]
            for _ in range(long):
                rows = [r * a + b for r in rows]
            return jnp.stack(rows), None

        return jax.lax.scan(chained, x, length=rounds)[0]

    batch = 256
    x, a, b = jnp.ones((batch, chains), dtype), *jnp.asarray([0.999, 0.001], dtype)
    run = jax.jit(jax.vmap(rbd.lanes(one, strict=True), (0, None, None)))
    times = []
    for _ in range(30):
        start = time.perf_counter()
        jax.block_until_ready(run(x, a, b))
        times.append(time.perf_counter() - start)
    return 2 * batch * chains * long * rounds / min(times)
