"""Compile for a GPU that is not there, and read the compiled program: kernels, estimated times.

XLA compiles for a described device without touching one; only JAX's CUDA plugin must be installed
(``pip install jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12``). Its cost model estimates
the time of every kernel it writes; the calls of CUDA's libraries it does not know.
"""

import importlib
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
from jax.experimental import topologies

NAME = "NVIDIA H100 SXM"
BANDWIDTH = 3.352e12  # bytes a second
FLAGS = "--xla_gpu_collect_cost_model_stats=true"  # in XLA_FLAGS before JAX starts
_DEVICE = {  # as XLA describes this device itself
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "shared_memory_per_core": 233472,
    "threads_per_core_limit": 2048,
    "core_count": 132,
    "fpus_per_core": 128,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "memory_bandwidth": int(BANDWIDTH),
    "l2_cache_size": 50 * 2**20,
    "clock_rate_ghz": 1.98,
    "device_memory_size": 84929347584,
    "shared_memory_per_block_optin": 232448,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}
_TARGET = (
    "gpu_device_info {"
    + " ".join(f"{k}: {x}" for k, x in _DEVICE.items())
    + " cuda_compute_capability { major: 9 } }"
    + ' platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 }'
    + f' runtime_version {{ major: 12 minor: 9 }} device_description_str: "{NAME}"'
)
_FREE = "Parameter Constant GetTupleElement Tuple Bitcast AfterAll Iota".split()


class Cost(NamedTuple):
    """What one call costs.

    ``kernels``: launches, those in loops as often as they run; ``library_calls``: of these, the
    calls of CUDA's libraries, whose time is not in ``estimate_us``; ``floor_us``: inputs and
    outputs over the bandwidth; ``temporary_MB``: of the device's memory; ``compile_s``.
    """

    kernels: int
    library_calls: int
    estimate_us: float
    floor_us: float
    temporary_MB: float
    compile_s: float


def cost(function: Callable, *args: Any) -> Cost:
    """Compile ``function`` for an H100 and read what a call costs.

    Raises:
        ModuleNotFoundError: without JAX's CUDA plugin.
    """
    importlib.import_module("jax_plugins.xla_cuda12")
    target = topologies.get_topology_desc(platform="cuda", target_config=_TARGET, topology="1x1x1")
    device = jax.sharding.SingleDeviceSharding(target.devices[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    start = time.perf_counter()
    with mock.patch("jax.default_backend", lambda: "gpu"):  # what libraries choose their ways by
        traced = jax.jit(function, in_shardings=device).trace(*shapes)
        compiled = traced.lower(lowering_platforms=("cuda",)).compile()
    took = time.perf_counter() - start
    memory = compiled.memory_analysis()
    moved = memory.argument_size_in_bytes + memory.output_size_in_bytes
    module = compiled.runtime_executable().hlo_modules()[0]
    kernels, calls, estimate = _count(module)
    return Cost(
        kernels, calls, estimate, moved / BANDWIDTH * 1e6, memory.temp_size_in_bytes / 1e6, took
    )


def _count(module) -> tuple[int, int, float]:
    """Launches, library calls, and µs by the cost model, of all that the program runs."""
    inside = {c.name: c.instructions() for c in module.computations()}
    kernels, calls, estimate = 0, 0, 0.0

    def visit(computation: str, times: int) -> None:
        nonlocal kernels, calls, estimate
        for instruction in inside[computation]:
            opcode = str(instruction.opcode).removeprefix("HloOpcode.k")
            text = instruction.to_string()
            if opcode in _FREE:
                continue
            if opcode in ("While", "Call", "Conditional"):
                count = re.search(r'"known_trip_count":{"n":"(\d+)"}', text)
                if opcode == "While" and not count:
                    raise ValueError("a loop whose length XLA does not know cannot be counted")
                for body in re.findall(r"(?:body|to_apply|calls)=%?([\w.\-]+)", text):
                    visit(body, times * int(count[1]) if count else times)
                continue
            kernels += times
            calls += times * (opcode == "CustomCall")
            found = re.search(r'"exec_time_us":([\d.e+\-]+)', text)
            estimate += times * float(found[1]) if found else 0.0

    visit(re.search(r"ENTRY %?([\w.\-]+)", module.to_string())[1], 1)
    return kernels, calls, estimate
