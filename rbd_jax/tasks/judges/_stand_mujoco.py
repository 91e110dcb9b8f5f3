"""A learned stander in MuJoCo itself: the same robot and control law, in NumPy, without JAX."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...io.mjcf import compile_mjcf
from ...learn import Policy, in_numpy
from ..environments._stander import Stander


class Stand(NamedTuple):
    """What one robot did in MuJoCo; T control steps."""

    t: Float[np.ndarray, " T+1"]
    q: Float[np.ndarray, "T+1 nq"]
    """In the layout of this library, as v."""
    v: Float[np.ndarray, "T+1 nv"]
    stood: bool
    """Whether the last state is near the standing one (:meth:`Stander.stands`), and the trunk of a
    robot that stood at first has not sunk to half its height."""


def stand_in_mujoco(
    stander: Stander,
    policy: Policy,
    mjcf: Any,
    q: Float[Array, " nq"] | Float[np.ndarray, " nq"],
    v: Float[Array, " nv"] | Float[np.ndarray, " nv"],
    seconds: float = 2.4,
    *,
    impulse: Sequence[float] | Float[np.ndarray, "3"] | Float[Array, "3"] = (0.0, 0.0, 0.0),
    at: float = 0.2,
    lasting: float = 0.12,
) -> Stand:
    """Let a learned stander act in MuJoCo from a state, for example of ``tasks.lying``.

    Nothing of the simulation here is used: MuJoCo steps the file, and observations and policy are
    computed in NumPy.

    Args:
        stander: the task, for its numbers.
        policy: what was learned.
        mjcf: path or string of the MJCF (:func:`stander_mjcf`), or a ``mujoco.MjModel``. Its joints
            have the order of the robot's.
        q: first configuration. v: first velocity, in the layout of this library.
        seconds: how long it acts.
        impulse: of a force on the trunk in world axes (N s), constant while it acts.
        at: when it begins (s). lasting: how long it acts (s).

    Raises:
        ValueError: if the joints of the MJCF are others.
    """
    mujoco = import_module("mujoco")

    m = mjcf if isinstance(mjcf, mujoco.MjModel) else compile_mjcf(mjcf)
    model, d = stander.scene.model, mujoco.MjData(m)
    joints = tuple(m.joint(k).name for k in range(m.njnt))
    if joints[1:] != model.joint_names[1:]:
        raise ValueError(
            f"stand_in_mujoco: the joints of the MJCF are {', '.join(joints)}, those of the robot "
            f"{', '.join(model.joint_names)}"
        )
    start = np.asarray(stander.start, float)
    act, (up, down) = in_numpy(policy), (np.asarray(x, float) for x in stander.reaches)
    force = np.asarray(impulse, float) / lasting
    dt = stander.substeps * float(stander.scene.dt)
    inner = round(dt / m.opt.timestep)
    d.qpos[:], (spin, speed) = np.asarray(q, float), np.asarray(v, float)[:6].reshape(2, 3)
    d.qvel[:] = [*_rotation(mujoco, d.qpos) @ speed, *spin, *np.asarray(v, float)[6:]]
    action, rows = np.zeros(len(up)), []
    for k in range(round(seconds / dt) + 1):
        R = _rotation(mujoco, d.qpos)
        speed, spin, bent = R.T @ d.qvel[:3], d.qvel[3:6], d.qpos[7:] - start[7:]
        rows.append((d.qpos.copy(), np.concatenate([spin, speed, d.qvel[6:]])))
        action = act(np.concatenate([R[2], d.qpos[2:3], speed, spin, bent, d.qvel[6:], action]))
        d.ctrl[:] = start[7:] + np.where(action > 0, up, down) * action
        for i in range(inner):
            middle = k * dt + (i + 0.5) * m.opt.timestep
            d.qfrc_applied[:3] = force if at < middle < at + lasting else 0
            mujoco.mj_step(m, d)
    qs, vs = (np.array(x) for x in zip(*rows, strict=True))
    first, last = (stander.stands(*(jnp.asarray(x[k], model.dtype) for x in (qs, vs)))
                   for k in (0, -1))  # fmt: skip
    sunk = bool(first) and qs[:, 2].min() < 0.5 * start[2]
    return Stand(dt * np.arange(len(rows)), qs, vs, bool(last) and not sunk)


def _rotation(mujoco: Any, qpos: np.ndarray) -> Float[np.ndarray, "3 3"]:
    """The orientation of the trunk."""
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, qpos[3:7])
    return R.reshape(3, 3)
