"""Actuators: from controls to generalized forces.

Source: MuJoCo's documentation, "Computation", actuation model.

An actuator has a length ``l(q)``, a force ``f = (g0 + g1 l + g2 l̇) u + b0 + b1 l + b2 l̇`` and a
moment ``∂l/∂q`` by which the force acts on the joints. Motors, position and velocity servos and
ideal PD control are choices of g and b. A muscle has other curves in their place. An actuator with
an activation has that in place of the control u.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.jacobians import jacobian
from ..algorithms.kinematics import forward_kinematics
from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_inverse
from ..derivatives.custom_jvp.kinematics import frame_placement_custom_jvp
from ..model import Model
from ..spatial import so3
from ..spatial.clamp import clamp
from .activation import Activation, Muscles
from .tendons import TendonState
from .wrapping import root

SCALAR, BALL, FREE, SITE = "scalar", "ball", "free", "site"
BALL_IN_PARENT, FREE_IN_PARENT = "ball in parent", "free in parent"
TENDON, BETWEEN, CRANK = "tendon", "site in site", "slider-crank"


class Transmissions(NamedTuple):
    """Lengths and moments of all actuators at a configuration."""

    length: Float[Array, " nu"]
    moment: Float[Array, "nu nv"]
    """Generalized force per unit of actuator force."""


class Driven(NamedTuple):
    """What the forces of actuators depend on beside state and controls."""

    act: Float[Array, " na"] | None = None
    """Activations; None if no actuator has one."""
    dt: Float[Array, ""] | None = None
    """The time step (s), for forces of activations at its end."""
    tendons: TendonState | None = None
    acc0: Float[Array, " nu"] | None = None
    """Of :class:`rbd_jax.contact.Constants`."""
    gravcomp: Float[Array, " nv"] | None = None
    """Gravity compensation that counts as a force of actuators (N m, N); None for none."""


class Actuators(eqx.Module):
    """Actuators of one robot; every float array is a leaf.

    ``trntype[i]`` says what the i-th acts on, and ``trnid[i]`` which one: a degree of freedom of a
    hinge or slide (``"scalar"``), the first degree of freedom of a ball (``"ball"``) or free joint
    (``"free"``), a tendon (``"tendon"``), or a frame (``"site"``). ``refid[i]`` is a second frame:
    the one in which a frame moves (``"site in site"``), or the slider of a crank
    (``"slider-crank"``).
    """

    gear: Float[Array, "nu 6"]
    """Scalar, tendon and crank: first entry, length per coordinate. Ball: axis. Free: force in
    world axes, torque in body axes, or in world axes too ("in parent"). Site: force and torque in
    the frame's axes, or in those of the second frame."""
    gainprm: Float[Array, "nu 3"]
    """``g0, g1, g2``."""
    biasprm: Float[Array, "nu 3"]
    """``b0, b1, b2``."""
    ctrlrange: Float[Array, "nu 2"]
    """The least and the greatest control; infinite for none."""
    forcerange: Float[Array, "nu 2"]
    """The least and the greatest force of each actuator (N m or N over its gear)."""
    actfrcrange: Float[Array, "nv 2"]
    """The least and the greatest sum of actuator forces at each degree of freedom (N m, N)."""
    names: tuple[str, ...] = eqx.field(static=True)
    trntype: tuple[str, ...] = eqx.field(static=True)
    trnid: tuple[int, ...] = eqx.field(static=True)
    dampratio: Float[Array, " nu"] | None = None
    """Damping ratios of position servos (1), zero for other actuators; None if no actuator has one.
    The damping follows from the masses that the servos move, see :meth:`damping`."""
    rod: Float[Array, " nu"] | None = None
    """Lengths of the rods of slider-cranks (m); None if there is none."""
    activation: Activation | None = None
    """Activation dynamics; None if no actuator has an activation."""
    muscles: Muscles | None = None
    refid: tuple[int, ...] = eqx.field(static=True, default=())
    """The second frame of each actuator, −1 for none; empty if none has one."""
    turning: tuple[int, ...] = eqx.field(static=True, default=())
    """Servos whose setpoint is an angle: the nearest of the angles that differ by full turns."""

    def damping(
        self,
        model: Model,
        q0: Float[Array, " nq"],
        tendons: TendonState | None = None,
        inverse: Float[Array, "nv nv"] | None = None,
    ) -> Float[Array, " nu"] | None:
        """The damping that the ratios ask for: ``kv = 2 ratio √(kp / (m M⁻¹ mᵀ))``, moment m.

        Source: MuJoCo 4's ``mj_setConst``. Earlier versions took the diagonal of M.

        Args:
            model: the robot.
            q0: the reference configuration, ``scene.q0``.
            tendons: the tendons there. inverse: of the mass matrix, if it is not the robot's alone.

        Returns:
            kv (N m s/rad or N s/m); None without ratios.
        """
        if self.dampratio is None:
            return None
        moment = self.moment(model, q0, tendons)
        inverse_mass = mass_matrix_inverse(model, q0) if inverse is None else inverse
        light = jnp.sum(jnp.matmul(moment, inverse_mass, precision="highest") * moment, axis=1)
        damps = (self.dampratio > 0) & (light > 0) & (self.gainprm[:, 0] > 0)
        stiff = jnp.where(damps, self.gainprm[:, 0] / jnp.where(damps, light, 1), 1)
        return jnp.where(damps, 2 * self.dampratio * jnp.sqrt(stiff), 0)

    def damped(self, damping: Float[Array, " nu"] | None) -> "Actuators":
        """The actuators with added damping and without damping ratios."""
        if damping is None:
            return self
        new = self.biasprm.at[:, 2].add(-damping), None
        none = lambda x: x is None  # noqa: E731
        return eqx.tree_at(lambda a: (a.biasprm, a.dampratio), self, new, is_leaf=none)

    @property
    def nu(self) -> int:
        """Number of controls."""
        return len(self.names)

    @property
    def na(self) -> int:
        """Number of activations."""
        return 0 if self.activation is None else len(self.activation.actuators)

    def _of(self, kind: str) -> np.ndarray:
        return np.array([i for i, k in enumerate(self.trntype) if k == kind], dtype=np.int32)

    def moment(
        self, model: Model, q: Float[Array, " nq"], tendons: TendonState | None = None
    ) -> Float[Array, "nu nv"]:
        """The moments: generalized force per unit of actuator force, one row an actuator."""
        return self.transmissions(model, q, tendons).moment

    def length(
        self, model: Model, q: Float[Array, " nq"], tendons: TendonState | None = None
    ) -> Float[Array, " nu"]:
        """The lengths; zero for free joints and for sites without a second one, which have none."""
        return self.transmissions(model, q, tendons).length

    def transmissions(
        self, model: Model, q: Float[Array, " nq"], tendons: TendonState | None = None
    ) -> Transmissions:
        """Lengths and moments.

        Args:
            model: the robot. q: configuration.
            tendons: the tendons of the scene there, for actuators that act on them.
        """
        topo = model.topology
        length = jnp.zeros((self.nu,), model.dtype)
        rows = jnp.zeros((self.nu, model.nv), model.dtype)
        scalar, pulling = self._of(SCALAR), self._of(TENDON)
        if len(scalar):
            dofs = np.array(self.trnid, dtype=np.int32)[scalar]
            place = [int(topo.q_starts[topo.dof_bodies[self.trnid[i]]]) for i in scalar]
            length = length.at[scalar].set(self.gear[scalar, 0] * q[np.array(place)])
            rows = rows.at[scalar, dofs].set(self.gear[scalar, 0])
        for i in (*self._of(BALL), *self._of(BALL_IN_PARENT)):
            d = self.trnid[i]
            start = int(topo.q_starts[topo.dof_bodies[d]])
            quat = so3.quat_normalize(q[start : start + 4])
            length = length.at[i].set(so3.dot(so3.quat_log(quat), self.gear[i, :3]))
            axis = self.gear[i, :3]
            if self.trntype[i] == BALL_IN_PARENT:
                axis = so3.rotate_inverse(so3.quat_to_matrix(quat), axis)
            rows = rows.at[i, d : d + 3].set(axis)
        if len(pulling):
            if tendons is None:
                raise ValueError(
                    "actuators pull tendons, whose lengths depend on the scene; use "
                    "scene.torque(q, v, controls)"
                )
            which = np.array(self.trnid, dtype=np.int32)[pulling]
            gear = self.gear[pulling, 0]
            length = length.at[pulling].set(gear * tendons.length[which])
            rows = rows.at[pulling].set(gear[:, None] * tendons.dense()[which])
        placed = None
        for i in (*self._of(FREE), *self._of(FREE_IN_PARENT)):
            placed = forward_kinematics(model, q) if placed is None else placed
            d = self.trnid[i]
            R = placed[0][int(model.topology.dof_bodies[d])]
            turn, push = self.gear[i, 3:], so3.rotate_inverse(R, self.gear[i, :3])
            if self.trntype[i] == FREE_IN_PARENT:
                turn = so3.rotate_inverse(R, turn)
            rows = rows.at[i, d : d + 6].set(jnp.concatenate([turn, push]))
        for i in self._of(SITE):
            J = jacobian(model, q, self.trnid[i])
            wrench = jnp.concatenate([self.gear[i, 3:], self.gear[i, :3]])
            rows = rows.at[i].set(jnp.sum(J * wrench[:, None], axis=0))
        for kind, of in ((BETWEEN, self._between), (CRANK, self._crank)):
            for i in self._of(kind):
                own, row = of(model, q, int(i))
                length, rows = length.at[i].set(own), rows.at[i].set(row)
        return Transmissions(length, rows)

    def _between(self, model: Model, q: Array, i: int) -> tuple[Array, Array]:
        """Length and moment of an actuator that moves a frame against a second one.

        Source: MuJoCo's ``mj_transmission``. Degrees of freedom that move both frames have no
        moment.
        """
        own, ref = self.trnid[i], self.refid[i]
        (R, p), (R0, p0) = (_frame(model, q, k) for k in (own, ref))
        push, turn = self.gear[i, :3], self.gear[i, 3:]
        relative = so3.quat_from_matrix(so3.matmul(so3.transpose(R0), R))
        length = so3.dot(so3.rotate_inverse(R0, p - p0), push)
        length = length + so3.dot(so3.quat_log(relative), turn)
        J = [jacobian(model, q, k, "local_world_aligned") for k in (own, ref)]
        force = jnp.concatenate([so3.rotate(R0, turn), so3.rotate(R0, push)])
        row = jnp.sum((J[0] - J[1]) * force[:, None], axis=0)
        return length, jnp.where(_moves_both(model, own, ref), 0, row)

    def _crank(self, model: Model, q: Array, i: int) -> tuple[Array, Array]:
        """Length and moment of a slider-crank: how far the slider is along its axis.

        Source: MuJoCo's documentation, "Modeling", actuator shortcut ``cranksite``.
        """
        pin, slider = self.trnid[i], self.refid[i]
        assert self.rod is not None
        (_, p), (R, p0) = (_frame(model, q, k) for k in (pin, slider))
        axis, arm = R[:, 2], p - p0
        along = so3.dot(arm, axis)
        left = along * along + self.rod[i] ** 2 - so3.dot(arm, arm)
        some = left > 0
        depth = root(left)
        ratio = jnp.where(some, along / jnp.where(some, depth, 1), 0)
        by_arm = axis * (1 - ratio) + jnp.where(some, 1 / jnp.where(some, depth, 1), 0) * arm
        by_axis = arm * (1 - ratio)
        J, J0 = (jacobian(model, q, k, "local_world_aligned") for k in (pin, slider))
        row = jnp.sum((J[3:] - J0[3:]) * by_arm[:, None], axis=0)
        row = row + jnp.sum(J0[:3] * so3.cross(axis, by_axis)[:, None], axis=0)
        return self.gear[i, 0] * (along - depth), self.gear[i, 0] * row

    def _forces(self, model, q, v, controls, x: Driven):
        """``(force, transmissions, speed, input)`` of all actuators; the force without limits."""
        if self.dampratio is not None:
            raise ValueError(
                "the actuators have damping ratios, whose damping depends on the robot; use "
                "scene.torque(q, v, controls)"
            )
        by = self.transmissions(model, q, x.tendons)
        length, speed = by.length, jnp.sum(by.moment * v[None], axis=-1)
        u = _clip(controls, self.ctrlrange)
        if self.activation is not None:
            if x.act is None:
                raise ValueError(
                    f"the actuators have {self.na} activations, which are part of the state; pass "
                    "act=…"
                )
            dt = jnp.zeros((), v.dtype) if x.dt is None else x.dt
            u = self.activation.acting(x.act, u, dt)
        if self.turning:
            at = np.array(self.turning, dtype=np.int32)
            gear = self.gear[at]
            period = 2 * np.pi * root(jnp.sum(gear * gear, axis=-1))
            period = jnp.where(period > 0, period, 1)
            turns = jnp.floor((u[at] - length[at]) / period + 0.5)
            u = u.at[at].add(-period * turns)
        gain = self.gainprm[:, 0] + self.gainprm[:, 1] * length + self.gainprm[:, 2] * speed
        bias = self.biasprm[:, 0] + self.biasprm[:, 1] * length + self.biasprm[:, 2] * speed
        if self.muscles is not None:
            m = self.muscles
            gains, biases = (np.array(k, dtype=np.int32) for k in (m.gains, m.biases))
            gain = gain.at[gains].set(m.gain_at(length, speed, x.acc0))
            bias = bias.at[biases].set(m.bias_at(length, x.acc0))
        return gain * u + bias, by, speed, u

    def _limited(self, force: Float[Array, " nu"], tendons: Any) -> Float[Array, " nu"]:
        """The forces within the limits of tendons, which scale them, and within their own."""
        pulling = self._of(TENDON)
        if len(pulling) and tendons is not None and tendons.actfrcrange is not None:
            which = np.array(self.trnid, dtype=np.int32)[pulling]
            low, high = tendons.actfrcrange[:, 0], tendons.actfrcrange[:, 1]
            total = jnp.zeros_like(low).at[which].add(force[pulling])
            some = total != 0
            scale = clamp(total, low, high) / jnp.where(some, total, 1)
            scale = jnp.where(some, scale, 1)
            force = force.at[pulling].set(force[pulling] * scale[which])
        return _clip(force, self.forcerange)

    def _summed(self, moment, force, driven: Driven) -> Float[Array, " nv"]:
        """The generalized forces of all actuators before the limits at joints."""
        total = jnp.sum(moment * force[:, None], axis=0)
        return total if driven.gravcomp is None else total + driven.gravcomp

    def forces(
        self,
        model: Model,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        controls: Array,
        driven: Driven = Driven(),  # noqa: B008
    ) -> Float[Array, " nu"]:
        """The force of each actuator (N m or N over its gear).

        Args:
            model: the robot.
            q: configuration. v: velocity.
            controls: one number an actuator.
            driven: activations, tendons and constants, for scenes that have them.
        """
        return self._limited(self._forces(model, q, v, controls, driven)[0], driven.tendons)

    def torque(
        self,
        model: Model,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        controls: Array,
        driven: Driven = Driven(),  # noqa: B008
    ) -> Float[Array, " nv"]:
        """The generalized forces of all actuators, MuJoCo's ``qfrc_actuator`` in our axes.

        The arguments are those of :meth:`forces`.

        Returns:
            Generalized forces (N m, N).
        """
        if self.nu == 0:
            return jnp.zeros_like(v)
        force, by, *_ = self._forces(model, q, v, controls, driven)
        force = self._limited(force, driven.tendons)
        return _clip(self._summed(by.moment, force, driven), self.actfrcrange)

    def velocity_slope(
        self,
        model: Model,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        controls: Array,
        driven: Driven = Driven(),  # noqa: B008
    ) -> Float[Array, "nv nv"]:
        """``∂(generalized force)/∂v`` as MuJoCo's implicit integrators count it.

        Source: MuJoCo's documentation, "Numerical integration". An actuator at its force limit
        counts nothing, and neither does an actuator of a hinge or slide at whose degree of freedom
        the summed force of all actuators is at its limit (as MuJoCo 4 does it).
        """
        force, by, speed, u = self._forces(model, q, v, controls, driven)
        force = self._limited(force, driven.tendons)
        inside = (force > self.forcerange[:, 0]) & (force < self.forcerange[:, 1])
        summed = self._summed(by.moment, force, driven)
        limited = (summed <= self.actfrcrange[:, 0]) | (summed >= self.actfrcrange[:, 1])
        scalar = np.array([k == SCALAR for k in self.trntype], dtype=bool)
        dofs = np.where(scalar, self.trnid, 0).astype(np.int32)
        inside = inside & ~(scalar & limited[dofs])
        gain = self.gainprm[:, 2]
        if self.muscles is not None:
            m = self.muscles
            own = m.gain_slope(by.length, speed, driven.acc0)
            gain = gain.at[np.array(m.gains, dtype=np.int32)].set(own)
        slope = jnp.where(inside, gain * u + self.biasprm[:, 2], 0)
        weighted = slope[:, None] * by.moment
        return jnp.matmul(by.moment.T, weighted, precision="highest")


def _frame(model: Model, q: Array, frame: int) -> tuple[Array, Array]:
    """The pose of a frame in the world."""
    return frame_placement_custom_jvp(model, q, frame)


def _moves_both(model: Model, one: int, two: int) -> np.ndarray:
    """Which degrees of freedom move both frames."""
    topology = model.topology
    bodies = [topology.frame_bodies[k] for k in (one, two)]
    if min(bodies) < 0:
        return np.zeros((topology.nv,), bool)
    mask = np.asarray(topology.tree.ancestor_mask)[:, topology.dof_bodies]
    return np.asarray(mask[bodies[0]] & mask[bodies[1]])


def _clip(x: Float[Array, " n"], limits: Float[Array, "n 2"]) -> Float[Array, " n"]:
    return clamp(x, limits[:, 0], limits[:, 1])


def pd_actuators(
    model: Model,
    joints: Sequence[str],
    stiffness: float | Float[Array, " n"],
    damping: float | Float[Array, " n"] = 0.0,
) -> Actuators:
    """Ideal PD control of joints of one degree of freedom: ``kp (u − q) − kd v``, u the target.

    ConstraintForces are limited by ``model.effort_limit``. With zero gains replaced by hand
    (``eqx.tree_at``), the same object is a motor.

    Args:
        model: the robot.
        joints: names of the joints, one control each.
        stiffness: kp (N m/rad or N/m). damping: kd (N m s/rad or N s/m).

    Raises:
        ValueError: for a joint of several degrees of freedom. KeyError: for an unknown name.
    """
    dofs = []
    for name in joints:
        s = model.v_slice(name)
        if s.stop - s.start != 1:
            raise ValueError(
                f"pd_actuators: joint {name!r} has {s.stop - s.start} degrees of freedom, expected "
                "one; drive a ball or free joint by tau"
            )
        dofs.append(s.start)
    n, kind = len(dofs), model.dtype
    kp = jnp.broadcast_to(jnp.asarray(stiffness, kind), (n,))
    kd = jnp.broadcast_to(jnp.asarray(damping, kind), (n,))
    zero, far = jnp.zeros((n,), kind), jnp.full((n,), jnp.inf, kind)
    limit = model.effort_limit[np.array(dofs, dtype=np.int32)]
    every = jnp.full((model.nv,), jnp.inf, kind)
    return Actuators(
        gear=jnp.zeros((n, 6), kind).at[:, 0].set(1),
        gainprm=jnp.stack([kp, zero, zero], axis=-1),
        biasprm=jnp.stack([zero, -kp, -kd], axis=-1),
        ctrlrange=jnp.stack([-far, far], axis=-1),
        forcerange=jnp.stack([-limit, limit], axis=-1),
        actfrcrange=jnp.stack([-every, every], axis=-1),
        names=tuple(joints),
        trntype=(SCALAR,) * n,
        trnid=tuple(dofs),
    )


def motors(model: Model, joints: Sequence[str]) -> Actuators:
    """Ideal motors of joints of one degree of freedom: the control is the torque (N m, N)."""
    actuators = pd_actuators(model, joints, 0.0)
    one = jnp.zeros_like(actuators.gainprm).at[:, 0].set(1)
    return eqx.tree_at(lambda a: a.gainprm, actuators, one)
