"""The drag of a fluid against MuJoCo's: forces, steps of every integrator, derivatives."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.contact.passive import drag, drag_slope

mujoco = pytest.importorskip("mujoco")

SWIMMER = """<mujoco><option timestep=".005" integrator="{}" {}/>
<default><geom contype="0" conaffinity="0"/></default><worldbody>
<body name="trunk" pos="0 0 1" gravcomp=".5"><freejoint/>
  <geom type="box" size=".2 .1 .05" pos=".1 0 0" euler="10 20 30"/>
  <body name="fixed" pos="0 .2 0" euler="0 40 0"><geom type="capsule" size=".03 .1"/></body>
  <body name="arm" pos=".3 0 0" euler="20 0 0"><joint name="arm" axis="0 1 0" damping=".02"/>
    <geom type="capsule" size=".02 .15" pos="0 0 -.15"/>
    <body name="tail" pos="0 0 -.3"><joint name="tail" type="ball"/>
      <geom type="ellipsoid" size=".05 .02 .1" pos="0 0 -.1"/></body></body></body>
<body name="drop" pos="2 0 1"><freejoint/><geom type="box" size=".2 .1 .05"/></body>
<body name="leaf" pos="4 0 1"><freejoint/>
  <geom type="ellipsoid" size=".2 .1 .01" fluidshape="ellipsoid"
    fluidcoef=".4 .3 1.2 .9 .8"/></body>
<body name="oar" pos="6 0 1"><joint type="ball"/><geom type="capsule" size=".04 .3" pos="0 0 -.3"
  euler="10 0 20" fluidshape="ellipsoid"/><geom type="box" size=".1 .2 .03" pos="0 0 -.6"
  fluidshape="ellipsoid"/></body>
</worldbody><actuator><motor joint="arm"/></actuator></mujoco>"""
WATER = 'density="1000" viscosity=".5" wind="1 -.5 .2"'
CASES = {
    "implicitfast": WATER,
    "Euler": 'viscosity="2"',
    "RK4": 'density="300" wind="0 2 0"',
    "implicit": WATER,
}


def moving(integrator, option):
    m = mujoco.MjModel.from_xml_string(SWIMMER.format(integrator, option))
    d, rng = mujoco.MjData(m), np.random.default_rng(0)
    mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
    d.qvel[:], d.ctrl[:] = rng.normal(size=m.nv), 0.3
    scene = rbd.contact.scene_of(m)
    assert scene.layout is not None
    q = scene.layout.q_from(jnp.array(d.qpos))
    return m, d, scene, q, scene.layout.v_from(q, jnp.array(d.qvel))


@pytest.mark.float64
@pytest.mark.parametrize(
    "integrator",
    [pytest.param(x, marks=pytest.mark.slow) if x != "Euler" else x for x in CASES],
)
def test_drag_is_mujocos(integrator):
    m, d, scene, q, v = moving(integrator, CASES[integrator])
    mujoco.mj_forward(m, d)

    @jax.jit
    def ours(q, v):
        r = rbd.contact.scene_step(scene, q, v, jnp.array([0.3]))
        found = scene.layout.tau_to(q, drag(scene.model, scene.fluid, q, v))
        return found, scene.layout.q_to(r.q), scene.layout.v_to(r.q, r.v)

    force, q1, v1 = ours(q, v)
    assert np.abs(d.qfrc_fluid).max() > 1
    np.testing.assert_allclose(force, d.qfrc_fluid, atol=1e-10 * np.abs(d.qfrc_fluid).max())
    mujoco.mj_step(m, d)
    np.testing.assert_allclose(q1, d.qpos, atol=1e-10)
    np.testing.assert_allclose(v1, d.qvel, atol=1e-10 * max(1, np.abs(d.qvel).max()))


LEAF = """<mujoco><option density="1.225" viscosity="1.8e-5" wind="0 0 1" integrator="{}"/>
<default><geom type="box" size=".025 .01 .0001" mass="1e-4" fluidshape="ellipsoid"/></default>
<worldbody><body><freejoint/><geom pos=".025 0 0" euler="20 0 0"/>
  <geom pos="-.025 0 0" euler="-19 0 0"/></body></worldbody></mujoco>"""


@pytest.mark.float64
@pytest.mark.parametrize(
    "integrator", [pytest.param("implicit", marks=pytest.mark.slow), "implicitfast"]
)
def test_thin_plates_tumble_as_mujocos(integrator):
    """The products of their semi-axes are tiny, and no bound on divisors may act."""
    m = mujoco.MjModel.from_xml_string(LEAF.format(integrator))
    d, scene, rng = mujoco.MjData(m), rbd.contact.scene_of(m), np.random.default_rng(0)
    layout = scene.layout

    @jax.jit
    def ours(qpos, qvel):
        q = layout.q_from(qpos)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), jnp.zeros(0))
        return layout.q_to(r.q), layout.v_to(r.q, r.v)

    for k in range(20):
        d.qpos[3:] = rng.normal(size=4)
        d.qpos[3:] /= np.linalg.norm(d.qpos[3:])
        d.qvel[:] = 10.0 ** (k % 4 - 2) * rng.normal(size=6)
        q1, v1 = ours(jnp.array(d.qpos), jnp.array(d.qvel))
        before = d.qvel.copy()
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q1, d.qpos, atol=1e-12)
        np.testing.assert_allclose(v1, d.qvel, atol=1e-11 * max(1, np.abs(d.qvel).max()))
        assert np.abs(d.qvel - before).max() > 1e-3


@pytest.mark.slow
@pytest.mark.float64
def test_slope_and_gradients_of_drag():
    """The slope is the derivative in v; the one in density is right; both are finite at rest."""
    _, _, scene, q, v = moving("implicitfast", WATER)
    model, fluid = scene.model, scene.fluid
    slope = jax.jit(drag_slope)(model, fluid, q, v)
    expected = jax.jit(jax.jacfwd(lambda v: drag(model, fluid, q, v)))(v)
    np.testing.assert_allclose(slope, expected, atol=1e-10 * np.abs(expected).max())
    force = jax.jit(drag)
    h = 1e-6
    difference = (force(model, fluid, q + h, v) - force(model, fluid, q - h, v)) / (2 * h)
    tangent = jax.jit(lambda q: jax.jvp(lambda q: drag(model, fluid, q, v), (q,), (0 * q + 1,)))(q)
    np.testing.assert_allclose(tangent[1], difference, atol=1e-6 * np.abs(difference).max())
    still = jax.jit(jax.grad(lambda f: drag(model, f, q, 0 * v).sum()))(fluid)
    chex.assert_tree_all_finite(still)


def test_without_passive_forces_there_is_no_drag():
    """MuJoCo leaves out drag and gravity compensation if springs and dampers are switched off."""
    flags = 'density="1000"><flag spring="disable" damper="disable"/></option><option'
    m, d, scene, _, _ = moving("Euler", flags)
    mujoco.mj_forward(m, d)
    assert scene.fluid is None and scene.gravcomp is None and not d.qfrc_passive.any()
