"""Kernels of teams of threads, as the library takes them on a GPU, and what assembles them."""

import importlib.util
from collections.abc import Callable, Iterator
from itertools import product

import jax

from rbd_jax.lanes import Unsupported
from rbd_jax.lanes.gpu import _ptx

from . import _gpu_policy, _gpu_solvers, _grid, _ptxas, _warp, gpu_model
from ._ground import Ground, scenes
from ._report import Report, Table
from ._robots import available
from .ptx import FUNCTIONS, ROBOTS

ABOUT = (
    f"Kernels in float32 as the library takes them for {gpu_model.BATCH} samples; a kernel that "
    "several functions have is listed once. Chip: bytes of a sample in the memory on the chip. "
    "Far: bytes of a sample in the memory of the GPU. As for GRiD: the robot is a constant. "
    "Contact steps: the scene is a constant, too; the vjp is with respect to the state and the "
    f"controls. With a policy: rollouts of {_gpu_policy.STEPS} steps, as in the table `gpu`."
)
SAMPLE = ("quadruped",)
"""The robot on the ground that needs no package."""
Case = tuple[str, str, Callable, tuple]
"""Robot, label, a function of a batch and its arguments."""


def _dynamics(options) -> Iterator[Case]:
    known = gpu_model.ROBOTS
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    labels = ("inverse_dynamics",) if options.tiny else tuple(FUNCTIONS)
    for name, label in product((n for n in names if n in known), labels):
        yield name, label, *gpu_model.dynamics(name, label)


def _optimization(options) -> Iterator[Case]:
    robot = _gpu_solvers.ROBOT
    made = _gpu_solvers.cases(steps=8) if options.tiny else _gpu_solvers.cases()
    for label, case in made.items() if robot in (options.robots or [robot]) else ():
        yield robot, label, *case


def _as_grid(options) -> Iterator[Case]:
    asked = options.robots or ([] if options.tiny else gpu_model.GRID_ROBOTS)
    names = available([n for n in asked if n in gpu_model.GRID_ROBOTS])
    for name, label in product(names, _grid.FUNCTIONS):
        yield name, f"{label}, as for GRiD", *gpu_model.as_grid(name, label)


def _scenes(options, more: tuple[str, ...]) -> dict[str, str]:
    """The robots on the ground that are here; says which are not."""
    names = [n for n in SAMPLE + more if n in (options.robots or SAMPLE + more)]
    if options.tiny:
        names = [n for n in names if n in SAMPLE]
    if names and not importlib.util.find_spec("mujoco"):
        print("  robots on the ground skipped: MuJoCo is missing (pip install mujoco)")
        return {}
    found = scenes(options) if names else {}
    for name in names:
        if name not in found:
            print(f"  {name} skipped: it is in none of the folders of --packages")
    return {n: found[n] for n in names if n in found}


def _on_ground(options) -> Iterator[Case]:
    for name, xml in _scenes(options, _warp.ROBOTS).items():
        ground = Ground(xml, 2)
        given = ground.arguments("float32")
        yield name, "contact step", jax.vmap(ground.step("float32")), given
        if not options.tiny:
            yield name, "contact step vjp", jax.vmap(ground.vjp("float32")), given


def _with_policy(options) -> Iterator[Case]:
    found = _scenes(options, ("go1",))
    for name in [n for n in found if n == "go1"] or found:  # as the table ``gpu`` chooses
        walkers = _gpu_policy.Walkers(found[name], 2, "float32")
        for mode, function in walkers.functions().items():
            label = "rollout" if mode == "rollout" else f"gradient of a rollout, {mode}"
            yield name, f"{label}, with a policy", function, (walkers.weights, *walkers.given)
            if options.tiny:
                break


PARTS = {
    "dynamics": _dynamics,
    "solvers": _optimization,
    "grid": _as_grid,
    "ground": _on_ground,
    "policy": _with_policy,
}
"""Name of a part -> its functions."""


def assemble(report: Report, table: Table, options, parts: list[str], cpu: str) -> None:
    """One row for each kernel; each function's rows are written at once."""
    seen = set()
    with gpu_model.as_on_a_gpu():
        for part in parts:
            for robot, label, function, given in PARTS[part](options):
                for kernel in gpu_model.untimed(function, *given):
                    made = kernel.taken(gpu_model.BATCH).made
                    if made.text not in seen:
                        seen.add(made.text)
                        cells = {"robot": robot, "function": label, "kernel": kernel.name}
                        table.add(**cells, threads=made.team, **_assembled(made, cpu))
                report.write()


def _assembled(made: _ptx.Functions, cpu: str) -> dict:
    """What the assembler says of a kernel, or why it does not accept it."""
    try:
        ptx = _ptx.ptx_of(made, cpu)
        used = _ptxas.assemble(ptx.text, ptx.entry, cpu)
    except (Unsupported, RuntimeError) as problem:
        return {"note": str(problem).splitlines()[0]}
    return {"lines": ptx.text.count("\n"), "SASS": used.sass, "registers": used.registers,
            "stack": used.stack, "spilled": used.spill_stores + used.spill_loads,
            "chip": made.scratch_bytes, "far": made.far_bytes, "shared": ptx.shared_bytes,
            "ptxas": used.seconds}  # fmt: skip
