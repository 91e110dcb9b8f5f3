"""Rules for scans, while loops and branches; loop-invariant operations move in front of a loop."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend import core as jcore

from .._jax_internals import closed_jaxpr, jaxpr_and_consts, scan_counts
from ..ir._access_analysis import captured, read_anywhere
from ..ir._blocks import Block, Op, Value, constant
from ._reader import Reader, dtype_of, rule
from ._uniformity import scan_carry, while_carry


def _like(v: Value, uniform: bool) -> Value:
    return Value(v.shape, v.dtype, uniform)


@rule("scan")
def _scan(r: Reader, eqn, *ins):
    p = eqn.params
    nc, nk = scan_counts(p)
    rows, ins = ins[nc + nk :], r.solid(ins[: nc + nk])
    consts, start = ins[:nc], ins[nc:]
    length, body, back = p["length"], p["jaxpr"], p["reverse"]
    outs = [v.aval for v in eqn.outvars]
    if length == 0:
        zero = [constant(np.zeros(a.shape, dtype_of(a))) for a in outs[nk:]]
        return [*start, *zero]
    uniform = scan_carry(p, [v.uniform for v in (*ins, *rows)])
    while True:  # as a rule once: constants that come to light may share more, nothing less
        carry = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
        each = [Value(v.shape[1:], v.dtype, v.uniform) for v in rows]
        block = r.block(body, [*consts, *carry, *each])
        now = [u and v.uniform for u, v in zip(uniform, block.outputs, strict=False)]
        if now == uniform:
            break
        uniform = now
    block.inputs = [*carry, *each]
    r.ops += hoist_invariants(block)
    spread = read_anywhere(block)
    rows = [r.solid([x])[0] if v in spread else x for v, x in zip(each, rows, strict=True)]
    uniform = [*uniform, *(v.uniform for v in block.outputs[nk:])]
    made = [Value(a.shape, dtype_of(a), u) for a, u in zip(outs, uniform, strict=True)]
    # the outputs of a loop without varying inputs are uniform, else its memory is each sample's own
    op = Op("scan", [*start, *rows], made,
            {"body": block, "carry": nk, "length": length, "reverse": back,
             "consts": list(consts)}, eqn)  # fmt: skip
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


def hoist_invariants(block: Block) -> list[Op]:
    """Take from the inside of a loop the operations that give the same in each round."""
    changing, found, kept = set(block.inputs), [], []
    for op in block.ops:
        ins = [*op.ins, *(v for inner in op.blocks for v in captured(inner))]
        if any(v in changing for v in ins):
            changing.update(op.outs)
            kept.append(op)
        else:
            found.append(op)
    block.ops = kept
    return found


@rule("while")
def _while(r: Reader, eqn, *ins):
    p, ins = eqn.params, r.solid(ins)
    nt, nb = p["cond_nconsts"], p["body_nconsts"]
    tests, consts, start = ins[:nt], ins[nt : nt + nb], ins[nt + nb :]
    first, second, consts = p["cond_jaxpr"], p["body_jaxpr"], list(consts)
    if first.out_avals[0].shape:
        first, second = _until_all_stop(first, second, nt)
        consts = [*tests, *consts]
    uniform = while_carry(p, [v.uniform for v in ins])
    while True:
        carry = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
        test = r.block(first, [*tests, *carry])
        body = r.block(second, [*consts, *carry])
        all_stop = test.outputs[0].uniform  # else a sample that has finished keeps its values
        now = [u and v.uniform and all_stop for u, v in zip(uniform, body.outputs, strict=True)]
        if now == uniform:
            break
        uniform = now
    test.inputs = body.inputs = carry
    test.keeps_inputs, body.keeps_inputs = True, not all_stop
    made = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
    ended = body.outputs[0].const if test.outputs[0] is carry[0] else None
    params = {"test": test, "body": body, "consts": [*tests, *consts]}
    params["once"] = ended is not None and not np.any(ended)
    op = Op("while", list(start), made, params, eqn)
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


def _until_all_stop(test, body, nt: int):
    """The test and the body of a loop that ``jax.vmap`` has mapped inside a sample.

    Its test has one flag for each row of the batch. The new loop runs as long as any row wants it,
    and a row that has finished keeps its values, as in JAX.
    """
    inside, before = test.in_avals[nt:], test.in_avals[:nt]

    def flags(xs):
        return eval_jaxpr(test.jaxpr, test.consts, *xs)[0]

    def any_runs(*xs):
        return jnp.any(flags(xs))

    def advance(*xs):
        tests, old = xs[:nt], xs[len(xs) - len(inside) :]
        on, new = flags([*tests, *old]), eval_jaxpr(body.jaxpr, body.consts, *xs[nt:])
        wide = [jnp.reshape(on, on.shape + (1,) * (x.ndim - on.ndim)) for x in old]
        return [jax.lax.select(jnp.broadcast_to(w, x.shape), y, x)
                for w, x, y in zip(wide, old, new, strict=True)]  # fmt: skip

    like = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (*before, *body.in_avals)]
    return (
        jax.make_jaxpr(any_runs)(*like[:nt], *like[len(like) - len(inside) :]),
        jax.make_jaxpr(advance)(*like),
    )


@rule("cond")
def _cond(r: Reader, eqn, which, *ins):
    branches = eqn.params["branches"]
    if which.const is not None:
        chosen = min(max(int(which.const), 0), len(branches) - 1)
        jaxpr, consts = jaxpr_and_consts(branches[chosen])
        return r.run(jaxpr, consts, list(ins))
    passed = _passed(branches)
    wanted = [k for k in range(len(eqn.outvars)) if k not in passed]
    outs = {k: ins[n] for k, n in passed.items()}
    if wanted:
        branches = [_with_outputs(b, wanted) for b in branches]
        choose = _branches if which.uniform else _choose
        avals = [eqn.outvars[k].aval for k in wanted]
        outs.update(zip(wanted, choose(r, eqn, branches, avals, which, ins), strict=True))
    return [outs[k] for k in range(len(eqn.outvars))]


def _passed(branches) -> dict[int, int]:
    """The results that are an operand, and which: every branch gives it, or nothing at all.

    Derivatives of branches hand on what one of them needs again, and arrays without numbers in
    them from the others.
    """
    found = [_given(jaxpr_and_consts(b)[0]) for b in branches]
    every = {}
    for k, each in enumerate(zip(*found, strict=True)):
        operands = {x for x in each if x != _NOTHING}
        if len(operands) == 1 and None not in operands:
            every[k] = operands.pop()
    return every


_NOTHING = "nothing"


def _given(jaxpr) -> list:
    """For each result of a branch: the number of an operand, ``_NOTHING``, or None."""
    origin = {v: e for e in jaxpr.eqns for v in e.outvars}
    operand = {v: k for k, v in enumerate(jaxpr.invars)}

    def of(v):
        if isinstance(v, jcore.Literal):
            return None
        if v in operand:
            return operand[v]
        eqn = origin.get(v)
        while eqn is not None and eqn.primitive.name == "broadcast_in_dim":
            eqn = origin.get(eqn.invars[0]) if not _is_literal(eqn.invars[0]) else None
        return _NOTHING if eqn is not None and eqn.primitive.name in _UNFILLED else None

    return list(map(of, jaxpr.outvars))


_UNFILLED = ("empty", "empty2")


def _is_literal(v) -> bool:
    return isinstance(v, jcore.Literal)


def _with_outputs(branch, wanted: list[int]):
    """A branch with some of its results."""
    inner, consts = jaxpr_and_consts(branch)
    if len(wanted) == len(inner.outvars):
        return branch
    known = dict(zip(inner.constvars, consts, strict=True))
    outvars = [inner.outvars[k] for k in wanted]
    return closed_jaxpr(branch, list(inner.eqns), inner.invars, outvars, known)


def _branches(r: Reader, eqn, branches, avals, which: Value, ins):
    """Samples that go the same way."""
    ins = r.solid(ins)
    blocks = [r.block(b, list(ins)) for b in branches]
    for block in blocks:
        block.inputs = []  # what comes from outside is not theirs to overwrite
    uniform = [all(b.outputs[k].uniform for b in blocks) for k in range(len(avals))]
    made = [Value(a.shape, dtype_of(a), u) for a, u in zip(avals, uniform, strict=True)]
    op = Op("cond", [which], made, {"branches": blocks, "consts": list(ins)}, eqn)
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


def _choose(r: Reader, eqn, branches, avals, which: Value, ins):
    """Samples that go different ways.

    Branches of few operations are computed by all, and each sample takes its own. The others are
    loops of no or one round, which are left out where no sample wants them.
    """
    small = [_work(jaxpr_and_consts(b)[0]) <= _LEAST for b in branches]
    outs = None
    for k in sorted(range(len(branches)), key=lambda k: not small[k]):
        if outs is None and small[k]:
            outs = r.run(*jaxpr_and_consts(branches[k]), list(ins))
            continue
        if outs is None:
            outs = [constant(np.zeros(a.shape, dtype_of(a))) for a in avals]
        here = _takes(r, which, k, len(branches))
        if small[k]:
            own = r.run(*jaxpr_and_consts(branches[k]), list(ins))
            outs = [r.map("select", here, x, y) for x, y in zip(outs, own, strict=True)]
        else:
            outs = r.inline(partial(_once, branches[k], len(outs)), here, *outs, *ins)
    return outs


_LEAST = 40
"""Operations on numbers and small arrays that cost no more than to ask whether they are needed."""


def _work(jaxpr) -> float:
    """How many operations there are; loops and calls of other programs are many.

    What follows from known numbers is none, such as the zeros that a branch gives where it has
    nothing to give.
    """
    count, known = 0, set()
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("scan", "while") or hasattr(eqn.primitive, "expand"):
            return np.inf
        if all(isinstance(v, jcore.Literal) or v in known for v in eqn.invars):
            known.update(eqn.outvars)
        else:
            count += 1 + sum(_work(x) for x in jcore.jaxprs_in_params(eqn.params))
    return count


def _takes(r: Reader, which: Value, k: int, count: int) -> Value:
    """Whether a sample takes the k-th branch; numbers beyond the ends take those."""
    if which.dtype.kind == "b":
        return r.map("eq", which, constant(np.bool_(k)), dtype=bool)
    compare = "le" if k == 0 else "ge" if k == count - 1 else "eq"
    return r.map(compare, which, constant(which.dtype.type(k)), dtype=bool)


def _once(branch, count: int, here, *xs):
    """``branch`` where it is taken, else the first ``count`` of the other arguments."""
    jaxpr, consts = jaxpr_and_consts(branch)

    def body(x):
        return jnp.zeros_like(x[0]), eval_jaxpr(jaxpr, consts, *xs[count:])

    return jax.lax.while_loop(lambda x: x[0], body, (here, list(xs[:count])))[1]
