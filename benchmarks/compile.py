"""First-call compile time of every public function and of its derivatives, unbatched."""

import subprocess

import jax
import jax.numpy as jnp

import rbd_jax as rbd

from ._report import Report, Table
from ._robots import available, load, states
from ._timing import program
from ._whole import EXAMPLES, both

ABOUT = (
    "Seconds from the first call to a compiled program: tracing, lowering and XLA. All caches "
    "are cleared before each call, which has one sample. jvp and vjp are with respect to every "
    "argument after the model; jacobian is `jacfwd`. Vmap is the function itself over a batch. A "
    "compilation of more than 3 s is repeated, and the shorter time counts. Worst cpu is the "
    "longest processor time of all threads together, which a busy machine does not stretch. The "
    "target is 3 s for functions of first order. The last table has whole programs, in float64: "
    "seconds of tracing, of lowering (in which kernels are written, while LLVM compiles those "
    "before them on other cores), of the rest of compiling with the first run, the whole, and the "
    "processor time, in a process with an empty cache on disk and in a second process."
)


def _arguments(model: rbd.Model) -> dict:
    s = states(model, 1)
    q, v, a, tau = (x[0] for x in s)
    dt = jnp.asarray(1e-3, model.dtype)
    controls = jnp.zeros((10, model.nv), model.dtype)
    prescribed = jnp.arange(model.nb) % 3 == 0
    f_ext = jnp.ones((model.nb, 6), model.dtype)
    values = {"q": q, "v": v, "a": a, "tau": tau, "dv": v, "q1": q, "lam": v, "f_ext": f_ext}
    return values | {"controls": controls, "dt": dt, "prescribed": prescribed}


def _last_frame(model: rbd.Model) -> str:
    return model.frame_names[-1]


def _hybrid(m, q, v, a, tau, prescribed):
    return rbd.hybrid_dynamics(m, q, v, a, tau, prescribed)


FIRST_ORDER = {  # label -> (function, arguments, whether to differentiate it)
    "inverse_dynamics": (rbd.inverse_dynamics, "q v a", True),
    "inverse_dynamics, f_ext": (rbd.inverse_dynamics, "q v a f_ext", True),
    "forward_dynamics": (rbd.forward_dynamics, "q v tau", True),
    "hybrid_dynamics": (_hybrid, "q v a tau prescribed", True),
    "rnea": (rbd.rnea, "q v a", True),
    "aba": (rbd.aba, "q v tau", True),
    "crba": (rbd.crba, "q", True),
    "inverse_dynamics_derivatives": (rbd.inverse_dynamics_derivatives, "q v a", False),
    "forward_dynamics_derivatives": (rbd.forward_dynamics_derivatives, "q v tau", False),
    "rollout": (rbd.rollout, "q v controls dt", True),
}
OTHERS = {
    "mass_matrix_inverse": (rbd.mass_matrix_inverse, "q", True),
    "mass_matrix_product": (rbd.derivatives.mass_matrix_product, "q a", True),
    "mass_matrix_solve": (rbd.derivatives.mass_matrix_solve, "q tau", True),
    "bias_torque": (rbd.bias_torque, "q v", True),
    "gravity_torque": (rbd.gravity_torque, "q", True),
    "coriolis_matrix": (rbd.coriolis_matrix, "q v", True),
    "christoffel": (rbd.christoffel, "q", False),
    "forward_kinematics": (rbd.forward_kinematics, "q", True),
    "jacobian": (lambda m, q: rbd.jacobian(m, q, _last_frame(m)), "q", True),
    "center_of_mass": (rbd.center_of_mass, "q", True),
    "centroidal_momentum": (rbd.centroidal_momentum, "q v", True),
    "kinetic_energy": (rbd.kinetic_energy, "q v", True),
    "potential_energy": (rbd.potential_energy, "q", True),
    "integrate": (rbd.integrate, "q dv", True),
    "difference": (rbd.difference, "q q1", True),
    "step": (rbd.step, "q v tau dt", True),
    "step_derivatives": (rbd.simulate.step_derivatives, "q v tau dt", False),
    "mass_matrix_derivative": (rbd.derivatives.mass_matrix_derivative, "q", False),
    "inverse_dynamics_hessian": (rbd.derivatives.inverse_dynamics_hessian, "q v a lam", False),
    "forward_dynamics_hessian": (rbd.derivatives.forward_dynamics_hessian, "q v tau lam", False),
    "inverse_dynamics_second_derivatives": (
        rbd.derivatives.inverse_dynamics_second_derivatives, "q v a", False),
    "forward_dynamics_second_derivatives": (
        rbd.derivatives.forward_dynamics_second_derivatives, "q v tau", False),
}  # fmt: skip


def _seconds(function, *args) -> tuple[float, float]:
    """Wall-clock and processor time; of long compilations the shorter of two."""

    def once():
        jax.clear_caches()
        made = program("", function, *args)
        return made.compile_s, made.cpu_s

    first = once()
    return first if first[0] < 3 else min(first, once())


def measure(table: Table, name: str, dtype: str, functions: dict, batch: int = 0) -> None:
    """One row a function; also over a batch if one is given."""
    model = load(name, dtype)
    values = _arguments(model)
    for label, (f, names, differentiate) in functions.items():
        args = tuple(values[n] for n in names.split())
        moving = tuple(i for i, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.floating))

        def of(m, xs, ys, f=f, names=names):
            """``f`` of the floating-point arguments xs and of the others, ys."""
            rest = iter(ys)
            mine = iter(xs)
            ordered = [next(rest) if n == "prescribed" else next(mine) for n in names.split()]
            if "f_ext" in names:
                return f(m, *ordered[:-1], f_ext=ordered[-1])
            return f(m, *ordered)

        xs = tuple(args[i] for i in moving)
        ys = tuple(x for i, x in enumerate(args) if i not in moving)

        def jvp(m, xs, ys, ds, of=of):
            return jax.jvp(lambda xs: of(m, xs, ys), (xs,), (ds,))

        def vjp(m, xs, ys, of=of):
            out, pull = jax.vjp(lambda xs: of(m, xs, ys), xs)
            return out, pull(out)

        def jacobian(m, xs, ys, of=of):
            return jax.jacfwd(lambda xs: of(m, xs, ys))(xs)

        cells = {"value": _seconds(of, model, xs, ys)}
        if differentiate:
            cells["jvp"] = _seconds(jvp, model, xs, ys, xs)
            cells["vjp"] = _seconds(vjp, model, xs, ys)
            cells["jacobian"] = _seconds(jacobian, model, xs, ys)
        if batch:
            many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), (xs, ys))
            cells["vmap"] = _seconds(jax.vmap(of, in_axes=(None, 0, 0)), model, *many)
        worst, cpu = (max(x) for x in zip(*cells.values(), strict=True))
        wall = {k: x for k, (x, _) in cells.items()}
        table.add(function=label, **wall, worst=worst, worst_cpu=cpu)


def main(options) -> None:
    """All public functions for Talos."""
    report = Report("compile", options, ABOUT)
    names = available(options.robots or (["arm"] if options.tiny else ["talos"]))
    for name in names:
        for dtype in options.dtypes[:1]:
            table = report.table(f"First-call compile time of {name}, {dtype} (s)")
            functions = FIRST_ORDER if options.tiny else FIRST_ORDER | OTHERS
            measure(table, name, dtype, functions, batch=options.batch or 64)
            report.write()
    whole(report, options)


def whole(report: Report, options) -> None:
    """Programs that users compile, as a whole."""
    table = report.table("Whole programs, float64: first process and second (s)")
    table.subject = ("job", "robot")
    examples = {"gradient of a rollout": ("arm",)} if options.tiny else EXAMPLES
    for job, robots in examples.items():
        for robot in robots:
            if options.robots and robot not in options.robots:
                continue
            try:
                first, second = both(job, robot, "float64", options.packages)
            except subprocess.CalledProcessError:  # its files are absent
                continue
            cells = {f"first_{k}": x for k, x in first.items()}
            cells |= {
                f"second_{k}": second[k] for k in ("trace", "lower", "compile", "whole", "cpu")
            }
            table.add(job=job, robot=robot, **cells)
            report.write()
