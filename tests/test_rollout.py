"""Rollouts: gradient modes agree, strides, substeps, ends, noise, policies."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, random_state, stack

import rbd_jax as rbd
from rbd_jax import samples

T, DT = 12, 0.01
MODES = {
    "full": {},
    "levels": {"gradient": "checkpoint"},
    "three levels": {"gradient": "checkpoint", "checkpoint_levels": 3},
    "every step": {"gradient": "checkpoint", "checkpoint_levels": 1},
    "every 5": {"gradient": "checkpoint", "checkpoint_every": 5},  # with a remainder
    "adjoint": {"gradient": "adjoint"},
}


class Policy(eqx.Module):
    """A small network of the time, the cosine of the state and a noise."""

    net: eqx.nn.MLP

    def __init__(self, model, key):
        self.net = eqx.nn.MLP(
            1 + model.nq + model.nv, model.nv, 4, 1, activation=jnp.tanh, key=key,
            dtype=model.dtype,
        )  # fmt: skip

    def __call__(self, t, q, v, key=None):
        noise = 0.0 if key is None else jax.random.normal(key, v.shape, v.dtype)
        return self.net(jnp.concatenate([t[None], jnp.cos(q), v])) + 0.1 * noise


@pytest.fixture(scope="module")
def case():
    model = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(model)
    return model, s, Policy(model, jax.random.key(5))


def _weights(x):
    return jnp.sin(1.0 + jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape)


def _loss(path):
    """Of all states and torques, so that every cotangent of the rollout is there."""
    return sum(jnp.sum(_weights(x) * x) for x in (path.q, path.v, path.tau))


# --- gradient modes ---------------------------------------------------------------------------


def _by_rows(inputs, options):
    """With respect to the whole model, the state, torques, wrenches and the time step."""
    model, q, v, u, _, f_ext, dt = inputs
    return _loss(rbd.rollout(model, q, v, u, dt, f_ext=f_ext, **options))


def _by_policy(inputs, options):
    """With respect to the parameters of a policy too, in substeps, few states kept, with noise."""
    model, q, v, _, policy, f_ext, dt = inputs
    options = options | {"stride": 3, "substeps": 2, "key": jax.random.key(2)}
    return _loss(rbd.rollout(model, q, v, policy, dt, steps=T, f_ext=f_ext, **options))


@pytest.fixture(scope="module")
def gradient(case):
    """``gradient(loss, mode)``: value and gradient, each compiled once."""
    model, s, policy = case
    u = jax.random.normal(jax.random.key(1), (T, model.nv))
    inputs = model, s.q, s.v, u, policy, s.f_ext, jnp.asarray(DT)
    moving, fixed = eqx.partition(inputs, eqx.is_inexact_array)

    @cache
    def gradient(loss, mode):
        f = jax.value_and_grad(lambda x: loss(eqx.combine(x, fixed), MODES[mode]))
        return quick_jit(f)(moving)

    return gradient


@pytest.mark.parametrize(
    ("loss", "mode"),
    [(_by_policy, "adjoint"), pytest.param(_by_policy, "levels", marks=pytest.mark.slow)]
    + [pytest.param(_by_rows, m, marks=pytest.mark.slow) for m in MODES]
    + [pytest.param(_by_policy, m, marks=pytest.mark.slow) for m in MODES if "e" == m[0]],
)
def test_gradient_modes_agree_in_everything(gradient, loss, mode):
    (value, expected), (mine, found) = gradient(loss, "full"), gradient(loss, mode)
    assert_close(mine, value, rtol=1e-13)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(a, b, atol=1e-12 * (1 + float(jnp.abs(b).max(initial=0))))
    model, q, v, u, policy, f_ext, dt = found
    given = u if loss is _by_rows else policy
    for part in (model.inertia, model.axis, model.gravity, q, v, given, f_ext, dt):
        assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(part)) > 0


def test_policy_gradient_equals_differences(case):
    """Of a module's parameters, along a random direction."""
    model, s, policy = case
    moving, fixed = eqx.partition(policy, eqx.is_inexact_array)

    def loss(p):
        path = rbd.rollout(model, s.q, s.v, eqx.combine(p, fixed), DT, steps=T, gradient="adjoint")
        return _loss(path)

    d = jax.tree.map(_weights, moving)
    f = quick_jit(jax.vmap(lambda e: loss(jax.tree.map(lambda x, y: x + e * y, moving, d))))
    h = 1e-3
    y = f(h * jnp.array([1.0, -1.0, 2.0, -2.0]))
    numeric = float(jnp.dot(y, jnp.array([8.0, -8.0, -1.0, 1.0])) / (12 * h))
    g = quick_jit(jax.grad(loss))(moving)
    exact = sum(float(jnp.sum(a * b)) for a, b in zip(*map(jax.tree.leaves, (g, d)), strict=True))
    assert abs(exact - numeric) < 1e-8 * abs(numeric)


@pytest.mark.slow
def test_forward_mode_and_hessians():
    """Forward mode of the first two modes, and reverse over reverse of the adjoint."""
    model = samples.pendulum()
    s = random_state(model)
    u = jax.random.normal(jax.random.key(1), (3, model.nv))
    d = _weights(u)

    def along(mode, e):
        return _loss(rbd.rollout(model, s.q, s.v, u + e * d, DT, gradient=mode))

    one = jnp.ones(())

    @quick_jit
    def run(e):
        slopes = [jax.jvp(partial(along, m), (e,), (one,))[1] for m in ("full", "checkpoint")]
        curvatures = [jax.jvp(jax.grad(partial(along, "full")), (e,), (one,))[1]]
        curvatures += [jax.grad(jax.grad(partial(along, "adjoint")))(e)]
        return slopes, curvatures

    (a, b), (c, d2) = run(jnp.zeros(()))
    assert_close(a, b, rtol=1e-13)
    assert_close(c, d2, rtol=1e-10)


@pytest.mark.slow
def test_gradient_modes_under_vmap():
    """A batch of robots and torques, as the gradients one by one."""
    model = samples.double_pendulum()
    s = random_state(model)
    u = jax.random.normal(jax.random.key(1), (2, 4, model.nv))
    inertias = jnp.stack([model.inertia, 1.5 * model.inertia])

    def loss(I, u, mode):
        robot = eqx.tree_at(lambda m: m.inertia, model, I)
        return _loss(rbd.rollout(robot, s.q, s.v, u, DT, gradient=mode))

    many = quick_jit(jax.vmap(jax.grad(partial(loss, mode="adjoint"), (0, 1))))(inertias, u)
    one = quick_jit(jax.grad(partial(loss, mode="full"), (0, 1)))
    each = [one(inertias[k], u[k]) for k in range(2)]
    assert_close(many, stack(each), atol=1e-12 * float(jnp.abs(many[1]).max()))


# --- what is saved ----------------------------------------------------------------------------


def test_stride_keeps_some_states_of_the_same_motion(case):
    model, s, policy = case
    run = partial(rbd.rollout, model, controls=policy, dt=DT, steps=T)
    fine, coarse = quick_jit(lambda q, v: (run(q, v), run(q, v, stride=4)))(s.q, s.v)
    assert_close(coarse.t, fine.t[::4])
    assert_close(coarse.q, fine.q[::4])
    assert_close(coarse.v, fine.v[::4])
    assert_close(coarse.tau, fine.tau[::4])


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
        seen = jax.tree.map(lambda x: jnp.sum(_weights(x) * x), path.observations)
        return seen["height"] + seen["rates"] + jnp.sum(path.q[-1]), path

    run = lambda mode: quick_jit(jax.value_and_grad(partial(loss, mode=mode), has_aux=True))  # noqa: E731
    return lambda mode: run(mode)((s.q, s.v, jnp.asarray(DT)))


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
        assert not np.any(ends.tau[k, last:]) and np.all(ends.tau[k, :last] == 1)


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
    assert float(jnp.abs(a.tau - c.tau).min()) > 1e-4
    want = policy(a.t[2], a.q[2], a.v[2], jax.random.fold_in(jax.random.key(0), 2))
    assert_close(a.tau[2], want)


@pytest.mark.parametrize("mode", ["checkpoint", "adjoint"])
def test_single_precision_stays(case, mode):
    model, s, policy = cast(case, jnp.float32)
    stop = lambda t, q, v: t > 0.02  # noqa: E731

    def loss(q):
        path = rbd.rollout(
            model, q, s.v, policy, DT, steps=4, stop=stop, stride=2, substeps=2, gradient=mode
        )
        return _loss(path), path

    g, path = jax.eval_shape(jax.grad(loss, has_aux=True), s.q)
    assert g.dtype == path.q.dtype == path.v.dtype == path.tau.dtype == jnp.float32


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
        ({"checkpoint_every": -1}, "checkpoint_every must be at least 1, got -1"),
        ({"gradient": "fast"}, "gradient must be one of .*'adjoint'.*got 'fast'"),
        ({"stop": lambda t, q, v: t - 1}, "stop has to return one boolean"),
        ({"stop": lambda t, q, v: v > 1}, "stop has to return one boolean"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"checkpoint_every": 3}, 'checkpoint_every=3 needs gradient="checkpoint", got .full'),
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


def test_torques_after_the_end_do_not_matter(case):
    """Rows of NaN after an episode's end spoil neither it nor its gradient."""
    model, s, _ = case
    u = jnp.zeros((T, model.nv)).at[T // 2 :].set(jnp.nan)

    def loss(model, u):
        stop = lambda t, q, v: t > (T // 2 - 0.5) * DT  # noqa: E731
        path = rbd.rollout(model, s.q, s.v, u, DT, stop=stop)
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.v**2)

    found = quick_jit(jax.grad(loss, argnums=(0, 1)))(model, u)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(found))
    assert float(jnp.abs(found[0].armature).max()) > 0


# --- memory, and a long flight ----------------------------------------------------------------


def _temporary_bytes(model, s, steps, **options):
    def loss(u):
        path = rbd.rollout(model, s.q, s.v, u, DT, **options)
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.observations**2)

    u = jnp.zeros((steps, model.nv))
    return jax.jit(jax.grad(loss)).lower(u).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_grows_as_promised():
    """From 256 to 1024 steps, in units of the states that every mode returns.

    What is observed is as large as a state, and so is its cotangent.
    """
    model = samples.double_pendulum()
    s = random_state(model)
    bytes_of = partial(
        _temporary_bytes, model, s, observe=lambda t, q, v: rbd.mass_matrix(model, q)
    )
    growth = {
        name: bytes_of(1024, **MODES[name]) - bytes_of(256, **MODES[name])
        for name in ("full", "levels", "adjoint")
    }
    state = 768 * 8 * (model.nq + model.nv)
    print("growth in states", {k: x / state for k, x in growth.items()})
    assert growth["full"] > 10 * state
    assert growth["levels"] < 5 * state
    assert growth["adjoint"] < 5 * state


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "levels", "every 5", "adjoint"])
def test_gradient_of_a_thousand_steps_of_talos(mode):
    """Along random directions of state, torques and inertias, against central differences."""
    path = rbd.example_robot("talos_full_v2")
    model = rbd.load_urdf(path, floating_base=True, dtype=jnp.float64)
    steps, dt = 1000, 1e-3
    q0 = rbd.neutral(model)
    keys = jax.random.split(jax.random.key(0), 3)
    v0 = 0.1 * jax.random.normal(keys[0], (model.nv,))
    light = jnp.diag(jnp.linalg.inv(jax.jit(rbd.mass_matrix)(model, q0)))  # 1e5 in the fingers
    u = jax.random.normal(keys[1], (steps, model.nv)) / light[None]
    options = {"integrator": "implicit_damping", "stride": 10, "steps": steps}

    def loss(x, mode):
        dq, v, u, scale = x
        robot = eqx.tree_at(lambda m: m.inertia, model, model.inertia * jnp.exp(scale)[:, None])
        hold = lambda t, q, v: u[jnp.round(t / dt).astype(int)] - v / light  # noqa: E731
        q = rbd.integrate(robot, q0, dq)
        path = rbd.rollout(robot, q, v, hold, dt, **options, **mode)
        return jnp.sum(path.q[-1] * _weights(path.q[-1])) + jnp.mean(path.v**2)

    x = jnp.zeros(model.nv), v0, u, jnp.zeros(model.nb)
    gradient = jax.jit(jax.grad(partial(loss, mode=MODES[mode])))(x)
    value = jax.jit(lambda x: loss(x, {}))
    for k in range(4):
        rng = np.random.default_rng(k)
        d = [jnp.asarray(rng.normal(size=y.shape) * (j == k)) for j, y in enumerate(x)]
        d[2] = d[2] / light[None]
        at = lambda e, d=d: float(value(tuple(y + e * z for y, z in zip(x, d, strict=True))))  # noqa: E731
        h = 1e-4
        numeric = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        exact = sum(float(jnp.sum(y * z)) for y, z in zip(gradient, d, strict=True))
        print(mode, k, exact, numeric, abs(exact / numeric - 1))
        assert abs(exact - numeric) < 1e-6 * abs(numeric)
