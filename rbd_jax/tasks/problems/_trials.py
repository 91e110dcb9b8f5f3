"""A problem with many starts, for comparisons of solvers."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import integrate
from ...optimize import Constraint, Problem
from ._task import Task


class Trials(NamedTuple):
    """A problem with its constraints, many starts, and a first guess of the controls of each."""

    problem: Problem
    q0: Float[Array, "S nq"]
    v0: Float[Array, "S nv"]
    u: Float[Array, "S T nu"]
    constraints: tuple[Constraint, ...]
    each: tuple[Problem, tuple[Constraint, ...]] | None = None
    """Where the starts have robots of their own: the problems and the constraints of all starts,
    as arrays (S, …). ``problem`` and ``constraints`` are those of the first start."""

    def start(self, k: int = 0) -> Task:
        """The problem with start k alone."""
        return Task(self.at(k)[0], self.q0[k], self.v0[k], self.u[k])

    def at(self, k: int) -> tuple[Problem, tuple[Constraint, ...]]:
        """The problem and the constraints of start k."""
        if self.each is None:
            return self.problem, self.constraints
        return jax.tree.map(lambda x: x[k] if eqx.is_array(x) else x, self.each)

    def first(self, count: int) -> "Trials":
        """The first starts alone."""
        few = lambda x: x[:count] if eqx.is_array(x) else x  # noqa: E731
        q0, v0, u, each = jax.tree.map(few, (self.q0, self.v0, self.u, self.each))
        return self._replace(q0=q0, v0=v0, u=u, each=each)

    def mapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function(problem, constraints, *of one start)`` over arrays of all starts."""
        if self.each is None:
            return jax.vmap(partial(function, self.problem, self.constraints))
        arrays, rest = eqx.partition(self.each, eqx.is_array)

        def one(arrays, *start):
            return function(*eqx.combine(arrays, rest), *start)

        return lambda *starts: jax.vmap(one)(arrays, *starts)


def disturbed(
    problem: Problem,
    q0,
    u,
    constraints: tuple[Constraint, ...],
    spread: tuple[float, float, float],
    starts: int,
    seed: int,
) -> Trials:
    """Starts about q0 at rest and about the controls u, with noise of up to ``spread``."""
    model, rng = problem.model, np.random.default_rng(seed)
    u = np.broadcast_to(np.asarray(u, float), (problem.steps, problem.controls))
    shapes = (model.nv,), (model.nv,), u.shape
    dq, dv, du = (s * rng.uniform(-1, 1, (starts, *n)) for s, n in zip(spread, shapes, strict=True))
    dq, dv, du = (np.where(np.arange(starts).reshape(-1, *[1] * (x.ndim - 1)) == 0, 0, x)
                  for x in (dq, dv, du))  # fmt: skip
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    q = jnp.stack([integrate(model, array(q0), array(d)) for d in dq])
    return Trials(problem, q, array(dv), problem.clip(array(u + du)), constraints)


def drawn(cases: Iterable[tuple[Problem, tuple[Constraint, ...]]], q0, u) -> Trials:
    """One start at rest at q0, with the same first guess u, for each of some problems alike."""
    arrays, rest = zip(*(eqx.partition(case, eqx.is_array) for case in cases), strict=True)
    each = eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *arrays), rest[0])
    problem, constraints = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, each)
    model, count = problem.model, len(arrays)
    tile = lambda x, *shape: jnp.broadcast_to(jnp.asarray(x, model.dtype), (count, *shape))  # noqa: E731
    start = tile(q0, model.nq), tile(0.0, model.nv), tile(u, problem.steps, problem.controls)
    return Trials(problem, *start, constraints, each)
