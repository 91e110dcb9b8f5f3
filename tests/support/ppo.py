"""A small PPO in the style of CleanRL, for environments that are stepped from outside.

Source: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), with generalized
advantage estimation. It knows only ``reset() -> seen`` and ``step(actions) -> (seen, reward, over,
last)`` of a batch of robots. There ``over`` is 1 where an episode failed and 2 where it was
truncated, and ``last`` is the observation before a new episode began.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

CLIP, DISCOUNT, LAMBDA, EPOCHS, MINIBATCHES = 0.2, 0.99, 0.95, 6, 4


class Learner(eqx.Module):
    """A policy with a normal distribution, and a value."""

    mean: eqx.nn.MLP
    log_std: jax.Array
    value: eqx.nn.MLP

    def __init__(self, seen, actions, key):
        a, b = jax.random.split(key)
        self.mean = eqx.nn.MLP(seen, actions, 32, 2, jnp.tanh, key=a)
        self.value = eqx.nn.MLP(seen, "scalar", 32, 2, jnp.tanh, key=b)
        self.log_std = jnp.full((actions,), -0.5)

    def likelihood(self, seen, action):
        z = (action - self.mean(seen)) / jnp.exp(self.log_std)
        return -jnp.sum(z**2 / 2 + self.log_std)


@eqx.filter_jit
def _act(learner, seen, key):
    mean = jax.vmap(learner.mean)(seen)
    action = mean + jnp.exp(learner.log_std) * jax.random.normal(key, mean.shape)
    return action, jax.vmap(learner.likelihood)(seen, action)


def _advantages(learner, rows):
    value = jax.vmap(jax.vmap(learner.value))
    now, after = value(rows["seen"]), value(rows["last"])
    gain = rows["reward"] + DISCOUNT * jnp.where(rows["over"] == 1, 0, after) - now

    def back(total, row):
        gain, over = row
        total = gain + DISCOUNT * LAMBDA * jnp.where(over > 0, 0, total)
        return total, total

    found = jax.lax.scan(back, jnp.zeros(now.shape[1]), (gain, rows["over"]), reverse=True)[1]
    return found, found + now


def _loss(learner, rows):
    new = jax.vmap(learner.likelihood)(rows["seen"], rows["action"])
    ratio, gain = jnp.exp(new - rows["likelihood"]), rows["gain"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    value = jax.vmap(learner.value)(rows["seen"])
    return jnp.mean((value - rows["target"]) ** 2) - jnp.mean(
        jnp.minimum(ratio * gain, clipped * gain)
    )


def train(reset, step, sizes, updates, horizon, rate=1e-3):
    """The mean reward of a step in each update, and the learner."""
    key = jax.random.key(0)
    learner = Learner(*sizes, key)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    memory = optimizer.init(eqx.filter(learner, eqx.is_array))

    @eqx.filter_jit
    def update(learner, memory, rows, key):
        gain, target = _advantages(learner, rows)
        flat = {k: x.reshape(-1, *x.shape[2:]) for k, x in rows.items()} | {
            "gain": gain.ravel(),
            "target": target.ravel(),
        }
        moving, fixed = eqx.partition(learner, eqx.is_array)
        count = gain.size // MINIBATCHES

        def minibatch(carry, places):
            moving, memory = carry
            some = {k: x[places] for k, x in flat.items()}
            slope = jax.grad(lambda m: _loss(eqx.combine(m, fixed), some))(moving)
            change, memory = optimizer.update(slope, memory)
            return (optax.apply_updates(moving, change), memory), None

        def epoch(carry, key):
            order = jax.random.permutation(key, gain.size)[: count * MINIBATCHES]
            return jax.lax.scan(minibatch, carry, order.reshape(MINIBATCHES, count))

        (moving, memory), _ = jax.lax.scan(epoch, (moving, memory), jax.random.split(key, EPOCHS))
        return eqx.combine(moving, fixed), memory

    seen, rewards = reset(), []
    for _ in range(updates):
        rows = []
        for _ in range(horizon):
            key, now = jax.random.split(key)
            action, likelihood = _act(learner, jnp.asarray(seen, jnp.float32), now)
            new, reward, over, last = step(np.asarray(action))
            rows.append(
                dict(seen=seen, action=action, likelihood=likelihood, reward=reward, over=over,
                     last=last)
            )  # fmt: skip
            seen = new
        stacked = {k: jnp.stack([jnp.asarray(r[k], jnp.float32) for r in rows]) for k in rows[0]}
        key, now = jax.random.split(key)
        learner, memory = update(learner, memory, stacked, now)
        rewards.append(float(stacked["reward"].mean()))
    return rewards, learner
