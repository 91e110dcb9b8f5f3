"""Sensors of a scene: named functions of its state.

Source: MuJoCo's documentation, "XML reference", sensor. Sensors are read at a state, before the
step; MuJoCo's ``mj_step`` stores those of the state in which the step begins.
"""

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ..algorithms.crba import crba
from ..algorithms.kinematics import body_accelerations, body_velocities
from ..lanes import lanes
from ..model import Model
from ..spatial import inertia, so3
from ..spatial.clamp import clamp
from .actuators import TENDON, Driven
from .forward import checked_arguments, constrained_acceleration, controlled
from .report import ConstraintForces, forces_at
from .scene import Scene
from .sensor_specs import Sensor, Sensors
from .solver.problem import SolverInputs
from .solver.rows import Bodies, State, classical_offset
from .tendons import pulls
from .weights import Constants, with_world


def sensors(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    tau: Float[Array, " nv"] | None = None,
    *,
    act: Float[Array, " na"] | None = None,
    a: Float[Array, " nv"] | None = None,
    t: float | Float[Array, ""] = 0.0,
    names: Collection[str] | None = None,
    constants: Constants | None = None,
    key: Key[Array, ""] | None = None,
) -> dict[str, Array]:
    """The readings of the sensors of a scene at a state, by name.

    Source: MuJoCo's documentation, "XML reference", sensor; readings are those of ``mj_forward``.
    They are differentiable. Only what the chosen sensors need is computed.

    Args:
        scene: a scene whose file has sensors.
        q: configuration. v: velocity. controls: of the actuators.
        tau: more generalized forces (N m, N).
        act: activations, if the scene has some.
        a: the accelerations of this state, ``a`` of :class:`SceneStep` or
            :func:`constrained_acceleration`. They are computed if a chosen sensor needs them and
            they are None.
        t: time, which clocks read (s).
        names: which sensors to read; all if None.
        constants: of :func:`constants` for this scene; computed if None.
        key: a random key. With a key, the noise of the file is added to the readings.

    Returns:
        A dictionary: a number, or an array of several, for each sensor.

    Raises:
        ValueError: for a wrong shape, or if the scene has no sensors. KeyError: for a name that no
            sensor has. TypeError: for values that are no arrays of floats.
    """
    if scene.sensors is None:
        raise ValueError("sensors: the scene has no sensors; its file needs a <sensor> section")
    given = checked_arguments("sensors", scene, 1, q, v, controls, tau, None)
    q, v, controls, tau, _ = given
    unknown = [x for x in names or () if x not in scene.sensors.names]
    if unknown:
        raise KeyError(
            f"sensors: there is no sensor {', '.join(map(repr, unknown))}; the scene has "
            f"{', '.join(scene.sensors.names)}"
        )
    x = controlled("sensors", scene, controls, tau, constants, act)
    chosen = tuple(
        k for k, name in enumerate(scene.sensors.names) if names is None or name in names
    )
    kinds = {scene.sensors.sensors[k].kind for k in chosen}
    minimum = a
    if kinds & FORCES and (a is None or scene.constraints.noslip is not None):
        found = constrained_acceleration(
            scene, q, v, controls, tau, act=x.act, constants=x.constants
        )
        a, minimum = found.a if a is None else a, found.minimum
    readings = _readings(x, q, v, (a, minimum), jnp.asarray(t, scene.model.dtype), chosen)
    if key is not None:
        for n, k in enumerate(chosen):
            drawn = jax.random.normal(jax.random.fold_in(key, k), readings[n].shape, q.dtype)
            readings[n] = readings[n] + scene.sensors.noise[k] * drawn
    return {scene.sensors.names[k]: r for k, r in zip(chosen, readings, strict=True)}


FORCES = {
    "accelerometer", "force", "torque", "framelinacc", "frameangacc", "touch", "jointlimitfrc",
    "tendonlimitfrc",
}  # fmt: skip
"""The kinds of sensors that need accelerations or the forces of constraints."""


_Accelerations = tuple[Array | None, Array | None]
"""The accelerations, and those before a noslip pass; None if no sensor needs them."""


@lanes
def _readings(x: Any, q: Array, v: Array, a: _Accelerations, t: Array, chosen: tuple[int, ...]):
    found: Sensors = x.scene.sensors
    world = _World(x, q, v, a, t)
    readings = []
    for k in chosen:
        s = found.sensors[k]
        value = KINDS[s.kind](world, s, k)
        bound = found.cutoff[k]
        value = jnp.minimum(value, bound) if s.positive else clamp(value, -bound, bound)
        readings.append(value)
    return readings


class _World:
    """What sensors read, computed when the first sensor asks for it."""

    def __init__(self, x: Any, q: Array, v: Array, a: _Accelerations, t: Array):
        self.x, self.q, self.v, self.t = x, q, v, t
        self.a, self.minimum = a
        self.scene, self.model = x.scene, x.scene.model
        self.sensors: Sensors = x.scene.sensors
        self._known: dict[str, Any] = {}

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    @property
    def driven(self) -> Driven:
        return self._once("driven", lambda: self.x.driven(self.q))

    @property
    def state(self) -> State:
        zero = jnp.zeros_like(self.v)
        scene, x = self.scene, self.x
        inputs = SolverInputs(self.model, scene.constraints, x.constants, self.q, self.v, zero,
                              scene.dt, self.driven.tendons)  # fmt: skip
        return self._once("state", inputs.state)

    @property
    def bodies(self) -> Bodies:
        return self.state.bodies

    @property
    def forces(self) -> ConstraintForces:
        minimum = self.minimum
        assert minimum is not None
        return self._once("forces", lambda: forces_at(
            self.scene, self.q, self.v, minimum, self.x.constants))  # fmt: skip

    @property
    def actuator_force(self) -> Float[Array, " nu"]:
        force = lambda: self.x.actuators.forces(  # noqa: E731
            self.model, self.q, self.v, self.x.controls, self.driven
        )
        return self._once("actuator_force", force)

    @property
    def transmissions(self):
        of = self.x.actuators.transmissions
        return self._once("by", lambda: of(self.model, self.q, self.driven.tendons))

    @property
    def joint_force(self) -> Float[Array, " nv"]:
        torque = lambda: self.x.actuators.torque(  # noqa: E731
            self.model, self.q, self.v, self.x.controls, self.driven
        )
        return self._once("torque", torque)

    @property
    def rates(self) -> tuple[Array, Array]:
        """The angular acceleration of the bodies, and the acceleration of their origins."""
        return self._once("rates", self._rates)

    def _rates(self):
        assert self.a is not None
        model, R = self.model, self.state.poses.R
        rate = self.a - classical_offset(model, self.v)
        A, V = (body_accelerations(model, self.q, self.v, rate),
                body_velocities(model, self.q, self.v))  # fmt: skip
        turning = so3.rotate(R, A[:, :3])
        moving = so3.rotate(R, A[:, 3:] + so3.cross(V[:, :3], V[:, 3:]))
        zero = jnp.zeros((3,), self.q.dtype)
        return with_world(turning, zero), with_world(moving, zero)

    def frame(self, k: int) -> tuple[int, Array, Array]:
        """The body of a frame, and its orientation and position in the world."""
        x, b = self.sensors, self.sensors.bodies[k]
        own = x.p[k]
        if x.centered[k]:
            own = own + inertia.com(self.model.inertia)[b]
        R = self.bodies.R[b]
        return b, so3.matmul(R, so3.orthonormalize(x.R[k])), self.bodies.p[b] + so3.rotate(R, own)

    def velocity(self, k: int) -> tuple[Array, Array]:
        """The angular velocity of a frame and the velocity of its origin, in world axes."""
        b, _, p = self.frame(k)
        w = self.bodies.w[b]
        return w, self.bodies.v[b] + so3.cross(w, p - self.bodies.p[b])

    def acceleration(self, k: int) -> tuple[Array, Array]:
        """The angular acceleration, and the acceleration of the origin against free fall."""
        b, _, p = self.frame(k)
        turning, moving = (x[b] for x in self.rates)
        w, arm = self.bodies.w[b], p - self.bodies.p[b]
        moving = moving + so3.cross(turning, arm) + so3.cross(w, so3.cross(w, arm))
        return turning, moving - self.model.gravity

    def quaternion(self, k: int) -> Float[Array, "4"]:
        """The orientation of a frame with MuJoCo's sign."""
        x, b = self.sensors, self.sensors.bodies[k]
        quat = so3.quat_multiply(
            chain_quaternion(self.model, self.q, b), so3.quat_from_matrix(x.R[k])
        )
        return x.signs[k] * quat

    def lumps(self, s: Sensor) -> tuple[Array, ...]:
        """Mass, center, velocity, inertia about the center and spin of the pieces of a subtree."""
        own = np.array(s.lumps, dtype=np.int32)
        body = np.array(self.sensors.lumps.bodies, dtype=np.int32)[own]
        I10 = self.sensors.lumps.inertias(self.model)[own]
        R, p, w, u = (x[body] for x in self.bodies)
        arm = so3.rotate(R, inertia.com(I10))
        I = so3.matmul(so3.matmul(R, inertia.inertia_com(I10)), so3.transpose(R))
        return inertia.mass(I10), p + arm, u + so3.cross(w, arm), I, w

    def subtree(self, s: Sensor) -> tuple[Array, Array, Array]:
        """Center, velocity and angular momentum about the center of a subtree."""
        m, c, u, I, w = self.lumps(s)
        share = (m / jnp.maximum(jnp.sum(m), 1e-15))[:, None]
        center, velocity = jnp.sum(share * c, axis=0), jnp.sum(share * u, axis=0)
        arm, change = c - center[None], u - velocity[None]
        spin = so3.rotate(I, w) + m[:, None] * so3.cross(arm, change)
        return center, velocity, jnp.sum(spin, axis=0)

    def interaction(self, s: Sensor) -> tuple[Array, Array]:
        """Force and moment of the parent on the body of a frame, in the frame."""
        own = np.array(s.lumps, dtype=np.int32)
        body = np.array(self.sensors.lumps.bodies, dtype=np.int32)[own]
        m, c, _, I, w = self.lumps(s)
        turning, moving = (x[body] for x in self.rates)
        arm = c - self.bodies.p[body]
        moving = moving + so3.cross(turning, arm) + so3.cross(w, so3.cross(w, arm))
        _, R, p = self.frame(s.frame)
        force = m[:, None] * (moving - self.model.gravity[None])
        moment = so3.rotate(I, turning) + so3.cross(w, so3.rotate(I, w))
        moment = jnp.sum(moment + so3.cross(c - p[None], force), axis=0)
        force = jnp.sum(force, axis=0)
        for at, f, n in self._outside(s):
            force, moment = force - f, moment - n - so3.cross(at - p, f)
        return so3.rotate_inverse(R, force), so3.rotate_inverse(R, moment)

    def _outside(self, s: Sensor):
        """Points, forces and moments of contacts, connects and welds on a subtree."""
        on, known = self.forces.contacts, self.scene.contacts.shapes.names
        own = {known[k] for k in s.shapes}
        for k, pair in enumerate(on.names):
            inside = [name in own for name in pair]
            if inside[0] != inside[1]:
                sign = 1.0 if inside[1] else -1.0
                yield on.point[k], sign * on.force[k], sign * on.moment[k]
        if s.pulls:
            on = np.array(s.pulls, dtype=np.int32)
            tendons, state = self.scene.tendons, self.state
            _, pull = pulls(tendons.strings, state.poses, state.root, len(tendons.names))
            force = self.tendon_force[pull.tendon[on]]
            for k, f in zip(s.pulls, force, strict=True):
                yield pull.at[k], f * pull.by[k], jnp.zeros_like(pull.by[k])
        if not s.welds:
            return
        (rows,) = self.scene.constraints.welds.rows(self.state)
        for k, side in s.welds:
            f, sign = self.forces.welds[k], (1.0, -1.0)[side]
            n = so3.rotate_inverse(rows.turn[k], f[3:])
            yield (rows.point1, rows.point2)[side][k], sign * f[:3], sign * n

    @property
    def tendon_force(self) -> Float[Array, " nt"]:
        """The force along each tendon, positive where it pushes (N)."""
        return self._once("tendon_force", self._tendon_force)

    def _tendon_force(self) -> Float[Array, " nt"]:
        scene, state, found, x = self.scene, self.state, self.forces, self.x
        tendons, there, a = scene.tendons, self.driven.tendons, scene.actuators
        assert there is not None and self.a is not None
        total = tendons.passive(there, self.v, x.constants.tendons.rest)
        own = [i for i, k in enumerate(a.trntype) if k == TENDON]
        if own:
            at = np.array(own, dtype=np.int32)
            which = np.array(a.trnid, dtype=np.int32)[at]
            total = total.at[which].add(a.gear[at, 0] * self.actuator_force[at])
        named = ((found.tendon_lower, 1.0), (found.tendon_upper, -1.0),
                 (found.tendon_friction, 1.0))  # fmt: skip
        for forces, sign in named:
            for name, f in forces.items():
                total = total.at[tendons.names.index(name)].add(sign * f)
        equalities = scene.constraints.tendon_equalities
        if equalities is not None:
            _, rate = equalities.errors(state)
            for k, (one, two) in enumerate(equalities.tendons):
                f = found.tendon_equalities[k]
                total = total.at[one].add(f)
                total = total if two < 0 else total.at[two].add(-rate[k] * f)
        if tendons.armature is not None:
            rate = there.speed(self.a - classical_offset(self.model, self.v))
            rate = rate + tendons.drift(self.model, self.q, self.v)
            total = total - tendons.armature * rate
        return total

    def joint_limit(self, s: Sensor) -> tuple[Array, Array, Array]:
        """Distance less margin, rate, and force of a limit that acts; the lower limit first."""
        c, model = self.scene.constraints, self.model
        name = model.joint_names[model.topology.dof_bodies[s.dof]]
        if model.topology.nq and s.dof in c.ball_limits.dofs:
            k = c.ball_limits.dofs.index(s.dof)
            turn = so3.quat_log(so3.quat_normalize(self.q[s.place : s.place + 4]))
            n2 = so3.dot(turn, turn)
            angle = jnp.where(n2 > 0, jnp.sqrt(jnp.where(n2 > 0, n2, 1)), 0)
            axis = turn / jnp.where(angle > 0, angle, 1)
            over = c.ball_limits.angle[k] - angle - c.ball_limits.margin[k]
            speed = -so3.dot(axis, self.v[s.dof : s.dof + 3])
            force = () if self.a is None else (self.forces.ball_limits[name],)
            return _acting((over,), (speed,), force)
        k = c.limits.dofs.index(s.dof)
        q, v, margin = self.q[s.place], self.v[s.dof], c.limits.margin[k]
        low, high = model.position_lower[s.place], model.position_upper[s.place]
        force = ()
        if self.a is not None:
            force = self.forces.lower[name], self.forces.upper[name]
        return _acting((q - low - margin, high - q - margin), (v, -v), force)

    def tendon_limit(self, s: Sensor) -> tuple[Array, Array, Array]:
        """The same of a tendon."""
        limits, there = self.scene.constraints.tendon_limits, self.driven.tendons
        assert limits is not None and there is not None
        k, name = limits.tendons.index(s.target), limits.names[limits.tendons.index(s.target)]
        length, speed = there.length[s.target], there.speed(self.v)[s.target]
        low, high, margin = limits.range[k, 0], limits.range[k, 1], limits.margin[k]
        force = ()
        if self.a is not None:
            force = self.forces.tendon_lower[name], self.forces.tendon_upper[name]
        over = length - low - margin, high - length - margin
        return _acting(over, (speed, -speed), force)

    def touch(self, s: Sensor, k: int) -> Float[Array, ""]:
        """The sum of normal forces whose lines meet the zone of a sensor."""
        on, known = self.forces.contacts, self.scene.contacts.shapes.names
        own = {known[k] for k in s.shapes}
        _, R, p = self.frame(s.frame)
        total = jnp.zeros((), self.q.dtype)
        for c, pair in enumerate(on.names):
            first, second = (name in own for name in pair)
            if not (first or second):
                continue
            normal = on.frame[c, 0]
            force = so3.dot(normal, on.force[c])
            along = -normal if second else normal
            at, way = so3.rotate_inverse(R, on.point[c] - p), so3.rotate_inverse(R, along)
            meets = MEETS[s.shape](self.sensors.sizes[k], at, way)
            total = total + jnp.where(meets & (force > 0), force, 0)
        return total

    def contact(self, s: Sensor) -> Array:
        """The closest contact of shapes with others: some of its data, and how many there are.

        The normal points away from the first shapes.
        """
        pairs, known = self.scene.contacts.pairs.shapes, []
        for rows in self._once("contacts", lambda: self.scene.contacts.rows(self.state)):
            for k, pair in enumerate(rows.group.pair):
                ways = [
                    self._matches(s, *pairs[int(pair)]),
                    self._matches(s, *pairs[int(pair)][::-1]),
                ]
                if any(ways):
                    known.append((rows, k, 1.0 if ways[0] else -1.0))
        sizes = {"found": 1, "dist": 1, "pos": 3, "normal": 3, "tangent": 3}
        if not known:
            zero = jnp.zeros((sum(sizes[x] for x in s.data),), self.q.dtype)
            return zero[0] if s.size == 1 else zero
        on = jnp.stack([rows.cone.active[k] for rows, k, _ in known])
        far = jnp.stack([rows.group.distance[k] for rows, k, _ in known])
        least = jnp.min(jnp.where(on, far, jnp.inf))
        chosen = (on & (far == least)).astype(self.q.dtype)
        chosen = chosen / jnp.maximum(jnp.sum(chosen), 1)
        mean = lambda x: jnp.sum(chosen.reshape(-1, *(1,) * (x.ndim - 1)) * x, axis=0)  # noqa: E731
        of = {
            "found": lambda: jnp.sum(on.astype(self.q.dtype)),
            "dist": lambda: mean(far),
            "pos": lambda: mean(jnp.stack([x.group.point[k] for x, k, _ in known])),
            "normal": lambda: mean(jnp.stack([w * x.group.frame[k, 0] for x, k, w in known])),
            "tangent": lambda: mean(jnp.stack([w * x.group.frame[k, 1] for x, k, w in known])),
        }
        data = jnp.concatenate([jnp.reshape(of[name](), (-1,)) for name in s.data])
        return data[0] if s.size == 1 else data

    def _matches(self, s: Sensor, one: int, two: int) -> bool:
        return one in s.shapes and (s.others is None or two in s.others)

    def potential(self, s: Sensor) -> Float[Array, ""]:
        """The energy of gravity and of springs (J)."""
        m, c, *_ = self.lumps(s)
        energy = -jnp.sum(m * so3.dot(c, self.model.gravity[None]))
        if self.model.stiffness is not None:
            energy = energy + spring_energy(self.model, self.q)
        tendons = self.scene.tendons
        if tendons is not None:
            there, rest = self.driven.tendons, self.x.constants.tendons.rest
            assert there is not None
            stretch = tendons.stretch(there, rest)
            energy = energy + 0.5 * jnp.sum(tendons.stiffness * stretch * stretch)
        return energy

    def kinetic(self) -> Float[Array, ""]:
        """The kinetic energy (J)."""
        M = crba(self.model, self.q)
        energy = 0.5 * jnp.sum(self.v * jnp.matmul(M, self.v, precision="highest"))
        tendons, there = self.scene.tendons, self.driven.tendons
        if tendons is not None and there is not None and tendons.armature is not None:
            energy = energy + 0.5 * jnp.sum(tendons.inertia * there.speed(self.v) ** 2)
        return energy

    def relative(self, s: Sensor) -> tuple[Array, Array]:
        """Angular and linear velocity of a frame, in a moving second frame if there is one."""
        w, u = self.velocity(s.frame)
        if s.reference < 0:
            return w, u
        (_, _, p), (_, R0, p0) = self.frame(s.frame), self.frame(s.reference)
        w0, u0 = self.velocity(s.reference)
        u = u - u0 - so3.cross(w0, p - p0)
        return so3.rotate_inverse(R0, w - w0), so3.rotate_inverse(R0, u)


def _acting(over: tuple, speed: tuple, force: tuple) -> tuple[Array, Array, Array]:
    """Distance, rate and force of the first limit that acts; zeros if none acts."""
    zero = jnp.zeros_like(over[0])
    found = [zero, zero, zero]
    forces = force or (zero,) * len(over)
    for x in reversed(list(zip(over, speed, forces, strict=True))):
        found = [jnp.where(x[0] < 0, new, old) for new, old in zip(x, found, strict=True)]
    return found[0], found[1], found[2]


def spring_energy(model: Model, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """The energy of the springs of joints (J), MuJoCo's."""
    topology, total = model.topology, jnp.zeros((), q.dtype)
    assert model.stiffness is not None and model.rest is not None
    for b in range(topology.nb):
        k, d = int(topology.q_starts[b]), int(topology.v_starts[b])
        n = int(topology.q_starts[b + 1]) - k
        x, x0, stiffness = q[k : k + n], model.rest[k : k + n], model.stiffness[d]
        gap = (x - x0)[: 3 if n == 7 else n if n == 1 else 0]
        energy = jnp.sum(gap * gap)
        if n in (4, 7):
            one, two = (so3.quat_normalize(y[-4:]) for y in (x, x0))
            turn = so3.quat_log(so3.quat_multiply(so3.quat_conjugate(two), one))
            energy = energy + so3.dot(turn, turn)
        total = total + 0.5 * stiffness * energy
    return total


def chain_quaternion(model: Model, q: Float[Array, " nq"], body: int) -> Float[Array, "4"]:
    """The orientation of a body as the product of the quaternions of its joints.

    It is a continuous function of q, also over full turns.
    """
    topology = model.topology
    chain, b = [], body
    while b >= 0:
        chain.append(b)
        b = int(topology.parents[b])
    quat = jnp.array([1.0, 0.0, 0.0, 0.0], q.dtype)
    for b in reversed(chain):
        k, end = int(topology.q_starts[b]), int(topology.q_starts[b + 1])
        quat = so3.quat_multiply(quat, so3.quat_from_matrix(model.placement_R[b]))
        if topology.kinds[b] == "revolute":
            half = 0.5 * q[k]
            own = jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * so3.unit(model.axis[b])])
        elif end - k >= 4:
            own = so3.quat_normalize(q[end - 4 : end])
        else:
            continue
        quat = so3.quat_multiply(quat, own)
    return quat


def _axis(k: int) -> Callable:
    def read(w: _World, s: Sensor, _: int) -> Array:
        axis = w.frame(s.frame)[1][:, k]
        return axis if s.reference < 0 else so3.rotate_inverse(w.frame(s.reference)[1], axis)

    return read


def _position(w: _World, s: Sensor, _: int) -> Array:
    p = w.frame(s.frame)[2]
    if s.reference < 0:
        return p
    _, R0, p0 = w.frame(s.reference)
    return so3.rotate_inverse(R0, p - p0)


def _orientation(w: _World, s: Sensor, _: int) -> Array:
    quat = w.quaternion(s.frame)
    if s.reference < 0:
        return quat
    return so3.quat_multiply(so3.quat_conjugate(w.quaternion(s.reference)), quat)


def _of_tendon(w: _World, s: Sensor) -> Array:
    a = w.scene.actuators
    own = [i for i, k in enumerate(a.trntype) if k == "tendon" and a.trnid[i] == s.target]
    return jnp.sum(w.actuator_force[np.array(own, dtype=np.int32)])


def _local(w: _World, s: Sensor, x: Array) -> Array:
    """A vector of the world in the axes of the frame of a sensor."""
    return so3.rotate_inverse(w.frame(s.frame)[1], x)


KINDS: dict[str, Callable[[_World, Sensor, int], Array]] = {
    "jointpos": lambda w, s, _: w.q[s.place],
    "jointvel": lambda w, s, _: w.v[s.dof],
    "jointactuatorfrc": lambda w, s, _: w.joint_force[s.dof],
    "ballquat": lambda w, s, _: so3.quat_normalize(w.q[s.place : s.place + 4]),
    "ballangvel": lambda w, s, _: w.v[s.dof : s.dof + 3],
    "tendonpos": lambda w, s, _: w.driven.tendons.length[s.target],  # type: ignore
    "tendonvel": lambda w, s, _: w.driven.tendons.speed(w.v)[s.target],  # type: ignore
    "tendonactuatorfrc": lambda w, s, _: _of_tendon(w, s),
    "actuatorpos": lambda w, s, _: w.transmissions.length[s.target],
    "actuatorvel": lambda w, s, _: jnp.sum(w.transmissions.moment[s.target] * w.v),
    "actuatorfrc": lambda w, s, _: w.actuator_force[s.target],
    "jointlimitpos": lambda w, s, _: w.joint_limit(s)[0],
    "jointlimitvel": lambda w, s, _: w.joint_limit(s)[1],
    "jointlimitfrc": lambda w, s, _: w.joint_limit(s)[2],
    "tendonlimitpos": lambda w, s, _: w.tendon_limit(s)[0],
    "tendonlimitvel": lambda w, s, _: w.tendon_limit(s)[1],
    "tendonlimitfrc": lambda w, s, _: w.tendon_limit(s)[2],
    "framepos": _position,
    "framequat": _orientation,
    "framexaxis": _axis(0),
    "frameyaxis": _axis(1),
    "framezaxis": _axis(2),
    "framelinvel": lambda w, s, _: w.relative(s)[1],
    "frameangvel": lambda w, s, _: w.relative(s)[0],
    "framelinacc": lambda w, s, _: w.acceleration(s.frame)[1],
    "frameangacc": lambda w, s, _: w.acceleration(s.frame)[0],
    "gyro": lambda w, s, _: _local(w, s, w.velocity(s.frame)[0]),
    "velocimeter": lambda w, s, _: _local(w, s, w.velocity(s.frame)[1]),
    "accelerometer": lambda w, s, _: _local(w, s, w.acceleration(s.frame)[1]),
    "magnetometer": lambda w, s, _: _local(w, s, w.sensors.magnetic),
    "force": lambda w, s, _: w.interaction(s)[0],
    "torque": lambda w, s, _: w.interaction(s)[1],
    "contact": lambda w, s, _: w.contact(s),
    "touch": lambda w, s, k: w.touch(s, k),
    "subtreecom": lambda w, s, _: w.subtree(s)[0],
    "subtreelinvel": lambda w, s, _: w.subtree(s)[1],
    "subtreeangmom": lambda w, s, _: w.subtree(s)[2],
    "e_potential": lambda w, s, _: w.potential(s),
    "e_kinetic": lambda w, s, _: w.kinetic(),
    "clock": lambda w, s, _: w.t,
}
"""The kinds of sensors, by their names in MJCF."""


def _quadric(at: Array, way: Array, keep: Array) -> tuple[Array, Array, Array]:
    """The interval of a line in a unit sphere, or in a unit cylinder along the axes not kept."""
    a, b = jnp.sum(keep * way * way), jnp.sum(keep * at * way)
    c = jnp.sum(keep * at * at) - 1
    left = b * b - a * c
    some = (left >= 0) & (a > 0)
    root = jnp.sqrt(jnp.where(some, left, 0))
    over = jnp.where(a > 0, a, 1)
    far = jnp.where((a > 0) | (c > 0), 0, jnp.inf)
    inside = some | ((a <= 0) & (c <= 0))
    low = jnp.where(a > 0, (-b - root) / over, -far)
    return inside, low, jnp.where(a > 0, (-b + root) / over, far)


def _slab(x: Array, way: Array, half: Array) -> tuple[Array, Array, Array]:
    """The interval of a line between two planes."""
    flat = way == 0
    safe = jnp.where(flat, 1, way)
    one, two = (-half - x) / safe, (half - x) / safe
    low, high = jnp.minimum(one, two), jnp.maximum(one, two)
    within = ~flat | (jnp.abs(x) <= half)
    return within, jnp.where(flat, -jnp.inf, low), jnp.where(flat, jnp.inf, high)


def _both(*parts: tuple[Array, Array, Array]) -> Array:
    """Whether a ray meets the intersection of several regions."""
    low = jnp.stack([x[1] for x in parts]).max()
    high = jnp.stack([x[2] for x in parts]).min()
    return jnp.stack([x[0] for x in parts]).all() & (low <= high) & (high >= 0)


def _meets_ellipsoid(size: Array, at: Array, way: Array) -> Array:
    return _both(_quadric(at / size, way / size, jnp.ones_like(at)))


def _meets_sphere(size: Array, at: Array, way: Array) -> Array:
    return _meets_ellipsoid(jnp.broadcast_to(size[0], (3,)), at, way)


def _meets_box(size: Array, at: Array, way: Array) -> Array:
    return _both(*(_slab(at[k], way[k], size[k]) for k in range(3)))


def _meets_cylinder(size: Array, at: Array, way: Array) -> Array:
    flat = jnp.array([1.0, 1.0, 0.0], at.dtype)
    round_ = _quadric(at / size[0], way / size[0], flat)
    return _both(round_, _slab(at[2], way[2], size[1]))


def _meets_capsule(size: Array, at: Array, way: Array) -> Array:
    end = jnp.array([0.0, 0.0, 1.0], at.dtype) * size[1]
    caps = [_meets_sphere(size, at - s * end, way) for s in (1.0, -1.0)]
    return caps[0] | caps[1] | _meets_cylinder(size, at, way)


MEETS = {
    "sphere": _meets_sphere, "ellipsoid": _meets_ellipsoid, "box": _meets_box,
    "cylinder": _meets_cylinder, "capsule": _meets_capsule,
}  # fmt: skip
"""Whether the ray from a point along a direction meets a shape, all in the shape's frame."""
