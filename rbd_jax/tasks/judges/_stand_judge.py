"""A score of policies that stand up, for choosing among those of a training."""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.energy import total_mass
from ...learn import Policy, closed_loop
from ..environments._stander import Stander
from ..problems._scene import lying, pushed
from ..problems._task import Task


def stand_judge(
    stander: Stander,
    task: Task,
    *,
    starts: int = 64,
    seed: int = 11,
    speeds: Sequence[float] = (1.3, 1.7, 2.1),
    seconds: float = 2.4,
    finer: Sequence[int] = (1, 2),
) -> Callable[[Policy], float]:
    """A score for :func:`shac` to judge policies of a :class:`Stander`: the share that stands.

    Robots start in random states on the ground, and in the standing posture with pushes from all
    directions. Without noise they act for some time, both in steps of the training and in shorter
    ones, so that a policy that relies on the length of the steps has a lower score. A robot counts
    that then stands (:meth:`Stander.stands`) and, if it was pushed, has not sunk to half its
    height.

    Args:
        stander: the task. task: what it was made of, see :func:`stander`.
        starts: number of states on the ground, and of directions for each speed.
        seed: of the states on the ground. Take another one than for the training, and another one
            than for the final judgment.
        speeds: impulses of the pushes over the mass of the robot (m/s).
        seconds: how long the robots act.
        finer: simulation steps for one of the training, in turn.
    """
    dtype, steps = stander.start.dtype, round(seconds / float(stander.period))
    keys = jax.random.split(jax.random.key(seed), starts)
    q, v = jax.jit(jax.vmap(lying, (None, 0)))(task, keys)
    angle = 2 * np.pi * (0.25 + np.arange(starts)) / starts  # none is the mirror image of another
    way = float(total_mass(task.problem.model)) * np.stack(
        [np.cos(angle), np.sin(angle), 0 * angle], axis=1
    )
    impulse = jnp.asarray(np.concatenate([speed * way for speed in speeds]), dtype)
    stance = jnp.tile(stander.start, (len(impulse), 1))
    q, v = jnp.concatenate([q, stance]), jnp.concatenate([v, 0 * stance[:, 1:]])
    impulse = jnp.concatenate([jnp.zeros((starts, 3), dtype), impulse])
    lies = jnp.arange(len(q)) < starts

    @eqx.filter_jit
    def share(policy):
        def one(finer, q, v, impulse, lies):
            plant = pushed(task, impulse, finer=finer)
            state = stander.state(q, v, q[7:])
            qs, vs = closed_loop(stander, policy, state, steps, plant)
            low = jnp.min(qs[:, 2]) <= 0.5 * stander.start[2]
            return stander.stands(qs[-1], vs[-1]) & (lies | ~low)

        stood = [jax.vmap(partial(one, f))(q, v, impulse, lies) for f in finer]
        return jnp.mean(jnp.stack(stood).astype(dtype))

    return lambda policy: float(share(policy))
