"""The end of the demo: quadrupeds that are thrown into the air land on their feet."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd

from ... import tasks
from ...contact import pd_actuators, points, scene_on_ground
from .._robots import is_example

DT, STEPS = 0.005, 300
HEIGHT = 0.25
"""Initial height of the feet above the ground (m)."""
STIFFNESS, DAMPING = 300.0, 30.0
"""Stiffness and damping of the servos at the joints (N m/rad, N m s/rad)."""


class Landing(NamedTuple):
    """A robot above the ground, servos that hold its stance, and random initial velocities."""

    scene: rbd.contact.Scene
    q0: jax.Array
    targets: jax.Array
    v0: jax.Array
    """The initial velocities of the robots, (B, nv)."""


def prepare(count: int, dtype: str) -> Landing:
    """HyQ if it is installed, else the sample quadruped, thrown in ``count`` ways."""
    known = is_example("hyq")
    model = (
        rbd.load_urdf(rbd.example_robot("hyq"), floating_base=True, dtype=dtype)
        if known
        else rbd.samples.quadruped(dtype=dtype)
    )
    q0 = tasks.stand(model, tasks.FEET, tasks.STANCES["hyq" if known else "quadruped"])
    joints = model.joint_names[1:]
    scene = scene_on_ground(
        model,
        points(tasks.FEET, 0.02),
        actuators=pd_actuators(model, joints, STIFFNESS, DAMPING),
        dt=DT,
    )
    rng = np.random.default_rng(0)
    spread = np.zeros(model.nv)
    spread[:5] = 0.6, 0.6, 1.0, 0.4, 0.4  # rad/s, m/s
    v0 = jnp.asarray(rng.uniform(-1, 1, (count, model.nv)) * spread, model.dtype)
    targets = jnp.concatenate([q0[model.q_slice(n)] for n in joints])
    return Landing(scene, q0.at[2].add(HEIGHT), targets, v0)


def fall(landing: Landing) -> jax.Array:
    """The configurations of all robots, (B, T+1, nq)."""
    scene, q0 = landing.scene, landing.q0
    controls = jnp.broadcast_to(landing.targets, (STEPS, scene.nu))

    def one(v0):
        return rbd.rollout(scene, q0, v0, controls, DT).q

    return jax.vmap(one)(landing.v0)


def fallen(q: np.ndarray) -> float:
    """The share of robots that do not stand at the end: leaning, moving, or with a low trunk."""
    end = q[:, -1, :7]  # position, then quaternion (w, x, y, z)
    lean = 2 * np.arcsin(np.clip(np.hypot(end[:, 4], end[:, 5]), 0, 1))
    moving = np.abs(end - q[:, -10, :7]).max(1)
    height = end[:, 2] / (q[:, 0, 2] - HEIGHT)
    return float(np.mean((lean > 0.2) | (moving > 0.01) | (height < 0.7)))
