"""Smooth derivatives for motions that stay as they are."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.own_plants import lagging

import rbd_jax as rbd
from rbd_jax import optimize as opt, simulate
from rbd_jax.simulate import Plant, RandomizedSmoothing, State, StraightThrough, as_plant

pytestmark = pytest.mark.float64  # small differences

PUSH = """<mujoco><option timestep=".01" gravity="0 0 0"/>
<worldbody>
<body><joint name="hand" type="slide" axis="1 0 0"/>
  <geom size=".02" mass="1" condim="{dim}"/></body>
<body pos=".07 0 0"><joint name="ball" type="slide" axis="1 0 0" damping="1"/>
  <geom size=".02" mass=".5" condim="{dim}"/></body>
</worldbody>
<actuator><motor joint="hand"/></actuator></mujoco>"""
"""A hand that a force moves along a line, and a ball 3 cm ahead of it."""
REACH, SOFTNESS = 0.05, 0.2


class Slopes(NamedTuple):
    """A step, its slopes along (q, v, u), and central differences of the same."""

    end: State
    slopes: np.ndarray
    numeric: np.ndarray


def scene_of(dim: int = 1, dtype=None):
    return rbd.load_mjcf(PUSH.format(dim=dim), dtype=dtype)


def slopes(plant, q, v, u) -> Slopes:
    return Slopes(*_slopes(as_plant(plant), q, v, u))


@jax.jit
def _slopes(plant, q, v, u, h: float = 1e-6):
    n, z = plant.nx, jnp.zeros(plant.nx + u.size)
    dt = jnp.asarray(0.01)

    def step(z):
        state = plant.integrate(plant.start(q, v, dt, lambda *_: u), z[:n])
        return plant.step(jnp.zeros(()), state, u + z[n:], dt)

    end = step(z)
    change = lambda z: plant.difference(end, step(z))  # noqa: E731
    ways = h * jnp.eye(z.size)
    numeric = jax.vmap(lambda w: (change(w) - change(-w)) / (2 * h), out_axes=1)(ways)
    return (
        end,
        jax.jacfwd(lambda z: plant.difference(jax.lax.stop_gradient(end), step(z)))(z),
        numeric,
    )


def apart(x):
    """A state of the hand, whose velocity and force are small, x metres ahead of its place."""
    return jnp.array([x, 0.0]), jnp.array([0.01, 0.0]), jnp.array([0.3])


BALL, FORCE, HAND = 3, 4, 0
"""Where the slopes have the velocity of the ball, the force, and the place of the hand."""


def test_a_contact_at_a_distance_pushes_as_its_formula_says():
    """One contact between bodies of 1 kg and 0.5 kg, by the force law of the docstring."""
    scene = scene_of().at_distance(REACH, SOFTNESS)
    q, v, u = apart(0.01)  # 2 cm between the surfaces
    a = jax.jit(rbd.contact.constrained_acceleration)(scene, q, v, u).a
    force = 0.5 * float(a[1])
    assert force > 0
    assert np.isclose(force, 0.3 - float(a[0]), atol=1e-10)
    x = 0.02 / REACH
    share = (1 - 3 * x**2 + 2 * x**3) * 0.9
    time, width = 0.02, 0.95  # of MuJoCo's defaults
    b = 2 / (width * time)
    z = (a[1] - a[0]) + b * (v[1] - v[0])
    D = share / (1 - share) / (1 + 1 / 0.5)
    expected = D * SOFTNESS * np.log1p(np.exp(-z / SOFTNESS))
    assert np.isclose(force, expected, rtol=1e-9)


DIMS = pytest.mark.parametrize("dim", [1, pytest.param(3, marks=pytest.mark.slow)])


@DIMS
def test_steps_at_a_distance_are_smooth(dim):
    hard, q = scene_of(dim), apart(0.01)
    soft = hard.at_distance(REACH, SOFTNESS)
    far, near, exact = slopes(soft, *apart(-0.1)), slopes(soft, *q), slopes(hard, *q)
    for found in (far, near, exact):
        assert np.allclose(found.slopes, found.numeric, atol=1e-6)
    assert exact.slopes[BALL, FORCE] == 0
    assert near.slopes[BALL, FORCE] > 1e-4
    assert near.slopes[BALL, HAND] > 1e-2  # a hand that is nearer pushes more
    assert far.slopes[BALL, FORCE] == 0  # beyond the reach there is nothing


@DIMS
def test_firm_contacts_stay_as_they_are(dim):
    """A hand that presses with 200 N, against the softness of 0.01 m/s²."""
    hard = scene_of(dim)
    q, v, u = jnp.array([0.0301, 0.0]), jnp.zeros(2), jnp.array([200.0])
    exact, soft = slopes(hard, q, v, u), slopes(hard.at_distance(REACH, 0.01), q, v, u)
    assert np.allclose(exact.end.v, soft.end.v, rtol=1e-4)
    assert np.allclose(exact.slopes, soft.slopes, rtol=1e-4, atol=1e-4)


def test_a_plant_moves_as_it_does_with_the_derivatives_of_another():
    hard, x = scene_of(), apart(0.01)
    soft = hard.at_distance(REACH, SOFTNESS)
    plant, own, other = StraightThrough(hard, soft), slopes(hard, *x), slopes(soft, *x)
    found = slopes(plant, *x)
    assert np.array_equal(found.end.q, own.end.q) and np.array_equal(found.end.v, own.end.v)
    assert not np.allclose(own.end.v, other.end.v, atol=1e-6)
    assert np.allclose(found.slopes, other.slopes, rtol=1e-9, atol=1e-12)
    q0, v0, u = *apart(0.0)[:2], jnp.full((12, 1), 0.5)
    paths = [jax.jit(rbd.rollout)(x, q0, v0, u, 0.01) for x in (hard, plant)]
    assert np.array_equal(paths[0].q, paths[1].q)


def test_gradients_of_rollouts_go_the_same_way():
    """Also along an array of the scene from which both are made."""
    q0, v0 = apart(0.0)[:2]
    hard, u = scene_of(), jnp.full((12, 1), 0.5)

    def ball(u, gain):
        scene = eqx.tree_at(lambda s: s.actuators.gainprm, hard, gain * hard.actuators.gainprm)
        plant = StraightThrough(scene, scene.at_distance(REACH, SOFTNESS))
        return rbd.rollout(plant, q0, v0, u, 0.01).q[-1, 1]

    push, gain = jax.jit(jax.grad(ball, (0, 1)))(u, 1.0)
    assert jnp.all(push[:-2] > 0) and gain > 0
    _, forward = jax.jit(lambda: jax.jvp(ball, (u, 1.0), (jnp.ones_like(u), 0.0)))()
    assert np.isclose(forward, push.sum(), rtol=1e-8)


@pytest.mark.slow
def test_optimizers_find_a_contact_that_is_not_there():
    hard = scene_of()
    q0, goal = jnp.zeros(2), jnp.array([0.0, 0.1])
    stage = opt.StateCost(goal, jnp.zeros(2), jnp.zeros(2), jnp.full(1, 1e-4))
    final = opt.StateCost(goal, jnp.array([0.0, 100.0]), jnp.array([0.0, 1.0]))

    @jax.jit
    def solve(plant, u):
        problem = opt.Problem(plant, stage, final, 0.01, 60, lower=-10, upper=10)
        return opt.ilqr(problem, q0, jnp.zeros(2), u, max_steps=60, throw=False)

    still = jnp.zeros((60, 1))
    alone = solve(hard, still)
    assert jnp.all(alone.u == 0)  # no derivative tells of the ball
    found = solve(StraightThrough(hard, hard.at_distance(REACH, SOFTNESS)), still)
    assert abs(found.q[-1, 1] - 0.1) < 0.03
    best = solve(hard, found.u)
    assert best.cost <= found.cost + 1e-9 and abs(best.q[-1, 1] - 0.1) < 1e-2


class Waves(Plant):
    """Steps whose mean slopes are known."""

    model: rbd.Model

    def step(self, t, state, u, dt):
        return State(state.q + jnp.sin(state.q), state.v + state.q * u**2, ())


KEY = jax.random.key(3)


def cart():
    xml = '<body><joint type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body>'
    return rbd.load_mjcf(f"<mujoco><worldbody>{xml}</worldbody></mujoco>").model


def test_means_of_derivatives():
    model = cart()
    plant, q, v, u = Waves(model), jnp.array([0.3]), jnp.array([0.1]), jnp.array([2.0])
    smooth = RandomizedSmoothing(plant, KEY, q=0.5, v=0.0, u=0.2, samples=64)
    found = slopes(StraightThrough(plant, smooth), q, v, u)
    at_q, _, at_u = (
        np.asarray(q)[None] + np.asarray(smooth.noise[:, :1]),
        0,
        np.asarray(u)[None] + np.asarray(smooth.noise[:, 2:]),
    )
    means = np.array([
        [1 + np.cos(at_q).mean(), 0, 0],
        [(at_u**2).mean(), 1, (2 * at_q * at_u).mean()],
    ])  # fmt: skip
    assert np.allclose(found.slopes, means, rtol=1e-10)
    assert np.array_equal(found.end.q, q + jnp.sin(q))
    assert np.allclose(smooth.noise.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("order", [0, 1])
def test_smooth_slopes_of_linear_steps_are_exact(order):
    model = cart()
    plant = lagging(model, 0.3) if order else simulate.Robot(model, "semi_implicit_euler")
    smooth = RandomizedSmoothing(plant, KEY, q=0.5, v=0.2, u=0.2, samples=8, order=order)
    x = jnp.array([0.3]), jnp.array([0.1]), jnp.array([2.0])
    exact, found = slopes(plant, *x), slopes(StraightThrough(plant, smooth), *x)
    assert np.allclose(found.slopes, exact.slopes, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("order", [0, 1])
def test_samples_meet_a_contact_that_is_not_there(order):
    hard = scene_of()
    x = jnp.array([0.027, 0.0]), jnp.zeros(2), jnp.zeros(1)  # 3 mm apart
    smooth = RandomizedSmoothing(hard, KEY, q=0.01, v=0.1, u=0.3, samples=64, order=order)
    found, exact = slopes(StraightThrough(hard, smooth), *x), slopes(hard, *x)
    assert exact.slopes[BALL, HAND] == 0
    assert found.slopes[BALL, HAND] > 0.1
    assert np.array_equal(found.end.v, exact.end.v)


@pytest.mark.parametrize("order", [0, 1])
def test_arrays_of_a_smoothed_plant_have_derivatives(order):
    model = cart()
    q, v, dt = jnp.array([0.3]), jnp.array([0.1]), jnp.asarray(0.01)

    def end(mass):
        robot = eqx.tree_at(lambda m: m.inertia, model, mass * model.inertia)
        plant = simulate.Robot(robot, "semi_implicit_euler")
        smooth = RandomizedSmoothing(plant, KEY, q=0.1, v=0.1, u=0.1, samples=8, order=order)
        plant = StraightThrough(plant, smooth)
        return plant.step(jnp.zeros(()), State(q, v), jnp.array([2.0]), dt).v[0]

    def plain(mass):
        robot = eqx.tree_at(lambda m: m.inertia, model, mass * model.inertia)
        return rbd.step(robot, q, v, jnp.array([2.0]), dt, integrator="semi_implicit_euler")[1][0]

    found, exact = jax.jit(lambda x: (jax.grad(end)(x), jax.grad(plain)(x)))(1.5)
    assert np.isclose(found, exact, rtol=1e-9) and exact != 0


def test_a_rotation_is_smoothed_along_its_tangents():
    """Small changes of a free body give its exact slopes, up to their square."""
    model = rbd.samples.quadrotor_arm()
    q = rbd.neutral(model).at[3:7].set(jnp.array([0.8, 0.6, 0.0, 0.0]))
    v, u = jnp.linspace(-1, 1, model.nv), jnp.linspace(1, 2, model.nv)
    plant = simulate.Robot(model)
    smooth = RandomizedSmoothing(plant, KEY, q=1e-5, v=1e-5, u=1e-5, samples=8)
    exact, found = slopes(plant, q, v, u), slopes(StraightThrough(plant, smooth), q, v, u)
    assert np.allclose(found.slopes, exact.slopes, atol=1e-6)


def test_what_does_not_fit_is_refused():
    model, scene = cart(), scene_of()
    plant = lagging(model, 0.3)
    with pytest.raises(ValueError, match="another state or of other controls"):
        StraightThrough(scene, model)
    with pytest.raises(ValueError, match="another state or of other controls"):
        StraightThrough(scene, RandomizedSmoothing(model, KEY, q=0.1))
    with pytest.raises(ValueError, match="expected an even number"):
        RandomizedSmoothing(model, KEY, q=0.1, samples=5)
    with pytest.raises(ValueError, match="order is 2"):
        RandomizedSmoothing(model, KEY, q=0.1, order=2)
    with pytest.raises(ValueError, match="without a memory"):
        RandomizedSmoothing(plant, KEY, q=0.1, v=0.1, u=0.1, order=0)
    with pytest.raises(ValueError, match="needs 6 samples"):
        RandomizedSmoothing(model, KEY, q=0.1, v=0.1, u=0.1, samples=4, order=0)
    with pytest.raises(ValueError, match="above zero"):
        RandomizedSmoothing(model, KEY, q=0.1, order=0)
    with pytest.raises(ValueError, match="q must be finite and not negative"):
        RandomizedSmoothing(model, KEY, q=-0.1)
    with pytest.raises(ValueError, match=r"q has shape \(3,\)"):
        RandomizedSmoothing(model, KEY, q=jnp.ones(3))
    for wrong in ({"reach": 0.0}, {"reach": 0.1, "softness": -1.0}):
        with pytest.raises(ValueError, match="at_distance"):
            scene.at_distance(**wrong)
