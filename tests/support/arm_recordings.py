"""Motions of arms recorded in MuJoCo, with joint friction that our models do not have."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.identify import Dataset

DT, SUBSTEPS = 0.005, 5


def mujoco_model(model: rbd.Model):
    """A tree of revolute joints as a compiled ``mujoco.MjModel``, body by body."""
    mujoco = pytest.importorskip("mujoco")
    spec = mujoco.MjSpec()
    spec.option.timestep = DT / SUBSTEPS
    spec.option.gravity = np.asarray(model.gravity)
    bodies = {-1: spec.worldbody}
    m = jax.tree.map(np.asarray, model)
    for i, parent in enumerate(model.topology.parents):
        mass, mc = m.inertia[i, 0], m.inertia[i, 1:4]
        c = mc / mass
        xx, xy, yy, xz, yz, zz = m.inertia[i, 4:]
        about_c = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        about_c = about_c - mass * (c @ c * np.eye(3) - np.outer(c, c))
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, m.placement_R[i].reshape(-1).astype(float))
        bodies[i] = bodies[parent].add_body(
            name=f"body{i}",
            pos=m.placement_p[i],
            quat=quat,
            mass=mass,
            ipos=c,
            fullinertia=about_c[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]],
            explicitinertial=True,
        )
        bodies[i].add_joint(
            name=model.joint_names[i],
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=m.axis[i],
            damping=m.damping[i],
            armature=m.armature[i],
        )
    return spec.compile()


class Friction(NamedTuple):
    """Coulomb, Stribeck and viscous friction, one number for each joint (N m, N m s/rad)."""

    coulomb: np.ndarray
    breakaway: np.ndarray
    viscous: np.ndarray

    def __call__(self, v):
        """The torque on the joints."""
        dry = self.coulomb + (self.breakaway - self.coulomb) * np.exp(-((v / 0.2) ** 2))
        return -dry * np.tanh(v / 0.05) - self.viscous * v


def record(model: rbd.Model, friction: Friction, seed: int, trajectories: int, steps: int):
    """Trajectories (B, T) under a controller that follows random sines. Torques are held for DT.

    Returns:
        The data without noise, and the data with the noise of sensors.
    """
    mujoco = pytest.importorskip("mujoco")
    rng = np.random.default_rng(seed)
    mj = mujoco_model(model)
    data, nv = mujoco.MjData(mj), model.nv
    mujoco.mj_forward(mj, data)
    M = np.zeros((nv, nv))
    mujoco.mj_fullM(mj, data, M)
    rows = []
    for _ in range(trajectories):
        amplitude = rng.uniform(0.2, 0.7, (3, nv))
        rate = rng.uniform(1.0, 5.0, (3, nv))
        phase = rng.uniform(0, 2 * np.pi, (3, nv))
        center = rng.uniform(-1, 1, nv)
        mujoco.mj_resetData(mj, data)
        for k in range(steps):
            s = rate * k * DT + phase
            want = center + np.sum(amplitude * np.sin(s), axis=0)
            speed = np.sum(amplitude * rate * np.cos(s), axis=0)
            if k == 0:
                data.qpos[:], data.qvel[:] = want, speed
            mujoco.mj_forward(mj, data)
            tau = M.diagonal() * (200 * (want - data.qpos) + 25 * (speed - data.qvel))
            tau = tau + data.qfrc_bias
            for j in range(SUBSTEPS):  # Friction follows the velocity within a step.
                data.qfrc_applied[:] = tau + friction(data.qvel)
                if j == 0:
                    mujoco.mj_forward(mj, data)
                    rows.append([data.qpos.copy(), data.qvel.copy(), data.qacc.copy(), tau])
                mujoco.mj_step(mj, data)
    q, v, a, tau = (np.stack(x).reshape(trajectories, steps, nv) for x in zip(*rows, strict=True))
    t = np.tile(DT * np.arange(steps), (trajectories, 1))
    noisy = [
        x + part * np.std(x, axis=(0, 1)) * rng.normal(size=x.shape)
        for x, part in ((q, 1e-3), (v, 5e-3), (a, 3e-2), (tau, 5e-3))
    ]
    clean, measured = (
        Dataset(*(jnp.asarray(x, model.dtype) for x in (t, *xs))) for xs in ((q, v, a, tau), noisy)
    )
    return clean, measured


@cache
def arm(joints: int) -> tuple[rbd.Model, Friction]:
    """A robot of 2 or 7 joints, and the friction in its gears."""
    model = rbd.samples.chain(2) if joints == 2 else rbd.samples.arm()
    size = np.array([0.6, 0.3] if joints == 2 else [4.0, 4.0, 2.5, 2.5, 0.8, 0.6, 0.4])
    return model, Friction(size, 1.5 * size, 0.4 * size)
