"""The parts of the benchmarks that could make a comparison unfair without anybody noticing."""

import importlib
import json
import sys
from functools import partial
from time import sleep
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import jit

import rbd_jax as rbd
from benchmarks import (
    _gpu,
    _gpu_policy,
    _gpu_solvers,
    _grid,
    _ground,
    _ptxas,
    _warp,
    _ways,
    _whole,
    baselines,
    figures,
    gpu,
    guard,
    kernels,
    pinocchio,
    ptx,
    representations,
    singh,
    single,
)
from benchmarks.__main__ import _parser
from benchmarks._peers import layout
from benchmarks._peers.contest import OURS, Contest, describe
from benchmarks._peers.description import to_urdf
from benchmarks._peers.serve import time_of_kernels
from benchmarks._peers.side import Side
from benchmarks._pinocchio import same_tree
from benchmarks._report import Report, Table, origins

KINDS = "revolute", "prismatic"


@pytest.fixture(scope="module")
def tree():
    return rbd.samples.random_tree(3, kinds=KINDS, n=6)


def _state(model, seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    q = jit(rbd.random_configuration)(model, keys[0])
    return q, *(jax.random.normal(k, (model.nv,)) for k in keys[1:])


@pytest.mark.float64
def test_the_algorithm_before_idsva(tree):
    for model in (tree, rbd.samples.tree(4, 2, floating_base=True)):
        state = _state(model)
        expected = jit(rbd.inverse_dynamics_derivatives)(model, *state)
        for x, y in zip(jit(baselines.pinocchio_id)(model, *state), expected, strict=True):
            assert jnp.abs(x - y).max() <= 1e-12 * jnp.abs(y).max()


@pytest.mark.float64
def test_idsva_in_body_coordinates(tree):
    state = _state(tree)
    expected = jit(rbd.inverse_dynamics_derivatives)(tree, *state)
    found = jit(baselines.idsva_body)(tree, *state)
    for x, y in zip(found, expected, strict=True):
        assert jnp.abs(x - y).max() <= 1e-12 * jnp.abs(y).max()


def test_idsva_in_body_coordinates_refuses_a_floating_base():
    model = rbd.samples.quadruped()
    v = jnp.zeros(model.nv)
    with pytest.raises(ValueError, match="one dof"):
        baselines.idsva_body(model, jnp.zeros(model.nq), v, v)


@pytest.mark.float64
@pytest.mark.parametrize("floating", [False, True])
def test_description_of_a_robot(tree, floating):
    """The URDF that all libraries read is the robot: same joints, same torques."""
    model = rbd.samples.quadruped() if floating else tree
    zero = jnp.zeros(model.nv)
    model = eqx.tree_at(lambda m: (m.damping, m.armature), model, (zero, zero))
    urdf, names = to_urdf(model)
    again = rbd.load_urdf(urdf, floating_base=floating, mimic="independent")
    assert set(names) <= set(again.joint_names) and again.nv == model.nv
    order = np.concatenate(
        [np.arange(model.nv)[model.v_slice(n if n in names else model.joint_names[0])]
         for n in again.joint_names]
    )  # fmt: skip
    q, v, a = _state(model)
    start = 1 if floating else 0  # a quaternion is one longer
    q_again = jnp.concatenate([q[: 7 * start], q[7 * start :][order[6 * start :] - 6 * start]])
    expected = jit(rbd.rnea)(model, q, v, a)[order]
    found = jit(rbd.rnea)(again, q_again, v[order], a[order])
    assert jnp.abs(found - expected).max() <= 1e-11 * jnp.abs(expected).max()


@pytest.mark.float64
def test_the_same_tree_in_pinocchio():
    pin = pytest.importorskip("pinocchio")
    model = rbd.samples.tree(7, 2)
    state = _state(model)
    theirs = same_tree(model)
    tau = pin.rnea(theirs, theirs.createData(), *(np.asarray(x) for x in state))
    assert np.abs(tau - jit(rbd.rnea)(model, *state)).max() <= 1e-12 * np.abs(tau).max()


def test_layouts_turn_the_base():
    """A quarter turn about z: the body's x is the world's y; centrifugal acceleration joins."""
    half = np.sqrt(0.5)
    states = {
        "base_q": np.array([[1.0, 2.0, 3.0, half, 0.0, 0.0, half]]),
        "base_v": np.array([[0.0, 0.0, 2.0, 3.0, 0.0, 0.0]]),
        "base_a": np.zeros((1, 6)),
    } | {f"joint_{k}": np.array([[1.0, 2.0]]) for k in ("q", "v", "a", "tau")}
    found = layout.mujoco(states, [1, 0])
    np.testing.assert_allclose(found["v"], [[0, 3, 0, 0, 0, 2, 2, 1]], atol=1e-14)
    np.testing.assert_allclose(found["a"], [[-6, 0, 0, 0, 0, 0, 2, 1]], atol=1e-14)
    states["base_v"] = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(
        layout.mixed(states, [0, 1])["v"], [[0, 0, 0, 0, 1, 0, 1, 2]], atol=1e-14
    )


def test_layout_of_pinocchio():
    """Quaternions end with w, and the linear velocity of the base comes first."""
    states = {
        "base_q": np.array([[1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.4]]),
        "base_v": np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]),
        "base_a": np.array([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]),
    } | {f"joint_{k}": np.array([[7.0, 8.0]]) for k in ("q", "v", "a", "tau")}
    found = layout.pinocchio(states, [1, 0])
    np.testing.assert_array_equal(found["q"], [[1, 2, 3, 0.2, 0.3, 0.4, 0.1, 8, 7]])
    np.testing.assert_array_equal(found["v"], [[4, 5, 6, 1, 2, 3, 8, 7]])
    np.testing.assert_array_equal(found["a"], [[3, 2, 1, 6, 5, 4, 8, 7]])
    np.testing.assert_array_equal(found["tau"], [[0, 0, 0, 0, 0, 0, 8, 7]])


def test_time_of_kernels_leaves_out_copies_and_other_devices():
    def plane(name, stream, *events):
        events = [SimpleNamespace(name=n, duration_ns=t) for n, t in events]
        return SimpleNamespace(name=name, lines=[SimpleNamespace(name=stream, events=events)])

    gpu = plane("/device:GPU:0", "Stream #7(Compute)", ("f", 3.0), ("MemcpyD2D", 9.0), ("g", 4.0))
    more = plane("/device:GPU:0", "Stream #8(Compute)", ("f", 2.0), ("Memset", 9.0))
    derived = plane("/device:GPU:0", "XLA Ops", ("f", 50.0))
    host = plane("/host:CPU", "Stream", ("f", 50.0))
    found = time_of_kernels(SimpleNamespace(planes=[gpu, more, derived, host]))
    assert found == {"all": 9.0, "longest": 5.0}
    with pytest.raises(RuntimeError, match="no kernels"):
        time_of_kernels(SimpleNamespace(planes=[host]))


class _Build:
    """In place of a robot of GRiD: one build, method and number of threads is fast."""

    def __init__(self, name, _):
        self.name, self.threads = name, None

    def set_threads_per_block(self, n):
        self.threads = n

    def _call(self, method, q):
        def host(q):
            if self.threads > 200:
                raise RuntimeError("too many threads")
            fast = (self.name, method, self.threads) == ("b", "aba", 128)
            sleep(0.0 if fast else 0.02)
            return q

        return jax.pure_callback(host, jax.ShapeDtypeStruct(q.shape, q.dtype), q)

    def forward_dynamics(self, q, v, tau):
        return self._call("forward_dynamics", q)

    def aba(self, q, v, tau):
        return self._call("aba", q)


def test_grid_takes_the_fastest_launch(tmp_path, monkeypatch):
    robots = {n: {"joint_names": ["base", "y", "x"]} for n in "ab"}
    robots["c"] = {"joint_names": ["base", "z"]}
    (tmp_path / "manifest.json").write_text(json.dumps({"robots": robots}))
    fake = SimpleNamespace(get_robot=_Build)
    for name, module in {"grid_rbd": SimpleNamespace(jax=fake), "grid_rbd.jax": fake}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    grid = importlib.import_module("benchmarks._peers.grid")
    monkeypatch.delitem(sys.modules, "benchmarks._peers.grid")
    monkeypatch.setattr(grid, "KERNELS", tmp_path)
    robot = grid.Robot("", True, ["x", "y"], jnp.dtype("float32"))
    assert robot.joints == ["y", "x"] and set(robot.builds) == {"a", "b"}
    args = (jnp.ones(3, jnp.float32),) * 3
    for _ in range(2):  # the second program takes the launch that the first one chose
        assert robot.compiled(("FD", 1), robot.forward_dynamics, args)(*args).shape == (3,)
        assert robot.choice == "b, 128 threads, aba" and robot.robot.threads == 128
    with pytest.raises(ValueError, match="these joints"):
        grid.Robot("", True, ["y"], jnp.dtype("float32"))


@pytest.mark.float64
@pytest.mark.parametrize(
    "label", [pytest.param(x, marks=pytest.mark.slow) for x in ("ID", "FD derivatives")]
)
def test_a_row_against_grid(label):
    """This library in GRiD's place: calls are timed, and both errors are those of float32."""
    model = rbd.samples.quadruped()
    what = describe(model)
    again = rbd.load_urdf(what["urdf"], floating_base=True, mimic="independent")
    wanted = _grid.truths(again, what["joints"])[label]
    what = describe(again)
    sides = {name: Side("ours", sys.executable, "float32") for name in (OURS, _grid.GRID)}
    try:
        for side in sides.values():
            side.ask("load", 600.0, **what, dtype="float32")
        cells = {}
        for more in _grid._measured(sides, label, 64, 0.01, wanted):
            cells |= more
    finally:
        _grid._close(sides)
    assert cells["note"] is None and cells["grid, call"] > 0
    assert cells["rbd_jax_error"] == cells["grid_error"] < 1e-4


@pytest.mark.float64
def test_a_contest_of_ours_with_itself():
    """The protocol from end to end: the same library as its own peer agrees and is timed."""
    with Contest("arm", "float64", {}, 600.0, "batches") as contest:
        assert OURS in contest.loaded
        times = contest.race("FD Jacobian, jacfwd", 64, 0.01)
        assert times[OURS] > 0
        answer = contest.sides[OURS].ask("result", 600.0, function="FD explicit", samples=2)
        assert contest.sides[OURS].ask("time", 600.0, runs=2)["times"]
    blocks = [np.array(b) for b in answer["blocks"]]
    assert [b.shape for b in blocks] == [(2, 7, 7)] * 3


def test_kernels_of_a_loop_are_counted_as_often_as_they_run():
    """On a program for a CPU: its steps add up, whatever surrounds them."""

    def counted(steps):
        def step(x, _):
            return jnp.sin(x @ x), None

        f = jax.jit(lambda x: jax.lax.scan(step, x, length=steps)[0])
        module = f.lower(jnp.eye(8)).compile().runtime_executable().hlo_modules()[0]
        return _gpu._count(module)[0]

    ten, twenty, forty = counted(10), counted(20), counted(40)
    assert forty - twenty == 2 * (twenty - ten) >= 2 * 10


def test_kernels_need_the_cuda_plugin(capsys, monkeypatch):
    monkeypatch.setattr(kernels, "_installed", lambda module: False)
    kernels.main(SimpleNamespace())
    assert "pip install jax-cuda12-plugin" in capsys.readouterr().out


def test_ptx_needs_the_assembler(capsys, monkeypatch):
    monkeypatch.setattr(_ptxas, "path", lambda: None)
    ptx.main(SimpleNamespace())
    assert "pip install nvidia-cuda-nvcc" in capsys.readouterr().out


def test_kernels_of_teams_are_assembled(tmp_path, monkeypatch, capsys):
    """One row a kernel; a text that is not accepted, and robots that are missing, are named."""
    pytest.importorskip("llvmlite")
    pytest.importorskip("mujoco")
    from benchmarks import _ptx_teams

    used, texts = _ptxas.Usage(40, 8, 4, 2, 0.1, 70), []

    def accepts(text, entry, cpu):
        texts.append(text)
        if len(texts) == 2:
            raise RuntimeError("ptxas does not accept the text: line 3\nline 4")
        return used

    monkeypatch.setattr(_ptxas, "assemble", accepts)
    command = ["ptx", "--tiny", "--results", str(tmp_path), "--robots", "arm"]
    options = _parser().parse_args(command)
    options.robots = ["arm", "go1"]
    report = Report("ptx", options, "")
    table = report.table("A team")
    functions = {"id": rbd.inverse_dynamics, "again": rbd.inverse_dynamics, "fd": rbd.aba}
    monkeypatch.setitem(_ptx_teams.PARTS, "dynamics", lambda options: (
        ("arm", label, jax.vmap(partial(f, rbd.samples.arm(dtype="float32"))),
         (jnp.zeros((2, 7), "float32"),) * 3) for label, f in functions.items()
    ))  # fmt: skip
    _ptx_teams.assemble(report, table, options, ["dynamics"], "sm_90")
    first, second = table.rows
    assert (first["function"], second["function"]) == ("id", "fd") and len(texts) == 2
    assert all(".entry " in text for text in texts)
    assert (first["SASS"], first["registers"], first["spilled"]) == (70, 40, 6)
    assert first["threads"] in (8, 16, 32) and first["chip"] > 0 == first["far"]
    assert second["note"] == "ptxas does not accept the text: line 3"
    options.tiny = False
    assert not list(_ptx_teams.PARTS["ground"](options))
    assert "go1 skipped" in capsys.readouterr().out


def test_instructions_of_an_entry_without_the_padding():
    first = """
        /*0000*/                   FMUL R5, R0, R0 ;
.L_x_2:
        /*0010*/              @!P0 BRA `(.L_x_2) ;
        /*0020*/                   NOP;
"""
    last = "        /*0000*/                   EXIT ;\n"
    head = "\n//--------------------- .text.{0}  ---\n{0}:\n.text.{0}:"
    listing = head.format("main") + first + head.format("main_first") + "\n" + last
    assert _ptxas.instructions_in(listing, "main") == 2
    assert _ptxas.instructions_in(listing, "main_first") == 1


def test_gpu_fails_without_a_gpu(tmp_path):
    with pytest.raises(SystemExit, match="no GPU here: JAX runs on cpu"):
        gpu.main(SimpleNamespace(results=tmp_path, tiny=False))
    assert not list(tmp_path.iterdir())


def test_gpu_refuses_parts_that_it_does_not_have(tmp_path):
    options = _parser().parse_args(["gpu", "--tiny", "--results", str(tmp_path)])
    options.parts = ["ways", "targets"]
    with pytest.raises(SystemExit, match="gpu has no parts targets; it has ways, sizes"):
        gpu.main(options)


def test_solvers_that_were_measured_on_a_gpu_are_not_measured_again(tmp_path, monkeypatch):
    asked = []

    def measured(name, batch, steps, options, changes):
        asked.append(name)
        if name == "mpc":
            return {"note": "no answer in 1 s"} if changes else {"us": 1.0, "device": "a GPU"}
        if name == "ilqr" and len(asked) == 1:
            return {"note": "out of memory"}
        return {"us": 2.0 + len(changes), "result": [1.0, 2.0 + len(changes)], "device": "x"}

    monkeypatch.setattr(_gpu_solvers, "_measured", measured)
    options = _parser().parse_args(["gpu", "--tiny", "--keep", "--results", str(tmp_path)])
    options.seconds, options.dtypes, options.parts = 0.1, ["float32"], ["solvers"]
    for count in (8, 10, 10):
        gpu.main(options)
        assert len(asked) == count
    tables = json.loads((tmp_path / "gpu.json").read_text())["tables"]
    (table,) = (t for t in tables if t["title"] == gpu.SOLVERS)
    rows = {r["function"]: r for r in table["rows"]}
    assert len(table["rows"]) == len(rows) == 4
    assert rows["ilqr"]["ahead"] == 1.5 and abs(rows["ilqr"]["difference"] - 1 / 3) < 1e-12
    assert rows["mpc"]["time"] == 1 and rows["mpc"]["note"] == "CPU: no answer in 1 s"


@pytest.mark.slow
def test_rollouts_with_a_policy_on_a_cpu(monkeypatch):
    """Three steps beside MuJoCo's, and the gradients."""
    pytest.importorskip("mujoco")
    monkeypatch.setattr(_gpu_policy, "STEPS", 3)
    xml = _ground.QUADRUPED
    task = _ways.Task(_gpu_policy.TITLE, "quadruped", "float32", 2, (), xml)
    (ours,) = _gpu_policy.prepared(task)(0.01, 0.0)
    row = _gpu_policy._row(ours, {"mjx": 8.0, "mjx_error": 1e-3})
    assert row["note"] is None and 0 < row["error"] < 1e-5
    assert row["times"] == min(row[m] for m in _gpu_policy.MODES) / row["rollout"]
    assert row["ahead"] == 8 / row["rollout"]


@pytest.mark.slow
def test_a_row_of_gpu_on_a_cpu(monkeypatch):
    """All but the device: times, errors against float64, the floor; wrong results are named."""
    task = _ways.Task("both", "arm", "float32", 8, ("inverse_dynamics",))
    speed = gpu.bandwidth(1)
    ((title, row),) = _ways.together([task], 0.01, speed)
    assert title == "both" and (row["robot"], row["function"]) == ("arm", "inverse_dynamics")
    assert all(row[way] > 0 and 0 < row[f"{way}_error"] < 1e-5 for way in _ways.WAYS)
    assert 0 < row["fraction"] < 1 and row["note"] is None
    monkeypatch.setitem(_ways.WRONG, "float32", 1e-12)
    (row,) = _ways.prepared(task)(0.01, speed)
    assert row["note"] == "WRONG: XLA, lanes, default"


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("job", list(_whole.JOBS))
def test_whole_programs_are_traced(job):
    """What the last table of ``compile`` times can still be called."""
    pytest.importorskip("mujoco")
    if not rbd.io.example_robots():
        pytest.skip("example-robot-data is not installed")
    function, args = _whole.JOBS[job](_whole.EXAMPLES[job][0], "float64", "")
    assert jax.jit(function).trace(*args).jaxpr.eqns


def test_where_aza_overtakes():
    def table(*ratios):
        rows = [{"N": 10**i, "AZA": x, "DMM": 1.0} for i, x in enumerate(ratios)]
        return Table("", rows=rows)

    assert figures.crossover(table(2.0, 2.0)) is None
    assert figures.crossover(table(0.5, 0.5)) == 1.0
    assert figures.crossover(table(4.0, 4.0, 0.25)) == pytest.approx(10**1.5)


def test_guard_looks_at_what_got_worse_in_medians_and_minima():
    row = {"robot": "r", "function": "ID", "ratio": 0.25, "pinocchio": 7.0}
    old = guard._ratios([{"title": "t", "rows": [row | {"ratio_of_minima": 0.2}]}])
    was = old["t", "r", "ID"]
    assert was == {"ratio": 0.25, "ratio_of_minima": 0.2}
    assert guard.worse(was | {"ratio": 0.5}, was) == 1.0
    assert guard.worse(was | {"ratio": 0.5, "ratio_of_minima": 0.6}, was) == 2.0


@pytest.mark.parametrize("ratio, calls, code", [(0.3, 1, None), (0.5, 2, 1)])
def test_guard_exits_with_one_for_a_slower_row(tmp_path, monkeypatch, capsys, ratio, calls, code):
    """Within the margin all is well; beyond it, it measures again before it says so."""
    table = {"title": "t", "rows": [{"robot": "r", "ratio": 0.25}]}
    head = {"date": "", "processor": "", "cores": 2, "commit": ""}
    content = {"tables": [table], "environment": head, "settings": {"dtypes": [], "seconds": 1}}
    (tmp_path / f"{pinocchio.name()}.json").write_text(json.dumps(content))
    asked = []

    def measure(options):
        asked.append(options)
        return {("t", "r"): {"ratio": ratio}}

    monkeypatch.setattr(guard, "_measure", measure)
    options = SimpleNamespace(results=tmp_path, margin=1.3, robots=None)
    if code:
        with pytest.raises(SystemExit) as left:
            guard.main(options)
        assert left.value.code == code
    else:
        guard.main(options)
    assert len(asked) == calls
    assert ("SLOWER" in capsys.readouterr().out) == bool(code)


def test_a_second_run_keeps_the_rows_of_robots_that_it_does_not_reach():
    old = [{"robot": r, "dtype": "float32", "time": x} for r, x in [("a", 1), ("b", 2), ("b", 3)]]
    table = Table("times", "", old, old)
    for time in (4, 5):
        table.add(robot="b", dtype="float32", time=time)
    assert [(r["robot"], r["time"]) for r in table.rows] == [("a", 1), ("b", 4), ("b", 5)]


@pytest.mark.slow
@pytest.mark.float64
def test_the_part_against_warp(tmp_path, monkeypatch, capsys):
    """Rows of both sides are joined, and a second run measures nothing."""
    pytest.importorskip("mujoco")

    class Theirs:
        def __init__(self, python, tasks, patience):
            self.ground = _ground.Ground(tasks[0].xml, 8)

        def prepare(self):
            pass

        def measured(self, robot, batch):
            qpos, qvel = self.ground.by_mujoco(8)
            error = _warp.relative_error((qpos, 1.1 * qvel), (qpos, qvel))
            return {"warp_step": 1e6, "warp_rollout": 1e6, "warp_error": error}

        def close(self):
            pass

    def here(tasks, seconds, speed, prepare, meanwhile):
        meanwhile()
        for task in tasks:
            for cells in prepare(task)(seconds, speed):
                yield task.title, cells

    monkeypatch.setattr(_warp, "Theirs", Theirs)
    monkeypatch.setattr(_warp, "together", here)
    monkeypatch.setattr(_warp, "ROBOTS", ("quadruped",))
    for count in (1, 0):
        command = ["gpu", "--tiny", "--keep", "--results", str(tmp_path)]
        options = _parser().parse_args([*command, "--peer-python", "warp=python"])
        options.seconds = 0.1
        options.robots, options.dtypes, options.parts = ["quadruped"], ["float32"], ["warp"]
        capsys.readouterr()
        gpu.main(options)
        assert capsys.readouterr().out.count("warp_error 0.1") == count
    (table,) = json.loads((tmp_path / "gpu.json").read_text())["tables"][3:4]
    (row,) = table["rows"]
    assert row["note"] is None and row["error"] < 1e-5
    assert row["step_ahead"] == 1e6 / row["step"] and row["rollout"] > 0 and row["vjp"] > 0


def test_warp_inside_of_mjx_has_room_for_all_worlds_and_says_what_fails(monkeypatch):
    """The row has its own time and error; a process that fails leaves its last line."""
    pytest.importorskip("mujoco")
    theirs = object.__new__(_warp.Theirs)
    theirs.tasks = [_ways.Task(_warp.TITLE, "quadruped", "float32", 4, (), _ground.QUADRUPED)]
    ground = _ground.Ground(_ground.QUADRUPED, 4)
    theirs.wanted = {"quadruped": ground.by_mujoco(4)}
    theirs.sizes, asked = {"quadruped": (24, 64)}, []
    qpos, qvel = theirs.wanted["quadruped"]

    def mjx(self, python, dtype, seconds, warp):
        asked.append((python, dtype, warp))
        state = {"qpos": qpos.tolist(), "qvel": (1.1 * qvel).tolist()}
        return {"us": 9.0, "in_a_row": 8.0, "compile_s": 2.0, **state}

    monkeypatch.setattr(_ground.Ground, "mjx", mjx)
    cells = theirs.through_mjx("python", "quadruped", 4)
    assert asked == [("python", "float32", (24 * 4, 64))]
    assert cells["mjx_warp"] == 2000 and abs(cells["mjx_warp_error"] - 0.1) < 1e-6
    row = _warp._row({"robot": "quadruped", "step": 1.0}, cells)
    assert row["mjx_warp"] == 2000 and row["note"] is None
    monkeypatch.setattr(_ground.Ground, "mjx", lambda *_: {"note": "no GPU"})
    cells = theirs.through_mjx("python", "quadruped", 4)
    assert _warp._row({}, cells)["note"] == "MJX, Warp: no GPU"
    monkeypatch.undo()
    failed = ground.mjx(sys.executable, "float32", 0.1, (96, 64))  # MJX is not here
    assert "in_a_row" in failed or failed["note"]


def test_a_run_of_which_no_row_is_left_is_not_mentioned(tmp_path):
    for day, robots in enumerate(["ab", "b", "a"]):
        options = _parser().parse_args(["pinocchio", "--keep", "--results", str(tmp_path)])
        report = Report("times", options, "About.")
        report.environment["date"] = f"day {day}"
        table = report.table("Times")
        for robot in robots:
            table.add(robot=robot, dtype="float32", time=day)
        report.write()
        text = (tmp_path / "times.md").read_text()
        told = [day for day in range(3) if f"day {day} (" in text]
        assert told == [[], [0], [1]][day]  # the third run leaves nothing of the first


def test_earlier_runs_are_told_by_what_was_different():
    versions = {"jax": "1", "pin": "3"}
    machine = {"processor": "A", "cores": 2, "device": "cpu", "versions": versions}
    run = lambda date, settings, **other: {  # noqa: E731
        "environment": machine | {"date": date, "commit": "c" + date} | other,
        "settings": {"robots": [date]} | settings,
    }
    lines = origins([
        run("4", {"batch": 5}),
        run("2", {}, versions={"jax": "2", "pin": "3"}),
        run("1", {}, versions={"jax": "2", "pin": "3"}),
        run("3", {"batch": 5}),
        run("0", {"batch": 6}, processor="B", cores=1, versions={"jax": "1"}),
    ])  # fmt: skip
    assert lines[2:-1] == [
        "- no batch, jax 2: 1 (c1), 2 (c2)",
        "- the same machine, versions and settings: 3 (c3)",
        "- B, 1 cores, batch 6, no pin: 0 (c0)",
    ]
    assert not origins([run("4", {})])


@pytest.mark.slow
def test_single_calls_in_a_process_set_up_for_them():
    found = single._elsewhere("arm", "float32", 0.01, "without lanes")
    assert {"ID", "FD", "step"} <= found.keys() and min(found.values()) > 0


@pytest.mark.float64
def test_calls_of_the_four_representations_are_those_of_the_paper():
    """Müller §4: as many more for each joint more; the first body hangs on the world."""
    table = Table("Calls")
    representations.count_calls(table, (3, 4))
    three, four = ([r for r in table.rows if r["n"] == n] for n in (3, 4))
    for x, y in zip(three, four, strict=True):
        for what, (slope, _) in representations.PAPER.get(x["representation"], {}).items():
            assert y[what] - x[what] == slope
            assert 0 <= y[what] - y[f"paper: {what}"] <= 4
        assert x["vector rotations"] > 0 and x["vector products"] > 0


@pytest.mark.float64
def test_derivatives_along_one_joint_start_at_that_joint():
    """Kim §3.2: twists change below the joint, articulated inertias above it, each at its cost."""
    table = Table("Operations")
    representations.start_at_joint(table, 4)
    for label, of_all in (("Table 5", 0.8), ("Table 6", 0.7)):
        whole, *joints = (row[label] for row in table.rows)
        steps = np.diff(joints)
        assert (steps == steps[0]).all()
        assert steps[0] < 0 if label == "Table 5" else steps[0] > 0
        assert max(joints) < of_all * whole


@pytest.mark.float64
def test_operations_are_counted_inside_the_functions_of_the_library():
    """Of the same recursion, which is one operation to JAX when it is compiled to lanes."""
    chain = rbd.samples.chain(6)
    jax.jit(rbd.rnea).lower(chain, *3 * [jnp.zeros(6)])  # a trace that must not be used again
    counted = representations.count(rbd.rnea, chain)
    assert counted == representations.count(representations.FUNCTIONS["body_fixed"], chain) > 1000


@pytest.mark.float64
def test_complex_step_is_the_derivative_of_forward_dynamics():
    """The reference of Singh's accuracy figure, on a tree, with rotor inertia and damping."""
    model = rbd.samples.random_tree(3, kinds=("revolute",), n=5)
    q, v, tau = _state(model)
    value = singh.aba_numpy(model, *(np.asarray(x, np.longdouble) for x in (q, v, tau)))
    exact = np.asarray(jit(rbd.aba)(model, q, v, tau))
    assert np.abs(value - exact).max() <= 1e-13 * np.abs(exact).max()
    found = jit(rbd.forward_dynamics_derivatives)(model, q, v, tau)[:2]
    for x, y in zip(found, singh.complex_step(model, q, v, tau), strict=True):
        assert np.abs(np.asarray(x) - y).max() <= 1e-12 * np.abs(y).max()


@pytest.mark.float64
def test_robot_of_the_size_of_atlas():
    model = singh.atlas()
    assert (model.nv, model.nb) == (36, 31) and model.topology.kinds[0] == "free"
