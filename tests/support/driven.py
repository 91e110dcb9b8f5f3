"""Two robots in fewer coordinates than joints, and their coordinates written out by hand."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.model import MimicSpec, with_mimics

from .helpers import central_difference


def _link(rng, name: str) -> rbd.LinkSpec:
    return rbd.LinkSpec(
        name, rng.uniform(0.5, 2), rng.normal(size=3) * 0.2, np.diag([0.1, 0.2, 0.15])
    )


def _joint(rng, name: str, kind: str, parent: str, child: str, mimic=None) -> rbd.JointSpec:
    p, axis = rng.normal(size=3) * 0.3, rng.normal(size=3)
    return rbd.JointSpec(
        name, kind, parent, child, p=p, axis=axis, mimic=mimic, damping=0.3, armature=0.05
    )  # fmt: skip


@cache
def hand() -> rbd.Model:
    """A floating hand: two fingers of which one follows the other, across branches and in a chain.

    ``b1`` follows ``a2``, which comes later in no other branch; ``c`` follows ``b1``.
    """
    rng = np.random.default_rng(0)
    link, joint = partial(_link, rng), partial(_joint, rng)
    joints = (
        joint("arm", "revolute", "base", "palm"),
        joint("c", "prismatic", "palm", "thumb", MimicSpec("b1", -0.5, 0.2)),
        joint("a1", "revolute", "palm", "a1"),
        joint("a2", "revolute", "a1", "a2"),
        joint("b1", "revolute", "palm", "b1", MimicSpec("a2", 1.5, 0.1)),
        joint("b2", "revolute", "b1", "b2"),
    )
    links = tuple(link(n) for n in ("base", "palm", "thumb", "a1", "a2", "b1", "b2"))
    spec = rbd.RobotSpec("hand", links, joints)
    return with_mimics(rbd.build_model(spec, floating_base=True))


class Cam(eqx.Module):
    """A joint whose axis moves as it turns: any placement, as a function of one coordinate."""

    shape: jax.Array

    def __call__(self, u):
        a, b, c = self.shape
        p = jnp.stack([a * jnp.cos(u[0]), b * jnp.sin(2 * u[0]), c * u[0] ** 2])
        quat = jnp.stack([jnp.cos(u[0]), jnp.sin(u[0]), 0.3 * u[0] ** 2, 0.1 * jnp.sin(u[0])])
        return jnp.concatenate([p, quat])


@cache
def knee() -> rbd.Model:
    """An arm, a joint with the motion subspace of ``Cam``, and a differential of two motors."""
    rng = np.random.default_rng(1)
    link, joint = partial(_link, rng), partial(_joint, rng)
    joints = (
        joint("arm", "revolute", "base", "upper"),
        joint("cam", "free", "upper", "lower"),
        joint("pitch", "revolute", "lower", "cross"),
        joint("roll", "revolute", "cross", "foot"),
        joint("toe", "revolute", "foot", "toe"),
    )
    links = tuple(link(n) for n in ("base", "upper", "lower", "cross", "foot", "toe"))
    model = rbd.build_model(rbd.RobotSpec("knee", links, joints))
    model = rbd.with_coordinates(model, Cam(jnp.array([0.1, 0.05, 0.02])), ["cam"], ["angle"])

    def differential(u):
        return jnp.stack([(u[0] + u[1]) / 2, jnp.sin(u[0] - u[1]) / 3])

    return rbd.with_coordinates(model, differential, ["pitch", "roll"], ["left", "right"])


MODELS = {"hand": hand, "knee": knee}


def explicit(m, q):
    """The configuration of all joints, and the matrix Φ by differences, from the laws alone."""
    robot = m.robot

    def expand(q):
        full = rbd.neutral(robot)
        for joint in m.space.joint_names:
            if joint in robot.joint_names:
                full = full.at[robot.q_slice(joint)].set(q[m.q_slice(joint)])
        if "arm" in robot.joint_names and "c" in robot.joint_names:
            b1 = 1.5 * q[m.q_slice("a2")] + 0.1
            full = full.at[robot.q_slice("b1")].set(b1)
            return full.at[robot.q_slice("c")].set(-0.5 * b1 + 0.2)
        angle, left, right = (q[m.q_slice(n)] for n in ("angle", "left", "right"))
        full = full.at[robot.q_slice("cam")].set(m.laws[0].function(angle))
        full = full.at[robot.q_slice("pitch")].set((left + right) / 2)
        return full.at[robot.q_slice("roll")].set(jnp.sin(left - right) / 3)

    at = expand(q)
    Phi = central_difference(
        lambda d: rbd.difference(robot, at, expand(rbd.integrate(m, q, d))), jnp.zeros(m.nv)
    )
    return at, Phi
