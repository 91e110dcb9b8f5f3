"""Closed loops of real legs, Minitaur's and one like Cassie's, against their closed forms.

The oracle knows no constraints: a closed form gives the configuration of all joints for independent
coordinates u, and Lagrange's equations in u are solved with its Jacobian by autodiff.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import within

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.spatial import so3

Y, Z = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
UPPER, LOWER = 0.1, 0.2  # lengths of Minitaur's links (m)
LEGS = {"lf": (0.23, 0.14), "rf": (0.23, -0.14), "lr": (-0.23, 0.14), "rr": (-0.23, -0.14)}  # m


def bar(name, mass, along):
    """A thin bar from the joint to the point ``along``."""
    length = float(np.linalg.norm(along))
    x = np.asarray(along) / length
    inertia = mass * length**2 / 12 * (np.eye(3) - np.outer(x, x)) + 1e-6 * np.eye(3)
    return rbd.LinkSpec(name, mass, np.asarray(along) / 2, inertia)


def accelerations(model, posture, u, du, tau):
    """``ü`` and the accelerations of all joints, by Lagrange's equations in u."""

    def velocity(u, du):
        q, rate = jax.jvp(posture, (u,), (du,))
        return rbd.velocity_from_rate(model, q, rate)

    q, v = posture(u), velocity(u, du)
    phi = jax.jacfwd(lambda du: velocity(u, du))(du)
    still = jax.jvp(lambda u: velocity(u, du), (u,), (du,))[1]
    force = lambda a: phi.T @ (rbd.inverse_dynamics(model, q, v, a) - tau)  # noqa: E731
    mass = phi.T @ rbd.mass_matrix(model, q) @ phi
    ddu = -jnp.linalg.solve(mass, force(still))
    return ddu, q, v, phi @ ddu + still


# --- Minitaur -------------------------------------------------------------------


@cache
def minitaur():
    """A trunk on four legs of five bars; both motors of a leg turn about the same axis."""
    trunk = rbd.LinkSpec("trunk", 3.0, np.zeros(3), np.diag([0.02, 0.05, 0.06]))
    links, loops = [rbd.LinkSpec("world_link"), trunk], []
    joints = [rbd.JointSpec("trunk", "free", "world_link", "trunk")]
    for leg, (x, y) in LEGS.items():
        for side in "ab":
            upper, lower = f"{leg} upper {side}", f"{leg} lower {side}"
            links += [bar(upper, 0.1, [0, 0, -UPPER]), bar(lower, 0.15, [0, 0, -LOWER])]
            joints += [
                rbd.JointSpec(f"{leg} motor {side}", "revolute", "trunk", upper,
                              p=np.array([x, y, 0]), axis=Y, armature=1e-3),
                rbd.JointSpec(f"{leg} knee {side}", "revolute", upper, lower,
                              p=np.array([0, 0, -UPPER]), axis=Y),
            ]  # fmt: skip
    spec = rbd.RobotSpec("minitaur", tuple(links), tuple(joints))
    model = rbd.build_model(spec)
    tip = [0, 0, -LOWER]
    for leg in LEGS:
        ends = f"{leg} lower a", f"{leg} lower b"
        loops.append(constraints.point(model, *ends, offset=tip, at=tip, name=leg))
    return model, constraints.join(*loops)


def leg_angles(motors):
    """Angles of (motor a, knee a, motor b, knee b): the foot lies between the upper links."""
    half = (motors[0] - motors[1]) / 2
    knee = -jnp.arcsin(UPPER * jnp.sin(half) / LOWER) - half
    return jnp.stack([motors[0], knee, motors[1], -knee])


def reach(motors):
    """The length of a leg, from the axis of its motors to its foot (m)."""
    half = (motors[0] - motors[1]) / 2
    return UPPER * jnp.cos(half) + jnp.sqrt(LOWER**2 - (UPPER * jnp.sin(half)) ** 2)


def minitaur_posture(model, u):
    """From the place of the trunk (3), its rotation vector (3) and two motors a leg (8)."""
    q = jnp.concatenate([u[:3], so3.quat_exp(u[3:6]), jnp.zeros(16)])
    for k, leg in enumerate(LEGS):
        places = [model.q_slice(f"{leg} {part} {side}").start
                  for side in "ab" for part in ("motor", "knee")]  # fmt: skip
        q = q.at[np.array(places)].set(leg_angles(u[6 + 2 * k : 8 + 2 * k]))
    return q


STANCE = jnp.concatenate([jnp.array([0, 0, 0.2, 0, 0, 0]), jnp.tile(jnp.array([1.8, -1.8]), 4)])


@pytest.mark.slow
def test_legs_of_minitaur_move_by_lagranges_equations():
    """A tumbling robot, loops in a plane each, so that one row of three depends on others."""
    model, loops = minitaur()
    rng = np.random.default_rng(0)
    u = STANCE + 0.3 * jnp.asarray(rng.normal(size=14))
    du, tau = jnp.asarray(rng.normal(size=14)), jnp.asarray(rng.normal(size=22))

    def compare(u, du, tau):
        posture = lambda u: minitaur_posture(model, u)  # noqa: E731
        _, q, v, a = accelerations(model, posture, u, du, tau)
        found = constraints.constrained_dynamics(model, q, v, tau, loops)
        gap = constraints.residual(model, q, loops), constraints.velocity(model, q, v, loops)
        return a, found, gap

    a, found, gap = quick_jit(compare)(u, du, tau)
    np.testing.assert_allclose(jnp.stack(gap), 0, atol=within(1e-14, 1e-6))
    tol = within(1e-9, 1e-4)
    np.testing.assert_allclose(found.a, a, rtol=tol, atol=tol * float(jnp.abs(a).max()))
    sideways = found.forces.reshape(4, 3) @ so3.quat_to_matrix(so3.quat_exp(u[3:6]))[:, 1]
    np.testing.assert_allclose(
        sideways, 0, atol=tol * float(jnp.abs(found.forces).max())
    )  # the least norm of what is not determined


@pytest.mark.slow
@pytest.mark.float64
def test_minitaur_stands_on_its_feet_by_virtual_work():
    """Torques are the slope of the weight's energy; flat loops have rows that nothing moves.

    Upright, the rows out of the planes of the loops are pure rounding, of 1e-17.
    """
    model, loops = minitaur()
    q = minitaur_posture(model, STANCE)
    feet = [constraints.point(model, f"{leg} lower a", offset=[0, 0, -LOWER]) for leg in LEGS]
    held = constraints.join(loops, *feet)

    def hold(u):
        def weight(motors):  # legs that all move alike keep the trunk level
            u = STANCE.at[2].set(jax.vmap(reach)(motors.reshape(4, 2)).mean()).at[6:].set(motors)
            return rbd.potential_energy(model, minitaur_posture(model, u))

        slope = jax.grad(weight)(u[6:])
        places = [model.v_slice(f"{leg} motor {side}").start for leg in LEGS for side in "ab"]
        tau = jnp.zeros(22).at[np.array(places)].set(slope)
        still = jnp.zeros(22)
        there = constraints.anchored(model, q, held)
        return slope, rbd.constrained_dynamics(model, q, still, tau, there)

    slope, motion = quick_jit(hold)(STANCE)
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(motion.a, 0, atol=1e-9)
    mass = float(np.sum(np.asarray(model.inertia)[:, 0]))
    lift = np.asarray(motion.forces)[12:].reshape(4, 3).sum(axis=0)
    np.testing.assert_allclose(lift, [0, 0, 9.81 * mass], atol=1e-8)


# --- a leg like Cassie's --------------------------------------------------------

KNEE, SHIN, ANKLE = np.array([0.12, 0.0]), np.array([0.06, 0.047]), np.array([0.435, 0.02])  # m
HEEL, END = np.array([-0.013, -0.03]), np.array([0.119, -0.01])  # on the tarsus, on the heel (m)
ROD, SIDE = 0.5012, 0.045  # length of the rod, and how far its upper end lies beside the leg (m)


@cache
def leg():
    """Hip, knee, shin and heel with springs, tarsus; a rod on a ball joint from hip to heel."""
    flat = lambda p: np.array([p[0], p[1], 0.0])  # noqa: E731
    links = (
        rbd.LinkSpec("pelvis"),
        bar("thigh", 1.5, flat(KNEE)),
        bar("knee link", 0.8, flat(SHIN)),
        bar("shin", 0.6, flat(ANKLE)),
        bar("tarsus", 0.8, [0.408, -0.04, 0.0]),
        bar("heel", 0.13, flat(END)),
        bar("rod", 0.17, [ROD, 0, 0]),
    )
    hinge = lambda name, parent, child, p, **more: rbd.JointSpec(  # noqa: E731
        name, "revolute", parent, child, p=flat(p), axis=Z, **more
    )
    joints = (
        hinge("hip", "pelvis", "thigh", (0, 0)),
        hinge("knee", "thigh", "knee link", KNEE, armature=0.05),
        hinge("shin spring", "knee link", "shin", SHIN, stiffness=1500.0),
        hinge("ankle", "shin", "tarsus", ANKLE),
        hinge("heel spring", "tarsus", "heel", HEEL, stiffness=1250.0),
        rbd.JointSpec("rod", "spherical", "thigh", "rod", p=np.array([0, 0, SIDE])),
    )
    spec = rbd.RobotSpec("leg", links, joints)
    model = rbd.build_model(spec, gravity=(9.81, 0.0, 0.0))
    loop = constraints.point(model, "rod", "heel", offset=[ROD, 0, 0], at=flat(END))
    return model, loop


def turned(angle, p):
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * p[0] - s * p[1], s * p[0] + c * p[1]])


def leg_posture(model, u):
    """From (hip, knee, shin spring, heel spring, spin of the rod): two circles meet at the heel."""
    hip, knee, shin, heel, spin = u
    lower = knee + shin
    ankle = KNEE + turned(knee, SHIN) + turned(lower, ANKLE)
    arm = HEEL + turned(heel, END)  # from the ankle to the end of the rod, in the tarsus
    d2, a2 = jnp.sum(ankle**2), jnp.sum(arm**2)
    between = jnp.arccos((d2 + a2 - (ROD**2 - SIDE**2)) / (2 * jnp.sqrt(d2 * a2)))
    way = jnp.arctan2(-ankle[1], -ankle[0]) + between  # of the arm, seen from the thigh
    tarsus = way - jnp.arctan2(arm[1], arm[0]) - lower
    end = ankle + jnp.sqrt(a2) * jnp.stack([jnp.cos(way), jnp.sin(way)])
    axes = (Z, jnp.arctan2(end[1], end[0])), (Y, jnp.arcsin(SIDE / ROD)), (np.eye(3)[0], spin)
    rod = jnp.array([1.0, 0.0, 0.0, 0.0])
    for axis, angle in axes:
        rod = so3.quat_multiply(rod, so3.quat_exp(angle * jnp.asarray(axis)))
    q = rbd.neutral(model)
    parts = {"hip": hip, "knee": knee, "shin spring": shin, "ankle": tarsus, "heel spring": heel,
             "rod": rod}  # fmt: skip
    for name, value in parts.items():
        q = q.at[model.q_slice(name)].set(value)
    return q


BENT = jnp.array([0.4, -1.6, 0.02, -0.03, 0.7])


@pytest.mark.slow
@pytest.mark.float64
def test_a_leg_like_cassies_moves_by_lagranges_equations():
    model, loop = leg()
    rng = np.random.default_rng(1)
    du, tau = jnp.asarray(rng.normal(size=5)), jnp.asarray(5 * rng.normal(size=model.nv))

    def compare(du, tau):
        posture = lambda u: leg_posture(model, u)  # noqa: E731
        _, q, v, a = accelerations(model, posture, BENT, du, tau)
        found = rbd.constrained_dynamics(model, q, v, tau, loop)
        gap = constraints.residual(model, q, loop), constraints.velocity(model, q, v, loop)
        return a, found.a, jnp.stack(gap)

    a, found, gap = quick_jit(compare)(du, tau)
    np.testing.assert_allclose(gap, 0, atol=1e-14)
    np.testing.assert_allclose(found, a, rtol=1e-9, atol=1e-9 * float(jnp.abs(a).max()))


@pytest.mark.slow
def test_the_ankle_of_a_leg_like_cassies_follows_its_knee():
    """With locked springs the rod leaves one ankle for each knee: projection finds it."""
    model, loop = leg()
    locks = [constraints.lock(model, f"{x} spring") for x in ("shin", "heel")]

    def follow(knee):
        wanted = leg_posture(model, jnp.array([0.4, 0.0, 0.0, 0.0, 0.7]).at[1].set(knee))
        held = constraints.join(loop, *locks, constraints.lock(model, "knee", knee))
        start = leg_posture(model, BENT.at[1].add(0.1))
        found = constraints.project(model, start, jnp.zeros(model.nv), held, 8)
        ankle = model.q_slice("ankle")
        return found.q[ankle], wanted[ankle], found.result

    found, wanted, result = quick_jit(jax.vmap(follow))(jnp.array([-1.7, -1.5, -1.3]))
    assert bool(jnp.all(result == constraints.RESULTS.successful))
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert np.ptp(wanted) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "integrator, project, budget",
    [("rk4", True, 2e-3), (rbd.simulate.GeneralizedAlpha(1.0, level="position"), False, 0.03)],
    ids=["rk4", "position_level"],
)
def test_a_leg_like_cassies_swings_on_stiff_springs(integrator, project, budget):
    """The loop stays closed for a second, and the order says how well energy is kept (J)."""
    model, loop = leg()
    q0, zero = leg_posture(model, BENT), jnp.zeros(model.nv)
    plant = rbd.simulate.ConstrainedRobot(model, integrator, constraints=loop, project=project)

    def energy(q, v):
        kinetic = rbd.kinetic_energy(model, q, v)
        return kinetic + rbd.potential_energy(model, q), kinetic

    def run(dt):
        path = rbd.rollout(plant, q0, zero, jnp.zeros((2000, model.nv)), dt)
        gap = jax.vmap(lambda q: constraints.residual(model, q, loop))(path.q)
        return gap, jax.vmap(energy)(path.q, path.v), path.q

    gap, (energies, kinetic), q = jax.jit(run)(jnp.asarray(5e-4))
    np.testing.assert_allclose(gap, 0, atol=1e-12)
    assert np.ptp(np.asarray(q)[:, 1]) > 0.3  # the knee moves
    print("energies", np.abs(energies - energies[0]).max(), "of", np.ptp(np.asarray(kinetic)))
    np.testing.assert_allclose(energies, energies[0], rtol=0, atol=budget)
