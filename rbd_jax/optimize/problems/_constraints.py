"""Constraints of a trajectory: ``g ≤ 0`` and ``h = 0`` at its steps and at its end."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...lanes import lanes
from ...model import Model
from ...model.functions import as_module, check_arity
from ._problem import Problem, check_returned, with_explicit_closure


class Constraint(eqx.Module):
    """A function that has to be at most zero, or zero, in each of its entries.

    Every array in the function, if it is an equinox module, and every array that it closes over is
    a parameter by which solutions are differentiated.
    """

    function: Callable[..., Array] = eqx.field(converter=as_module)
    """``function(model, t, q, v, u)`` if it holds ``at="stage"``, else ``function(model, q, v)``;
    it returns a number or a vector."""
    name: str = eqx.field(static=True)
    """The name by which the solver reports a violation."""
    equality: bool = eqx.field(static=True, default=False)
    """Whether the entries have to be zero, instead of at most zero."""
    at: Literal["stage", "states", "final"] = eqx.field(static=True, default="stage")
    """Where it holds: ``"stage"`` at every step 0 … T − 1, ``"states"`` at the states 1 … T (the
    controls do not reach the first state), ``"final"`` at the last state T alone."""
    active: Bool[Array, " T"] | Any = None
    """Where it holds among these steps or states, one entry for each; everywhere if None."""

    def __post_init__(self):
        if self.at not in ("stage", "states", "final"):
            raise ValueError(
                f"Constraint {self.name!r}: at must be 'stage', 'states' or 'final', got "
                f"{self.at!r}"
            )
        arguments = "model, t, q, v, u" if self.at == "stage" else "model, q, v"
        check_arity(f"Constraint {self.name!r} at {self.at!r}", self.function, arguments)
        if self.active is None:
            return
        if self.at == "final":
            raise ValueError(f"Constraint {self.name!r}: active is of no use at the last state")
        self.active = jnp.asarray(self.active)
        if self.active.dtype != jnp.bool_:
            raise TypeError(
                f"Constraint {self.name!r}: active has to be an array of booleans, one for each "
                f"step, got {self.active.dtype}"
            )


class Rows(NamedTuple):
    """One number for each row of the constraints: values, multipliers, violations, masks."""

    stage: Float[Array, "T s"] | Any
    """Rows of the constraints at the steps 0 … T − 1 and at the states before the last one."""
    final: Float[Array, " f"] | Any
    """Rows of the constraints at the last state."""


class Stack(eqx.Module):
    """All constraints of a problem as rows of two vectors, one at a step and one at the end."""

    constraints: tuple[Constraint, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    """Number of rows of each constraint."""
    steps: int = eqx.field(static=True)

    @property
    def names(self) -> Rows:
        """The constraint of each row and its number among the rows of that constraint."""
        rows = lambda final: tuple(  # noqa: E731
            (c.name, i) for c, n in self._chosen(final) for i in range(n)
        )
        return Rows(rows(False), rows(True))

    @property
    def equality(self) -> Rows:
        """Which rows have to be zero."""
        flags = lambda final: np.concatenate(  # noqa: E731
            [np.zeros(0, bool), *(np.full(n, c.equality) for c, n in self._chosen(final))]
        )
        return Rows(flags(False), flags(True))

    def _chosen(self, final: bool) -> list[tuple[Constraint, int]]:
        places = ("states", "final") if final else ("stage", "states")
        pairs = zip(self.constraints, self.sizes, strict=True)
        return [(c, n) for c, n in pairs if c.at in places]

    def stage(self, problem: Any, k: Int[Array, ""], q: Array, v: Array, u: Array) -> Array:
        """The rows of step k; those of constraints that do not hold there are zero.

        Here and below, v is the vector y of a :class:`Problem`.
        """
        model, t, rows = problem.model, problem.time(k), [jnp.zeros((0,), problem.model.dtype)]
        v = problem.velocity(v)
        for c, n in self._chosen(False):
            value = c.function(model, t, q, v, u) if c.at == "stage" else c.function(model, q, v)
            rows.append(jnp.where(self._holds(c, k), _rows(model, value, n), 0))
        return jnp.concatenate(rows)

    def final(self, problem: Any, q: Array, v: Array) -> Array:
        """The rows of the last state."""
        rows, last = [jnp.zeros((0,), problem.model.dtype)], jnp.asarray(self.steps)
        v = problem.velocity(v)
        for c, n in self._chosen(True):
            value = _rows(problem.model, c.function(problem.model, q, v), n)
            rows.append(jnp.where(self._holds(c, last), value, 0))
        return jnp.concatenate(rows)

    def _holds(self, c: Constraint, k: Int[Array, ""]) -> Array:
        first = 1 if c.at == "states" else 0
        if c.at == "final" or c.active is None:
            return k >= first
        return (k >= first) & c.active[jnp.maximum(k - first, 0)]

    def holds(self) -> Rows:
        """Which rows stand for a constraint, as booleans (T, s) and (f,)."""

        def at(k, final):
            rows = [jnp.broadcast_to(self._holds(c, k), (n,)) for c, n in self._chosen(final)]
            return jnp.concatenate([jnp.zeros((0,), bool), *rows])

        last = jnp.asarray(self.steps)
        return Rows(jax.vmap(lambda k: at(k, False))(jnp.arange(self.steps)), at(last, True))

    def values(self, problem: Any, q: Array, v: Array, u: Array) -> Rows:
        """All rows of a trajectory."""
        one = lambda *row: _stage(self, problem, *row)  # noqa: E731
        stage = jax.vmap(one)(jnp.arange(self.steps), q[:-1], v[:-1], u)
        return Rows(stage, self.final(problem, q[-1], v[-1]))

    def jacobians(self, problem: Any, q: Array, v: Array, u: Array) -> Rows:
        """Jacobians of the rows of each step (T, s, n + m) and of the end (f, n)."""
        one = lambda *row: _jacobian(self, problem, *row)  # noqa: E731

        def last(z):
            return self.final(problem, *problem.moved(q[-1], v[-1], u[-1, :0], z)[:2])

        end = jax.jacfwd(last)(jnp.zeros((problem.nx,), q.dtype))
        return Rows(jax.vmap(one)(jnp.arange(self.steps), q[:-1], v[:-1], u), end)


def _rows(model: Model, value, n: int) -> Float[Array, " n"]:
    """What a constraint returns, as rows in the robot's precision."""
    return jnp.reshape(jnp.asarray(value, model.dtype), (n,))


@lanes
def _stage(rows: Stack, problem: Problem, k, q: Array, v: Array, u: Array) -> Float[Array, " s"]:
    return rows.stage(problem, k, q, v, u)


@lanes
def _jacobian(rows: Stack, problem: Problem, k, q: Array, v: Array, u: Array) -> Array:
    zero = jnp.zeros((problem.nx + u.size,), q.dtype)
    return jax.jacfwd(lambda z: rows.stage(problem, k, *problem.moved(q, v, u, z)))(zero)


def as_list(constraints: Iterable[Constraint]) -> list[Constraint]:
    """The constraints, which may come from an iterator, as a list.

    Raises:
        TypeError: for anything else than constraints.
    """
    if isinstance(constraints, Constraint):
        raise TypeError("constraints: expected a list of constraints, got one alone; write [it]")
    found = list(constraints)
    for c in found:
        if not isinstance(c, Constraint):
            raise TypeError(
                f"constraints: expected rbd_jax.optimize.Constraint, got {type(c).__name__}; wrap "
                "a function with Constraint(function, name)"
            )
    return found


def stack(problem: Problem, constraints: Iterable[Constraint], q: Array, v: Array) -> Stack:
    """The constraints of a problem, whose functions hold what they close over as their leaves.

    Raises:
        ValueError: for two constraints of one name, or a wrong shape.
        TypeError: for anything else than constraints, or one that returns no numbers.
    """
    constraints = as_list(constraints)
    names = [c.name for c in constraints]
    if twice := {n for n in names if names.count(n) > 1}:
        raise ValueError(f"constraints: several are called {sorted(twice)[0]!r}; rename them")
    t, u = jnp.zeros((), q.dtype), jnp.zeros((problem.controls,), q.dtype)
    v = problem.velocity(v)
    found, sizes = [], []
    for c in constraints:
        inputs = (problem.model, t, q, v, u) if c.at == "stage" else (problem.model, q, v)
        shape = check_returned(f"Constraint {c.name!r}", c.function, inputs)
        function = with_explicit_closure(c.function, *inputs)
        if c.active is not None and c.active.shape != (problem.steps,):
            raise ValueError(
                f"Constraint {c.name!r}: active has shape {c.active.shape}, expected "
                f"{(problem.steps,)}"
            )
        found.append(eqx.tree_at(lambda c: c.function, c, function))
        sizes.append(shape[0] if shape else 1)
    return Stack(tuple(found), tuple(sizes), problem.steps)


def zeros(rows: Stack, dtype) -> Rows:
    """A zero for each row."""
    stage, final = rows.equality
    return Rows(jnp.zeros((rows.steps, stage.size), dtype), jnp.zeros(final.shape, dtype))
