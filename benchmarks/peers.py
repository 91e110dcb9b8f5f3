"""Against other JAX libraries: same robots, batch and dtype, in turns, results compared."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from ._peers import PEERS
from ._peers.description import to_urdf
from ._peers.side import Failed, Side
from ._plots import Bars, Lines, draw
from ._report import Report, Table
from ._robots import available, load, states

ABOUT = (
    "Time per evaluation (median, µs). Every library runs in a process of its own, in the "
    "environment that suits it best (`benchmarks/_peers/__init__.py`), and reads the same URDF, "
    "made from the robot with its fixed links merged and without friction, damping and limits. For "
    "every row the processes take turns on the same states in the same dtype; one program "
    "`jax.jit(jax.vmap(f))`, the robot a constant of it for all, ours included. FD Jacobian: with "
    "respect to q, v and τ; ours is `forward_dynamics_derivatives`, theirs the named mode of "
    "autodiff. vjp: with respect to all three. Rollout gradient: of 16 semi-implicit steps with "
    "respect to the torques, a line by line identical scan over each library's forward dynamics. "
    "Speed-up: the fastest of the others over ours. Difference: the largest one from our result, "
    "over the largest entry, joints only; a library that differs by more than rounding explains is "
    "left out and named. –: not run; the reasons are in the table of the libraries."
)
ROBOTS = ["ur5", "talos", "hyq"]
SWEEP = (1, 16, 256, 4096, 65536)
CASES = {  # label -> (our program, theirs, batches, batches of the first robot)
    "ID": ("ID", "ID", (1, 1024), SWEEP),
    "FD": ("FD", "FD", (1, 1024), SWEEP),
    "FD Jacobian, jacfwd": ("FD explicit", "FD jacfwd", (128,), (1, 128)),
    "FD Jacobian, jacrev": ("FD explicit", "FD jacrev", (128,), (1, 128)),
    "ID vjp": ("ID vjp", "ID vjp", (1024,), (1, 1024)),
    "FD vjp": ("FD vjp", "FD vjp", (1024,), (1, 1024)),
    "rollout gradient": ("rollout gradient", "rollout gradient", (128,), (1, 128)),
}
OURS = "rbd_jax"
SAMPLES, LONGEST_S = 64, 2.0
ROUNDING = {"float32": 5e-2, "float64": 1e-5}  # of ill-conditioned robots, still far from a mistake


def _pythons(options) -> dict[str, str]:
    """Peer -> its Python; makes missing environments if asked to, and says which are absent."""
    given = dict(x.split("=", 1) for x in options.peer_python or [])
    for name in given.keys() - PEERS.keys():
        raise SystemExit(f"--peer-python: no peer {name!r}; there are {', '.join(PEERS)}")
    found = {}
    for name, peer in PEERS.items():
        python = given.get(name) or Path(options.peer_envs).absolute() / name / "bin" / "python"
        if name not in given and options.make_peers and not Path(python).exists():
            print(f"  making {python}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", Path(python).parents[1]], check=True)
            install = [python, "-m", "pip", "install", "-q", *peer.requirements]
            if subprocess.run(install).returncode:
                print(f"  {name} skipped: {' '.join(peer.requirements)} cannot be installed")
                continue
        if Path(python).exists():
            found[name] = str(python)
        else:
            print(f"  {name} skipped: no {python} (--make-peers makes it)")
    return found


def _request(name: str) -> dict:
    """What a side needs to load the robot: URDF, names of joints, states."""
    model = load(name, "float64")
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
    """All libraries that could load one robot in one dtype."""

    def __init__(self, robot: str, dtype: str, pythons: dict[str, str], patience: float):
        self.robot, self.dtype, self.patience = robot, dtype, patience
        self.sides = {OURS: Side("ours", sys.executable, dtype)}
        self.sides |= {name: Side(name, python, dtype) for name, python in pythons.items()}
        self.notes = {name: [] for name in self.sides}
        self.compile = dict.fromkeys(self.sides, 0.0)
        self.difference = {name: {} for name in self.sides}
        request = _request(robot) | {"dtype": dtype}
        self.loaded = self._all("load", self.patience, {n: request for n in self.sides})
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
            if name not in self.loaded or not side.alive:
                continue
            last, once = self.once.get((name, label), (batch, 0.0))
            if once * batch / last > LONGEST_S:
                self._note(name, f"{label}, batch {batch}: over {LONGEST_S:.0f} s a run")
                continue
            function = mine if name == OURS else theirs
            requests[name] = {"function": function, "batch": batch}
        compiled = self._all("compile", self.patience, requests, f"{label}, batch {batch}")
        for name, answer in compiled.items():
            self.compile[name] = max(self.compile[name], answer["compile_cpu_s"])
            self.once[name, label] = batch, answer["once"]
        if OURS not in compiled:
            return {}
        if self.difference[OURS].get(label) is None:
            self.compare(label, requests, compiled)
        racing = [n for n in compiled if self.difference[n].get(label, 0.0) is not None]
        times: dict[str, list[float]] = {n: [] for n in racing}
        for _ in range(3):  # turns; each library runs for about seconds / 3 in each
            for name in racing:
                runs = int(max(1, min(200, seconds / 3 / compiled[name]["once"])))
                try:
                    times[name] += self.sides[name].ask("time", self.patience, runs=runs)["times"]
                except Failed as problem:
                    self._note(name, f"{label}, batch {batch}: {problem}")
        self.once |= {(n, label): (batch, float(np.median(t))) for n, t in times.items() if t}
        return {n: self.once[n, label][1] / batch * 1e6 for n, t in times.items() if t}

    def compare(self, label: str, requests: dict, compiled: dict) -> None:
        """Differences from our results; None for a library that computes something else."""
        ask = {n: {"function": requests[n]["function"], "samples": 4} for n in compiled}
        blocks = {n: x["blocks"] for n, x in self._all("result", self.patience, ask, label).items()}
        blocks = {n: [np.array(b) for b in x] for n, x in blocks.items()}
        self.difference[OURS][label] = 0.0
        limit = ROUNDING["float32" if "rollout" in label else self.dtype]
        for name in [n for n in blocks if n != OURS]:
            pairs = list(zip(blocks[name], blocks[OURS], strict=True))
            if any(x.shape != y.shape for x, y in pairs):
                found = float("inf")
            else:
                found = max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)
            self.difference[name][label] = found if found < limit else None
            if not found < limit:
                self._note(name, f"{label}: differs by {found:.1e}, left out")


def _contest(contest: Contest, table: Table, best: Table, seconds: float, sweep, end: float):
    """All rows of one robot and dtype, and its rows in the summary."""
    fastest: dict[str, tuple[float, float, str]] = {}
    for label, (*_, few, many) in CASES.items():
        for batch in sweep or (many if contest.robot == ROBOTS[0] else few):
            if time.monotonic() > end:
                print(f"    {label}, batch {batch} skipped: out of time (--limit)")
                continue
            t = contest.race(label, batch, seconds)
            others = {n: x for n, x in t.items() if n != OURS}
            found = [d.get(label) for n, d in contest.difference.items() if n != OURS]
            worst = max((d for d in found if d is not None), default=None)
            peers = {n: others.get(n) for n in PEERS}
            row = {"robot": contest.robot, "nv": contest.nv, "dtype": contest.dtype}
            row |= {"function": label, "batch": batch, OURS: t.get(OURS)} | peers
            speed_up = min(others.values()) / t[OURS] if others and OURS in t else None
            table.add(**row, speed_up=speed_up, difference=worst)
            if speed_up:
                key = f"{label.split(', jac')[0]}, batch {batch}"
                name = min(others, key=others.get)
                new = t[OURS], others[name], name
                old = fastest.get(key)
                fastest[key] = new if old is None else (min(old[0], new[0]), *min(old[1:], new[1:]))
    for key, (mine, theirs, name) in fastest.items():
        cells = {"robot": contest.robot, "dtype": contest.dtype, "function": key, OURS: mine}
        best.add(**cells, best_other=theirs, which=name, speed_up=theirs / mine)


def _libraries(table: Table, contest: Contest) -> None:
    for name in contest.sides:
        versions = contest.loaded.get(name, {}).get("versions", {})
        found = [d for d in contest.difference[name].values() if d is not None]
        notes = list(dict.fromkeys(contest.notes[name]))
        table.add(
            robot=contest.robot,
            dtype=contest.dtype,
            library=name,
            versions=", ".join(f"{k} {v}" for k, v in versions.items()) or None,
            largest_difference=max(found, default=None) if name != OURS else None,
            longest_compile_cpu_s=contest.compile[name],
            notes="; ".join(notes) or (PEERS[name].note if name in PEERS else None),
        )


def _plot(report: Report, table: Table, best: Table) -> None:
    panels, rows = [], [r for r in table.rows if r["robot"] == ROBOTS[0]]
    for label in ("ID", "FD"):
        mine = [r for r in rows if r["function"] == label and r["dtype"] == rows[0]["dtype"]]
        if len(mine) > 1:
            series = {n: [r.get(n) for r in mine] for n in (OURS, *PEERS)}
            title, batches = f"{label} of {ROBOTS[0]}", [r["batch"] for r in mine]
            panels.append(Lines(title, "batch", "µs per evaluation", batches, series))
    groups = list(dict.fromkeys((r["robot"], r["dtype"]) for r in best.rows))
    keys = [k for k in dict.fromkeys(r["function"] for r in best.rows) if "batch 1" != k[-7:]]
    value = {(r["robot"], r["dtype"], r["function"]): r["speed_up"] for r in best.rows}
    series = {k: [value.get((*g, k)) for g in groups] for k in keys}
    series = {k: x for k, x in series.items() if sum(v is not None for v in x) == len(groups)}
    if series:
        names = [" ".join(g) for g in groups]
        panels.append(Bars("Fastest other library / ours", "speed-up", names, series, level=1))
    if panels:
        draw(report, panels)


def main(options) -> None:
    """A fixed-base arm over all batches; Talos and HyQ."""
    report = Report("peers", options, ABOUT)
    end = time.monotonic() + (options.limit or 450)
    pythons = _pythons(options)
    best = report.table("The fastest other library against ours")
    table = report.table("All of them, µs per evaluation")
    libraries = report.table("The libraries")
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    sweep = (2,) if options.tiny else ((options.batch,) if options.batch else None)
    for name in names:
        for dtype in options.dtypes:
            if time.monotonic() > end:
                print(f"{name}, {dtype} skipped: out of time (--limit)")
                continue
            with Contest(name, dtype, pythons, options.patience) as contest:
                _contest(contest, table, best, min(options.seconds, 0.5), sweep, end)
                _libraries(libraries, contest)
            report.write()
    _plot(report, table, best)
    report.write()
