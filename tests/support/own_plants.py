"""Plants that a user might write, and problems with them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import rbd_jax as rbd
from rbd_jax import optimize as opt
from rbd_jax.simulate import Plant, Robot, State
from rbd_jax.spatial import so3

from .problems import DT, T, sledge


class Lagging(Plant):
    """A robot whose drives follow the controls with a lag: their forces are its memory."""

    model: rbd.Model
    robot: Robot
    lag: Array

    @property
    def nu(self):
        return self.robot.nu

    def start(self, q, v, dt, controls):
        return State(q, v, jnp.zeros(self.nu, q.dtype))

    def step(self, t, state, u, dt):
        force = state.memory + (1 - jnp.exp(-dt / self.lag)) * (u - state.memory)
        new = self.robot.step(t, State(state.q, state.v), force, dt)
        return State(new.q, new.v, force)


def lagging(model: rbd.Model, lag: Any = 0.2, actuation: Any = None) -> Lagging:
    """A robot with lagging drives."""
    robot = Robot(model, "semi_implicit_euler", actuation=actuation)
    return Lagging(model, robot, jnp.asarray(lag, model.dtype))


class Networked(Plant):
    """An arm whose torques are a network of the errors of its joints, now and before."""

    model: rbd.Model
    network: eqx.nn.MLP

    def start(self, q, v, dt, controls):
        return State(q, v, jnp.zeros_like(v))

    def step(self, t, state, u, dt):
        error = u - state.q
        tau = jax.vmap(self.network)(jnp.stack([error, state.memory, state.v], axis=1))[:, 0]
        q, v = rbd.step(self.model, state.q, state.v, 4 * tau, dt)
        return State(q, v, error)


class Gimbal(Plant):
    """A ball joint and a free rotation, which is memory on a manifold and follows the ball."""

    model: rbd.Model

    def start(self, q, v, dt, controls):
        return State(q, v, jnp.eye(3, dtype=q.dtype))

    def step(self, t, state, u, dt):
        R = state.memory
        turn = so3.log(so3.matmul(so3.transpose(R), so3.quat_to_matrix(state.q)))
        q, v = rbd.step(self.model, state.q, state.v, u + turn, dt)
        return State(q, v, so3.matmul(R, so3.exp(dt * (5 * turn + v))))

    @property
    def memory_size(self):
        return 3

    def memory_integrate(self, memory, dm):
        return so3.matmul(memory, so3.exp(dm))

    def memory_difference(self, memory, other):
        return so3.log(so3.matmul(so3.transpose(memory), other))


def ball() -> rbd.Model:
    """One ball joint."""
    return rbd.samples.random_tree(1, kinds=("spherical",))


def lagging_sledge(lag: Any = 0.2, steps: int = T, **options: Any) -> opt.Problem:
    """Bring a sledge whose drive lags to 0.3 m: a linear problem with one number of memory."""

    def stage(m, t, q, v, u):
        return 0.3 * u

    def final(m, q, v):
        return 10 * jnp.concatenate([q - 0.3, v])

    return opt.Problem(lagging(sledge(), lag), stage, final, DT, steps, **options)
