"""A learned walker in MuJoCo itself: the same file and control law, in NumPy, without JAX."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...io.mjcf import compile_mjcf
from ...learn import Policy, in_numpy
from ..environments._walker import Walker


class Walk(NamedTuple):
    """A walk in MuJoCo; T control steps."""

    t: Float[np.ndarray, " T"]
    qpos: Float[np.ndarray, "T nq"]
    velocity: Float[np.ndarray, "T 3"]
    """Velocity of the trunk in its own axes: forward, left (m/s), turning (rad/s)."""
    command: Float[np.ndarray, "3"]
    fell: bool
    """Whether the trunk was too low or tilted too much at some time; the walk ends there."""

    def error(self, after: float = 1.0, window: float = 0.5) -> float:
        """Root mean square of ``|v − command|`` in the plane (m/s); infinite after a fall.

        Args:
            after: time at which counting begins (s).
            window: velocities are averaged over this time, a cycle of the gait (s).
        """
        if self.fell:
            return float("inf")
        width = max(1, round(window / (self.t[1] - self.t[0])))
        mean = np.stack(
            [np.convolve(x, np.ones(width) / width, "valid") for x in self.velocity[:, :2].T]
        )
        late = self.t[width - 1 :] >= after + window
        off = mean[:, late].T - self.command[:2]
        return float(np.sqrt((off**2).sum(axis=1).mean()))


def walk_in_mujoco(
    walker: Walker,
    policy: Policy,
    mjcf: Any,
    command: Sequence[float],
    seconds: float = 10.0,
    *,
    push: Sequence[float] = (0.0, 0.0),
    push_at: float = 5.0,
    push_for: float = 0.1,
) -> Walk:
    """Let a learned walker walk in MuJoCo from its standing posture.

    Nothing of the simulation here is used: MuJoCo steps the file, and observations and policy are
    computed in NumPy.

    Args:
        walker: the task, for its numbers.
        policy: what was learned.
        mjcf: path or string of the MJCF, or a ``mujoco.MjModel``.
        command: velocity forward and to the left (m/s), turning rate (rad/s).
        seconds: length of the walk.
        push: horizontal force on the trunk in the world (N), for ``push_for`` seconds from
            ``push_at`` on.
    """
    mujoco = import_module("mujoco")

    m = mjcf if isinstance(mjcf, mujoco.MjModel) else compile_mjcf(mjcf)
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    act, target = in_numpy(policy), np.asarray(command, float)
    stance, reach = np.asarray(walker.stance, float), np.asarray(walker.reach, float)
    dt = walker.substeps * m.opt.timestep
    trunk = int(m.jnt_bodyid[0])
    low, rows, action = float(walker.fall_height), [], np.zeros(len(stance))
    fell = False
    for k in range(round(seconds / dt)):
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, d.qpos[3:7])
        R = R.reshape(3, 3)
        speed, spin = R.T @ d.qvel[:3], d.qvel[3:6]
        angle = 2 * np.pi * float(walker.rhythm) * dt * k
        rows.append((k * dt, d.qpos.copy(), np.array([*speed[:2], spin[2]])))
        fell = bool(d.qpos[2] < low or R[2, 2] < 0.5)
        if fell:
            break
        seen = (R[2], speed, spin, d.qpos[7:] - stance, d.qvel[6:], action, target)
        action = act(np.concatenate([*seen, [np.sin(angle), np.cos(angle)]]))
        d.ctrl[:] = stance + reach * action
        pushed = push_at <= k * dt < push_at + push_for
        d.xfrc_applied[trunk, :2] = push if pushed else 0
        for _ in range(walker.substeps):
            mujoco.mj_step(m, d)
    t, qpos, velocity = (np.array(x) for x in zip(*rows, strict=True))
    return Walk(t, qpos, velocity, target, fell)
