"""Robots on contacts that a schedule switches: landings, and derivatives that share the forces.

In step k the contacts ``active[k]`` hold. Those that hold in step k and not in step k − 1 land at
its beginning: there the velocity jumps so that no active contact moves. A step is semi-implicit
Euler with the accelerations of :func:`rbd_jax.constrained_dynamics`. The stage cost gets the
velocity after the landing and the contact forces.

Source: Budhiraja, Carpentier, Mastalli, Mansard (2018), Differential dynamic programming for
multi-phase rigid contact dynamics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ...constraints import (
    constrained_dynamics,
    constrained_dynamics_derivatives,
    impact_derivatives,
)
from ...lanes import lanes
from ...model import Model, integrate, rate_from_velocity, velocity_from_rate
from ...simulate import ConstrainedRobot, State
from ._kinds import Kind, torque_slopes
from ._local_models import Quadratic, ResetMaps, times
from ._residuals import dense, gauss_newton_blocks, mirrored, summed


@dataclasses.dataclass(frozen=True)
class ContactSchedule(Kind):
    """A robot under constraints that rows of a schedule switch on and off."""

    steps: tuple[int, ...] = ()
    """Steps at which a contact may land. If the schedule or the start time is traced, every step
    may be one, which costs time and changes no number."""
    slots: int | None = None
    """If not None, landings are looked up when the problem runs, at most so many."""

    def starting(self, problem: Any) -> Kind:
        """See :meth:`Kind.starting`."""
        active, slots = problem.plant.active, self.slots
        if active is None:
            return self
        if slots is None and isinstance(active, Tracer):
            slots = problem.steps
        elif slots is None:  # the most landings in any horizon
            on = np.asarray(active)
            set_active, first = problem.plant.constraints.active, True
            if not isinstance(set_active, Tracer):
                first = bool((on[0] & ~np.asarray(set_active)).any())
            lands = np.concatenate([[first], (on[1:] & ~on[:-1]).any(1)]).astype(int)
            ends = np.cumsum(np.concatenate([[0], lands, np.zeros(problem.steps, int)]))
            slots = int((ends[problem.steps :] - ends[: -problem.steps]).max())
        return ContactSchedule((), slots)

    def robot(self, problem: Any) -> Model:
        """See :meth:`Kind.robot`."""
        return problem.plant.integrator.euler_robot(problem.model, problem.dt)

    def begin(self, problem: Any, t: Array, state: State) -> State:
        """See :meth:`Kind.begin`; without landings there are no impacts."""
        plant = problem.plant
        lands = bool(self.steps or self.slots)
        return (plant.events if lands else plant.holding)(t, state, problem.dt)

    def step(self, problem: Any, t: Array, state: State, u: Array):
        """See :meth:`Kind.step`; accelerations and forces have one solution."""
        begun = self.begin(problem, t, state)
        a, forces = motion(problem, t, begun, u)
        v = begun.v + problem.dt * a
        end = State(integrate(problem.model, begun.q, problem.dt * v), v, begun.memory)
        return (begun, end), (forces,)

    def expansions(self, problem, q, y, u, *, slopes=True, costs=True):
        """See :meth:`Kind.expansions`.

        The forces move as their explicit derivatives say, and the landings change the velocity.
        """
        if not (costs and _of_residuals(problem, q[0], y[0])):
            return self._expanded(problem, q, y, u, step_derivatives) if slopes else (None, None)
        return self._expanded(problem, q, y, u, step_and_stage if slopes else stage_model)

    def stage_expansion(self, problem, k, q, v, u):
        """See :meth:`Kind.stage_expansion`."""
        t, nv = problem.time(k), problem.model.nv
        a, forces = motion(problem, t, held(problem, t, q, v), u)
        by_z, forces_by_z = motion_slopes(problem, t, q, v, u)
        W = jnp.eye(nv, by_z.shape[1], nv, dtype=q.dtype) + problem.dt * by_z
        model = None
        if _of_residuals(problem, q, v):
            model = stage_of_forces(problem, t, q, v, u, forces, forces_by_z)
        return v + problem.dt * a, W, model

    def landings(self, problem, q, v):
        """See :meth:`Kind.landings`."""
        after, jumps = self._landings(problem, q, v)
        if jumps is None:
            return after, None
        at, steps, nv = self._landing_steps(problem), np.arange(problem.steps), problem.model.nv
        lands = jnp.isin(steps, at)
        which = jnp.argmax(steps[:, None] == at[None], axis=1)
        return after, ResetMaps(lands, which, jumps[:, nv:])

    def past_landings(self, problem, q, y):
        """See :meth:`Kind.past_landings`. Added constraints see states before their landings."""
        if problem.added is not None or not (self.steps or self.slots):
            return problem, y
        _, after = self._after_landings(problem, q, y)
        return problem.rebuilt(ContactSchedule()), after

    def _expanded(self, problem, q: Array, v: Array, u: Array, one: Callable) -> tuple[Any, Any]:
        """``(A, B)`` and cost models of all steps, or None, from those after their landings."""
        after, jumps = self._landings(problem, q, v)
        each = lambda k, q, v, u: one(problem, problem.time(k), q, v, u)  # noqa: E731
        slopes, models = jax.vmap(each)(jnp.arange(problem.steps), q, after, u)
        if jumps is None:
            return slopes, models
        at = self._landing_steps(problem)
        if slopes is not None:
            A, B = slopes
            slopes = A.at[at].set(times(A[at], jumps)), B
        if models is not None:
            l, JT = models, jnp.swapaxes(jumps, 1, 2)
            models = l._replace(
                x=l.x.at[at].set(times(JT, l.x[at][..., None])[..., 0]),
                xx=l.xx.at[at].set(times(JT, times(l.xx[at], jumps))),
                ux=l.ux.at[at].set(times(l.ux[at], jumps)),
            )
        return slopes, models

    def _landing_steps(self, problem) -> Int[Array | np.ndarray, " l"]:
        """The steps of landings. Where there are fewer than ``slots``, some do not land."""
        if self.slots is None:
            return np.array(self.steps, int)
        lands = jax.vmap(lambda k: problem.plant.lands(problem.time(k), problem.dt))
        found = lands(jnp.arange(problem.steps))
        return jnp.nonzero(found, size=self.slots, fill_value=0)[0]

    def _after_landings(self, problem, q: Array, v: Array) -> tuple[Any, Array]:
        """The steps that land with their times, and the velocities after the landings."""
        at = self._landing_steps(problem)
        if not len(at):
            return (at, None), v
        t = jax.vmap(problem.time)(jnp.arange(problem.steps))[at]
        after = jax.vmap(lambda *x: landed(problem, *x))(t, q[at], v[at])
        return (at, t), v.at[at].set(after)

    def _landings(self, problem, q: Array, v: Array) -> tuple[Array, Array | None]:
        """Velocities after the landings, and ``∂(q, v)/∂(q, v)`` of those steps that have one."""
        (at, t), after = self._after_landings(problem, q, v)
        if t is None:
            return v, None
        jumps = jax.vmap(lambda *x: landing_derivatives(problem, *x))(t, q[at], v[at])
        return after, jumps


def scheduled(problem: Any) -> ContactSchedule | None:
    """The kind of a problem whose plant is such a robot, or None if its steps are not Euler's."""
    plant = cast(ConstrainedRobot, problem.plant)
    euler = plant.integrator.euler_robot(plant.model, problem.dt) is not None
    if plant.project or problem.substeps > 1 or not euler:
        return None
    if plant.active is None:
        return ContactSchedule()
    if isinstance(plant.active, Tracer) or isinstance(problem.start, Tracer):
        return ContactSchedule(tuple(range(problem.steps)))
    first, active = round(float(problem.start / problem.dt)), np.asarray(plant.active)
    rows = np.minimum(first + np.arange(-1, problem.steps), len(active) - 1)
    on = np.array(active[np.maximum(rows, 0)])
    if first == 0:
        known = plant.constraints.active
        on[0] = False if isinstance(known, Tracer) else np.asarray(known)
    return ContactSchedule(tuple(np.flatnonzero((on[1:] & ~on[:-1]).any(1)).tolist()))


def _of_residuals(problem, q: Array, v: Array) -> bool:
    shape = jax.eval_shape(problem.stage, *problem.stage_arguments(q, v)).shape
    return problem.added is None and bool(shape)


class _Motion(NamedTuple):
    """Accelerations and contact forces."""

    a: Float[Array, " nv"]
    forces: Float[Array, " m"]


def held(problem, t: Array, q: Array, v: Array) -> State:
    """The state in a step, after its landing."""
    return problem.plant.holding(t, problem.state(q, v), problem.dt)


def landed(problem, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
    """The velocity at time t, after the landing of a contact if there is one."""
    return problem.kind.begin(problem, t, problem.state(q, v)).v


def motion(problem, t: Array, state: State, u: Array) -> _Motion:
    """The motion in a step, from the state after its landing."""
    plant, (q, v, _) = problem.plant, state
    tau, robot = plant.torques(t, q, v, u), problem.kind.robot(problem)
    return _Motion(*constrained_dynamics(robot, q, v, tau, plant.held(state), plant.f_ext))


@lanes
def landing_derivatives(problem, t, q, v) -> Float[Array, "n n"]:
    """``∂(q, v)/∂(q, v)`` of a landing, in the tangent space; the identity if nothing lands."""
    plant, nv = problem.plant, problem.model.nv
    struck = plant.held(held(problem, t, q, v))
    d = impact_derivatives(problem.model, q, v, struck)
    eye = jnp.eye(2 * nv, dtype=q.dtype)
    jump = eye.at[nv:].set(jnp.concatenate([d.dv_dq, d.dv_dv], axis=1))
    return jnp.where(plant.lands(t, problem.dt), jump, eye)


def motion_slopes(problem, t, q, v, u):
    """``∂a/∂(x, u)`` and ``∂forces/∂(x, u)`` after the landing."""
    plant, robot = problem.plant, problem.kind.robot(problem)
    tau, contacts = plant.torques(t, q, v, u), plant.held(held(problem, t, q, v))
    d = constrained_dynamics_derivatives(robot, q, v, tau, contacts, plant.f_ext)
    by_x, by_u = torque_slopes(problem, t, q, v, u)

    def chain(by_q, by_v, by_tau):
        x = jnp.concatenate([by_q, by_v], axis=1)
        x = x if by_x is None else x + times(by_tau, by_x)
        return jnp.concatenate([x, times(by_tau, by_u)], axis=1)

    return chain(*d[:3]), chain(*d[3:])


@lanes
def step_derivatives(problem, t, q, v, u) -> tuple[tuple[Array, Array], None]:
    """``(A, B)`` of one step after the landing."""
    a = motion(problem, t, held(problem, t, q, v), u).a
    slopes = motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, a, slopes[0]), None


def stage_model(problem, t, q, v, u) -> tuple[None, Quadratic]:
    """The Gauss–Newton model of a stage cost of residuals after the landing."""
    return None, step_and_stage(problem, t, q, v, u)[1]


def step_and_stage(problem, t, q, v, u):
    """Step Jacobians and the model of the stage cost, in two kernels to bound memory."""
    slopes, forces, by_z = _step_and_forces(problem, t, q, v, u)
    return slopes, stage_of_forces(problem, t, q, v, u, forces, by_z)


@lanes
def _step_and_forces(problem, t, q, v, u):
    """``(A, B)`` of one step after the landing, its contact forces, and their slopes."""
    a, forces = motion(problem, t, held(problem, t, q, v), u)
    slopes = motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, a, slopes[0]), forces, slopes[1]


def _step(problem, q, v, a, da) -> tuple[Array, Array]:
    """``(A, B)`` from ``∂a/∂(x, u)``."""
    model, dt, n = problem.model, problem.dt, 2 * problem.model.nv
    dq, dv = jnp.split(jnp.eye(n, da.shape[1], dtype=q.dtype), 2)

    def advance(q, v, a):
        v = v + dt * a
        return integrate(model, q, dt * v), v

    def push(dq, dv, da):
        rates = rate_from_velocity(model, q, dq), dv, da
        (q1, _), (rate, dv1) = jax.jvp(advance, (q, v, a), rates)
        return jnp.concatenate([velocity_from_rate(model, q1, rate), dv1])

    AB = jax.vmap(push, in_axes=1, out_axes=1)(dq, dv, da)
    return AB[:, :n], AB[:, n:]


@lanes
def stage_of_forces(problem, t, q, v, u, forces, slope) -> Quadratic:
    """The model of a stage cost from ``S = ∂forces/∂(x, u)``.

    With the blocks of states, controls and forces, x, u and f, its Hessian is
    ``H_ab + S_aᵀ (H_ff S_b + H_fb) + H_faᵀ S_b``. Most blocks are zero.
    """
    dt, n = problem.dt, 2 * v.size

    def residuals(dq, dv, du, df):
        moved = integrate(problem.model, q, dq), v + dv, u + du, forces + df
        return problem.stage_value(t, *moved)

    at = [jnp.zeros_like(x) for x in (v, v, u, forces)]
    g, H = gauss_newton_blocks(residuals, at)
    g = [dt * x for x in g]
    H = [[None if x is None else dt * x for x in row] for row in H]
    S = slope[:, :n], slope[:, n:]
    ends = np.cumsum([0, *(x.size for x in at)])
    own = slice(0, 2), slice(2, 3)  # the parts of states and of controls
    mixed = [dense([H[3][part]], [x.size for x in at[part]], q.dtype, [forces.size])
             if any(x is not None for x in H[3][part]) else None for part in own]  # fmt: skip
    pushed = [summed(None if H[3][3] is None else times(H[3][3], S_b), m)
              for S_b, m in zip(S, mixed, strict=True)]  # fmt: skip

    def block(a, b):
        left, right = pushed[b], mixed[a]
        alike = a == b and right is None
        by_forces = mirrored if alike else lambda A, B: times(A.T, B)
        X = summed(
            None if left is None else by_forces(S[a], left),
            None if right is None else times(right.T, S[b]),
        )
        X = jnp.zeros((S[a].shape[1], S[b].shape[1]), q.dtype) if X is None else X
        for i in range(4)[own[a]]:
            for j in range(4)[own[b]]:
                if H[i][j] is not None:
                    rows = slice(ends[i] - ends[2 * a], ends[i + 1] - ends[2 * a])
                    columns = slice(ends[j] - ends[2 * b], ends[j + 1] - ends[2 * b])
                    X = X.at[rows, columns].add(H[i][j])
        return X

    gx, gu = (times(S_a.T, g[3]) for S_a in S)
    return Quadratic(jnp.concatenate(g[:2]) + gx, g[2] + gu, block(0, 0), block(1, 0), block(1, 1))
