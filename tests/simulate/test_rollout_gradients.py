"""Gradients of rollouts: all modes agree, in every input; policies; memory; a long flight."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state, stack
from support.rollout_cases import DT, MODES, Policy, T, score, weights_of

import rbd_jax as rbd
from rbd_jax import samples


@pytest.fixture(scope="module")
def case():
    model = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(model)
    return model, s, Policy(model, jax.random.key(5))


# --- gradient modes ---------------------------------------------------------------------------


def _by_rows(inputs, options):
    """With respect to the whole model, the state, torques, wrenches and the time step."""
    model, q, v, u, _, f_ext, dt = inputs
    return score(rbd.rollout(model, q, v, u, dt, f_ext=f_ext, **options))


def _by_policy(inputs, options):
    """With respect to the parameters of a policy too, in substeps, few states kept, with noise."""
    model, q, v, _, policy, f_ext, dt = inputs
    options = options | {"stride": 3, "substeps": 2, "key": jax.random.key(2)}
    return score(rbd.rollout(model, q, v, policy, dt, steps=T, f_ext=f_ext, **options))


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


@pytest.mark.float64
def test_policy_gradient_equals_differences(case):
    """Of a module's parameters, along a random direction."""
    model, s, policy = case
    moving, fixed = eqx.partition(policy, eqx.is_inexact_array)

    def loss(p):
        path = rbd.rollout(model, s.q, s.v, eqx.combine(p, fixed), DT, steps=T, gradient="adjoint")
        return score(path)

    d = jax.tree.map(weights_of, moving)
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
    d = weights_of(u)

    def along(mode, e):
        return score(rbd.rollout(model, s.q, s.v, u + e * d, DT, gradient=mode))

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
        return score(rbd.rollout(robot, s.q, s.v, u, DT, gradient=mode))

    many = quick_jit(jax.vmap(jax.grad(partial(loss, mode="adjoint"), (0, 1))))(inertias, u)
    one = quick_jit(jax.grad(partial(loss, mode="full"), (0, 1)))
    each = [one(inertias[k], u[k]) for k in range(2)]
    assert_close(many, stack(each), atol=1e-12 * float(jnp.abs(many[1]).max()))


# --- memory, and a long flight ----------------------------------------------------------------


def _temporary_bytes(model, s, steps, **options):
    def loss(u):
        path = rbd.rollout(model, s.q, s.v, u, DT, **options)
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.observations**2)

    u = jnp.zeros((steps, model.nv))
    return jax.jit(jax.grad(loss)).lower(u).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_grows_as_promised(monkeypatch):
    """From 256 to 1024 steps, in units of the states that every mode returns.

    What is observed is as large as a state, and so is its cotangent. Lanes take short loops of one
    sample apart for speed in all modes, so they are off.
    """
    monkeypatch.setenv("RBD_JAX_LANES", "0")
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
def test_memory_in_lanes_has_a_bound():
    """A loop is not taken apart where that would take much: then memory is that of the mode."""
    model = samples.double_pendulum()
    observe = lambda t, q, v: jnp.sin(q)  # noqa: E731
    bytes_of = partial(_temporary_bytes, model, random_state(model), observe=observe)
    steps, state = 100_000, 8 * (model.nq + model.nv)
    assert bytes_of(1000, **MODES["levels"]) > 20 * 1000 * state
    for mode in ("levels", "adjoint"):
        assert bytes_of(steps, **MODES[mode]) < 10 * steps * state


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
        return jnp.sum(path.q[-1] * weights_of(path.q[-1])) + jnp.mean(path.v**2)

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
