"""A scene with room for few contacts: the same steps, and a result that says if room is missing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

pytest.importorskip("mujoco")

BALL = '<body pos="{} {} .098"><freejoint/><geom size=".1" mass="1" condim="{}"/></body>'
XML = f"""<mujoco><option cone="elliptic" timestep=".005"/><worldbody>
<geom type="plane" size="5 5 1"/>
<body name="arm" pos="0 0 .25"><joint axis="0 1 0"/>
  <geom type="capsule" fromto="-.3 0 0 .3 0 0" size=".05" mass=".5"/></body>
{BALL.format(0.2, 0, 3)}{BALL.format(-0.2, 0, 3)}{BALL.format(0, 0.19, 3)}{BALL.format(0, -0.19, 4)}
<body pos=".1 .6 .099"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
</worldbody></mujoco>"""


@pytest.fixture(scope="module")
def steps():
    """Scenes with room for all and for few, states, and a compiled step with its derivative."""
    scene = rbd.load_mjcf(XML)
    keys = jax.random.split(jax.random.key(0), 24)
    v = jax.vmap(lambda k: 0.5 * jax.random.normal(k, (scene.model.nv,)))(keys)
    q = jax.vmap(lambda v: rbd.integrate(scene.model, scene.q0, 0.02 * v))(v)

    def compiled(scene):
        where = lambda s: s.contacts.pairs.friction  # noqa: E731

        def step(q, v, scale):
            s = eqx.tree_at(where, scene, scale * where(scene))
            r = rbd.contact.scene_step(s, q, v, jnp.zeros(0))
            return r.v, r.result

        def both(q, v):
            after, result = step(q, v, 1.0)
            return after, jax.jacfwd(lambda s: step(q, v, s)[0])(1.0), result

        return jax.jit(jax.vmap(both))

    return scene, q, v, compiled


@pytest.mark.slow
def test_room_for_the_contacts_that_act_is_room_enough(steps):
    scene, q, v, compiled = steps
    all_, few = compiled(scene)(q, v), compiled(scene.keeping(contacts=10))(q, v)
    np.testing.assert_allclose(few[0], all_[0], atol=2e-5)
    np.testing.assert_allclose(few[1], all_[1], atol=2e-4)
    assert (few[2] == rbd.contact.RESULTS.successful).all() and np.abs(all_[1]).max() > 0.01


def test_missing_room_is_said(steps):
    scene, q, v, _ = steps
    tight = scene.keeping(contacts=1)
    q = q[0]
    for k, at in enumerate(range(1, scene.model.nq, 7)):  # all balls and the box in one place
        q = q.at[at : at + 3].set(jnp.array([0.03 * k, 0.0, 0.08]))
    result = jax.jit(lambda q: rbd.contact.scene_step(tight, q, v[0], jnp.zeros(0)).result)(q)
    assert result == rbd.contact.RESULTS.crowded
    with pytest.raises(ValueError, match="keeping"):
        scene.keeping(contacts=0)
