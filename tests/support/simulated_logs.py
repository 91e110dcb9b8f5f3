"""Logs of robots as encoders and current sensors write them: steps, noise, a delay and friction."""

import equinox as eqx
import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax import identify

from .recorded import THREE

DT = 0.005
LATE = 0.0031  # by which the torques are late (s)
TERMS = ("inertia", "damping", "friction")


def robot(name: str):
    """Two links, three joints of which one slides, or an arm of seven joints, all with friction."""
    if name == "two":
        m = rbd.samples.double_pendulum()
        m = eqx.tree_at(lambda m: m.inertia, m, identify.made_consistent(m).inertia)
    else:
        m = rbd.load_urdf(THREE) if name == "three" else rbd.samples.arm()
    friction, damping = jnp.linspace(6.0, 1.0, m.nv), jnp.linspace(1.0, 0.3, m.nv)
    return eqx.tree_at(lambda m: (m.friction, m.damping), m, (friction, damping))


def unknown(m):
    return identify.Parameters(m, *(identify.select(m, term) for term in TERMS))


def log(m, motion, key, T: int = 2000, counts: int = 2**16, noise: float = 0.02):
    """Positions and torques of a random motion.

    Positions are rounded to ``counts`` a turn. The torques are late, have noise of a part of their
    root mean square, and are rounded too. Dry friction jumps where the velocity changes its sign.
    """
    one, two = jax.random.split(key)
    drawn = motion.reach[None, None] / 5**0.5 * jax.random.normal(one, motion.coefficients.shape)
    motion = eqx.tree_at(lambda e: e.coefficients, motion, drawn)
    t = DT * jnp.arange(float(T))
    at = jax.vmap(lambda t: motion.at(m, t))
    q, (q_late, v, a) = at(t)[0], at(t - LATE)
    tau = jax.vmap(rbd.inverse_dynamics, (None, 0, 0, 0))(m, q_late, v, a)
    tau = tau + m.friction[None] * jnp.sign(v)
    size = jnp.sqrt(jnp.mean(tau**2, axis=0))[None]
    tau = tau + noise * size * jax.random.normal(two, tau.shape)
    step, count = 1e-3 * size, 2 * jnp.pi / counts
    return identify.Dataset(t, count * jnp.round(q / count), tau=step * jnp.round(tau / step))
