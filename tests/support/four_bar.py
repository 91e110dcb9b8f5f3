"""A four-bar that is closed by a point, and its closed form."""

from functools import cache

import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import constraints

LENGTHS = (0.4, 1.0, 0.8, 1.2)  # crank, coupler, rocker, ground (m)


@cache
def four_bar():
    """Crank and coupler in a chain, the rocker hinged to the ground, closed by a point."""
    link = lambda name, l: rbd.LinkSpec(  # noqa: E731
        name, 1.0, np.array([l / 2, 0, 0]), np.diag([1e-3, l**2 / 12, l**2 / 12])
    )
    crank, coupler, rocker, ground = LENGTHS
    links = (rbd.LinkSpec("world_link"), link("crank", crank), link("coupler", coupler),
             link("rocker", rocker))  # fmt: skip
    axis = np.array([0.0, 0.0, 1.0])
    at = lambda x: np.array([x, 0.0, 0.0])  # noqa: E731
    joints = (
        rbd.JointSpec("a", "revolute", "world_link", "crank", axis=axis),
        rbd.JointSpec("b", "revolute", "crank", "coupler", p=at(crank), axis=axis),
        rbd.JointSpec("c", "revolute", "world_link", "rocker", p=at(ground), axis=axis),
    )
    spec = rbd.RobotSpec("four_bar", links, joints)
    model = rbd.build_model(spec, gravity=(0.0, -9.81, 0.0))
    c = constraints.point(
        model, "coupler", "rocker", offset=[coupler, 0, 0], at=[rocker, 0, 0], name="loop"
    )
    return model, c


def closed_form(angle):
    """Angles of coupler (to the crank) and rocker of the open four-bar, by the cosine theorem."""
    crank, coupler, rocker, ground = LENGTHS
    x, y = crank * jnp.cos(angle), crank * jnp.sin(angle)
    d2 = (ground - x) ** 2 + y**2
    d = jnp.sqrt(d2)
    toward = jnp.arctan2(-y, ground - x)
    inner = jnp.arccos((coupler**2 + d2 - rocker**2) / (2 * coupler * d))
    absolute = toward + inner
    tip = x + coupler * jnp.cos(absolute), y + coupler * jnp.sin(absolute)
    return jnp.stack([angle, absolute - angle, jnp.arctan2(tip[1], tip[0] - ground)])
