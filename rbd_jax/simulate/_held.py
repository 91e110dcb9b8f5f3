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


class Kept(NamedTuple):
    """What a step with a guard hands over: which constraints hold, as numbers, and where."""

    mask: Array
    R_2: Array
    p_2: Array


class Switching:
    """What a rollout does with its constraints at the start and at the end of a step.

    ``start`` is the mask that the first step begins from, as numbers (0 or 1), and ``rows`` is the
    schedule; both are empty where nothing switches.
    """

    def __init__(
        self,
        model: Model,
        constraints: Constraints | None,
        active: Array | Callable[..., Array] | Guard | None,
        projects: bool,
        steps: int,
    ):
        if constraints is None and (active is not None or projects):
            raise ValueError("rollout: active and project need constraints=…")
        self.model, self.constraints, self.projects = model, constraints, projects
        self.guard = cast(Callable, active) if callable(active) else None
        self.resets = active if isinstance(active, Guard) else None
        self.rows, self.start = None, ()
        if constraints is None:
            return
        check("rollout", model, constraints)
        if active is None:
            return
        self.start = constraints.active.astype(model.dtype)
        if self.resets is not None:
            self.resets.check(model, constraints)
            self.start = Kept(self.start, constraints.R_2, constraints.p_2)
        if self.guard is None:
            self.rows = jnp.asarray(active)
            expected = (steps, len(constraints.names))
            if self.rows.shape != expected or self.rows.dtype != jnp.bool_:
                raise ValueError(
                    f"rollout: active must be bool of shape (T, c) = {expected}, got "
                    f"{self.rows.dtype} of shape {self.rows.shape}"
                )

    def begin(self, t: Array, q: Array, v: Array, mask, scheduled: Array | None, dt: Array):
        """The state and the mask with which a step begins: an impact where a constraint starts."""
        if self.resets is not None:
            q, v, c = self.resets(self.model, t, q, v, cast(Constraints, self.set(mask)), dt)
            return (q, v), Kept(c.active.astype(mask.mask.dtype), c.R_2, c.p_2)
        if self.constraints is None or isinstance(mask, tuple):
            return (q, v), mask
        before = mask > 0
        now = cast(Array, scheduled if self.guard is None else self.guard(t, q, v, before))
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

    def set(self, mask) -> Constraints | None:
        """The constraints with a mask."""
        if isinstance(mask, Kept):
            c = eqx.tree_at(lambda c: (c.R_2, c.p_2), self.constraints, mask[1:])
            return cast(Constraints, c).with_active(mask.mask > 0)
        if self.constraints is None or isinstance(mask, tuple):
            return self.constraints
        return self.constraints.with_active(mask > 0)

    def end(self, q: Array, v: Array, c: Constraints | None) -> tuple[Array, Array]:
        """The state at the end of a step."""
        return (q, v) if c is None or not self.projects else project(self.model, q, v, c)[:2]
