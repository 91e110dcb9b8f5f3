"""Model predictive control: a few solver steps for each state, the plan shifted in between."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...lanes import lanes
from ...model import difference
from ...model.outcome import RESULTS
from ..problems._constraints import Constraint, Rows, Stack, stack, zeros
from ..problems._local_models import times
from ..problems._problem import Problem, with_explicit_closures
from ..solvers._augmented_lagrangian import Limits, inner_steps
from ..solvers._lagrangian import Multipliers, Penalties, excess, with_terms
from ..solvers._solution import checked_argument, checked_arguments
from ..solvers._sqp_loop import Options, sqp_loop


class Plan(NamedTuple):
    """The planned trajectory with its feedback: the state of a controller between two steps."""

    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    K: Float[Array, "T nu n"]
    """Feedback ``u + K (q ⊖ q_k, v − v_k)`` about the plan."""
    multipliers: Rows


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
    """``nonfinite`` if the old plan could not be simulated from the state; it is then kept.
    ``stalled`` if no step lowered the cost. Otherwise ``successful``."""
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
        self, plan: Plan, q: Array, v: Array, *, t: Any = 0.0, shift: bool = True
    ) -> Predicted:
        """The next plan, from the state (q, v) at time t (s)."""

    def shifted(self, plan: Plan, by: int = 1) -> Plan:
        """The plan some steps later, its last step repeated."""
        on = lambda x: jnp.concatenate([x[by:], *[x[-1:]] * by])  # noqa: E731
        rows = Rows(on(plan.multipliers.stage), plan.multipliers.final)
        return Plan(on(plan.q), on(plan.v), on(plan.u), on(plan.K), rows)


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
        q, v, u = checked_arguments("Controller.plan", self.problem, q, v, u)
        u = self.problem.clip(u)
        path = self.problem.simulate(q, v, u)
        K = jnp.zeros((*u.shape, 2 * v.size), u.dtype)
        return Plan(path.q, path.v, u, K, zeros(self.rows, u.dtype))

    def step(
        self,
        plan: Plan,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        *,
        t: float | Float[Array, ""] = 0.0,
        shift: bool = True,
    ) -> Predicted:
        """The next plan, from the state (q, v) at time t (s).

        Args:
            plan: the one before.
            q: configuration. v: velocity.
            t: what the costs see as the time of the first step.
            shift: whether one time step has passed since ``plan`` was made.

        Returns:
            The plan, whose ``u[0]`` is to be applied now. Cost: ``max_steps`` times that of a
            step of :func:`ilqr`.
        """
        problem = self.problem
        q, v = (
            checked_argument("Controller.step", problem, n, x, s)
            for n, x, s in (("q", q, (problem.model.nq,)), ("v", v, (problem.model.nv,)))
        )
        problem = problem.starting(jnp.asarray(t, q.dtype))
        old = self.shifted(plan) if shift else plan
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
        new = Plan(q, v, u, K, m.rows)
        new = jax.tree.map(lambda a, b: jnp.where(lost, b, a), new, old)
        kept = lost | (s.result == RESULTS.stalled)
        result = RESULTS.where(kept, s.result, RESULTS.successful)
        c = excess(self.rows.values(problem, *new[:3]), self.rows.equality)
        violation = jnp.maximum(*(jnp.max(x, initial=0) for x in c))
        last = jnp.maximum(s.steps - 1, 0)
        cost = problem.cost(*new[:3])
        return Predicted(new, cost, violation, s.history.expected[last], result, s.steps)


def controller(
    problem: Problem,
    constraints: Sequence[Constraint] = (),
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
    if max_steps < 1:
        raise ValueError(f"controller: max_steps must be at least 1, got {max_steps}")
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
    plant: Callable[..., Any] | None = None,
    t0: float | Float[Array, ""] = 0.0,
) -> ClosedLoop:
    """The closed loop of a controller and a robot, as one compiled scan.

    Args:
        control: made by :func:`controller` or :func:`sampler`.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls of the horizon, or a plan.
        steps: number of steps of the closed loop, a multiple of ``every``.
        every: for how many steps a plan is followed under its feedback before there is a new one.
        plant: ``plant(t, q, v, u) -> (q, v)``, the state one time step later, with pushes or with
            another model than that of the controller; the problem's own step if None.
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
    t0 = jnp.asarray(t0, problem.model.dtype)

    prepared = problem.prepared()

    def follow_model(t, q, v, u):
        return prepared.starting(t).step(jnp.asarray(0), q, v, u)

    move = follow_model if plant is None else plant

    def body(state, k):
        plan, q, v = state
        t = t0 + (every * k).astype(t0.dtype) * problem.dt
        # the first plan was made for the first state; any other for the state before
        now = control.step(plan, q, v, t=t, shift=False)

        def advance(state, row):
            (i, *at), (q, v) = row, state
            u = jnp.where(i == 0, at[2], _control(problem, at, q, v))
            new = move(t + i.astype(t.dtype) * problem.dt, q, v, u)
            return new, (*new, u)

        i, p = jnp.arange(every), now.plan
        state, path = jax.lax.scan(advance, (q, v), (i, *(x[:every] for x in p[:4])))
        told = now.cost, now.violation, now.decrease, now.result, now.steps
        return (control.shifted(now.plan, every), *state), (path, told)

    (plan, _, _), (path, told) = jax.lax.scan(body, (plan, q0, v0), jnp.arange(steps // every))
    q, v, controls = (x.reshape(steps, *x.shape[2:]) for x in path)
    q, v = (jnp.concatenate([x0[None], x]) for x0, x in ((q0, q), (v0, v)))
    t = t0 + jnp.arange(steps + 1).astype(t0.dtype) * problem.dt
    return ClosedLoop(t, q, v, controls, *told, plan)


def _control(problem: Problem, row, q: Array, v: Array) -> Array:
    """The control of one step of a plan ``(q_k, v_k, u_k, K_k)`` under its feedback."""
    qn, vn, u, K = row
    e = jnp.concatenate([difference(problem.model, qn, q), v - vn])
    return problem.clip(u + times(K, e))


@lanes
def follow(problem: Problem, plan: Plan, q: Array, v: Array):
    """Simulate a plan with its feedback from the state (q, v): states and controls."""

    problem = problem.prepared()

    def step(state, row):
        (k, *at), (q, v) = row, state
        u = _control(problem, at, q, v)
        new = problem.step(k, q, v, u)
        return new, (*new, u)

    rows = jnp.arange(problem.steps), plan.q[:-1], plan.v[:-1], plan.u, plan.K
    _, (q1, v1, u) = jax.lax.scan(step, (q, v), rows)
    return (jnp.concatenate([q[None], q1]), jnp.concatenate([v[None], v1])), u
