"""The problem that the solvers optimize: a plant, costs and bounds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...contact import Scene
from ...lanes import lanes
from ...model import Model
from ...model.arguments import check_number
from ...model.functions import Static, as_module, check_arity
from ...simulate import (
    NoTangent,
    Plant,
    Robot,
    State,
    Trajectory,
    as_plant,
    fresh_memory,
    fresh_state,
    memory_from,
    resolve_integrator,
    rollout,
    warn_if_unstable,
    with_tangent,
)
from ._kinds import Kind, kind_of

Cost = Callable[..., Array]
Terms = tuple[tuple[Array | float, Array], ...]
"""Weights and costs, of which each is a number or a vector of residuals."""


class Layout(NamedTuple):
    """How the numbers of a memory lie behind the velocity in one vector."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of numbers."""
        return sum(int(np.prod(s)) for s in self.shapes)


class Problem(eqx.Module):
    """Minimize ``Σ_k dt · stage(model, t_k, q_k, v_k, u_k) + final(model, q_T, v_T)``.

    The motion is that of a plant in steps of length ``dt`` in which the controls are held: a robot,
    a robot under constraints, a scene, or a plant of your own (:class:`rbd_jax.simulate.Plant`).
    Every solver takes every plant. A plant without rules of its own is differentiated by autodiff
    through its step.

    A cost returns a number, or a vector of residuals r, which stands for the cost ``½ rᵀ r``. iLQR
    and multiple shooting take the Gauss–Newton Hessian of residuals. The stage cost gets the state
    after the events at the beginning of the step, such as impacts, and what the plant tells beside,
    ``stage(model, t, q, v, u, *plant.outputs(…))``: the constraint forces of a
    :class:`rbd_jax.simulate.ConstrainedRobot`, nothing of other plants of this library. In the same
    way, the final cost gets ``plant.final_outputs(…)``, the memory of a plant for example.

    Solutions are differentiable with respect to every array of the problem, for example arrays of
    the plant or of a cost that is an equinox module. ``jax.vmap`` can map over the same arrays. A
    cost or an actuation that is a plain function is static under ``jax.jit``: another one compiles
    again.

    Contacts on a schedule are a :class:`rbd_jax.simulate.ConstrainedRobot` with rows ``active``, of
    which the last one holds for ever. The contacts that hold in step k and not in step k − 1 land
    at its beginning. Derivatives of their steps are explicit with the integrators
    ``"implicit_damping"`` and ``"semi_implicit_euler"``. Source: Budhiraja, Carpentier, Mastalli,
    Mansard (2018), Differential dynamic programming for multi-phase rigid contact dynamics.

    In a scene, contacts come and go as they may. The derivatives of a step are exact. They are
    one-sided where a contact begins, so they do not tell what a contact would do that is not there:
    use :func:`cem` or :func:`mppi` for the first guess where the robot has to find its contacts.

    In the methods that solvers call, the state of a step is a pair ``(q, y)``: the configuration,
    and the vector y of the velocity and the memory of the plant (:meth:`packed`). For a plant
    without memory y is the velocity.
    """

    plant: Plant
    stage: Cost
    """``stage(model, t, q, v, u)``: cost per second, or residuals."""
    final: Cost
    """``final(model, q, v, *plant.final_outputs(…))``: cost of the last state, or residuals."""
    dt: Float[Array, ""]
    """Time step (s). Like the bounds, it gets the dtype of the model."""
    steps: int = eqx.field(static=True)
    """Number of steps T."""
    lower: Float[Array, " nu"] | None
    """Lower bounds of the controls."""
    upper: Float[Array, " nu"] | None
    """Upper bounds of the controls."""
    start: Float[Array, ""]
    """Time of the first step (s), which costs and plants see."""
    memory: PyTree
    """The memory of the plant at the start; None if ``plant.start`` makes it."""
    substeps: int = eqx.field(static=True)
    """Steps of the plant in each step of the problem."""
    added: Any
    """An object whose ``stage_terms(problem, k, q, y, u)`` and ``final_terms(problem, q, y)`` join
    the costs. Solvers use it for constraints."""
    kind: Kind = eqx.field(static=True, init=False)
    """What is special about the steps of the plant."""
    layout: Layout = eqx.field(static=True, init=False)
    """How the memory of the plant lies in y."""

    def __init__(
        self,
        plant: Plant | Model | Scene,
        stage: Cost,
        final: Cost,
        dt: float | Array,
        steps: int,
        actuation: Any = None,
        lower: Any = None,
        upper: Any = None,
        *,
        nu: int = 0,
        integrator: str | Callable | None = None,
        start: float | Array = 0.0,
        memory: PyTree = None,
        substeps: int = 1,
        added: Any = None,
        kind: Kind | None = None,
    ):
        """Make a problem.

        Args:
            plant: what moves: a robot, a scene or any plant.
            stage: cost per second, or residuals. final: cost of the last state, or residuals.
            dt: time step (s). steps: number of steps.
            actuation: for a robot, how the controls drive the joints: a matrix (nv, nu), or a
                function ``(model, t, q, v, u) -> tau``, or None if the controls are the torques.
            lower: lower bounds of the controls, or one number for all of them. upper: upper bounds.
            nu: for a robot, the number of controls if ``actuation`` is a function.
            integrator: for a robot, as in :func:`rbd_jax.rollout`, but without memory: a step
                depends on the state alone.
            start: time of the first step (s).
            memory: the memory of the plant at the start, if it is not that of ``plant.start``.
            substeps: steps of the plant in each step, with the controls held.
            added: see the attribute. kind: found out from the plant if None.
        """
        check_number("Problem", "steps", steps, least=1, whole=True)
        check_number("Problem", "substeps", substeps, least=1, whole=True)
        check_number("Problem", "dt", dt, positive=True)
        self.plant = plant = _plant_of(plant, actuation, nu, integrator)
        # a plant that tells more adds its outputs to these arguments
        if type(plant).outputs is Plant.outputs:
            check_arity("Problem: stage", stage, "model, t, q, v, u")
        if type(plant).final_outputs is Plant.final_outputs:
            check_arity("Problem: final", final, "model, q, v")
        dtype = plant.model.dtype
        self.stage, self.final, self.steps = as_module(stage), as_module(final), steps
        self.substeps, self.added = substeps, added
        self.dt, self.start = jnp.asarray(dt, dtype), jnp.asarray(start, dtype)
        if isinstance(plant, Robot):
            if plant.integrator.has_memory:
                name = plant.integrator if integrator is None else integrator
                raise ValueError(
                    f"Problem: integrator {name!r} has a memory besides the state, which an "
                    "optimizer cannot handle; choose another integrator, or pass a single step of "
                    "it as a function: lambda *state: integrator(*state)"
                )
            how = plant.integrator if integrator is None else integrator
            warn_if_unstable("Problem", plant.model, None, self.dt / substeps, how, 3)
        self.layout = _layout_of(plant)
        self.memory = None if memory is None else self._checked_memory(memory)
        self.kind = kind_of(plant, self) if kind is None else kind
        self.lower, self.upper = (self._bound(*x) for x in (("lower", lower), ("upper", upper)))
        crossed = self.crossed()
        if not isinstance(crossed, Tracer) and crossed:
            low, high = self.bounds()
            raise ValueError(f"Problem: no controls lie between lower {low} and upper {high}")

    def _bound(self, name: str, bound: Any) -> Array | None:
        if bound is None:
            return None
        bound, shape = jnp.asarray(bound, self.model.dtype), (self.controls,)
        if bound.shape not in ((), shape):
            raise ValueError(f"Problem: {name} has shape {bound.shape}, expected {shape} or ()")
        return jnp.broadcast_to(bound, shape)

    def _checked_memory(self, memory: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(with_tangent(memory))
        shapes = tuple(jnp.shape(x) for x in leaves)
        if tree != self.layout.tree or shapes != self.layout.shapes:
            wanted = jax.tree.unflatten(self.layout.tree, self.layout.shapes)
            raise ValueError(
                f"Problem: memory has the shapes {jax.tree.unflatten(tree, shapes)}, but that of "
                f"a {type(self.plant).__name__} has {wanted}"
            )
        return jax.tree.map(lambda x: jnp.asarray(x, self.model.dtype), with_tangent(memory))

    @property
    def model(self) -> Model:
        """The robot of the plant."""
        return self.plant.model

    @property
    def controls(self) -> int:
        """Number of controls."""
        return self.plant.nu

    @property
    def nx(self) -> int:
        """Number of tangent coordinates of a state."""
        return 2 * self.model.nv + (self.plant.memory_size if self.layout.shapes else 0)

    @property
    def bounded(self) -> bool:
        """Whether any controls have bounds."""
        return self.lower is not None or self.upper is not None

    def bounds(self) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
        """Lower and upper bounds of the controls. Missing bounds are infinite."""
        far = jnp.full((self.controls,), jnp.inf, self.model.dtype)
        low = -far if self.lower is None else self.lower
        return low, far if self.upper is None else self.upper

    def crossed(self) -> Bool[Array, ""]:
        """Whether no controls lie between the bounds, or a bound is NaN."""
        low, high = self.bounds()
        return ~jnp.all((low <= high) & (low < jnp.inf) & (high > -jnp.inf))

    def clip(self, u: Float[Array, "*T nu"]) -> Float[Array, "*T nu"]:
        """The controls, clipped to their bounds."""
        if not self.bounded:
            return u
        low, high = (jnp.broadcast_to(x, u.shape) for x in self.bounds())
        return jnp.clip(u, low, high)

    def torques(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " nv"]:
        """Joint torques (N m, N) that the controls u produce.

        Raises:
            ValueError: for a plant that has no method ``torques``.
        """
        if not hasattr(self.plant, "torques"):
            raise ValueError(
                f"Problem: a {type(self.plant).__name__} does not tell joint torques; give it a "
                "method torques(t, q, v, u)"
            )
        return self.plant.torques(t, q, v, u)  # pyright: ignore[reportAttributeAccessIssue]

    def time(self, k: int | Int[Array, ""]) -> Float[Array, ""]:
        """The time of step k (s)."""
        return self.start + jnp.asarray(k, self.model.dtype) * self.dt

    def starting(self, t: Float[Array, ""], memory: PyTree = None) -> "Problem":
        """The same problem at another start time (s), which may be traced.

        Args:
            t: the time.
            memory: the memory of the plant then; that of this problem if None.
        """
        known = self.memory if memory is None else self._checked_memory(memory)
        kind = self.kind.starting(self)
        if known is self.memory and kind == self.kind:
            return eqx.tree_at(lambda p: p.start, self, t)
        return self.rebuilt(kind, t, known)

    def rebuilt(self, kind: Kind, start: Array | None = None, memory: PyTree = None) -> "Problem":
        """The same problem of another kind, and with another start and memory if they are given."""
        costs = self.stage, self.final, self.dt, self.steps, None, self.lower, self.upper
        rest = {"substeps": self.substeps, "added": self.added, "kind": kind}
        rest["memory"] = self.memory if memory is None else memory
        return Problem(self.plant, *costs, start=self.start if start is None else start, **rest)

    # States as pairs (q, y)

    def packed(self, v: Float[Array, "*T nv"], memory: PyTree) -> Float[Array, "*T ny"]:
        """The velocity and the memory of the plant as one vector."""
        if not self.layout.shapes:
            return v
        lead, leaves = v.shape[:-1], jax.tree.leaves(with_tangent(memory))
        return jnp.concatenate([v, *(jnp.reshape(x, (*lead, -1)) for x in leaves)], axis=-1)

    def unpacked(self, y: Float[Array, "*T ny"]) -> tuple[Float[Array, "*T nv"], PyTree]:
        """The velocity and the memory in a vector; a memory without numbers is ()."""
        if not self.layout.shapes:
            return y, ()
        at, parts = self.model.nv, []
        for shape in self.layout.shapes:
            end = at + int(np.prod(shape))
            parts.append(jnp.reshape(y[..., at:end], (*y.shape[:-1], *shape)))
            at = end
        return y[..., : self.model.nv], jax.tree.unflatten(self.layout.tree, parts)

    def velocity(self, y: Float[Array, "*T ny"]) -> Float[Array, "*T nv"]:
        """The velocity in a vector y."""
        return y[..., : self.model.nv] if self.layout.shapes else y

    def initial(self, q: Array, v: Array) -> Float[Array, " ny"]:
        """The vector y at the start, with the memory of the problem or of ``plant.start``."""
        if not self.layout.shapes:
            return v
        memory = self.memory
        if memory is None:
            memory = fresh_state(self.plant, q, v, self.dt / self.substeps).memory
        return self.packed(v, memory)

    def state(self, q: Array, y: Array) -> State:
        """The state of the plant; parts of its memory without tangent are made anew."""
        nv = self.model.nv
        v = y[:nv] if self.layout.shapes else y
        fresh = fresh_state(self.plant, q, v, self.dt / self.substeps)
        if not self.layout.shapes:
            return fresh
        return State(q, v, memory_from(fresh.memory, y[nv:]))

    def pack(self, state: State) -> tuple[Array, Array]:
        """The pair (q, y) of a state."""
        return state.q, self.packed(state.v, state.memory)

    def integrate(self, q: Array, y: Array, dx: Float[Array, " nx"]) -> tuple[Array, Array]:
        """The state at the tangent dx."""
        nv = self.model.nv
        return self.varied(q, y, dx[:nv], dx[nv : 2 * nv], dx[2 * nv :])

    def varied(
        self, q: Array, y: Array, dq: Array, dv: Array, dm: Array | None = None
    ) -> tuple[Array, Array]:
        """The state at the tangent (δq, δv, δm), given in parts."""
        state = self.state(q, y) if self.layout.shapes else State(q, y)
        return self.pack(self.plant.moved(state, dq, dv, dv[:0] if dm is None else dm))

    def difference(self, q: Array, y: Array, q1: Array, y1: Array) -> Float[Array, " nx"]:
        """The tangent that leads from the state (q, y) to (q1, y1)."""
        if not self.layout.shapes:
            return self.plant.difference(State(q, y), State(q1, y1))
        return self.plant.difference(self.state(q, y), self.state(q1, y1))

    def moved(self, q: Array, y: Array, u: Array, z: Array) -> tuple[Array, Array, Array]:
        """The state and control at the tangent z = (dx, δu)."""
        return *self.integrate(q, y, z[: self.nx]), u + z[self.nx :]

    # Steps and costs

    def prepared(self) -> "Problem":
        """The problem for a loop over its steps: what is the same in all of them is computed."""
        plant = self.plant.prepared()
        return self if plant is self.plant else eqx.tree_at(lambda p: p.plant, self, plant)

    def begun(self, k: int | Int[Array, ""], q: Array, y: Array) -> State:
        """The state after the events at the beginning of step k, such as impacts."""
        return self.kind.begin(self, self.time(k), self.state(q, y))

    def ended(self, t: Array, state: State, u: Array) -> State:
        """The state at the end of a step that begins at time t, without its events."""
        plant = self.plant.prepared()
        h = self.dt if self.substeps == 1 else self.dt / self.substeps
        if self.substeps == 1:
            return plant.step(t, state, u, h)

        def once(state, j):
            state = plant.step(t + j * h, state, u, h)
            hidden = lambda x: isinstance(x, NoTangent)  # noqa: E731
            stop = lambda x: jax.lax.stop_gradient(x) if hidden(x) else x  # noqa: E731
            memory = jax.tree.map(stop, state.memory, is_leaf=hidden)
            return state._replace(memory=memory), None

        return jax.lax.scan(once, state, jnp.arange(self.substeps).astype(h.dtype))[0]

    def step(self, k: int | Int[Array, ""], q: Array, y: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        return self.pack(self.ended(self.time(k), self.begun(k, q, y), u))

    def advance(
        self, k: int | Int[Array, ""], q: Array, y: Array, u: Array
    ) -> tuple[Array, Array, Float[Array, ""]]:
        """The state after step k, and the cost of the step."""
        state, outputs = self.kind.step(self, self.time(k), self.state(q, y), u)
        begun, end = state
        return *self.pack(end), total(self.terms(k, q, y, u, begun, outputs))

    def outputs(self, t: Array, q: Array, y: Array, u: Array) -> tuple[Array, ...]:
        """What the plant tells the cost of a step that begins at time t, such as contact forces."""
        begun = self.kind.begin(self, t, self.state(q, y))
        return self.plant.outputs(t, begun, u, self.dt)

    def derivatives(
        self, q: Float[Array, "T nq"], y: Float[Array, "T ny"], u: Float[Array, "T nu"]
    ) -> tuple[Float[Array, "T n n"], Float[Array, "T n nu"]]:
        """``(A, B)`` with ``δx⁺ = A δx + B δu`` of all steps, in the tangent spaces."""
        slopes, _ = self.kind.expansions(self, q, y, u, costs=False)
        assert slopes is not None
        return slopes

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options: Any) -> Trajectory:
        """The trajectory under the controls u.

        Args:
            q0: the first configuration.
            v0: the first velocity, or the first vector y.
            u: the controls.
            options: ``gradient`` as in :func:`rbd_jax.rollout`.
        """
        y0 = v0 if v0.size > self.model.nv else self.initial(q0, v0)
        moves = _Begun(self, y0)  # pyright: ignore[reportCallIssue]
        path = rollout(moves, q0, self.velocity(y0), u, self.dt, **options)
        return path._replace(t=self.start + path.t)  # pyright: ignore[reportReturnType]

    def stacked(self, path: Trajectory) -> tuple[Array, Array]:
        """The pairs (q, y) of a trajectory."""
        return path.q, self.packed(path.v, path.memory)

    def stage_arguments(self, q: Array, v: Array) -> tuple:
        """Arguments of the stage cost at a state, with zeros for time, controls and outputs."""
        t, u = jnp.zeros((), q.dtype), jnp.zeros((self.controls,), q.dtype)
        return self.model, t, q, v, u, *self.plant.zero_outputs(q, v, self.dt)

    def final_arguments(self, q: Array, v: Array) -> tuple:
        """Arguments of the final cost at a state, with zeros for what the plant tells."""

        def outputs(q, v):
            return self.plant.final_outputs(fresh_state(self.plant, q, v, self.dt))

        return self.model, q, v, *jax.tree.map(jnp.zeros_like, jax.eval_shape(outputs, q, v))

    def stage_cost(self, k: int | Int[Array, ""], q: Array, y: Array, u: Array) -> Float[Array, ""]:
        """Cost of step k."""
        return total(self.stage_terms(k, q, y, u))

    def final_cost(self, q: Array, y: Array) -> Float[Array, ""]:
        """Cost of the last state."""
        return total(self.final_terms(q, y))

    def stage_terms(self, k: int | Int[Array, ""], q: Array, y: Array, u: Array) -> Terms:
        """The costs of step k with their weights."""
        state = self.begun(k, q, y)
        outputs = self.plant.outputs(self.time(k), state, u, self.dt)
        return self.terms(k, q, y, u, state, outputs)

    def terms(self, k, q: Array, y: Array, u: Array, begun: State, outputs: tuple) -> Terms:
        """The costs of step k, from the state after its events and the outputs of the plant."""
        own = (self.dt, self.stage_value(self.time(k), begun.q, begun.v, u, *outputs))
        return (own, *(() if self.added is None else self.added.stage_terms(self, k, q, y, u)))

    def stage_value(self, t: Array, q: Array, v: Array, u: Array, *outputs: Any) -> Array:
        """What the stage cost returns, in the precision of the robot."""
        return jnp.asarray(self.stage(self.model, t, q, v, u, *outputs), self.model.dtype)

    def final_terms(self, q: Array, y: Array) -> Terms:
        """The costs of the last state with their weights."""
        told = self.plant.final_outputs(self.state(q, y))
        value = self.final(self.model, q, self.velocity(y), *told)
        own = (1.0, jnp.asarray(value, self.model.dtype))
        return (own, *(() if self.added is None else self.added.final_terms(self, q, y)))

    def cost(self, q: Float[Array, "N nq"], y: Float[Array, "N ny"], u: Float[Array, "T nu"]):
        """The objective at a trajectory."""
        problem, begun = self.kind.past_landings(self, q[:-1], y[:-1])
        one = lambda *row: _stage_cost(problem, *row)  # noqa: E731
        stages = jax.vmap(one)(jnp.arange(self.steps), q[:-1], begun, u)
        return jnp.sum(stages) + self.final_cost(q[-1], y[-1])


class _Begun(Plant):
    """The plant of a problem in a rollout, from the time and the state in which it begins."""

    problem: Problem
    y0: Array

    @property
    def model(self) -> Model:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.problem.model

    @property
    def nu(self) -> int:
        return self.problem.controls

    def prepared(self) -> "_Begun":
        return _Begun(self.problem.prepared(), self.y0)  # pyright: ignore[reportCallIssue]

    def start(self, q, v, dt, controls):
        return self.problem.state(q, self.y0)

    def events(self, t, state, dt):
        return self.problem.kind.begin(self.problem, self.problem.start + t, state)

    def step(self, t, state, u, dt):
        return self.problem.ended(self.problem.start + t, state, u)


def _plant_of(plant: Any, actuation: Any, nu: int, integrator: Any) -> Plant:
    """The plant, from a robot and its options or from what is a plant already."""
    if hasattr(plant, "as_plant"):  # dynamics of a robot, which are its integrator here
        robot = plant.as_plant(integrator)
        plant, integrator = robot.model, robot.integrator
    if not isinstance(plant, Model):
        given = {"actuation": actuation is not None, "nu": nu > 0, "integrator": integrator}
        for name in (n for n, is_given in given.items() if is_given):
            kind = type(plant).__name__
            raise ValueError(
                f"Problem: {name} is an option of a robot, got it beside a {kind}, which has its "
                "own; leave it out"
            )
        return as_plant(plant, name="Problem")
    if callable(actuation) and nu < 1:
        raise ValueError("Problem: actuation is a function, so pass the number of controls: nu=…")
    if actuation is not None and not callable(actuation):
        actuation = jnp.asarray(actuation, plant.dtype)
    moves = resolve_integrator("implicit_damping" if integrator is None else integrator)
    return Robot(plant, moves, None, actuation, nu if callable(actuation) else 0)


def _layout_of(plant: Plant) -> Layout:
    leaves, tree = jax.tree.flatten(with_tangent(fresh_memory(plant)))
    wrong = [x.dtype for x in leaves if x.dtype != plant.model.dtype]
    if wrong:
        raise ValueError(
            f"Problem: the memory of a {type(plant).__name__} has numbers of {wrong[0]}, but its "
            f"robot has {plant.model.dtype}; make it with the dtype of q, or hide it from "
            "derivatives with rbd_jax.simulate.NoTangent"
        )
    return Layout(tree, tuple(x.shape for x in leaves))


@lanes
def _stage_cost(problem: Problem, k, q: Array, y: Array, u: Array) -> Float[Array, ""]:
    return problem.stage_cost(k, q, y, u)


def total(terms: Terms) -> Float[Array, ""]:
    """The weighted sum of some costs."""
    first, *rest = [w * cost_value(x) for w, x in terms]
    return sum(rest, start=first)


def cost_value(value: Array) -> Float[Array, ""]:
    """The value of a cost that returned a number, or residuals: half their sum of squares."""
    return value if jnp.ndim(value) == 0 else 0.5 * jnp.sum(value * value)


def with_explicit_closure(function: Callable, *args: Any) -> Callable:
    """The function with the traced arrays that it closes over as leaves.

    A function without traced arrays stays as it is: a program of its own would make two problems
    that are built alike unlike.
    """
    closed = eqx.filter_closure_convert(function, *args)
    return closed if any(isinstance(x, Tracer) for x in jax.tree.leaves(closed)) else function


def check_returned(name: str, function: Callable, arguments: tuple) -> tuple[int, ...]:
    """The shape of what a cost or a constraint returns, which has to be a number or a vector.

    Args:
        name: of the function, for the message.
        function: of a robot and arrays.
        arguments: of the function.

    Raises:
        TypeError: for anything but one array of floats.
        ValueError: for an array with more than one axis.
    """
    found = jax.eval_shape(function, *arguments)
    dtype, shape = (getattr(found, x, None) for x in ("dtype", "shape"))
    if dtype is None or shape is None:
        raise TypeError(
            f"{name}: it has to return a number or a vector, not {type(found).__name__}"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{name}: it returns {dtype}; return floating-point numbers, such as 0.0")
    if len(shape) > 1:
        raise ValueError(
            f"{name}: it returns an array of shape {shape}, expected a number or a vector"
        )
    return shape


def with_explicit_closures(problem: Problem, q: Array, v: Array) -> Problem:
    """The same problem, with all traced arrays that its functions close over as its leaves.

    Raises:
        TypeError: for a cost that returns anything but a number or a vector. ValueError: for a
            matrix.
    """
    v = problem.velocity(v)
    m, t, *_, u = problem.stage_arguments(q, v)[:5]
    convert = with_explicit_closure
    parts: dict[str, Any] = {}
    inputs = {"stage": problem.stage_arguments(q, v), "final": problem.final_arguments(q, v)}
    for name, arguments in inputs.items():
        cost = getattr(problem, name)
        check_returned(f"Problem: {name}", cost, arguments)
        parts[name] = convert(cost, *arguments)
    where = lambda p: [getattr(p, n) for n in parts]  # noqa: E731
    plain = lambda x: isinstance(x, Static)  # noqa: E731
    problem = eqx.tree_at(where, problem, list(parts.values()), is_leaf=plain)
    plant = problem.plant
    if isinstance(plant, Robot) and callable(plant.actuation):
        closed = convert(plant.actuation, m, t, q, v, u)
        problem = eqx.tree_at(lambda p: p.plant.actuation, problem, closed, is_leaf=plain)
    return problem
