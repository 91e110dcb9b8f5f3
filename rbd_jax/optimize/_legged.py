"""Motion with contacts on a given schedule: which feet hold in which step, impacts in between."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from ..constraints import (
    Constraints,
    constrained_dynamics,
    constrained_dynamics_derivatives,
    impact,
)
from ..model import integrate, rate_from_velocity, velocity_from_rate
from ..simulate import Trajectory
from ._problem import Problem, Terms


class LeggedProblem(Problem):
    """A :class:`Problem` whose robot stands on contacts that a schedule switches on and off.

    In step k the contacts ``active[k]`` hold. Those that hold in step k and not in step k − 1 land
    at the beginning of step k: there the velocity jumps so that no active contact moves. A step is
    semi-implicit Euler with the accelerations of :func:`rbd_jax.constrained_dynamics`.

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
    """Steps at which a contact may land; found in ``active`` if None. If that is traced, or if
    the start time is not zero, every step may be one, which costs time and changes no number."""

    def __post_init__(self):
        super().__post_init__()
        if self.contacts is None or self.active is None:
            raise ValueError("LeggedProblem: it needs contacts and their schedule, active")
        if self.integrator != "semi_implicit_euler":
            raise ValueError(
                f"LeggedProblem: integrator must be 'semi_implicit_euler', got {self.integrator!r}"
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

    @property
    def free_euler(self) -> bool:
        """False: the contacts hold the robot."""
        return False

    def phase(self, t: Array) -> tuple[Constraints, Bool[Array, " c"]]:
        """The contacts of the step that begins at time t, and which of them land."""
        active, contacts = cast(Array, self.active), cast(Constraints, self.contacts)
        k = jnp.round(t / self.dt).astype(jnp.int32)
        at = lambda k: active[jnp.clip(k, 0, len(active) - 1)]  # noqa: E731
        now = at(k)
        return contacts.with_active(now), now & ~at(k - 1)

    def landed(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The velocity at time t, after the landing of a contact if there is one."""
        if not self.landings:
            return v
        contacts, lands = self.phase(t)

        def hit(v):
            return impact(self.model, q, v, contacts).v

        return jax.lax.cond(jnp.any(lands), hit, lambda v: v, v)

    def forces(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " m"]:
        """Contact forces (N m, N) in the step that begins at time t."""
        return self._motion(t, q, self.landed(t, q, v), u)[1]

    def _motion(self, t: Array, q: Array, v: Array, u: Array):
        tau = self.torques(t, q, v, u)
        return constrained_dynamics(self.model, q, v, tau, self.phase(t)[0])

    def step(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        t = self.time(k)
        v = self.landed(t, q, v)
        v = v + self.dt * self._motion(t, q, v, u)[0]
        return integrate(self.model, q, self.dt * v), v

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options: Any):
        """The trajectory of the controls u."""
        if options.get("gradient", "full") != "full":
            raise ValueError("LeggedProblem: single shooting needs gradient='full'")

        def body(state, row):
            k, u = row
            new = self.step(k, *state, u)
            return new, (*new, self.torques(self.time(k), *state, u))

        k = jnp.arange(self.steps)
        _, (q, v, tau) = jax.lax.scan(body, (q0, v0), (k, u))
        q, v = (jnp.concatenate([x0[None], x]) for x0, x in ((q0, q), (v0, v)))
        return Trajectory(self.time(jnp.arange(self.steps + 1)), q, v, tau)

    def stage_terms(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Terms:
        """The costs of step k with their weights."""
        t = self.time(k)
        v = self.landed(t, q, v)
        forces = self._motion(t, q, v, u)[1]
        own = (self.dt, self.stage(self.model, t, q, v, u, forces))
        return (own, *(() if self.added is None else self.added.stage_terms(self, k, q, v, u)))

    def stage_arguments(self, q: Array, v: Array) -> tuple:
        """What the stage cost is called with, for its shapes."""
        rows = jnp.zeros((cast(Constraints, self.contacts).size,), q.dtype)
        return (*super().stage_arguments(q, v), rows)

    def derivatives(self, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """``(A, B)`` of all steps about states (T, …) and controls (T, …)."""
        k, nv = jnp.arange(self.steps), self.model.nv
        t = jax.vmap(self.time)(k)
        after = jax.vmap(self.landed)(t, q, v)
        A, B = jax.vmap(self._step_derivatives)(t, q, after, u)
        steps = np.array(self.landings, int)
        if len(steps):

            def jump(t, q, v):
                eye = jnp.eye(2 * nv, dtype=q.dtype)

                def at(z):
                    return self.landed(t, integrate(self.model, q, z[:nv]), v + z[nv:])

                return eye.at[nv:].set(jax.jacfwd(at)(jnp.zeros((2 * nv,), q.dtype)))

            L = jax.vmap(jump)(t[steps], q[steps], v[steps])
            A = A.at[steps].set(jnp.matmul(A[steps], L, precision="highest"))
        return A, B

    def _step_derivatives(self, t: Array, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """``(A, B)`` of one step after the landing."""
        model, dt, nv = self.model, self.dt, self.model.nv
        tau = self.torques(t, q, v, u)
        contacts = self.phase(t)[0]
        a = constrained_dynamics(model, q, v, tau, contacts).a
        d = constrained_dynamics_derivatives(model, q, v, tau, contacts)
        by_x, by_u = self.torque_slopes(t, q, v, u)
        da = jnp.concatenate([d.da_dq, d.da_dv], axis=1)
        times = lambda a, b: jnp.matmul(a, b, precision="highest")  # noqa: E731
        da = da if by_x is None else da + times(d.da_dtau, by_x)
        da = jnp.concatenate([da, times(d.da_dtau, by_u)], axis=1)
        dq, dv = jnp.split(jnp.eye(2 * nv, da.shape[1], dtype=q.dtype), 2)

        def advance(q, v, a):
            v = v + dt * a
            return integrate(model, q, dt * v), v

        def push(dq, dv, da):
            rates = rate_from_velocity(model, q, dq), dv, da
            (q1, _), (rate, dv1) = jax.jvp(advance, (q, v, a), rates)
            return jnp.concatenate([velocity_from_rate(model, q1, rate), dv1])

        AB = jax.vmap(push, in_axes=1, out_axes=1)(dq, dv, da)
        return AB[:, : 2 * nv], AB[:, 2 * nv :]
