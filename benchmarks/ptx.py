"""PTX of dynamics and solvers as NVIDIA's assembler sees it: no GPU is needed."""

import time
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.lanes import Unsupported
from rbd_jax.lanes.frontend._read_program import read_program
from rbd_jax.lanes.gpu import _ptx

from . import _ptxas
from ._report import Report, Table
from ._robots import available, load, states

CPU = "sm_90"
ABOUT = (
    f"Programs of one sample a thread, written by the lanes compiler as PTX for {CPU} and "
    "assembled by `ptxas` on a machine without a GPU. The table shows that the assembler accepts "
    "every program, and what a thread takes. Times are in the table `gpu`. For some programs the "
    "tests also run the LLVM functions behind the PTX on a CPU, in the same layout. Lines: of "
    "the PTX. Registers: of 32 bits, at most 255. Stack: local memory of a thread in bytes, "
    "mostly arrays that are indexed in loops. Spilled: bytes of stores and loads because "
    "registers are missing. SASS: the instructions that the assembler writes for the GPU, each of "
    "a loop once (`nvdisasm`). Shared: bytes that all samples read, computed by an entry of its "
    "own. LLVM and ptxas: seconds, for both entries. jvp and vjp: with the value; the derivative "
    "is with respect to the state and the torque or acceleration."
)
ROBOTS = ["ur5", "hyq", "talos"]


def _jvp(f, m, q, v, x, dq, dv, dx):
    return jax.jvp(partial(f, m), (q, v, x), (dq, dv, dx))


def _vjp(f, m, q, v, x, ct):
    out, pull = jax.vjp(partial(f, m), q, v, x)
    return out, pull(ct)


def _step(m, q, v, tau):
    return rbd.step(m, q, v, tau, 1e-3)


FUNCTIONS = {  # label -> (function, names of its arguments after the model)
    "inverse_dynamics": (rbd.inverse_dynamics, "q v a"),
    "inverse_dynamics jvp": (partial(_jvp, rbd.inverse_dynamics), "q v a q v a"),
    "inverse_dynamics vjp": (partial(_vjp, rbd.inverse_dynamics), "q v a tau"),
    "inverse_dynamics_derivatives": (rbd.inverse_dynamics_derivatives, "q v a"),
    "forward_dynamics": (rbd.forward_dynamics, "q v tau"),
    "forward_dynamics jvp": (partial(_jvp, rbd.forward_dynamics), "q v tau q v tau"),
    "forward_dynamics vjp": (partial(_vjp, rbd.forward_dynamics), "q v tau a"),
    "forward_dynamics_derivatives": (rbd.forward_dynamics_derivatives, "q v tau"),
    "aba": (rbd.aba, "q v tau"),
    "step": (_step, "q v tau"),
}


def closed(model: rbd.Model, function, *states):
    """The jaxpr of a function of a model and of one state, and which inputs all samples share."""
    leaves, tree = jax.tree.flatten(model)

    def flat(*args):
        robot = jax.tree.unflatten(tree, args[: len(leaves)])
        return jax.tree.leaves(function(robot, *args[len(leaves) :]))

    made = jax.make_jaxpr(flat)(*leaves, *states)
    return made, [True] * len(leaves) + [False] * len(states)


def _measure(table: Table, model: rbd.Model, **cells) -> None:
    one = {k: x[0] for k, x in states(model, 1)._asdict().items()}
    for label, (function, names) in FUNCTIONS.items():
        made = closed(model, function, *(jnp.asarray(one[n]) for n in names.split()))
        start = time.perf_counter()
        try:
            ptx = _ptx.ptx_text(read_program(*made), cpu=CPU)
            seconds = time.perf_counter() - start
            used = _ptxas.assemble(ptx.text, ptx.entry, CPU)
        except (Unsupported, RuntimeError) as problem:
            table.add(**cells, function=label, note=str(problem).splitlines()[0])
            continue
        table.add(**cells, function=label, lines=ptx.text.count("\n"), SASS=used.sass,
                  registers=used.registers, stack=used.stack,
                  spilled=used.spill_stores + used.spill_loads,
                  shared=ptx.shared_bytes, LLVM=seconds, ptxas=used.seconds)  # fmt: skip


def main(options) -> None:
    """One row a robot, dtype and function; of teams, one a kernel.

    ``--parts`` chooses among ``threads`` and, for teams, ``dynamics``, ``solvers``, ``grid``,
    ``ground`` and ``policy``.
    """
    if _ptxas.path() is None:
        print("ptx skipped: ptxas is missing (pip install nvidia-cuda-nvcc)")
        return
    from . import _ptx_teams as _teams  # which takes functions of this file

    known = "threads", *_teams.PARTS
    parts = options.parts or known
    if unknown := set(parts) - set(known):
        raise SystemExit(
            f"ptx has no parts {', '.join(sorted(unknown))}; it has {', '.join(known)}"
        )
    report = Report("ptx", options, f"{ABOUT} ptxas {_ptxas.version()}.")
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    table = report.table(f"A thread, {CPU}")
    teams = report.table(f"A team, {CPU}", _teams.ABOUT)
    teams.subject = "robot", "function"
    _teams.assemble(report, teams, options, [p for p in _teams.PARTS if p in parts], CPU)
    for name, dtype in product(names, options.dtypes if "threads" in parts else ()):
        _measure(table, load(name, dtype), robot=name, dtype=dtype)
        report.write()
    report.write()
