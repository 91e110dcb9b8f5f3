"""Robots of one kind of joint, and their placements."""

from functools import partial

import jax
import numpy as np
import pytest

from rbd_jax.model import ELEMENTARY

EPS = np.finfo(float).eps


# composites are chains of the others and occur in the random tree of all kinds
NAMES = (*(f"only_{kind}" for kind in ELEMENTARY), "random_tree")
ROBOTS = pytest.mark.parametrize("name", NAMES)


@partial(jax.jit, static_argnums=0)
def over(f, model, *args):
    """``f(model, ·)`` mapped over the leading axis of the other arguments."""
    return jax.vmap(partial(f, model))(*args)
