"""A robot with three joints, its torques as recorded, and all its linear parameters."""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.identify import select

from .helpers import random_states
from .recorded import THREE, dataset, noisy, pinocchio_torques

SIGMA = np.array([0.05, 0.03, 0.1])


@cache
def robot():
    m = rbd.load_urdf(THREE)
    return eqx.tree_at(lambda m: m.armature, m, jnp.array([0.05, 0.04, 0.3]))


@cache
def states(n: int, seed: int = 0):
    return random_states(robot(), n, seed)


@cache
def recorded(n: int = 200):
    """Torques of Pinocchio with added dry friction and noise."""
    m, s = robot(), states(n)
    clean = pinocchio_torques(m, THREE, s.q, s.v, s.a)
    clean = clean + np.asarray(m.friction) * np.tanh(np.asarray(s.v) / 0.01)
    return clean, dataset(s.q, s.v, s.a, noisy(clean, SIGMA))


def all_linear(m):
    return identify.Parameters(m, *(select(m, t) for t in identify.TERMS))
