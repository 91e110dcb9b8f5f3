"""Screw theory: inverse dynamics in four representations of twists, Christoffel symbols."""

import math
import os
from collections import Counter
from functools import partial
from pathlib import Path

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
    "such, although half of the matrix is zero. "
    "Calls: how often one inverse dynamics of a chain of n joints calls the operations in which "
    "the paper counts, read from the jaxpr: each equation knows the functions that wrote it. "
    "Paper: its formulas in §4. They are smaller by a number that does not grow with n, because "
    "the first body hangs on the world here as any other body does on its parent. Hybrid: a "
    "translation and the bracket with the rate of a lever are the same function, so that the "
    "3n−3 translations and 3n−1 brackets of the paper are counted together. Vectors: rotations "
    "and products of vectors of three numbers, of all calls and of the products with inertias, "
    "without those of poses and inertias. The paper counts no mixed twists. Start at joint k "
    "(Kim, §3.2): operations of the derivative along q_k alone, beyond those of the dynamics. "
    "Christoffel symbols: by the library, by the closed forms (86) and (87) of Müller, by "
    "Vlasblom's recursion, and by forward-mode autodiff of the mass matrix. Times are medians, in "
    "µs per evaluation."
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

    They are those of the program for XLA, see :func:`traced`.
    """
    q, v = (jnp.zeros((n,), model.dtype) for n in (model.nq, model.nv))
    return operations(traced(function, model, q, v, v))


TRANSFORMED, TURNED, INERTIA = "frame transformations", "rotations", "inertias"
BRACKETS = "brackets, translations"
ROTATIONS, PRODUCTS = "vector rotations", "vector products"
_MARKS = {  # file, function, primitive: what a call is, and how many such equations it has
    **{("motion.py", f, "concatenate"): (TRANSFORMED, 1)
       for f in ("to_child", "to_parent", "wrench_to_parent", "wrench_to_child")},
    ("motion.py", "turn", "concatenate"): (TURNED, 1),
    ("inertia.py", "rotate", "stack"): (INERTIA, 1),
    **{("motion.py", f, "concatenate"): (BRACKETS, 1) for f in ("cross_twist", "cross_wrench")},
    **{("hybrid.py", f, "concatenate"): (BRACKETS, 1) for f in ("lever", "spin", "backward")},
    ("newton_euler.py", "hybrid_wrench", "concatenate"): (BRACKETS, 2),
    **{("so3.py", f, "add"): (ROTATIONS, 2) for f in ("rotate", "rotate_inverse")},
    ("so3.py", "cross", "stack"): (PRODUCTS, 1),
}  # fmt: skip
PAPER = {  # Müller §4, for n joints in a row
    "body_fixed": {TRANSFORMED: (3, -3), BRACKETS: (2, -1)},
    "spatial": {TRANSFORMED: (1, 0), INERTIA: (1, 0), BRACKETS: (2, -1)},
    "hybrid": {TURNED: (1, 0), INERTIA: (1, 0), BRACKETS: (6, -4)},
}


def calls(jaxpr: core.Jaxpr) -> Counter:
    """How often a program of known trip counts calls the operations of ``_MARKS``."""
    found: Counter = Counter()
    for eqn in jaxpr.eqns:
        inner = [x for x in eqn.params.values() if isinstance(x, core.Jaxpr | core.ClosedJaxpr)]
        if inner:
            times = eqn.params.get("length", 1)
            parts = calls(getattr(inner[0], "jaxpr", inner[0]))
            found.update({k: times * x for k, x in parts.items()})
            continue
        what, equations = _MARKS.get((*_writer(eqn), eqn.primitive.name), (None, 1))
        if what:
            found[what] += math.prod(eqn.outvars[0].aval.shape[:-1]) / equations
    return found


def _writer(eqn) -> tuple[str, str]:
    """The file and the function of the library that wrote an equation."""
    frames = eqn.source_info.traceback.frames if eqn.source_info.traceback else []
    for frame in frames:
        path = Path(frame.file_name)
        name = frame.function_name.split(".")[-1]
        if "rbd_jax" in path.parts[:-1] and name != "_join":
            return path.name, name
    return "", ""


def traced(function, model: rbd.Model, *arguments) -> core.Jaxpr:
    """The program for XLA, because a program for lanes is one operation to JAX."""
    os.environ["RBD_JAX_LANES"] = "0"
    try:
        with formulation("xla"):
            fresh = jax.make_jaxpr(lambda *x: function(*x))  # not a program traced before
            return fresh(model, *arguments).jaxpr
    finally:
        os.environ.pop("RBD_JAX_LANES")


def count_calls(table: Table, lengths) -> None:
    """One row a representation and a length: calls beside the formulas of the paper."""
    for n in lengths:
        model = load(f"chain{n}", "float64")
        for name in screw.REPRESENTATIONS:
            found = calls(traced(FUNCTIONS[name], model, *3 * [jnp.zeros(n)]))
            cells = {"n": n, "representation": name}
            for what in (TRANSFORMED, TURNED, INERTIA, BRACKETS):
                cells[what] = int(found[what])
                slope = PAPER.get(name, {}).get(what)
                cells[f"paper: {what}"] = slope and slope[0] * n + slope[1]
            table.add(**cells, **{k: int(found[k]) for k in (ROTATIONS, PRODUCTS)})


def start_at_joint(table: Table, n: int) -> None:
    """One row a joint: operations of Kim's Tables 5 and 6 along its coordinate (§3.2)."""
    from rbd_jax.derivatives import (
        JointPerturbation,
        kim_forward_dynamics_derivative,
        kim_inverse_dynamics_derivative,
        perturbation_of,
    )

    model, one = load(f"chain{n}", "float64"), jnp.ones(1)
    tables = {"Table 5": (kim_inverse_dynamics_derivative, rbd.rnea),
              "Table 6": (kim_forward_dynamics_derivative, rbd.aba)}  # fmt: skip

    def along(function, perturbation):
        return lambda m, q, v, u: function(m, q, v, u, perturbation(m, q))

    whole = lambda m, q: perturbation_of(m, q, dq=jnp.ones(n))  # noqa: E731
    for k in (None, *(i * (n - 1) // 3 for i in range(4))):
        alone = lambda m, q, k=k: JointPerturbation.along(m, q, k, one)  # noqa: E731
        cells = {}
        for label, (function, value) in tables.items():
            chosen = along(function, whole if k is None else alone)
            cells[label] = count(chosen, model) - count(value, model)
        table.add(along="all of q at once" if k is None else f"joint {k + 1} of {n}", **cells)


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
    lengths, chain = ((3, 4), 4) if options.tiny else ((6, 30), 30)
    count_calls(report.table("Calls of inverse dynamics (Müller, §4)"), lengths)
    start_at_joint(report.table("Operations of derivatives along one joint (Kim, §3.2)"), chain)
    report.write()
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
