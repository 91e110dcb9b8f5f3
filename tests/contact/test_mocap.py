"""Mocap bodies as inputs: everything that is fixed to them moves, as in MuJoCo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

XML = """<mujoco><option cone="elliptic" tolerance="0" iterations="100" timestep=".01"/>
<worldbody><site name="hook" pos="0 .3 .5"/>
  <body name="hand" mocap="true" pos=".1 0 .5" quat="1 .2 0 .1"><site name="grip" pos="0 .1 0"/>
    <geom type="box" size=".1 .1 .05" contype="2" conaffinity="2"/>
    <body name="finger" pos="0 0 .1"><geom type="sphere" size=".06" pos=".05 0 0"/></body></body>
  <body name="still" mocap="true" pos="1 0 0"/>
  <body name="ball" pos=".1 .02 .73"><freejoint/><geom type="sphere" size=".1" mass="1"/></body>
  <body name="arm" pos="-.3 0 .5"><joint name="j" type="ball" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".5" contype="0" conaffinity="0"/>
    <site name="tip" pos=".3 0 0"/></body>
  <body name="lamp" pos="0 .4 .4"><freejoint/><geom size=".05" mass=".3" contype="0"
    conaffinity="0"/></body></worldbody>
<equality><weld body1="hand" body2="arm" solref=".05 1"/>
  <connect body1="lamp" body2="hand" anchor="0 0 .1"/></equality>
<tendon><spatial name="string" stiffness="20"><site site="grip"/><site site="tip"/></spatial>
</tendon>
<sensor><framepos name="at" objtype="site" objname="grip"/><tendonpos name="long" tendon="string"/>
  <framequat name="turned" objtype="xbody" objname="finger"/>
  <framepos name="seen" objtype="site" objname="tip" reftype="site" refname="grip"/></sensor>
</mujoco>"""


@pytest.fixture(scope="module")
def moved():
    """The model, and a function from poses of its mocap bodies to a step and the sensors."""
    m = mujoco.MjModel.from_xml_string(XML)
    scene = rbd.load_mjcf(XML)
    fixed = rbd.contact.constants(scene)

    @jax.jit
    def step(p, quat):
        there, none = rbd.contact.with_mocap(scene, p, quat), jnp.zeros(0)
        v = jnp.zeros(scene.model.nv)
        r = rbd.contact.scene_step(there, scene.q0, v, none, constants=fixed)
        q = scene.layout.q_to(r.q)
        read = rbd.contact.sensors(there, scene.q0, v, none, a=r.a, constants=fixed)
        return q, scene.layout.v_to(r.q, r.v), read

    return m, scene, step


def poses(m, k):
    random = np.random.default_rng(k)
    p, quat = m.body_pos[m.body_mocapid >= 0], m.body_quat[m.body_mocapid >= 0]
    return p + 0.03 * k * random.normal(size=p.shape), quat + 0.1 * k * random.normal(size=(2, 4))


@pytest.mark.float64
def test_steps_and_sensors_are_mujocos(moved):
    m, scene, step = moved
    assert scene.mocap.names == ("hand", "still")
    touched = 0
    for k in range(4):
        d = mujoco.MjData(m)
        d.mocap_pos[:], d.mocap_quat[:] = poses(m, k)
        mujoco.mj_step(m, d)
        touched += d.ncon
        q, v, read = step(*map(jnp.asarray, poses(m, k)))
        np.testing.assert_allclose(q, d.qpos, atol=1e-9)
        np.testing.assert_allclose(v, d.qvel, atol=1e-8)
        for name, x in read.items():
            theirs = d.sensor(name).data
            sign = np.sign(x @ theirs) if name == "turned" else 1
            np.testing.assert_allclose(np.ravel(sign * x), theirs, atol=1e-10, err_msg=name)
    assert touched > 1


@pytest.mark.slow
@pytest.mark.float64
def test_a_step_is_differentiable_by_the_poses(moved):
    m, _, step = moved
    p, quat = map(jnp.asarray, poses(m, 1))
    way = jax.random.normal(jax.random.key(0), (2, 7))
    f = lambda t: step(p + t * way[:, :3], quat + t * way[:, 3:])[1]  # noqa: E731
    slope = jax.jvp(f, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(slope, (f(1e-6) - f(-1e-6)) / 2e-6, atol=2e-5)
    assert np.abs(slope).max() > 0.1


def test_what_cannot_be_moved_says_so(moved):
    m, scene, _ = moved
    with pytest.raises(ValueError, match="with_mocap"):
        rbd.contact.with_mocap(scene, jnp.zeros((1, 3)), jnp.ones((1, 4)))
    plain = rbd.load_mjcf(
        "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
    )
    with pytest.raises(ValueError, match="no mocap bodies"):
        rbd.contact.with_mocap(plain, jnp.zeros((0, 3)), jnp.zeros((0, 4)))


EQUALITIES = """<mujoco><option tolerance="0" iterations="100" ls_tolerance="1e-10"
  ls_iterations="200"/><default><geom contype="0" conaffinity="0" size=".1" mass="1"/></default>
<worldbody><body name="hand" mocap="true" pos="0 0 1" quat="1 .2 .1 .3">
  <site name="grip" pos=".1 .1 .1" quat="1 .1 0 0"/></body>
<body name="a" pos=".1 0 1"><freejoint/><geom/><site name="handle" pos="0 .1 0"/>
  <body pos="0 0 .2"><joint name="hinge" axis="1 1 0" ref=".3"/><geom pos=".1 0 0"/>
    <body pos="0 0 .2"><joint name="slide" type="slide" axis="0 1 1" ref=".1"/><geom/></body></body>
</body>
<body name="b" pos=".5 0 1"><freejoint/><geom/></body>
<body name="c" pos=".7 0 1"><freejoint/><geom/></body>
<body pos=".9 0 1"><joint name="alone" axis="0 0 1"/><geom pos=".1 0 0"/></body></worldbody>
<equality><weld body1="hand" body2="a" anchor=".1 .2 .3" torquescale=".7"/>
  <weld body1="hand" body2="b" relpose=".3 .1 .2 1 .1 .2 .3" anchor=".05 0 .1" solref=".05 .8"/>
  <connect body1="hand" body2="c" anchor=".1 0 .1"/><weld site1="grip" site2="handle"/>
  <joint joint1="hinge" joint2="slide" polycoef=".1 .5 .2 -.1 .3"/>
  <joint joint1="alone" polycoef=".4 0 0 0 0"/>
  <joint joint1="slide" joint2="alone" active="false"/></equality></mujoco>"""


@pytest.mark.slow
@pytest.mark.float64
def test_equalities_of_every_kind_with_a_moved_hand():
    """Welds with anchors, poses and sites, a connect, and polynomials between joints."""
    m, scene = mujoco.MjModel.from_xml_string(EQUALITIES), rbd.load_mjcf(EQUALITIES)
    d, random, layout = mujoco.MjData(m), np.random.default_rng(0), scene.layout
    fixed = rbd.contact.constants(scene)

    @jax.jit
    def ours(qpos, qvel, p, quat):
        q, there = layout.q_from(qpos), rbd.contact.with_mocap(scene, p, quat)
        v = layout.v_from(q, qvel)
        r = rbd.contact.scene_step(there, q, v, jnp.zeros(0), constants=fixed)
        return layout.q_to(r.q), layout.v_to(r.q, r.v)

    for _ in range(5):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.1 * random.normal(size=m.nv), 1.0)
        d.qvel[:] = 0.3 * random.normal(size=m.nv)
        d.mocap_pos[:] += 0.1 * random.normal(size=(1, 3))
        d.mocap_quat[:] += 0.2 * random.normal(size=(1, 4))
        d.mocap_quat[:] /= np.linalg.norm(d.mocap_quat)
        q, v = ours(*(jnp.array(x) for x in (d.qpos, d.qvel, d.mocap_pos, d.mocap_quat)))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q, d.qpos, atol=1e-12)
        np.testing.assert_allclose(v, d.qvel, atol=1e-11)
