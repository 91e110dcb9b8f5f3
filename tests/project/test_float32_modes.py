"""Robots in float32 in the modes of JAX that users have: no warning, and nothing in float64.

The programs are traced, not run, as that is where JAX promotes numbers and warns of it.
"""

import inspect
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import identify, learn, optimize, tasks
from rbd_jax.tasks import cart_pole, on_ground

F = jnp.float32


@pytest.fixture(params=[True, False], ids=["x64", "x32"], autouse=True)
def mode(request):
    """JAX's own promotion, with and without x64; the test run makes warnings errors."""
    with (
        jax.enable_x64(request.param),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def check(function, *args):
    """Results are in float32, also where arguments are in JAX's default precision."""
    for kind in (F, jnp.result_type(float)):
        given = [x.astype(kind) if isinstance(x, jax.Array) else x for x in args]
        arrays, rest = eqx.partition(given, eqx.is_array)
        traced = lambda x, rest=rest: eqx.filter(function(*eqx.combine(x, rest)), eqx.is_array)  # noqa: E731
        for x in jax.tree.leaves(jax.eval_shape(traced, arrays)):
            assert x.dtype != jnp.float64


LONG = {"variational", "generalized_alpha"}


@pytest.mark.parametrize(
    "integrator",
    [
        pytest.param(x, marks=pytest.mark.slow) if x in LONG else x
        for x in sorted(rbd.simulate.INTEGRATORS)
    ],
)
def test_rollouts(integrator):
    m = rbd.samples.quadruped(dtype=F)
    q, v = rbd.neutral(m), jnp.zeros((m.nv,), F)
    check(partial(rbd.rollout, dt=0.01, integrator=integrator), m, q, v, jnp.zeros((4, m.nv), F))
    policy = lambda t, q, v: -np.float64(0.1) * v  # noqa: E731
    check(partial(rbd.rollout, dt=0.01, steps=4, integrator=integrator), m, q, v, policy)


def test_contact():
    scene, q = on_ground(dtype=F)
    v, u = jnp.zeros((scene.model.nv,), F), q[7:]
    check(rbd.contact.scene_step, scene, q, v, u)
    check(rbd.contact.constrained_acceleration, scene, q, v, u)
    check(rbd.contact.constraint_forces, scene, q, v, v)


def test_constraints():
    m = rbd.samples.quadruped(dtype=F)
    rooms = rbd.constraints
    names = m.topology.body_names
    c = rooms.join(rooms.point(m, names[-1], at=[0.1, 0.2, 0.3]), rooms.frame(m, names[4]))
    q, v, tau = rbd.neutral(m), jnp.ones((m.nv,), F), jnp.ones((m.nv,), F)
    check(rooms.constrained_dynamics, m, q, v, tau, c)
    check(rooms.constrained_dynamics_derivatives, m, q, v, tau, c)
    check(rooms.impact, m, q, v, c)
    check(lambda *x: rooms.project(*x, throw=False), m, q, v, c)

    def step(m, q, v, tau):
        plant = rbd.simulate.ConstrainedRobot(m, constraints=c, project=True)
        return rbd.rollout(plant, q, v, tau[None], 0.01)

    check(step, m, q, v, tau)


SCREW = ("jacobian_rates", "lagrange_coriolis_matrix", "lagrange_mass_matrix",
         "body_screws", "spatial_screws", "euler_jourdain_torque")  # fmt: skip


@pytest.mark.parametrize("name", SCREW)
def test_screws(name):
    m = rbd.samples.arm(dtype=F)
    function = getattr(rbd.screw, name)
    needed = [p for p in inspect.signature(function).parameters.values()
              if p.default is inspect.Parameter.empty]  # fmt: skip
    numbers = 0.1 * jnp.arange(m.nv, dtype=F)
    check(function, m, *[numbers] * (len(needed) - 1))


def test_learning():
    task = tasks.cart_pole_environment(dtype=F)
    settings = learn.Settings(robots=2, horizon=3, minibatches=1, passes=1, hidden=(4,))

    def learned(task, key):
        return learn.update(task, settings, learn.start(task, settings, key))

    found = eqx.filter_eval_shape(learned, task, jax.random.key(0))
    assert not [x for x in jax.tree.leaves(found) if getattr(x, "dtype", F) == jnp.float64]


@pytest.mark.parametrize("solver", ["ilqr", "ddp", "multiple_shooting", "single_shooting"])
def test_solvers(solver):
    task = cart_pole(dtype=F)
    solve = partial(getattr(optimize, solver), max_steps=3, throw=False)
    check(solve, task.problem, task.q0, task.v0, task.u)


def test_derivatives_of_constrained_solutions():
    """Their rule is traced, by a limit of the velocity."""
    task = cart_pole(dtype=F)

    def rate(task, limit):
        def controls(limit):
            speed = optimize.Constraint(lambda m, q, v: v[:1] - limit, "speed", at="states")
            return optimize.augmented_lagrangian(*task, [speed], max_steps=3, throw=False).u

        return jax.jvp(controls, (limit,), (jnp.ones_like(limit),))[1]

    check(rate, task, jnp.asarray(1.0, F))


LEAVES = [*(pytest.param(x, marks=pytest.mark.slow) for x in ("damping", "gravity")), "inertia"]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("fit", ["fit_torques", "fit_accelerations"])
def test_fits(fit, leaf):
    m = rbd.samples.arm(dtype=F)
    t = jnp.asarray(0.01 * np.arange(40), F)
    q = jnp.sin(t[:, None] * jnp.arange(1, m.nq + 1, dtype=F))
    data = identify.filter_and_differentiate(m, t, q, jnp.cos(q))
    learn = identify.Parameters(m, identify.select(m, leaf))
    found = jax.eval_shape(
        lambda data: eqx.filter(
            getattr(identify, fit)(learn, data, max_steps=3, throw=False), eqx.is_array
        ),
        data,
    )
    assert not [x for x in jax.tree.leaves(found) if x.dtype == jnp.float64]
