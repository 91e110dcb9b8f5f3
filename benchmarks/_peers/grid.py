"""GRiD: CUDA kernels that were generated and compiled for one robot (``grid_build``).

The folder ``kernels`` of the environment holds them. One block of threads computes one sample.
"""

import json
import sys
import time
from itertools import product
from pathlib import Path

import jax
import numpy as np

sys.modules.setdefault("torch", None)  # GRiD refuses kernels that were built without it
import grid_rbd.jax as grid  # noqa: E402

from . import layout  # noqa: E402

PACKAGE = "grid-rbd"
KERNELS = Path(sys.prefix) / "kernels"
THREADS = (64, 96, 128, 192, 256, 384)
RUNS = 5


class Robot:
    """All builds of a robot with a free base, in Pinocchio's coordinates."""

    def __init__(self, urdf, floating, joints, dtype):
        if not floating or dtype != np.float32:
            raise ValueError("only robots with a free base in float32 were built")
        robots = json.loads((KERNELS / "manifest.json").read_text())["robots"]
        names = {n: x["joint_names"][1:] for n, x in robots.items()}
        names = {n: x for n, x in names.items() if set(x) == set(joints)}
        if not names:
            raise ValueError(f"no robot in {KERNELS} has these joints")
        self.joints = next(iter(names.values()))
        self.builds = {n: grid.get_robot(n, KERNELS) for n in names}
        self.robot, self.method = next(iter(self.builds.values())), "forward_dynamics"
        self.chosen, self.choice = {}, ""

    inputs = staticmethod(layout.pinocchio)

    def compiled(self, key, f, args):
        """With the build, method and number of threads that were the fastest for this key.

        Args:
            key: Function and batch. The first program for a key is that which decides.
            f: What to compile.
            args: Its arguments.
        """
        if key not in self.chosen:
            self.chosen[key] = self._fastest(key[0], f, args)
        name, self.method, threads = self.chosen[key]
        self.choice = f"{name}, {threads} threads"
        if key[0] == "FD":
            self.choice += f", {self.method}"
        return self._program(name, threads, f, args)

    def _program(self, name, threads, f, args):
        self.robot = self.builds[name]
        self.robot.set_threads_per_block(threads)
        return jax.jit(lambda *x: f(*x)).lower(*args).compile()  # new for JAX's cache

    def _fastest(self, function, f, args):
        methods = ("forward_dynamics", "aba") if function == "FD" else ("forward_dynamics",)
        seconds, problem = {}, None
        for name, method in product(self.builds, methods):
            self.method = method
            program = self._program(name, THREADS[0], f, args)
            for threads in THREADS:
                self.robot.set_threads_per_block(threads)
                try:
                    jax.block_until_ready(program(*args))
                    start = time.perf_counter()
                    for _ in range(RUNS):
                        jax.block_until_ready(program(*args))
                    seconds[name, method, threads] = time.perf_counter() - start
                except jax.errors.JaxRuntimeError as found:  # too many threads for a kernel
                    problem = found
        if not seconds:
            raise RuntimeError(f"no launch succeeded: {problem}")
        return min(seconds, key=seconds.get)

    def inverse_dynamics(self, q, v, a):
        """RNEA."""
        return self.robot.inverse_dynamics(q, v, a)

    def forward_dynamics(self, q, v, tau):
        """By the inverse of the mass matrix, or by articulated bodies."""
        return getattr(self.robot, self.method)(q, v, tau)

    def forward_dynamics_derivatives(self, q, v, tau):
        """With respect to q and v."""
        both = self.robot.forward_dynamics_gradient(q, v, tau)
        return both[..., : both.shape[-2]], both[..., both.shape[-2] :]
