"""Motion with contacts on a given schedule: which feet hold in which step, impacts in between."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from ...constraints import (
    Constraints,
    constrained_dynamics,
    constrained_dynamics_derivatives,
    impact,
)
from ...lanes import lanes
from ...model import integrate, rate_from_velocity, velocity_from_rate
from ...simulate import resolve_integrator
from ._local_models import Quadratic, ResetMaps, times
from ._problem import Problem, Terms, simulate_steps, total
from ._residuals import dense, gauss_newton_blocks, mirrored, summed


class LeggedProblem(Problem):
    """A :class:`Problem` whose robot stands on contacts that a schedule switches on and off.

    In step k the contacts ``active[k]`` hold. Those that hold in step k and not in step k − 1 land
    at the beginning of step k: there the velocity jumps so that no active contact moves. A step is
    semi-implicit Euler with the accelerations of :func:`rbd_jax.constrained_dynamics`, by default
    with implicit joint damping, as in :func:`rbd_jax.rollout`. The contact forces are those of the
    step.

    Source: Budhiraja, Carpentier, Mastalli, Mansard (2018), Differential dynamic programming for
    multi-phase rigid contact dynamics.

    The stage cost is ``stage(model, t, q, v, u, forces)``, with the velocity after the landing and
    the contact forces (N m, N), one number a row of ``contacts``, zero where they do not hold.
    Solvers, constraints and derivatives are those of other problems.
    """

    contacts: Constraints | None = None
    """All contacts, with their Baumgarte gains; ``active`` of the set itself is not used."""
    active: Bool[Array, "S c"] | None = None
    """Which contacts hold in the steps that begin at 0, dt, 2 dt …; the last row holds for ever."""
    landings: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Steps at which a contact may land; found in ``active`` if None. If that or the start time is
    traced, every step may be one, which costs time and changes no number."""
    slots: int | None = eqx.field(static=True, default=None)
    """If not None, landings are looked up when the problem runs, at most so many, see
    :meth:`starting`."""

    def __post_init__(self):
        super().__post_init__()
        if self.contacts is None or self.active is None:
            raise ValueError("LeggedProblem: it needs contacts and their schedule, active")
        if resolve_integrator(self.integrator).euler_robot(self.model, self.dt) is None:
            raise ValueError(
                "LeggedProblem: integrator must be 'implicit_damping' or 'semi_implicit_euler', "
                f"got {self.integrator!r}"
            )
        wanted = len(self.contacts.names)
        if self.active.ndim != 2 or self.active.shape[1] != wanted or not len(self.active):
            raise ValueError(
                f"LeggedProblem: active has shape {self.active.shape}, expected (steps, {wanted}), "
                f"one column for each of the contacts {self.contacts.names}"
            )
        if self.landings is None:
            if isinstance(self.active, Tracer) or isinstance(self.start, Tracer):
                self.landings = tuple(range(self.steps))
            else:
                first = round(float(self.start / self.dt))
                rows = np.minimum(first + np.arange(-1, self.steps), len(self.active) - 1)
                on = np.asarray(self.active)[np.maximum(rows, 0)]
                self.landings = tuple(np.flatnonzero((on[1:] & ~on[:-1]).any(1)).tolist())

    def starting(self, t: Float[Array, ""]) -> "LeggedProblem":
        """The same problem at another start time, which may be traced."""
        active, slots = cast(Array, self.active), self.slots
        if slots is None and isinstance(active, Tracer):
            slots = self.steps
        elif slots is None:  # the most landings in any horizon
            on = np.asarray(active)
            lands = np.concatenate([[0], (on[1:] & ~on[:-1]).any(1)]).astype(int)
            ends = np.cumsum(np.concatenate([[0], lands, np.zeros(self.steps, int)]))
            slots = int((ends[self.steps :] - ends[: -self.steps]).max())
        return dataclasses.replace(self, start=t, landings=(), slots=slots)

    @property
    def free_euler(self) -> bool:
        """False: the contacts hold the robot."""
        return False

    @property
    def euler(self) -> bool:
        """True: after a landing, a step is semi-implicit Euler."""
        return True

    def phase(self, t: Array) -> tuple[Constraints, Bool[Array, " c"]]:
        """The contacts of the step that begins at time t, and which of them land."""
        active, contacts = cast(Array, self.active), cast(Constraints, self.contacts)
        k = jnp.round(t / self.dt).astype(jnp.int32)
        at = lambda k: active[jnp.clip(k, 0, len(active) - 1)]  # noqa: E731
        now = at(k)
        return contacts.with_active(now), now & ~at(k - 1)

    def landed(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The velocity at time t, after the landing of a contact if there is one."""
        if not self.landings and not self.slots:
            return v
        contacts, lands = self.phase(t)

        def hit(v):
            return impact(self.model, q, v, contacts).v

        return jax.lax.cond(jnp.any(lands), hit, lambda v: v, v)

    def forces(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " m"]:
        """Contact forces (N m, N) in the step that begins at time t."""
        return self.motion(t, q, v, u).forces

    def motion(self, t: Array, q: Array, v: Array, u: Array, land: bool = True) -> "_Motion":
        """The motion at the beginning of a step, after the landing or, without it, from v."""
        v = self.landed(t, q, v) if land else v
        tau = self.torques(t, q, v, u)
        a, forces = constrained_dynamics(self.robot, q, v, tau, self.phase(t)[0])
        return _Motion(v, a, forces)

    def step(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        return self._after(self.motion(self.time(k), q, v, u), q)

    def advance(
        self, k: int | Int[Array, ""], q: Array, v: Array, u: Array
    ) -> tuple[Array, Array, Float[Array, ""]]:
        """The state after step k, and the cost of the step."""
        motion = self.motion(self.time(k), q, v, u)
        return *self._after(motion, q), total(self._terms(motion, k, q, v, u))

    def _after(self, motion: "_Motion", q: Array) -> tuple[Array, Array]:
        v = motion.v + self.dt * motion.a
        return integrate(self.model, q, self.dt * v), v

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options: Any):
        """The trajectory of the controls u."""
        return simulate_steps(self, q0, v0, u, **options)

    def stage_terms(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Terms:
        """The costs of step k with their weights."""
        return self._terms(self.motion(self.time(k), q, v, u), k, q, v, u)

    def _terms(self, motion: "_Motion", k, q: Array, v: Array, u: Array) -> Terms:
        t = self.time(k)
        own = (self.dt, self.stage(self.model, t, q, motion.v, u, motion.forces))
        return (own, *(() if self.added is None else self.added.stage_terms(self, k, q, v, u)))

    def stage_arguments(self, q: Array, v: Array) -> tuple:
        """Arguments of the stage cost at a state, with zeros for the forces."""
        rows = jnp.zeros((cast(Constraints, self.contacts).size,), q.dtype)
        return (*super().stage_arguments(q, v), rows)

    def derivatives(self, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """``(A, B)`` of all steps about states (T, …) and controls (T, …)."""
        return self._expanded(q, v, u, step_derivatives)[0]

    def stage_models(self, q: Array, v: Array, u: Array) -> Quadratic | None:
        """Gauss–Newton models of all stage costs, if they are residuals alone.

        The forces move as their explicit derivatives say, and the landings change the velocity.
        """
        return self._expanded(q, v, u, stage_model)[1] if self._of_residuals(q, v) else None

    def expansions(self, q: Array, v: Array, u: Array) -> tuple[tuple[Array, Array], Any]:
        """:meth:`derivatives` and :meth:`stage_models`, which share the contacts' derivatives."""
        if not self._of_residuals(q, v):
            return self.derivatives(q, v, u), None
        return self._expanded(q, v, u, step_and_stage)

    def _of_residuals(self, q: Array, v: Array) -> bool:
        shape = jax.eval_shape(self.stage, *self.stage_arguments(q[0], v[0])).shape
        return self.added is None and bool(shape)

    def stage_expansion(self, k: Int[Array, ""], q: Array, v: Array, u: Array):
        """The velocity after step k, its slope along (x, u) and the model of the cost, or None."""
        t, nv = self.time(k), self.model.nv
        motion = self.motion(t, q, v, u, land=False)
        by_z, forces_by_z = motion_slopes(self, t, q, v, u)
        W = jnp.eye(nv, by_z.shape[1], nv, dtype=q.dtype) + self.dt * by_z
        model = None
        if self._of_residuals(q[None], v[None]):
            model = stage_of_forces(self, t, q, v, u, motion.forces, forces_by_z)
        return v + self.dt * motion.a, W, model

    def landings_about(self, q: Array, v: Array) -> tuple[Array, ResetMaps | None]:
        """Velocities after the landings, and how they change, if there are any."""
        after, jumps = self._landings(q, v)
        if jumps is None:
            return after, None
        at, steps, nv = self._landing_steps(), np.arange(self.steps), self.model.nv
        lands = jnp.isin(steps, at)
        which = jnp.argmax(steps[:, None] == at[None], axis=1)
        return after, ResetMaps(lands, which, jumps[:, nv:])

    def _expanded(self, q: Array, v: Array, u: Array, one: Callable) -> tuple[Any, Any]:
        """``(A, B)`` and cost models of all steps, or None, from those after their landings."""
        after, jumps = self._landings(q, v)
        each = lambda k, q, v, u: one(self, self.time(k), q, v, u)  # noqa: E731
        slopes, models = jax.vmap(each)(jnp.arange(self.steps), q, after, u)
        if jumps is None:
            return slopes, models
        at = self._landing_steps()
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

    def _landing_steps(self) -> Int[Array | np.ndarray, " l"]:
        """The steps of landings. Where there are fewer than ``slots``, some do not land."""
        if self.slots is None:
            return np.array(self.landings, int)
        one = lambda k: jnp.any(self.phase(self.time(k))[1])  # noqa: E731
        lands = jax.vmap(one)(jnp.arange(self.steps))
        return jnp.nonzero(lands, size=self.slots, fill_value=0)[0]

    def _landings(self, q: Array, v: Array) -> tuple[Array, Array | None]:
        """Velocities after the landings, and ``∂(q, v)/∂(q, v)`` of those steps that have one."""
        at = self._landing_steps()
        if not len(at):
            return v, None
        t = jax.vmap(self.time)(jnp.arange(self.steps))[at]
        one = lambda t, q, v: (self.landed(t, q, v), landing_derivatives(self, t, q, v))  # noqa: E731
        after, jumps = jax.vmap(one)(t, q[at], v[at])
        return v.at[at].set(after), jumps


class _Motion(NamedTuple):
    """Velocity after the landing, accelerations and contact forces."""

    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    forces: Float[Array, " m"]


@lanes
def landing_derivatives(problem: LeggedProblem, t, q, v) -> Float[Array, "n n"]:
    """``∂(q, v)/∂(q, v)`` of a landing, in the tangent space."""
    nv = problem.model.nv

    def at(z):
        return problem.landed(t, integrate(problem.model, q, z[:nv]), v + z[nv:])

    eye = jnp.eye(2 * nv, dtype=q.dtype)
    return eye.at[nv:].set(jax.jacfwd(at)(jnp.zeros((2 * nv,), q.dtype)))


def motion_slopes(problem: LeggedProblem, t, q, v, u):
    """``∂a/∂(x, u)`` and ``∂forces/∂(x, u)`` after the landing."""
    tau = problem.torques(t, q, v, u)
    d = constrained_dynamics_derivatives(problem.robot, q, v, tau, problem.phase(t)[0])
    by_x, by_u = problem.torque_slopes(t, q, v, u)

    def chain(by_q, by_v, by_tau):
        x = jnp.concatenate([by_q, by_v], axis=1)
        x = x if by_x is None else x + times(by_tau, by_x)
        return jnp.concatenate([x, times(by_tau, by_u)], axis=1)

    return chain(*d[:3]), chain(*d[3:])


@lanes
def step_derivatives(problem: LeggedProblem, t, q, v, u) -> tuple[tuple[Array, Array], None]:
    """``(A, B)`` of one step after the landing."""
    a, slopes = problem.motion(t, q, v, u, land=False).a, motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, a, slopes[0]), None


def stage_model(problem: LeggedProblem, t, q, v, u) -> tuple[None, Quadratic]:
    """The Gauss–Newton model of a stage cost of residuals after the landing."""
    return None, step_and_stage(problem, t, q, v, u)[1]


def step_and_stage(problem: LeggedProblem, t, q, v, u):
    """Step Jacobians and the model of the stage cost, in two kernels to bound memory."""
    slopes, forces, by_z = _step_and_forces(problem, t, q, v, u)
    return slopes, stage_of_forces(problem, t, q, v, u, forces, by_z)


@lanes
def _step_and_forces(problem: LeggedProblem, t, q, v, u):
    """``(A, B)`` of one step after the landing, its contact forces, and their slopes."""
    motion, slopes = problem.motion(t, q, v, u, land=False), motion_slopes(problem, t, q, v, u)
    return _step(problem, q, v, motion.a, slopes[0]), motion.forces, slopes[1]


def _step(problem: LeggedProblem, q, v, a, da) -> tuple[Array, Array]:
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
def stage_of_forces(problem: LeggedProblem, t, q, v, u, forces, slope) -> Quadratic:
    """The model of a stage cost from ``S = ∂forces/∂(x, u)``.

    With the blocks of states, controls and forces, x, u and f, its Hessian is
    ``H_ab + S_aᵀ (H_ff S_b + H_fb) + H_faᵀ S_b``. Most blocks are zero.
    """
    dt, n = problem.dt, 2 * v.size

    def residuals(dq, dv, du, df):
        moved = integrate(problem.model, q, dq), v + dv, u + du, forces + df
        return problem.stage(problem.model, t, *moved)

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
