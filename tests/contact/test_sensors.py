"""Sensors against MuJoCo, all kinds; noise, cut-off, derivatives, and sensors that are left out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.contact.sensing import KINDS

mujoco = pytest.importorskip("mujoco")

SCENE = """<mujoco><compiler autolimits="true"/>
<option magnetic="1 2 3"><flag energy="enable"/></option>
<worldbody><geom name="floor" type="plane" size="5 5 1"/>
<site name="w" pos=".1 .2 .3" euler="10 20 30"/>
<body name="base" pos="0 0 .1" quat=".9 .1 -.2 .3"><freejoint name="base"/>
<geom name="g0" size=".1" mass="1" pos=".01 0 0"/>
<geom size=".02" pos=".1 0 .1" contype="0" conaffinity="0" mass=".3"/>
<site name="imu" pos=".02 .01 .05" euler="30 10 50"/>
<site name="zone" type="box" size=".12 .12 .12"/>
<site name="z2" type="capsule" size=".03 .03" pos="0 0 -.1"/>
<site name="z3" type="cylinder" size=".05 .2" pos="0 0 -.2"/>
<body name="arm" pos=".1 0 .1" euler="0 30 0">
<joint name="h" axis="0 1 0" range="-.1 .1" stiffness="3" springref=".2"/>
<geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".4" contype="0" conaffinity="0"/>
<body name="plate" pos=".2 0 0" euler="10 0 0">
<geom name="pl" type="box" size=".05 .05 .01" mass=".2" contype="0" conaffinity="0"/>
<site name="ft" pos=".01 .02 .03" euler="0 40 0"/><body name="ball" pos=".05 0 0">
<joint name="b" type="ball" range="0 .1"/><geom name="tip" size=".03" pos=".05 0 0" mass=".1"/>
<site name="tipsite" pos=".05 0 0" size=".04"/></body></body></body>
<camera name="cam" pos="0 0 .2" euler="10 20 5"/></body><body name="lone" pos=".5 .5 .029">
<joint type="slide" axis="0 0 1" name="s"/><geom name="lg" size=".03" mass=".2"/></body>
</worldbody><tendon><spatial name="t" range=".01 .2" stiffness="2" springlength=".1">
<site site="imu"/><site site="tipsite"/></spatial></tendon><actuator>
<position name="p" joint="h" kp="3"/><motor name="mt" tendon="t"/><motor name="mh" joint="h"/>
</actuator><equality><connect body1="lone" body2="plate" anchor="0 0 0" solref=".1 1"/></equality>
<sensor><jointpos joint="h"/><jointvel joint="h"/><tendonpos tendon="t"/><tendonvel tendon="t"/>
<actuatorpos actuator="p"/><actuatorvel actuator="mt"/><actuatorfrc actuator="p"/>
<jointactuatorfrc joint="h"/><tendonactuatorfrc tendon="t"/><ballquat joint="b"/>
<ballangvel joint="b"/><jointlimitpos joint="h"/><jointlimitvel joint="h"/>
<jointlimitfrc joint="h"/><jointlimitpos joint="b"/><jointlimitvel joint="b"/>
<jointlimitfrc joint="b"/><tendonlimitpos tendon="t"/><tendonlimitvel tendon="t"/>
<tendonlimitfrc tendon="t"/><framepos objtype="body" objname="plate"/>
<framepos objtype="body" objname="base"/>
<framepos objtype="xbody" objname="plate" reftype="site" refname="imu"/>
<framepos objtype="geom" objname="tip" reftype="xbody" refname="arm"/>
<framepos objtype="camera" objname="cam"/><framequat objtype="body" objname="base"/>
<framequat objtype="xbody" objname="plate"/>
<framequat objtype="site" objname="tipsite" reftype="site" refname="w"/>
<framequat objtype="geom" objname="pl"/><framexaxis objtype="site" objname="tipsite"/>
<frameyaxis objtype="site" objname="ft" reftype="site" refname="w"/>
<framezaxis objtype="body" objname="plate"/><framelinvel objtype="body" objname="plate"/>
<framelinvel objtype="site" objname="tipsite" reftype="site" refname="imu"/>
<frameangvel objtype="site" objname="tipsite" reftype="site" refname="imu"/>
<frameangvel objtype="body" objname="base"/><framelinacc objtype="body" objname="plate"/>
<frameangacc objtype="site" objname="tipsite"/><gyro site="imu"/><velocimeter site="imu"/>
<accelerometer site="imu"/><accelerometer site="w"/><magnetometer site="imu"/><force site="ft"/>
<torque site="ft"/><force site="imu"/><torque site="imu"/><force site="tipsite"/>
<torque site="tipsite"/><touch site="zone"/><touch site="z2"/><touch site="z3"/>
<touch site="tipsite"/>
<contact geom1="g0" geom2="floor" reduce="mindist" data="found dist pos normal tangent"/>
<contact geom1="floor" body2="base" reduce="mindist" data="normal"/>
<contact subtree1="base" reduce="mindist" data="found"/>
<subtreecom body="base"/><subtreelinvel body="plate"/>
<subtreeangmom body="arm"/><subtreeangmom body="plate"/><subtreecom body="world"/><e_potential/>
<e_kinetic/><clock/><jointpos joint="s" cutoff=".001"/></sensor></mujoco>"""


@pytest.fixture(scope="module")
def scene():
    return rbd.load_mjcf(SCENE)


def test_the_scene_has_every_kind_of_sensor(scene):
    assert {s.kind for s in scene.sensors.sensors} == set(KINDS)


@pytest.mark.float64
def test_readings_are_mujocos(scene):
    """At states in the air and in contact, with limits, a connect and a tendon that act."""
    m = mujoco.MjModel.from_xml_string(SCENE)
    m.opt.tolerance, m.opt.iterations, m.opt.ls_tolerance = 0, 100, 1e-10
    d, layout, rng = mujoco.MjData(m), scene.layout, np.random.default_rng(1)
    states, theirs = [], []
    for k in range(8):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, (0.1 if k < 6 else 4) * rng.normal(size=m.nv), 1.0)
        d.qpos[2] = 0.1 + (k % 2) * 0.05 * rng.normal()
        d.qvel[:], d.ctrl[:], d.time = rng.normal(size=m.nv), rng.normal(size=m.nu), 0.3 * k
        mujoco.mj_forward(m, d)
        q = layout.q_from(jnp.array(d.qpos))
        state = q, layout.v_from(q, jnp.array(d.qvel)), jnp.array(d.ctrl), jnp.array(d.time)
        states.append(state)
        theirs.append(d.sensordata.copy())

    @jax.jit
    @jax.vmap
    def ours(q, v, u, t):
        return rbd.contact.sensors(scene, q, v, u, t=t)

    found = ours(*map(jnp.stack, zip(*states, strict=True)))
    theirs = np.array(theirs)
    for i, s in enumerate(scene.sensors.sensors):
        expected = theirs[:, m.sensor_adr[i] : m.sensor_adr[i] + m.sensor_dim[i]]
        error = np.abs(np.reshape(found[s.name], expected.shape) - expected).max(axis=1)
        scale = np.maximum(1, np.abs(expected).max(axis=1))
        np.testing.assert_allclose(error / scale, 0, atol=1e-10, err_msg=f"{s.name} {s.kind}")
        assert np.abs(expected).max() > 0, (s.name, s.kind)


SMALL = """<mujoco><worldbody><body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
<site name="s" pos=".3 0 0"/></body></worldbody><sensor>
<jointpos name="angle" joint="j" noise=".1"/>
<gyro name="gyro" site="s" cutoff=".5"/><accelerometer name="imu" site="s"/>{}</sensor></mujoco>"""


@pytest.mark.slow
def test_noise_cutoff_names_and_derivatives():
    scene = rbd.load_mjcf(SMALL.format(""))
    q, v, u = jnp.array([0.3]), jnp.array([2.0]), jnp.zeros(0)
    read = lambda q, **x: rbd.contact.sensors(scene, q, v, u, **x)  # noqa: E731
    h = 1e-4 if q.dtype == jnp.float64 else 1e-2

    @jax.jit
    def measured(q):
        noisy = read(q, key=jax.random.key(0), a=jnp.zeros(1))
        slope = jax.jacfwd(lambda q: read(q)["imu"])(q)[:, 0]
        difference = (read(q + h)["imu"] - read(q - h)["imu"]) / (2 * h)
        return read(q, a=jnp.zeros(1)), noisy, slope, difference

    plain, noisy, slope, difference = measured(q)
    assert plain["gyro"][1] == 0.5
    assert noisy["angle"] != plain["angle"] and (noisy["imu"] == plain["imu"]).all()
    assert list(read(q, names=["gyro"])) == ["gyro"]
    np.testing.assert_allclose(slope, difference, atol=0.05 if h > 1e-3 else 1e-5)
    with pytest.raises(KeyError, match="no sensor 'lidar'; the scene has angle, gyro, imu"):
        read(q, names=["lidar"])


def test_sensors_that_are_not_supported_are_named():
    with pytest.warns(rbd.RobotDescriptionWarning, match=r"sensor#3 \(rangefinder\)"):
        scene = rbd.load_mjcf(SMALL.format('<rangefinder site="s"/>'))
    assert scene.sensors.names == ("angle", "gyro", "imu")
    with pytest.raises(ValueError, match="the scene has no sensors"):
        zero = jnp.zeros(1)
        bare = rbd.load_mjcf(SMALL.format("").split("<sensor>")[0] + "</mujoco>")
        rbd.contact.sensors(bare, zero, zero, jnp.zeros(0))
