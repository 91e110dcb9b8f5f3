"""Runs in MuJoCo Warp's environment: a step of many worlds, and 100 steps one after another.

``load`` compiles the kernels and captures the graphs. ``measure`` times one size of the batch:

- ``step``: a step from the given states. Its graph first copies the states to where the step reads
  them, because the step writes the new state there. The time of a graph of these copies alone is
  subtracted.
- ``rollout``: a graph of a step alone, replayed ``STEPS`` times from the given states with constant
  controls, as Warp is meant to be used.

Graphs are replayed many times before the process waits for the GPU, so that only the GPU's own time
counts. On a CPU, which has no graphs, the same functions are called one after the other.
"""

import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import OverflowType

from .answers import answer

STEPS, ROUNDS = 100, 5
IN_A_ROW_S = 0.05
STATE = {"qpos": "qpos", "qvel": "qvel", "qacc_warmstart": "warm"}
"""What a step changes and starts from -> its name in ``states.npz``."""


class Worlds:
    """A batch of worlds, and what is done with them, compiled and captured."""

    def __init__(self, m: mujoco.MjModel, model, rows: dict, n: int, sizes: dict):
        self.data = mjw.make_data(m, nworld=n, **sizes)
        repeated = {k: np.resize(x, (n, *x.shape[1:])).astype(np.float32) for k, x in rows.items()}
        self.data.ctrl.assign(repeated["ctrl"])
        self.given = {k: wp.array(repeated[x], dtype=float) for k, x in STATE.items()}

        def again():
            for name, x in self.given.items():
                wp.copy(getattr(self.data, name), x)

        def step():
            mjw.step(model, self.data)

        def step_again():
            again()
            step()

        step_again()  # compiles, which is not possible in a capture
        wp.synchronize()
        self.again, self.step, self.step_again = map(_captured, (again, step, step_again))


def _captured(function: Callable[[], None]) -> Callable[[], None]:
    """The function as a graph."""
    if not wp.get_device().is_cuda:
        return function
    with wp.ScopedCapture() as capture:
        function()
    return lambda: wp.capture_launch(capture.graph)


def _in_a_row(run: Callable[[], None], times: int) -> float:
    """Seconds of each of some runs in a row."""
    wp.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    wp.synchronize()
    return (time.perf_counter() - start) / times


def _median(run: Callable[[], None]) -> float:
    """Seconds of a run, the median of ``ROUNDS`` rows of runs."""
    run()
    once = max(_in_a_row(run, 3), 1e-6)
    times = min(1000, max(3, round(IN_A_ROW_S / once)))
    return statistics.median(_in_a_row(run, times) for _ in range(ROUNDS))


class Server:
    """One scene, and the batches prepared for it."""

    def load(self, folder: str, batches: list[int], nconmax: int, njmax: int) -> dict:
        """Compile all kernels for ``scene.xml``, and say how long it took."""
        wp.config.log_level = wp.LOG_WARNING
        wp.init()
        start = time.perf_counter()
        m = mujoco.MjModel.from_xml_path(str(Path(folder) / "scene.xml"))
        rows = dict(np.load(Path(folder) / "states.npz"))
        sizes = {"nconmax": nconmax, "njmax": njmax}
        self.model = mjw.put_model(m)
        self.worlds = {n: Worlds(m, self.model, rows, n, sizes) for n in batches}
        versions = {p: version(p) for p in ("mujoco-warp", "warp-lang", "mujoco")}
        compile_s, device = time.perf_counter() - start, wp.get_device().name
        return {"compile_s": compile_s, "device": device, "versions": versions}

    def measure(self, batch: int, samples: int) -> dict:
        """Times (s), the first states after a step, rows, iterations, and what overflowed."""
        worlds = self.worlds[batch]
        d = worlds.data
        worlds.step_again()
        found = {k: getattr(d, k).numpy()[:samples].tolist() for k in ("qpos", "qvel")}
        found["rows"] = float(d.nefc.numpy().mean())
        found["iterations"] = float(d.solver_niter.numpy().mean())
        found["step"] = max(_median(worlds.step_again) - _median(worlds.again), 0.0)
        rounds = []
        for _ in range(3):
            worlds.again()
            rounds.append(_in_a_row(worlds.step, STEPS))
        found["rollout"] = statistics.median(rounds)
        overflow = int(np.bitwise_or.reduce(d.overflow.numpy()))
        found["overflow"] = [x.name for x in OverflowType if x.value & overflow and x.name != "ALL"]
        found["not_finite"] = int((~np.isfinite(d.qpos.numpy()).all(axis=1)).sum())
        return found


if __name__ == "__main__":
    answer(Server())
