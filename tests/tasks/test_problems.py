"""Whole tasks on real robots: they are solved, within bounds, and simulate to what they say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.helpers import assert_close

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks


def _solve(task, solver=opt.ilqr, **options):
    s = jax.jit(lambda t: solver(*t, max_steps=400, **options))(task)
    p = task.problem
    low, high = p.bounds()
    assert bool((s.u >= low[None]).all() and (s.u <= high[None]).all())
    torques = jax.vmap(p.torques)(s.t[:-1], s.q[:-1], s.v[:-1], s.u)
    how = {"integrator": p.plant.integrator}
    path = jax.jit(lambda u: rbd.rollout(p.model, task.q0, task.v0, u, p.dt, **how))(torques)
    assert_close(path.q, s.q, atol=1e-9)
    print(p.model.topology.name, int(s.steps), "steps, cost", float(s.cost))
    return s


def _robot(name: str, **options):
    if name not in rbd.example_robots():
        pytest.skip("no example robots")
    return rbd.load_urdf(rbd.example_robot(name), dtype=jnp.float64, **options)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["ilqr", "ddp"])
def test_double_pendulum_swings_up(solver):
    s = _solve(tasks.double_pendulum(), getattr(opt, solver))
    assert float(jnp.abs(s.q[-1] - jnp.array([np.pi, 0])).max()) < 0.02
    assert float(jnp.abs(s.v[-1]).max()) < 0.1


@pytest.mark.parametrize(
    "robot", [pytest.param(n, marks=pytest.mark.slow) for n in ("arm", "ur5_robot", "panda")]
)
def test_an_arm_reaches_a_pose_within_its_torque_limits(robot):
    model = None if robot == "arm" else _robot(robot)
    frame = {"ur5_robot": "tool0", "panda": "panda_hand"}.get(robot)
    task = tasks.reach(model, frame, dtype=jnp.float64)
    s = _solve(task)
    m, cost = task.problem.model, task.problem.final
    R, p = rbd.frame_placement(m, s.q[-1], cost.frame)
    assert float(jnp.linalg.norm(p - cost.p)) < 5e-3
    assert float(jnp.linalg.norm(R - cost.R)) < 2e-2
    assert float(jnp.abs(s.v[-1]).max()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["quadruped", "hyq_no_sensors"])
def test_a_robot_turns_in_free_flight(robot):
    """By moving its legs alone: the angular momentum stays zero, the trunk turns all the same."""
    model = None if robot == "quadruped" else _robot(robot, floating_base=True)
    task = tasks.reorient(model, dtype=jnp.float64)
    # iLQR takes 880 steps for the sample, DDP 36 to a lower cost
    s = _solve(task, opt.ddp if robot == "quadruped" else opt.ilqr, tol=1e-6)
    m = task.problem.model
    miss = rbd.difference(m, task.problem.final.q, s.q[-1])
    assert float(jnp.abs(miss[:3]).max()) < 0.05  # of 0.6 rad
    assert float(jnp.abs(miss[6:]).max()) < 0.2
    momenta = jax.vmap(lambda q, v: rbd.centroidal_momentum(m, q, v)[:3])(s.q, s.v)
    scale = float(jnp.abs(s.v[:, 6:]).max())
    assert float(jnp.abs(momenta).max()) < 0.02 * scale


@pytest.mark.slow
def test_a_quadrotor_flies_while_its_arm_moves():
    task = tasks.quadrotor()
    s = _solve(task)
    assert float(jnp.linalg.norm(s.q[-1, :3] - task.problem.final.q[:3])) < 0.02
    assert abs(float(s.q[-1, 7]) + 1.2) < 0.05
    assert float(s.u[:, :4].min()) >= 0


@pytest.mark.slow
def test_a_policy_is_trained_through_the_dynamics():
    """A small network learns to hold a pendulum upright, from gradients of rollouts."""
    model = rbd.samples.pendulum()
    policy = eqx.nn.MLP(2, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0), dtype=float)
    starts = jnp.pi + 0.3 * jax.random.normal(jax.random.key(1), (16, 1))

    def loss(policy, q0):
        act = lambda t, q, v: 10 * policy(jnp.concatenate([q - jnp.pi, v]))  # noqa: E731
        path = rbd.rollout(model, q0, jnp.zeros(1), act, 0.03, steps=60, gradient="adjoint")
        return jnp.mean((path.q - jnp.pi) ** 2) + 0.1 * jnp.mean(path.v**2)

    optimizer = optax.adam(0.03)

    @eqx.filter_jit
    def train(policy):
        params, static = eqx.partition(policy, eqx.is_inexact_array)

        def step(carry, _):
            params, memory = carry
            total = lambda p: jnp.mean(  # noqa: E731
                jax.vmap(lambda q: loss(eqx.combine(p, static), q))(starts)
            )
            value, slope = jax.value_and_grad(total)(params)
            with jax.numpy_dtype_promotion("standard"):  # optax is not written for strict
                change, memory = optimizer.update(slope, memory)
            return (optax.apply_updates(params, change), memory), value

        start = params, optimizer.init(params)
        (params, _), values = jax.lax.scan(step, start, None, length=120)
        return eqx.combine(params, static), values

    trained, values = train(policy)
    assert float(values[-1]) < 0.02 * float(values[0])
    fresh = jnp.pi + jnp.array([[0.25], [-0.25]])
    after = jax.jit(jax.vmap(lambda q: loss(trained, q)))(fresh)
    assert float(after.max()) < 0.05


def test_tasks_say_what_they_need():
    with pytest.raises(ValueError, match="has no free joint at its root"):
        tasks.reorient(rbd.samples.arm())
    with pytest.raises(ValueError, match="reach: robot 'quadruped' floats"):
        tasks.reach(rbd.samples.quadruped())
