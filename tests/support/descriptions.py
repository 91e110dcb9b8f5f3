"""Descriptions of small robots, in pieces."""

import numpy as np

import rbd_jax as rbd
from rbd_jax import JointSpec, LinkSpec, RobotSpec

samples = rbd.samples
X, Y, Z = np.eye(3)


def link(name: str, seed: int) -> LinkSpec:
    """A link with a random physical inertia."""
    return samples._random_link(np.random.default_rng(seed), name)


def joint(name: str, kind: str, parent: str, child: str, seed: int | None = None, **more):
    """A joint with a random placement, or none without a seed."""
    if seed is not None:
        rng = np.random.default_rng(seed)
        more = {"R": samples._random_rotation(rng), "p": rng.normal(size=3)} | more
    return JointSpec(name, kind, parent, child, **more)


def robot(*joints: JointSpec, links=None, name="robot") -> RobotSpec:
    """A robot of these joints; links not given are made from their names."""
    names = dict.fromkeys(n for j in joints for n in (j.parent, j.child))
    return RobotSpec(name, tuple(links or (link(n, i) for i, n in enumerate(names))), joints)


def one_joint(kind: str, **more) -> RobotSpec:
    return robot(joint("j", kind, "base", "link", **more))


def merged() -> RobotSpec:
    """base –revolute→ a –fixed→ b –fixed→ c –revolute→ d, and base –fixed→ post."""
    return robot(
        joint("j0", "revolute", "base", "a", 1, axis=Y),
        joint("weld1", "fixed", "a", "b", 2),
        joint("weld2", "fixed", "b", "c", 3),
        joint("j1", "revolute", "c", "d", 4, axis=Z),
        joint("weld3", "fixed", "base", "post", 5),
    )
