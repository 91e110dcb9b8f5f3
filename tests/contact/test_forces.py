"""Contacts and constraint forces by name, against MuJoCo's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.scenes import EQUALITIES, everything

import rbd_jax as rbd
from rbd_jax.tasks import on_ground

mujoco = pytest.importorskip("mujoco")


@pytest.mark.float64
@pytest.mark.parametrize("cone", ["elliptic", pytest.param("pyramidal", marks=pytest.mark.slow)])
def test_contacts_and_forces_are_mujocos(cone):
    """At MuJoCo's accelerations: every contact of its list, and all forces in coordinates."""
    m = mujoco.MjModel.from_xml_string(everything(f'cone="{cone}"', "cylinder", EQUALITIES))
    d = mujoco.MjData(m)
    d.qvel[:] = 0.5 * np.random.default_rng(0).normal(size=m.nv)
    for _ in range(60):
        mujoco.mj_step(m, d)
    mujoco.mj_forward(m, d)
    scene = rbd.contact.scene_of(m)
    layout = scene.layout
    q = layout.q_from(jnp.array(d.qpos))
    v, a = (layout.v_from(q, jnp.array(x)) for x in (d.qvel, d.qacc))
    found = jax.jit(lambda *x: rbd.contact.constraint_forces(scene, *x))(q, v, a)
    size = np.abs(d.qfrc_constraint).max()
    assert d.ncon >= 3 and size > 10
    ours = layout.tau_to(q, found.total)
    np.testing.assert_allclose(ours, d.qfrc_constraint, atol=1e-9 * size)
    touching, used = found.contacts, set()
    for i, c in enumerate(d.contact):
        names = tuple(m.geom(int(g)).name or f"geom#{g}" for g in c.geom)
        rows = [k for k in touching.rows(*names) if touching.names[k] == names and k not in used]
        row = min(rows, key=lambda k: np.abs(touching.point[k] - c.pos).max())
        used.add(row)
        np.testing.assert_allclose(touching.point[row], c.pos, atol=1e-10)
        np.testing.assert_allclose(touching.distance[row], c.dist, atol=1e-10)
        np.testing.assert_allclose(touching.frame[row].ravel(), c.frame, atol=1e-10)
        wrench, frame = np.zeros(6), c.frame.reshape(3, 3)
        mujoco.mj_contactForce(m, d, i, wrench)
        np.testing.assert_allclose(touching.force[row], wrench[:3] @ frame, atol=1e-9 * size)
        np.testing.assert_allclose(touching.moment[row], wrench[3:] @ frame, atol=1e-9 * size)
    rest = [k for k in range(len(touching.names)) if k not in used]
    np.testing.assert_array_equal(touching.force[np.array(rest)], 0)
    assert set(found.lower) == {"h1", "s1", "h2", "h3"} and {*found.lower, "b1"} == set(
        found.joint_friction
    )
    assert not any(
        map(float, (found.lower["h2"], found.upper["h3"], found.joint_friction["h1"][0]))
    )
    assert set(found.ball_limits) == {"b1"} and found.welds.shape == (3, 6)
    with pytest.raises(KeyError, match="no contact of nobody; candidates: geom#0 with"):
        touching.rows("nobody")


LANDED = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body pos="0 0 .0999"><freejoint/><geom name="ball" size=".1" mass="2"/></body>
</worldbody></mujoco>"""


def test_a_step_tells_its_forces():
    """A ball that lies still is carried with its weight; shapes that do not fit are refused."""
    scene = rbd.load_mjcf(LANDED)
    q, v = jnp.array([0, 0, 0.0999, 1, 0, 0, 0]), jnp.zeros(6)
    step = jax.jit(lambda q, v: rbd.contact.scene_step(scene, q, v, jnp.zeros(0), forces=True))
    for _ in range(300):
        found = step(q, v)
        q, v = found.q, found.v
    contacts = found.forces.contacts
    np.testing.assert_allclose(contacts.force_on("ball"), [0, 0, 2 * 9.81], atol=1e-3)
    np.testing.assert_allclose(contacts.force_on("floor", "ball"), -contacts.force_on("ball"))
    assert contacts.names == (("floor", "ball"),)
    assert rbd.contact.scene_step(scene, q, v, jnp.zeros(0)).forces is None
    with pytest.raises(ValueError, match=r"step: v has shape \(7,\), expected \(nv,\) = \(6,\)"):
        rbd.contact.scene_step(scene, q, q, jnp.zeros(0))


def test_wrong_arguments_of_constraint_forces_are_named():
    scene, q = on_ground()
    v = jnp.zeros(scene.model.nv)
    with pytest.raises(ValueError, match=r"constraint_forces: a has shape \(12,\), expected"):
        rbd.contact.constraint_forces(scene, q, v, q[7:])
    with pytest.raises(
        TypeError, match="first argument must be a rbd_jax.contact.Scene, got Model"
    ):
        rbd.contact.constraint_forces(scene.model, q, v, v)
