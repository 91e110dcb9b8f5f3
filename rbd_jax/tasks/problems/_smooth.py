"""Ready problems of robots without contacts: pendulums, an arm, free flight, a quadrotor."""

from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.kinematics import frame_placement
from ...algorithms.torques import gravity_torque
from ...io import samples
from ...model import Model, integrate, neutral
from ...optimize import FrameCost, Problem, StateCost
from ...simulate import stable_step
from ._task import Task


def _task(problem: Problem, q0: Array, u: Array | None = None) -> Task:
    dtype = problem.model.dtype
    if u is None:
        u = jnp.zeros((problem.controls,), dtype)
    u = jnp.broadcast_to(u, (problem.steps, problem.controls))
    return Task(problem, q0, jnp.zeros((problem.model.nv,), dtype), u)


def _robot(model: Model | None, sample: Callable[..., Model], dtype) -> Model:
    return sample(dtype=dtype) if model is None else model


def _arrays(model: Model, *values) -> list[Array]:
    return [jnp.asarray(np.asarray(x, dtype=np.float64), model.dtype) for x in values]


def cart_pole(steps: int = 100, dtype=None) -> Task:
    """Swing the pole of a cart up in 2 s by a force on the cart of at most 12 N."""
    model = samples.cart_pole(dtype=dtype)
    up, B, limit = _arrays(model, [0, np.pi], [[1], [0]], [12])
    w_run, w_end, w_u, dt = _arrays(model, [0.3, 0.3], [20, 20], [0.1], 2.0 / steps)
    stage = StateCost(up, w_run, 0.1 * w_run, w_u)
    final = StateCost(up, w_end, 0.5 * w_end)
    problem = Problem(model, stage, final, dt, steps, B, -limit, limit)
    return _task(problem, neutral(model))


def double_pendulum(steps: int = 120, dtype=None) -> Task:
    """Swing a double pendulum up in 3 s by torques too weak (10 and 5 N m) to lift it at once."""
    model = samples.double_pendulum(dtype=dtype)
    up, limit, dt = _arrays(model, [np.pi, 0], [10, 5], 3.0 / steps)
    w_run, w_end, w_u = _arrays(model, [0.1, 0.1], [30, 30], [0.1, 0.1])
    stage, final = StateCost(up, w_run, 0.3 * w_run, w_u), StateCost(up, w_end, 0.3 * w_end)
    problem = Problem(model, stage, final, dt, steps, None, -limit, limit)
    push = jnp.ones((2,), model.dtype)
    return _task(problem, neutral(model), push)


def reach(
    model: Model | None = None, frame: str | None = None, q0=None, steps: int = 60, dtype=None
) -> Task:
    """Bring the tool of an arm to rest at a pose in 0.9 s, within the torque limits.

    Args:
        model: the arm, :func:`rbd_jax.samples.arm` if None.
        frame: name of the tool's frame, the last frame if None.
        q0: initial configuration. None means joints bent by 0.5 rad in alternating directions.
        steps: number of time steps of 15 ms.
        dtype: precision of the sample.

    Raises:
        ValueError: for a robot with a floating base, which no torque can hold in its place.
    """
    model = _robot(model, samples.arm, dtype)
    if "free" in model.topology.kinds:
        raise ValueError(
            f"reach: robot {model.topology.name!r} floats; take a robot on a fixed base"
        )
    frame = model.frame_names[-1] if frame is None else frame
    bend = 0.5 * np.cos(np.pi * np.arange(model.nv))
    if q0 is None:
        q0 = integrate(model, neutral(model), *_arrays(model, bend))
    move = 0.7 * np.sin(1.0 + 2.0 * np.arange(model.nv))
    R, p = frame_placement(model, integrate(model, q0, *_arrays(model, move)), frame)
    ones = np.ones(model.nv)
    w_v, w_u, rest, near, aligned, dt = _arrays(
        model, 0.1 * ones, 0.02 * ones, 10 * ones, 100.0, 30.0, 0.015
    )
    stage = StateCost(q0, 0 * w_v, w_v, w_u)
    final = FrameCost(p, near, R, aligned, rest, frame)
    limit = model.effort_limit
    problem = Problem(model, stage, final, dt, steps, None, -limit, limit)
    return _task(problem, q0, gravity_torque(model, q0))


def reorient(model: Model | None = None, steps: int = 50, angle: float = 0.6, dtype=None) -> Task:
    """Turn a robot in free flight by moving its limbs alone, and bring the limbs back.

    Args:
        model: a robot on a free joint, :func:`rbd_jax.samples.quadruped` if None.
        steps: number of time steps of 12 ms.
        angle: rotation about the pitch axis (rad).
        dtype: precision of the sample.

    Raises:
        ValueError: for a robot without a free joint at its root.
    """
    model = _robot(model, samples.quadruped, dtype)
    if model.topology.kinds[:1] != ("free",):
        raise ValueError(f"reorient: robot {model.topology.name!r} has no free joint at its root")
    weightless = jnp.zeros_like(model.gravity)
    model = cast(Model, eqx.tree_at(lambda m: m.gravity, model, weightless))
    nv, nu = model.nv, model.nv - 6
    q0 = neutral(model)
    turn = np.zeros(nv)
    turn[1] = angle
    heavy, run, rest, u = np.zeros(nv), np.full(nv, 0.3), np.full(nv, 3.0), np.full(nu, 0.03)
    heavy[:3], heavy[6:], run[:6], rest[:6] = 100.0, 10.0, 0.0, 1.0
    turn, heavy, run, rest, u, dt = _arrays(model, turn, heavy, run, rest, u, 0.012)
    goal = integrate(model, q0, turn)
    B = jnp.eye(nv, dtype=model.dtype)[:, 6:]
    limit = jnp.minimum(model.effort_limit[6:], 80.0)
    stage, final = StateCost(q0, 0 * run, run, u), StateCost(goal, heavy, rest)
    # the guess must not be symmetric, because a symmetric guess stays symmetric
    guess = jnp.asarray(3.0 * np.sin(1.0 + np.arange(nu)), model.dtype)
    # An Euler step of 12 ms has an error in the angular momentum that turns the robot. Under strong
    # damping only an implicit step without such an error is stable, and takes longer.
    how = "rk4" if stable_step(model, "rk4", q0) > float(dt) else "variational"
    problem = Problem(model, stage, final, dt, steps, B, -limit, limit, integrator=how)
    return _task(problem, q0, guess)


def rotors(model: Model) -> Float[Array, "nv 4"]:
    """The actuation matrix of a quadrotor: generalized forces for 1 N of thrust of each rotor."""
    columns = []
    for i in range(4):
        x, y, _ = np.asarray(model.frame_p[model.topology.frame_index(f"rotor{i}")])
        drag = 0.02 * (-1) ** i  # torque of a propeller about its axis for 1 N of thrust
        columns.append([y, -x, drag, 0, 0, 1, *[0] * (model.nv - 6)])
    return jnp.asarray(np.transpose(columns), model.dtype)


def quadrotor(steps: int = 100, dtype=None) -> Task:
    """Fly a quadrotor 1.5 m sideways and 0.5 m up in 2 s while its arm stretches out forwards."""
    model = samples.quadrotor_arm(dtype=dtype)
    nv, q0 = model.nv, neutral(model)
    goal = q0.at[:3].add(jnp.asarray([0.0, 1.5, 0.5], model.dtype)).at[7].set(-1.2)
    B = jnp.concatenate([rotors(model), jnp.eye(nv, dtype=model.dtype)[:, 6:]], axis=1)
    weight = 9.81 * float(np.asarray(model.inertia)[:, 0].sum())
    low, high = [0.0] * 4 + [-0.6] * 2, [0.6 * weight] * 4 + [0.6] * 2
    hover = [0.25 * weight] * 4 + [0.0] * 2
    low, high, hover, dt = _arrays(model, low, high, hover, 2.0 / steps)
    run, end, u = _arrays(model, np.full(nv, 0.3), np.full(nv, 20.0), [0.1] * 4 + [0.5] * 2)
    stage = StateCost(goal, run, run, u, hover)
    final = StateCost(goal, end, 0.5 * end)
    return _task(Problem(model, stage, final, dt, steps, B, low, high), q0, hover)
