"""Guards of rollouts: the state decides which constraints hold, and jumps where that changes."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..constraints import Constraints, anchored, check, constrained_dynamics, impact
from ..model import Model, integrate, rate_from_velocity
from ..model.arguments import of_dtype
from ..model.functions import as_module
from ..spatial import so3
from ._actuated import implicitly_damped


class Switched(NamedTuple):
    """The state with which a step begins, and the constraints that hold in it."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    held: Constraints


class Guard(eqx.Module):
    """Decides at the start of each step which constraints hold, and resets the state.

    A subclass is passed as ``active=`` to :func:`rbd_jax.rollout`, together with ``constraints=``.
    """

    def check(self, model: Model, constraints: Constraints) -> None:
        """Raise an error if the guard cannot switch these constraints; once for each rollout."""
        check(type(self).__name__, model, constraints)

    @abc.abstractmethod
    def __call__(
        self, model: Model, t: Array, q: Array, v: Array, held: Constraints, dt: Array
    ) -> Switched:
        """The state and the set for the step from t to t + dt.

        Args:
            model: the robot.
            t: time at the start of the step (s).
            q: configuration.
            v: velocity.
            held: the set as the step before left it. ``active``, ``R_2`` and ``p_2`` may change.
            dt: time step (s).
        """


def _height(p: Float[Array, "3"]) -> Float[Array, ""]:
    return p[2]


class Touching(Guard):
    """A guard for feet: they touch the ground, bounce or stick, and lift off.

    A constraint that does not hold strikes if its frame has reached the ground and approaches it.
    The state goes back to the time of the touch at constant acceleration. There
    :func:`rbd_jax.impact` changes the velocities with the restitution of the constraint, and the
    rest of the step begins. If the rebound were slower than ``stick``, the constraint sticks
    instead: its restitution counts as zero, and it holds where it has landed. A constraint that
    holds lifts off if its force pulls at the ground. Baumgarte's terms do not count as force.
    Joint damping is implicit over the step, so that strong damping is stable here too.

    A rollout keeps the states at the ends of its steps: the one before a touch is still below the
    ground, by less than the speed times dt, and the reset belongs to the next step.

    Derivatives are those along the path that is taken, and the time of each touch is a function of
    the state. Up to terms of order dt they are the derivatives of the continuous motion (the
    saltation matrix of hybrid systems). The time of a lift-off needs no such care, because
    velocities do not jump there. If several constraints strike in one step, the time is the
    earliest one. Constraints that hold take part in impacts, and their impulses may pull.

    Source: events and resets as in Featherstone, Rigid Body Dynamics Algorithms, ch. 11; saltation
    as in Kong, Payne, Zhu, Johnson, "Saltation Matrices", Proceedings of the IEEE, 2024.
    """

    controls: Callable[..., Array] | None = eqx.field(converter=as_module, default=None)
    """The policy ``controls(t, q, v) -> tau`` of the rollout, (nv,) in N m or N; none is zero."""
    gap: Callable[[Array], Array] = eqx.field(converter=as_module, default=_height)
    """Signed distance of a point of the world, (3,) in m, from the ground (m); its height z."""
    stick: float | Float[Array, ""] = 0.01
    """Rebounds that are slower than this stick (m/s)."""
    f_ext: Float[Array, "nb 6"] | None = None
    """The external wrenches (n, f) of the rollout, each in the frame of its body (N m, N)."""

    def check(self, model: Model, constraints: Constraints) -> None:
        """Raise ValueError for constraints that are no feet: loops, couplings, other rows."""
        super().check(model, constraints)
        for p in constraints.pairs:
            if p.body_2 != -1 or not {3, 4, 5} <= set(p.rows):
                raise ValueError(
                    f"Touching: constraint {p.name!r} has to be a point or a frame that is held at "
                    f"the world with its rows 3, 4, 5; it has the rows {p.rows} and "
                    f"{'is held at the world' if p.body_2 == -1 else 'is held at another body'}"
                )
        if constraints.couplings:
            raise ValueError(
                f"Touching: couplings {list(constraints.couplings)} are no feet; lock joints "
                "with rbd_jax.model.with_mimics, or write a Guard"
            )

    def __call__(
        self, model: Model, t: Array, q: Array, v: Array, held: Constraints, dt: Array
    ) -> Switched:
        """The state after touch-downs and lift-offs; see :class:`Guard` for the arguments."""

        def moving(q, v):  # distances from the ground, and their rates
            at = lambda q: jax.vmap(self.gap)(anchored(model, q, held).p_2)  # noqa: E731
            return jax.jvp(at, (q,), (rate_from_velocity(model, q, v),))

        tau = (
            jnp.zeros_like(v) if self.controls is None else of_dtype(model, self.controls(t, q, v))
        )
        plain, damped = _without_gains(held), implicitly_damped(model, dt)
        a, forces = constrained_dynamics(damped, q, v, tau, plain, self.f_ext)
        rates = rate_from_velocity(model, q, v), a
        (depth, speed), (_, bend) = jax.jvp(moving, (q, v), rates)
        stays = held.active & (self._normal(model, q, plain, forces) >= 0)
        strikes = ~held.active & (depth <= 0) & (speed < 0)
        sticks = strikes & (-held.restitution * speed < self.stick)
        holds = stays | sticks

        def strike(q, v):
            # time since the touch, where depth − speed s + bend s²/2 = 0
            root = jnp.sqrt(jnp.where(strikes, jnp.maximum(speed**2 - 2 * bend * depth, 0), 1))
            since = jnp.where(strikes, 2 * depth / (speed - root), 0)
            since = jnp.minimum(jnp.max(since), dt)
            q = integrate(model, q, since * (0.5 * since * a - v))
            e = jnp.where(strikes & ~sticks, held.restitution, 0)
            struck = eqx.tree_at(lambda c: c.restitution, plain.with_active(stays | strikes), e)
            v = impact(model, q, v - since * a, struck).v
            after = constrained_dynamics(damped, q, v, tau, plain.with_active(holds), self.f_ext).a
            q = integrate(model, q, since * (v + 0.5 * since * after))
            return q, v + since * after

        q, v = jax.lax.cond(jnp.any(strikes), strike, lambda q, v: (q, v), q, v)
        landed, new = anchored(model, q, held), held.with_active(holds)
        R = jnp.where(sticks[:, None, None], landed.R_2, held.R_2)
        p = jnp.where(sticks[:, None], landed.p_2, held.p_2)
        return Switched(q, v, eqx.tree_at(lambda c: (c.R_2, c.p_2), new, (R, p)))

    def _normal(self, model: Model, q: Array, c: Constraints, forces: Array) -> Array:
        """The force of each constraint along the normal of the ground (N), times its slope."""
        at = anchored(model, q, c)
        starts = np.cumsum([0, *c.sizes])
        rows = np.array([s + p.rows.index(3) + np.arange(3)
                         for s, p in zip(starts, c.pairs, strict=False)])  # fmt: skip
        f = forces[rows]
        local = np.array([p.local for p in c.pairs])[:, None]
        f = jnp.where(local, so3.rotate(at.R_2, f), f)
        return jnp.sum(jax.vmap(jax.grad(self.gap))(at.p_2) * f, axis=1)


def _without_gains(c: Constraints) -> Constraints:
    zero = jnp.zeros_like(c.position_gain)
    return eqx.tree_at(lambda c: (c.position_gain, c.velocity_gain), c, (zero, zero))
