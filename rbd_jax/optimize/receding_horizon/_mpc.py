"""Model predictive control: a few solver steps for each state, the plan shifted in between."""

import abc
from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ...contact import Scene
from ...lanes import lanes
from ...model import Model
from ...model.arguments import check_number
from ...model.outcome import RESULTS
from ...simulate import Plant, as_plant, fresh_state, hold_controls, with_tangent
from ..problems._constraints import Constraint, Rows, Stack, stack, zeros
from ..problems._local_models import times
from ..problems._problem import Problem, with_explicit_closures
from ..solvers._augmented_lagrangian import Limits, inner_steps
from ..solvers._lagrangian import Multipliers, Penalties, excess, with_terms
from ..solvers._solution import Solution, checked_argument, checked_arguments, checked_bounds
from ..solvers._sqp_loop import Options, sqp_loop


class Plan(NamedTuple):
    """The planned trajectory with its feedback: the state of a controller between two steps."""

    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    """Feedback ``u + K (q ⊖ q_k, v − v_k)`` about the plan."""
    multipliers: Rows
    memory: PyTree = ()
    """The memory of the plant at the states; () for most plants."""


class Predicted(NamedTuple):
    """One step of the controller."""

    plan: Plan
    """The new plan. Its first control is to be applied."""
    cost: Float[Array, ""]
    """Cost of the plan."""
    violation: Float[Array, ""]
    """The greatest violation of a constraint in the plan."""
    decrease: Float[Array, ""]
    """Predicted decrease of the cost in the last solver step. It is small for a plan that is nearly
    optimal."""
    result: RESULTS
    """``nonfinite`` if the old plan could not be simulated from the state, or derivatives there are
    NaN; the old plan is then kept. ``stalled`` if no step lowered the cost. ``crossed`` if no
    controls lie between the bounds. Otherwise ``successful``."""
    steps: Int[Array, ""]
    """Steps that the solver took."""


class ClosedLoop(NamedTuple):
    """A closed loop: the states after 0, 1, …, N steps, the controls, and reports of the plans."""

    t: Float[Array, " N+1"]
    q: Float[Array, "N+1 nq"]
    v: Float[Array, "N+1 nv"]
    u: Float[Array, "N nu"]
    cost: Float[Array, " P"]
    violation: Float[Array, " P"]
    decrease: Float[Array, " P"]
    result: RESULTS
    steps: Int[Array, " P"]
    """Number of solver steps for each of the P plans. Cost, violation, decrease and result have one
    entry for each plan too."""
    plan: Plan
    """The last plan."""


class AbstractMPC(eqx.Module):
    """A controller that plans over a receding horizon: :func:`mpc` closes its loop."""

    problem: eqx.AbstractVar[Problem]

    @abc.abstractmethod
    def plan(self, q: Array, v: Array, u: Array) -> Plan:
        """A first plan: a simulation of the controls u."""

    @abc.abstractmethod
    def step(
        self,
        plan: Plan,
        q: Array,
        v: Array,
        *,
        t: Any = 0.0,
        shift: bool = True,
        memory: PyTree = None,
    ) -> Predicted:
        """The next plan, from the state (q, v) with a memory at time t (s)."""

    def shifted(self, plan: Plan, by: int = 1) -> Plan:
        """The plan some steps later, its last step repeated."""
        on = lambda x: jnp.concatenate([x[by:], *[x[-1:]] * by])  # noqa: E731
        rows = Rows(on(plan.multipliers.stage), plan.multipliers.final)
        q, v, u, K = map(on, plan[:4])
        return Plan(q, v, u, K, rows, jax.tree.map(on, plan.memory))

    def begun(self, plan: Plan, t: Array, q: Array, v: Array, memory: PyTree):
        """The problem from a state on, and this state as the pair (q, y).

        If the memory is None, it is the one that the plan predicts.
        """
        if memory is None and jax.tree.leaves(plan.memory):
            memory = jax.tree.map(lambda x: x[0], plan.memory)
        problem = self.problem.starting(t, memory)
        return problem, q, problem.initial(q, v)


class Controller(AbstractMPC):
    """A receding horizon: a few solver steps from each state that the robot reaches.

    Source: Diehl, Bock, Schlöder (2005), real-time iteration with the warm start by shifting. The
    feedback of the plan carries it to the new state. Constraints enter by an augmented Lagrangian
    with a fixed penalty, and each solver step updates the multipliers. The robot needs a control in
    any case, so nothing throws: ``result`` says how the solver ended.

    ``plan`` and ``step`` are pure functions of arrays: jit them, vmap them over robots.
    """

    problem: Problem
    """Over one horizon; its times begin at ``start``."""
    rows: Stack
    penalty: Float[Array, ""]
    second_order: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    regularization: float = eqx.field(static=True)

    def plan(self, q: Float[Array, " nq"], v: Float[Array, " nv"], u: Float[Array, "T nu"]) -> Plan:
        """A first plan: a simulation of the controls u."""
        return simulated_plan("Controller.plan", self.problem, self.rows, q, v, u)

    def warmstart(self, solution: Solution) -> Plan:
        """A first plan: the solution of the problem over the first horizon, from any solver."""
        s = solution
        return Plan(s.q, s.v, s.u, s.K, zeros(self.rows, s.u.dtype), s.memory)

    def step(
        self,
        plan: Plan,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        *,
        t: float | Float[Array, ""] = 0.0,
        shift: bool = True,
        memory: PyTree = None,
    ) -> Predicted:
        """The next plan, from the state (q, v) at time t (s).

        Args:
            plan: the one before.
            q: configuration. v: velocity.
            t: what the costs see as the time of the first step.
            shift: whether one time step has passed since ``plan`` was made.
            memory: the memory of the plant in this state; the one that the plan predicts if None.

        Returns:
            The plan, whose ``u[0]`` is to be applied now. Cost: ``max_steps`` times that of a
            step of :func:`ilqr`.
        """
        problem = self.problem
        q, v = (
            checked_argument("Controller.step", problem, n, x, s)
            for n, x, s in (("q", q, (problem.model.nq,)), ("v", v, (problem.model.nv,)))
        )
        old = self.shifted(plan) if shift else plan
        problem, q, v = self.begun(old, jnp.asarray(t, q.dtype), q, v, memory)
        path, u = follow(problem, old, q, v)
        o = Options(self.max_steps, -jnp.inf, self.regularization, None)  # never converged
        far = jnp.full((), jnp.inf, q.dtype)  # any step is good enough to update the multipliers
        m = Multipliers(old.multipliers, self.penalty, far, far)
        # the penalty stays as it is
        limits = Limits(0.0, 0.0, self.penalty)
        steps = inner_steps(problem, self.rows, limits, self.second_order, eager=True)
        penalties = Penalties(self.rows, old.multipliers, self.penalty)
        merit = with_terms(problem, penalties).cost(*path, u)
        s = sqp_loop(*steps, (*path, u, merit), (old.K, m), merit, o, self.second_order)
        (q, v, u, _), (K, m) = s.point, s.carried
        lost = s.result == RESULTS.nonfinite
        v, memory = problem.unpacked(v)
        new = Plan(q, v, u, K, m.rows, memory)
        new = jax.tree.map(lambda a, b: jnp.where(lost, b, a), new, old)
        kept = lost | (s.result == RESULTS.stalled)
        result = RESULTS.where(kept, s.result, RESULTS.successful)
        result = checked_bounds(result, problem)
        point = new.q, problem.packed(new.v, new.memory), new.u
        c = excess(self.rows.values(problem, *point), self.rows.equality)
        violation = jnp.maximum(*(jnp.max(x, initial=0) for x in c))
        last = jnp.maximum(s.steps - 1, 0)
        cost = problem.cost(*point)
        return Predicted(new, cost, violation, s.history.expected[last], result, s.steps)


def simulated_plan(name: str, problem: Problem, rows: Stack, q0, v0, u) -> Plan:
    """A plan without feedback: the simulation of the controls u."""
    q, v, u = checked_arguments(name, problem, q0, v0, u)
    u = problem.clip(u)
    path = problem.simulate(q, v, u)
    K = jnp.zeros((*u.shape, problem.nx), u.dtype)
    return Plan(path.q, path.v, u, K, zeros(rows, u.dtype), path.memory)


def controller(
    problem: Problem,
    constraints: Iterable[Constraint] = (),
    *,
    max_steps: int = 2,
    penalty: float = 100.0,
    second_order: bool = False,
    regularization: float = 1e-6,
) -> Controller:
    """A model predictive controller of a problem.

    Args:
        problem: what to minimize over the horizon.
        constraints: as in :func:`augmented_lagrangian`.
        max_steps: solver steps for each state. The solver takes all of them unless it stalls.
        penalty: weight ρ of ``ρ/2 c²``, fixed.
        second_order: as in :func:`augmented_lagrangian`. regularization: as in :func:`ilqr`.

    Raises:
        ValueError: for fewer than one step, or a constraint of a wrong shape.
    """
    check_number("controller", "max_steps", max_steps, least=1, whole=True)
    check_number("controller", "penalty", penalty, positive=True)
    check_number("controller", "regularization", regularization, least=0)
    model, dtype = problem.model, problem.model.dtype
    q, v = jnp.zeros((model.nq,), dtype), jnp.zeros((model.nv,), dtype)
    # what can be known before the time is traced
    problem = problem.starting(jnp.asarray(problem.start))
    problem, rows = with_explicit_closures(problem, q, v), stack(problem, constraints, q, v)
    weight = jnp.asarray(penalty, dtype)
    return Controller(problem, rows, weight, second_order, max_steps, regularization)


def mpc(
    control: AbstractMPC,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"] | Plan,
    steps: int,
    *,
    every: int = 1,
    plant: Plant | Scene | Model | None = None,
    substeps: int | None = None,
    t0: float | Float[Array, ""] = 0.0,
) -> ClosedLoop:
    """The closed loop of a controller and a plant, as one compiled scan.

    The controller is told the memory of the plant if it is like that of its own plant. Otherwise it
    takes the memory that its plan predicts.

    Args:
        control: made by :func:`controller` or :func:`sampler`.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls of the horizon, or a plan.
        steps: number of steps of the closed loop, a multiple of ``every``.
        every: for how many steps a plan is followed under its feedback before there is a new one.
        plant: what is controlled, with pushes or with another robot than that of the controller;
            the plant of the problem if None. It begins with the memory of its ``start``, or of the
            problem.
        substeps: steps of the plant in each time step; as in the problem if None.
        t0: when it begins (s); the costs see the time t0, t0 + dt, …

    Returns:
        The closed loop. May be mapped over starts, plants and problems.

    Raises:
        ValueError: ``every`` is not from 1 to the steps of the horizon, or does not divide steps.
    """
    problem = control.problem
    if not 1 <= every <= problem.steps or steps % every:
        raise ValueError(
            f"mpc: every must divide steps = {steps} and be from 1 to the {problem.steps} steps of "
            f"the horizon, got {every}"
        )
    plan = u if isinstance(u, Plan) else control.plan(q0, v0, u)
    t0, dt = jnp.asarray(t0, problem.model.dtype), problem.dt
    own = plant is None
    moves = (problem.plant if own else as_plant(plant, name="mpc")).prepared()
    held = problem.substeps if substeps is None else substeps
    first = fresh_state(moves, q0, v0, dt / held)
    if own and problem.layout.shapes:
        first = problem.state(q0, problem.initial(q0, v0))
    shapes = tuple(x.shape for x in jax.tree.leaves(with_tangent(first.memory)))
    measured = type(moves) is type(problem.plant) and shapes == problem.layout.shapes

    def body(x, k):
        plan, state = x
        t = t0 + (every * k).astype(t0.dtype) * dt
        memory = with_tangent(state.memory) if measured and shapes else None
        # the first plan was made for the first state; any other for the state before
        now = control.step(plan, state.q, state.v, t=t, shift=False, memory=memory)
        p = now.plan
        planned = problem.packed(p.v, p.memory)

        def advance(state, row):
            i, *at, planned = row
            if measured:
                y = problem.packed(state.v, state.memory)
            else:
                y = jnp.concatenate([state.v, planned[state.v.size :]])
            u = jnp.where(i == 0, at[2], _control(problem, at, state.q, y))
            new = hold_controls(moves, t + i.astype(t.dtype) * dt, state, u, dt, held)
            return new, (new.q, new.v, u)

        rows = jnp.arange(every), p.q, planned, p.u, p.K, planned
        state, path = jax.lax.scan(advance, state, jax.tree.map(lambda x: x[:every], rows))
        told = now.cost, now.violation, now.decrease, now.result, now.steps
        return (control.shifted(now.plan, every), state), (path, told)

    (plan, _), (path, told) = jax.lax.scan(body, (plan, first), jnp.arange(steps // every))
    q, v, controls = (x.reshape(steps, *x.shape[2:]) for x in path)
    q, v = (jnp.concatenate([x0[None], x]) for x0, x in ((q0, q), (v0, v)))
    t = t0 + jnp.arange(steps + 1).astype(t0.dtype) * problem.dt
    return ClosedLoop(t, q, v, controls, *told, plan)


def _control(problem: Problem, row, q: Array, v: Array) -> Array:
    """The control of one step of a plan ``(q_k, v_k, u_k, K_k)`` under its feedback."""
    qn, vn, u, K = row
    return problem.clip(u + times(K, problem.difference(qn, vn, q, v)))


@lanes
def follow(problem: Problem, plan: Plan, q: Array, v: Array):
    """Simulate a plan with its feedback from the pair (q, y): states and controls."""

    problem = problem.prepared()

    def step(state, row):
        (k, *at), (q, v) = row, state
        u = _control(problem, at, q, v)
        new = problem.step(k, q, v, u)
        return new, (*new, u)

    planned = problem.packed(plan.v, plan.memory)
    rows = jnp.arange(problem.steps), plan.q[:-1], planned[:-1], plan.u, plan.K
    _, (q1, v1, u) = jax.lax.scan(step, (q, v), rows)
    return (jnp.concatenate([q[None], q1]), jnp.concatenate([v[None], v1])), u
