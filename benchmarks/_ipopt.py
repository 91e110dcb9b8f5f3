"""IPOPT on a problem of this library: the same steps, costs and constraints, exact derivatives.

States are unknowns, in coordinates of the tangent space about those of the first guess.
"""

import time
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import tasks
from rbd_jax.tasks.judges._optimality import _holds, _sizes

FAR = 1e19
TOL, ACCEPTABLE = 1e-13, 1e-9
"""Tolerance of IPOPT, and the one with which it ends after 15 iterations without an end."""


class Found(NamedTuple):
    """What IPOPT found from all starts."""

    q: jax.Array
    v: jax.Array
    u: jax.Array
    good: np.ndarray
    steps: np.ndarray
    cost: np.ndarray
    ms: float
    """Processor time of one start."""


class Program:
    """The nonlinear program of some trials, compiled.

    The unknowns are ``z_k = (δx_k, u_k)`` for each step and δx_T, of which δx_0 is fixed.
    """

    def __init__(self, trials: tasks.Trials):
        self.trials, p, constraints = trials, trials.problem, trials.constraints
        self.T, self.n, self.m = p.steps, p.nx, p.controls
        equal, holds = [], []
        for c, size in _sizes(p, constraints):
            equal += [c.equality] * size
            holds += [np.asarray(_holds(c, self.T))] * size
        self.equal = np.array(equal, bool)
        self.holds = np.array(holds, bool).reshape(len(equal), self.T + 1).T
        n, m, T = self.n, self.m, self.T

        def rows(own, k, q, v, u):
            p, constraints = own
            v = p.velocity(v)
            call = lambda c: (  # noqa: E731
                c.function(p.model, p.time(k), q, v, u)
                if c.at == "stage"
                else c.function(p.model, q, v)
            )
            return jnp.concatenate([jnp.zeros((0,)), *(jnp.ravel(call(c)) for c in constraints)])

        def stage(own, k, z, q, v, q1, v1):
            p = own[0]
            at = *p.integrate(q, v, z[:n]), z[n:]
            to = p.step(k, *at)
            return p.stage_cost(k, *at), p.difference(q1, v1, *to), rows(own, k, *at)

        def end(own, x, q, v):
            at = own[0].integrate(q, v, x)
            return own[0].final_cost(*at), rows(own, T, *at, jnp.zeros((m,)))

        def over(f, own, z, ref, *more):
            """A function of one step at all steps, about the reference."""
            (q, v), k = ref, jnp.arange(T)
            return jax.vmap(partial(f, own))(k, z, q[:-1], v[:-1], q[1:], v[1:], *more)

        def values(own, z, last, ref):
            return over(stage, own, z, ref), end(own, last, ref[0][-1], ref[1][-1])

        def slopes(own, z, last, ref):
            by_last = jax.jacfwd(end, argnums=1)(own, last, ref[0][-1], ref[1][-1])
            return over(jax.jacfwd(stage, argnums=2), own, z, ref), by_last

        def curved(own, z, last, ref, weight, lam, mu, mu_end):
            def total(own, k, z, *rest):
                *state, lam, mu = rest
                cost, to, c = stage(own, k, z, *state)
                return weight * cost + jnp.sum(lam * to) + jnp.sum(mu * c)

            def tail(x):
                cost, c = end(own, x, ref[0][-1], ref[1][-1])
                return weight * cost + jnp.sum(mu_end * c)

            return over(jax.hessian(total, argnums=2), own, z, ref, lam, mu), jax.hessian(tail)(
                last
            )

        def start(own, q0, v0, u):
            p = own[0]
            return p.stacked(p.simulate(q0, p.initial(q0, v0), u))

        def trajectory(own, z, last, ref):
            x, p = jnp.concatenate([z[:, :n], last[None]]), own[0]
            q, v = jax.vmap(p.integrate)(ref[0], ref[1], x)
            return q, v, z[:, n:], p.cost(q, v, z[:, n:])

        # arrays of a problem that all starts share are constants
        rest = trials.at(0) if trials.each is None else eqx.filter(trials.at(0), eqx.is_array, True)

        def compiled(f):
            return jax.jit(lambda arrays, *x: f(eqx.combine(arrays, rest), *x))

        self.functions = tuple(map(compiled, (values, slopes, curved, start, trajectory)))

    def parts(self, x):
        """The unknowns as (T, n + m) and (n,)."""
        return x[: self.T * (self.n + self.m)].reshape(self.T, -1), x[-self.n :]

    def solve(self, k: int):
        """Start k: q, v, u, whether IPOPT calls it solved, iterations, the cost."""
        import ipyopt  # pyright: ignore[reportMissingImports]

        trials, T, n, m = self.trials, self.T, self.n, self.m
        p, q0, v0, u = trials.start(k)
        own = eqx.filter(trials.at(k), trials.each is not None and eqx.is_array)
        values, slopes, curved, start, trajectory = (partial(f, own) for f in self.functions)
        w, size, r = n + m, self.T * (self.n + self.m) + self.n, len(self.equal)
        ref = start(q0, v0, u)
        x = np.concatenate([np.concatenate([np.zeros((T, n)), u], axis=1).ravel(), np.zeros(n)])
        low, high = np.full(size, -FAR), np.full(size, FAR)
        low[:n] = high[:n] = 0
        bound = [np.clip(np.asarray(b), -FAR, FAR) for b in p.bounds()]
        index = np.arange(T * w).reshape(T, w)
        low[index[:, n:]], high[index[:, n:]] = bound
        on, columns = self.holds, [*index, np.arange(T * w, size)]
        # rows: the gaps of all steps, then the constraints that hold, state by state
        number = np.cumsum(on.ravel()).reshape(on.shape) - 1 + T * n
        count = T * n + int(on.sum())
        g_low = np.zeros(count)
        g_low[number[on & ~self.equal]] = -FAR
        after = [columns[k + 1][:n] for k in range(T)]
        gap = np.arange(T * n).reshape(T, n)
        i = [np.repeat(gap.ravel(), w), gap.ravel()]
        j = [np.concatenate([np.tile(index[k], n) for k in range(T)]), np.concatenate(after)]
        for k in range(T + 1):
            here = number[k][on[k]]
            i.append(np.repeat(here, len(columns[k])))
            j.append(np.tile(columns[k], len(here)))
        jac = np.concatenate(i), np.concatenate(j)
        rows, cols = [], []
        lower = np.tril_indices(w), np.tril_indices(n)
        for k in range(T + 1):
            a, b = lower[k == T]
            rows.append(columns[k][a])
            cols.append(columns[k][b])
        hess = np.concatenate(rows), np.concatenate(cols)

        def f(x):
            (cost, _, _), (last, _) = values(*self.parts(x), ref)
            return float(jnp.sum(cost) + last)

        def grad(x, out):
            (cost, _, _), (last, _) = slopes(*self.parts(x), ref)
            out[:] = np.concatenate([np.ravel(cost), last])

        def g(x, out):
            z, last = self.parts(x)
            (_, to, c), (_, c_end) = values(z, last, ref)
            states = np.concatenate([z[1:, :n], last[None]])
            both = np.concatenate([np.asarray(c), np.asarray(c_end)[None]])
            out[:] = np.concatenate([np.ravel(np.asarray(to) - states), both[on]])

        def jacobian(x, out):
            (_, to, c), (_, c_end) = slopes(*self.parts(x), ref)
            to, c, c_end = np.asarray(to), np.asarray(c), np.asarray(c_end)
            held = [c[k][on[k]].ravel() for k in range(T)]
            out[:] = np.concatenate([to.ravel(), np.full(T * n, -1.0), *held, c_end[on[T]].ravel()])

        def hessian(x, lam, weight, out):
            mu = np.zeros((T + 1, r))
            mu[on] = lam[T * n :]
            steps = lam[: T * n].reshape(T, n)
            H, end = curved(*self.parts(x), ref, weight, steps, mu[:T], mu[T])
            H, end = np.asarray(H), np.asarray(end)
            out[:] = np.concatenate([H[:, lower[0][0], lower[0][1]].ravel(), end[lower[1]]])

        iterations = [0]

        def count_them(mode, number, *_):
            iterations[0] = number
            return True

        # Multipliers are at most the tolerance over the distance from a bound, so that controls and
        # rows with small multipliers stay too far from where they end if the tolerance is looser.
        # Where rounding leaves less than the tolerance out of reach, the acceptable one counts.
        options = {"print_level": 0, "sb": "yes", "tol": TOL, "acceptable_tol": ACCEPTABLE,
                   "max_iter": 600, "constr_viol_tol": 1e-9, "bound_relax_factor": 0.0}  # fmt: skip
        nlp = ipyopt.Problem(size, low, high, count, g_low, np.zeros(count), jac, hess, f, grad, g,
                             jacobian, hessian, count_them, ipopt_options=options)  # fmt: skip
        x, _, status = nlp.solve(x)
        q, v, u, cost = trajectory(*self.parts(x), ref)
        return q, v, u, status in (0, 1), iterations[0], float(cost)


def solve_all(trials: tasks.Trials, patience: float = np.inf) -> Found:
    """IPOPT from every start, in turn.

    The first one compiles; none begins when the others took ``patience`` seconds of the processor.
    """
    program = Program(trials)
    found = [program.solve(0)]
    begin = time.process_time()
    for k in range(1, len(trials.u)):
        if time.process_time() > begin + patience:
            break
        found.append(program.solve(k))
    ms = 1e3 * (time.process_time() - begin) / (len(found) - 1) if len(found) > 1 else np.nan
    q, v, u, good, steps, cost = (
        np.stack([np.asarray(x) for x in y]) for y in zip(*found, strict=True)
    )
    return Found(jnp.asarray(q), jnp.asarray(v), jnp.asarray(u), good, steps, cost, ms)
