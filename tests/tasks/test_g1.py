"""The humanoid G1 by the path of its file: a robot of the same names stands in for mjlab's."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close
from support.humanoid import like_g1

pytest.importorskip("optax")
pytest.importorskip("mujoco")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import learn, tasks  # noqa: E402


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A humanoid with the joints, soles and sites of mjlab's G1."""
    path = tmp_path_factory.mktemp("g1") / "g1.xml"
    path.write_text(like_g1())
    return path


@pytest.fixture(scope="module")
def env(file):
    return tasks.g1(jnp.result_type(float), path=file)


def test_a_robot_with_the_names_of_g1_becomes_a_walker(file, env):
    """29 servos with the motors of G1, bent knees, and soles that touch the ground."""
    model, scene = env.scene.model, env.scene
    assert scene.nu == env.actions == 29 and scene.actuators.names[3] == "left_knee"
    np.testing.assert_allclose(model.armature[9], 0.025101925, rtol=1e-5)
    np.testing.assert_allclose(scene.actuators.gainprm[3, 0], 99.1, rtol=1e-3)  # (20 π)² armature
    assert len(scene.contacts.pairs.shapes) == 4  # two capsules a foot
    whole = rbd.load_mjcf(tasks.g1_mjcf(file, whole_soles=True))
    assert len(whole.contacts.pairs.shapes) == 14
    zero = jnp.zeros(35, model.dtype)
    state = env.state(env.start, zero, env.stance, None, tasks.WalkerTask(zero[:3], zero[0]))
    feet = quick_jit(lambda s: env.feet(s))(state)
    np.testing.assert_allclose(np.asarray(feet)[0] * [1, -1, 1], feet[1], atol=1e-6)
    assert quick_jit(lambda s: env.observe(s))(state).shape == (101,)


def test_the_task_looks_the_same_in_a_mirror(env):
    """The mirrored robot, half a turn of the clock later, has the same reward for its step.

    Its observation is the image of the observation.
    """
    vector, axis, joints = learn.Reflection.vector(), learn.Reflection.axis(), env.joints
    turns = np.array([1, -1, 1, -1])  # of a quaternion in the mirror, as of an axial vector

    def image(s):
        q = jnp.concatenate([vector(s.q[:3]), s.q[3:7] * turns, joints(s.q[7:])])
        v = jnp.concatenate([axis(s.v[:3]), vector(s.v[3:6]), joints(s.v[6:])])
        task = tasks.WalkerTask(s.task.command * np.array([1, -1, -1]), s.task.phase + 0.5)
        return dataclasses.replace(
            s, q=q, v=v, controls=joints(s.controls), action=joints(s.action), task=task
        )

    @quick_jit
    def both(key):
        begin, moves, acts = jax.random.split(key, 3)
        before = env.begin(begin)
        q = before.q.at[:7].add(0.1 * jax.random.normal(moves, (7,), before.q.dtype))
        before = dataclasses.replace(before, q=q)
        action = jax.random.normal(acts, (29,), q.dtype)
        v = jax.random.normal(acts, (35,), q.dtype)
        after = dataclasses.replace(before, v=v, q=q.at[7:].add(0.05 * v[6:]), action=action)
        reward = env.reward(before, action, after)
        other = env.reward(image(before), joints(action), image(after))
        return reward, other, env.mirror.observation(env.observe(after)), env.observe(image(after))

    with jax.numpy_dtype_promotion("standard"):
        reward, other, seen, expected = jax.vmap(both)(jax.random.split(jax.random.key(0), 16))
    assert jnp.std(reward) > 0.5
    assert_close(other, reward, 1e-11)
    assert_close(seen, expected, 1e-12)


def test_a_wrong_file_is_told(file, tmp_path):
    swapped = tmp_path / "swapped.xml"
    swapped.write_text(file.read_text().replace("left", "other").replace("right", "left")
                       .replace("other", "right"))  # fmt: skip
    with pytest.raises(rbd.RobotDescriptionError, match="its joints are .*right_hip_pitch_joint"):
        tasks.g1_mjcf(swapped)
    with pytest.raises(rbd.RobotDescriptionError, match="g1: there is no file"):
        tasks.g1_mjcf(tmp_path / "none.xml")
    other = tmp_path / "quadruped.xml"
    other.write_text(tasks.quadruped_mjcf())
    with pytest.raises(rbd.RobotDescriptionError, match="not mjlab's G1: no joint left_hip_pitch"):
        tasks.g1_mjcf(other)
