"""Robots for the integrators of the configuration."""

from functools import cache

import rbd_jax as rbd
from rbd_jax import samples
from support.helpers import Compiled

run = Compiled(rbd)
ORDERS = {"semi_implicit_euler": 1, "rk4": 4}
METHODS = {"semi_implicit_euler": rbd.simulate.semi_implicit_euler, "rk4": rbd.simulate.rk4}


@cache
def small() -> rbd.Model:
    return samples.random_tree(4, kinds=("spherical", "revolute", "free"))
