"""Primal reuse: derivatives take the states of loops from the results of a program.

The derivative of a rollout needs the state at the start of each round. A program that returns
these states has computed them already: its derivative takes them from the results, and no loop
computes them again, one round after the other. If a loop carries more than the program returns,
such as the warm start of a solver, a derivative takes them from further results. The same holds for
what is found by iterations in each round, so that no derivative searches for it again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core as jcore
from jax.extend.core import jaxpr_as_fun

from .._jax_internals import closed_jaxpr, is_perturbed, jaxpr_and_consts, scan_counts
from ._solutions import Searching, evaluated


class PrimalReuse(NamedTuple):
    """A program that begins each round of its loops with what the results say."""

    results: list[int]
    """The numbers of the results that it needs; those of ``complete`` if there are more."""
    function: Callable
    """``(operands, those results) -> results``: the same values and derivatives."""
    complete: Any = None
    """The jaxpr with further results, or None if the loops need no others."""


def reuse_primals(closed) -> PrimalReuse:
    """A program as a function of its operands and of those results that its loops begin with."""
    jaxpr, consts = jaxpr_and_consts(closed)
    held, further = _readable(jaxpr), []
    for eqn in jaxpr.eqns:
        if any(v in held for v in _states(eqn)):
            for v in (v for v in _states(eqn) if v not in held):
                held[v] = len(jaxpr.outvars) + len(further), lambda x: x
                further.append(v)
    loops = {id(e): [held[v] for v in _states(e)] for e in jaxpr.eqns
             if _states(e) and all(v in held for v in _states(e))}  # fmt: skip
    if not loops:
        return PrimalReuse([], lambda operands, _: jaxpr_as_fun(closed)(*operands))
    stacks = {id(e): [held.get(v) for v in e.outvars[scan_counts(e.params)[1] :]]
              for e in jaxpr.eqns if id(e) in loops}  # fmt: skip
    places = (p for found in (*loops.values(), *stacks.values()) for p in found)
    bodies = {id(e): Searching(e.params["jaxpr"]) for e in jaxpr.eqns if id(e) in loops}
    outvars = [*jaxpr.outvars, *further]
    solved, end = {}, len(outvars)
    for k, body in bodies.items():
        solved[k] = range(end, end := end + body.size)
    needed = sorted({p[0] for p in places if p is not None}.union(*solved.values()))

    def function(operands, results):
        values = dict(zip(needed, results, strict=True))

        def known(places):
            return [None if p is None else p[1](values[p[0]]) for p in places]

        def loop(eqn, ins):
            k = id(eqn)
            if k not in loops:
                return None
            solutions = [values[i] for i in solved[k]]
            return _scan(eqn, ins, known(loops[k]), known(stacks[k]), bodies[k], solutions)

        return evaluated(closed, operands, loop)

    if end == len(jaxpr.outvars):
        return PrimalReuse(needed, function)
    given = dict(zip(jaxpr.constvars, consts, strict=True))
    complete = closed_jaxpr(closed, jaxpr.eqns, jaxpr.invars, outvars, given)
    if end > len(outvars):
        complete = _with_solutions(complete, bodies)
    return PrimalReuse(needed, function, complete)


def _with_solutions(closed, bodies: dict[int, Searching]):
    """A jaxpr that also returns what its loops search for."""

    def function(*operands):
        solutions: list = []

        def loop(eqn, ins):
            if id(eqn) not in bodies:
                return None
            results, kept = bodies[id(eqn)].keep_all(eqn, ins)
            solutions.extend(kept)
            return results

        return [*evaluated(closed, operands, loop), *solutions]

    return jax.make_jaxpr(function)(*(v.aval for v in jaxpr_and_consts(closed)[0].invars))


def _states(eqn) -> list:
    """The stacked outputs of a loop that are its carries after each round; none if some lack."""
    if eqn.primitive.name != "scan":
        return []
    body, (_, nk) = jaxpr_and_consts(eqn.params["jaxpr"])[0], scan_counts(eqn.params)
    each = {v: out for v, out in zip(body.outvars[nk:], eqn.outvars[nk:], strict=True)
            if not isinstance(v, jcore.Literal)}  # fmt: skip
    states = [None if isinstance(v, jcore.Literal) else each.get(v) for v in body.outvars[:nk]]
    return [] if None in states else states


def _readable(jaxpr) -> dict:
    """What can be read off the results: variable -> number of a result, and where it lies there."""
    origin = {v: e for e in jaxpr.eqns for v in e.outvars}
    waiting = [(v, k, lambda x: x) for k, v in enumerate(jaxpr.outvars)]
    found: dict = {}
    while waiting:
        v, k, at = waiting.pop()
        if isinstance(v, jcore.Literal) or v in found:
            continue
        found[v] = k, at
        eqn = origin.get(v)
        if eqn is not None and (x := _passed_on(eqn, v)) is not None:
            waiting.append((x, k, at))
        if eqn is not None and eqn.primitive.name == "concatenate":
            axis, start = eqn.params["dimension"], 0
            for part in eqn.invars:
                end = start + part.aval.shape[axis]
                waiting.append((part, k, _part(at, start, end, axis)))
                start = end
    return found


def _passed_on(eqn, v):
    """The operand that an equation hands on as its result v, with other derivatives; or None."""
    if eqn.primitive.name == "stop_gradient":
        return eqn.invars[0]
    called = eqn.params.get("call_jaxpr")
    if eqn.primitive.name not in ("custom_jvp_call", "custom_vjp_call") or called is None:
        return None
    inner = jaxpr_and_consts(called)[0]
    out = inner.outvars[eqn.outvars.index(v)]
    given = dict(zip(inner.invars, eqn.invars, strict=True))
    return None if isinstance(out, jcore.Literal) else given.get(out)


def _part(at: Callable, start: int, end: int, axis: int) -> Callable:
    return lambda x: jax.lax.slice_in_dim(at(x), start, end, axis=axis)


def _scan(eqn, ins: list, after: list, stacked: list, body: Searching, solutions: list) -> list:
    """A loop whose carries after each round are known, with the solutions of its rounds, and some
    of its other stacked outputs."""
    p, (nc, nk) = eqn.params, scan_counts(eqn.params)
    consts, start, rows = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
    back = p["reverse"]
    before = [jnp.concatenate([x[1:], x0[None]] if back else [x0[None], x[:-1]])
              for x0, x in zip(start, after, strict=True)]  # fmt: skip

    def step(carry, row):
        known, mine, row = row
        carry = [_known_primal(x, y) for x, y in zip(carry, known, strict=True)]
        out = body.take(mine, *consts, *carry, *row)
        return out[:nk], out[nk:]

    rows = before, solutions, rows
    last, each = jax.lax.scan(step, start, rows, length=p["length"], reverse=back)
    each = [x if y is None else _known_primal(x, y) if is_perturbed(x) else y
            for x, y in zip(each, stacked, strict=True)]  # fmt: skip
    return [*last, *each]


@jax.custom_jvp
def _known_primal(x, known):
    """The known value of x, with the derivative of x."""
    return known


def _known_primal_jvp(primals, tangents):
    return primals[1], tangents[0]


_known_primal.defjvp(_known_primal_jvp, symbolic_zeros=True)
