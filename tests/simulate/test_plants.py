"""Plants: robots with an actuation, scenes, and plants of a user's own, in one rollout."""

import inspect
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state
from support.rollout_cases import MODES

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import (
    INTEGRATORS,
    Integrator,
    Plant,
    Robot,
    ScenePlant,
    State,
    as_plant,
    resolve_integrator,
)

DT = 0.01


class Lagging(Plant):
    """A robot whose torques follow the controls with a lag; they are part of its state."""

    model: rbd.Model
    lag: jax.Array

    def start(self, q, v, dt, controls):
        return State(q, v, jnp.zeros_like(v))

    def step(self, t, state, u, dt):
        tau = state.memory + dt / self.lag * (u - state.memory)
        q, v = rbd.step(self.model, state.q, state.v, tau, dt)
        return State(q, v, tau)


def test_a_plant_of_ones_own_is_simulated_and_differentiated_in_all_modes():
    m = samples.double_pendulum()
    s = random_state(m)
    u = jnp.sin(jnp.arange(16.0)).reshape(8, 2)

    def end(lag, u, options):
        path = rbd.rollout(Lagging(m, lag), s.q, s.v, u, DT, **options)
        return path.q[-1, 0] + path.v[-1, 1]

    def by_hand(lag, u):
        q, v, tau = s.q, s.v, jnp.zeros(2)
        for row in u:
            tau = tau + DT / lag * (row - tau)
            q, v = rbd.step(m, q, v, tau, DT)
        return q[0] + v[1]

    @quick_jit
    def both(lag, u):
        found = [jax.value_and_grad(end, (0, 1))(lag, u, MODES[x]) for x in ("full", "adjoint")]
        return found, jax.value_and_grad(by_hand, (0, 1))(lag, u)

    found, expected = both(jnp.asarray(0.05), u)
    for x in found:
        for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(expected), strict=True):
            assert_close(a, b, atol=1e-11)


@pytest.mark.parametrize("kind", ["matrix", "function"])
def test_an_actuation_turns_controls_into_torques(kind):
    m = samples.double_pendulum()
    s, u = random_state(m), jnp.ones((5, 1))
    B = jnp.array([[2.0], [-1.0]])
    if kind == "matrix":
        plant, torques = Robot(m, "rk4", actuation=B), lambda q: B[:, 0]
    else:
        plant = Robot(m, "rk4", actuation=lambda m, t, q, v, u: u[0] * jnp.cos(q), inputs=1)
        torques = jnp.cos
    path = quick_jit(lambda q, v: rbd.rollout(plant, q, v, u, DT))(s.q, s.v)
    policy = lambda t, q, v: torques(q)  # noqa: E731
    plain = quick_jit(lambda q, v: rbd.rollout(m, q, v, policy, DT, steps=5, integrator="rk4"))
    assert plant.nu == 1 and path.controls.shape == (5, 1)
    assert_close(path.v, plain(s.q, s.v).v, atol=1e-13)


def test_a_plant_is_a_pytree_that_maps_over_its_leaves():
    m = samples.pendulum()
    fleet = jax.vmap(lambda g: Robot(eqx.tree_at(lambda m: m.gravity, m, g)))(
        jnp.array([[0, 0, -9.81], [0, 0, -1.62]])
    )
    run = jax.jit(
        jax.vmap(lambda p: rbd.rollout(p, jnp.ones(1), jnp.zeros(1), jnp.zeros((5, 1)), DT))
    )
    v = run(fleet).v[:, -1, 0]
    assert_close(v[0] / v[1], jnp.asarray(9.81 / 1.62), rtol=5e-3)  # the motion is short
    copies = [jax.tree.structure(Robot(m, "rk4")) for _ in range(2)]
    assert copies[0] == copies[1] and hash(copies[0]) == hash(copies[1])


class Halves(Integrator):
    """An integrator with a memory: the number of steps so far, which scales the velocity."""

    def init(self, model, acceleration, t, q, v, dt):
        return jnp.zeros_like(dt)

    def step(self, model, acceleration, t, q, v, dt, memory):
        return (q, v / (1 + memory)), memory + 1


def test_an_integrator_of_ones_own_has_a_memory():
    m, one = samples.pendulum(), jnp.ones(1)
    path = quick_jit(lambda: rbd.rollout(m, one, one, jnp.zeros((4, 1)), DT, integrator=Halves()))()
    assert_close(path.v[:, 0], jnp.array([1, 1, 1 / 2, 1 / 6, 1 / 24]), atol=1e-15)
    assert_close(rbd.step(m, one, one, one, DT, integrator=Halves())[1], one, atol=0)


class Scaled(eqx.Module):
    """A step function with an array, which nobody can hash."""

    factor: jax.Array

    def __call__(self, model, acceleration, t, q, v, dt):
        return q, self.factor * v


def test_a_step_function_may_have_arrays():
    m, one = samples.pendulum(), jnp.ones(1)

    def end(factor):
        step = Scaled(factor)
        return rbd.rollout(m, one, one, jnp.zeros((3, 1)), DT, integrator=step).v[-1, 0]

    assert_close(quick_jit(jax.grad(end))(jnp.asarray(2.0)), jnp.asarray(12.0), atol=1e-12)
    assert_close(end(jnp.asarray(2.0)), jnp.asarray(8.0), atol=1e-12)


def test_each_integrator_says_what_it_is():
    m, dt = samples.pendulum(), jnp.asarray(DT)
    names = {n for n, x in INTEGRATORS.items() if x.euler_robot(m, dt) is not None}
    assert names == {"semi_implicit_euler", "implicit_damping"}
    assert {n for n, x in INTEGRATORS.items() if x.has_memory} == {"generalized_alpha"}
    explicit = {n for n, x in INTEGRATORS.items() if x.tableau is not None}
    assert explicit == {"semi_implicit_euler", "euler", "midpoint", "heun", "kutta3", "rk4",
                        "momentum_rk4"}  # fmt: skip
    free = partial(rbd.simulate.munthe_kaas, tableau=rbd.simulate.TABLEAUS["heun"])
    assert resolve_integrator(free).tableau is rbd.simulate.TABLEAUS["heun"]
    for function in (rbd.simulate.rk4, rbd.simulate.implicit_damping):
        assert as_plant(m, function).integrator is INTEGRATORS[function.__name__]


def test_what_moves_is_checked():
    m, z = samples.pendulum(), jnp.zeros(1)
    with pytest.raises(
        TypeError, match="first argument must be a rbd_jax.Model, an rbd_jax.contact"
    ):
        rbd.rollout("pendulum", z, z, jnp.zeros((1, 1)), DT)
    with pytest.raises(
        ValueError, match="integrator is an option of a robot, got it beside a Robot"
    ):
        rbd.rollout(Robot(m), z, z, jnp.zeros((1, 1)), DT, integrator="rk4")
    with pytest.raises(ValueError, match=r"actuation has shape \(2, 1\), expected \(nv, nu\)"):
        Robot(m, actuation=jnp.zeros((2, 1)))
    with pytest.raises(ValueError, match="pass the number of controls: inputs="):
        Robot(m, actuation=lambda m, t, q, v, u: u)
    with pytest.raises(ValueError, match="integrator must be one of"):
        Robot(m, "rk5")
    with pytest.raises(TypeError, match="must be a name, a function or an Integrator, got a int"):
        inspect.unwrap(resolve_integrator)(4)
    with pytest.raises(ValueError, match=r"shape \(1, 2\), expected \(T, nv\) = \(T, 1\)"):
        rbd.rollout(Robot(m), z, z, jnp.zeros((1, 2)), DT)


def test_a_scene_is_a_plant():
    xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .2"><joint
    type="slide" axis="0 0 1"/><geom size=".1" mass="1"/></body></worldbody></mujoco>"""
    scene = rbd.load_mjcf(xml)
    q, v, u = scene.q0, jnp.zeros(1), jnp.zeros((5, 0))
    paths = [quick_jit(lambda x=x: rbd.rollout(x, q, v, u, scene.dt))() for x in
             (scene, ScenePlant(scene))]  # fmt: skip
    np.testing.assert_array_equal(paths[0].q, paths[1].q)
    assert float(paths[0].v[-1, 0]) < 0
