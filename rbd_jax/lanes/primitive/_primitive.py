"""The JAX primitive: a program of one sample that every transformation passes through.

- ``vmap`` gives samples: batch axes are collected, operands without one are shared by all. Along
  an axis that only tangents have, the program itself is mapped instead, so that what they share
  is computed once.
- ``jvp`` is the same primitive of the program of the tangents, which is linear in them; its
  transpose is the primitive of the transposed program. What they need of the state is computed
  again inside instead of being stored.
- What it becomes on a platform is in ``_lowering``. Where that is a program for XLA, the function
  is traced again in the form that suits XLA, and the same transformations are applied to it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching
from jax.sharding import NamedSharding, PartitionSpec

from .._jax_internals import (
    cleared_by_jax,
    dead_code_eliminated,
    debugs_nans,
    jit_enabled,
    trace_context,
)
from .._progress import tracing
from ._primal_reuse import PrimalReuse, reuse_primals

Mapped = tuple[tuple[bool, ...], ...]
LARGEST = 4096
"""Elements of an array that becomes part of the code; larger ones are operands."""


Form = Literal["", "thread", "xla"]
"""For whom a function is traced: as its platform takes it, for one thread a sample of a GPU, or for
XLA. Functions may take other ways for each of them."""
tracing_for: ContextVar[Form] = ContextVar("tracing_for", default="")


@contextmanager
def traced_for(form: Form) -> Iterator[None]:
    """Trace functions in this form."""
    token = tracing_for.set(form)
    try:
        yield
    finally:
        tracing_for.reset(token)


class Program:
    """A traced function of one sample, with the programs and kernels that were derived from it.

    ``retrace`` traces the function once more, for :meth:`in_form`.
    """

    def __init__(
        self, closed, name: str, strict: bool, retrace: "Callable[[Form], Program] | None" = None
    ):
        self.closed, self.name, self.strict, self._retrace = closed, name, strict, retrace
        self.avals_in = [v.aval for v in closed.jaxpr.invars]
        self.avals_out = [v.aval for v in closed.jaxpr.outvars]
        self._derived: dict = {}
        self.may_fission = True
        """Whether its loops may be split into programs of their own."""

    @property
    def derived(self) -> dict:
        """What was derived from the program under JAX's settings of now, see ``trace_context``."""
        return self._derived.setdefault(trace_context(), {})

    def __call__(self, *args):
        return jaxpr_as_fun(self.closed)(*args)

    def derive(self, key: tuple, make: "Callable[[Program], Callable]", avals: list) -> "Program":
        """The program of a function that is made of this program, once for each key."""
        if key not in self.derived:

            def retrace(form: Form):
                return self.in_form(form).derive(key, make, avals)

            with tracing():
                closed = dead_code_eliminated(jax.make_jaxpr(make(self))(*avals))
            self.derived[key] = Program(closed, f"{self.name}.{key[0]}", self.strict, retrace)
        return self.derived[key]

    def in_form(self, form: Form) -> "Program":
        """The same function of the same operands, in another form."""
        if ("form", form) not in self.derived:
            with traced_for(form):
                self.derived["form", form] = self._retrace(form) if self._retrace else self
        return self.derived["form", form]


def _struct(aval) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


lanes_p = Primitive("lanes")
lanes_p.multiple_results = True


def bind(program: Program, operands: list) -> list:
    """Apply a program to one sample."""
    n = len(operands)
    operands = _alike(operands)
    return lanes_p.bind(*operands, program=program, sizes=(), mapped=((),) * n, linear=(False,) * n)


def _alike(operands: list) -> list:
    """Operands that vary over the same axes of a ``shard_map``."""
    vary = [jax.typeof(x).manual_axis_type.varying for x in operands]
    every = frozenset().union(*vary)
    return [jax.lax.pcast(x, tuple(every - v), to="varying") if v != every else x
            for x, v in zip(operands, vary, strict=True)]  # fmt: skip


def plain(*operands, program: Program, sizes, mapped: Mapped, linear):
    """The same by JAX's own means."""
    function: Callable = program
    for level in reversed(range(len(sizes))):
        axes = tuple(0 if m[level] else None for m in mapped)
        function = jax.vmap(function, in_axes=axes, axis_size=sizes[level])
    return function(*operands)


lanes_p.expand = plain  # pyright: ignore[reportAttributeAccessIssue]


@cleared_by_jax
@lru_cache(maxsize=256)
def _jitted(program, sizes, mapped, linear):
    params = {"program": program, "sizes": sizes, "mapped": mapped, "linear": linear}
    return jax.jit(lambda *operands: lanes_p.bind(*operands, **params))


@lanes_p.def_impl
def _impl(*operands, program, sizes, mapped, linear):
    params = {"program": program, "sizes": sizes, "mapped": mapped, "linear": linear}
    if not jit_enabled() or debugs_nans():  # operation by operation, so that JAX names the one
        return plain(*operands, **params)
    return _jitted(program, sizes, mapped, linear)(*operands)


@lanes_p.def_abstract_eval
def _abstract(*operands, program, sizes, mapped, linear):
    shapes = [ShapedArray((*sizes, *a.shape), a.dtype, weak_type=a.weak_type)
              for a in program.avals_out]  # fmt: skip
    around = next((x for x in operands if not x.sharding.mesh.empty), None)
    if around is None:
        return shapes
    batch = _mesh_axes(operands, sizes, mapped, program.name)
    return [
        a.update(
            sharding=NamedSharding(
                around.sharding.mesh, PartitionSpec(*batch, *[None] * (a.ndim - len(sizes)))
            ),
            manual_axis_type=around.manual_axis_type,
        )
        for a in shapes
    ]


def _mesh_axes(operands, sizes, mapped: Mapped, name: str) -> list:
    """Over which explicit axes of a mesh each batch axis is spread, as the operands say."""
    batch: list = [None] * len(sizes)
    for x, m in zip(operands, mapped, strict=True):
        spec = iter(x.sharding.spec)
        for level in (k for k, there in enumerate(m) if there):
            axis = next(spec)
            if axis is not None and batch[level] not in (None, axis):
                raise ValueError(
                    f"{name}: operands are spread over {batch[level]!r} and over {axis!r} along "
                    f"the same axis of the batch; bring them together with jax.sharding.reshard"
                )
            batch[level] = batch[level] or axis
        if any(axis is not None for axis in spec):
            raise ValueError(
                f"{name}: the operand {x.str_short(True)} is spread along an axis of one sample; "
                f"only axes of the batch can be, see jax.sharding.reshard"
            )
    return batch


# --- differentiation ------------------------------------------------------------


def _is_float(aval) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.floating)


def _jvp(primals, tangents, *, program: Program, sizes, mapped, linear):
    params = {"sizes": sizes, "mapped": mapped}
    moving = tuple(k for k, t in enumerate(tangents) if type(t) is not ad.Zero)
    floats = [k for k, a in enumerate(program.avals_out) if _is_float(a)]
    derives = bool(moving and floats)
    run = _complete(program) if derives else program
    out = lanes_p.bind(*primals, program=run, linear=linear, **params)
    rates = [ad.Zero(a.to_tangent_aval() if hasattr(a, "to_tangent_aval") else a) for a in
             map(jax.typeof, out[: len(program.avals_out)])]  # fmt: skip
    if derives:
        known = _primal_reuse(program).results
        derived = _tangent_program(program, moving, floats)
        flags = (False,) * (len(primals) + len(known)) + (True,) * len(moving)
        every = ((True,) * len(sizes),) * len(known)
        places = (*mapped, *every, *(mapped[k] for k in moving))
        found = lanes_p.bind(
            *primals, *(out[k] for k in known), *(tangents[k] for k in moving), program=derived,
            sizes=sizes, mapped=places, linear=flags,
        )  # fmt: skip
        for k, t in zip(floats, found, strict=True):
            rates[k] = t
    return out[: len(rates)], rates


def _complete(program: Program) -> Program:
    """The program that also returns what else the loops of its derivatives begin with."""
    complete = _primal_reuse(program).complete
    if complete is None:
        return program
    if "complete" not in program.derived:
        n, like = len(program.avals_out), [v.aval for v in complete.jaxpr.outvars]

        def retrace(form: Form):
            other = program.in_form(form)
            found = _primal_reuse(other).complete
            if found is not None and [v.aval for v in found.jaxpr.outvars] == like:
                return Program(found, f"{program.name}.complete", program.strict)
            more = [jnp.zeros(a.shape, a.dtype) for a in like[n:]]  # then nobody takes them
            closed = jax.make_jaxpr(lambda *x: [*other(*x), *more])(*map(_struct, other.avals_in))
            return Program(closed, f"{program.name}.complete", program.strict)

        name = f"{program.name}.complete"
        program.derived["complete"] = Program(complete, name, program.strict, retrace)
    return program.derived["complete"]


def _primal_reuse(program: Program) -> PrimalReuse:
    """The program as its derivatives see it."""
    if "primal reuse" not in program.derived:
        program.derived["primal reuse"] = reuse_primals(program.closed)
    return program.derived["primal reuse"]


def _tangent_program(program: Program, moving: tuple[int, ...], floats: list[int]) -> Program:
    """The derivative: a program of the operands, of some results, and of the tangents."""
    known, _, whole = _primal_reuse(program)
    n, m = len(program.avals_in), len(known)
    every = program.avals_out if whole is None else [v.aval for v in whole.jaxpr.outvars]

    def make(program: Program):
        needed, evaluate, complete = _primal_reuse(program)
        there = program.avals_out if complete is None else [v.aval for v in complete.jaxpr.outvars]

        def function(*args):
            primals, rates = list(args[:n]), args[n + m :]
            results = dict(zip(known, args[n : n + m], strict=True))

            def of_moving(*values):
                for k, x in zip(moving, values, strict=True):
                    primals[k] = x
                if results.keys() >= set(needed) and there == every:
                    out = evaluate(primals, [results[k] for k in needed])
                else:  # in another form, other results may be those of its loops
                    out = program(*primals)
                return [out[k] for k in floats]

            return jax.jvp(of_moving, tuple(primals[k] for k in moving), tuple(rates))[1]

        return function

    avals = [*program.avals_in, *(every[k] for k in known)]
    avals += [program.avals_in[k] for k in moving]
    return program.derive(("jvp", moving), make, list(map(_struct, avals)))


def _transpose(cts, *operands, program: Program, sizes, mapped, linear):
    wanted = tuple(k for k, x in enumerate(operands) if ad.is_undefined_primal(x))
    given = tuple(k for k, ct in enumerate(cts) if type(ct) is not ad.Zero)
    if not given:
        return [ad.Zero(x.aval) if k in wanted else None for k, x in enumerate(operands)]
    known = [k for k in range(len(operands)) if k not in wanted]

    def make(program: Program):
        def function(*args):
            values, rates = args[: len(known)], args[len(known) :]

            def of_wanted(*xs):
                everything: dict = dict(zip(known, values, strict=True))
                everything |= dict(zip(wanted, xs, strict=True))
                out = program(*(everything[k] for k in range(len(operands))))
                return [out[k] for k in given]

            like = (_struct(program.avals_in[k]) for k in wanted)
            return jax.linear_transpose(of_wanted, *like)(list(rates))

        return function

    avals = [_struct(program.avals_in[k]) for k in known]
    avals += [_struct(program.avals_out[k]) for k in given]
    derived = program.derive(("transpose", wanted, given), make, avals)
    every = (True,) * len(sizes)
    found = lanes_p.bind(
        *(operands[k] for k in known), *(cts[k] for k in given), program=derived, sizes=sizes,
        mapped=tuple(mapped[k] for k in known) + (every,) * len(given),
        linear=(False,) * len(known) + (True,) * len(given),
    )  # fmt: skip
    result: list = [None] * len(operands)
    for k, x in zip(wanted, found, strict=True):
        shared = tuple(level for level, m in enumerate(mapped[k]) if not m)
        result[k] = jnp.sum(x, axis=shared) if shared else x
    return result


# --- batches ----------------------------------------------------------------------


def _batch(operands, dims, *, program: Program, sizes, mapped, linear):
    there = [d is not None for d in dims]
    n = next(x.shape[d] for x, d, t in zip(operands, dims, there, strict=True) if t)
    only_tangents = all(f or not t for f, t in zip(linear, there, strict=True))
    if only_tangents and not all(linear):
        return _batch_inside(operands, dims, there, n, program, sizes, mapped, linear)
    front = [jnp.moveaxis(x, d, 0) if t else x
             for x, d, t in zip(operands, dims, there, strict=True)]  # fmt: skip
    mapped = tuple((t, *m) for t, m in zip(there, mapped, strict=True))
    out = lanes_p.bind(*front, program=program, sizes=(n, *sizes), mapped=mapped, linear=linear)
    return out, [0] * len(out)


def _batch_inside(operands, dims, there, n, program: Program, sizes, mapped, linear):
    """Many tangents of one state: the program is mapped over them, and stays one of one sample."""
    axes = tuple(0 if t else None for t in there)
    avals = [jax.ShapeDtypeStruct((n, *a.shape) if t else a.shape, a.dtype)
             for a, t in zip(program.avals_in, there, strict=True)]  # fmt: skip
    derived = program.derive(
        ("vmap", axes, n), lambda p: jax.vmap(p, in_axes=axes, axis_size=n), avals
    )
    moved = [jnp.moveaxis(x, d, sum(m)) if t else x
             for x, d, t, m in zip(operands, dims, there, mapped, strict=True)]  # fmt: skip
    out = lanes_p.bind(*moved, program=derived, sizes=sizes, mapped=mapped, linear=linear)
    return out, [len(sizes)] * len(out)


ad.primitive_jvps[lanes_p] = _jvp
ad.primitive_transposes[lanes_p] = _transpose
batching.primitive_batchers[lanes_p] = _batch
