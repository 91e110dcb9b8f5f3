"""Loop fission: a long loop of one sample becomes several, most of whose rounds run in lanes.

A rollout is a loop whose rounds wait for each other. Most operations of a round do not: on the way
back through a rollout all states are known, and only the cotangents of the state pass from one
round to the next. Such a loop is split into three programs:

1. what does not depend on the carry (*ahead*), of all rounds at once, in lanes;
2. the loop of what the carry needs (*core*), with a kernel of one sample;
3. what depends on the carry, but what no later round needs (*after*), of all rounds in lanes.
   Sums over the rounds belong to it, such as the cotangents of the robot's parameters.

What needs neither the carry nor the rows of the loop is computed once, before the loop.
What depends on no operand is a table, which each of the programs makes for itself.
A loop inside the loop is split in the same way, with regard to the outer carry.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core as jcore

from .._jax_internals import jaxpr_and_consts, literal, scan_counts
from .._progress import phase
from ._jaxprs import (
    VIEWS,
    _bytes,
    _flat,
    _free,
    _grouped,
    _inner,
    _part,
    _run,
    _value,
    _with_inlined,
    _with_sources,
)
from ._min_cut_remat import rematerialized
from ._primitive import LARGEST, Program, bind, lanes_p

SHORTEST = 16
"""A loop is split if it has so many rounds or more."""
MOST_BYTES = 2**26
"""So much may be handed from one of the three programs to the next."""
_LOOPS = ("scan", "while")


def fission(program: Program) -> Callable | None:
    """The same function as several programs, or None if no loop of it is worth that."""
    if not program.may_fission:
        return None
    if "fission" not in program.derived:
        program.derived["fission"] = _fission(program)
    return program.derived["fission"]


def _fission(program: Program) -> Callable | None:
    if not any(_is_candidate(e) for e in _inner(program.closed)):
        return None
    split = _Fission(program.name)
    with phase("trace"):
        found = split.run(_flat(program.closed))
    return _grouped(found, program.name) if split.count else None


def _is_candidate(eqn) -> bool:
    return eqn.primitive.name == "scan" and eqn.params["length"] >= SHORTEST and _nested(eqn)


def _nested(eqn) -> bool:
    """Whether there are loops in a loop."""
    return any(e.primitive.name in _LOOPS for e in _inner(eqn.params["jaxpr"]))


class _Parts(NamedTuple):
    once: list
    ahead: list
    core: list
    after: list
    sums: dict
    """Number of a carry that only collects a sum -> what each round adds: variables, or tuples of
    a variable and the place in the sum where it belongs."""

    @property
    def worth(self) -> bool:
        """Whether enough can leave the loop."""
        loops = (*_LOOPS, lanes_p.name)
        return any(e.primitive.name in loops for e in (*self.ahead, *self.after))


class _Cut(NamedTuple):
    """The three parts of a loop, as equations of its body, and the variables between them."""

    body: Any
    once: list
    made: list
    """What *once* hands on."""
    ahead: list
    handed: list
    """What *ahead* hands on."""
    core: list
    of_core: list
    """What *core* reads."""
    kept: list[int]
    """The numbers of the carries that stay, of which ``carried`` are the variables at the start of
    a round and ``new`` those at its end."""
    carried: list
    new: list
    wanted: list
    """What *core* hands on."""
    after: list
    results: list
    sums: dict


class _Fission:
    """Follows a jaxpr and splits its loops."""

    def __init__(self, name: str):
        self.name, self.count = name, 0

    def run(self, closed):
        """A jaxpr whose long loops are split."""
        return _with_inlined(closed, self._loop)

    def _loop(self, eqn):
        if not _is_candidate(eqn):
            return None
        found = self._scan(eqn, [False] * len(eqn.invars), [False] * len(eqn.outvars))
        self.count += found is not None
        return found

    def _scan(self, eqn, waits: list[bool], needed: list[bool]):
        """A loop in three parts, or None. ``waits``: inputs that depend on the carry of the loop
        around this one; ``needed``: outputs that it needs."""
        cut = self._cut(eqn, waits, needed)
        if cut is None:
            return None
        avals = [v.aval for v in eqn.invars]
        return jax.make_jaxpr(lambda *args: self._carried_out(eqn, cut, args))(*avals)

    def _cut(self, eqn, waits: list[bool], needed: list[bool]) -> "_Cut | None":
        """What each of the three parts computes, and what it hands on, or None."""
        nc, nk = scan_counts(eqn.params)
        body = self._inside(_flat(eqn.params["jaxpr"]), nc, nk, waits, needed)
        jaxpr = jaxpr_and_consts(body)[0]
        eqns = list(jaxpr.eqns)
        found = _sorted(jaxpr, nc, nk, waits, needed)
        if not found.worth:
            return None
        tables = _tables(jaxpr)

        def again(eqn) -> bool:
            return eqn.primitive.name in VIEWS or id(eqn) in tables

        kept = [k for k in range(nk) if k not in found.sums]
        carried = [jaxpr.invars[nc + k] for k in kept]
        new = [jaxpr.outvars[k] for k in kept]
        first = set(map(id, found.once))
        once = [e for e in eqns if id(e) in first and id(e) not in tables]
        made = [v for e in once for v in e.outvars]
        once = _with_sources(once, (), eqns, lambda e: id(e) in tables)
        ys = jaxpr.outvars[nk:]
        results = [v for v in (*ys, *_terms(found.sums)) if not isinstance(v, jcore.Literal)]
        core = _with_sources(found.core, new, eqns, again)
        chosen = rematerialized(found.after, results, [*found.ahead, *found.core])
        after = [e for e in eqns if id(e) in chosen]
        after = _with_sources(after, results, eqns, lambda e: id(e) in tables)
        by_core = {v for e in found.core for v in e.outvars}.union(carried)
        wanted = [v for v in _free(after, results) if v in by_core]
        of_core = _free(core, [*new, *wanted])
        early = {v for e in found.ahead for v in e.outvars}
        handed = [v for v in dict.fromkeys((*of_core, *_free(after, results))) if v in early]
        if eqn.params["length"] * _bytes([*handed, *wanted]) > MOST_BYTES:
            return None
        ahead = _with_sources(found.ahead, handed, eqns, again)
        return _Cut(body, once, made, ahead, handed, core, of_core, kept, carried, new, wanted,
                    after, results, found.sums)  # fmt: skip

    def _carried_out(self, eqn, cut: "_Cut", args) -> list:
        """The outputs of a loop that has been cut."""
        (nc, nk), n = scan_counts(eqn.params), eqn.params["length"]
        jaxpr, tables = jaxpr_and_consts(cut.body)
        ins = [literal(v) if isinstance(v, jcore.Literal) else x
               for v, x in zip(eqn.invars, args, strict=True)]  # fmt: skip
        consts, start, rows = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
        fixed = dict(zip(jaxpr.constvars, tables, strict=True))
        fixed |= dict(zip(jaxpr.invars[:nc], consts, strict=True))
        fixed |= dict(zip(cut.made, _run(cut.once, fixed, cut.made), strict=True))
        each = dict(zip(jaxpr.invars[nc + nk :], rows, strict=True))
        each |= self._batched(cut.body, cut.ahead, cut.handed, fixed, each, n)

        free, known = self._operands(cut.of_core, fixed)
        core = _part(cut.body, cut.core, free, [*cut.new, *cut.wanted], known)
        program = Program(core, self.name, False)
        names = [v for v in free if v in each]

        def step(carry, row):
            env = fixed | dict(zip(cut.carried, carry, strict=True))
            env |= dict(zip(names, row, strict=True))
            out = bind(program, [jnp.asarray(env[v]) for v in free])
            return out[: len(cut.new)], out[len(cut.new) :]

        last, stacked = [], []
        if cut.kept:
            last, stacked = jax.lax.scan(
                step, [start[k] for k in cut.kept], [each[v] for v in names], length=n,
                reverse=eqn.params["reverse"],
            )  # fmt: skip
        each |= dict(zip(cut.wanted, stacked, strict=True))
        rest = [v for v in cut.results if v not in each and v not in fixed]
        each |= self._batched(cut.body, cut.after, rest, fixed, each, n)

        def all_rounds(v):
            if not isinstance(v, jcore.Literal) and v in each:
                return each[v]
            x = _value(fixed, v)
            return jnp.broadcast_to(x, (n, *jnp.shape(x)))

        out = dict(zip(cut.kept, last, strict=True))
        for k, terms in cut.sums.items():
            out[k] = start[k]
            for v in terms:
                if isinstance(v, tuple):
                    out[k] = _added_at(out[k], *map(all_rounds, v))
                else:
                    out[k] = out[k] + jnp.sum(all_rounds(v), 0)
        return [*(out[k] for k in range(nk)), *map(all_rounds, jaxpr.outvars[nk:])]

    def _inside(self, body, nc: int, nk: int, waits: list[bool], needed: list[bool]):
        """The body of a loop, with the loops in it split that are in the way."""
        jaxpr, tables = jaxpr_and_consts(body)
        found = _sorted(jaxpr, nc, nk, waits, needed)
        core = {id(e) for e in found.core}
        loops = [e for e in found.core if e.primitive.name == "scan" and _nested(e)]
        if not loops:
            return body
        depends = _depends(jaxpr, nc, nk, waits)
        wanted = {v for e in found.core for v in e.invars if not isinstance(v, jcore.Literal)}
        wanted |= {v for k, v in enumerate(jaxpr.outvars) if not isinstance(v, jcore.Literal)
                   and k not in found.sums and (k < nk or needed[k])}  # fmt: skip

        def split(eqn):
            if id(eqn) not in core or eqn.primitive.name != "scan" or not _nested(eqn):
                return None
            dependent = [not isinstance(v, jcore.Literal) and v in depends for v in eqn.invars]
            return self._scan(eqn, dependent, [v in wanted for v in eqn.outvars])

        return _with_inlined(body, split)

    def _batched(self, body, eqns: list, outvars: list, fixed: dict, rows: dict, n: int) -> dict:
        """The values of variables in all rounds, computed in lanes."""
        if not outvars:
            return {}
        free, known = self._operands(_free(eqns, outvars), fixed)
        ins = [rows[v] if v in rows else fixed[v] for v in free]
        single = _grouped(_part(body, eqns, free, outvars, known), self.name)
        axes = [0 if v in rows else None for v in free]
        out = jax.vmap(single, in_axes=axes, axis_size=n)(*ins)
        return dict(zip(outvars, out, strict=True))

    @staticmethod
    def _operands(variables: list, fixed: dict) -> tuple[list, dict]:
        """Which variables are operands of a program, and the values of those that are tables."""
        known = {v: fixed[v] for v in variables if v in fixed and _is_table(fixed[v])}
        return [v for v in variables if v not in known], known


def _is_table(x) -> bool:
    """Whether a value is known, and small enough to be part of the code."""
    return not isinstance(x, Tracer) and np.size(x) <= LARGEST


def _tables(jaxpr) -> set[int]:
    """The ids of the equations that depend on no operand. Each part computes for itself what it
    needs of them, so that their values are known while it is read."""
    known, found = set(jaxpr.constvars), set()
    for e in jaxpr.eqns:
        simple = e.primitive.name not in (*_LOOPS, lanes_p.name) and not e.effects
        small = all(math.prod(v.aval.shape) <= LARGEST for v in e.outvars)
        if simple and small and all(isinstance(v, jcore.Literal) or v in known for v in e.invars):
            known.update(e.outvars)
            found.add(id(e))
    return found


def _added_at(total, parts, *starts):
    """A sum with parts of it added at places that each part has of its own."""

    def add(total, row):
        part, *at = row
        here = jax.lax.dynamic_slice(total, at, part.shape)
        return jax.lax.dynamic_update_slice(total, here + part, at), None

    return jax.lax.scan(add, total, (parts, *starts))[0]


def _depends(jaxpr, nc: int, nk: int, waits: list[bool]) -> set:
    """The variables of a round that depend on its carry, or on what waits for another one."""
    found = {v for k, v in enumerate(jaxpr.invars) if nc <= k < nc + nk or waits[k]}
    for e in jaxpr.eqns:
        if any(v in found for v in e.invars if not isinstance(v, jcore.Literal)):
            found.update(e.outvars)
    return found


def _sorted(jaxpr, nc: int, nk: int, waits: list[bool], needed: list[bool]) -> _Parts:
    """Which part of a loop each equation of its body belongs to."""
    depends = _depends(jaxpr, nc, nk, waits)
    each = set(jaxpr.invars[nc + nk :])
    for e in jaxpr.eqns:
        if any(v in each for v in e.invars if not isinstance(v, jcore.Literal)):
            each.update(e.outvars)
    sums, collected = _sums(jaxpr, nc, nk, needed)
    wanted = {v for k, v in enumerate(jaxpr.outvars) if not isinstance(v, jcore.Literal)
              and k not in sums and (k < nk or needed[k])}  # fmt: skip
    alive = wanted | {v for v in (*jaxpr.outvars[nk:], *_terms(sums))
                      if not isinstance(v, jcore.Literal)}  # fmt: skip
    once, ahead, core, after = [], [], [], []
    for e in reversed(jaxpr.eqns):
        if any(v in collected for v in e.outvars):
            continue
        ins = [v for v in e.invars if not isinstance(v, jcore.Literal)]
        waiting = any(v in depends for v in ins)
        if waiting and any(v in wanted for v in e.outvars):
            core.append(e)
            wanted.update(ins)
        elif any(v in alive or v in wanted for v in e.outvars):
            (after if waiting else ahead if any(v in each for v in ins) else once).append(e)
        else:
            continue
        alive.update(ins)
    return _Parts(once[::-1], ahead[::-1], core[::-1], after[::-1], sums)


def _sums(jaxpr, nc: int, nk: int, needed: list[bool]) -> tuple[dict, set]:
    """The carries to which each round only adds, with what it adds, and the sums on the way."""
    uses: dict = {}
    for e in jaxpr.eqns:
        for v in e.invars:
            if not isinstance(v, jcore.Literal):
                uses[v] = uses.get(v, 0) + 1
    for v in jaxpr.outvars:
        if not isinstance(v, jcore.Literal):
            uses[v] = uses.get(v, 0) + 1
    origin = {v: e for e in jaxpr.eqns for v in e.outvars}
    found: dict[int, list] = {}
    steps: set = set()
    for k in (k for k in range(nk) if not needed[k]):
        at, before, added, on_the_way = jaxpr.outvars[k], jaxpr.invars[nc + k], [], set()
        while at is not before and not isinstance(at, jcore.Literal) and uses.get(at) == 1:
            e = origin.get(at)
            if e is None or e.primitive.name not in ("add", "add_any"):
                break
            more = [v for v in e.invars if _leads(v, before, origin)]
            rest = [v for v in e.invars if v not in more]
            if len(more) != 1 or len(rest) != 1 or rest[0].aval.shape != before.aval.shape:
                break
            if isinstance(rest[0], jcore.Literal):
                break
            on_the_way.add(at)
            update = origin.get(rest[0])
            if update is not None and update.primitive.name == "dynamic_update_slice":
                if not _is_zero(origin.get(update.invars[0])):
                    break
                on_the_way.add(rest[0])
                rest = [tuple(update.invars[1:])]
            at, added = more[0], [*added, rest[0]]
        if at is before and added and uses.get(at) == 1:
            found[k] = added
            steps |= on_the_way
    return found, steps


def _is_zero(eqn) -> bool:
    """Whether an equation makes an array of zeros."""
    if eqn is None or eqn.primitive.name != "broadcast_in_dim":
        return False
    x = eqn.invars[0]
    return isinstance(x, jcore.Literal) and not np.any(x.val)


def _terms(sums: dict) -> list:
    """The variables that sums add."""
    found = [v for vs in sums.values() for part in vs
             for v in (part if isinstance(part, tuple) else (part,))]  # fmt: skip
    return [v for v in dict.fromkeys(found) if not isinstance(v, jcore.Literal)]


def _leads(v, before, origin: dict) -> bool:
    """Whether a variable is another one with something added to it."""
    waiting = [v]
    while waiting:
        v = waiting.pop()
        if v is before:
            return True
        e = None if isinstance(v, jcore.Literal) else origin.get(v)
        if e is not None and e.primitive.name in ("add", "add_any"):
            waiting += e.invars
    return False
