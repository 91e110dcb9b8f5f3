"""Screw theory: inverse dynamics in four representations of twists, Christoffel symbols."""

import math
import os
from functools import partial

import jax
import jax.numpy as jnp
from jax.extend import core

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.algorithms.formulations import formulation

from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race, ratio

ABOUT = (
    "The recursion of Müller §4 in each representation, the component form of the notes, and "
    "`rnea` and `inverse_dynamics` of the library (in body frames on a CPU, otherwise in the "
    "ground frame). Operations: floating-point operations of one evaluation, counted in the "
    "program for XLA (`RBD_JAX_LANES=0`) before the compiler, with loops times their length. "
    "Sums along the tree in the "
    "spatial and ground frames are products with the matrix of ancestors and are counted as "
    "such, although half of the matrix is zero. In the paper's units, for a chain of n joints: "
    "body-fixed has 3(n−1) frame transformations and 2n−1 Lie brackets; spatial has n frame "
    "transformations, n transformations of an inertia and 2n−1 brackets; hybrid has 3n−3 "
    "translations, n rotations, n rotations of an inertia and 3n−1 brackets. Christoffel "
    "symbols: by the library, by the closed forms (86) and (87) of Müller, by Vlasblom's "
    "recursion, and by forward-mode autodiff of the mass matrix. Times are medians, in µs per "
    "evaluation."
)

FUNCTIONS = {
    **{k: partial(screw.inverse_dynamics, representation=k) for k in screw.REPRESENTATIONS},
    "components": screw.component_inverse_dynamics,
    "rnea": rbd.rnea,
    "inverse_dynamics": rbd.inverse_dynamics,
}


def _by_autodiff(m: rbd.Model, q):
    """Vlasblom (1.15) with ∂M/∂q by autodiff, for joints of one degree of freedom."""
    dM = jax.jacfwd(lambda d: rbd.crba(m, rbd.integrate(m, q, d)))(jnp.zeros((m.nv,), q.dtype))
    return 0.5 * (dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, 2, 0))


CHRISTOFFEL = {
    "christoffel": rbd.christoffel,
    "christoffel_by_brackets": screw.christoffel_by_brackets,
    "christoffel_by_binet": screw.christoffel_by_binet,
    "vlasblom.christoffel": screw.vlasblom.christoffel,
    "autodiff_of_crba": _by_autodiff,
}

_FREE = {  # moves numbers about
    "broadcast_in_dim", "reshape", "slice", "concatenate", "squeeze", "transpose", "gather",
    "scatter", "dynamic_slice", "dynamic_update_slice", "convert_element_type", "copy", "rev",
    "expand_dims", "pad", "select_n", "split", "stop_gradient", "iota", "neg",
}  # fmt: skip


def operations(jaxpr: core.Jaxpr) -> int:
    """Floating-point operations of a program of known trip counts."""
    total = 0
    for eqn in jaxpr.eqns:
        name, out = eqn.primitive.name, eqn.outvars[0].aval
        inner = [x for x in eqn.params.values() if isinstance(x, core.Jaxpr | core.ClosedJaxpr)]
        if inner:
            body = getattr(inner[0], "jaxpr", inner[0])
            total += eqn.params.get("length", 1) * operations(body)
        elif name in _FREE or not jnp.issubdtype(getattr(out, "dtype", bool), jnp.floating):
            continue
        elif name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            depth = math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
            total += 2 * depth * math.prod(out.shape)
        elif name == "scatter-add":
            total += math.prod(eqn.invars[2].aval.shape)
        elif name.startswith("reduce"):
            total += math.prod(eqn.invars[0].aval.shape) - math.prod(out.shape)
        else:
            total += math.prod(out.shape)
    return total


def count(function, model: rbd.Model) -> int:
    """Operations of one inverse dynamics of the model, without external wrenches.

    They are those of the program for XLA, because a program for lanes is one operation to JAX.
    """
    q, v = (jnp.zeros((n,), model.dtype) for n in (model.nq, model.nv))
    os.environ["RBD_JAX_LANES"] = "0"
    with formulation("xla"):
        fresh = jax.make_jaxpr(lambda *x: function(*x))  # not a program that was traced before
        found = operations(fresh(model, q, v, v).jaxpr)
    os.environ.pop("RBD_JAX_LANES")
    return found


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float) -> None:
    """One row a representation."""
    model = load(name, dtype)
    s, one = states(model, batch), states(model, 1)
    single, batched = [], []
    for label, f in FUNCTIONS.items():
        x = (one.q[0], one.v[0], one.a[0])
        single.append(program(label, f, model, *x))
        batched.append(program(label, over_batch(f, 3), model, s.q, s.v, s.a, per=batch))
    race(*single, seconds=seconds)
    race(*batched, seconds=seconds)
    for f, a, b in zip(FUNCTIONS.values(), single, batched, strict=True):
        table.add(
            robot=name,
            representation=a.name,
            operations=count(f, model),
            single_call=a.median,
            in_a_batch=b.median,
            of_body_fixed=ratio(b, batched[0]),
        )


def compare_symbols(table: Table, name: str, dtype: str, batch: int, seconds: float) -> None:
    """One row a robot, one column a way to the Christoffel symbols."""
    model = load(name, dtype)
    q = states(model, batch).q
    made = [program(k, over_batch(f, 1), model, q, per=batch) for k, f in CHRISTOFFEL.items()]
    race(*made, seconds=seconds)
    table.add(robot=name, nv=model.nv, **{p.name: p.median for p in made})


def main(options) -> None:
    """Run the benchmark."""
    report = Report("representations", options, ABOUT)
    robots = options.robots or ["chain6", "chain30", "talos"]
    batch = options.batch or 512
    if options.tiny:
        robots, batch = ["chain6"], 8
    for dtype in options.dtypes:
        table = report.table(f"Inverse dynamics, {dtype}, batch {batch}, µs")
        for name in available(robots):
            compare(table, name, dtype, batch, options.seconds)
            report.write()
            jax.clear_caches()
        symbols = report.table(f"Christoffel symbols, {dtype}, batch {min(batch, 16)}, µs")
        for name in available(robots):
            compare_symbols(symbols, name, dtype, min(batch, 16), options.seconds)
            report.write()
    report.write()
