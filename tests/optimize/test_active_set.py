"""Linear-quadratic problems with bounds and kinks, against the dense problem in all controls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.problems import linear_quadratic, sledge

from rbd_jax import optimize as opt
from rbd_jax.optimize.linear_quadratic._active_set import Penalty, active_set_gains, change
from rbd_jax.optimize.problems._constraints import Rows
from rbd_jax.optimize.problems._local_models import Dynamics, Quadratic

T, n, m = 12, 3, 2


def unstable(growth):
    f, l, end = linear_quadratic(T, n, m)
    return f._replace(d=jnp.zeros_like(f.d), A=growth * f.A), l, end


def motion(f, u):
    """The states under the controls u alone."""
    x = [jnp.zeros(n)]
    for k in range(T):
        x.append(f.A[k] @ x[k] + f.B[k] @ u[k])
    return jnp.stack(x)


def along(f, l, gains):
    """The motion that the gains make, and the change of the costs."""
    x, u = opt.lqr_rollout(f, gains)
    return x, u, sum(change(l[0], l[1], x, u))


@pytest.mark.float64
@pytest.mark.parametrize("growth", [1.0, 1.8])
def test_bounds_lead_to_the_minimum_of_the_dense_problem(growth):
    """From controls of which a quarter is at each bound; at 1.8 the motion grows a thousandfold."""
    f, l, end = unstable(growth)
    zero = jnp.zeros(())

    @jax.jit
    @jax.vmap
    def run(slopes, at_low, at_high):
        box = jnp.where(at_low, 0.0, -1.0), jnp.where(at_high, 0.0, 1.0)
        costs = l._replace(u=5 * slopes), end
        gains = active_set_gains(f, *costs, zero, box, costs[0].u)
        _, u, value = along(f, costs, gains)

        def dense(w):
            u = w.reshape(T, m)
            return sum(change(*costs, motion(f, u), u))

        none = jnp.zeros(T * m)
        H, g = jax.hessian(dense)(none), jax.grad(dense)(none)
        low, high = (x.ravel() for x in box)
        best, _ = opt.box_qp(H, g, low, high, max_steps=500)
        inside = jnp.all((u >= box[0] - 1e-9) & (u <= box[1] + 1e-9))
        held = jnp.sum((best <= low) | (best >= high))
        return value, dense(best), inside, gains.definite, gains.slope + gains.bend, held

    rng = np.random.default_rng(0)
    which = rng.uniform(size=(64, T, m))
    value, best, inside, definite, promise, held = (
        np.asarray(x) for x in run(rng.normal(size=which.shape), which < 0.25, which > 0.75)
    )
    assert held.min() > 0 and inside.all() and definite.all()
    np.testing.assert_allclose(promise, value, rtol=1e-8)
    np.testing.assert_allclose(value, best, rtol=1e-7)


@pytest.mark.float64
def test_penalties_lead_to_their_minimum():
    """Rows that begin to push, rows that cease to, an equality at the end, and bounds with them."""
    f, l, end = unstable(1.5)
    rng = np.random.default_rng(1)
    rows = Rows(jnp.asarray(rng.normal(size=(T, 3, n + m))), jnp.asarray(rng.normal(size=(2, n))))
    equality = Rows(np.array([False, False, True]), np.array([True, False]))
    zero, limit = jnp.zeros(()), jnp.full((T, m), 0.5)

    @jax.jit
    @jax.vmap
    def run(slopes, stage, final):
        penalty = Penalty(Rows(stage, final), rows, jnp.asarray(20.0), equality)
        costs = l._replace(u=5 * slopes), end

        def value(u):
            x = motion(f, u)
            return sum(change(*costs, x, u)) + penalty.change(penalty.at(x, u))

        slope = jax.grad(value)
        gains = active_set_gains(f, *costs, zero, (-limit, limit), slope(0 * limit), penalty)
        x, u, _ = along(f, costs, gains)
        first, now = penalty.active(penalty.r), penalty.active(penalty.at(x, u))
        changed = jnp.sum(first.stage != now.stage) + jnp.sum(first.final != now.final)
        stays = jnp.max(jnp.abs(u - jnp.clip(u - slope(u), -limit, limit)))
        return stays, changed, value(u), gains.slope + gains.bend, gains.definite

    stays, changed, value, promise, definite = (
        np.asarray(x) for x in run(*(rng.normal(size=(64, *s)) for s in ((T, m), (T, 3), (2,))))
    )
    assert changed.min() > 0 and definite.all() and (value < 0).all()
    np.testing.assert_allclose(promise, value, rtol=1e-8)
    assert (stays < 1e-7).all()


@pytest.mark.float64
def test_a_model_without_a_minimum_between_the_bounds_is_seen():
    """Its curvature is negative in a control that begins at a bound."""
    f, l, end = unstable(1.0)
    l = l._replace(uu=l.uu.at[0, 0, 0].set(-50.0))
    low = jnp.full((T, m), -1.0).at[0, 0].set(0.0)

    @jax.jit
    def seen(pull):
        slope = l.u.at[0, 0].set(pull)
        here = l._replace(u=slope)
        return active_set_gains(f, here, end, jnp.zeros(()), (low, -low + 1), slope).definite

    assert bool(seen(1.0)) and not bool(seen(-1.0))


def test_long_horizons_do_not_go_round_in_circles():
    """A convex problem with cheap controls, half of which are at their bounds."""
    steps = 40

    def solve(phase, q0):
        def stage(m, t, q, v, u):
            return jnp.concatenate([q - jnp.sin(3 * t + phase), 0.1 * v, 0.1 * u])

        def final(m, q, v):
            return 10 * jnp.concatenate([q - jnp.sin(12 + phase), v])

        problem = opt.Problem(sledge(), stage, final, 0.1, steps, lower=-1.0, upper=1.0)
        start = q0[None], jnp.zeros(1), jnp.zeros((steps, 1))
        s = opt.ilqr(problem, *start, throw=False, max_steps=60)
        return s.result == opt.RESULTS.successful, jnp.mean(jnp.abs(s.u) == 1)

    phases, starts = jnp.linspace(0, 6, 13), jnp.linspace(-1.5, 1.5, 7)
    solve = jax.jit(jax.vmap(jax.vmap(solve, (None, 0)), (0, None)))
    good, held = solve(phases, starts)
    assert good.all() and held.mean() > 0.2


@pytest.mark.parametrize(
    "solver",
    [
        "ilqr",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("ddp", "multiple_shooting", "augmented_lagrangian")
        ),
    ],
)
def test_bounds_that_cross_at_run_time_are_never_a_success(solver):
    """No error can be raised where bounds are traced."""
    start = jnp.zeros(1), jnp.zeros(1), jnp.zeros((4, 1))

    def solve(lower):
        problem = opt.Problem(sledge(), lambda m, t, q, v, u: jnp.sum(u * u),
                              lambda m, q, v: jnp.sum((q - 1) ** 2), 0.1, 4, lower=lower,
                              upper=1.0)  # fmt: skip
        more = ([],) if solver == "augmented_lagrangian" else ()
        return getattr(opt, solver)(problem, *start, *more, throw=False).result

    results = jax.jit(jax.vmap(solve))(jnp.array([0.0, 2.0, jnp.nan]))
    assert (results == opt.RESULTS.successful).tolist() == [True, False, False]
    assert (results == opt.RESULTS.crossed).tolist() == [False, True, True]


@pytest.mark.float64
def test_a_decrease_is_as_promised_or_the_model_is_called_indefinite():
    """A chain that grows by itself, with controls that cost little: most guesses come back."""
    steps, count = 40, 32
    A = jnp.eye(2).at[0, 1].set(0.1).at[1, 0].set(0.5)

    @jax.jit
    @jax.vmap
    def run(key, mu):
        k = jax.random.split(key, 4)
        each = lambda x: jnp.broadcast_to(x, (steps, *x.shape))  # noqa: E731
        normal = lambda k, *shape: jax.random.normal(k, shape)  # noqa: E731
        f = Dynamics(each(A), each(jnp.array([[0.0], [0.1]])), jnp.zeros((steps, 2)))
        l = Quadratic(normal(k[0], steps, 2), normal(k[1], steps, 1), each(1e-3 * jnp.eye(2)),
                      jnp.zeros((steps, 1, 2)), each(1e-3 * jnp.eye(1)))  # fmt: skip
        none = jnp.zeros(0), 100 * jnp.eye(2), jnp.zeros((0, 2)), jnp.zeros((0, 0))
        end = Quadratic(10 * normal(k[2], 2), *none)
        g = jax.grad(lambda u: sum(change(l, end, _motion(f, u), u)))(jnp.zeros((steps, 1)))
        one = jnp.ones((steps, 1))
        gains = active_set_gains(f, l, end, mu, (-one, one), g)
        _, u, _ = along(f, (l, end), gains)
        x = _motion(f, u)
        value = sum(change(l, end, x, u)) + 0.5 * mu * jnp.sum(u * u)
        return gains.definite, value, gains.slope + gains.bend, jnp.max(jnp.abs(u))

    keys = jnp.repeat(jax.random.split(jax.random.key(0), count), 2, axis=0)
    mus = jnp.tile(jnp.array([0.0, 1e4]), count)
    definite, value, promise, most = (np.asarray(x).reshape(count, 2) for x in run(keys, mus))
    assert 0 < definite[:, 0].sum() < count and definite[:, 1].all()
    np.testing.assert_allclose(value[definite], promise[definite], rtol=1e-6)
    assert (value[definite] < 0).all() and (most[definite] <= 1 + 1e-9).all()


def _motion(f, u):
    """The states from rest, by a loop."""

    def step(x, row):
        A, B, u = row
        new = A @ x + B @ u
        return new, new

    zero = jnp.zeros(f.A.shape[1])
    return jnp.concatenate([zero[None], jax.lax.scan(step, zero, (f.A, f.B, u))[1]])
