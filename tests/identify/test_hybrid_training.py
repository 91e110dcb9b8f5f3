"""Training: rigid bodies with a learned residual beat rigid bodies alone and networks alone."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import arm_recordings
from support.helpers import assert_close, random_states

import rbd_jax as rbd
from rbd_jax import identify as idf, samples


@cache
def recording(joints):
    """The model, training data with measurement noise, and held-out data without noise."""
    model, friction = arm_recordings.arm(joints)
    _, train = arm_recordings.record(model, friction, 0, 12 if joints == 2 else 24, 200)
    clean, _ = arm_recordings.record(model, friction, 1, 4, 200)
    return model, train, clean


def acceleration_error(dynamics, data):
    """Root mean square error, for each joint relative to its own accelerations."""
    s = data.samples()
    a = jax.vmap(dynamics)(s.q, s.v, s.tau)
    return jnp.sqrt(jnp.mean(((a - s.a) / jnp.std(s.a, axis=0)[None]) ** 2))


def rollout_error(dynamics, data):
    """Root mean square error of q in simulated windows of 0.25 s (rad)."""
    one = jnp.ones(dynamics.model.nv)
    loss = idf.RolloutLoss(arm_recordings.DT, one, one, integrator="rk4")
    windows = eqx.tree_at(lambda d: d.t, data, None).windows(50)
    q, _ = jax.vmap(lambda w: loss.errors(dynamics, w))(windows)
    return jnp.sqrt(jnp.mean(q[:, -1] ** 2))


def unlearned(dynamics, part):
    """The rigid bodies alone, as learned dynamics whose learned torques are multiplied by zero."""
    where = lambda d: part(d).scaling.residual  # noqa: E731
    return eqx.tree_at(where, dynamics, jnp.zeros_like(where(dynamics)))


def errors(dynamics, data):
    return acceleration_error(dynamics, data), rollout_error(dynamics, data)


@pytest.mark.slow
@pytest.mark.parametrize("joints", [2, 7])
def test_the_residual_beats_network_and_rigid_bodies(joints):
    """Every member of an ensemble does so on held-out motions with Stribeck friction."""
    model, train, held_out = recording(joints)
    data = train.samples()
    keys = jax.random.split(jax.random.key(0), 2)

    @jax.jit
    def learn(data, keys):
        s = idf.scaling_of(model, data)
        rest = idf.residual_torques(model, data)

        def residual(key):
            start = idf.learned_dynamics(model, ("torque",), key, scaling=s)
            return idf.train(idf.ResidualLoss(s.residual), start, rest, key, steps=1500)[0]

        def network(key):
            start = idf.learned_dynamics(model, ("acceleration",), key, scaling=s, rigid=False)
            return idf.train(idf.AccelerationLoss(s.acceleration), start, data, key, steps=1500)[0]

        return eqx.filter_vmap(residual)(keys), eqx.filter_vmap(network)(keys)

    residual, network = learn(data, keys)
    f = jax.jit(jax.vmap(errors, in_axes=(0, None)))
    hybrid, black_box = f(residual, held_out), f(network, held_out)
    rigid = f(unlearned(residual, lambda d: d.torque), held_out)
    for k, what in enumerate(("accelerations", "rollouts")):
        print(f"{joints} joints, {what}: residual {np.asarray(hybrid[k])}, "
              f"network {np.asarray(black_box[k])}, rigid {float(rigid[k][0]):.4f}")  # fmt: skip
        assert hybrid[k].max() < 0.5 * black_box[k].min()
        assert hybrid[k].max() < 0.5 * rigid[k][0]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["torque", "friction"])
def test_training_through_rollouts(part):
    """The residual also wins if only states and torques are recorded."""
    model, train, held_out = recording(2)
    s = idf.scaling_of(model, train)
    sizes = (jnp.std(x, axis=(0, 1)) for x in (train.q, train.v))
    loss = idf.RolloutLoss(arm_recordings.DT, *sizes)
    windows, others = (
        eqx.tree_at(lambda d: (d.t, d.a), x, (None, None)).windows(n)
        for x, n in ((train, 8), (held_out, 50))
    )

    @jax.jit
    def error(dynamics):
        return jnp.sqrt(jnp.mean(jax.vmap(lambda w: loss(dynamics, w))(others)))

    @jax.jit
    def learn(start):
        return idf.train(loss, start, windows, jax.random.key(1), steps=400, batch=32)

    key = jax.random.key(0)
    start = idf.learned_dynamics(model, (part,), key, scaling=s)
    dynamics, values = learn(start)
    hybrid, rigid = error(dynamics), error(unlearned(start, lambda d: getattr(d, part)))
    print(f"rollouts: residual {part} {float(hybrid):.4f}, rigid {float(rigid):.4f}")
    assert jnp.mean(values[-10:]) < 0.2 * jnp.mean(values[:10])
    assert hybrid < 0.2 * rigid
    if part == "torque":
        alone = idf.learned_dynamics(model, ("acceleration",), key, scaling=s, rigid=False)
        network = error(learn(alone)[0])
        print(f"network {float(network):.4f}")
        assert hybrid < 0.5 * network


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["hamiltonian", pytest.param("lagrangian", marks=pytest.mark.slow)]
)
def test_baselines_learn_a_robot(name):
    """Samples of an undamped pendulum suffice, and the learned energy is the pendulum's."""
    model = samples.pendulum(mass=2.0, length=0.7)
    s = random_states(model, 200)
    tau = jax.jit(jax.vmap(lambda q, v, a: rbd.rnea(model, q, v, a)))(s.q, s.v, s.a)
    data = idf.Dataset(None, s.q, s.v, s.a, tau)
    scaling, key = idf.scaling_of(model, data, rigid=False), jax.random.key(0)
    if name == "hamiltonian":
        start = idf.Hamiltonian(model, key, scaling=scaling)
        start = unlearned(start, lambda d: d.friction)
    else:
        start = idf.learned_dynamics(
            model, ("potential", "mass"), key, scaling=scaling, rigid=False
        )

    @jax.jit
    def learn(start):
        loss = idf.AccelerationLoss(scaling.acceleration)
        dynamics, values = idf.train(loss, start, data, key, steps=500)

        def energies(q, v):
            truth = rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)
            return dynamics.energy(q, v) - truth, truth

        return values, jax.vmap(energies)(s.q, s.v)

    values, (wrong, truth) = learn(start)
    print(f"loss {float(values[0]):.2e} to {float(jnp.mean(values[-20:])):.2e}, "
          f"energy {float(jnp.std(wrong)):.3f} of {float(jnp.std(truth)):.3f} J")  # fmt: skip
    assert jnp.mean(values[-20:]) < 0.02 * values[0]
    assert jnp.std(wrong) < 0.1 * jnp.std(truth)  # up to a constant


def test_training_is_deterministic_and_leaves_the_robot_alone():
    model = samples.pendulum()
    s = random_states(model, 32)
    data = idf.Dataset(None, s.q, s.v, s.a, s.tau)
    start = idf.learned_dynamics(model, ("torque", "friction"), jax.random.key(0))

    @jax.jit
    def learn(key):
        return idf.train(idf.TorqueLoss(jnp.ones(1)), start, data, key, steps=20, batch=8)

    (one, values), (again, _), (other, _) = (learn(jax.random.key(k)) for k in (1, 1, 2))
    assert_close(again, one, atol=0)
    assert_close(one.model, model, atol=0)
    assert_close(one.torque.scaling, start.torque.scaling, atol=0)
    last = lambda d: d.torque.network.layers[-1].weight  # noqa: E731
    assert jnp.abs(last(one) - last(other)).max() > 0 and jnp.abs(last(one)).max() > 0
    assert values.shape == (20,) and jnp.all(jnp.isfinite(values))
