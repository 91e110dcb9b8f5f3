"""The command line: what it prints, what it exits with, what it says when something is wrong."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from support.command_line import run  # noqa: E402

URDF = """<robot name="swing">
  <link name="base"/>
  <link name="bob">
    <inertial><origin xyz="0 0 -1"/><mass value="2"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="hinge" type="continuous"><parent link="base"/><child link="bob"/>
    <axis xyz="0 1 0"/></joint>
</robot>
"""


def arrays(path) -> dict:
    import numpy as np

    with np.load(path) as saved:
        return dict(saved)


@pytest.fixture
def urdf(tmp_path):
    path = tmp_path / "swing.urdf"
    path.write_text(URDF)
    return path


def test_info_of_a_sample():
    result = run("info", "sample:quadruped")
    assert result.exit_code == 0, result.output
    for text in ("lf_kfe", "trunk", "nq, nv", "19, 18"):
        assert text in result.output


def test_info_of_a_file(urdf):
    result = run("info", urdf, "--floating-base")
    assert result.exit_code == 0, result.output
    assert "swing" in result.output and "root_joint" in result.output


def test_info_shows_the_warnings(tmp_path):
    path = tmp_path / "bad.urdf"
    path.write_text(URDF.replace('ixx="0.1"', 'ixx="9"'))
    result = run("info", path)
    assert result.exit_code == 0, result.output
    assert "warning" in result.output and "triangle" in result.output


def test_reach(tmp_path):
    saved, picture = tmp_path / "found.npz", tmp_path / "found.png"
    options = "--output", saved, "--picture", picture
    result = run(
        "reach", "sample:arm", "--frame", "tool", "--target", "0.4 0 0.4 0 150 0", *options
    )
    assert result.exit_code == 0, result.output
    assert "reached: " in result.output and "joint7" in result.output
    assert arrays(saved)["q"].shape == (2, 7) and picture.stat().st_size > 10_000
    aim = "reach", "sample:arm", "--frame", "tool", "--target", "0.4 0 0.4"
    around = run(*aim, "--obstacle", "0.25 0 0.4 0.05", "--picture", picture)
    assert around.exit_code == 0, around.output
    assert float(re.search(r"nearest to an obstacle: .*, (\S+) mm", around.output)[1]) >= 0
    inside = run(*aim, "--obstacle", "0.4 0 0.4 0.1", "--starts", 1)
    assert inside.exit_code == 1 and "mm too near" in inside.output
    wrong = run(*aim, "--obstacle", "0.4 0 0.4")
    assert wrong.exit_code == 2 and "X Y Z RADIUS" in wrong.output
    far = run("reach", "sample:arm", "--frame", "tool", "--target", "3 0 0", "--starts", 1)
    assert far.exit_code == 1, far.output
    assert "not reached: 2 starts" in far.output
    for bad, text in ((("tol", "1 0 0"), "tol"), (("tool", "1 0"), "X Y Z ROLL PITCH YAW")):
        wrong = run("reach", "sample:arm", "--frame", bad[0], "--target", bad[1])
        assert wrong.exit_code == 2 and text in wrong.output


def test_check_passes(urdf):
    result = run("check", urdf, "--states", 2)
    assert result.exit_code == 0, result.output
    assert "pass" in result.output and "FAIL" not in result.output
    assert "condition number" in result.output


def test_check_fails_on_a_singular_robot(tmp_path):
    path = tmp_path / "massless.urdf"
    bare = URDF.replace('<mass value="2"/>', '<mass value="0"/>').replace('"0.1"', '"0"')
    path.write_text(bare)
    result = run("check", path, "--states", 2)
    assert result.exit_code == 1, result.output
    assert "FAIL" in result.output and "checks failed" in result.output


def test_demo_of_a_robot_without_moving_joints():
    result = run("demo", "--robot", "sample:chain:0")
    assert (
        result.exit_code != 0
        and "no moving joints, so there is nothing to simulate" in result.output
    )


def test_check_of_a_robot_without_moving_joints():
    result = run("check", "sample:chain:0")
    assert result.exit_code == 0, result.output
    assert "no moving joints, so there is nothing to check" in result.output


@pytest.mark.parametrize(
    ("robot", "says"),
    [
        ("missing.urdf", "no file missing.urdf"),
        ("nosuchrobot", "nosuchrobot"),
        ("sample:nosuch", "no sample 'nosuch'; there are: pendulum"),
        ("sample:chain:x", "expected whole numbers"),
        ("sample:pendulum:1:1:float32:7", "expected whole numbers"),
        ("sample:arm:7", "'sample:arm:7': sample 'arm' takes no numbers"),
        ("sample:quadruped:1", "sample 'quadruped' takes no numbers"),
        ("sample:double_pendulum:2", "sample 'double_pendulum' takes no numbers"),
        ("sample:tree:7:2:1", "sample 'tree' takes the whole numbers n:branching"),
        ("sample:tree:7:0", "sample 'tree' cannot be built with a 0 here; give n:branching"),
    ],
)
@pytest.mark.parametrize("command", ["info", "check"])
def test_unknown_robots(command, robot, says):
    result = run(command, robot)
    assert result.exit_code == 2
    assert says in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_broken_file(tmp_path):
    path = tmp_path / "broken.urdf"
    path.write_text("<robot name='x'><link name='a'/>")
    result = run("check", path)
    assert result.exit_code == 2
    assert "cannot load" in result.output and "broken.urdf" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["--float32", "--float64"])
def test_demo(tmp_path, precision):
    picture = tmp_path / "demo.png"
    result = run("demo", "--robot", "sample:pendulum", "--batch", 3, "--steps", 12,
                 "--iterations", 1, "--output", picture, precision)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for text in ("forward dynamics per second", "central differences", "compile time (s)", "pass"):
        assert text in result.output


@pytest.mark.slow
def test_demo_of_a_flying_robot(tmp_path):
    picture = tmp_path / "demo.png"
    result = run("demo", "--robot", "sample:quadruped", "--batch", 2, "--steps", 100,
                 "--iterations", 1, "--output", picture)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 10_000
    assert "angular momentum" in result.output


def test_demo_says_where_it_cannot_write(tmp_path):
    result = run("demo", "--robot", "sample:pendulum", "--output", tmp_path / "no" / "demo.png")
    assert result.exit_code == 2
    assert "no folder" in result.output


def test_extras_are_missed_in_one_line():
    code = (
        "import importlib.util as u, rbd_jax.cli as c; f = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in ('typer', 'rich') else f(n, *a)\nc.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install "rbd-jax[cli]"' in done.stderr and "Traceback" not in done.stderr


def test_the_library_does_not_import_the_extras():
    code = (
        "import sys, rbd_jax\n"
        "extras = {'typer', 'rich', 'matplotlib', 'pinocchio', 'mujoco', 'optax', 'viser'}\n"
        "extras |= {'trimesh', 'websockets'}\n"
        "extras &= set(sys.modules)\n"
        "assert not extras, extras"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rollout_saves_motions(urdf, tmp_path):
    import numpy as np

    out, picture = tmp_path / "out.npz", tmp_path / "out.png"  # as NumPy and Matplotlib name them
    result = run("rollout", urdf, "--batch", 3, "--steps", 40, "--stride", 4, "--controls", "damp",
                 "--speed", 1, "--dt", 0.01, "--output", tmp_path / "out",
                 "--picture", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0, result.output
    said = "".join(result.output.split())
    assert f"✔{out}:" in said and f"✔{picture}" in said
    saved = arrays(out)
    assert saved["q"].shape == (3, 11, 1) and saved["tau"].shape == (3, 10, 1)
    np.testing.assert_allclose(saved["t"], 0.04 * np.arange(11))
    assert list(saved["joint_names"]) == ["hinge"]
    assert (np.sign(saved["tau"]) == -np.sign(saved["v"][:, :-1])).all()
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_rollout_of_a_robot_with_mimic_joints(tmp_path):
    """States and torques are those of the joints that do not follow others."""
    import rbd_jax as rbd

    panda = rbd.example_robot("panda")
    m = rbd.load_urdf(panda)
    result = run("rollout", panda, "--batch", 1, "--steps", 2, "--stride", 1, "--controls", "damp",
                 "--output", tmp_path / "out.npz")  # fmt: skip
    assert result.exit_code == 0, result.output
    saved = arrays(tmp_path / "out.npz")
    assert saved["q"].shape == (1, 3, m.nq) and saved["tau"].shape == (1, 2, m.nv)
    assert rbd.identify.load_npz(m, tmp_path / "out.npz").q.shape == (1, 2, m.nq)


@pytest.mark.slow
def test_robots_with_strong_damping(tmp_path):
    """Default motions are finite; a chosen integrator that is unstable says so, with the remedy."""
    import numpy as np

    damped, out = tmp_path / "damped.urdf", tmp_path / "out.npz"
    damped.write_text(URDF.replace("</joint>", '<dynamics damping="9e3"/></joint>'))
    options = "--batch", 2, "--steps", 200, "--speed", 1, "--output", out
    for more in ((), ("--float32",)):
        result = run("rollout", damped, *options, *more)
        assert result.exit_code == 0 and "not finite" not in result.output, result.output
        assert np.isfinite(arrays(out)["q"]).all()
        assert np.abs(arrays(out)["v"][:, -1]).max() < 0.01
    for name in ("rk4", "semi_implicit_euler"):
        said = " ".join(run("rollout", damped, *options, "--integrator", name).output.split())
        assert f"steps of 0.002 s with the integrator '{name}' are unstable" in said
        assert "2 of 2 motions are not finite; take the integrator 'implicit_coriolis'" in said
    for command in (("info", damped), ("check", damped, "--states", 1)):
        said = " ".join(run(*command).output.split())
        assert "explicit integrators need steps shorter than 0.00047 s" in said, said
        assert "0.00047 and 0.00065 s" in said or command[0] == "check"


@pytest.mark.slow
def test_optimize_saves_the_solution(tmp_path):
    import numpy as np

    out, picture = tmp_path / "out.npz", tmp_path / "out.png"
    result = run("optimize", "cart-pole", "--steps", 40, "--output", out, "--picture", picture)
    assert result.exit_code == 0, result.output
    assert "converged" in result.output and "yes" in result.output
    saved = arrays(out)
    assert saved["q"].shape == (41, 2) and saved["u"].shape == (40, 1)
    assert np.isfinite(saved["history_cost"]).all()
    assert picture.read_bytes()[:4] == b"\x89PNG"
    result = run("optimize", "cart-pole", "--steps", 40, "--max-steps", 1, "--output", out)
    assert result.exit_code == 1
    assert "not converged. The maximum number of steps" in result.output


def test_view_writes_a_page(urdf, tmp_path):
    pytest.importorskip("viser")
    import numpy as np

    path, page = tmp_path / "swing.npz", tmp_path / "swing.html"
    np.savez(path, t=np.linspace(0, 1, 3), q=np.zeros((5, 3, 1)), joint_names=["hinge"])
    result = run("view", urdf, path, "--robots", 2, "--html", page, "--port", 18090)
    assert result.exit_code == 0, result.output
    assert "__VISER_EMBED_DATA__" in page.read_text()
    result = run("view", "sample:double_pendulum", path, "--html", page)
    assert result.exit_code == 2
    assert "joints hinge…, but this robot has shoulder, elbow" in " ".join(result.output.split())


@pytest.mark.slow
def test_rollout_does_not_cut_an_integrator_with_memory(tmp_path):
    """The motion of one call of the library, however many pieces others are simulated in."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import rbd_jax as rbd

    out = tmp_path / "out.npz"
    result = run("rollout", "sample:double_pendulum", "--batch", 1, "--steps", 12, "--stride", 3,
                 "--dt", 0.1, "--integrator", "generalized_alpha", "--output", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    saved, model = arrays(out), rbd.samples.double_pendulum()
    how = {"stride": 3, "integrator": "generalized_alpha"}
    path = jax.jit(lambda q, v: rbd.rollout(model, q, v, jnp.zeros((12, 2)), 0.1, **how))(
        saved["q"][0, 0], saved["v"][0, 0]
    )
    np.testing.assert_allclose(saved["q"][0], path.q, atol=1e-10)


def test_optimize_takes_a_sample_that_always_floats(monkeypatch):
    """The robot is taken; here the solver then ends with a message, as it does without optax."""
    from rbd_jax.optimize.solvers import _single_shooting

    def missing():
        raise ImportError("single shooting needs optax")

    monkeypatch.setattr(_single_shooting, "_optax", missing)
    result = run("optimize", "reorient", "--robot", "sample:quadrotor_arm", "--steps", 3,
                 "--solver", "single-shooting")  # fmt: skip
    assert result.exit_code == 2, result.output
    assert result.output.strip().splitlines()[-1] == "rbd-jax: single shooting needs optax"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("optimize", "reorient", "--robot", "sample:arm"), "sample 'arm' has no floating base"),
        (("optimize", "reach", "--robot", "sample:quadruped"), "robot 'quadruped' floats"),
        (("optimize", "juggle"), "no task 'juggle'; the tasks are: cart-pole"),
        (("optimize", "cart-pole", "--robot", "talos"), "has its own robot"),
        (("optimize", "cart-pole", "--output", "no/such/file.npz"), "no folder no/such"),
        (("train", "cart-pole", "--model", "go1.xml"), "has its own robot; leave --model out"),
        (("train", "go1", "--model", "none.xml"), "go1: there is no file 'none.xml'"),
        (("train", "cart-pole", "--film", "film.html"), "'cart-pole' has no film"),
        (("rollout", "sample:pendulum", "--stride", 7), "the stride 7 does not divide the 1000"),
        (("rollout", "sample:pendulum", "--integrator", "x"), "integrator must be one of"),
    ],
)
def test_rollout_and_optimize_say_what_is_wrong(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.output.split())


@pytest.mark.parametrize("command", [("train", "stander"), ("mpc", "g1")])
def test_a_film_without_the_viewer_is_refused_before_the_work(command, monkeypatch):
    pytest.importorskip("mujoco")
    import importlib.util as util

    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda n, *a: None if n == "viser" else find(n, *a))
    result = run(*command, "--film", "film.html")
    assert result.exit_code == 2, result.output
    assert "a film needs the viewer" in result.output


OWN = """
import jax.numpy as jnp
import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks
from rbd_jax.simulate import Plant, State


class Lagging(Plant):
    model: rbd.Model

    def start(self, q, v, dt, controls):
        return State(q, v, 0 * v)

    def step(self, t, state, u, dt):
        tau = 0.5 * (state.memory + u)
        return State(*rbd.step(self.model, state.q, state.v, tau, dt), tau)


plant = Lagging(rbd.samples.pendulum(dtype="float64"))
number = 3


def task():
    one = jnp.ones(1)
    stage, final = opt.StateCost(one, one, one, one), opt.StateCost(one, one, one)
    problem = opt.Problem(plant, stage, final, 0.05, 8)
    return tasks.Task(problem, 0 * one, 0 * one, jnp.zeros((8, 1)))
"""


def test_plants_and_tasks_of_ones_own(tmp_path):
    file, output = tmp_path / "mine.py", tmp_path / "out.npz"
    file.write_text(OWN)
    result = run("rollout", f"{file}:plant", "--batch", 2, "--steps", 20, "--output", output)
    assert result.exit_code == 0, result.output
    assert arrays(output)["q"].shape == (2, 3, 1)
    result = run("optimize", f"{file}:task", "--output", output)
    assert result.exit_code == 0, result.output
    assert arrays(output)["K"].shape == (8, 1, 3)
    for text, says in (
        (f"{file}:number", "expected a plant of rbd_jax.simulate, found a int"),
        (f"{file}:nobody", "found nothing of this name"),
        ("nowhere.py:plant", "no file nowhere.py"),
    ):
        result = run("rollout", text)
        assert result.exit_code == 2 and says in " ".join(result.output.split()), result.output
