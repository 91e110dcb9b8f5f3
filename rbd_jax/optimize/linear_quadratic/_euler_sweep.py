"""The quadratic program of multiple shooting for steps of semi-implicit Euler.

The step is ``v⁺ = v + dt a, q⁺ = q ⊕ dt v⁺``, so the rows of ``q⁺`` follow from those of ``v⁺``:
with x = (δq, δv) and ``w = W (x, u)`` the step is ``δv⁺ = w + d_v``, ``δq⁺ = E δq + T w + d_q``. E
and T are diagonal but for the joints that turn in space: a free joint has blocks of 6×6, a ball
joint of 3×3. Products with them are nearly free, and those with W are half of those with (A, B).
This sweep exists beside the general one in ``_riccati.py`` because it uses that structure and, in
batches on a CPU, expands each step when the sweep comes to it; the general sweep takes the matrices
(A, B) of any integrator, has derivatives, and returns the value function of each step.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms.formulations import for_batches
from ...lanes import lanes
from ...model import difference, integrate
from ..problems._local_models import Quadratic, ResetMaps, times
from ..problems._problem import Problem
from ..problems._residuals import mirrored
from ._box_qp import box_qp, restricted_cholesky
from ._lq_approximation import quadratic_end, quadratic_stage


class EulerStep(NamedTuple):
    """One step: ``δv⁺ = w + d_v, δq⁺ = E δq + T w + d_q`` with ``w = W (δq, δv, δu)``."""

    W: Float[Array, "*s v n_m"]
    E: tuple[Float[Array, "*s i i"], ...]
    """The blocks of joints that turn; the others are the identity."""
    T: tuple[Float[Array, "*s i i"], ...]
    """The blocks of joints that turn; the others are dt times the identity."""
    d_q: Float[Array, "*s v"]
    d_v: Float[Array, "*s v"]


class Value(NamedTuple):
    """A quadratic function of the state, in blocks of δq and δv."""

    q: Float[Array, " v"]
    v: Float[Array, " v"]
    qq: Float[Array, "v v"]
    vq: Float[Array, "v v"]
    vv: Float[Array, "v v"]


class Direction(NamedTuple):
    """The solution of the quadratic program."""

    dx: Float[Array, "N n"]
    du: Float[Array, "T m"]
    K: Float[Array, "T m n"]
    multipliers: Float[Array, "T n"]
    """The slope of the cost to go after each step, at dx."""
    slope: Float[Array, ""]
    """First-order change of the costs along (dx, du)."""
    gradient: Float[Array, "T m"]
    """Gradient of the Lagrangian by the controls, with the costates under the feedback K."""
    reduced: Float[Array, "T m"]
    """The same with the costates of the controls alone: the gradient of the cost by the controls if
    there are no gaps."""
    definite: Bool[Array, ""]


def _turning(problem: Problem) -> list[slice]:
    """The rows of joints that turn in space, in ascending order."""
    space = problem.model.space
    sizes = {"free": 6, "spherical": 3}
    starts = sorted(
        (int(space.v_starts[b]), n) for k, n in sizes.items() for b in space.bodies_of(k)
    )
    return [slice(a, a + n) for a, n in starts]


def euler_step(problem: Problem, v1, W, q, q_next, v_next) -> EulerStep:
    """A step that ends with the velocity v1 of slope W, seen from the next state."""
    model, dt = problem.model, problem.dt
    w = dt * v1
    E, T = [], []
    for rows in _turning(problem):

        def end(e, c, rows=rows):
            at = integrate(model, q, jnp.zeros_like(v1).at[rows].set(e))
            return difference(model, q_next, integrate(model, at, w.at[rows].add(c)))[rows]

        zero = jnp.zeros((rows.stop - rows.start,), q.dtype)
        by_start, by_motion = jax.jacfwd(end, argnums=(0, 1))(zero, zero)
        E.append(by_start)
        T.append(dt * by_motion)
    gap = difference(model, q_next, integrate(model, q, w))
    return EulerStep(W, tuple(E), tuple(T), gap, v1 - v_next)


class _Turned:
    """Products with matrices that are a number times the identity but for some blocks."""

    def __init__(self, rows: list[slice]):
        self.rows = rows

    def __call__(self, blocks, scale, X):
        """The product with X from the left."""
        parts, at = [], 0
        for D, rows in zip(blocks, self.rows, strict=True):
            parts += [scale * X[at : rows.start], times(D, X[rows])]
            at = rows.stop
        return jnp.concatenate([*parts, scale * X[at:]])


def _before(V: Value, turned: _Turned, dt, f: EulerStep, l: Quadratic):
    """The cost of a step and to go after it, as a function of (δq, δv) and δu."""
    nv = V.q.size
    E, T = (tuple(D.T for D in X) for X in (f.E, f.T))
    s_q = V.q + times(V.qq, f.d_q) + times(V.vq.T, f.d_v)
    s_v = V.v + times(V.vq, f.d_q) + times(V.vv, f.d_v)
    s_w = s_v + turned(T, dt, s_q)
    g = jnp.concatenate([l.x, l.u]) + times(f.W.T, s_w)
    TP, TPv = turned(T, dt, V.qq), turned(T, dt, V.vq.T)
    cross = TP + V.vq
    M = V.vv + TPv + turned(T, dt, cross.T).T
    C = turned(E, 1, cross.T).T  # the second derivative in w and δq
    Wq, Wv, Wu = f.W[:, :nv], f.W[:, nv : 2 * nv], f.W[:, 2 * nv :]
    Zq, Zv, Zu = times(M, Wq) + C, times(M, Wv), times(M, Wu)
    turned_qq = turned(E, 1, turned(E, 1, V.qq).T)
    both = jnp.concatenate([Wq, C]), jnp.concatenate([Zq, Wq])
    Q = Value(
        g[:nv] + turned(E, 1, s_q), g[nv : 2 * nv],
        l.xx[:nv, :nv] + turned_qq + mirrored(*both),
        l.xx[nv:, :nv] + times(Wv.T, Zq),
        l.xx[nv:, nv:] + mirrored(Wv, Zv),
    )  # fmt: skip
    ux = l.ux + jnp.concatenate([times(Wu.T, Zq), times(Wu.T, Zv)], axis=1)
    return Q, g[2 * nv :], ux, l.uu + mirrored(Wu, Zu)


def _costate(lam: Array, turned: _Turned, dt, f: EulerStep, l: Quadratic, K) -> tuple:
    """The slope of the Lagrangian by the controls, and the costate before, under ``u + K x``.

    Without feedback if K is None.
    """
    nv = f.d_q.size
    E, T = (tuple(D.T for D in X) for X in (f.E, f.T))
    g = jnp.concatenate([l.x, l.u]) + times(f.W.T, lam[nv:] + turned(T, dt, lam[:nv]))
    before = jnp.concatenate([g[:nv] + turned(E, 1, lam[:nv]), g[nv : 2 * nv]])
    return g[2 * nv :], before if K is None else before + times(K.T, g[2 * nv :])


def _minimized(Q: Value, g, ux, uu, box):
    """The controls of least cost, as k and K, and the cost that is left."""
    nv, m = Q.q.size, g.size
    everywhere = jnp.ones((m,), bool)
    L, definite = restricted_cholesky(uu, everywhere)
    if box is None:
        moving, k = everywhere, None
    else:
        safe = jnp.where(definite, uu, jnp.eye(m, dtype=uu.dtype))
        k, moving = box_qp(safe, g, *box)
        L, _ = restricted_cholesky(uu, moving)
    solve = jax.scipy.linalg.solve_triangular
    # one solve for all columns: several at a time can hang, see spatial/linear.py
    columns = jnp.concatenate([jnp.where(moving[:, None], ux, 0), g[:, None]], axis=1)
    both = solve(L, columns, lower=True)
    Y, gains = both[:, :-1], -solve(L, both, lower=True, trans="T")
    K = gains[:, :-1]
    if k is None:
        k = gains[:, -1]
    gx = jnp.concatenate([Q.q, Q.v]) + times(ux.T, k) + times(K.T, g + times(uu, k))
    Yq, Yv = Y[:, :nv], Y[:, nv:]
    left = Value(
        gx[:nv], gx[nv:], Q.qq - mirrored(Yq, Yq), Q.vq - times(Yv.T, Yq), Q.vv - mirrored(Yv, Yv)
    )
    return left, k, K, definite


def _through(J, V: Value, K):
    """Propagate the value function and the gains back through a touchdown."""
    nv = V.q.size
    Jq, Jv = J[:, :nv], J[:, nv:]
    X = times(V.vv, Jq)
    both = jnp.concatenate([Jq, V.vq]), jnp.concatenate([X + V.vq, Jq])
    before = Value(
        V.q + times(Jq.T, V.v), times(Jv.T, V.v), V.qq + mirrored(*both),
        times(Jv.T, V.vq + X), mirrored(Jv, times(V.vv, Jv)),
    )  # fmt: skip
    return before, jnp.concatenate([K[:, :nv] + times(K[:, nv:], Jq), times(K[:, nv:], Jv)], axis=1)


def _costate_through(J, lam):
    """The costate before a touchdown."""
    nv = len(lam) // 2
    by_v = times(J.T, lam[nv:])
    return jnp.concatenate([lam[:nv] + by_v[:nv], by_v[nv:]])


def direction(
    problem: Problem,
    q: Array,
    v: Array,
    u: Array,
    mu: Array,
    box: tuple[Array, Array] | None,
    limits: tuple[Array, Array] | None,
    in_turn: bool = False,
) -> Direction:
    """Solve the quadratic program about states (T+1, …) and controls (T, …).

    Source: Tassa, Erez, Todorov (2012), (5)–(11), with the controls in a box as in Tassa, Mansard,
    Todorov (2014), and with (A, B) in the form above. Derivatives are not defined.

    One problem expands all its steps at once, in lanes, before the
    sweep. In a batch on a CPU each lane holds one problem and expands a step when the sweep comes
    to it: memory bounds a batch, and the models of the steps never leave the cache.

    Args:
        problem: what to minimize. Its steps are semi-implicit Euler. q, v: the states.
        u: the controls.
        mu: regularization in units of the mean curvature of each step's cost in the controls.
        box: bounds of the changes of u, or None.
        limits: bounds at which the changes are cut off in the motion of the model, or None. They
            are wider than the box where feedback may push controls out of it.
        in_turn: whether one problem, too, expands a step when the sweep comes to it.
    """
    after, landings = problem.kind.landings(problem, q[:-1], v[:-1])
    arrays, static = eqx.partition(problem, eqx.is_array)

    def at_once(arrays, *args):
        problem = eqx.combine(arrays, static)
        models = jax.vmap(lambda *row: _stage(problem, *row))(*_rows(problem, *args))
        return _sweep(problem, models, *args)

    def one_by_one(arrays, *args):
        return _sweep(eqx.combine(arrays, static), None, *args)

    solve = one_by_one if in_turn else for_batches(at_once, cpu=one_by_one, other=at_once)
    return solve(arrays, q, v, after, u, landings, mu, box, limits)


def _rows(problem: Problem, q, v, after, u, *_):
    return jnp.arange(problem.steps), q[:-1], after, u, q[1:], v[1:]


@lanes
def _stage(problem: Problem, k, q, v, u, q_next, v_next) -> tuple[EulerStep, Quadratic]:
    """The model of one step and of its cost; v is the velocity after a landing."""
    v1, W, l = problem.kind.stage_expansion(problem, k, q, v, u)
    l = quadratic_stage(problem, k, q, v, u, False) if l is None else l
    return euler_step(problem, v1, W, q, q_next, v_next), l


@lanes
def _sweep(problem: Problem, models, q, v, after, u, landings: ResetMaps | None, mu, box, limits):
    """The sweep back and forth through the models of the steps, made on the way if None."""
    nv, turned, dt = problem.model.nv, _Turned(_turning(problem)), problem.dt
    end = quadratic_end(problem, q[-1], v[-1], False)
    rows = _rows(problem, q, v, after, u)

    def jumped(k, function, otherwise):
        """Apply the reset map of step k if the step begins with a landing."""
        if landings is None:
            return otherwise
        J = landings.J[landings.which[k]]
        return jax.lax.cond(landings.lands[k], lambda: function(J), lambda: otherwise)

    def backward(state, row):
        (V, lam, alone, definite), (row, box, model) = state, row
        f, l = _stage(problem, *row) if model is None else model
        Q, g, ux, uu = _before(V, turned, dt, f, l)
        size = jnp.mean(jnp.abs(jnp.diagonal(l.uu)))
        scale = jnp.where(size > 0, size, 1)
        uu = uu + mu * scale * jnp.eye(len(uu), dtype=uu.dtype)
        left, k, K, here = _minimized(Q, g, ux, uu, box)
        by_u, lam = _costate(lam, turned, dt, f, l, K)
        reduced, alone = _costate(alone, turned, dt, f, l, None)
        lam, alone = jumped(
            row[0], lambda J: (_costate_through(J, lam), _costate_through(J, alone)), (lam, alone)
        )
        left, K = jumped(row[0], lambda J: _through(J, left, K), (left, K))
        return (left, lam, alone, definite & here), (k, K, V, f, l.x, l.u, (by_u, reduced))

    def forward(state, row):
        (x, slope), (number, (k, K, V, f, lx, lu, _), cut) = state, row
        u = k + times(K, x)
        u = u if cut is None else jnp.clip(u, *cut)
        x = jumped(number, lambda J: jnp.concatenate([x[:nv], times(J, x)]), x)
        w = times(f.W, jnp.concatenate([x, u]))
        slope = slope + jnp.sum(lx * x) + jnp.sum(lu * u)
        dq = turned(f.E, 1, x[:nv]) + turned(f.T, dt, w) + f.d_q
        dv = w + f.d_v
        by_q = V.q + times(V.qq, dq) + times(V.vq.T, dv)
        by_v = V.v + times(V.vq, dq) + times(V.vv, dv)
        new = jnp.concatenate([dq, dv])
        return (new, slope), (new, u, jnp.concatenate([by_q, by_v]))

    X = end.xx
    first = Value(end.x[:nv], end.x[nv:], X[:nv, :nv], X[nv:, :nv], X[nv:, nv:])
    start = first, end.x, end.x, jnp.ones((), bool)
    (*_, definite), found = jax.lax.scan(backward, start, (rows, box, models), reverse=True)
    start = jnp.zeros((2 * nv,), q.dtype), jnp.zeros((), q.dtype)
    (last, slope), (x, du, multipliers) = jax.lax.scan(forward, start, (rows[0], found, limits))
    dx = jnp.concatenate([start[0][None], x])
    slope = slope + jnp.sum(end.x * last)
    return Direction(dx, du, found[1], multipliers, slope, *found[-1], definite)
