"""Short-horizon actor–critic: policies from the exact gradients of short simulations.

Source: Xu et al., "Accelerated Policy Learning with Parallel Differentiable Simulation" (2022).
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ._environment import Environment, State, observe
from ._horizon import Record, mixed_ages, remembered, rollout_return, value_targets
from ._networks import Perceptron, Policy, Symmetric, new_policy, new_value

try:
    import optax
except ImportError as error:
    raise ImportError("learning needs optax: pip install 'rbd-jax[learn]'") from error


class Settings(NamedTuple):
    """Hyperparameters of the learners."""

    robots: int = 64
    """Robots that are simulated at once."""
    horizon: int = 24
    """Control steps through which gradients go, in each update."""
    updates: int = 500
    discount: float = 0.99
    trace: float = 0.95
    """λ of the value function's targets."""
    rate: float = 2e-3
    """Learning rate of the policy, which falls to a tenth."""
    value_rate: float = 1e-3
    passes: int = 4
    """Epochs in which the value function is fitted to the data of a horizon."""
    minibatches: int = 4
    clip: float = 1.0
    """Greatest norm of the gradient; longer gradients are clipped."""
    state_clip: float = math.inf
    """Greatest norm of the gradient of a robot's return by its state, at each control step; longer
    ones are shortened. Robots with stiff contact need it, for example 30: in the mean over the
    batch, a gradient that explodes would drown all others."""
    lag: float = 0.5
    """The part of the old target value function that is kept in each update."""
    average: float = 0.0
    """The part of the old mean that is kept in the running mean of the policies, which is the
    result of the learner. With 0.99 the mean covers about 100 updates, and with 0 only the last."""
    std: float = 0.2
    """Standard deviation of the policy's noise at the beginning."""
    hidden: tuple[int, ...] = (128, 64)
    critic: bool = True
    """Whether the horizon ends in a value function. Otherwise each update simulates episodes from
    their beginning: plain back-propagation through time."""


class Learner(eqx.Module):
    """The complete state of a learner, from which training can be resumed."""

    policy: Policy
    value: Perceptron | Symmetric
    target: Perceptron | Symmetric
    """The target value function, a running mean of the value functions. It ends the horizons."""
    policy_memory: Any
    value_memory: Any
    states: State
    key: Key[Array, ""]
    done: Int[Array, ""]
    """Number of updates so far."""
    mean: Policy
    """Running mean of the weights of the policies, see :attr:`Settings.average`."""
    best: Policy
    """The policy or mean with the highest score so far."""
    score: Float[Array, ""]
    """The score of ``best``; minus infinity if no policy was judged yet."""

    @property
    def chosen(self) -> Policy:
        """The best policy if policies were judged, and the last mean otherwise."""
        return self.best if bool(self.score > -jnp.inf) else self.mean


class Progress(NamedTuple):
    """Metrics of one update."""

    reward: Float[Array, ""]
    """Mean reward of a control step."""
    failures: Float[Array, ""]
    """Mean number of failures in a control step."""
    age: Float[Array, ""]
    """Mean length of the episodes that ended (control steps); zero if none did."""
    value_error: Float[Array, ""]
    """Mean squared error of the value function, in rewards of one step."""
    gradient: Float[Array, ""]
    """Norm of the policy's gradient, before it is clipped."""


def optimizers(settings: Settings) -> tuple[Any, Any]:
    """Adam for the policy and for the value function."""
    falls = optax.linear_schedule(settings.rate, 0.1 * settings.rate, settings.updates)
    value_falls = optax.linear_schedule(
        settings.value_rate,
        0.1 * settings.value_rate,
        settings.updates * settings.passes * settings.minibatches,
    )
    policy = optax.chain(
        optax.clip_by_global_norm(settings.clip), optax.adam(falls, b1=0.7, b2=0.95)
    )
    value = optax.chain(
        optax.clip_by_global_norm(settings.clip), optax.adam(value_falls, b1=0.7, b2=0.95)
    )
    return policy, value


def start(env: Environment, settings: Settings, key: Key[Array, ""]) -> Learner:
    """The learner before its first update."""
    begin, ages, actor, critic, rest = jax.random.split(key, 5)
    states = jax.vmap(env.begin)(jax.random.split(begin, settings.robots))
    states = mixed_ages(states, env.episode, ages) if settings.critic else states
    one = jax.tree.map(lambda x: x[0], states)
    (n,) = eqx.filter_eval_shape(observe, env, one).shape
    dtype = states.q.dtype
    policy = new_policy(n, env.actions, settings.hidden, actor, dtype, settings.std, env.mirror)
    value = new_value(n, settings.hidden, critic, dtype, env.mirror)
    for_policy, for_value = optimizers(settings)
    zero = jnp.zeros((), jnp.int32)
    return Learner(
        policy, value, value, for_policy.init(moving(policy)), for_value.init(arrays(value)),
        states, rest, zero, policy, policy, jnp.asarray(-jnp.inf, dtype),
    )  # fmt: skip


def arrays(tree):
    """The float arrays of a network."""
    return eqx.filter(tree, eqx.is_inexact_array)


def blend(old, new, keep):
    """The mean of the float arrays of two networks, with the weight ``keep`` of the old one."""
    mean = jax.tree.map(lambda a, b: keep * a + (1 - keep) * b, *map(arrays, (old, new)))
    return eqx.combine(mean, new)


def averaged(settings: Settings, learner: Learner, policy: Policy) -> Policy:
    """The running mean of the policies after one more.

    Source: Polyak, Juditsky (1992), averaging of iterates, here with exponential weights. The first
    updates have a shorter memory, so that the mean forgets the policy of the beginning.
    """
    k = learner.done.astype(policy.log_std.dtype)
    keep = jnp.minimum(jnp.asarray(settings.average, k.dtype), (1 + k) / (10 + k))
    return blend(learner.mean, policy, keep)


def moving(policy: Policy):
    """The float arrays that the gradient of a policy moves: not its normalizer."""
    return arrays((policy.network, policy.log_std))


@eqx.filter_jit
def update(env: Environment, settings: Settings, learner: Learner) -> tuple[Learner, Progress]:
    """One update of the policy, then of the value function."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return _update(env, settings, learner)


def _update(env: Environment, settings: Settings, learner: Learner) -> tuple[Learner, Progress]:
    noise_key, batch_key, begin_key, key = jax.random.split(learner.key, 4)
    for_policy, for_value = optimizers(settings)
    policy, states = learner.policy, learner.states
    if not settings.critic:
        states = jax.vmap(env.begin)(jax.random.split(begin_key, settings.robots))

    def future(x):
        value = learner.target(x)[0] / (1 - settings.discount)
        return value if settings.critic else jnp.zeros_like(value)

    def loss(parts):
        new = eqx.tree_at(lambda p: (p.network, p.log_std), policy, parts)
        found = rollout_return(
            env, new, future, states, noise_key, settings.horizon, settings.discount,
            settings.state_clip,
        )  # fmt: skip
        return -found[0], found[1:]

    parts = policy.network, policy.log_std
    (_, (states, record)), slope = eqx.filter_value_and_grad(loss, has_aux=True)(parts)
    size = optax.tree.norm(slope)
    finite = jnp.isfinite(size)
    slope = jax.tree.map(lambda g: jnp.where(finite, g, 0), slope)
    change, memory = for_policy.update(slope, learner.policy_memory)
    network, log_std = eqx.apply_updates(parts, change)
    normalizer = remembered(policy.normalizer, record, env.mirror)
    policy = Policy(normalizer, network, log_std)
    value, value_memory, error = learner.value, learner.value_memory, jnp.zeros_like(size)
    if settings.critic:
        value, value_memory, error = _fit(
            settings, for_value, value, value_memory, policy, record, batch_key
        )
    target = blend(learner.target, value, settings.lag)
    now = Learner(
        policy, value, target, memory, value_memory, states, key, learner.done + 1,
        averaged(settings, learner, policy), learner.best, learner.score,
    )  # fmt: skip
    ended = record.ended.sum()
    length = jnp.where(ended > 0, jnp.sum(record.ended * record.age) / jnp.maximum(ended, 1), 0)
    return now, Progress(record.reward.mean(), record.failed.mean(), length, error, size)


def _fit(settings: Settings, optimizer, value, memory, policy: Policy, record: Record, key):
    """The value function after some passes over the data of a horizon."""
    goal = value_targets(record, settings.discount, settings.trace).reshape(-1)
    goal = goal * (1 - settings.discount)  # the network tells the value in rewards of one step
    x = record.observation.reshape(goal.shape[0], -1)
    x = policy.normalizer(x)
    rows = goal.shape[0] // settings.minibatches
    static = eqx.filter(value, eqx.is_inexact_array, inverse=True)

    def error(value, x, goal):
        net = eqx.combine(value, static)
        return jnp.mean((jax.vmap(net)(x)[:, 0] - goal) ** 2)

    def step(carry, index):
        value, memory = carry
        loss, slope = jax.value_and_grad(error)(value, x[index], goal[index])
        change, memory = optimizer.update(slope, memory)
        return (eqx.apply_updates(value, change), memory), loss

    keys = jax.random.split(key, settings.passes)
    order = jax.vmap(lambda k: jax.random.permutation(k, goal.shape[0]))(keys)
    order = order[:, : rows * settings.minibatches].reshape(-1, rows)
    (value, memory), losses = jax.lax.scan(step, (arrays(value), memory), order)
    return eqx.combine(value, static), memory, losses.mean()
