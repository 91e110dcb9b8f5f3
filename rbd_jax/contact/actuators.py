"""Actuators: from controls to generalized forces.

Source: MuJoCo's documentation, "Computation", actuation model.

An actuator has a length ``l(q)``, a force ``f = (g0 + g1 l + g2 l̇) u + b0 + b1 l + b2 l̇`` and a
moment ``∂l/∂q`` by which the force acts on the joints. Motors, position and velocity servos and
ideal PD control are choices of g and b.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.jacobians import jacobian
from ..algorithms.kinematics import forward_kinematics
from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_inverse
from ..model import Model
from ..spatial import so3

SCALAR, BALL, FREE, SITE = "scalar", "ball", "free", "site"


class Actuators(eqx.Module):
    """Actuators of one robot; every float array is a leaf.

    ``kinds[i]`` says what the i-th acts on, and ``targets[i]`` which one: a degree of freedom of a
    hinge or slide (``"scalar"``), the first degree of freedom of a ball (``"ball"``) or free joint
    (``"free"``), or a frame (``"site"``).
    """

    gear: Float[Array, "nu 6"]
    """Scalar: first entry, length per coordinate. Ball: axis. Free: force in world axes, torque in
    body axes. Site: force and torque in the frame's axes."""
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

    def damping(self, model: Model, q0: Float[Array, " nq"]) -> Float[Array, " nu"] | None:
        """The damping that the ratios ask for: ``kv = 2 ratio √(kp / (m M⁻¹ mᵀ))``, moment m.

        Source: MuJoCo 4's ``mj_setConst``. Earlier versions took the diagonal of M.

        Args:
            model: the robot.
            q0: the reference configuration, ``scene.q0``.

        Returns:
            kv (N m s/rad or N s/m); None without ratios.
        """
        if self.dampratio is None:
            return None
        moment = self.moment(model, q0)
        inverse = jnp.matmul(moment, mass_matrix_inverse(model, q0), precision="highest")
        light = jnp.sum(inverse * moment, axis=1)
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

    def _of(self, kind: str) -> np.ndarray:
        return np.array([i for i, k in enumerate(self.trntype) if k == kind], dtype=np.int32)

    def moment(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, "nu nv"]:
        """The moments: generalized force per unit of actuator force, one row an actuator."""
        rows = jnp.zeros((self.nu, model.nv), model.dtype)
        scalar = self._of(SCALAR)
        if len(scalar):
            dofs = np.array(self.trnid, dtype=np.int32)[scalar]
            rows = rows.at[scalar, dofs].set(self.gear[scalar, 0])
        for i in self._of(BALL):
            d = self.trnid[i]
            rows = rows.at[i, d : d + 3].set(self.gear[i, :3])
        placed = None
        for i in (*self._of(FREE), *self._of(SITE)):
            if self.trntype[i] == FREE:
                placed = forward_kinematics(model, q) if placed is None else placed
                d = self.trnid[i]
                R = placed[0][int(model.topology.dof_bodies[d])]
                wrench = [self.gear[i, 3:], so3.rotate_inverse(R, self.gear[i, :3])]
                rows = rows.at[i, d : d + 6].set(jnp.concatenate(wrench))
            else:
                J = jacobian(model, q, self.trnid[i])
                wrench = jnp.concatenate([self.gear[i, 3:], self.gear[i, :3]])
                rows = rows.at[i].set(jnp.sum(J * wrench[:, None], axis=0))
        return rows

    def length(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, " nu"]:
        """The lengths; zero for free joints and sites, which have none."""
        topo = model.topology
        length = jnp.zeros((self.nu,), model.dtype)
        scalar = self._of(SCALAR)
        if len(scalar):
            place = [int(topo.q_starts[topo.dof_bodies[self.trnid[i]]]) for i in scalar]
            length = length.at[scalar].set(self.gear[scalar, 0] * q[np.array(place)])
        for i in self._of(BALL):
            start = int(topo.q_starts[topo.dof_bodies[self.trnid[i]]])
            turn = so3.quat_log(so3.quat_normalize(q[start : start + 4]))
            length = length.at[i].set(so3.dot(turn, self.gear[i, :3]))
        return length

    def _forces(self, model, q, v, controls, moment):
        if self.dampratio is not None:
            raise ValueError(
                "the actuators have damping ratios, whose damping depends on the robot; use "
                "scene.torque(q, v, controls)"
            )
        length = self.length(model, q)
        speed = jnp.sum(moment * v[None], axis=-1)
        u = _clip(controls, self.ctrlrange)
        gain = self.gainprm[:, 0] + self.gainprm[:, 1] * length + self.gainprm[:, 2] * speed
        bias = self.biasprm[:, 0] + self.biasprm[:, 1] * length + self.biasprm[:, 2] * speed
        return gain * u + bias, u

    def _summed(self, moment, force) -> Float[Array, " nv"]:
        """The generalized forces of all actuators before the limits at joints."""
        force = _clip(force, self.forcerange)
        return jnp.sum(moment * force[:, None], axis=0)

    def forces(
        self, model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], controls: Array
    ) -> Float[Array, " nu"]:
        """The force of each actuator (N m or N over its gear)."""
        force, _ = self._forces(model, q, v, controls, self.moment(model, q))
        return _clip(force, self.forcerange)

    def torque(
        self, model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], controls: Array
    ) -> Float[Array, " nv"]:
        """The generalized forces of all actuators, MuJoCo's ``qfrc_actuator`` in our axes.

        Args:
            model: the robot.
            q: configuration. v: velocity.
            controls: one number an actuator.

        Returns:
            Generalized forces (N m, N).
        """
        if self.nu == 0:
            return jnp.zeros_like(v)
        moment = self.moment(model, q)
        force, _ = self._forces(model, q, v, controls, moment)
        return _clip(self._summed(moment, force), self.actfrcrange)

    def velocity_slope(
        self, model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], controls: Array
    ) -> Float[Array, "nv nv"]:
        """``∂(generalized force)/∂v`` as MuJoCo's implicit integrators count it.

        Source: MuJoCo's documentation, "Numerical integration". An actuator at its force limit
        counts nothing, and neither does an actuator of a hinge or slide at whose degree of freedom
        the summed force of all actuators is at its limit (as MuJoCo 4 does it).
        """
        moment = self.moment(model, q)
        force, u = self._forces(model, q, v, controls, moment)
        inside = (force > self.forcerange[:, 0]) & (force < self.forcerange[:, 1])
        summed = self._summed(moment, force)
        limited = (summed <= self.actfrcrange[:, 0]) | (summed >= self.actfrcrange[:, 1])
        scalar = np.array([k == SCALAR for k in self.trntype], dtype=bool)
        dofs = np.where(scalar, self.trnid, 0).astype(np.int32)
        inside = inside & ~(scalar & limited[dofs])
        slope = jnp.where(inside, self.gainprm[:, 2] * u + self.biasprm[:, 2], 0)
        weighted = slope[:, None] * moment
        return jnp.matmul(moment.T, weighted, precision="highest")


def _clip(x: Float[Array, " n"], limits: Float[Array, "n 2"]) -> Float[Array, " n"]:
    return jnp.clip(x, limits[:, 0], limits[:, 1])


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
