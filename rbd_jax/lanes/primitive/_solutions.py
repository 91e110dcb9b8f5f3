"""Solutions: what a program has found by iterations is kept for its derivatives.

An equation that searches for its value, such as the accelerations of a contact step, may say how
derivatives go on from a value that is known: its parameter ``known`` is a function ``(value,
*operands) -> value`` with the derivatives of the equation, or None. A jaxpr with such equations,
in loops too, can be carried out so that it returns the solutions, or so that it takes them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core as jcore
from jax.extend.core import jaxpr_as_fun

from .._jax_internals import jaxpr_and_consts, lean_for, literal, scan_counts


class _Search(NamedTuple):
    """An equation that searches, as a function of its solution."""

    from_solution: Any
    """The jaxpr of ``(solution, operands) -> results``, as far as they are needed."""
    solution: list[int]
    """Which results of the equation it takes."""
    operands: list[int]
    """Which operands it takes."""
    results: list[int]
    """Which results it gives; nobody reads the others."""


class Searching:
    """A jaxpr, with the equations that search in it and in its loops."""

    def __init__(self, closed):
        self.closed = closed
        jaxpr = jaxpr_and_consts(closed)[0]
        used = {v for e in jaxpr.eqns for v in e.invars if not isinstance(v, jcore.Literal)}
        used.update(v for v in jaxpr.outvars if not isinstance(v, jcore.Literal))
        found = {id(e): _search(e, [v in used for v in e.outvars]) for e in jaxpr.eqns}
        self._parts = {k: x for k, x in found.items() if x is not None}
        self.size: int = sum(
            x.size if isinstance(x, Searching) else len(x.solution) for x in self._parts.values()
        )
        """The number of arrays that the solutions are."""

    def keep(self, *operands) -> tuple[list, list]:
        """The results and the solutions."""
        kept: list = []

        def instead(eqn, ins):
            part = self._parts.get(id(eqn))
            if part is None:
                return None
            if isinstance(part, Searching):
                results, more = part.keep_all(eqn, ins)
            else:
                results = bound(eqn, ins)
                more = [results[k] for k in part.solution]
            kept.extend(more)
            return results

        return evaluated(self.closed, operands, instead), kept

    def keep_all(self, eqn, ins: list) -> tuple[list, list]:
        """The results of a loop with this body, and the solutions of all rounds."""
        p, (nc, nk) = eqn.params, scan_counts(eqn.params)

        def step(carry, row):
            out, kept = self.keep(*ins[:nc], *carry, *row)
            return out[:nk], (out[nk:], kept)

        last, (each, kept) = jax.lax.scan(
            step, ins[nc : nc + nk], ins[nc + nk :], length=p["length"], reverse=p["reverse"]
        )
        return [*last, *each], kept

    def take(self, solutions: Sequence, *operands) -> list:
        """The results from the solutions, with the derivatives of the jaxpr."""
        left = list(solutions)

        def instead(eqn, ins):
            part = self._parts.get(id(eqn))
            if part is None:
                return None
            count = part.size if isinstance(part, Searching) else len(part.solution)
            mine, left[:] = left[:count], left[count:]
            if isinstance(part, Searching):
                return part.take_all(eqn, ins, mine)
            found = jaxpr_as_fun(part.from_solution)(*mine, *(ins[k] for k in part.operands))
            known = dict(zip(part.results, found, strict=True))
            return [known.get(k) for k in range(len(eqn.outvars))]

        return evaluated(self.closed, operands, instead)

    def take_all(self, eqn, ins: list, solutions: list) -> list:
        """The results of a loop with this body, from the solutions of all rounds."""
        p, (nc, nk) = eqn.params, scan_counts(eqn.params)

        def step(carry, row):
            row, mine = row
            out = self.take(mine, *ins[:nc], *carry, *row)
            return out[:nk], out[nk:]

        last, each = jax.lax.scan(
            step, ins[nc : nc + nk], (ins[nc + nk :], solutions), length=p["length"],
            reverse=p["reverse"],
        )  # fmt: skip
        return [*last, *each]


def _search(eqn, wanted: list[bool]) -> "_Search | Searching | None":
    """What an equation searches for, itself or in its rounds, or None."""
    if eqn.primitive.name == "scan":
        body = Searching(eqn.params["jaxpr"])
        return body if body.size else None
    known = _known(eqn)
    if known is None:
        return None
    n = len(eqn.outvars)
    avals = [v.aval for v in (*eqn.outvars, *eqn.invars)]
    whole = jax.make_jaxpr(lambda *xs: known(xs[:n], *xs[n:]))(*avals)
    lean, needed = lean_for(whole, wanted)
    solution = [k for k in range(n) if needed[k]]
    operands = [k for k in range(len(eqn.invars)) if needed[n + k]]
    return _Search(lean, solution, operands, [k for k in range(n) if wanted[k]])


def _known(eqn) -> Callable | None:
    """The parameter ``known`` of an equation, or of the one that a custom derivative stands for."""
    called = eqn.params.get("call_jaxpr")
    if called is None:
        return eqn.params.get("known")
    jaxpr, consts = jaxpr_and_consts(called)
    if len(jaxpr.eqns) != 1 or list(jaxpr.outvars) != list(jaxpr.eqns[0].outvars):
        return None
    inner = jaxpr.eqns[0]
    known = inner.params.get("known")
    if known is None:
        return None

    def of_operands(value, *operands):
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *operands), strict=True))
        ins = [literal(v) if isinstance(v, jcore.Literal) else env[v] for v in inner.invars]
        return known(value, *ins)

    return of_operands


def evaluated(closed, operands: Sequence, instead: Callable) -> list:
    """The results of a jaxpr; ``instead(eqn, ins)`` gives those of an equation, or None."""
    jaxpr, consts = jaxpr_and_consts(closed)
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *operands), strict=True))

    def read(v):
        return literal(v) if isinstance(v, jcore.Literal) else env[v]

    for eqn in jaxpr.eqns:
        ins = list(map(read, eqn.invars))
        out = instead(eqn, ins)
        env.update(zip(eqn.outvars, bound(eqn, ins) if out is None else out, strict=True))
    return list(map(read, jaxpr.outvars))


def bound(eqn, ins: list) -> list:
    """The results of an equation."""
    out = eqn.primitive.bind(*ins, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]
