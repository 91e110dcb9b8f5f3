"""Touch-down, rebound and lift-off in rollouts, against closed forms."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.simulate import ConstrainedRobot, Touching

G = 9.81


@cache
def ball():
    links = rbd.LinkSpec("ground"), rbd.LinkSpec("ball", 1.5)
    joint = rbd.JointSpec("j", "translation", "ground", "ball")
    model = rbd.build_model(rbd.RobotSpec("ball", links, (joint,)))
    return model, constraints.point(model, "ball", active=False)


def bouncing(height, restitution, t):
    """Height and speed of a ball that is dropped, after two bounces."""
    v = jnp.sqrt(2 * G * height)
    since = t - v / G - 2 * restitution * v / G
    up = restitution**2 * v
    return jnp.stack([up * since - G * since**2 / 2, up - G * since])


def bounced(x, project=False):
    """Place and velocity after 1.5 s of a ball that falls from x[0] with restitution x[1]."""
    model, c = ball()
    steps = 100
    c = eqx.tree_at(lambda c: c.restitution, c, x[1:])
    q0, v0 = jnp.array([0.2, 0.1, 0.0]).at[2].set(x[0]), jnp.array([0.5, 0.0, 0.0])
    plant = ConstrainedRobot(model, "midpoint", constraints=c, active=Touching(), project=project)
    path = rbd.rollout(plant, q0, v0, jnp.zeros((steps, 3)), 1.5 / steps)
    return jnp.concatenate([path.q[-1], path.v[-1]])


def exactly_bounced(x):
    """The same in closed form, after two bounces without friction along the ground."""
    v, e = jnp.sqrt(2 * G * x[0]), x[1]
    since = 1.5 - v / G - 2 * e * v / G
    up = e**2 * v
    return jnp.stack([up * since - G * since**2 / 2, up - G * since])


BALLS = jnp.array([[1.0, 0.8], [1.1, 0.75], [0.95, 0.85], [1.0, 0.0]])


@pytest.mark.float64
def test_a_ball_bounces_as_its_closed_form_or_sticks_where_it_lands():
    model, _ = ball()  # outside of any trace
    found = quick_jit(jax.vmap(bounced))(BALLS)
    np.testing.assert_allclose(found[:3, 2::3], jax.vmap(exactly_bounced)(BALLS[:3]), atol=1e-10)
    landed = 0.2 + 0.5 * np.sqrt(2 / G)
    np.testing.assert_allclose(found[3], [landed, 0.1, 0, 0, 0, 0], atol=1e-12)


@pytest.mark.slow
def test_projection_knows_where_a_foot_has_landed():
    ball()
    found = quick_jit(lambda x: bounced(x, project=True))(BALLS[3])
    np.testing.assert_allclose(found[0], 0.2 + 0.5 * np.sqrt(2 / G), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_know_that_the_time_of_a_touch_changes(mode):
    """With respect to the height and the restitution; fixed times would give the wrong sign."""
    ball()
    found = quick_jit(jax.vmap(mode(lambda x: bounced(x)[2::3])))(BALLS[:3])
    expected = jax.vmap(jax.jacfwd(exactly_bounced))(BALLS[:3])
    print(np.abs(found - expected).max())
    np.testing.assert_allclose(found, expected, atol=1e-9)


BODY, FOOT, SPRING, REST, SQUEEZED = 2.0, 0.3, 2000.0, 0.5, 0.08  # kg, kg, N/m, m, m


@cache
def hopper():
    """A body on a foot with a spring between them, on a vertical line."""
    links = [rbd.LinkSpec("ground"), rbd.LinkSpec("body", BODY), rbd.LinkSpec("foot", FOOT)]
    up = np.array([0.0, 0.0, 1.0])
    joints = [
        rbd.JointSpec("z", "prismatic", "ground", "body", axis=up),
        rbd.JointSpec("leg", "prismatic", "body", "foot", axis=up),
    ]
    model = rbd.build_model(rbd.RobotSpec("hopper", tuple(links), tuple(joints)))
    return model, constraints.point(model, "foot")


def spring(t, q, v):
    return jnp.array([0.0, -SPRING]) * (q[1] + REST)


@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_a_leg_with_strong_damping_lands(restitution):
    """An explicit step would be stable up to 17 µs; the speed never exceeds that of the fall."""
    model, foot = hopper()
    model = eqx.tree_at(lambda m: m.damping, model, jnp.array([0.0, 3e4]))
    foot = eqx.tree_at(lambda c: c.restitution, foot, jnp.full(1, restitution))

    def run(model, q0):
        off = foot.with_active(jnp.zeros(1, bool))
        plant = ConstrainedRobot(model, constraints=off, active=Touching())
        return rbd.rollout(plant, q0, jnp.zeros(2), jnp.zeros((5000, 2)), 2e-4)

    path = quick_jit(run)(model, jnp.array([1.0, -0.8]))
    assert float(jnp.abs(path.v[:, 0]).max()) < 1.05 * np.sqrt(2 * G * 0.2)
    assert abs(float(path.q[-1].sum())) < 2e-3  # the foot is at the ground
    assert float(jnp.abs(path.v[-1]).max()) < 0.01


@pytest.mark.slow
def test_a_hopper_lifts_off_as_its_closed_form():
    """The foot holds until the spring pulls by its weight; then the center of mass flies."""
    model, foot = hopper()
    dt, steps = 2.5e-5, 11200  # the torque of the spring is held during each step
    q0 = jnp.array([REST - SQUEEZED, SQUEEZED - REST])

    def run(q0):
        plant = ConstrainedRobot(model, "rk4", constraints=foot, active=Touching(spring))
        return rbd.rollout(plant, q0, jnp.zeros(2), spring, dt, steps=steps)

    path = quick_jit(run)(q0)
    feet, body = np.asarray(path.q.sum(axis=1)), np.asarray(path.q[:, 0])
    middle, rate = BODY * G / SPRING, np.sqrt(SPRING / BODY)
    swing = SQUEEZED - middle
    lift = np.arccos((-FOOT * G / SPRING - middle) / swing) / rate
    off = int(np.argmax(feet > 1e-12)) - 1
    assert abs(off * dt - lift) <= 2 * dt
    np.testing.assert_allclose(feet[: off + 1], 0, atol=1e-12)
    t = dt * np.arange(off + 1)
    np.testing.assert_allclose(body[: off + 1], REST - middle - swing * np.cos(rate * t), atol=1e-4)
    share = BODY / (BODY + FOOT)
    speed, height = share * swing * rate * np.sin(rate * lift), share * (REST + FOOT * G / SPRING)
    since = dt * steps - lift
    center = share * body[-1] + (1 - share) * feet[-1]
    assert feet[off + 2 :].min() > 0  # it is still in the air
    np.testing.assert_allclose(center, height + speed * since - G * since**2 / 2, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reference", ["local", pytest.param("local_world_aligned", marks=pytest.mark.slow)]
)
def test_a_flat_foot_on_a_slope_lifts_when_its_normal_force_pulls(reference):
    """The force of a turned frame counts along the normal of the ground, in the axes of the world.

    A slope of 0.75 takes 0.8 of the vertical force, which changes its sign with the spring.
    """
    model, _ = hopper()
    R = rbd.spatial.so3.exp(jnp.array([2.0, 0.3, -0.4]))
    held = constraints.frame(model, "foot", offset=(R, [0, 0, 0]), reference=reference)
    guard = Touching(spring, lambda p: 0.8 * p[2] - 0.6 * p[0])

    def holds(leg):
        q = jnp.stack([-leg, leg])
        return guard(model, jnp.zeros(()), q, jnp.zeros(2), held, jnp.asarray(0.1)).held.active[0]

    pull = FOOT * G / SPRING  # of the spring that carries the foot
    legs = -REST - pull + jnp.array([0.05, 1e-3, -1e-3, -0.05])
    assert quick_jit(jax.vmap(holds))(legs).tolist() == [True, True, False, False]


def test_what_is_no_foot_is_refused():
    model, c = ball()
    run = lambda c: ConstrainedRobot(model, constraints=c, active=Touching())  # noqa: E731
    with pytest.raises(ValueError, match="'side' has to be a point or a frame.*rows \\(3, 4\\)"):
        run(constraints.frame(model, "ball", rows=(3, 4), name="side"))
    hop, _ = hopper()
    with pytest.raises(ValueError, match="'loop' .*held at another body"):
        Touching().check(hop, constraints.point(hop, "foot", "body", name="loop"))
    with pytest.raises(ValueError, match="couplings \\['leg'\\] are no feet"):
        Touching().check(hop, constraints.lock(hop, "leg"))
