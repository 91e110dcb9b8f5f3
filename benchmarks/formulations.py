"""Ways to compute the same dynamics: formulations, frames, factorizations."""

import os
from itertools import product

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.algorithms.formulations import FORMULATIONS, formulation
from rbd_jax.derivatives.custom_jvp.matrix_inverse import inverse_custom_jvp

from ._report import Report, Table
from ._robots import States, available, load, over_batch, states
from ._timing import program, race

ABOUT = (
    "Formulations are those in the table of `rbd_jax/algorithms/formulations.py`. `lanes`: "
    "recursions over the bodies, compiled to lanes. `xla`: the formulation for a CPU without "
    "lanes. `accelerator`: the formulation for a GPU, here compiled by XLA for the CPU. Forward "
    "dynamics is computed in several ways: articulated bodies in body frames (`aba`); composite "
    "rigid bodies with a Cholesky factorization or an inverse, the latter also with one step of "
    "iterative refinement through `rnea`; and `forward_dynamics` of the library. The error is "
    "the median over the states of |x − x64| / |x64| against `rnea` and `aba` in float64. Far: "
    "the same robot 10 km from the origin of the world. Times are medians, in µs per evaluation."
)


def _cholesky(model, q, v, tau):
    factor = jax.scipy.linalg.cho_factor(rbd.crba(model, q))
    return jax.scipy.linalg.cho_solve(factor, tau - rbd.rnea(model, q, v, jnp.zeros_like(v)))


def _inverse(refinements: int):
    def forward(model, q, v, tau):
        inverse = inverse_custom_jvp(rbd.crba(model, q))
        a = jnp.zeros_like(v)
        for _ in range(1 + refinements):
            a = a + jnp.matmul(inverse, tau - rbd.rnea(model, q, v, a), precision="highest")
        return a

    return forward


INVERSE = {"body frames (rnea)": rbd.rnea, "inverse_dynamics": rbd.inverse_dynamics}
FORWARD = {
    "body frames (aba)": rbd.aba,
    "CRBA, Cholesky": _cholesky,
    "CRBA, inverse": _inverse(0),
    "CRBA, inverse, refined": _inverse(1),
    "forward_dynamics": rbd.forward_dynamics,
}


def _arguments(s: States, function: str):
    return s.q, s.v, s.a if function == "ID" else s.tau


FUNCTIONS = {
    "ID": rbd.inverse_dynamics,
    "FD": rbd.forward_dynamics,
    "ID derivatives": rbd.inverse_dynamics_derivatives,
    "FD derivatives": rbd.forward_dynamics_derivatives,
    "mass matrix": lambda m, q, v, x: rbd.crba(m, q),
}


def backends(table: Table, name: str, dtype: str, batch: int, seconds: float) -> None:
    """One row a function, a column a formulation."""
    model = load(name, dtype)
    for function, f in FUNCTIONS.items():
        x, made = _arguments(states(model, batch), function[:2]), []
        for key in FORMULATIONS:
            os.environ["RBD_JAX_LANES"] = "1" if key == "lanes" else "0"
            with formulation(key):
                made.append(
                    program(key, over_batch(lambda *a, f=f: f(*a), 3), model, *x, per=batch)
                )
        os.environ.pop("RBD_JAX_LANES")
        race(*made, seconds=seconds)
        row = {"robot": name, "nv": model.nv, "dtype": dtype, "function": function, "batch": batch}
        table.add(**row, **{p.name: p.median for p in made})


def _error(x, exact) -> float:
    x, exact = x.astype(jnp.float64), exact.astype(jnp.float64)
    return float(jnp.median(jnp.linalg.norm(x - exact, axis=1) / jnp.linalg.norm(exact, axis=1)))


def _away(s: States, floating: bool, far: float) -> States:
    return s._replace(q=s.q.at[:, :3].add(far)) if floating else s


def formulations(table: Table, name: str, dtype: str, batch: int, seconds: float) -> None:
    """One row a formulation: time, error, error far from the origin."""
    model, double = load(name, dtype), load(name, "float64")
    floating = model.topology.kinds[0] == "free"
    s, s64 = states(model, batch), states(double, batch)
    for function, ways, exact in (("ID", INVERSE, rbd.rnea), ("FD", FORWARD, rbd.aba)):
        truth = jax.jit(over_batch(exact, 3))(double, *_arguments(s64, function))
        made = [program(k, over_batch(f, 3), model, *_arguments(s, function), per=batch)
                for k, f in ways.items()]  # fmt: skip
        race(*made, seconds=seconds)
        for p, f in zip(made, ways.values(), strict=True):
            far = jax.jit(over_batch(f, 3))(model, *_arguments(_away(s, floating, 1e4), function))
            table.add(
                robot=name, dtype=dtype, function=function, formulation=p.name, time=p.median,
                error=_error(p.run(), truth), error_far=_error(far, truth) if floating else None,
            )  # fmt: skip


def main(options) -> None:
    """Formulations, and ways through the dynamics."""
    report = Report("formulations", options, ABOUT)
    robots = available(options.robots or ["hyq", "talos"])
    batch = options.batch or 512
    if options.tiny:
        robots, batch = ["arm"], 8
    table = report.table("Formulations, µs")
    for name, dtype in product(robots, options.dtypes):
        for size in (1, batch):
            backends(table, name, dtype, size, options.seconds)
            report.write()
    table = report.table(f"Time and error, batch {batch}, µs")
    for dtype in options.dtypes:
        for name in robots:
            formulations(table, name, dtype, batch, options.seconds)
            report.write()
            jax.clear_caches()
    report.write()
