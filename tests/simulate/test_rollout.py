"""Rollouts: what is saved, ends, noise, types, errors."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, random_state
from support.rollout_cases import DT, MODES, Policy, T, score, weights_of

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import Checkpoint


@pytest.fixture(scope="module")
def case():
    model = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(model)
    return model, s, Policy(model, jax.random.key(5))


# --- what is saved ----------------------------------------------------------------------------


def test_stride_keeps_some_states_of_the_same_motion(case):
    model, s, policy = case
    run = partial(rbd.rollout, model, controls=policy, dt=DT, steps=T)
    fine, coarse = quick_jit(lambda q, v: (run(q, v), run(q, v, stride=4)))(s.q, s.v)
    assert_close(coarse.t, fine.t[::4])
    assert_close(coarse.q, fine.q[::4])
    assert_close(coarse.v, fine.v[::4])
    assert_close(coarse.controls, fine.controls[::4])


@pytest.mark.parametrize("method", ["semi_implicit_euler", "rk4"])
def test_substeps_are_steps_under_held_torques(case, method):
    model, s, _ = case
    u = jax.random.normal(jax.random.key(1), (4, model.nv))
    few, many = quick_jit(
        lambda u: (
            rbd.rollout(model, s.q, s.v, u, DT, substeps=3, integrator=method),
            rbd.rollout(model, s.q, s.v, jnp.repeat(u, 3, axis=0), DT / 3, integrator=method),
        )
    )(u)
    assert_close((few.q, few.v), (many.q[::3], many.v[::3]), atol=1e-13)
    assert_close(few.t, many.t[::3], atol=1e-15)


def _observe(t, q, v):
    return {"height": t + jnp.sum(jnp.sin(q)), "rates": jnp.stack([v, 2 * v])}


@pytest.fixture(scope="module")
def observed(case):
    """Value and gradient of a loss of the observations and the last state."""
    model, s, policy = case

    def loss(x, mode):
        q, v, dt = x
        options = {"stride": 4, "observe": _observe, **MODES[mode]}
        path = rbd.rollout(model, q, v, policy, dt, steps=T, **options)
        seen = jax.tree.map(lambda x: jnp.sum(weights_of(x) * x), path.observations)
        return seen["height"] + seen["rates"] + jnp.sum(path.q[-1]), path

    run = lambda mode: quick_jit(jax.value_and_grad(partial(loss, mode=mode), has_aux=True))  # noqa: E731
    return lambda mode: run(mode)((s.q, s.v, jnp.asarray(DT)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["adjoint"] + [pytest.param(m, marks=pytest.mark.slow) for m in ("levels", "every 5")]
)
def test_observations_are_saved_with_the_states(observed, mode):
    (value, path), expected = observed("full")
    for k in range(T // 4 + 1):
        want = _observe(path.t[k], path.q[k], path.v[k])
        assert_close(jax.tree.map(lambda x, k=k: x[k], path.observations), want, atol=1e-14)
    (mine, other), found = observed(mode)
    assert_close(mine, value, rtol=1e-13)
    assert_close(other.observations, path.observations, atol=1e-13)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, atol=1e-12 * (1 + float(jnp.abs(b).max())))
        assert float(jnp.abs(b).max()) > 0


# --- ends -------------------------------------------------------------------------------------


def test_a_batch_in_which_some_end_early():
    """A pendulum that ends past 0.3 rad: it moves as ever before, and stands still after."""
    model = samples.pendulum()
    q, v = jnp.array([[0.0], [0.0], [0.5]]), jnp.array([[0.1], [3.0], [0.0]])
    push = lambda t, q, v: jnp.ones_like(v)  # noqa: E731
    stop = lambda t, q, v: q[0] > 0.3  # noqa: E731

    @quick_jit
    @jax.vmap
    def run(q, v):
        ends = rbd.rollout(model, q, v, push, 0.02, steps=20, stop=stop)
        return ends, rbd.rollout(model, q, v, push, 0.02, steps=20)

    ends, free = run(q, v)
    assert isinstance(ends, rbd.simulate.Episode)
    over = np.maximum.accumulate(np.asarray(free.q[..., 0]) > 0.3, axis=1)
    np.testing.assert_array_equal(ends.alive, ~over)
    assert ends.alive[0, 5] and not ends.alive[1, -1] and not ends.alive[2, 0]
    for k in range(3):
        last = int(ends.alive[k].sum())  # the terminal state itself is kept
        last = min(last, 20)
        assert_close(ends.q[k, : last + 1], free.q[k, : last + 1])
        assert_close(ends.q[k, last:], jnp.broadcast_to(ends.q[k, last], ends.q[k, last:].shape))
        assert not np.any(ends.controls[k, last:]) and np.all(ends.controls[k, :last] == 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["full", *(pytest.param(m, marks=pytest.mark.slow) for m in ("checkpoint", "adjoint"))]
)
def test_what_happens_after_the_end_cannot_spoil_the_gradient(mode):
    """A policy that is NaN past the end; the gradient is that of the steps before it."""
    model = samples.pendulum()

    def policy(gain, t, q, v):
        return gain * jnp.sqrt(0.3 - q)

    def end(gain, steps, **options):
        q0, v0 = jnp.zeros(1), 3 * jnp.ones(1)
        p = partial(policy, gain)
        return rbd.rollout(model, q0, v0, p, 0.02, steps=steps, gradient=mode, **options)

    stop = lambda t, q, v: q[0] > 0.25  # noqa: E731
    path = quick_jit(lambda g: end(g, 20, stop=stop))(jnp.ones(()))
    n = int(path.alive.sum())
    assert 2 < n < 15
    f = quick_jit(jax.grad(lambda g: jnp.sum(end(g, 20, stop=stop).q[-1])))
    g = quick_jit(jax.grad(lambda g: jnp.sum(end(g, n).q[-1])))
    assert_close(f(jnp.ones(())), g(jnp.ones(())))
    assert float(jnp.abs(f(jnp.ones(())))) > 1e-4


# --- noise, types, errors ---------------------------------------------------------------------


def test_noise_differs_between_steps_and_repeats_with_the_key(case):
    model, s, policy = case
    run = quick_jit(lambda k: rbd.rollout(model, s.q, s.v, policy, DT, steps=4, key=k))
    a, b, c = run(jax.random.key(0)), run(jax.random.key(0)), run(jax.random.key(1))
    assert_close(a, b, atol=0)
    assert float(jnp.abs(a.controls - c.controls).min()) > 1e-4
    want = policy(a.t[2], a.q[2], a.v[2], jax.random.fold_in(jax.random.key(0), 2))
    assert_close(a.controls[2], want)


@pytest.mark.parametrize("mode", ["checkpoint", "adjoint"])
def test_single_precision_stays(case, mode):
    model, s, policy = cast(case, jnp.float32)
    stop = lambda t, q, v: t > 0.02  # noqa: E731

    def loss(q):
        path = rbd.rollout(
            model, q, s.v, policy, DT, steps=4, stop=stop, stride=2, substeps=2, gradient=mode
        )
        return score(path), path

    g, path = jax.eval_shape(jax.grad(loss, has_aux=True), s.q)
    assert g.dtype == path.q.dtype == path.v.dtype == path.controls.dtype == jnp.float32


def test_no_steps_in_every_mode(case):
    model, s, _ = case
    for mode in ("full", "checkpoint", "adjoint"):
        path = rbd.rollout(model, s.q, s.v, jnp.zeros((0, model.nv)), DT, gradient=mode)
        assert_close((path.q, path.v), (s.q[None], s.v[None]), atol=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stride": 5}, "stride=5 does not divide the 12 steps"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"substeps": 0}, "substeps must be at least 1, got 0"),
        ({"gradient": Checkpoint(every=-1)}, "Checkpoint: every must be at least 1, got -1"),
        ({"gradient": "fast"}, "gradient must be one of .*'adjoint'.*got 'fast'"),
        ({"stop": lambda t, q, v: t - 1}, "stop has to return one boolean"),
        ({"stop": lambda t, q, v: v > 1}, "stop has to return one boolean"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"gradient": Checkpoint(every=0)}, "Checkpoint: every must be at least 1, got 0"),
        ({"gradient": Checkpoint(mode="fast")}, "Checkpoint: mode must be one of"),
        ({"gradient": Checkpoint(levels=0)}, "Checkpoint: levels must be at least 1, got 0"),
        ({"controls": lambda t, q, v: v[:1], "steps": T}, r"policy returned .* shape \(1,\), exp"),
    ],
)
def test_errors(case, options, says):
    import inspect

    model, s, _ = case
    plain = inspect.unwrap(rbd.rollout)  # else the check of the annotations comes first
    values = {"q0": s.q, "v0": s.v, "controls": jnp.zeros((T, model.nv))}
    with pytest.raises(ValueError, match=says):
        plain(model, **{**values, "dt": jnp.asarray(DT), **options})


@pytest.mark.parametrize("integrator", ["momentum_rk4", "variational"])
def test_a_policy_of_too_few_torques_drives_nobody(case, integrator):
    model, s, _ = case
    with pytest.raises(ValueError, match="the policy returned torques of shape"):
        rbd.rollout(model, s.q, s.v, lambda t, q, v: v[:1], DT, steps=1, integrator=integrator)


def test_everything_takes_the_precision_of_the_robot(case):
    model, s, _ = case
    low, zero = cast(model, jnp.float32), jnp.zeros((T, model.nv))
    for u in (zero, lambda t, q, v: zero[0]):
        run = lambda q, v, u=u: rbd.rollout(low, q, v, u, DT, steps=T)  # noqa: E731
        path = jax.eval_shape(run, s.q, s.v)
        assert {x.dtype for x in jax.tree.leaves(path)} == {jnp.dtype("float32")}


@pytest.mark.slow
def test_torques_after_the_end_do_not_matter(case):
    """Rows of NaN after an episode's end spoil neither it nor its gradient."""
    model, s, _ = case
    u = jnp.zeros((T, model.nv)).at[T // 2 :].set(jnp.nan)

    def loss(model, u):
        stop = lambda t, q, v: t > (T // 2 - 0.5) * DT  # noqa: E731
        path = rbd.rollout(model, s.q, s.v, u, DT, stop=stop)
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.v**2)

    found = quick_jit(jax.grad(loss, argnums=(0, 1)))(model, u)
    chex.assert_tree_all_finite(found)
    assert float(jnp.abs(found[0].armature).max()) > 0
