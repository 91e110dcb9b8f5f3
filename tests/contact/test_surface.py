"""Surfaces that move although their shapes do not: conveyors and turntables, against MuJoCo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

XML = """<mujoco><option cone="{}" tolerance="0" iterations="100" timestep=".005"/><worldbody>
<geom name="belt" type="plane" size="5 5 1" surfacevel=".3 -.1 .2 0 .1 .5" condim="4"/>
<body pos=".4 .1 .099"><freejoint/><geom name="ball" size=".1" mass="1" condim="4"
  surfacevel="0 .2 0 .3 0 .4"/></body></worldbody></mujoco>"""


@pytest.mark.float64
@pytest.mark.parametrize("cone", [pytest.param("elliptic", marks=pytest.mark.slow), "pyramidal"])
def test_moving_surfaces_drive_bodies_as_mujocos(cone):
    """Values against MuJoCo; the derivative with respect to the velocity against a difference."""
    m = mujoco.MjModel.from_xml_string(XML.format(cone))
    scene, d = rbd.contact.scene_of(m), mujoco.MjData(m)
    d.qvel[:] = [0.1, 0, -0.1, 0, 1, 0.5]
    q = scene.layout.q_from(jnp.array(d.qpos))
    v = scene.layout.v_from(q, jnp.array(d.qvel))
    where = lambda s: s.contacts.shapes.surface  # noqa: E731

    @jax.jit
    def after(t):
        s = eqx.tree_at(where, scene, (1 + t) * where(scene))
        return rbd.contact.scene_step(s, q, v, jnp.zeros(0))[:2]

    mujoco.mj_step(m, d)
    assert d.ncon == 1
    q1, v1 = after(0.0)
    np.testing.assert_allclose(scene.layout.v_to(q1, v1), d.qvel, atol=1e-9)
    slope = jax.jacfwd(lambda t: after(t)[1])(0.0)
    difference = (after(1e-6)[1] - after(-1e-6)[1]) / 2e-6
    np.testing.assert_allclose(slope, difference, atol=1e-6)
    assert np.abs(slope).max() > 1e-3
