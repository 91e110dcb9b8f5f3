"""Rollouts of a policy in any plant, not only in the simulation in which it was trained."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import Scene
from ..model import Model
from ..simulate import Plant, as_plant, fresh_state, hold_controls
from ._environment import Environment, State, memory_of, observe
from ._networks import Policy


def closed_loop(
    env: Environment,
    policy: Policy,
    state: State,
    steps: int,
    plant: Plant | Scene | Model | None = None,
) -> tuple[Float[Array, "k nq"], Float[Array, "k nv"]]:
    """The states q and v of one robot after 0, 1, …, T control steps of a policy without noise.

    Args:
        env: the task that the policy was learned for.
        policy: the trained policy.
        state: the first state, of :meth:`Environment.begin` or :meth:`Environment.state`.
        steps: number of control steps T.
        plant: what the policy controls, for example ``tasks.pushed(task, impulse)`` of
            :mod:`rbd_jax.tasks`; the plant of the task if None. It takes the substeps of the task.
            Another plant begins with the memory of its ``start``.
    """
    own = plant is None
    moves = (env.plant_of(state.robot) if own else as_plant(plant, name="closed_loop")).prepared()
    first = fresh_state(moves, state.q, state.v, env.dt)
    first = first._replace(memory=state.memory) if own else first

    def step(carry, k):
        state, now = carry
        action = policy(observe(env, state))
        u = env.controls(state, action)
        now = hold_controls(moves, k * env.period, now, u, env.period, env.substeps)
        seen = memory_of(env, state, now)
        new = {"q": now.q, "v": now.v, "memory": seen, "controls": u, "action": action}
        state = dataclasses.replace(state, **new, age=state.age + 1)
        return (state, now), (now.q, now.v)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        times = jnp.arange(steps, dtype=state.q.dtype)
        _, (q, v) = jax.lax.scan(step, (state, first), times)
    return jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
