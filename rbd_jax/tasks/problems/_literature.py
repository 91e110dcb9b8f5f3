"""A public problem set for solvers: problems that papers and other libraries define.

Each has many starts, of which the first is that of its source; the others are disturbed by uniform
noise that is the same on every machine. ``python -m benchmarks problems`` solves all of them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.crba import mass_matrix
from ...algorithms.kinematics import forward_kinematics, frame_placement
from ...algorithms.torques import gravity_torque
from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...io import build_model, example_robot, load_urdf, samples
from ...model import JointSpec, LinkSpec, Model, RobotSpec, difference, neutral
from ...optimize import Constraint, Problem, StateCost
from ...simulate import rollout
from ...spatial import se3
from ._contact_implicit import acrobot_stops, cart_pole_friction, push_obstacle
from ._smooth import cart_pole, double_pendulum, quadrotor, reach, reorient
from ._task import Task
from ._trials import Trials, disturbed


def _lqr(model: Model, goal, run, end, effort) -> tuple[StateCost, StateCost]:
    """Quadratic costs of the distance to a state at rest; weights as in ``½ xᵀ Q x``."""
    array = lambda w, n: jnp.asarray(np.full(n, np.sqrt(w)), model.dtype)  # noqa: E731
    nv, goal = model.nv, jnp.asarray(goal, model.dtype)
    stage = StateCost(goal, array(run, nv), array(run, nv), array(effort[0], effort[1]))
    return stage, StateCost(goal, array(end, nv), array(end, nv))


def _at_rest(goal) -> Constraint:
    """The last state is the goal, at rest."""
    target = np.asarray(goal, float)

    def error(model, q, v):
        return jnp.concatenate([difference(model, jnp.asarray(target, q.dtype), q), v])

    return Constraint(error, "goal", equality=True, at="final")


def double_integrator(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Move 1 kg by 1 m on a rail in 2 s, from rest to rest, with at most 1.5 N.

    Source: TrajectoryOptimization.jl, the code of ALTRO's paper (Howell, Jackson, Manchester 2019).
    """
    links = LinkSpec("rail"), LinkSpec("mass", 1.0, np.zeros(3), 0.1 * np.eye(3))
    joint = JointSpec("slide", "prismatic", "rail", "mass", axis=np.eye(3)[0])
    model = build_model(RobotSpec("double_integrator", links, (joint,)), dtype=dtype)
    costs = _lqr(model, [1.0], 1.0, 1.0, (0.1, 1))
    problem = Problem(model, *costs, 0.1, 20, None, -1.5, 1.5)
    return disturbed(problem, [0.0], 0.0, (_at_rest([1.0]),), (0.1, 0.1, 0.5), starts, seed)


def pendulum(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing a damped pendulum up and hold it after 4.5 s, with at most 3 N m.

    Source: as :func:`double_integrator`. Its inertia about the hinge, 0.25 kg m², is that of a
    point mass at the end.
    """
    bob = LinkSpec("bob", 1.0, np.array([0, 0, -0.5]))
    hinge = JointSpec("hinge", "revolute", "base", "bob", axis=np.eye(3)[1], damping=0.1)
    spec = RobotSpec("damped_pendulum", (LinkSpec("base"), bob), (hinge,))
    model = build_model(spec, dtype=dtype)
    costs = _lqr(model, [np.pi], 1e-3, 1e-3, (1e-3, 1))
    problem = Problem(model, *costs, 0.15, 30, None, -3.0, 3.0)
    return disturbed(problem, [0.0], 1.0, (_at_rest([np.pi]),), (0.2, 0.2, 0.5), starts, seed)


def cart_pole_goal(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing the pole of a cart up in 5 s, with at most 3 N.

    Source: as :func:`double_integrator`.
    """
    model = samples.cart_pole(cart=1.0, pole=0.2, length=0.5, dtype=dtype)
    goal = [0.0, np.pi]
    costs = _lqr(model, goal, 1e-2, 100.0, (0.1, 1))
    push = np.array([[1.0], [0.0]])
    problem = Problem(model, *costs, 0.05, 100, push, -3.0, 3.0)
    return disturbed(problem, [0.0, 0.0], 0.01, (_at_rest(goal),), (0.2, 0.2, 0.5), starts, seed)


def acrobot(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing a double pendulum up in 5 s by a torque at its elbow of at most 15 N m.

    Source: as :func:`double_integrator`. Departure: its links are point masses at their ends.
    """
    model, goal = samples.double_pendulum(dtype=dtype), [np.pi, 0.0]
    costs = _lqr(model, goal, 1.0, 100.0, (0.01, 1))
    elbow = np.array([[0.0], [1.0]])
    problem = Problem(model, *costs, 0.05, 100, elbow, -15.0, 15.0)
    return disturbed(problem, [0.0, 0.0], 0.0, (_at_rest(goal),), (0.2, 0.2, 1.0), starts, seed)


def _flyer(name: str, mass: float, inertia, arms, drag: float, dtype) -> tuple[Model, np.ndarray]:
    """A rigid body with rotors at the points ``arms`` (r, 2), and its actuation (6, r)."""
    body = LinkSpec(name, mass, np.zeros(3), np.diag(inertia))
    model = build_model(RobotSpec(name, (body,), ()), floating_base=True, dtype=dtype)
    columns = [[y, -x, (-1) ** k * drag, 0, 0, 1] for k, (x, y) in enumerate(arms)]
    return model, np.transpose(columns)


# centers (x, y) and radii of cylinders, and (x, y, z) of spheres (m)
_CYLINDERS = (0, 10, 3), (10, 30, 3), (-13, 25, 2), (5, 50, 4)
_SPHERES = (0, 40, 5, 2), (-5, 15, 3, 1), (10, 20, 7, 2)


def _outside(points: Array, shape, own) -> Float[Array, " r"]:
    """``(r² − d²) / 2r`` of points to a sphere (x, y, z, r) or a cylinder (x, y, r) about z.

    It is at most zero outside, and near the surface it is the depth (m). ``own`` are the radii of
    the points.
    """
    center, r = np.asarray(shape[:-1], float), shape[-1] + np.asarray(own, float)
    near = points[..., : center.size]
    d = near - jnp.broadcast_to(jnp.asarray(center, points.dtype), near.shape)
    r = jnp.asarray(r, points.dtype)
    return jnp.reshape((r * r - jnp.sum(d * d, axis=-1)) / (2 * r), (-1,))


def quadrotor_obstacles(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Fly a quadrotor 60 m in 5 s between four columns and three balls, from rest to rest.

    Source: as :func:`double_integrator`, its problem ``quad_obs``. Departures: the orientation is
    measured in the tangent space, and the radii of the balls are those of its list.
    """
    arms = 0.175 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    model, B = _flyer("quadrotor", 0.5, [2.3e-3, 2.3e-3, 4e-3], arms, 0.0245, dtype)
    start = np.array(neutral(model), float)
    goal = start.copy()
    start[2] = goal[2] = 10.0
    goal[1] = 60.0
    costs = _lqr(model, goal, 1e-3, 1.0, (1e-2, 4))

    def obstacles(model, q, v):
        return jnp.concatenate([_outside(q[:3], x, 2.0) for x in (*_CYLINDERS, *_SPHERES)])

    def room(model, q, v):
        x, z = q[0], q[2]
        return jnp.stack([x - 25, -25 - x, z - 20, -z]) / 10

    def rest(model, q, v):
        return jnp.concatenate([q[:3] - jnp.asarray(goal[:3], q.dtype), v])

    constraints = (
        Constraint(obstacles, "obstacles", at="states"),
        Constraint(room, "room", at="states"),
        Constraint(rest, "goal", equality=True, at="final"),
    )
    problem = Problem(model, *costs, 0.05, 100, B, 0.0, 50.0)
    return disturbed(problem, start, 0.25 * 0.5 * 9.81, constraints, (0.2, 0.1, 0.1), starts, seed)


def arm_obstacles(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Turn an arm of seven joints by 5 s of motion between three balls and three columns.

    Source: as :func:`double_integrator`, its problem ``kuka_obstacles``. Departures: the arm is
    :func:`rbd_jax.samples.arm`, a little shorter, and the steps are half as long. The first guess
    is not the torque that holds the arm at its start: from there, solvers end where links are deep
    in an obstacle and no small motion brings them out. It comes from a controller that follows a
    path through a posture in the gap between the obstacles.
    """
    model = samples.arm(dtype=dtype)
    start, goal = np.zeros(7), np.zeros(7)
    start[1:4], goal[[0, 3]] = np.pi / 2, np.pi / 2
    one, d = np.ones(7), 0.25
    array = lambda w: jnp.asarray(np.sqrt(w), model.dtype)  # noqa: E731
    target = jnp.asarray(goal, model.dtype)
    stage = StateCost(target, array(one), array(100 * one), array(1e-2 * one))
    final = StateCost(target, array(10 * one), array(10 * one))
    balls = (d, 0, 1.2, 0.2), (0, -d, 0.4, 0.15), (0, -d, 1.2, 0.15)
    columns = (d, -d, 0.08), (d, d, 0.08), (-d, -d, 0.08)
    radii = 0.1, 0.12, 0.09, 0.09, 0.05

    def obstacles(model, q, v):
        R, p = forward_kinematics(model, q)
        tool = p[6] + 0.1 * R[6, :, 2]
        points = jnp.concatenate([p[2:6], tool[None]])  # links 3 to 6, and the tool
        return 10 * jnp.concatenate([_outside(points, x, radii) for x in (*balls, *columns)])

    constraints = Constraint(obstacles, "obstacles", at="states"), _at_rest(goal)
    problem = Problem(model, stage, final, 0.0625, 80)
    between = np.array([-0.235, 0.549, 1.385, 1.358, 0.0, -0.988, -0.13])
    half = 0.5 * problem.dt * problem.steps

    def reference(q0, t):
        first, second = (_smooth_step(t / half - k) for k in (0, 1))
        middle = jnp.asarray(between, q0.dtype)
        return q0 + first * (middle - q0) + second * (target - middle)

    def follow(q0, t, q, v):
        at = lambda t: reference(q0, t)  # noqa: E731
        rate = lambda t: jax.jvp(at, (t,), (jnp.ones_like(t),))[1]  # noqa: E731
        acceleration = jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]
        a = acceleration + 36 * (at(t) - q) + 12 * (rate(t) - v)
        return inverse_dynamics(model, q, v, a)

    trials = disturbed(problem, start, 0.0, constraints, (0.05, 0.05, 0.0), starts, seed)
    return _along(trials, follow)


def _smooth_step(s: Array) -> Array:
    """From 0 to 1 with rates and accelerations of zero at both ends, for s from 0 to 1."""
    s = jnp.clip(s, 0, 1)
    return s**3 * (10 - 15 * s + 6 * s * s)


def _along(trials: Trials, torque: Callable[..., Array]) -> Trials:
    """The trials with first guesses that a controller ``torque(q0, t, q, v)`` gives."""
    problem, model = trials.problem, trials.problem.model
    t = problem.dt * jnp.arange(problem.steps, dtype=model.dtype)

    def torques(q0, v0):
        policy = lambda t, q, v: torque(q0, t, q, v)  # noqa: E731
        path = rollout(model, q0, v0, policy, problem.dt, steps=problem.steps)
        return jax.vmap(policy)(t, path.q[:-1], path.v[:-1])

    guess = jax.jit(jax.vmap(torques))(trials.q0, trials.v0)
    return trials._replace(u=problem.clip(guess))


def pendubot(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing a small double pendulum up in 1 s by a torque at its first joint.

    Source: Crocoddyl's example ``double_pendulum_fwddyn``. The robot is that of the package
    ``example-robot-data``.
    """
    model = load_urdf(example_robot("double_pendulum"), dtype=dtype)
    dt, w = 0.01, np.sqrt([1, 1, 1, 1, 0.1, 0.1])

    def error(q, v):
        r = jnp.concatenate([jnp.sin(q), 1 - jnp.cos(q), v])
        return jnp.asarray(w, q.dtype) * r

    def stage(model, t, q, v, u):
        return jnp.concatenate([np.sqrt(1e-5 / dt) * error(q, v), np.sqrt(1e-4 / dt) * u])

    def final(model, q, v):
        return 10.0 * error(q, v)

    problem = Problem(model, stage, final, dt, 100, np.array([[1.0], [0.0]]))
    return disturbed(problem, [3.14, 0.0], 0.0, (), (0.2, 0.2, 0.1), starts, seed)


def hector(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Fly a quadrotor by 1 m forwards and upwards in 1 s, with thrusts of 0.1 to 5 N.

    Source: Crocoddyl's example ``quadrotor_ubound``, with the mass and inertia of its robot.
    """
    arms = 0.1525 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    inertia = [0.01152, 0.01152, 0.0218]
    model, B = _flyer("hector", 1.477, inertia, arms, 1e-6 / 6.6e-5, dtype)
    start = np.array(neutral(model), float)
    goal = start.copy()
    goal[[0, 2]] = 1.0
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    w_q, w_v = np.sqrt(1e-6 * np.array([1e3] * 3 + [0.1] * 3)), np.full(6, np.sqrt(1e-3))
    rest = StateCost(array(start), array(w_q), array(w_v), array(np.full(4, 1e-3)))
    near = StateCost(array(goal), array(np.full(6, 0.1)), array(np.zeros(6)))
    final = StateCost(array(goal), array(np.full(6, np.sqrt(3.0))), array(np.zeros(6)))

    def stage(model, t, q, v, u):
        return jnp.concatenate([rest(model, t, q, v, u), near(model, q, v)])

    problem = Problem(model, stage, final, 0.03, 33, B, 0.1, 5.0)
    return disturbed(problem, start, 0.25 * 1.477 * 9.81, (), (0.2, 0.2, 0.1), starts, seed)


def kinova_reach(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Bring the hand of a Kinova arm to a pose in 1 s, within its torque limits.

    Source: Crocoddyl's example ``arm_manipulation_fwddyn``. The robot is that of the package
    ``example-robot-data``. Departures: the torques have bounds, the limits of the robot's file. The
    first guess is not zero torque: the limp arm whirls. It comes from a controller that holds it.
    """
    model = load_urdf(example_robot("kinova"), dtype=dtype)
    up, target = np.array([1.5707, 2.618, -1.5707, 3.1415, 2.618, 0.0]), np.array([0.6, 0.2, 0.5])
    w = np.full(6, np.sqrt(0.1))
    rest = StateCost(*(jnp.asarray(x, model.dtype) for x in (up, w, w, w)))

    def miss(model, q):
        R, p = frame_placement(model, q, "j2s6s200_end_effector")
        return se3.log((R, p - jnp.asarray(target, q.dtype)))

    def stage(model, t, q, v, u):
        return jnp.concatenate([rest(model, t, q, v, u), miss(model, q)])

    def final(model, q, v):
        return np.sqrt(1e3) * miss(model, q)

    limit = model.effort_limit
    problem = Problem(model, stage, final, 0.01, 100, None, -limit, limit)
    trials = disturbed(problem, up, 0.0, (), (0.2, 0.2, 0.0), starts, seed)

    def hold(_, t, q, v):
        return gravity_torque(model, q) - 5.0 * mass_matrix(model, q) @ v

    return _along(trials, hold)


def _of(task: Callable[..., Task], spread: tuple[float, float, float]) -> Callable[..., Trials]:
    def trials(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
        problem, q0, _, u = task(dtype=dtype)
        return disturbed(problem, q0, u, (), spread, starts, seed)

    trials.__doc__ = task.__doc__
    return trials


PROBLEM_SET: dict[str, Callable[..., Trials]] = {
    "double-integrator": double_integrator,
    "pendulum": pendulum,
    "cart-pole-goal": cart_pole_goal,
    "acrobot": acrobot,
    "quadrotor-obstacles": quadrotor_obstacles,
    "arm-obstacles": arm_obstacles,
    "cart-pole-friction": cart_pole_friction,
    "acrobot-stops": acrobot_stops,
    "push-obstacle": push_obstacle,
    "pendubot": pendubot,
    "hector": hector,
    "kinova-reach": kinova_reach,
    "cart-pole": _of(cart_pole, (0.2, 0.2, 2.0)),
    "double-pendulum": _of(double_pendulum, (0.2, 0.2, 1.0)),
    "reach": _of(reach, (0.2, 0.2, 0.1)),
    "reorient": _of(reorient, (0.1, 0.1, 0.3)),
    "quadrotor": _of(quadrotor, (0.2, 0.2, 0.03)),
}
"""Problems by their names: functions ``(starts=20, seed=0, dtype=None) -> Trials``.

Those of ALTRO's paper that rigid bodies cover, the contact-implicit ones of IPDDP2's paper, three
examples of Crocoddyl, and those of :data:`TASKS`.
"""
