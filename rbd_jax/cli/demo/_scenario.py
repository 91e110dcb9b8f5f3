"""The motion of the demo: a robot is thrown into a somersault, or an arm swings and returns."""

import re
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import rbd_jax as rbd

from ...model import Model
from ...model.coordinates import independent_dofs

DT = 0.005
SPEED = 18.0  # bandwidth of the joint controllers, rad/s
POSTURES = {  # joint name pattern: (stretched, tucked), rad
    r"arm_left_1_": (-0.2, -0.3), r"arm_right_1_": (0.2, 0.3),
    r"arm_left_2_": (2.3, 0.9), r"arm_right_2_": (-2.3, -0.9),
    r"arm_left_4_|arm_right_4_": (-0.4, -1.8),
    r"leg_(left|right)_3_": (0.0, -1.9), r"leg_(left|right)_4_": (0.05, 2.2),
    r"leg_(left|right)_5_": (0.0, -0.3), r"torso_2_": (0.0, 0.6),
    r"[lr]f_hfe": (0.35, 1.2), r"[lr]f_kfe": (-0.7, -2.3),
    r"[lr]h_hfe": (-0.35, -1.2), r"[lr]h_kfe": (0.7, 2.3),
}  # fmt: skip


class Scenario(NamedTuple):
    """A robot, its initial state, a motion of its joints, and the controller that follows it."""

    model: Model
    q0: Float[Array, " nq"]
    v0: Float[Array, " nv"]
    move: Float[Array, " nv"]
    """Tangent from the stretched posture to the tucked posture."""
    inertia: Float[Array, " nv"]
    """Inertia that each motor moves while the other joints are locked: the controller's gain."""
    driven: Float[Array, " nv"]
    """1 for a degree of freedom with a motor, 0 for the floating base."""
    duration: Float[Array, ""]

    @property
    def floating(self) -> bool:
        """Whether the robot has a floating base."""
        return self.model.topology.kinds[0] == "free"


def prepare(model: Model, steps: int) -> Scenario:
    """Postures, gains and initial velocity for any robot.

    Joints whose names are in ``POSTURES`` get the postures listed there.
    """
    floating = model.topology.kinds[0] == "free"
    driven = np.ones(model.nv)
    driven[: 6 if floating else 0] = 0.0
    q0, tucked = _postures(model)
    move = np.asarray(rbd.difference(model, q0, tucked)) * driven
    M = np.asarray(rbd.crba(model, q0), dtype=np.float64)
    M_motors = np.diag(M) * driven
    # the inertia of geared rotors, which URDF files do not contain
    rotor = driven * (0.15 * M_motors + 0.01 * M_motors.max())
    own, free = independent_dofs(model)
    model = eqx.tree_at(
        lambda m: (m.armature, m.damping),
        model,
        (model.armature.at[own].add(jnp.asarray(rotor[free], model.dtype)), 0.0 * model.damping),
    )
    inertia = np.diag(M) + rotor
    zero = jnp.zeros((model.nv,), model.dtype)
    arrays = (jnp.asarray(x, model.dtype) for x in (move, inertia, driven, steps * DT))
    s = Scenario(model, q0, zero, *arrays)
    return _throw(s) if floating else s


def _postures(model: Model):
    """The stretched and the tucked configuration.

    A robot whose joint names are not in ``POSTURES`` gets moderate joint angles.
    """
    q = np.asarray(rbd.neutral(model), dtype=np.float64)
    low, high = np.asarray(model.position_lower), np.asarray(model.position_upper)
    stretched, tucked = q.copy(), q.copy()
    known = any(re.search(p, n) for p in POSTURES for n in model.space.joint_names)
    for i, name in enumerate(model.space.joint_names):
        at = model.q_slice(name)
        if at.stop - at.start != 1:
            continue
        pair = next((v for p, v in POSTURES.items() if re.search(p, name)), None)
        if pair is None:
            pair = (0.0, 0.0) if known else (0.3, 0.3 + 0.8 * np.sin(2.0 * i + 1.0))
        stretched[at], tucked[at] = (np.clip(x, low[at], high[at]) for x in pair)
    return jnp.asarray(stretched, model.dtype), jnp.asarray(tucked, model.dtype)


def _throw(s: Scenario) -> Scenario:
    """Initial velocity with which the robot lands after ``duration`` and has nearly turned once.

    The pitch rate follows from the conserved angular momentum L. The robot turns by ∫ L / I(t) dt.
    """
    model, T = s.model, s.duration
    pitch = jnp.zeros((model.nv,), model.dtype).at[1].set(1.0)

    def inertia(t):
        q = rbd.integrate(model, s.q0, phase(s, t)[0] * s.move)
        return rbd.centroidal_momentum(model, q, pitch)[1]

    I = jax.jit(jax.vmap(inertia))(jnp.linspace(0.0, 1.0, 65).astype(model.dtype) * T)
    turn = 0.93 * 2 * np.pi * jnp.minimum(T, 1.0)
    rate = turn / (T * jnp.mean(I[0] / I))
    g = jnp.linalg.norm(model.gravity)
    launch = jnp.stack([1.6 * jnp.ones_like(T), jnp.zeros_like(T), 0.5 * g * T])
    offset = rbd.center_of_mass(model, s.q0) - s.q0[:3]
    omega = rate * pitch[:3]
    omega = omega.at[1].set(rate)
    v0 = s.v0.at[:3].set(omega).at[3:6].set(launch - jnp.cross(omega, offset))
    lowest = jnp.min(rbd.forward_kinematics(model, s.q0)[1][:, 2])
    return s._replace(v0=v0, q0=s.q0.at[2].add(-lowest))


def phase(s: Scenario, t):
    """How far the robot is tucked at time t, from 0 to 1 and back, and the rate (1/s).

    The transitions are polynomials of fifth order.
    """

    def step(a, b):
        x = jnp.clip((t / s.duration - a) / (b - a), 0.0, 1.0)
        rate = 30 * x**2 * (1 - x) ** 2 / ((b - a) * s.duration)
        return x**3 * (10 - 15 * x + 6 * x**2), rate

    (up, up_rate), (down, down_rate) = step(0.05, 0.35), step(0.6, 0.92)
    return up - down, up_rate - down_rate


def rollout(s: Scenario, q0, v0, u: Float[Array, "T nv"]) -> rbd.simulate.Trajectory:
    """Simulate the robot under a PD controller that follows the motion, plus the torques ``u``."""
    model = s.model

    def policy(t, q, v):
        k = jnp.round(t / DT).astype(jnp.int32)
        amount, rate = phase(s, t)
        target = rbd.integrate(model, s.q0, amount * s.move)
        error = rbd.difference(model, q, target)
        a = SPEED**2 * error + 2 * SPEED * (rate * s.move - v)
        return s.driven * (s.inertia * a + u[k])

    return rbd.rollout(model, q0, v0, policy, DT, steps=u.shape[0], integrator=midpoint)


def midpoint(model: Model, acceleration, t, q, v, dt):
    """A step of the midpoint rule on the manifold, of order 2. The dynamics are compiled once."""

    def stage(at, h):
        a = acceleration(t, *at)
        return (rbd.integrate(model, q, h * at[1]), v + h * a), None

    return jax.lax.scan(stage, (q, v), jnp.stack([0.5 * dt, dt]))[0]


def tip(model: Model, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Center of mass, in the world (m), of the body that is most joints away from the root."""
    last = int(np.argmax(model.topology.tree.depths))
    R, p = rbd.forward_kinematics(model, q)
    mass, moment = model.inertia[last, 0], model.inertia[last, 1:4]
    return p[last] + jnp.sum(R[last] * moment[None], axis=1) / mass


def cost(s: Scenario, u: Float[Array, "T nv"]) -> tuple[Float[Array, ""], rbd.simulate.Trajectory]:
    """Error at the end, plus a small cost of the torques.

    For a thrown robot the error is its distance from upright, for an arm the distance of its tip
    from a target.
    """
    traj = rollout(s, s.q0, s.v0, u)
    if s.floating:
        R = rbd.forward_kinematics(s.model, traj.q[-1])[0]
        miss = 1.5 - 0.5 * jnp.trace(R[0])  # 1 − cos of the angle between the base and upright
    else:
        target = tip(s.model, s.q0) + 0.1
        miss = jnp.sum((tip(s.model, traj.q[-1]) - target) ** 2)
    return miss + 1e-6 * jnp.mean(u * u), traj


def scatter(s: Scenario, batch: int, key) -> tuple[Array, Array, Array]:
    """Inertias and initial states of ``batch`` robots with different masses and velocities."""
    model = s.model
    a, b, c = jax.random.split(key, 3)
    grow = jnp.exp(0.08 * jax.random.normal(a, (batch, model.nb, 1), model.dtype))
    masses = model.inertia[None] * grow
    spread = np.full(model.nv, 0.8)
    if s.floating:
        spread[:] = 0.0
        spread[:6] = 0.15, 0.25, 0.15, 0.25, 0.25, 0.2
    noise = jax.random.normal(b, (batch, model.nv), model.dtype)
    v0 = s.v0[None] + jnp.asarray(spread, model.dtype)[None] * noise
    return masses, jnp.broadcast_to(s.q0, (batch, model.nq)), v0


DRIFTS = ("energy minus work of the motors", "linear momentum", "angular momentum")
HEADLINES = ("rotation (°)", "distance of the tip from its start (m)")


def drifts(model: Model, traj: rbd.simulate.Trajectory, points: int = 20) -> tuple[Array, ...]:
    """Relative errors of the conserved quantities.

    These are the energy minus the work of the motors, and the linear and angular momentum minus
    their initial values and the part of gravity. They are computed at ``points`` times, one after
    the other, which keeps the memory of a batch small.
    """
    at = sampled(traj.controls.shape[0], points)

    def one(k):
        q, v = traj.q[k], traj.v[k]
        kinetic = rbd.kinetic_energy(model, q, v)
        return kinetic, rbd.potential_energy(model, q), rbd.centroidal_momentum(model, q, v)

    T, V, h = jax.lax.map(one, jnp.asarray([0, *at]))
    power = jnp.sum(traj.controls * 0.5 * (traj.v[1:] + traj.v[:-1]), axis=-1)
    work = DT * jnp.cumsum(power)[at - 1]
    energy = (T + V - (T + V)[0])[1:] - work
    energy = energy / (jnp.max(T) + jnp.finfo(T.dtype).tiny)
    if model.topology.kinds[0] != "free":
        return (energy,)
    fall = rbd.total_mass(model) * model.gravity[None] * traj.t[at][:, None]
    size = lambda x: jnp.sqrt(jnp.sum(x * x, axis=-1))  # noqa: E731
    linear = size(h[1:, 3:] - h[:1, 3:] - fall) / size(h[0, 3:])
    return energy, linear, size(h[1:, :3] - h[:1, :3]) / size(h[0, :3])


def sampled(steps: int, points: int = 20) -> np.ndarray:
    """The steps after which :func:`drifts` computes the errors."""
    return np.unique(np.linspace(1, steps, points).astype(int))


def landmark(s: Scenario, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """The point whose path is drawn: the center of mass of a floating robot, the tip of an arm."""
    if s.floating:
        return rbd.center_of_mass(s.model, q)
    return tip(s.model, q)


@jax.jit
def _landmarks(s: Scenario, q: Float[Array, "B T nq"]):
    return jax.lax.map(jax.vmap(lambda x: landmark(s, x)), q)


def landmarks(s: Scenario, q: np.ndarray) -> np.ndarray:
    """The paths of :func:`landmark` for a batch of trajectories, (B, T+1, 3)."""
    return np.asarray(_landmarks(s, jnp.asarray(q)))


def headline(s: Scenario, q: np.ndarray) -> np.ndarray:
    """One curve for each robot: its rotation (°), or the distance of its tip from the start (m)."""
    if s.floating:
        w, y = q[..., 3], q[..., 5]
        return np.degrees(np.unwrap(2 * np.arctan2(y, w), axis=1))
    points = landmarks(s, q)
    return np.linalg.norm(points - points[:, :1], axis=-1)
