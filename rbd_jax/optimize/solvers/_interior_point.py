"""Constrained trajectory optimization: a primal-dual interior point around iLQR and DDP."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...spatial import linear
from ..linear_quadratic._active_set import add_curvature
from ..linear_quadratic._lq_approximation import costates, curvature, gauss_newton, quadratic
from ..linear_quadratic._riccati import Gains, lqr_rollout, riccati_backward
from ..problems._constraints import Constraint, Rows, Stack, stack
from ..problems._local_models import Dynamics, Quadratic, times
from ..problems._problem import Problem, with_explicit_closures
from ._augmented_lagrangian import Limits, checked_limits, constrained_solution, penalized
from ._ilqr import curvature_scale, gradient, roll
from ._implicit import without_derivatives
from ._lagrangian import Weighted, with_terms
from ._solution import ConstrainedSolution, checked_arguments
from ._sqp_loop import Options, Proposal, line_search, options, sqp_loop

FIRST = 1.0
"""The first barrier parameter."""
LEAST = 1e-3
"""The last barrier parameter, as a part of the violation that counts as none."""
ROUNDING = 100.0
"""The last barrier parameter is at least so many times the unit of rounding."""
FALL, POWER = 0.2, 1.5
"""The barrier parameter b falls to the lesser one of ``FALL b`` and ``b ** POWER``."""
CLOSE = 10.0
"""It falls where the conditions of its problem hold up to so many times itself."""
ROOM = 1e-2
"""Least distance of the first controls from their bounds, and least slack of the first point."""
NEAR = 0.99
"""Greatest part of the way to a bound, or of a slack or multiplier to zero, that a step goes."""
CENTRAL = 100.0
"""Greatest factor between a multiplier and the barrier parameter over its distance. Multipliers far
from there make models of products indefinite that are not at the center of the barrier."""
SCALE = 100.0
"""Mean multiplier above which errors are relative to multipliers."""
STIFF = 1e6
"""Stiffness of equalities in the model of a step, whose multipliers follow from it."""
PENALTY = 0.1
"""First penalty of the last stage, as a part of the greatest one."""


class Duals(NamedTuple):
    """Multipliers of the rows and of the bounds."""

    rows: Rows
    low: Float[Array, "T m"]
    high: Float[Array, "T m"]


class Carried(NamedTuple):
    """What steps hand on beside the point ``(q, v, u, cost, rows, slacks)``."""

    K: Float[Array, "T m n"]
    duals: Duals
    weight: Rows
    """Weights of the violations in the merit function."""
    barrier: Float[Array, ""]


class Walls(NamedTuple):
    """Which rows and controls have a barrier."""

    low: Float[Array, "T m"]
    """Lower bounds of the controls, infinite where there is none or no room."""
    high: Float[Array, "T m"]
    free: Bool[Array, "T m"]
    """Controls whose bounds are not equal."""
    holds: Rows
    equal: Rows
    """Rows that are equalities, and hold."""


class Model(NamedTuple):
    """The expansion about a point."""

    f: Dynamics
    l: Quadratic
    end: Quadratic
    exact: tuple[Quadratic, Quadratic] | None
    """What the exact second derivatives of the Lagrangian add to ``l`` and ``end``."""
    C: Rows
    """Jacobians of the rows."""
    size: Float[Array, ""]
    """The unit of the regularization."""
    barrier: Float[Array, ""]
    ready: Bool[Array, ""]
    """Whether the conditions hold with the least barrier parameter."""


def interior_point(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    constraints: Iterable[Constraint],
    *,
    second_order: bool = False,
    max_steps: int = 600,
    tol: float | None = None,
    feasibility: float | None = None,
    regularization: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
    iterates: bool = False,
) -> ConstrainedSolution:
    """Minimize under constraints by a primal-dual interior point, and finish as an active set does.

    Take it for problems in which forces are controls that act only in contact, such as products of
    a force and a distance that cost. :func:`augmented_lagrangian` lets distances become negative on
    its way, where such a product is a gain and models have no minimum. Here slacks and controls
    stay positive, and the barrier makes contacts soft first and stiff at last.

    A step is one Riccati sweep, in which slacks and multipliers are eliminated. The model of each
    stage is made convex: its negative eigenvalues change their signs. With ``second_order``, as
    large a share of the exact model as has a minimum is mixed in. The line search is on the
    costs with barriers and an ℓ₁ penalty of the violations. Where the barrier is least,
    :func:`augmented_lagrangian` takes over with the multipliers, finds the last digits, and tells
    whether the problem is solved.

    Source: Xu, Gould, Shames (2025), Interior point differential dynamic programming, redux; rules
    for barrier and multipliers: Wächter, Biegler (2006), (7), (8), (15), (16). Departures: slacks
    for all inequalities, a merit function instead of a filter, stages made convex instead of one
    regularization for all, and multipliers nearer to the center of the barrier.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        constraints: what has to hold, as in :func:`augmented_lagrangian`.
        second_order: as in :func:`augmented_lagrangian`.
        max_steps: limit of steps, of both stages together.
        tol: as in :func:`augmented_lagrangian`. feasibility: as there.
        regularization: as in :func:`ilqr`. throw: as in :func:`augmented_lagrangian`.
        progress: as in :func:`ilqr`, with the costs, barriers and penalties.
        iterates: as in :func:`ilqr`.

    Returns:
        The solution with its multipliers, as that of :func:`augmented_lagrangian`.

    Raises:
        ValueError: for a wrong shape, or two constraints of one name. TypeError: for a value that
            is no array, or of integers.
    """
    name = "interior_point"
    q0, v0, u = checked_arguments(name, problem, q0, v0, u)
    problem, rows = with_explicit_closures(problem, q0, v0), stack(problem, constraints, q0, v0)
    o = options(name, u.dtype, max_steps, tol, regularization, progress, iterates)
    limits = checked_limits(name, u.dtype, o, feasibility, None)
    inputs = without_derivatives((problem, rows, q0, v0, u))
    out = _solve(*inputs, o=o, limits=limits, second_order=second_order)
    return constrained_solution(problem, rows, q0, v0, out, throw)


def _solve(problem: Problem, rows: Stack, q0, v0, u, *, o: Options, limits: Limits, second_order):
    walls = _walls(problem, rows, u)
    point, carried = _first(problem, rows, walls, q0, v0, u)
    least = max(LEAST * limits.feasible, ROUNDING * float(jnp.finfo(u.dtype).eps))

    def expand(point, carried):
        return _expand(problem, rows, walls, point, carried, least, second_order)

    def attempt(model, point, carried, mu, share):
        return _attempt(problem, rows, walls, model, point, carried, mu, share)

    # whether a point is good is no question of the decrease that its last step promises
    first = sqp_loop(
        expand, attempt, point, carried, point[3], o._replace(tol=jnp.inf), second_order
    )
    (_, _, u, *_), duals = first.point, first.carried.duals
    low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
    # without steps for what follows, nothing would lead back from there
    more = first.steps < o.max_steps
    u = jnp.where(more & (duals.low > u - walls.low), low, u)
    u = jnp.where(more & (duals.high > walls.high - u), high, u)
    penalty = jnp.asarray(PENALTY * limits.most_penalty, u.dtype)
    how = {"o": o, "limits": limits, "first_tol": o.tol, "second_order": second_order}
    return penalized(problem, rows, q0, v0, u, duals.rows, penalty, after=first, **how)


def _walls(problem: Problem, rows: Stack, u) -> Walls:
    low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
    free, holds = low < high, rows.holds()
    low, high = jnp.where(free, low, -jnp.inf), jnp.where(free, high, jnp.inf)
    both = lambda h, e: h & jnp.broadcast_to(jnp.asarray(e), h.shape)  # noqa: E731
    equal = Rows(*(both(*x) for x in zip(holds, rows.equality, strict=True)))
    return Walls(low, high, free, holds, equal)


def _values(problem: Problem, rows: Stack, walls: Walls, q, v, u) -> Rows:
    """All rows; those that stand for no constraint are far from zero."""
    return _where(walls.holds, rows.values(problem, q, v, u), -1.0)


def _first(problem: Problem, rows: Stack, walls: Walls, q0, v0, u) -> tuple[tuple, Carried]:
    """The first point, with room between controls and bounds, and multipliers at the center."""
    u = problem.clip(u)
    room = jnp.minimum(ROOM, 0.25 * (walls.high - walls.low))
    u = jnp.clip(u, walls.low + room, walls.high - room)
    q, v = problem.stacked(problem.simulate(q0, v0, u))
    c = _values(problem, rows, walls, q, v, u)
    s = jax.tree.map(lambda c: jnp.maximum(-c, ROOM), c)
    barrier = jnp.asarray(FIRST, u.dtype)
    at_rows = _where(walls.equal, 0.0, jax.tree.map(lambda s: barrier / s, s))
    duals = Duals(at_rows, barrier / (u - walls.low), barrier / (walls.high - u))
    K, one = jnp.zeros((*u.shape, problem.nx), u.dtype), jax.tree.map(jnp.ones_like, c)
    return (q, v, u, problem.cost(q, v, u), c, s), Carried(K, duals, one, barrier)


def _expand(problem, rows, walls: Walls, point, carried: Carried, least: float, second_order: bool):
    q, v, u, _, c, s = point
    duals, n = carried.duals, problem.nx
    f, l, end = gauss_newton(problem, q, v, u, gaps=False)
    C = rows.jacobians(problem, q, v, u)
    push = _many(C.stage.swapaxes(1, 2), duals.rows.stage)
    bound = duals.high - duals.low
    stage = l._replace(x=l.x + push[:, :n], u=l.u + push[:, n:] + bound)
    last = end._replace(x=end.x + times(C.final.T, duals.rows.final))
    lam, exact = costates(f, stage, last), None
    if second_order:
        whole = with_terms(problem, Weighted(rows, duals.rows))
        l_exact, end_exact = quadratic(whole, q, v, u, exact=True)
        l_exact = add_curvature(l_exact, curvature(problem, q, v, u, lam))
        more, last_more = jax.tree.map(jnp.subtract, (l_exact, end_exact), (l, end))
        # the slopes of the rows are in the barrier
        exact = more._replace(x=0 * l.x, u=0 * l.u), last_more._replace(x=0 * end.x)
    # where the motion without feedback is unstable, the costates with it keep their digits
    slopes = [gradient(f, stage, lam), gradient(f, stage, costates(f, stage, last, carried.K))]
    slope = jnp.minimum(*(_most(jnp.where(walls.free, g, 0)) for g in slopes))
    error = _error(walls, u, c, s, duals, slope)

    def close(b):
        return error(b) <= CLOSE * b

    def lower(b):
        return jnp.maximum(least, jnp.minimum(FALL * b, b**POWER))

    barrier = jax.lax.while_loop(lambda b: (b > least) & close(b), lower, carried.barrier)
    ready = (barrier <= least) & close(barrier)
    return Model(f, l, end, exact, C, curvature_scale(l), barrier, ready)


def _error(walls: Walls, u, c: Rows, s: Rows, duals: Duals, slope) -> Callable[[Array], Array]:
    """The greatest error of the conditions, as a function of the barrier parameter."""
    number = sum(x.size for x in jax.tree.leaves(duals))
    mean = sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(duals)) / number
    scale = jnp.maximum(SCALE, mean) / SCALE
    gap = _most(_gap(walls, c, s))

    def error(barrier):
        off = jax.tree.map(lambda s, y: s * y - barrier, s, duals.rows)
        sides = (u - walls.low, duals.low), (walls.high - u, duals.high)
        at_bounds = [jnp.where(d < jnp.inf, d * z - barrier, 0) for d, z in sides]
        off = _most((_where(walls.equal, 0.0, off), at_bounds))
        return jnp.maximum(gap, jnp.maximum(slope, off) / scale)

    return error


class Direction(NamedTuple):
    """A Newton step on the conditions with a barrier parameter."""

    gains: Gains
    slacks: Rows
    """Their changes."""
    duals: Duals
    """Their changes."""
    slope: Float[Array, ""]
    """Change of first order of costs and barriers."""
    reach: Float[Array, ""]
    """Greatest part of it that keeps slacks positive and controls between their bounds."""
    dual_reach: Float[Array, ""]
    """The same for the multipliers."""


def _direction(walls: Walls, model: Model, point, duals: Duals, mu, share, near) -> Direction:
    _, _, u, _, c, s = point
    C, b, gap, n = model.C, model.barrier, _gap(walls, c, s), model.f.A.shape[-1]
    below, above = u - walls.low, walls.high - u
    stiff = _where(walls.equal, STIFF, jax.tree.map(jnp.divide, duals.rows, s))
    pull = jax.tree.map(lambda y, s, g: (b + y * g) / s, duals.rows, s, gap)
    at_equal = jax.tree.map(lambda y, k, g: y + k * g, duals.rows, stiff, gap)
    pull = jax.tree.map(jnp.where, walls.equal, at_equal, pull)
    wall = b / above - b / below

    def added(l: Quadratic, end: Quadratic) -> tuple[Quadratic, Quadratic]:
        """With the barriers, after slacks and multipliers are eliminated."""
        up = C.stage.swapaxes(1, 2)
        g, H = _many(up, pull.stage), linear.matmul(up, stiff.stage[..., None] * C.stage)
        l = add_curvature(l._replace(x=l.x + g[:, :n], u=l.u + g[:, n:] + wall), H)
        l = l._replace(uu=l.uu + jax.vmap(jnp.diag)(duals.low / below + duals.high / above))
        H = times(C.final.T, stiff.final[:, None] * C.final)
        return l, end._replace(x=end.x + times(C.final.T, pull.final), xx=end.xx + H)

    whole = added(model.l, model.end)
    l, end = _convex(*whole)
    if model.exact is not None:
        mix = lambda a, b: a + jnp.where(share > 0, share * (b - a), 0)  # noqa: E731
        exact = jax.tree.map(jnp.add, whole, model.exact)
        l, end = jax.tree.map(mix, (l, end), exact)
    gains = riccati_backward(model.f, l, end, mu * model.size, free=walls.free)
    x, du = lqr_rollout(model.f, gains)
    along = Rows(_many(C.stage, jnp.concatenate([x[:-1], du], 1)), times(C.final, x[-1]))
    ds = _where(walls.equal, 0.0, jax.tree.map(lambda g, d: -g - d, gap, along))
    to = jax.tree.map(lambda p, k, d: p + k * d, pull, stiff, along)
    to = Duals(to, (b - duals.low * du) / below, (b + duals.high * du) / above)
    d_duals = jax.tree.map(jnp.subtract, to, duals)
    falls = _where(walls.equal, 0.0, d_duals.rows)
    barriers = -b * _total(_where(walls.equal, 0.0, jax.tree.map(jnp.divide, ds, s)))
    l, end = model.l, model.end
    slope = jnp.sum(l.x * x[:-1]) + jnp.sum((l.u + wall) * du) + jnp.sum(end.x * x[-1])
    reach = _reach(near, [*zip(s, ds, strict=True), (below, du), (above, -du)])
    sides = (duals.low, d_duals.low), (duals.high, d_duals.high)
    dual = _reach(near, [*zip(duals.rows, falls, strict=True), *sides])
    return Direction(gains, ds, d_duals, slope + barriers, reach, dual)


def _attempt(problem, rows, walls: Walls, model: Model, point, carried: Carried, mu, share):
    q, v, u, cost, c, s = point
    b, duals = model.barrier, carried.duals
    near = jnp.maximum(NEAR, 1 - b)
    d = _direction(walls, model, point, duals, mu, share, near)
    goal = jax.tree.map(lambda y, d: jnp.abs(y + d), duals.rows, d.duals.rows)
    # as the penalties of gaps in multiple shooting
    weight = jax.tree.map(
        lambda w, y: jnp.maximum(1.1 * y, 0.5 * (w + y)), carried.weight, goal
    )  # fmt: skip

    def opened(c: Rows, s: Rows):
        return _total(jax.tree.map(lambda w, g: w * jnp.abs(g), weight, _gap(walls, c, s)))

    def barriers(u, s: Rows):
        logs = _total(_where(walls.equal, 0.0, jax.tree.map(jnp.log, s)))
        for x in (u - walls.low, walls.high - u):
            logs = logs + jnp.sum(jnp.where(x < jnp.inf, jnp.log(x), 0))
        return -b * logs

    open_now = opened(c, s)
    merit = cost + barriers(u, s) + open_now
    expected = d.reach * (open_now - d.slope)
    definite = d.gains.definite & jnp.isfinite(expected)
    low, high = u - near * (u - walls.low), u + near * (walls.high - u)
    inside = jnp.where(walls.free, low, u), jnp.where(walls.free, high, u)

    def move(length):
        part = length * d.reach
        q1, v1, u1, cost1 = roll(problem, q, v, u, part * d.gains.k, d.gains.K, inside)
        c1 = _values(problem, rows, walls, q1, v1, u1)
        # a slack that is less than the row leaves room for is worse in both parts of the merit
        s1 = jax.tree.map(lambda s, d, c: jnp.maximum(s + part * d, -c), s, d.slacks, c1)
        return (q1, v1, u1, cost1, c1, s1), cost1 + barriers(u1, s1) + opened(c1, s1)

    def predicted(length):
        part = length * d.reach
        return part * (open_now - (1 - 0.5 * part) * d.slope)

    new, new_merit, length = line_search(move, merit, predicted, definite)
    moved = jax.tree.map(lambda y, d_y: y + d.dual_reach * d_y, duals, d.duals)
    free_sign = jax.tree.map(
        lambda y, d_y: y + length * d.reach * d_y, duals.rows, d.duals.rows
    )  # fmt: skip
    central = lambda y, x: jnp.clip(y, b / (CENTRAL * x), CENTRAL * b / x)  # noqa: E731
    at_rows = jax.tree.map(central, moved.rows, new[5])
    at_rows = jax.tree.map(jnp.where, walls.equal, free_sign, at_rows)
    low, high = central(moved.low, new[2] - walls.low), central(moved.high, walls.high - new[2])
    carried = Carried(d.gains.K, Duals(at_rows, low, high), weight, b)
    return Proposal(
        new, merit, new_merit, expected, length, definite, model.ready, stays=True
    ), carried  # fmt: skip


def _convex(l: Quadratic, end: Quadratic) -> tuple[Quadratic, Quadratic]:
    """The costs with the absolute values of the eigenvalues of each stage."""
    n = l.x.shape[-1]
    above = jnp.concatenate([l.xx, l.ux.swapaxes(1, 2)], axis=2)
    H = _absolute(jnp.concatenate([above, jnp.concatenate([l.ux, l.uu], axis=2)], axis=1))
    l = l._replace(xx=H[:, :n, :n], ux=H[:, n:, :n], uu=H[:, n:, n:])
    return l, end._replace(xx=_absolute(end.xx))


def _absolute(H: Array) -> Array:
    """Symmetric matrices with the absolute values of their eigenvalues."""
    w, X = jnp.linalg.eigh(H)
    return linear.matmul(X * jnp.abs(w)[..., None, :], X.swapaxes(-1, -2))


def _gap(walls: Walls, c: Rows, s: Rows) -> Rows:
    """What slacks and equalities miss."""
    return jax.tree.map(lambda e, c, s: jnp.where(e, c, c + s), walls.equal, c, s)


def _reach(near: Array, pairs: Iterable[tuple[Array, Array]]) -> Float[Array, ""]:
    """The greatest part of the changes that leaves ``1 − near`` of all numbers."""
    ratio = lambda x, d: jnp.where(d < 0, -near * x / jnp.where(d < 0, d, 1), 1)  # noqa: E731
    return jnp.stack([jnp.min(ratio(x, d), initial=1) for x, d in pairs]).min()


def _where(mask: Rows, yes: Any, no: Any) -> Rows:
    """Rows or a number where the mask is set, and others elsewhere."""
    of = lambda x: x if isinstance(x, Rows) else Rows(x, x)  # noqa: E731
    return Rows(*(jnp.where(m, a, b) for m, a, b in zip(mask, of(yes), of(no), strict=True)))


def _most(tree) -> Float[Array, ""]:
    """The greatest absolute value in all arrays."""
    return jnp.stack([jnp.max(jnp.abs(x), initial=0) for x in jax.tree.leaves(tree)]).max()


def _total(rows: Rows) -> Float[Array, ""]:
    """The sum of all entries."""
    return jnp.sum(rows.stage) + jnp.sum(rows.final)


def _many(A: Array, x: Array) -> Array:
    """``A x`` for many matrices and vectors."""
    return cast(Array, jnp.sum(A * x[:, None, :], axis=-1))
