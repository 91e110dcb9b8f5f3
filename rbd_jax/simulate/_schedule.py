"""Constraints in a rollout: which of them hold in a step, impacts, and projection."""

from collections.abc import Callable
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..constraints import Constraints, check, impact, project
from ..model import Model
from ._guard import Guard


class GuardState(NamedTuple):
    """State of a guard between steps: the mask of the active constraints and the anchor frames."""

    mask: Array
    R_2: Array
    p_2: Array


class ConstraintSchedule:
    """Which constraints hold in each step, with impacts at its start and projection at its end.

    ``start`` is the mask before the first step, as numbers (0 or 1). It is empty if no constraint
    begins or ceases to hold.
    """

    def __init__(
        self,
        model: Model,
        constraints: Constraints,
        active: Array | Callable[..., Array] | Guard | None,
        projects: bool,
    ):
        self.model, self.constraints, self.projects = model, constraints, projects
        self.guard = cast(Callable, active) if callable(active) else None
        self.resets = active if isinstance(active, Guard) else None
        self.rows = None if active is None or self.guard is not None else jnp.asarray(active)
        self.start = ()
        if active is not None:
            mask = constraints.active.astype(model.dtype)
            resets = self.resets is not None
            self.start = GuardState(mask, constraints.R_2, constraints.p_2) if resets else mask

    def check(self) -> None:
        """Raise ValueError if the constraints do not fit the robot or what switches them."""
        check("rollout", self.model, self.constraints)
        if self.resets is not None:
            self.resets.check(self.model, self.constraints)
        if self.rows is None:
            return
        c = len(self.constraints.names)
        if self.rows.shape[1:] != (c,) or self.rows.dtype != jnp.bool_:
            raise ValueError(
                f"rollout: active must be bool of shape (T, c) = (T, {c}), got "
                f"{self.rows.dtype} of shape {self.rows.shape}"
            )

    def begin(self, t: Array, q: Array, v: Array, mask, dt: Array):
        """The state and the mask with which a step begins: an impact where a constraint starts."""
        if self.resets is not None:
            q, v, c = self.resets(self.model, t, q, v, cast(Constraints, self.set(mask)), dt)
            return (q, v), GuardState(c.active.astype(mask.mask.dtype), c.R_2, c.p_2)
        if isinstance(mask, tuple):
            return (q, v), mask
        before = mask > 0
        if self.guard is None:  # a schedule knows what held before, wherever a motion begins
            now, before = self.scheduled(t, dt), self.before(t, dt)
        else:
            now = self.guard(t, q, v, before)
        if jnp.shape(now) != before.shape or now.dtype != jnp.bool_:
            raise ValueError(
                f"rollout: active has to return booleans of shape {before.shape}, got "
                f"{now.dtype} of shape {jnp.shape(now)}"
            )
        struck = self.constraints.with_active(now)

        def strike(v):
            return impact(self.model, q, v, struck).v

        v = jax.lax.cond(jnp.any(now & ~before), strike, lambda v: v, v)
        return (q, v), now.astype(mask.dtype)

    def scheduled(self, t: Array, dt: Array) -> Array:
        """The row of the schedule for the step that begins at t."""
        rows = cast(Array, self.rows)
        k = jnp.round(t / dt).astype(jnp.int32)
        return rows[jnp.clip(k, 0, len(rows) - 1)]

    def before(self, t: Array, dt: Array) -> Array:
        """What holds before the step that begins at t; before the first one, as the set says."""
        return jnp.where(t > 0.5 * dt, self.scheduled(t - dt, dt), self.constraints.active)

    def set(self, mask) -> Constraints:
        """The constraints with a mask."""
        if isinstance(mask, GuardState):
            c = eqx.tree_at(lambda c: (c.R_2, c.p_2), self.constraints, mask[1:])
            return cast(Constraints, c).with_active(mask.mask > 0)
        if isinstance(mask, tuple):
            return self.constraints
        return self.constraints.with_active(mask > 0)

    def end(self, q: Array, v: Array, c: Constraints) -> tuple[Array, Array]:
        """The state at the end of a step."""
        return project(self.model, q, v, c)[:2] if self.projects else (q, v)
