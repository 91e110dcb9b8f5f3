"""Compiled for a GPU without one: kernels a call, XLA's estimate of their time, compile time."""

import importlib.util
import os
import sys
from itertools import product

from . import _gpu
from ._peers.contest import OURS, request
from ._peers.side import Failed, Side
from ._report import Report
from ._robots import available

ABOUT = (
    f"Programs compiled for an {_gpu.NAME}. **None was run**, because the machine had no GPU. "
    "Kernels: launches a call, where those in loops count as often as they run. Library calls: "
    "how many of them call cuBLAS or cuSOLVER, whose time is not in the estimate. Estimate: "
    "XLA's cost model, summed over all kernels, in µs a call, without the launches (one to "
    "three µs each, less in a CUDA graph). Floor: bytes of inputs and outputs over the "
    "bandwidth of the memory. The same JAX compiles all libraries, whichever version of it "
    "suits them best on a CPU. The robot is a constant."
)
LIBRARIES = {
    OURS: ("ours", "rbd_jax"),
    "mjx": ("mjx", "mujoco.mjx"),
    "frax": ("frax", "frax"),
}
FUNCTIONS = ["ID", "FD", "ID jvp", "ID vjp", "FD vjp", "FD Jacobian"]
LARGE = 65536  # of this library alone
ROBOTS = ["ur5", "hyq", "talos"]


def main(options) -> None:
    """Ours and what other libraries are installed beside the CUDA plugin."""
    if not _installed("jax_plugins.xla_cuda12"):
        print("kernels skipped: pip install jax-cuda12-plugin jax-cuda12-pjrt "
              "nvidia-cuda-nvcc-cu12 (of the same version as jaxlib)")  # fmt: skip
        return
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_gpu.FLAGS}"  # of the processes
    report = Report("kernels", options, ABOUT)
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    present = {k: adapter for k, (adapter, module) in LIBRARIES.items() if _installed(module)}
    for library in LIBRARIES.keys() - present.keys():
        print(f"  {library} skipped: not installed beside the CUDA plugin")
    for batch in [options.batch] if options.batch else [4096, LARGE]:
        table = report.table(f"Batch {batch}")
        for name, dtype, library in product(names, options.dtypes, present):
            if batch == LARGE and library != OURS:
                continue
            functions = FUNCTIONS[:3] if batch == LARGE else FUNCTIONS
            side = Side(present[library], sys.executable, dtype)
            _measure(table, side, name, library, batch, functions, options.patience)
            report.write()


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _measure(table, side, name, library, batch, functions, patience) -> None:
    dtype = side.dtype
    try:
        side.ask("load", patience, **request(name), dtype=dtype)
        for function in functions:
            theirs = {"FD Jacobian": "FD explicit" if library == OURS else "FD jacfwd"}
            cells = {"robot": name, "dtype": dtype, "function": function, "library": library}
            try:
                what = theirs.get(function, function)
                table.add(**cells, **side.ask("cost", patience, function=what, batch=batch))
            except Failed as problem:
                table.add(**cells, note=str(problem))
                if not side.alive:
                    return
    except Failed as problem:
        table.add(robot=name, dtype=dtype, library=library, note=str(problem))
    finally:
        side.close()
