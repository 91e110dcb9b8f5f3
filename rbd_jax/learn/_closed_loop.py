"""Rollouts of a policy in any plant, not only in the simulation in which it was trained."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._environment import Environment, State, observe
from ._networks import Policy


def closed_loop(
    env: Environment,
    policy: Policy,
    state: State,
    steps: int,
    plant: Callable[[Array, Array, Array, Array], tuple[Array, Array]],
) -> tuple[Float[Array, "k nq"], Float[Array, "k nv"]]:
    """The states q and v of one robot after 0, 1, …, T control steps of a policy without noise.

    Args:
        env: the task that the policy was learned for.
        policy: the trained policy.
        state: the first state, of :meth:`Environment.begin` or :meth:`Environment.state`.
        steps: number of control steps T.
        plant: from time (s), q, v and controls to q and v one control step later, for example
            ``tasks.pushed(task, impulse, substeps=env.substeps)`` of :mod:`rbd_jax.tasks`.
    """

    def step(state, k):
        action = policy(observe(env, state))
        u = env.controls(state, action)
        q, v = plant(k * env.period, state.q, state.v, u)
        new = {"q": q, "v": v, "controls": u, "action": action, "age": state.age + 1}
        return dataclasses.replace(state, **new), (q, v)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        times = jnp.arange(steps, dtype=state.q.dtype)
        _, (q, v) = jax.lax.scan(step, state, times)
    return jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
