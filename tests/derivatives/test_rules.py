"""The rules: value, first and second derivatives against autodiff of the raw algorithms."""

from contextlib import nullcontext
from functools import cache, partial

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import cast, computed_as
from support.inputs import assert_relative, inputs, random_like
from support.rule_cases import BATCH, FUNCTIONS, RULES, batch, dot, of_inputs, robot


def first_order(function, model, prescribed, x, ds, ct, _):
    """Value, jvp along every direction, vjp."""
    f = jax.jit(partial(of_inputs, function, model, prescribed))  # traced once
    value, pull = jax.vjp(f, x)
    jvps = jax.vmap(lambda d: jax.jvp(f, (x,), (d,))[1])(ds)
    return value, jvps, pull(ct)[0]


def second_order(function, model, prescribed, x, ds, ct, w):
    """jvp of vjp along every direction, vjp of vjp."""
    f = jax.jit(partial(of_inputs, function, model, prescribed))  # traced once
    gradient = jax.grad(lambda x: dot(f(x), ct))
    forward_reverse = jax.vmap(lambda d: jax.jvp(gradient, (x,), (d,))[1])(ds)
    return forward_reverse, jax.grad(lambda x: dot(gradient(x), w))(x)


@partial(quick_jit, static_argnums=(0, 1))
def _many(what, function, model, prescribed, xs, *fixed):
    return jax.vmap(partial(what, function, model), in_axes=(0, 0, None, None, None))(
        prescribed, xs, *fixed
    )


# These run as on an accelerator, by the inverse of M, the others by articulated bodies.
BY_INVERSE = FUNCTIONS["hybrid, small"]


def many(what, function, model, prescribed, xs, ds, ct, w):
    """``what`` of all robots and states at once; ``ct`` is for two outputs or for one."""
    one = function not in FUNCTIONS["hybrid"] + FUNCTIONS["hybrid, small"]
    with computed_as("accelerator") if function in BY_INVERSE else nullcontext():
        return _many(what, function, model, prescribed, xs, ds, ct[0] if one else ct, w)


@cache
def results(what, function, name):
    """By the rule and by the raw function."""
    return tuple(many(what, f, *batch(name)) for f in FUNCTIONS[function])


def long(*cases):
    return [pytest.param(*c, marks=pytest.mark.slow) for c in cases]


ALL_KINDS = long(*((f, "random_tree") for f in FUNCTIONS))


# the rules of inverse and forward dynamics at rest, and combinations of two others
TAIL = "product", "solve", "hybrid", "hybrid, small"
FIRST = [
    *((f, "small") for f in FUNCTIONS if f not in TAIL),
    *long(*((f, "small") for f in TAIL), ("inverse", "pendulum"), ("forward", "pendulum")),
]


SMALL = long(*((f, "small") for f in FUNCTIONS))


@pytest.mark.parametrize(("function", "name"), FIRST)
def test_first_order(function, name):
    """Value, jvp, vjp for every input and every leaf, under jit and vmap over robots and states."""
    for rule, raw, lead in zip(*results(first_order, function, name), (1, 2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (rule, raw))
        assert_relative(found, expected, 1e-9, lead)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "name"), FIRST)
def test_singular_points(function, name):
    """Both modes are finite and right at the identity, at half turns, at rest, without gravity."""
    for rule, raw in zip(*results(first_order, function, name), strict=True):
        found, expected = jax.tree.map(lambda y: y[BATCH:], (rule, raw))
        assert_relative(found, expected, 1e-9, lead=0)


@pytest.mark.parametrize(("function", "name"), [*SMALL, *ALL_KINDS])
def test_second_order(function, name):
    """jvp of vjp and vjp of vjp for every input and every leaf, at singular points too."""
    for rule, raw, lead in zip(*results(second_order, function, name), (2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (rule, raw))
        assert_relative(found, expected, 1e-9, lead)
        found, expected = jax.tree.map(lambda y: y[BATCH:], (rule, raw))
        assert_relative(found, expected, 1e-9, lead=0)


@pytest.mark.parametrize("function", long(("inverse",), ("forward",)))
def test_forward_over_forward(function):
    """jvp of jvp."""

    @partial(quick_jit, static_argnums=0)
    def twice(function, m, x, d, e):
        f = partial(of_inputs, function, m, None)
        return jax.jvp(lambda x: jax.jvp(f, (x,), (d,))[1], (x,), (e,))

    m = robot("small")
    x = inputs(m)
    rule, raw = (twice(f, m, x, random_like(x, 1), random_like(x, 2)) for f in FUNCTIONS[function])
    assert_relative(rule, raw, 1e-9, lead=0)


@pytest.mark.parametrize("function", ["forward", *long(("inverse",), ("hybrid",))])
def test_single_precision(function):
    """Rounding alone: 8e-6 at most was measured, in the jvp of the hybrid dynamics."""
    low = many(first_order, RULES[function], *cast(batch("small"), jnp.float32))
    assert all(y.dtype == jnp.float32 for y in jax.tree.leaves(low))
    exact, _ = results(first_order, function, "small")
    for found, expected, lead in zip(low, exact, (1, 2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (found, expected))
        assert_relative(cast(found, jnp.float64), expected, 2e-5, lead, floor=1e-3)
