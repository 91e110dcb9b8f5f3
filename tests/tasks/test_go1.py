"""Go1 by the path of its file: mjlab itself is not needed, a robot of the same names is."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
pytest.importorskip("mujoco")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import tasks  # noqa: E402

PARTS = {"abduction": "hip_joint", "hip": "thigh_joint", "knee": "calf_joint"}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The quadruped of this package under the names of mjlab's Go1: no ground, no servos."""
    text = tasks.quadruped_mjcf()
    for part in ("actuator", "keyframe"):
        text = re.sub(rf"<{part}>.*?</{part}>", "", text, flags=re.DOTALL)
    text = re.sub(r"<geom name=\"ground\".*?/>", "", text, flags=re.DOTALL)
    text = re.sub(r"<position .*?/>", "", text)
    for ours, theirs in PARTS.items():
        text = re.sub(rf"<joint name=\"(..)_{ours}\"", rf'<joint name="\1_{theirs}"', text)
    text = re.sub(r"<site name=\"(..)_foot\"", r'<site name="\1"', text)
    text = re.sub(r"<geom name=\"(..)_foot\"", r'<geom name="\1_foot_collision"', text)
    path = tmp_path_factory.mktemp("go1") / "go1.xml"
    path.write_text(text)
    return path


def test_a_robot_with_the_names_of_go1_becomes_a_walker(file):
    """It gets ground, servos, rotor inertia and a stance in which all four feet touch."""
    env = tasks.go1(jnp.result_type(float), path=file)
    model, scene = env.scene.model, env.scene
    assert scene.nu == 12 and [a[:2] for a in scene.actuators.names] == list(
        np.repeat(("FR", "FL", "RR", "RL"), 3)
    )
    rotors = 0.000111842 * np.array([36, 36, 81])
    np.testing.assert_allclose(model.armature[6:9], rotors, rtol=1e-5)  # as printed in the XML
    pairs = scene.contacts.pairs.shapes
    assert len(pairs) == 4  # the feet alone touch the ground
    feet = jax.vmap(lambda q: env.feet(env.state(q, jnp.zeros(18), env.stance)))(env.start[None])
    assert np.abs(np.asarray(feet[0, :, 2]) - 0.023).max() < 0.05
    assert np.ptp(np.asarray(feet[0, :, 2])) < 1e-6


def test_a_wrong_file_is_told(tmp_path):
    with pytest.raises(rbd.RobotDescriptionError, match="there is no file"):
        tasks.go1_mjcf(tmp_path / "none.xml")
    other = tmp_path / "quadruped.xml"
    other.write_text(tasks.quadruped_mjcf())
    with pytest.raises(rbd.RobotDescriptionError, match="not mjlab's Go1: no joint FR_hip_joint"):
        tasks.go1_mjcf(other)
