"""A robot in the mirror, left for right, and policies that act alike on both sides."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import jit

pytest.importorskip("optax")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import (
    learn,  # noqa: E402
    tasks,  # noqa: E402
)

TINY = learn.Settings(robots=4, horizon=3, updates=2, hidden=(8,), average=0.3)


@pytest.fixture(scope="module")
def env():
    return tasks.stander(task=tasks.stand_up(), fallen=4)


def mirrored(env, q, v):
    """The state of the image: forward is forward, y is −y."""
    place, turn = q[:3] * np.array([1.0, -1, 1]), q[3:7] * np.array([1.0, -1, 1, -1])
    image = learn.joint_reflection(env.scene.model)
    return jnp.concatenate([place, turn, env.mirror.action(q[7:])]), image(v)


@pytest.mark.slow
@pytest.mark.float64
def test_the_image_of_a_step_is_the_step_of_the_image(env):
    """With contact and random actions; observations and rewards too."""
    rng = np.random.default_rng(0)
    action = jnp.asarray(rng.uniform(-1, 1, 12))
    state = env.state(env.fallen_q[0], jnp.asarray(rng.normal(size=18)), env.start[7:])
    image = env.state(*mirrored(env, state.q, state.v), env.start[7:])
    step = jit(lambda state, action: learn.advance(env, state, action))
    after, other = step(state, action), step(image, env.mirror.action(action))
    q, v = mirrored(env, after.q, after.v)
    np.testing.assert_allclose(other.q, q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(other.v, v, rtol=0, atol=1e-9)
    seen = env.mirror.observation(env.observe(after))
    np.testing.assert_allclose(env.observe(other), seen, rtol=0, atol=1e-9)
    rewards = env.reward(state, action, after), env.reward(image, env.mirror.action(action), other)
    np.testing.assert_allclose(*rewards, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.float64
def test_networks_of_the_learner_act_alike_on_both_sides(env):
    """At the start and after updates, and in NumPy. The perceptron alone does not."""
    learner = learn.start(env, TINY, jax.random.key(0))
    update = eqx.filter_jit(lambda learner: learn.update(env, TINY, learner)[0])
    last = update(update(learner))
    x = env.observe(env.state(env.fallen_q[1], env.fallen_v[1], env.fallen_q[1, 7:]))
    observed, act = env.mirror
    assert np.abs(np.asarray(observed(x) - x)).max() > 0.1
    for now in (learner, last):
        policy, value = now.policy, now.value
        np.testing.assert_allclose(policy(observed(x)), act(policy(x)), rtol=0, atol=1e-12)
        scaled, image = (policy.normalizer(y) for y in (x, observed(x)))
        np.testing.assert_allclose(image, observed(scaled), rtol=0, atol=1e-12)
        np.testing.assert_allclose(value(image), value(scaled), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            learn.in_numpy(policy)(np.asarray(x)), policy(x), rtol=0, atol=1e-12
        )
        inner = policy.network.network
        assert np.abs(np.asarray(inner(image) - act(inner(scaled)))).max() > 1e-4
    old, new = (x.policy.network.network.layers[0].weight for x in (learner, last))
    assert (old != new).all()


def test_joints_of_real_robots_and_their_images():
    """Abductions of HyQ turn about axes that point the other way on the other side."""
    sample, hyq = (
        learn.joint_reflection(m) for m in (rbd.samples.quadruped(), robot("hyq_no_sensors"))
    )
    legs = np.r_[0:6, 9:12, 6:9, 15:18, 12:15]
    np.testing.assert_array_equal(sample.order, legs)
    np.testing.assert_array_equal(hyq.order, legs)
    base = [-1, 1, -1, 1, -1, 1]
    np.testing.assert_array_equal(sample.sign, base + 4 * [-1, 1, 1])
    np.testing.assert_array_equal(hyq.sign, base + 12 * [1])


def robot(name):
    if name not in rbd.example_robots():
        pytest.skip("example-robot-data is missing")
    return rbd.load_urdf(rbd.example_robot(name), floating_base=True)


def test_a_robot_without_an_image_is_refused_by_the_name_of_a_joint():
    model = rbd.samples.quadruped()
    heavy = eqx.tree_at(lambda m: m.inertia, model, model.inertia.at[6].multiply(2.0))
    assert model.topology.joint_names[6] == "rf_kfe"
    with pytest.raises(ValueError, match="joint_reflection: the joint 'lf_kfe' has no mirror"):
        learn.joint_reflection(heavy)


def test_a_posture_that_differs_from_side_to_side_has_no_mirror():
    model = rbd.samples.quadruped()
    q0 = tasks.stand(model, tasks.FEET, tasks.STANCES["quadruped"]).at[7].set(0.2)
    task = tasks.stand_up(model, q0)
    with pytest.raises(ValueError, match="posture is not the same on both sides; use mirrored=F"):
        tasks.stander(task=task, fallen=4)
    assert tasks.stander(task=task, fallen=4, mirrored=False).mirror is None


def test_a_gait_whose_sides_are_not_half_a_turn_apart_has_no_mirror():
    """Trot and pace have one; a bound, whose front feet move together, has none."""
    for phases in ((0.0, 0.5, 0.5, 0.0), (0.0, 0.5, 0.0, 0.5), (0.25, 0.75, 1.25, -0.25)):
        assert tasks.quadruped(phases=phases, mirrored=True).mirror is not None
    for phases in ((0.0, 0.0, 0.5, 0.5), (0.0, 0.4, 0.5, 0.0)):
        with pytest.raises(ValueError, match="half a turn ahead .* use mirrored=False"):
            tasks.quadruped(phases=phases, mirrored=True)
        assert tasks.quadruped(phases=phases).mirror is None
