"""Second derivatives against autodiff of autodiff of the raw algorithms."""

import jax
import jax.numpy as jnp

import rbd_jax as rbd

from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race, ratio

ABOUT = (
    "Time per evaluation (median, µs). Full tensors: ∂²/∂(q, v)² and ∂M/∂q or ∂M⁻¹/∂q, against "
    "`jacfwd(jacfwd)` of `rnea` and `aba` along `integrate`. Contracted with λ, as DDP needs it: "
    "against `jacfwd(grad)` of `λᵀ rnea` and `λᵀ aba`. Through the rule: the same autodiff of "
    "the function with the rule. The difference is the largest relative difference of the q-q "
    "block, in float64."
)


def _chart(f, m, q, u):
    return lambda dq, v: f(m, rbd.integrate(m, q, dq), v, u)


def _tensors(f):
    def all_of(m, q, v, u):
        zero = jnp.zeros_like(v)
        second = jax.jacfwd(jax.jacfwd(_chart(f, m, q, u), (0, 1)), (0, 1))(zero, v)
        return second[0][0], second[0][1], second[1][1]

    return all_of


def _contracted(f):
    def all_of(m, q, v, u, lam):
        def value(dq, v):
            return jnp.dot(lam, _chart(f, m, q, u)(dq, v), precision="highest")

        second = jax.jacfwd(jax.grad(value, (0, 1)), (0, 1))(jnp.zeros_like(v), v)
        return second[0][0], second[0][1], second[1][1]

    return all_of


def _mass_matrix(m, q):
    def at(dq):
        return rbd.crba(m, rbd.integrate(m, q, dq))

    return (jax.jacfwd(at)(jnp.zeros((m.nv,), q.dtype)),)


def _mass_matrix_analytic(m, q):
    return (rbd.derivatives.mass_matrix_derivative(m, q),)


CASES = {  # label -> (analytic, raw, ruled or None, arguments)
    "ID tensors": (rbd.derivatives.inverse_dynamics_second_derivatives, _tensors(rbd.rnea),
                   _tensors(rbd.inverse_dynamics), "q v a"),
    "FD tensors": (rbd.derivatives.forward_dynamics_second_derivatives, _tensors(rbd.aba),
                   _tensors(rbd.forward_dynamics), "q v tau"),
    "ID contracted": (rbd.derivatives.inverse_dynamics_hessian, _contracted(rbd.rnea),
                      _contracted(rbd.inverse_dynamics), "q v a lam"),
    "FD contracted": (rbd.derivatives.forward_dynamics_hessian, _contracted(rbd.aba),
                      _contracted(rbd.forward_dynamics), "q v tau lam"),
    "∂M/∂q": (_mass_matrix_analytic, _mass_matrix, None, "q"),
}  # fmt: skip


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float, cases=CASES):
    """Fill the table with one robot and dtype."""
    model = load(name, dtype)
    s = states(model, batch)
    values = s._asdict() | {"lam": states(model, batch, seed=7).v}
    for label, (analytic, raw, ruled, names) in cases.items():
        args = [values[n] for n in names.split()]

        def make(what, f, args=args):
            return program(what, over_batch(f, len(args)), model, *args, per=batch)

        ours, plain = make("analytic", analytic), make("autodiff", raw)
        through = make("rule", ruled) if ruled else None
        race(*[p for p in (ours, plain, through) if p], seconds=seconds)
        x, y = ours.run()[0], plain.run()[0]
        difference = float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
        if dtype == "float64" and not difference < 1e-8:
            raise AssertionError(f"{label} of {name} differ by {difference:.1e}")
        table.add(
            robot=name,
            nv=model.nv,
            function=label,
            dtype=dtype,
            analytic=ours.median,
            autodiff=plain.median,
            speed_up=ratio(plain, ours),
            through_the_rule=through and through.median,
            compile_s=ours.compile_s,
            compile_autodiff_s=plain.compile_s,
            difference=difference,
        )


def main(options) -> None:
    """nv = 7, 18 and 30."""
    report = Report("second_order", options, ABOUT)
    batch = options.batch or (2 if options.tiny else 16)
    table = report.table(f"Second derivatives, batch {batch}")
    names = options.robots or (["arm"] if options.tiny else ["arm", "quadruped", "tree30x2"])
    for name in available(names):
        for dtype in options.dtypes:
            compare(table, name, dtype, batch, options.seconds)
            report.write()
