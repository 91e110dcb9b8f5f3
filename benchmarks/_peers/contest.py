"""One robot in one dtype in all libraries: load, compile together, compare, time in turns."""

import sys

import numpy as np

from rbd_jax import Model

from .._robots import load, states
from .description import to_urdf
from .side import Failed, Side

CASES = {  # label -> (our program, theirs, batches, batches of the arm); the slowest last
    "ID": ("ID", "ID", (1, 1024), (1, 1024)),
    "FD": ("FD", "FD", (1, 1024), (1, 1024)),
    "FD Jacobian, jacfwd": ("FD explicit", "FD jacfwd", (128,), (1, 128)),
    "FD vjp": ("FD vjp", "FD vjp", (1024,), (1, 1024)),
    "ID vjp": ("ID vjp", "ID vjp", (1024,), (1, 1024)),
    "FD jvp": ("FD jvp", "FD jvp", (1024,), (1, 1024)),
    "ID jvp": ("ID jvp", "ID jvp", (1024,), (1, 1024)),
    "rollout gradient": ("rollout gradient", "rollout gradient", (128,), (1, 128)),
    "FD Jacobian, jacrev": ("FD explicit", "FD jacrev", (128,), (1, 128)),
}
CALLS = {  # how the libraries are set up (`side.Side`) -> which batches are run so
    "single": lambda batch: batch == 1,
    "batches": lambda batch: batch > 1,
}
OURS = "rbd_jax"
SAMPLES, LONGEST_S = 64, 2.0
BEHIND = 5
"""A library whose value takes so many times that of the fastest other one takes no part in the
races of derivatives, where compiling it would take minutes."""
ROUNDING = {"float32": 5e-2, "float64": 1e-5}  # of ill-conditioned robots, still far from a mistake


def request(name: str) -> dict:
    """What a side needs to load the robot: URDF, names of joints, states."""
    return describe(load(name, "float64"))


def describe(model: Model) -> dict:
    """What a side needs to load the robot of this model."""
    urdf, joints = to_urdf(model)
    s, ct = states(model, SAMPLES), states(model, SAMPLES, seed=7).v
    floating = model.topology.kinds[0] == "free"
    q, v = ([int(f(n).start) for n in joints] for f in (model.q_slice, model.v_slice))
    found = {"q": s.q[:, q], "v": s.v[:, v], "a": s.a[:, v], "tau": s.tau[:, v], "ct": ct[:, v]}
    found = {f"joint_{k}": x for k, x in found.items()}
    if floating:
        found |= {"base_q": s.q[:, :7], "base_v": s.v[:, :6], "base_a": s.a[:, :6]}
    lists = {k: np.asarray(x).tolist() for k, x in found.items()}
    return {"urdf": urdf, "floating": floating, "joints": joints, "states": lists}


class Contest:
    """All libraries that could load one robot in one dtype, for one kind of calls."""

    def __init__(
        self, robot: str, dtype: str, pythons: dict[str, str], patience: float, calls: str
    ):
        self.robot, self.dtype, self.patience, self.calls = robot, dtype, patience, calls
        what = request(robot) | {"dtype": dtype}
        self.sides = {OURS: Side("ours", sys.executable, dtype, calls)}
        self.sides |= {n: Side(n, python, dtype, calls) for n, python in pythons.items()}
        self.notes = {name: [] for name in self.sides}
        self.compile = dict.fromkeys(self.sides, 0.0)
        self.difference = {name: {} for name in self.sides}
        self.loaded = self._all("load", self.patience, {n: what for n in self.sides})
        self.nv = self.loaded.get(OURS, {}).get("nv")
        self.once: dict[tuple[str, str], tuple[int, float]] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for side in self.sides.values():
            side.close()

    def _all(self, do: str, seconds: float, requests: dict[str, dict], what: str = "") -> dict:
        """Ask several at once; who fails is left out and noted."""
        asked, answers = [], {}
        for name, request in requests.items():
            try:
                self.sides[name].send(do, **request)
                asked.append(name)
            except Failed as problem:
                self._note(name, f"{what or do}: {problem}")
        for name in asked:
            try:
                answers[name] = self.sides[name].receive(seconds)
            except Failed as problem:
                self._note(name, f"{what or do}: {problem}")
        return answers

    def _note(self, name: str, text: str) -> None:
        self.notes[name].append(text)
        print(f"    {name}: {text}", flush=True)

    def race(self, label: str, batch: int, seconds: float) -> dict[str, float]:
        """Median µs per evaluation of every library that manages this."""
        mine, theirs, *_ = CASES[label]
        requests = {}
        for name, side in self.sides.items():
            if name not in self.loaded or not side.alive or self._differs(name, label):
                continue
            last, once = self.once.get((name, label), (batch, 0.0))
            if once * batch / last > LONGEST_S:
                self._note(name, f"{label}, batch {batch}: over {LONGEST_S:.0f} s a run")
                continue
            if name != OURS and self._behind(name, label):
                self._note(name, f"derivatives: values over {BEHIND} times those of another one")
                continue
            function = mine if name == OURS else theirs
            requests[name] = {"function": function, "batch": batch}
        compiled = self._all("compile", self.patience, requests, f"{label}, batch {batch}")
        for name, answer in compiled.items():
            self.compile[name] = max(self.compile[name], answer["compile_cpu_s"])
            self.once[name, label] = batch, answer["once"]
        if OURS not in compiled:
            return {}
        self._compare(label, requests, [n for n in compiled if label not in self.difference[n]])
        racing = [n for n in compiled if not self._differs(n, label)]
        times = self._turns(label, batch, seconds, {n: compiled[n]["once"] for n in racing})
        self.once |= {(n, label): (batch, float(np.median(t))) for n, t in times.items() if t}
        return {n: self.once[n, label][1] / batch * 1e6 for n, t in times.items() if t}

    def _turns(
        self, label: str, batch: int, seconds: float, once: dict[str, float]
    ) -> dict[str, list[float]]:
        """The times of three turns; each library runs for about seconds / 3 in each of them."""
        times: dict[str, list[float]] = {name: [] for name in once}
        for _ in range(3):
            for name, run in once.items():
                runs = int(max(1, min(200, seconds / 3 / run)))
                try:
                    times[name] += self.sides[name].ask("time", self.patience, runs=runs)["times"]
                except Failed as problem:
                    self._note(name, f"{label}, batch {batch}: {problem}")
        return times

    def _behind(self, name: str, label: str) -> bool:
        """Whether a derivative of a library need not be raced, see ``BEHIND``."""
        value = "ID" if label.startswith("ID") else "FD"
        times = {n: t / batch for (n, x), (batch, t) in self.once.items() if x == value}
        others = [t for n, t in times.items() if n != OURS]
        return label != value and name in times and times[name] > BEHIND * min(others)

    def _differs(self, name: str, label: str) -> bool:
        return self.difference[name].get(label, 0.0) is None

    def _compare(self, label: str, requests: dict, names: list[str]) -> None:
        """Differences from our results; None for a library that computes something else."""
        names = [n for n in names if n != OURS]
        if not names:
            return
        ask = {n: {"function": requests[n]["function"], "samples": 4} for n in [OURS, *names]}
        answers = self._all("result", self.patience, ask, label)
        blocks = {n: [np.array(b) for b in x["blocks"]] for n, x in answers.items()}
        limit = ROUNDING["float32" if "rollout" in label else self.dtype]
        for name in [n for n in names if n in blocks]:
            pairs = list(zip(blocks[name], blocks[OURS], strict=True))
            same = all(x.shape == y.shape for x, y in pairs)
            found = float("inf")
            if same:
                found = max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)
            self.difference[name][label] = found if found < limit else None
            if not found < limit:
                self._note(name, f"{label}: differs by {found:.1e}, left out")
