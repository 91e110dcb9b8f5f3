"""Calls of LAPACK in a compiled program that do not wait for each other."""

import itertools
import re
from collections.abc import Callable

import jax

_CALLED = r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.-]+)"


def independent_calls(f: Callable, *args) -> list[tuple[str, str]]:
    """Pairs of instructions of ``jit(f)`` that call LAPACK, neither of which needs the other."""
    computations, rows = {}, {}
    program = jax.jit(f).lower(*args).compile().as_text() or ""
    for line in program.splitlines():
        if start := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            rows = computations[start[1]] = {}
        elif row := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = (.*)", line):
            rows[row[1]] = row[2]

    def calls(text: str) -> bool:
        inside = re.findall(_CALLED, text)
        for branches in re.findall(r"branch_computations=\{([^}]*)\}", text):
            inside += re.findall(r"[\w.-]+", branches)
        rows = [computations.get(name, {}).values() for name in inside]
        own = re.search(r'custom_call_target="(lapack|blas)_', text)
        return bool(own) or any(calls(row) for row in itertools.chain(*rows))

    pairs = []
    for rows in computations.values():
        needed = {}
        for name, text in rows.items():  # operands come first
            direct = set(re.findall(r"%([\w.-]+)", text)) & needed.keys()
            needed[name] = direct.union(*(needed[x] for x in direct))
        found = [name for name, text in rows.items() if calls(text)]
        pairs += [(x, y) for x, y in itertools.combinations(found, 2) if x not in needed[y]]
    return pairs
