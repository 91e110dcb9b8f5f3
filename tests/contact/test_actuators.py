"""Ideal PD control and motors of robots that have no MJCF, and what MJCF says of the same."""

import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

URDF = """<robot name="arm"><link name="base"/>
{}</robot>"""
LINK = """<link name="l{0}"><inertial><mass value="1"/><origin xyz="0 0 -.2"/>
<inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="j{0}" type="revolute"><parent link="{1}"/><child link="l{0}"/><axis xyz="0 1 0"/>
<limit effort="{2}" velocity="9" lower="-3" upper="3"/></joint>"""


@pytest.fixture(scope="module")
def arm():
    text = LINK.format(1, "base", 5) + LINK.format(2, "l1", 100)
    return rbd.load_urdf(URDF.format(text))


@pytest.mark.float64
def test_pd_control_follows_its_formula_up_to_the_effort_limit(arm):
    drive = rbd.contact.pd_actuators(arm, ["j2", "j1"], jnp.array([3.0, 40.0]), 0.5)
    q, v, u = jnp.array([0.1, -0.4]), jnp.array([1.0, 2.0]), jnp.array([0.3, 0.2])
    expected = [40 * (0.2 - 0.1) - 0.5 * 1, 3 * (0.3 + 0.4) - 0.5 * 2]
    np.testing.assert_allclose(drive.torque(arm, q, v, u), expected, atol=1e-12)
    np.testing.assert_allclose(drive.forces(arm, q, v, u), expected[::-1], atol=1e-12)
    far = jnp.array([0.3, 9.0])  # j1 can do no more than 5 N m
    np.testing.assert_allclose(drive.torque(arm, q, v, far)[0], 5)
    slope = drive.velocity_slope(arm, q, v, u)
    np.testing.assert_allclose(slope, np.diag([-0.5, -0.5]), atol=1e-12)
    assert drive.names == ("j2", "j1") and drive.nu == 2


def test_motors_are_torques(arm):
    drive = rbd.contact.motors(arm, ["j2"])
    torque = drive.torque(arm, jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]), jnp.array([7.0]))
    np.testing.assert_allclose(torque, [0, 7])
    limited = rbd.contact.motors(arm, ["j1"]).torque(
        arm, jnp.zeros(2), jnp.zeros(2), -8.0 * jnp.ones(1)
    )
    np.testing.assert_allclose(limited, [-5, 0])


def test_joints_of_several_degrees_of_freedom_are_refused(arm):
    floating = rbd.samples.quadruped()
    with pytest.raises(ValueError, match="6 degrees of freedom, expected one"):
        rbd.contact.pd_actuators(floating, [floating.joint_names[0]], 1.0)
    with pytest.raises(KeyError, match="nowhere"):
        rbd.contact.motors(arm, ["nowhere"])


@pytest.mark.float64
def test_mjcf_servos_are_the_same_law():
    """MuJoCo's position servo with kp and kv is ideal PD control."""
    pytest.importorskip("mujoco")
    scene = rbd.load_mjcf(
        """<mujoco><worldbody><body><joint name="j" axis="0 1 0"/><geom size=".1" pos="0 0 1"/>
        </body></worldbody><actuator><position joint="j" kp="30" kv="2"/></actuator></mujoco>"""
    )
    drive = rbd.contact.pd_actuators(scene.model, ["j"], 30.0, 2.0)
    state = jnp.array([0.3]), jnp.array([-0.7]), jnp.array([0.5])
    ours, theirs = (x.torque(scene.model, *state) for x in (drive, scene.actuators))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(ours, 30 * 0.2 + 2 * 0.7, rtol=1e-12)


HELD = """<mujoco><option integrator="implicitfast"/><worldbody>
<body><joint name="j" axis="0 1 0" actuatorfrcrange="-1 1"/><geom size=".05" pos=".3 0 0"/>
<body pos=".5 0 0"><joint name="k" axis="0 1 0"/><geom size=".05" pos=".3 0 0"/>
<site name="s" pos=".2 0 .1"/></body></body></worldbody><actuator>
<general name="one" joint="j" gainprm="1" biastype="affine" biasprm="0 0 -3"/>
<general name="two" joint="j" gainprm="1" biastype="affine" biasprm="0 0 -5"/>
<general name="far" joint="k" gainprm="1" biastype="affine" biasprm="0 0 -4"/>
<general name="site" site="s" gear="1 0 1 0 0 0" gainprm="1" biastype="affine" biasprm="0 0 -7"/>
</actuator></mujoco>"""


@pytest.mark.float64
@pytest.mark.parametrize(
    ("controls", "counts"),
    [
        ((0.5, -0.2, 3.0, 0.0), True),  # inside the limit of the joint
        ((8.0, -8.0, 3.0, 0.0), True),  # only the sum counts
        ((2.0, 0.0, 3.0, 0.0), False),
        ((1.0, 0.0, 0.0, 0.0), False),  # just at the limit
        ((0.0, 0.0, 3.0, 10.0), False),  # by the force at the site, which counts nevertheless
    ],
)
def test_actuators_at_the_force_limit_of_their_joint_damp_no_more(controls, counts):
    """The slope that MuJoCo's implicit integrators see, and the step, to rounding."""
    mujoco = pytest.importorskip("mujoco")
    m = mujoco.MjModel.from_xml_string(HELD)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    d.qpos[:], d.ctrl[:] = [0.3, 0.5], controls
    state = jnp.array(d.qpos), jnp.array(d.qvel), jnp.array(d.ctrl)
    slope, theirs = scene.actuators.velocity_slope(scene.model, *state), np.zeros((2, 2))
    r = rbd.contact.scene_step(scene, *state)
    mujoco.mj_step(m, d)
    mujoco.mju_sparse2dense(theirs, d.qDeriv, m.D_rownnz, m.D_rowadr, m.D_colind)
    np.testing.assert_allclose(slope, theirs, atol=1e-12)
    np.testing.assert_allclose(r.v, d.qvel, atol=1e-12)
    assert (slope[0, 0] < -8) == counts


LIFTED = """<mujoco><option integrator="implicit"/><worldbody><body pos="0 0 1" gravcomp=".7">
<joint axis="0 1 0" actuatorgravcomp="true" actuatorfrcrange="-.5 .5"/>
<geom size=".05" pos=".3 0 0"/>
<body pos=".5 0 0" gravcomp="1"><joint name="b" axis="0 1 0"/><geom size=".05" pos=".3 0 0"/></body>
</body></worldbody><actuator><motor joint="b"/></actuator></mujoco>"""


@pytest.mark.float64
def test_gravity_compensation_by_actuators_and_an_implicit_step_are_mujocos():
    """The compensation counts within the limit of its joint; Coriolis forces are implicit."""
    mujoco = pytest.importorskip("mujoco")
    m = mujoco.MjModel.from_xml_string(LIFTED)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    d.qpos[:], d.qvel[:], d.ctrl[:] = [0.3, 0.5], [3.0, -2.0], 0.4
    q, v, u = jnp.array(d.qpos), jnp.array(d.qvel), jnp.array(d.ctrl)
    tau, r = scene.torque(q, v, u), rbd.contact.scene_step(scene, q, v, u)
    mujoco.mj_step(m, d)
    np.testing.assert_allclose(tau, d.qfrc_actuator, atol=1e-12)
    assert abs(float(tau[0])) == 0.5
    np.testing.assert_allclose(r.v, d.qvel, atol=1e-12)
