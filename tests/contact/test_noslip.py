"""The noslip pass: steps, forces and sensors against MuJoCo, and derivatives through the pass."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

SLOPE = """<mujoco><option cone="{cone}" noslip_iterations="4" timestep="0.004" tolerance="0"
  iterations="100" ls_tolerance="1e-10" ls_iterations="200" integrator="implicitfast"/>
<worldbody><geom type="plane" size="5 5 1" euler="4 3 0"/>
<body pos="0 0 .14"><freejoint/><geom type="box" size=".1 .1 .05" mass="1"/></body>
<body pos=".03 .02 .3"><freejoint/><geom type="box" size=".08 .08 .05" mass=".5" condim="4"/>
  <body pos=".05 0 .1"><joint axis="0 1 0" frictionloss=".1"/>
    <geom type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".1"/><site name="s"/></body></body>
<body pos=".6 0 .16"><freejoint/><geom size=".1" mass="1" condim="4"/></body></worldbody>
<sensor><accelerometer site="s"/></sensor></mujoco>"""
"""A box and a ball on a slope, and a box in the air with a pole that has dry friction."""
ISLANDS = """<mujoco><option cone="{cone}" noslip_iterations="4" timestep="0.004" tolerance="0"
  iterations="100" ls_tolerance="1e-10" ls_iterations="200"/>
<worldbody><geom type="plane" size="5 5 1" euler="14 3 0"/>
<body pos="0 0 .15"><freejoint/><geom type="box" size=".1 .1 .05" mass="1" friction=".4"/>
  <body pos="0 0 .05"><joint axis="0 1 0" frictionloss=".15"/>
    <geom type="capsule" fromto="0 0 0 .1 0 .2" size=".02" mass=".3" contype="0" conaffinity="0"/>
    <site name="s" pos="0 0 .2"/></body></body>
<body pos=".5 0 .15"><joint type="free" frictionloss=".05"/><geom size=".1" condim="4"/></body>
<body pos=".65 .1 .22"><freejoint/><geom size=".1" condim="6" mass="2"/></body>
<body pos="0 .6 .35" euler="80 5 0"><freejoint/>
  <geom type="capsule" size=".05 .1" friction=".3"/></body></worldbody>
<sensor><accelerometer site="s"/></sensor></mujoco>"""
"""Three islands on a slope: a box that carries a pole, two balls that roll, and a capsule."""
CONES = ["elliptic", pytest.param("pyramidal", marks=pytest.mark.slow)]


def started(cone: str, file: str = SLOPE):
    """MuJoCo's model in a random motion, and our scene."""
    m = mujoco.MjModel.from_xml_string(file.format(cone=cone))
    d = mujoco.MjData(m)
    d.qvel[:] = 0.1 * np.random.default_rng(0).normal(size=m.nv)
    return m, d, rbd.contact.scene_of(m)


def states(scene, d):
    q = scene.layout.q_from(jnp.array(d.qpos))
    return q, scene.layout.v_from(q, jnp.array(d.qvel))


@pytest.mark.float64
@pytest.mark.parametrize("cone", CONES)
def test_sweeps_of_islands_end_as_mujocos(cone):
    """Each ends by the inertia of its own island; also with room for the contacts that touch."""
    m, d, scene = started(cone, ISLANDS)
    layout, few = scene.layout, scene.keeping(contacts=8)
    fixed = rbd.contact.constants(scene)

    @jax.jit
    def step(q, v):
        r = rbd.contact.scene_step(few, q, v, jnp.zeros(0), constants=fixed)
        return layout.v_to(r.q, r.v), r.result

    touched = 0
    for _ in range(60):
        v, result = step(*states(scene, d))
        mujoco.mj_step(m, d)
        assert result == rbd.contact.RESULTS.successful
        np.testing.assert_allclose(v, d.qvel, atol=1e-8 * max(1, np.abs(d.qvel).max()))
        touched = max(touched, d.ncon)
    assert touched >= 6


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("cone", ["elliptic", "pyramidal"])
def test_steps_forces_and_sensors_are_mujocos(cone):
    """From each of MuJoCo's states to 1e-8; the pass itself moves the velocities by far more."""
    m, d, scene = started(cone)
    layout, fixed = scene.layout, rbd.contact.constants(scene)
    np.testing.assert_allclose(fixed.mean_inertia, m.stat.meaninertia, rtol=1e-12)

    @jax.jit
    def step(q, v):
        r = rbd.contact.scene_step(scene, q, v, jnp.zeros(0), constants=fixed, forces=True)
        read = rbd.contact.sensors(scene, q, v, jnp.zeros(0), a=r.a, constants=fixed)
        total = layout.tau_to(q, r.forces.total)
        return layout.q_to(r.q), layout.v_to(r.q, r.v), total, read["sensor#0"], r.result

    touched, islands = 0, set()
    for _ in range(41):
        q, v, total, read, result = step(*states(scene, d))
        mujoco.mj_step(m, d)
        assert result == rbd.contact.RESULTS.successful
        for ours, theirs in ((q, d.qpos), (v, d.qvel), (read, d.sensordata)):
            np.testing.assert_allclose(ours, theirs, atol=1e-8 * max(1, np.abs(theirs).max()))
        np.testing.assert_allclose(total, d.qfrc_constraint, atol=1e-6)
        touched, islands = max(touched, d.ncon), islands | {d.nisland}
    assert touched >= 5 and len(islands) > 1
    before, _ = states(scene, d), setattr(m.opt, "noslip_iterations", 0)
    mujoco.mj_step(m, d)
    with_pass = step(*before)[1]
    assert np.abs(with_pass - d.qvel).max() > 1e-5


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("cone", ["elliptic", "pyramidal"])
def test_derivatives_through_the_pass(cone):
    """By states, friction and masses against central differences, forward and reverse."""
    m, d, scene = started(cone)
    for _ in range(34):
        mujoco.mj_step(m, d)
    q, v = states(scene, d)
    where = lambda s: (s.contacts.pairs.friction, s.model.inertia, s.model.friction)  # noqa: E731

    def after(x):
        moved = eqx.tree_at(where, scene, x[0])
        return rbd.contact.scene_step(moved, *x[1:], jnp.zeros(0)).v

    x = where(scene), q, v
    rng = np.random.default_rng(1)
    dx = jax.tree.map(lambda y: jnp.array(rng.normal(size=y.shape)) * y, x)
    dx = dx[0], dx[1], 0.1 + dx[2]
    value, h = jax.jit(after), 1e-7
    at = lambda k: value(jax.tree.map(lambda y, dy: y + k * h * dy, x, dx))  # noqa: E731
    tangent = jax.jit(lambda dx: jax.jvp(after, (x,), (dx,))[1])(dx)
    scale = float(jnp.abs(tangent).max())
    np.testing.assert_allclose((at(1) - at(-1)) / (2 * h), tangent, atol=2e-5 * scale)
    w = jnp.array(rng.normal(size=v.size))
    pulled = jax.jit(lambda w: jax.vjp(after, x)[1](w)[0])(w)
    both = sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (pulled, dx)), strict=True))
    np.testing.assert_allclose(both, w @ tangent, rtol=1e-8)


def test_forces_of_accelerations_alone_are_refused():
    scene = started("elliptic")[2]
    zero = jnp.zeros(scene.model.nv)
    with pytest.raises(ValueError, match=r"noslip pass.*scene_step\(…, forces=True\)"):
        rbd.contact.constraint_forces(scene, scene.q0, zero, zero)
