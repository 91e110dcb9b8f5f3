"""Against other JAX libraries: same robots, batch and dtype, in turns, results compared."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from ._peers import PEERS
from ._peers.contest import CALLS, CASES, OURS, Contest
from ._plots import Bars, draw
from ._report import Report, Table
from ._robots import available

ABOUT = (
    "Time per evaluation (median, µs). Every library runs in a process of its own, in the "
    "environment that suits it best (`benchmarks/_peers/__init__.py`). All libraries read the "
    "same URDF, which is made from the robot with its fixed links merged and without friction, "
    "damping and limits. In every row the processes take turns on the same states in the same "
    "dtype. Each runs one program `jax.jit(jax.vmap(f))` in which the robot is a constant. FD "
    "Jacobian: with respect to q, v and τ, by `forward_dynamics_derivatives` in rbd_jax and by "
    "the named mode of autodiff in the others. vjp: with respect to all three. jvp: along the "
    "joints of all three. Rollout gradient: of 16 semi-implicit steps with respect to the "
    "torques; the scan is the same line by line, over the forward dynamics of each library. "
    "Single calls: every process has one core, in line and with loops as kernels (`single.md` "
    "explains this). Batches: one program with JAX's default settings. The speed-up is the time "
    "of the fastest other library over the time of rbd_jax. The difference is the largest one "
    "from the result of rbd_jax, over the largest entry, of joints only. A library that differs "
    "by more than rounding is left out and named. –: not run; the "
    "table of the libraries says why."
)
ROBOTS = ["ur5", "talos", "hyq"]


def _pythons(options) -> tuple[dict[str, str], dict[str, str]]:
    """Peer -> its Python, and peer -> why it has none; makes missing environments if asked to."""
    given = dict(x.split("=", 1) for x in options.peer_python or [])
    for name in given.keys() - PEERS.keys() - {"crocoddyl"}:  # that is for optimize
        raise SystemExit(f"--peer-python: no peer {name!r}; there are {', '.join(PEERS)}")
    found, absent = {}, {}
    for name, peer in PEERS.items():
        folder = Path(options.peer_envs).absolute() / name
        python = Path(given.get(name, folder / "bin" / "python"))
        if name not in given and options.make_peers and not python.exists():
            print(f"  making {folder}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [python, "-m", "pip", "install", "-q", *peer.requirements]
            if subprocess.run(install).returncode:
                shutil.rmtree(folder)
                absent[name] = f"pip cannot install {' '.join(peer.requirements)}"
        if python.exists():
            found[name] = str(python)
        else:
            absent.setdefault(name, f"no {options.peer_envs}/{name} (--make-peers makes it)")
            print(f"  {name} skipped: {absent[name]}", flush=True)
    return found, absent


def _contest(
    contest: Contest, tables: tuple[Table, Table], seconds: float, sweep, end: float
) -> list[str]:
    """All rows of one robot and dtype, and its rows in the summary; what there was no time for."""
    best, table = tables
    fastest: dict[str, tuple[float, float, str]] = {}
    skipped = []
    for label, (*_, few, many) in CASES.items():
        usual = many if contest.robot == ROBOTS[0] else few
        for batch in (n for n in sweep or usual if CALLS[contest.calls](n)):
            if time.monotonic() > end:
                skipped.append(f"{label}, batch {batch}")
                print(f"    {skipped[-1]} skipped: out of time (--limit)")
                continue
            t = contest.race(label, batch, seconds)
            others = {n: x for n, x in t.items() if n != OURS}
            found = [d.get(label) for n, d in contest.difference.items() if n != OURS]
            worst = max((d for d in found if d is not None), default=None)
            peers = {n: others.get(n) for n in PEERS}
            row = {"robot": contest.robot, "nv": contest.nv, "dtype": contest.dtype}
            row |= {"calls": contest.calls, "function": label, "batch": batch}
            row |= {OURS: t.get(OURS)} | peers
            speed_up = min(others.values()) / t[OURS] if others and OURS in t else None
            table.add(**row, speed_up=speed_up, difference=worst)
            if speed_up:
                key = f"{label.split(', jac')[0]}, batch {batch}"
                name = min(others, key=others.get)
                new = t[OURS], others[name], name
                fastest[key] = min(fastest.get(key, new), new, key=lambda x: x[1])
    for key, (mine, theirs, name) in fastest.items():
        cells = {"robot": contest.robot, "dtype": contest.dtype, "calls": contest.calls}
        cells |= {"function": key, OURS: mine, "best_other": theirs}
        best.add(**cells, which=name, speed_up=theirs / mine)
    return skipped


def _libraries(table: Table, contest: Contest, skipped: list[str]) -> None:
    subject = {"robot": contest.robot, "dtype": contest.dtype, "calls": contest.calls}
    if skipped:
        table.add(**subject, library="all", notes=f"no time (--limit): {'; '.join(skipped)}")
    for name in contest.sides:
        versions = contest.loaded.get(name, {}).get("versions", {})
        found = [d for d in contest.difference[name].values() if d is not None]
        notes = list(dict.fromkeys(contest.notes[name]))
        table.add(
            **subject,
            library=name,
            versions=", ".join(f"{k} {v}" for k, v in versions.items()) or None,
            largest_difference=max(found, default=None) if name != OURS else None,
            longest_compile_cpu_s=contest.compile[name],
            notes="; ".join(notes) or (PEERS[name].note if name in PEERS else None),
        )


def _plot(report: Report, best: Table) -> None:
    rows = [r for r in best.rows if r["calls"] == "batches"]
    groups = list(dict.fromkeys((r["robot"], r["dtype"]) for r in rows))
    keys = dict.fromkeys(r["function"] for r in rows)
    value = {(r["robot"], r["dtype"], r["function"]): r["speed_up"] for r in rows}
    series = {k: [value.get((*g, k)) for g in groups] for k in keys}
    series = {k: x for k, x in series.items() if sum(v is not None for v in x) == len(groups)}
    if series:
        names = [" ".join(g) for g in groups]
        draw(report, [Bars("Fastest other library / ours", "speed-up", names, series, level=1)])


def main(options) -> None:
    """A fixed-base arm, Talos and HyQ."""
    report = Report("peers", options, ABOUT)
    end = time.monotonic() + (options.limit or 450)
    pythons, absent = _pythons(options)
    if not pythons:
        print("peers skipped: none of the libraries is there")
        return
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
            for calls, are_run in CALLS.items():
                if calls not in options.calls or not any(map(are_run, sweep or (1, 2))):
                    continue
                with Contest(name, dtype, pythons, options.patience, calls) as contest:
                    tables = best, table
                    skipped = _contest(contest, tables, min(options.seconds, 0.5), sweep, end)
                    _libraries(libraries, contest, skipped)
                report.write()
    for name, reason in absent.items():
        libraries.add(library=name, notes=f"skipped: {reason}")
    _plot(report, best)
    report.write()
