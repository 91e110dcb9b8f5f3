"""Activations, muscles and transmissions against MuJoCo, and activations as a part of the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

FREE = 'contype="0" conaffinity="0"'
LEG = f"""<mujoco><compiler autolimits="true"/><option {{option}}/><worldbody>
<geom name="wc" type="cylinder" size=".04 .1" pos="0 0 1" euler="90 0 0" {FREE}/>
<site name="w0" pos="-.05 0 1.3"/><site name="w1" pos=".05 .02 1.25"/>
<site name="side" pos=".1 0 1"/>
<site name="slider" pos="0 0 .8" euler="0 80 0"/>
<body pos="0 0 1"><joint name="a" axis="0 1 0" damping=".1" range="-1.5 1.5"/>
 <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" {FREE}/>
 <site name="a0" pos=".03 0 -.2"/><site name="a1" pos="-.03 0.01 -.15"/>
 <site name="crank" pos=".05 0 -.1"/>
 <body pos="0 0 -.3"><joint name="b" type="ball" damping=".01"/>
  <geom size=".03" pos="0 0 -.2" {FREE}/>
  <site name="b0" pos=".03 .01 -.1" euler="20 30 0"/></body></body>
{{free}}</worldbody>
<tendon><spatial name="t0"><site site="w0"/><geom geom="wc" sidesite="side"/><site site="a0"/>
 <site site="b0"/></spatial>
<spatial name="t1"><site site="w1"/><geom geom="wc"/><site site="a1"/></spatial></tendon>
<actuator>{{actuators}}</actuator><keyframe><key name="k" act="{{act}}"/></keyframe></mujoco>"""
MUSCLES = """<muscle name="m0" tendon="t0" lengthrange=".3 .6" force="50"/>
<muscle tendon="t1" lengthrange=".3 .6" scale="20" tausmooth=".3"/>
<general joint="a" dyntype="integrator" gainprm="3" actrange="-.2 .6"/>
<general joint="a" dyntype="filter" dynprm=".05" gainprm="2" actearly="true"/>
<general joint="a" dyntype="filterexact" dynprm=".02" gainprm="2" biastype="affine"
 biasprm=".1 -.2 -.3"/><motor joint="a" gear=".1"/>"""
ACT = ".1 .3 .2 .4 .5"
TRANSMISSIONS = """<motor jointinparent="b" gear=".1 .2 .3"/>
<position joint="b" kp="2" gear="0 0 1"/><motor jointinparent="f" gear="1 2 3 .1 .2 .3"/>
<position site="f0" refsite="b0" gear="1 .5 .2 0 0 0" kp="3"/>
<motor site="b0" refsite="a0" gear="0 .1 .2 .1 .2 .3"/><position site="b0" refsite="w0"
 gear="0 0 0 1 .5 .2" kp=".1" kv=".05"/><position tendon="t0" kp="5" kv="1"/>
<motor cranksite="crank" slidersite="slider" cranklength=".4" gear="2"/>"""
BODY = """<body pos=".5 0 1"><freejoint name="f"/><geom size=".05"/>
<site name="f0" pos=".02 0 .03" euler="10 20 30"/></body>"""


def leg(option="", free="", actuators=MUSCLES, act=ACT):
    m = mujoco.MjModel.from_xml_string(
        LEG.format(option=option, free=free, actuators=actuators, act=act)
    )
    m.opt.tolerance, m.opt.iterations = 0, 100
    return m, mujoco.MjData(m), rbd.contact.scene_of(m)


def started(m, d):
    rng = np.random.default_rng(0)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_integratePos(m, d.qpos, 0.1 * rng.normal(size=m.nv), 1.0)
    d.qvel[:], d.ctrl[:] = 0.5 * rng.normal(size=m.nv), rng.uniform(size=m.nu)


@pytest.mark.float64
@pytest.mark.parametrize(
    "integrator",
    ["Euler", *(pytest.param(x, marks=pytest.mark.slow) for x in ("implicitfast", "RK4"))],
)
def test_steps_and_rollouts_with_muscles_are_mujocos(integrator):
    """Muscles, an integrator and filters; each step, and a rollout that carries activations."""
    m, d, scene = leg(f'integrator="{integrator}"')
    started(m, d)
    assert scene.na == 5
    np.testing.assert_allclose(scene.keyframes["k"].act, [0.1, 0.3, 0.2, 0.4, 0.5])
    layout, u = scene.layout, jnp.array(d.ctrl)
    plant = rbd.simulate.ScenePlant(scene, act=jnp.array(d.act))
    q = layout.q_from(jnp.array(d.qpos))
    state = q, layout.v_from(q, jnp.array(d.qvel))
    step = jax.jit(lambda q, v, act: rbd.contact.scene_step(scene, q, v, u, act=act))
    roll = jax.jit(lambda q, v: rbd.rollout(plant, q, v, jnp.tile(u, (20, 1)), scene.dt))
    path = roll(*state)
    for _ in range(20):
        q = layout.q_from(jnp.array(d.qpos))
        r = step(q, layout.v_from(q, jnp.array(d.qvel)), jnp.array(d.act))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(layout.q_to(r.q), d.qpos, atol=1e-8)
        np.testing.assert_allclose(layout.v_to(r.q, r.v), d.qvel, atol=1e-8)
        np.testing.assert_allclose(r.act, d.act, atol=1e-12)
    np.testing.assert_allclose(layout.q_to(path.q[-1]), d.qpos, atol=1e-7)


@pytest.mark.float64
def test_forces_of_all_transmissions_are_mujocos():
    """Balls, free joints, sites in sites, tendons and a slider-crank; servos over full turns."""
    m, d, scene = leg("", BODY, TRANSMISSIONS, "")
    a, layout = scene.actuators, scene.layout

    @jax.jit
    def ours(q, v, u):
        x = rbd.contact.Driven(tendons=scene.tendons.at(scene.model, q))
        by = a.transmissions(scene.model, q, x.tendons)
        return by.length, a.forces(scene.model, q, v, u, x), scene.torque(q, v, u)

    rng = np.random.default_rng(0)
    for _ in range(5):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
        d.qvel[:], d.ctrl[:] = rng.normal(size=m.nv), 5 * rng.normal(size=m.nu)
        mujoco.mj_forward(m, d)
        q = layout.q_from(jnp.array(d.qpos))
        length, force, tau = ours(q, layout.v_from(q, jnp.array(d.qvel)), jnp.array(d.ctrl))
        np.testing.assert_allclose(length, d.actuator_length, atol=1e-10)
        np.testing.assert_allclose(force, d.actuator_force, atol=1e-9)
        np.testing.assert_allclose(layout.tau_to(q, tau), d.qfrc_actuator, atol=1e-9)


@pytest.mark.slow
@pytest.mark.float64
def test_a_step_is_differentiable_by_activations_and_parameters_of_muscles():
    m, d, scene = leg()
    started(m, d)
    q, v, u = (jnp.array(x) for x in (d.qpos, d.qvel, d.ctrl))

    def after(act, muscles, time):
        where = lambda s: (s.actuators.muscles.gain, s.actuators.activation.parameters)  # noqa: E731
        changed = eqx.tree_at(where, scene, (muscles, time))
        r = rbd.contact.scene_step(changed, q, v, u, act=act)
        return jnp.concatenate([r.q, r.v, r.act])

    x = jnp.array(d.act), scene.actuators.muscles.gain, scene.actuators.activation.parameters
    rng, h, value = np.random.default_rng(0), 1e-6, jax.jit(after)
    for i in range(3):
        direction = [jnp.array(rng.normal(size=y.shape) * np.abs(y)) if k == i
                     else jnp.zeros_like(y) for k, y in enumerate(x)]  # fmt: skip
        at = lambda s, d=direction: value(*(y + s * h * z for y, z in zip(x, d, strict=True)))  # noqa: E731
        tangent = jax.jit(lambda d: jax.jvp(after, x, tuple(d))[1])(direction)
        np.testing.assert_allclose(tangent, (at(1) - at(-1)) / (2 * h), atol=1e-6)
        assert float(jnp.abs(tangent).max()) > 1e-6


def test_activations_that_are_missing():
    _, d, scene = leg()
    q, v, u = jnp.array(d.qpos), jnp.array(d.qvel), jnp.array(d.ctrl)
    with pytest.raises(ValueError, match=r"5 activations.*pass act="):
        rbd.contact.scene_step(scene, q, v, u)
    with pytest.raises(ValueError, match=r"act has shape \(2,\), expected \(5,\)"):
        rbd.contact.scene_step(scene, q, v, u, act=jnp.zeros(2))
    with pytest.raises(ValueError, match="use scene.torque"):
        scene.actuators.torque(scene.model, q, v, u)
