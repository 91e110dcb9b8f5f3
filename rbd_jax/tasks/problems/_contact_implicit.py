"""Problems whose contacts come and go: their forces are controls, and complementarity costs.

Source of all: Xu, Gould, Shames (2025), Interior point differential dynamic programming, redux, and
its code InteriorPointDDP.jl. As there, products that have to be zero join the cost with a weight
that a solution has no reason to pay. Departures of all: variables that only name an expression are
left out, such as the next configuration, distances and those products; and the steps of the robots
are those of this library, because the source counts the rate of the mass matrix twice.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...io import build_model, samples
from ...model import JointSpec, LinkSpec, Model, RobotSpec
from ...optimize import Constraint, Problem, StateCost
from ...simulate import Plant, Robot, State
from ._trials import Trials, drawn

WEIGHT = 2.0
"""Of the products that have to be zero, as a cost of each step."""


class Complementary(eqx.Module):
    """Pairs of numbers of which neither is negative and one is zero."""

    pairs: Callable[..., tuple[Array, Array]]
    """``pairs(q, v, u) -> (a, b)``, where b are controls that have the lower bound zero."""

    def __call__(self, model: Model, t, q, v, u) -> Float[Array, " r"]:
        """The rows ``−a ≤ 0``."""
        return -self.pairs(q, v, u)[0]


class Effort(eqx.Module):
    """``r Σ uᵢ²`` of the first controls, and the products of complementary pairs."""

    weight: Float[Array, ""]
    count: int = eqx.field(static=True)
    price: Float[Array, ""]
    """Of a product for a second."""
    pairs: Callable[..., tuple[Array, Array]]
    """As in :class:`Complementary`."""

    def __call__(self, model: Model, t, q, v, u) -> Float[Array, ""]:
        """The cost per second."""
        products = jnp.multiply(*self.pairs(q, v, u))
        return self.weight * jnp.sum(u[: self.count] ** 2) + self.price * jnp.sum(products)


class DryFriction(eqx.Module):
    """Friction of joints that dissipates most: the conditions of optimality of its force.

    Controls: a force that drives, the forces β⁺ and β⁻ of each joint, and speeds ψ.
    """

    plant: Plant
    dt: Float[Array, ""]
    limit: Float[Array, " n"]
    """Greatest friction of each joint (N, N m)."""

    def __call__(self, q, v, u) -> tuple[Array, Array]:
        """``ψ ± v⁺ ⟂ β`` and ``limit − Σβ ⟂ ψ`` with the next velocity v⁺."""
        n = len(self.limit)
        force, speed = jnp.reshape(u[1 : 1 + 2 * n], (n, 2)), u[1 + 2 * n :]
        after = self.plant.step(jnp.zeros_like(self.dt), State(q, v), u, self.dt).v
        sliding = jnp.stack([speed + after, speed - after], axis=1)
        left = self.limit - jnp.sum(force, axis=1)
        return jnp.concatenate([jnp.ravel(sliding), left]), u[1:]


class Stops(eqx.Module):
    """Stops of the last joint at ±limit that push with forces, the controls 1 and 2."""

    plant: Plant
    dt: Float[Array, ""]
    limit: Float[Array, ""]

    def __call__(self, q, v, u) -> tuple[Array, Array]:
        """The distances to the stops after the step, and the forces."""
        after = self.plant.step(jnp.zeros_like(self.dt), State(q, v), u, self.dt).q
        return jnp.stack([self.limit - after[-1], self.limit + after[-1]]), u[1:]


def _joint_sums(n: int) -> np.ndarray:
    """From the forces β⁺ and β⁻ of each joint to its force (n, 2n)."""
    return np.kron(np.eye(n), [[1.0, -1.0]])


def _problem(model: Model, goal, actuation, limit: float, law) -> tuple[Problem, tuple]:
    """Move by one force of at most ``limit`` to a goal, to rest, in 5 s; the others are contacts.

    ``law(plant, dt)`` are the complementary pairs.
    """
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    low, high = np.zeros(actuation.shape[1]), np.full(actuation.shape[1], np.inf)
    low[0], high[0] = -limit, limit
    dt = array(0.05)
    plant = Robot(model, actuation=array(actuation))
    pairs = law(plant, dt)
    stage = Effort(array(0.01), 1, WEIGHT / dt, pairs)
    final = StateCost(array(goal), *(array(np.full(2, np.sqrt(2 * w))) for w in (700.0, 200.0)))
    problem = Problem(plant, stage, final, dt, 100, None, low, high)
    return problem, (Constraint(Complementary(pairs), "contacts"),)


def _uniform(starts: int, seed: int, *ranges: tuple[float, float]) -> np.ndarray:
    """Parameters of each start, uniform in their ranges; the first one is in the middle of all."""
    low, high = np.transpose(ranges)
    draws = np.random.default_rng(seed).uniform(low, high, (starts, len(ranges)))
    draws[0] = 0.5 * (low + high)
    return draws


def cart_pole_friction(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing the pole of a cart up in 5 s, with at most 10 N, and dry friction in both joints.

    Masses, length and friction of each start are drawn as in the source.
    """
    push = np.concatenate([[[1.0], [0.0]], _joint_sums(2), np.zeros((2, 2))], axis=1)

    def case(cart, pole, length, *friction):
        model = samples.cart_pole(cart, pole, length, dtype)
        limit = 9.81 * np.array(friction) * [cart + pole, pole * length]
        law = lambda plant, dt: DryFriction(plant, dt, jnp.asarray(limit, model.dtype))  # noqa: E731
        return _problem(model, [0.0, np.pi], push, 10.0, law)

    draws = _uniform(starts, seed, (0.9, 1.1), (0.15, 0.25), (0.45, 0.55), *[(0.05, 0.15)] * 2)
    return drawn([case(*x) for x in draws], [0.0, 0.0], [0.0] + [0.01] * 6)


def acrobot_stops(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Swing a damped double pendulum up in 5 s by 8 N m at its elbow, which has stops at ±90°.

    Masses and lengths of each start are drawn as in the source. Departure: the dampings are 0.1
    N m s instead of 0.5, under which the elbow is too weak.
    """
    y, torque = np.eye(3)[1], np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 1.0]])

    def link(name, mass):  # its inertia about its joint is that of the source
        inertia = (0.333 - 0.25 * mass) * np.diag([1.0, 1.0, 0.0])
        return LinkSpec(name, mass, np.array([0.0, 0.0, -0.5]), inertia)

    def case(upper, length, lower):
        links = LinkSpec("base"), link("upper", upper), link("lower", lower)
        elbow = np.array([0.0, 0.0, -length])
        joints = (
            JointSpec("shoulder", "revolute", "base", "upper", axis=y, damping=0.1),
            JointSpec("elbow", "revolute", "upper", "lower", p=elbow, axis=y, damping=0.1),
        )
        model = build_model(RobotSpec("acrobot", links, joints), dtype=dtype)
        law = lambda plant, dt: Stops(plant, dt, jnp.asarray(0.5 * np.pi, model.dtype))  # noqa: E731
        return _problem(model, [np.pi, 0.0], torque, 8.0, law)

    draws = _uniform(starts, seed, *[(0.9, 1.1)] * 3)
    return drawn([case(*x) for x in draws], [0.0, 0.0], [0.0, 0.01, 0.01])


class Slider(Plant):
    """A box on a table and the finger that pushes its side, without inertia.

    Source: Hogan, Rodriguez (2020), Reactive planar non-prehensile manipulation with hybrid model
    predictive control, with an ellipsoid as limit surface. The configuration is (x, y, θ, φ), where
    φ is the angle at the center between the normal of the side and the finger. Controls: the forces
    of the finger along the normal and along the side, and the speeds of φ in both directions. The
    velocity is that of the last step.
    """

    model: Model
    depth: Float[Array, ""]
    """Distance between the pushed side and the opposite one (m)."""
    ratio: Float[Array, ""]
    """Of the greatest torque of friction with the table over its greatest force (m)."""

    @property
    def nu(self) -> int:
        """The number of controls."""
        return 4

    def step(self, t, state: State, u, dt) -> State:
        """An explicit Euler step."""
        q, (normal, along, up, down) = state.q, u
        c, s, half = jnp.cos(q[2]), jnp.sin(q[2]), 0.5 * self.depth
        spin = half * (jnp.tan(q[3]) * normal - along) / self.ratio**2
        v = jnp.stack([c * normal - s * along, s * normal + c * along, spin, up - down])
        return State(q + dt * v, v, state.memory)


class Finger(eqx.Module):
    """The finger sticks, or slides at the border of the cone of friction."""

    friction: Float[Array, ""]

    def __call__(self, q, v, u) -> tuple[Array, Array]:
        """``μ f ∓ f_along ⟂ speeds of φ``."""
        return self.friction * u[0] + jnp.asarray([-1.0, 1.0], q.dtype) * u[1], u[2:4]


class Outside(eqx.Module):
    """The disk around the box does not touch a cylinder."""

    center: Float[Array, " 2"]
    radius: Float[Array, ""]
    """Of the cylinder and of the disk (m)."""

    def __call__(self, model: Model, q, v) -> Float[Array, ""]:
        """``r² − d²``."""
        return self.radius**2 - jnp.sum((q[:2] - self.center) ** 2)


BOXES = (
    (0.07, 0.12, 0.03711), (0.06, 0.12, 0.0355938), (0.08, 0.12, 0.0387237),
    (0.07, 0.13, 0.0393039), (0.06, 0.13, 0.0378424), (0.08, 0.13, 0.0366212),
    (0.07, 0.11, 0.0349493), (0.06, 0.11, 0.0333738), (0.08, 0.11, 0.0408633),
)  # fmt: skip
"""Sides of the boxes (m) and the ratios of their friction with the table."""


def push_obstacle(starts: int = 20, seed: int = 0, dtype=None) -> Trials:
    """Push a box by 0.5 m and turn it by 270° in 4 s, past a cylinder, with at most 0.3 N.

    Box, friction and cylinder of each start are drawn as in the source. Departure: the distance to
    the cylinder has no slack.
    """
    names, dt = ("x", "y", "box", "finger"), 0.04
    axes = np.eye(3)[[0, 1, 2, 2]]
    joints = tuple(
        JointSpec(f"to_{n}", "prismatic" if n in "xy" else "revolute", parent, n, axis=axis)
        for n, parent, axis in zip(names, ("table", *names), axes, strict=False)
    )
    links = tuple(LinkSpec(n) for n in ("table", *names))
    model = build_model(RobotSpec("slider", links, joints), dtype=dtype)
    goal = jnp.asarray([0.3, 0.4, 1.5 * np.pi, 0.0], model.dtype)
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    low, high = np.array([0.0, -0.3, 0.0, 0.0]), np.array([0.3, 0.3, 3.0, 3.0])
    final = StateCost(goal, array(np.full(4, np.sqrt(40.0))), array(np.zeros(4)))

    def case(box, friction, x, y, radius):
        depth, width, ratio = BOXES[int(box)]
        plant, finger = Slider(model, array(depth), array(ratio)), Finger(array(friction))
        stage = Effort(array(0.01 / dt), 2, array(WEIGHT / dt), finger)
        around = Outside(array([x, y]), array(radius + max(depth, width) + 0.01))
        return Problem(plant, stage, final, dt, 100, None, low, high), (
            Constraint(Complementary(finger), "finger"),
            Constraint(around, "cylinder", at="states"),
            Constraint(_within, "angle", at="states"),
        )

    ranges = (0.0, 9.0), (0.15, 0.25), (0.05, 0.35), (0.15, 0.25), (0.04, 0.06)
    return drawn([case(*x) for x in _uniform(starts, seed, *ranges)], np.zeros(4), 0.01)


def _within(model: Model, q, v) -> Float[Array, " 2"]:
    """The finger stays on its side."""
    return jnp.stack([q[3] - 0.9, -0.9 - q[3]])
