"""A model predictive controller in MuJoCo itself: plans by JAX, steps by MuJoCo."""

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ...contact import Scene
from ...io.mjcf import compile_mjcf
from ...optimize import RESULTS, AbstractMPC, Plan
from ..problems._scene import uprightness


class Controlled(NamedTuple):
    """A motion in MuJoCo under model predictive control; T plans."""

    t: Float[np.ndarray, " T+1"]
    q: Float[np.ndarray, "T+1 nq"]
    qpos: Float[np.ndarray, "T+1 nq"]
    ctrl: Float[np.ndarray, "T nu"]
    seconds: Float[np.ndarray, " T"]
    """What each plan took, the first one without its compilation."""
    improved: Bool[np.ndarray, " T"]
    """Whether the solver found a better plan. Where it did not, the one before was followed."""
    fell: bool
    """Whether the trunk was too low or tilted too much at some time; the motion ends there."""

    @property
    def hertz(self) -> float:
        """Plans a second, by the median of their times."""
        return float(1 / np.median(self.seconds))


def mpc_in_mujoco(
    control: AbstractMPC,
    plan: Plan,
    scene: Scene,
    mjcf: Any,
    steps: int,
    *,
    push: Sequence[float] = (0.0, 0.0),
    push_at: float = 2.0,
    push_for: float = 0.1,
) -> Controlled:
    """Let a controller move a robot in MuJoCo, from the first state of a plan.

    In each time step of the problem the controller is told MuJoCo's state, and the first control of
    its plan is held. MuJoCo waits for the plan.

    Args:
        control: whose controls are those of the MJCF's actuators, in their order.
        plan: the first one, of :meth:`Controller.plan` or :meth:`Controller.warmstart`.
        scene: of the same MJCF, for the order of its coordinates.
        mjcf: path or string of the MJCF, or a ``mujoco.MjModel``.
        steps: number of time steps.
        push: horizontal force on the trunk in the world (N), for ``push_for`` seconds from
            ``push_at`` on.

    Raises:
        ValueError: if the scene is not from an MJCF file, or the time step of the problem is not a
            multiple of MuJoCo's.
    """
    mujoco = import_module("mujoco")
    layout = scene.layout
    if layout is None:
        raise ValueError("mpc_in_mujoco: the scene has to come from an MJCF file")
    m = mjcf if isinstance(mjcf, mujoco.MjModel) else compile_mjcf(mjcf)
    d = mujoco.MjData(m)
    dt = float(control.problem.dt)
    substeps = round(dt / m.opt.timestep)
    if substeps < 1 or abs(substeps * m.opt.timestep / dt - 1) > 1e-6:
        raise ValueError(
            f"mpc_in_mujoco: the time step {dt:.6g} s of the problem is not a multiple of MuJoCo's "
            f"{m.opt.timestep} s"
        )

    @eqx.filter_jit
    def replan(control, plan, qpos, qvel, t):
        q = layout.q_from(qpos)
        now = control.step(plan, q, layout.v_from(q, qvel), t=t, shift=False)
        return control.shifted(now.plan), now.plan.u[0], now.result == RESULTS.successful

    def carried_out(plan, k: int):
        state = (jnp.asarray(x, plan.q.dtype) for x in (d.qpos, d.qvel, k * dt))
        return jax.block_until_ready(replan(control, plan, *state))

    d.qpos[:] = layout.q_to(plan.q[0])
    d.qvel[:] = layout.v_to(plan.q[0], plan.v[0])
    carried_out(plan, 0)
    trunk, low = int(m.jnt_bodyid[0]), 0.6 * d.qpos[2]
    qpos, ctrl, seconds, improved, fell = [d.qpos.copy()], [], [], [], False
    for k in range(steps):
        begin = time.perf_counter()
        plan, u, better = carried_out(plan, k)
        seconds.append(time.perf_counter() - begin)
        improved.append(bool(better))
        d.ctrl[:] = u
        d.xfrc_applied[trunk, :2] = push if push_at <= k * dt < push_at + push_for else 0
        for _ in range(substeps):
            mujoco.mj_step(m, d)
        qpos.append(d.qpos.copy())
        ctrl.append(d.ctrl.copy())
        fell = bool(not np.isfinite(d.qpos).all() or d.qpos[2] < low or uprightness(d.qpos) < 0.5)
        if fell:
            break
    t, q = dt * np.arange(len(qpos)), jax.vmap(layout.q_from)(jnp.asarray(np.array(qpos)))
    lists = np.array(qpos), np.array(ctrl), np.array(seconds), np.array(improved)
    return Controlled(t, np.asarray(q), *lists, fell)
