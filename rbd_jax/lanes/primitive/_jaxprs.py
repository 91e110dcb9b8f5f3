"""Tools for jaxprs: evaluate chosen equations, inline calls, and group the rest in programs."""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from jax.extend import core as jcore

from .._jax_internals import closed_jaxpr, jaxpr_and_consts, literal, new_variable
from ._primitive import Program, bind, lanes_p

_CALLS = ("jit", "pjit", "closed_call", "remat2", "checkpoint", "custom_jvp_call",
          "custom_vjp_call")  # fmt: skip
VIEWS = ("reshape", "squeeze", "transpose", "broadcast_in_dim", "slice", "copy", "rev", "split",
         "expand_dims", "stop_gradient", "stack", "unstack", "concatenate")  # fmt: skip


def _inner(closed) -> Iterable:
    """All equations of a jaxpr, those of calls included, but not those of loops."""
    for eqn in jaxpr_and_consts(closed)[0].eqns:
        yield eqn
        called = _called(eqn)
        if called is not None:
            yield from _inner(called)


def _called(eqn):
    """What a call calls, or None."""
    if eqn.primitive is lanes_p and not eqn.params["sizes"]:
        return eqn.params["program"].closed
    if eqn.primitive.name not in _CALLS:
        return None
    return next((eqn.params[n] for n in ("jaxpr", "call_jaxpr") if n in eqn.params), None)


def _flat(closed):
    """The same jaxpr with calls inlined."""
    return _with_inlined(closed, _everything, deep=True)


def _everything(eqn):
    """What a call calls, or what a primitive of this library stands for, or None."""
    called = _called(eqn)
    if called is None and hasattr(eqn.primitive, "expand") and eqn.primitive is not lanes_p:
        return eqn.params.get("closed") or _expanded(eqn)
    return called


def _with_inlined(closed, instead: Callable, deep: bool = False):
    """A jaxpr in which others stand instead of some equations; JAX traces nothing again.

    Args:
        closed: the jaxpr.
        instead: gives the jaxpr for an equation, or None where the equation stays.
        deep: ask for the equations of those jaxprs too.
    """
    jaxpr, consts = jaxpr_and_consts(closed)
    eqns: list = []
    values: dict = {}
    operands = [new_variable(v.aval) for v in jaxpr.invars]
    outs = _copied(jaxpr, consts, operands, instead, deep, eqns, values)
    return closed_jaxpr(closed, eqns, operands, outs, values)


def _copied(
    jaxpr, consts, operands: list, instead: Callable, deep: bool, eqns: list, values: dict
) -> list:
    """Append the equations of a jaxpr of these operands, and of what it calls; give its results.

    Constants become variables, whose values stand in ``values`` afterwards.
    """
    env = dict(zip(jaxpr.invars, operands, strict=True))
    for v, x in zip(jaxpr.constvars, consts, strict=True):
        env[v] = new_variable(v.aval)
        values[env[v]] = x
    for eqn in jaxpr.eqns:
        ins = [v if isinstance(v, jcore.Literal) else env[v] for v in eqn.invars]
        inlined = instead(eqn)
        if inlined is not None:
            again = instead if deep else _nothing
            outs = _copied(*jaxpr_and_consts(inlined), ins, again, deep, eqns, values)
        else:
            outs = [new_variable(v.aval) for v in eqn.outvars]
            eqns.append(eqn.replace(invars=ins, outvars=outs))
        env.update(zip(eqn.outvars, outs, strict=True))
    return [v if isinstance(v, jcore.Literal) else env[v] for v in jaxpr.outvars]


def _nothing(eqn) -> None:
    """Nothing stands instead of an equation."""


def _expanded(eqn):
    """What a primitive of this library stands for."""
    avals = (jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars)
    return jax.make_jaxpr(lambda *xs: eqn.primitive.expand(*xs, **eqn.params))(*avals)


def _part(closed, eqns: list, invars: list, outvars: list, values: dict):
    """Chosen equations of a jaxpr as one of their own; those of ``values`` are its constants."""
    used = {*_free(eqns, outvars)}.difference(invars)
    return closed_jaxpr(
        closed, eqns, invars, outvars, {v: x for v, x in values.items() if v in used}
    )


def _bound(eqn, ins) -> list:
    out = eqn.primitive.bind(*ins, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def _value(env: dict, atom):
    return literal(atom) if isinstance(atom, jcore.Literal) else env[atom]


def _run(eqns, env: dict, outvars) -> list:
    """Carry out equations; the values of outer variables stand in ``env``."""
    env = dict(env)
    for eqn in eqns:
        ins = [_value(env, v) for v in eqn.invars]
        env.update(zip(eqn.outvars, _bound(eqn, ins), strict=True))
    return [_value(env, v) for v in outvars]


def _free(eqns, outvars=()) -> list:
    """The variables that equations and outputs take from outside."""
    made = {v for e in eqns for v in e.outvars}
    used = [v for e in eqns for v in e.invars] + list(outvars)
    return list(dict.fromkeys(v for v in used if not isinstance(v, jcore.Literal)
                              and v not in made))  # fmt: skip


def _with_sources(eqns: list, wanted: Iterable, everything: list, again: Callable) -> list:
    """The equations, and those of their sources that are better computed again than stored.

    Args:
        eqns: the equations.
        wanted: variables that are read beside those that the equations read.
        everything: all equations, in their order.
        again: whether an equation is better computed again.
    """
    origin = {v: e for e in everything for v in e.outvars}
    chosen = {id(e) for e in eqns}
    waiting = [*_free(eqns), *(v for v in wanted if not isinstance(v, jcore.Literal))]
    while waiting:
        eqn = origin.get(waiting.pop())
        if eqn is not None and id(eqn) not in chosen and again(eqn):
            chosen.add(id(eqn))
            waiting += [v for v in eqn.invars if not isinstance(v, jcore.Literal)]
    return [e for e in everything if id(e) in chosen]


def _bytes(variables) -> int:
    return sum(math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in variables)


def _grouped(closed, name: str) -> Callable:
    """A function that carries out a jaxpr with as few programs as possible.

    Equations that are in lanes already stay. The others are collected between them.
    """
    jaxpr, tables = jaxpr_and_consts(closed)
    eqns, level, levels = list(jaxpr.eqns), {}, {}
    for e in eqns:
        at = max((level.get(v, 0) for v in e.invars if not isinstance(v, jcore.Literal)), default=0)
        at += (at % 2 == 0) if e.primitive is lanes_p else at % 2
        level.update(dict.fromkeys(e.outvars, at))
        levels.setdefault(at, []).append(e)
    steps = []
    fixed = dict(zip(jaxpr.constvars, tables, strict=True))
    for at in sorted(levels):
        if at % 2:
            steps.append((None, levels[at], [], [v for e in levels[at] for v in e.outvars]))
            continue
        others = [e for k in levels if k != at for e in levels[k]]
        mine = levels[at]
        made = {v for e in mine for v in e.outvars}
        outside = [v for e in others for v in e.invars if not isinstance(v, jcore.Literal)]
        outs = [v for v in dict.fromkeys((*outside, *(v for v in jaxpr.outvars
                if not isinstance(v, jcore.Literal)))) if v in made]  # fmt: skip
        free = [v for v in _free(mine) if v not in fixed]
        program = Program(_part(closed, mine, free, outs, fixed), f"{name}.part", False)
        program.may_fission = False  # what is left is not split again
        steps.append((program, [], free, outs))

    def carried_out(*args):
        env = fixed | dict(zip(jaxpr.invars, args, strict=True))
        for program, given, free, outs in steps:
            if program is None:
                env |= dict(zip(outs, _run(given, env, outs), strict=True))
            elif outs:
                found = bind(program, [jnp.asarray(env[v]) for v in free])
                env |= dict(zip(outs, found, strict=True))
        return [jnp.asarray(_value(env, v)) for v in jaxpr.outvars]

    return carried_out
