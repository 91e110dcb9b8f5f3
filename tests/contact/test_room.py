"""A scene with room for few contacts: the same steps, and a result that says if room is missing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

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


MANY = """<mujoco><option cone="{cone}" timestep=".004" tolerance="0" iterations="100"
  ls_tolerance="1e-10" ls_iterations="200"/><worldbody>
<geom type="plane" size="5 5 1" condim="1"/>
<body pos="0 0 .3"><joint axis="0 1 0" damping=".1"/><joint axis="1 0 0" damping=".1"/>
  <geom type="capsule" fromto="-.4 0 0 .4 0 0" size=".05" mass=".5" condim="1"/></body>
<body pos=".2 0 .098"><freejoint/><geom size=".1" mass="1" condim="1"/></body>
<body pos="-.2 0 .146"><freejoint/><geom size=".1" mass="1" condim="3" friction=".5"/></body>
<body pos="0 .19 .098"><freejoint/><geom size=".1" mass="1" condim="4" friction=".8 .02"/></body>
<body pos=".05 -.14 .098"><freejoint/>
  <geom type="box" size=".1 .1 .1" mass="1" condim="6" friction=".7 .02 .01"/></body>
<body pos=".25 -.16 .099"><freejoint/><geom type="capsule" size=".1 .1" euler="80 0 30" mass="1"/>
</body></worldbody></mujoco>"""
"""More candidates than are handled at once, of every ``condim``."""


@pytest.fixture(
    scope="module", params=["elliptic", pytest.param("pyramidal", marks=pytest.mark.slow)]
)
def crowd(request):
    """MuJoCo's model, our scene and a compiled step."""
    m = mujoco.MjModel.from_xml_string(MANY.format(cone=request.param))
    scene = rbd.contact.scene_of(m)
    fixed = rbd.contact.constants(scene)

    @jax.jit
    @jax.vmap
    def step(q, v):
        r = rbd.contact.scene_step(scene, q, v, jnp.zeros(0), constants=fixed)
        return scene.layout.q_to(r.q), scene.layout.v_to(r.q, r.v), r.result

    return m, scene, step


@pytest.mark.float64
def test_a_loop_over_the_contacts_that_act_steps_as_mujoco(crowd):
    """States of different numbers of contacts are computed together."""
    m, scene, step = crowd
    d, states, after, counts = mujoco.MjData(m), [], [], set()
    d.qvel[:] = 0.2 * np.random.default_rng(0).normal(size=m.nv)
    for _ in range(60):
        q = scene.layout.q_from(jnp.array(d.qpos))
        states.append((q, scene.layout.v_from(q, jnp.array(d.qvel))))
        mujoco.mj_step(m, d)
        counts |= {(int(x), int(d.ncon)) for x in d.contact.dim}
        after.append((d.qpos.copy(), d.qvel.copy()))
    q, v, result = step(*map(jnp.stack, zip(*states, strict=True)))
    qpos, qvel = map(np.stack, zip(*after, strict=True))
    np.testing.assert_allclose(q, qpos, atol=1e-9)
    np.testing.assert_allclose(v, qvel, atol=1e-7 * max(1, np.abs(qvel).max()))
    assert (result == rbd.contact.RESULTS.successful).all()
    assert {x for x, _ in counts} == {1, 3, 4, 6} and len({n for _, n in counts}) > 3


BOXES = "".join(
    f'<body pos="{x} {y} {z}" euler="2 {k} 5"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    for k, (x, y, z) in enumerate(
        [(0, 0, 0.103), (0.25, 0, 0.104), (0.12, 0.02, 0.301), (0, 0.5, 0.103), (0.05, 0.48, 0.302)]
    )
)


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_go_through_the_blocks_that_act():
    """A hundred candidates: forward and reverse derivatives against central differences."""
    scene = rbd.load_mjcf(
        f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{BOXES}</worldbody></mujoco>'
    )
    fixed, where = rbd.contact.constants(scene), lambda s: s.contacts.pairs.friction
    keys = jax.random.split(jax.random.key(0), 4)
    n = scene.model.nv
    v, dq, dv, w = (0.1 * jax.random.normal(k, (n,)) for k in keys)

    def after(t, v):
        """The velocity after a step from a configuration and a friction moved by t."""
        s = eqx.tree_at(where, scene, (1 + t) * where(scene))
        q = rbd.integrate(scene.model, scene.q0, t * dq)
        return rbd.contact.scene_step(s, q, v, jnp.zeros(0), constants=fixed).v

    @jax.jit
    def all_(v):
        forward = jax.jvp(after, (0.0, v), (1.0, dv))[1]
        out, pull = jax.vjp(after, 0.0, v)
        t_bar, v_bar = pull(w)
        h = 1e-6
        difference = (after(h, v + h * dv) - after(-h, v - h * dv)) / (2 * h)
        return forward, t_bar + v_bar @ dv, difference, out

    forward, reverse, difference, out = all_(v)
    assert rbd.contact.constraint_forces(scene, scene.q0, v, 0 * v).contacts.distance.size > 64
    np.testing.assert_allclose(forward, difference, atol=1e-5 * np.abs(forward).max())
    np.testing.assert_allclose(reverse, forward @ w, rtol=1e-9)
    assert np.abs(out - v).max() > 0.01


def test_missing_room_is_said(steps):
    scene, q, v, _ = steps
    tight = scene.keeping(contacts=1)
    q = q[0]
    for k, at in enumerate(range(1, scene.model.nq, 7)):  # all balls and the box in one place
        q = q.at[at : at + 3].set(jnp.array([0.03 * k, 0.0, 0.08]))
    result = jax.jit(lambda q: rbd.contact.scene_step(tight, q, v[0], jnp.zeros(0)).result)(q)
    assert result == rbd.contact.RESULTS.crowded
    still = jnp.zeros((2, 0))
    path = jax.jit(lambda q: rbd.rollout(tight, q, v[0], still, tight.dt).q)(q)
    assert jnp.isnan(path[1:]).all() and jnp.isfinite(path[0]).all()
    with pytest.raises(ValueError, match="keeping"):
        scene.keeping(contacts=0)


@pytest.mark.slow
def test_contacts_at_a_distance_are_alike_in_a_loop_and_without():
    """Where a small room needs no loop."""
    balls = "".join(
        f'<body pos="{0.11 * k} 0 .06"><freejoint/><geom size=".05" condim="{c}"/></body>'
        for k, c in enumerate((1, 3, 4, 3, 6))
    )
    xml = f'<mujoco><worldbody><geom type="plane" size="2 2 1"/>{balls}</worldbody></mujoco>'
    scene = rbd.load_mjcf(xml)
    size = rbd.contact.constraint_forces(scene, scene.q0, jnp.zeros(30), jnp.zeros(30)).contacts
    assert size.distance.size < 16
    more = "".join(f'<body pos="{k} 9 9"><freejoint/><geom size=".1"/></body>' for k in range(4))
    many = rbd.load_mjcf(xml.replace("</worldbody>", f"{more}</worldbody>"))
    v = 0.1 * jnp.sin(jnp.arange(30.0))
    far = jnp.zeros(24)
    step = jax.jit(rbd.contact.scene_step)
    one = step(scene.at_distance(0.03, 0.2), scene.q0, v, jnp.zeros(0)).v
    two = step(many.at_distance(0.03, 0.2), many.q0, jnp.concatenate([v, far]), jnp.zeros(0)).v
    np.testing.assert_allclose(one, two[:30], rtol=1e-6, atol=1e-8)
    assert jnp.abs(one - step(scene, scene.q0, v, jnp.zeros(0)).v).max() > 1e-3
