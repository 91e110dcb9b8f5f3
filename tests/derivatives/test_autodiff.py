"""Automatic differentiation, ``vmap`` and ``jit`` of the raw algorithms."""

from functools import cache, partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.calls import public_functions, quick_jit, traced
from support.helpers import (
    assert_close,
    quaternion_slices,
    random_state,
    random_states,
    scale_quaternions,
    stack,
)
from support.smoothness import is_smooth

import rbd_jax as rbd
from rbd_jax import samples

# --- gradients against central differences ----------------------------------------------------


PHYSICS = ("placement_R", "placement_p", "axis", "pitch", "inertia", "gravity", "armature")


def _prescribed(m):
    return jnp.arange(m.nb) % 3 == 1


ALGORITHMS = {
    "rnea": lambda m, s: rbd.rnea(m, s.q, s.v, s.a, s.f_ext),
    "aba": lambda m, s: rbd.aba(m, s.q, s.v, s.tau, s.f_ext),
    "crba": lambda m, s: rbd.crba(m, s.q),
    "hybrid": lambda m, s: rbd.hybrid_aba(m, s.q, s.v, s.a, s.tau, _prescribed(m), s.f_ext),
}


# test_kim.py compares the derivatives of the raw hybrid dynamics with a closed form by default.
FIRST = ("rnea", "aba", "crba")
ORDERED = [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in ALGORITHMS]


@cache
def robot() -> rbd.Model:
    """Every joint kind, and a gravity that no axis is aligned with."""
    m = samples.random_tree(0)
    return eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))


def _points(m):
    """Random states, then the singular ones: zero velocity, zero and neutral q, angles of π."""
    s = random_states(m, 1, seed=1)
    one = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[0]), s)
    zero = jnp.zeros_like(one.v)
    half_turn = one.q
    for k, where in enumerate(quaternion_slices(m)):
        axis = jnp.array([[0.0, 0.6, 0.0, 0.8], [0.0, 1.0, 0.0, 0.0]])[k % 2]
        half_turn = half_turn.at[where].set(axis)
    neutral = rbd.neutral(m)
    return {
        "random": one,
        "other length and sign of quaternions": one._replace(q=scale_quaternions(m, one.q, -1.7)),
        "zero velocity": one._replace(v=zero),
        "neutral": one._replace(q=neutral),
        "all at rest": one._replace(q=neutral, v=zero, a=zero, tau=zero, f_ext=one.f_ext * 0),
        "half turns": one._replace(q=half_turn),
    }


def _loss(algorithm, m, s):
    out, _ = ravel_pytree(ALGORITHMS[algorithm](m, s))
    return jnp.sum(out * jnp.sin(1.0 + jnp.arange(out.size, dtype=out.dtype)))


@cache
def _derivatives(algorithm):
    """Gradient and, along a direction, the forward derivative, at all points at once."""
    m, points = robot(), _points(robot())
    batch = stack(list(points.values()))
    f = partial(_loss, algorithm)
    grads = quick_jit(jax.vmap(jax.grad(f, argnums=(0, 1)), in_axes=(None, 0)))(m, batch)
    step = jax.tree.map(lambda x: jnp.cos(1.0 + jnp.nan_to_num(x, posinf=1.0, neginf=-1.0)), m)
    along = jax.tree.map(lambda x: jnp.sin(0.5 + x[0] * x[0]), batch)
    forward = jax.vmap(lambda s: jax.jvp(f, (m, s), (step, along))[1])
    return grads, quick_jit(forward)(batch), step, along


@cache
def _numeric(algorithm):
    """The gradient by differences of fourth order, at one point; a row a number perturbed."""
    m = robot()
    _, unravel = ravel_pytree((m, _points(m)["random"]))
    f = quick_jit(jax.vmap(lambda x: _loss(algorithm, *unravel(x))))

    def gradient(m, s, h=1e-3):
        x = np.asarray(ravel_pytree((m, s))[0])
        slope = np.zeros_like(x)
        for c, w in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            slope += w * np.asarray(f(jnp.asarray(x + c * h * np.eye(x.size)))) / (12 * h)
        return unravel(jnp.asarray(slope))

    return gradient


@pytest.mark.float64
@pytest.mark.parametrize("point", list(_points(samples.pendulum())))
@pytest.mark.parametrize("algorithm", ORDERED)
def test_gradients_agree_with_central_differences(algorithm, point):
    """With respect to q (ambient), v, a, tau, f_ext and every leaf of the model."""
    m, points = robot(), _points(robot())
    k = list(points).index(point)
    grads = jax.tree.map(lambda x: np.asarray(x[k]), _derivatives(algorithm)[0])
    numeric = jax.tree.map(np.asarray, _numeric(algorithm)(m, points[point]))
    scale = max(np.abs(x).max() for x in jax.tree.leaves(grads[1]))
    for name in (*PHYSICS, "damping", "friction", "effort_limit", "position_lower", "frame_p"):
        a, b = getattr(grads[0], name), getattr(numeric[0], name)
        assert np.isfinite(a).all(), name
        bound = 1e-6 * max(scale, np.abs(a).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=bound, err_msg=name)
    for name, a, b in zip(grads[1]._fields, grads[1], numeric[1], strict=True):
        assert np.isfinite(a).all(), name
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * scale, err_msg=name)
    if point == "random":
        for name in PHYSICS if algorithm != "crba" else set(PHYSICS) - {"gravity"}:
            assert np.abs(getattr(numeric[0], name)).max() > 1e-2, f"{name} has no influence"


@pytest.mark.float64
@pytest.mark.parametrize("algorithm", ORDERED)
def test_forward_mode_agrees_with_reverse_mode(algorithm):
    grads, forward, step, along = _derivatives(algorithm)
    inner = lambda g, d: sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (g, d))))  # noqa: B905, E731
    for k, value in enumerate(forward):
        g = jax.tree.map(lambda x, k=k: x[k], grads)
        reverse = inner(g, (step, along))
        assert abs(reverse - value) <= 1e-10 * max(abs(value), 1.0)


@pytest.mark.float64
@pytest.mark.parametrize("algorithm", ORDERED)
def test_ambient_gradient_is_the_gradient_on_the_manifold(algorithm):
    """Orthogonal to the quaternions; along ``integrate`` it is what differences give."""
    m, points = robot(), _points(robot())
    tangent = quick_jit(
        lambda s, d: jax.vmap(
            lambda x: _loss(algorithm, m, s._replace(q=rbd.integrate(m, s.q, x)))
        )(d)
    )
    rates_of = quick_jit(jax.vmap(partial(rbd.rate_from_velocity, m), in_axes=(None, 0)))
    for k, (name, s) in enumerate(points.items()):
        g = _derivatives(algorithm)[0][1].q[k]
        for where in quaternion_slices(m):
            assert abs(g[where] @ s.q[where]) <= 1e-10 * float(jnp.abs(g).max())
        # rate_from_velocity is that of a unit quaternion scaled by the length of q
        rates = rates_of(s.q, jnp.eye(m.nv))
        h = 1e-3
        numeric = sum(
            w * tangent(s, c * h * jnp.eye(m.nv)) / (12 * h)
            for c, w in ((1, 8), (-1, -8), (2, -1), (-2, 1))
        )
        scale = float(jnp.abs(numeric).max())
        np.testing.assert_allclose(rates @ g, numeric, rtol=0, atol=1e-6 * scale, err_msg=name)


# --- the whole API ------------------------------------------------------------------------------


# Explicit derivatives have no oracle for their own derivatives elsewhere.
_ALWAYS = "inverse_dynamics_derivatives", "mass_matrix_inverse"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in _ALWAYS else pytest.mark.slow)
        for n in sorted(public_functions())
    ],
)
def test_every_function_is_differentiable_in_everything(name):
    """Forward mode is the difference along a direction in all arguments and leaves; reverse too."""
    f, (m, arrays) = traced(name, samples.random_tree(1, ("free", "spherical", "revolute")))
    f = jax.jit(f)  # traced once
    smooth = {k: x for k, x in arrays.items() if is_smooth(x)}
    rest = {k: x for k, x in arrays.items() if k not in smooth}
    at, unravel = ravel_pytree((m, smooth))

    def g(x):
        model, chosen = unravel(x)
        out = f(model, {**chosen, **rest})
        return ravel_pytree([y for y in jax.tree.leaves(out) if is_smooth(y)])[0]

    size = jax.eval_shape(g, at).size
    if size == 0:
        pytest.skip("its values are no real numbers")
    direction = jnp.where(jnp.isfinite(at), jnp.sin(1.0 + jnp.arange(at.size, dtype=at.dtype)), 0.0)
    weights = jnp.cos(1.0 + jnp.arange(size, dtype=at.dtype))

    def derivatives(x):
        out, forward = jax.jvp(g, (x,), (direction,))
        (reverse,) = jax.vjp(g, x)[1](weights)
        return out, forward, jnp.where(jnp.isfinite(x), reverse, 0.0) @ direction

    out, forward, reverse = quick_jit(derivatives)(at)
    steps = 5e-4 * jnp.array([1.0, -1.0, 2.0, -2.0])
    near = quick_jit(jax.vmap(lambda h: g(at + h * direction)))(steps)
    slope = (8 * (near[0] - near[1]) - (near[2] - near[3])) / 6e-3
    scale = float(jnp.abs(slope).max()) + float(jnp.abs(out).max())
    np.testing.assert_allclose(forward, slope, rtol=0, atol=1e-6 * scale)
    assert abs(weights @ forward - reverse) <= 1e-9 * float(jnp.abs(weights) @ jnp.abs(forward))


# --- vmap and jit -----------------------------------------------------------------------------


def _heavier(m, k):
    return eqx.tree_at(lambda m: m.inertia, m, m.inertia * (1 + 0.3 * k))


@pytest.mark.parametrize(
    "algorithm",
    ["aba", *(pytest.param(n, marks=pytest.mark.slow) for n in ALGORITHMS if n != "aba")],
)
def test_vmap_over_states_models_and_both(algorithm):
    m = samples.random_tree(3, kinds=("free", "revolute", "spherical"))
    f, s = ALGORITHMS[algorithm], random_states(m, 3)
    models = [_heavier(m, k) for k in range(3)]
    many = stack(models)
    one = jax.jit(f)
    rows = [[one(x, jax.tree.map(lambda y, n=n: y[n], s)) for n in range(3)] for x in models]
    over_states = jax.jit(jax.vmap(f, in_axes=(None, 0)))(m, s)
    assert_close(over_states, stack(rows[0]), rtol=1e-11, atol=1e-11)
    first = jax.tree.map(lambda y: y[0], s)
    over_models = jax.jit(jax.vmap(f, in_axes=(0, None)))(many, first)
    assert_close(over_models, stack([r[0] for r in rows]), rtol=1e-11, atol=1e-11)
    together = jax.jit(jax.vmap(f))(many, s)
    assert_close(together, stack([rows[n][n] for n in range(3)]), rtol=1e-11, atol=1e-11)
    grid = jax.jit(jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None)))(many, s)
    assert_close(grid, stack([stack(r) for r in rows]), rtol=1e-11, atol=1e-11)


def test_vmap_over_one_leaf_of_the_model():
    m = samples.arm()
    s = random_state(m)
    directions = jnp.eye(3)
    pull = lambda g: rbd.gravity_torque(eqx.tree_at(lambda m: m.gravity, m, g), s.q)  # noqa: E731
    one = jax.jit(pull)
    assert_close(jax.jit(jax.vmap(pull))(directions), jnp.stack([one(g) for g in directions]))


def test_a_model_of_the_same_shape_is_not_compiled_again():
    @jax.jit
    @chex.assert_max_traces(1)
    def f(m, q):
        return rbd.crba(m, q)

    for k in range(3):
        m = _heavier(samples.chain(3), k)
        f(m, rbd.neutral(m))
