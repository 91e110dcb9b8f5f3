"""Single shooting: any optax optimizer on the controls, with gradients through the rollout."""

import importlib
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model.outcome import RESULTS
from ..problems._problem import Problem, with_explicit_closures
from ._progress import report
from ._solution import Found, History, Solution, checked_arguments, solution_of
from ._sqp_loop import options
from ._tolerances import tolerances


def _optax() -> Any:
    try:
        return importlib.import_module("optax")
    except ImportError as error:
        raise ImportError("single shooting needs optax: pip install 'rbd-jax[optimize]'") from error


def single_shooting(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    optimizer: Any = None,
    gradient: Literal["full", "checkpoint", "adjoint"] = "adjoint",
    max_steps: int = 1000,
    tol: float | None = None,
    throw: bool = True,
    progress: Callable | None = None,
) -> Solution:
    """First-order descent on the controls. Projection keeps them within their bounds.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        optimizer: an optax ``GradientTransformation``. None means L-BFGS without bounds, and Adam
            with bounds.
        gradient: gradient mode of the rollout, see :func:`rbd_jax.rollout`.
        max_steps: limit of steps of the optimizer.
        tol: the solver stops when each entry of the gradient, projected onto the bounds, is less
            than ``tol (1 + |cost|)``. None means 1e-5 in float64 and 1e-3 in float32.
        throw: as in :func:`ilqr`. progress: as in :func:`ilqr`.

    Returns:
        The stationary controls if the solver converges, otherwise the controls with the lowest
        cost. ``expected`` in the history is the greatest entry of the projected gradient. The
        derivatives follow from the implicit function theorem, see :class:`Solution`.

    Raises:
        ImportError: without optax. ValueError: for a wrong shape. TypeError: for a value that is no
            array, or of integers.
    """
    optax = _optax()
    q0, v0, u = checked_arguments("single_shooting", problem, q0, v0, u)
    if tol is None:
        tol = tolerances(u.dtype).first_order
    o = options("single_shooting", u.dtype, max_steps, tol, 0.0, progress)
    if optimizer is None:
        optimizer = optax.adam(0.05) if problem.bounded else optax.lbfgs()
    optimizer = optax.with_extra_args_support(optimizer)

    def solve(problem, q0, v0, u) -> Found:
        def objective(u):
            path = problem.simulate(q0, v0, u, gradient=gradient)
            return problem.cost(*problem.stacked(path), u)

        evaluate = jax.value_and_grad(objective)

        def body(s):
            u, memory, best, k, _, _, history = s
            cost, slope = evaluate(u)
            size = jnp.max(jnp.abs(u - problem.clip(u - slope)), initial=0)
            converged = size <= tol * (1 + jnp.abs(cost))
            # optax does not work under the strict promotion settings that a user may have
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                step, memory = optimizer.update(
                    slope, memory, u, value=cost, grad=slope, value_fn=objective
                )
            better = converged | (cost < best[1])
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), (u, cost), best)
            numbers = cost, size, jnp.ones_like(cost), jnp.zeros_like(cost)
            report(o.progress, k + 1, *numbers)
            row = History(*numbers)
            history = jax.tree.map(lambda h, x: h.at[k].set(x), history, row)
            result = RESULTS.where(converged, RESULTS.successful, RESULTS.max_steps_reached)
            nonfinite = ~jnp.isfinite(cost)
            result = RESULTS.where(nonfinite, RESULTS.nonfinite, result)
            done = converged | nonfinite | (k + 1 >= max_steps)
            return problem.clip(u + step), memory, best, k + 1, done, result, history

        u = problem.clip(u)
        empty = jnp.full((max_steps,), jnp.nan, u.dtype)
        infinite = jnp.full((), jnp.inf, u.dtype)
        first = RESULTS.max_steps_reached, History(*[empty] * 4)
        zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        start = u, optimizer.init(u), (u, infinite), zero, no, *first
        _, _, (u, _), k, _, result, history = jax.lax.while_loop(lambda s: ~s[4], body, start)
        K = jnp.zeros((*u.shape, problem.nx), u.dtype)
        return Found(u, K, result, k, history)

    return solution_of(solve, with_explicit_closures(problem, q0, v0), q0, v0, u, throw)
