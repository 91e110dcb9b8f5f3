"""MJCF: frames and names as MuJoCo's, refusals by name, features left out on demand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.scenes import EQUALITIES, everything

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")


@pytest.mark.float64
def test_names_frames_keyframes_and_options():
    scene = rbd.load_mjcf(everything('timestep=".004"', equality=EQUALITIES))
    m = mujoco.MjModel.from_xml_string(everything('timestep=".004"', equality=EQUALITIES))
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
    mujoco.mj_kinematics(m, d)
    model, q = scene.model, scene.layout.q_from(jnp.array(d.qpos))
    np.testing.assert_array_equal(q, d.qpos)  # our q is qpos
    names = [n for n in model.frame_names if n in ("sb", "se", *"abcdefghi")]
    places = jax.jit(lambda q: [rbd.frame_placement(model, q, n) for n in names])(q)
    for name, (R, p) in zip(names, places, strict=True):
        theirs = d.site(name) if name in ("sb", "se") else d.body(name)
        np.testing.assert_allclose(p, theirs.xpos, atol=1e-12)
        np.testing.assert_allclose(R.reshape(-1), theirs.xmat, atol=1e-12)
    assert {"h1", "s1", "b1", "fa"} < set(model.joint_names)
    assert {"sb", "a", "c"} < set(names)
    assert float(scene.dt) == 0.004
    assert scene.keyframes["start"].controls.shape == (scene.nu,) == (7,)
    assert scene.integrator == "euler" and not scene.contacts.elliptic


WORLD = """<mujoco>{}<worldbody><geom type="plane" size="1 1 1"/>
<body name="x" pos="0 0 1" {}>{}</body></worldbody>{}</mujoco>"""
LINK = '<joint name="j" {}/><geom name="g" size=".1" {}/>'
TENDON = '<tendon><fixed name="rope" stiffness="1 2"><joint joint="j" coef="1"/></fixed></tendon>'


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        (WORLD.format("", "", LINK.format("", ""), TENDON), ["polynomial stiffness", "rope"]),
        (
            WORLD.format("", "", LINK.format("", ""),
                         '<actuator><general name="slow" joint="j" dyntype="user"/></actuator>'),
            ["activation dynamics", "slow (user)"],
        ),
        (
            WORLD.format("", "", LINK.format("", ""),
                         '<actuator><general name="arm" joint="j" gaintype="user"/></actuator>'),
            ["gain or bias of another kind", "arm (user)"],
        ),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(xml, words):
    with pytest.raises(rbd.RobotDescriptionError, match="drop=") as error:
        rbd.load_mjcf(xml)
    assert all(w in str(error.value) for w in words), str(error.value)
    with pytest.warns(rbd.RobotDescriptionWarning, match=words[0]):
        rbd.load_mjcf(xml, drop="all")


def test_broken_files():
    with pytest.raises(rbd.RobotDescriptionError, match="no file 'nowhere.xml'"):
        rbd.load_mjcf("nowhere.xml")
    with pytest.raises(rbd.RobotDescriptionError, match="MuJoCo refuses the XML string"):
        rbd.load_mjcf("<mujoco><worldbody><body></worldbody></mujoco>")
    mesh = '<asset><mesh name="m" file="absent.stl"/></asset>'
    text = WORLD.format(mesh, "", LINK.format("", "") + '<geom type="mesh" mesh="m"/>', "")
    with pytest.raises(rbd.RobotDescriptionError, match="absent.stl"):
        rbd.load_mjcf(text)
    assert rbd.load_mjcf(text, drop_meshes=True).model.nv == 1
