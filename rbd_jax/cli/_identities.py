"""The identities of rigid-body dynamics, evaluated at random states of a robot."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import rbd_jax as rbd

from ..algorithms.torques import damping_torque
from ..model import Model
from ._show import Check

forward_dynamics = rbd.forward_dynamics
inverse_dynamics = rbd.inverse_dynamics
EPS = float(np.finfo(np.float64).eps)


class State(NamedTuple):
    """A state at which identities are evaluated; ``tau`` is the torque of the motion (q, v, a)."""

    q: Array
    v: Array
    a: Array
    tau: Array


@eqx.filter_jit
def random_states(model: Model, n: int, seed: int) -> State:
    """``n`` random states: configurations within the limits, v and a normally distributed."""

    def one(key):
        kq, kv, ka = jax.random.split(key, 3)
        q = rbd.random_configuration(model, kq)
        v, a = (jax.random.normal(k, (model.nv,), model.dtype) for k in (kv, ka))
        return State(q, v, a, inverse_dynamics(model, q, v, a))

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), n))


def error(actual, expected, scale=None) -> float:
    """Greatest relative difference of all rows.

    In each row, the greatest difference is divided by the greatest expected number, or by the
    greatest entry of ``scale``. The result is NaN if any difference is NaN.
    """
    x, y = (np.asarray(z, dtype=np.float64) for z in (actual, expected))
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    size = np.abs(y if scale is None else np.asarray(scale).reshape(len(y), -1)).max(1)
    return float((np.abs(x - y).max(1) / np.maximum(size, 1e-30)).max()) if x.size else 0.0


def identities(model: Model, n: int, seed: int) -> list[Check]:
    """Check all identities at ``n`` random states."""
    state = random_states(model, n, seed)
    checks, condition = _mass_matrix(model, state)
    return [*checks, *_dynamics(model, state, condition), *_energy(model, state), gradient(model)]


def _mass_matrix(model: Model, state: State) -> tuple[list[Check], float]:
    M = np.asarray(eqx.filter_jit(jax.vmap(rbd.crba, (None, 0)))(model, state.q))
    d = np.sqrt(np.maximum(np.diagonal(M, axis1=1, axis2=2), 1e-300))
    scaled = M / (d[:, :, None] * d[:, None, :])
    lowest = float(np.linalg.eigvalsh(scaled).min())
    condition, after = (float(np.linalg.cond(x).max()) for x in (M, scaled))
    return [
        Check("M = Mᵀ", error(M, M.swapaxes(1, 2)), 1e-12),
        Check("M is positive definite", -lowest, 0.0, f"lowest eigenvalue, scaled: {lowest:.2g}"),
        Check("condition number of M", condition, None),
        Check("condition number of M with its diagonal scaled to 1", after, None),
    ], after


def _dynamics(model: Model, state: State, condition: float) -> list[Check]:
    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    def evaluate(model, s):
        a = forward_dynamics(model, s.q, s.v, s.tau)
        tau = inverse_dynamics(model, s.q, s.v, a)
        h = rbd.bias_torque(model, s.q, s.v)
        Ma = jnp.matmul(rbd.crba(model, s.q), s.a, precision="highest")
        return a, tau, h, Ma + h

    a, tau, h, sum_ = evaluate(model, state)
    size = np.maximum(np.abs(state.tau), np.abs(h))
    limit = max(1e-10, 100 * EPS * condition)
    return [
        Check("M a + h = ID(a)", error(sum_, state.tau, size), 1e-10),
        Check("ID(FD(τ)) = τ", error(tau, state.tau, size), 1e-10),
        Check("FD(ID(a)) = a", error(a, state.a), limit, "limit grows with the condition number"),
    ]


def _energy(model: Model, state: State) -> list[Check]:
    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    def evaluate(model, s):
        Mv = jnp.matmul(rbd.crba(model, s.q), s.v, precision="highest")
        T = rbd.kinetic_energy(model, s.q, s.v)
        potential = lambda d: rbd.potential_energy(model, rbd.integrate(model, s.q, d))  # noqa: E731
        gradient = jax.grad(potential)(jnp.zeros_like(s.v))
        energy = lambda q, v: rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)  # noqa: E731
        rates = rbd.rate_from_velocity(model, s.q, s.v), s.a
        power = jax.jvp(energy, (s.q, s.v), rates)[1]
        terms = s.tau * s.v, -damping_torque(model, s.q, s.v) * s.v
        return 0.5 * jnp.sum(s.v * Mv), T, gradient, rbd.gravity_torque(model, s.q), power, terms

    half, T, gradient, g, power, terms = evaluate(model, state)
    weight = np.abs(g).max(1) + float(rbd.total_mass(model)) * 1e-3
    expected_power = sum(np.sum(x, axis=1) for x in terms)
    size = sum(np.sum(np.abs(x), axis=1) for x in terms)
    return [
        Check("½ vᵀ M v = kinetic energy", error(half, T), 1e-11),
        Check("gravity torque = ∂V/∂q", error(g, gradient, weight), 1e-11),
        Check("Ė = τᵀv − damping", error(power, expected_power, size), 1e-10, "power balance"),
    ]


def gradient(model: Model, seed: int = 1, h: float = 1e-4) -> Check:
    """Compare reverse mode through forward dynamics with a difference of fourth order."""
    s = jax.tree.map(lambda x: x[0], random_states(model, 1, seed))

    def f(x):
        dq, v, tau, mass = x
        changed = eqx.tree_at(lambda m: m.inertia, model, model.inertia * jnp.exp(mass)[:, None])
        a = forward_dynamics(changed, rbd.integrate(model, s.q, dq), v, tau)
        return jnp.sum(a * weights)

    weights = jnp.asarray(np.random.default_rng(seed).normal(size=model.nv))
    at = jnp.zeros_like(s.v), s.v, s.tau, jnp.zeros((model.nb,), model.dtype)
    rng = np.random.default_rng(seed + 1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), at)
    along = (*along[:2], along[2] * s.tau, along[3])
    exact = eqx.filter_jit(jax.grad(f))(at)
    exact = sum(float(jnp.sum(g * d)) for g, d in zip(exact, along, strict=True))
    difference = central(eqx.filter_jit(jax.vmap(f)), at, along, h)
    value = abs(exact - difference) / max(abs(difference), 1e-12)
    return Check("∂FD/∂(q, v, τ, masses)", value, 1e-6, "reverse mode against central differences")


def central(batched, at, along, h: float) -> float:
    """Derivative of a batched scalar function in a direction, by a difference of fourth order."""
    steps = h * np.array([1.0, -1.0, 2.0, -2.0])
    rows = jax.tree.map(lambda x, d: jnp.stack([x + e * d for e in steps]), at, along)
    return float(np.asarray(batched(rows)) @ np.array([8.0, -8.0, -1.0, 1.0]) / (12 * h))
