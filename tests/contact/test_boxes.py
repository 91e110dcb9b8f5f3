"""Boxes that meet boxes and capsules: steps are MuJoCo's, in a pile and on the ground."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.contact.collision.box_box import box_box
from rbd_jax.spatial import so3

mujoco = pytest.importorskip("mujoco")

PILE = """<mujoco><option timestep=".002" tolerance="0" iterations="100" ls_tolerance="1e-10"
ls_iterations="200" cone="elliptic"/><default><geom condim="3" margin=".002"/></default><worldbody>
<geom type="plane" size="5 5 1"/>
<body name="low" pos="0 0 .1"><freejoint/><geom name="low" type="box" size=".2 .15 .1"/></body>
<body name="high" pos=".05 .02 .28" quat="1 .02 .03 .3"><freejoint/>
  <geom name="high" type="box" size=".1 .15 .08"/></body>
<body name="rod" pos="-.05 .02 .42" quat=".7 .02 .72 .1"><freejoint/>
  <geom name="rod" type="capsule" size=".04 .12"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_pile_moves_as_mujocos():
    """A box and a capsule fall on a box: every step from MuJoCo's state, to 1e-8."""
    m = mujoco.MjModel.from_xml_string(PILE)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    kinds = [
        tuple(scene.contacts.shapes.kinds[k] for k in ij) for ij in scene.contacts.pairs.shapes
    ]
    assert ("box", "box") in kinds and ("capsule", "box") in kinds
    states = []
    for _ in range(150):
        before = d.qpos.copy(), d.qvel.copy()
        mujoco.mj_step(m, d)
        met = {(m.geom_type[c.geom1], m.geom_type[c.geom2]) for c in d.contact}
        states.append((*before, d.qpos.copy(), d.qvel.copy(), len(met)))
    qpos, qvel, qpos1, qvel1, met = map(np.array, zip(*states, strict=True))
    layout = scene.layout

    @jax.jit
    @jax.vmap
    def ours(qpos, qvel):
        q = layout.q_from(qpos)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), jnp.zeros(0))
        return layout.q_to(r.q), layout.v_to(r.q, r.v)

    q, v = ours(jnp.array(qpos), jnp.array(qvel))
    assert met.max() == 3  # ground and box, two boxes, capsule and box
    np.testing.assert_allclose(q, qpos1, atol=1e-8)
    np.testing.assert_allclose(v, qvel1, atol=1e-8)


@pytest.mark.float64
def test_aligned_boxes_have_four_points():
    """One box exactly on another, of the same and of a smaller size: no point comes twice.

    In random orientations, where rounding decides on which side of an edge a corner lies.
    """
    keys = jax.random.split(jax.random.key(0), 100)
    R = jax.vmap(lambda key: so3.exp(jax.random.normal(key, (3,))))(keys)
    size, up = jnp.array([0.2, 0.15, 0.1]), jnp.array([0.0, 0.0, 0.199])
    each = jax.jit(jax.vmap(box_box, (0, None, None, 0, 0, None)))
    for second in (size, jnp.array([0.1, 0.05, 0.1])):
        found = each(R, 0 * up, size, R, R @ up, second)
        on = np.asarray(found.distance) < 1
        assert (on.sum(axis=1) == 4).all()
        np.testing.assert_allclose(np.asarray(found.distance)[on], -0.001, atol=1e-12)
        corners = np.abs(np.asarray(jnp.einsum("nij,nki->nkj", R, found.point))[on][:, :2])
        np.testing.assert_allclose(corners, np.tile(second[:2], (400, 1)), atol=1e-12)
