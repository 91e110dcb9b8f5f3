"""Uniformity analysis: which results of a jaxpr all samples share.

It is found before any operation is written down. A loop has to know it of what it carries, and its
inside may hold loops again: to read everything anew for each guess would take a time exponential in
their depth.
"""

from collections.abc import Callable

from jax.extend import core as jcore

from .._jax_internals import jaxpr_and_consts, scan_counts

_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def uniform_outputs(closed, shared: list[bool]) -> list[bool]:
    """Whether each output of a jaxpr is shared, if its inputs are or are not."""
    jaxpr, _ = jaxpr_and_consts(closed)
    known = dict(zip(jaxpr.invars, shared, strict=True))

    def read(atom) -> bool:
        return True if isinstance(atom, jcore.Literal) else known.get(atom, True)

    for eqn in jaxpr.eqns:
        ins = [read(v) for v in eqn.invars]
        rule = _RULES.get(eqn.primitive.name, _call)
        known.update(zip(eqn.outvars, rule(eqn, ins), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _call(eqn, ins: list[bool]) -> list[bool]:
    """A call is looked into; every other operation shares its results if it does all inputs."""
    inner = next((eqn.params[n] for n in _CALLS if n in eqn.params), None)
    if inner is not None and len(jaxpr_and_consts(inner)[0].invars) == len(ins):
        return uniform_outputs(inner, ins)
    return [all(ins)] * len(eqn.outvars)


def fixed_point(carry: list[bool], step: Callable[[list[bool]], list[bool]]) -> list[bool]:
    """What of a carry stays shared through all rounds."""
    while True:
        new = [a and b for a, b in zip(carry, step(carry), strict=True)]
        if new == carry:
            return carry
        carry = new


def scan_carry(params: dict, ins: list[bool]) -> list[bool]:
    """Which carries of a scan are shared."""
    nc, nk = scan_counts(params)
    consts, carry, rows = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
    return fixed_point(carry, lambda c: uniform_outputs(params["jaxpr"], [*consts, *c, *rows])[:nk])


def while_carry(params: dict, ins: list[bool]) -> list[bool]:
    """Which carries of a while loop are shared: none if the samples stop at different times."""
    nt, nb = params["cond_nconsts"], params["body_nconsts"]
    tests, consts, carry = ins[:nt], ins[nt : nt + nb], ins[nt + nb :]

    def step(c: list[bool]) -> list[bool]:
        (together,) = uniform_outputs(params["cond_jaxpr"], [*tests, *c])
        found = uniform_outputs(params["body_jaxpr"], [*consts, *c])
        return [together and x for x in found]

    return fixed_point(carry, step)


def _scan(eqn, ins: list[bool]) -> list[bool]:
    nc, nk = scan_counts(eqn.params)
    carry = scan_carry(eqn.params, ins)
    found = uniform_outputs(eqn.params["jaxpr"], [*ins[:nc], *carry, *ins[nc + nk :]])
    return [*carry, *found[nk:]]


def _cond(eqn, ins: list[bool]) -> list[bool]:
    found = [uniform_outputs(b, ins[1:]) for b in eqn.params["branches"]]
    return [ins[0] and all(xs) for xs in zip(*found, strict=True)]


_RULES = {"scan": _scan, "while": lambda e, ins: while_carry(e.params, ins), "cond": _cond}
