"""What the library is to reach on a GPU, beside what was measured and what the model predicts."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from . import _warp
from ._report import Table
from .gpu import AGAINST, AGAINST_GRID, WAYS

CALL = 78.0
"""µs that a call against frax and MJX takes beside its kernel: inverse dynamics of UR5 took 93
there, and its kernel should take 15."""
BATCH = 4096
LABELS = {"ID": "inverse_dynamics", "FD": "forward_dynamics", "ID vjp": "inverse_dynamics vjp",
          "FD vjp": "forward_dynamics vjp", "FD jvp": "forward_dynamics jvp"}  # fmt: skip
"""Function in the table against frax and MJX -> in the others."""
Found = dict[tuple[str, str, int], float]


class Goal(NamedTuple):
    """What is to be reached; NaN where something is not known."""

    what: str
    unit: str
    target: float
    measured: float
    predicted: float
    least: bool = False
    """Whether more is better."""


def compare(table: Table, stored: dict, found: Found) -> None:
    """A row for each target of which something is predicted."""
    goals = (*_on_ground(stored, found), *_policy(found), *_talos(stored, found),
             *_grid(stored, found), *_rivals(stored, found))  # fmt: skip
    for g in goals:
        good = g.predicted >= g.target if g.least else g.predicted <= g.target
        sign = "≥" if g.least else "≤"
        before = None if math.isnan(g.measured) else g.measured
        table.add(what=g.what, unit=g.unit, target=f"{sign} {g.target:.3g}", before=before,
                  predicted=g.predicted, reached="yes" if good else "no")  # fmt: skip


def _on_ground(stored: dict, found: Found) -> Iterator[Goal]:
    for r in stored[_warp.TITLE]:
        robot, n = r["robot"], r["batch"]
        step, vjp = (found.get((robot, name, n)) for name in ("step", "vjp"))
        if step is None or vjp is None:
            continue
        yield Goal(f"contact step, {robot}, {n}; MuJoCo Warp's time", "ns a robot", r["warp_step"],
                   r["step"], 1e3 * step / n)  # fmt: skip
        if n > BATCH:
            yield Goal(f"its vjp over the step, {robot}, {n}", "times", 2.5, r["vjp_over_step"],
                       vjp / step)  # fmt: skip


def _policy(found: Found) -> Iterator[Goal]:
    rollout, gradient = (found.get(("go1", name, BATCH)) for name in ("rollout", "adjoint"))
    if rollout and gradient:
        yield Goal(f"gradient of a rollout with a policy over the rollout, go1, {BATCH}", "times",
                   4, math.nan, gradient / rollout)  # fmt: skip


def _talos(stored: dict, found: Found) -> Iterator[Goal]:
    times = {(r["robot"], r["function"], r["batch"]): r["default"] for r in stored[WAYS]}
    goals = {"forward_dynamics": 80, "forward_dynamics vjp": 250,
             "forward_dynamics_derivatives": 300}  # fmt: skip
    for name, most in goals.items():
        key = "talos", name, BATCH
        if key in found:
            yield Goal(f"{name}, talos, {BATCH}", "µs", most, times[key], found[key])


def _grid(stored: dict, found: Found) -> Iterator[Goal]:
    for r in stored[AGAINST_GRID]:
        key = r["robot"], r["function"], r["batch"]
        if key in found and r.get("grid, kernel"):
            yield Goal(f"{r['function']}, {r['robot']}, {r['batch']}, ahead of GRiD, kernels",
                       "times", 3 if r["batch"] == BATCH else 1, r["ahead, kernel"],
                       r["grid, kernel"] / found[key], True)  # fmt: skip


def _rivals(stored: dict, found: Found) -> Iterator[Goal]:
    for r in stored[AGAINST]:
        key = r["robot"], LABELS.get(r["function"], ""), r["batch"]
        others = [r[n] for n in ("frax", "mjx") if r.get(n)]
        if key in found and others:
            yield Goal(f"{r['function']}, {r['robot']}, {r['batch']}, ahead of frax and MJX, calls",
                       "times", 8, r["ahead"], min(others) / (found[key] + CALL), True)  # fmt: skip
