"""Walks on two legs: the schedule, the scene with motors, plans, and G1 under MPC in MuJoCo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.humanoid import like_g1
from typer.testing import CliRunner

pytest.importorskip("mujoco")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import optimize as opt, tasks  # noqa: E402


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("g1") / "g1.xml"
    path.write_text(like_g1())
    return path


@pytest.fixture(scope="module")
def mjcf(file):
    return tasks.g1_mjcf(file, motors=True)


@pytest.fixture(scope="module")
def scene(mjcf):
    return rbd.load_mjcf(mjcf, jnp.result_type(float))


@pytest.fixture(scope="module")
def task(scene):
    return tasks.g1_walk(scene, strides=3, swing=10, both=4, wait=6, stride=0.2)


def test_motors_are_torques_within_the_limits_of_the_servos(file, scene):
    servos = rbd.load_mjcf(tasks.g1_mjcf(file), scene.model.dtype)
    np.testing.assert_array_equal(scene.actuators.ctrlrange, servos.actuators.forcerange)
    np.testing.assert_array_equal(scene.model.damping, servos.model.damping)
    assert not np.any(scene.actuators.biasprm)
    with pytest.raises(ValueError, match=r"one motor for each joint.*motors=True"):
        tasks.g1_walk(servos)


def test_feet_swing_by_turns_and_go_as_far_as_the_center(task):
    """The first and the last swing go half as far, so that both feet end side by side."""
    active, dt = np.asarray(task.problem.plant.active), task.problem.dt
    assert active.shape == (6 + 3 * 14 + 6, 2) and task.problem.steps == len(active)
    assert (~active).sum(axis=0).tolist() == [20, 10] and active.any(axis=1).all()
    swing = next(c for c in task.problem.stage.costs if isinstance(c, opt.FootSwing))
    center = next(c for c in task.problem.stage.costs if isinstance(c, opt.CenterOfMass))
    way = np.asarray(swing.targets.rows[-1] - swing.targets.rows[0])
    np.testing.assert_allclose(way, [[0.2, 0, 0], [0.2, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(
        center.targets.rows[-1] - center.targets.rows[0], [0.2, 0, 0], atol=1e-6
    )
    np.testing.assert_allclose(swing.targets.dt, dt)
    limit = np.asarray(task.problem.bounds()[1])
    np.testing.assert_array_equal(limit[:4], [88, 139, 88, 139])
    with pytest.raises(ValueError, match="at least 2, got 1"):
        tasks.biped_walk(task.problem.model, task.q0, strides=1)


def test_a_receding_horizon_is_the_beginning_of_the_task(task):
    short = tasks.receding(task, 9)
    assert short.problem.steps == len(short.u) == 9
    np.testing.assert_array_equal(short.u, task.u[:9])
    assert tasks.receding(task, 80).u.shape == (80, 29)


def test_a_step_that_mujoco_does_not_divide_is_told(task, scene, mjcf):
    problem = opt.Problem(task.problem.plant, task.problem.stage, task.problem.final, 0.012, 9)
    control = opt.controller(problem, max_steps=1)
    still = jnp.zeros((10, 35), task.q0.dtype)
    plan = opt.Plan(jnp.tile(task.q0, (10, 1)), still, task.u[:9], 0, None)
    with pytest.raises(ValueError, match=r"0\.012 s of the problem is not a multiple of MuJoCo's"):
        tasks.mpc_in_mujoco(control, plan, scene, mjcf, 3)


@pytest.mark.slow
def test_the_walk_is_solved_as_a_whole_and_played_back(scene):
    """Under the feedback of the plan, in the contact simulator, the trunk is within 2 cm of it."""
    task = tasks.g1_walk(scene, strides=2)

    @jax.jit
    def solve_and_play(task):
        s = opt.multiple_shooting(*task, **tasks.standing_guess(task), throw=False)
        policy = opt.feedback(task.problem, s)
        steps = 4 * task.problem.steps
        path = rbd.rollout(scene, task.q0, task.v0, policy, scene.dt, steps=steps, stride=4)
        return s.result == opt.RESULTS.successful, s.q, path.q, s.u

    successful, planned, played, u = solve_and_play(task)
    assert successful
    np.testing.assert_allclose(planned[-1, :2] - planned[0, :2], [0.15, 0], atol=0.02)
    assert (np.abs(u) / np.asarray(task.problem.bounds()[1])).max() <= 1 + 1e-6
    assert np.linalg.norm(played[:, :3] - planned[:, :3], axis=1).max() < 0.02


@pytest.mark.slow
def test_warmstart_is_the_solution(task):
    short = tasks.receding(task, 9)
    control = opt.controller(short.problem, max_steps=1)
    s = opt.multiple_shooting(*short, **tasks.standing_guess(short), throw=False)
    plan = control.warmstart(s)
    for name in ("q", "v", "u", "K"):
        np.testing.assert_array_equal(getattr(plan, name), getattr(s, name))
    now = jax.jit(lambda plan: control.step(plan, short.q0, short.v0, shift=False))(plan)
    assert now.decrease < 1e-3 * now.cost  # nothing is left to improve


@pytest.mark.slow
def test_the_command_walks_in_mujoco(file):
    from rbd_jax.cli._app import application

    found = CliRunner().invoke(
        application("mpc"), ["mpc", "g1", "--model", str(file), "--strides", "3"]
    )
    assert found.exit_code == 0, found.output
    way = next(line for line in found.output.splitlines() if " m of " in line)
    ahead, goal = (float(x.split()[-1]) for x in way.split(" m")[:2])
    assert goal == pytest.approx(0.3) and ahead > 0.2
    assert "115 of 115" in found.output


def test_the_command_names_its_robots():
    from rbd_jax.cli._app import application

    found = CliRunner().invoke(application("mpc"), ["mpc", "atlas"])
    assert found.exit_code == 2
