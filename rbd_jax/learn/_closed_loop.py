"""Rollouts of a policy in any plant, not only in the simulation in which it was trained."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..contact import Scene
from ..model import Model
from ..simulate import Plant, as_plant, fresh_state, hold_controls
from ._environment import Environment, State, memory_of, observe, stepped
from ._networks import Policy


def closed_loop(
    env: Environment,
    policy: Policy | Callable[..., Any],
    state: State,
    steps: int,
    plant: Plant | Scene | Model | None = None,
    carry: PyTree = None,
) -> tuple[Float[Array, "k nq"], Float[Array, "k nv"]]:
    """The states q and v of one robot after 0, 1, …, T control steps of a policy without noise.

    Args:
        env: the task that the policy was learned for.
        policy: the trained policy, or any function ``policy(observation) -> action``.
        state: the first state, of :meth:`Environment.begin` or :meth:`Environment.state`.
        steps: number of control steps T.
        plant: what the policy controls, for example ``tasks.pushed(task, impulse)`` of
            :mod:`rbd_jax.tasks`; the plant of the task if None. It takes the substeps of the task.
            Another plant begins with the memory of its ``start``.
        carry: what a policy with a memory of its own remembers at the start. It is then called as
            ``policy(carry, observation) -> (carry, action)``.
    """
    own = plant is None
    moves = (env.plant_of(state.robot) if own else as_plant(plant, name="closed_loop")).prepared()
    first = fresh_state(moves, state.q, state.v, env.dt)
    first = first._replace(memory=state.memory) if own else first
    act: Any = policy  # either kind of policy
    remembers, memory = carry is not None, jax.tree.map(jnp.asarray, carry)

    def step(carry, k):
        state, now, memory = carry
        seen = observe(env, state)
        memory, action = act(memory, seen) if remembers else (memory, act(seen))
        u = env.controls(state, action)
        now = hold_controls(moves, k * env.period, now, u, env.period, env.substeps)
        told = now._replace(memory=memory_of(env, state, now))
        state = stepped(env, state, action, u, told)
        return (state, now, memory), (now.q, now.v)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        times = jnp.arange(steps, dtype=state.q.dtype)
        _, (q, v) = jax.lax.scan(step, (state, first, memory), times)
    return jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
