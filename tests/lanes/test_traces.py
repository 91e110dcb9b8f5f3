"""Functions are traced once: for the caller and for callers inside, for a value and its derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import eval_jaxpr

from rbd_jax.derivatives.custom_jvp.mechanism import custom_jvp
from rbd_jax.lanes import clear_caches, lanes, trace_once

pytest.importorskip("llvmlite")
X = jnp.arange(3.0)


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, function):
        self.function, self.calls, self.__name__ = function, 0, "counted"

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def test_alone_and_inside_of_another_function():
    counted = Counted(lambda x: jnp.sin(x) * 2)
    inner = lanes(counted, strict=True)
    outer = lanes(lambda x: inner(x) + 1, strict=True)
    both = jax.jit(lambda x: (inner(x), outer(x), jax.vmap(outer)(x[None])[0] - 1))
    for y, c in zip(both(X), (0, 1, 0), strict=True):
        np.testing.assert_allclose(y, jnp.sin(X) * 2 + c, rtol=1e-6)
    assert counted.calls == 1


def test_value_and_derivative_of_a_rule():
    counted = Counted(lambda x, power: {"y": x**power})
    ruled = custom_jvp(counted)

    @ruled.def_jvp
    def rule(primals, tangents):
        (x, power), (dx, _) = primals, tangents
        return ruled(x, power), {"y": 7 * dx}

    f = jax.jit(lambda x: (ruled(x, 2)["y"], jax.jvp(lambda x: ruled(x, 2)["y"], (x,), (x,))[1]))
    y, dy = f(X)
    np.testing.assert_allclose(y, X**2)
    np.testing.assert_allclose(dy, 7 * X)  # the rule, not the derivative of the body
    assert counted.calls == 1
    np.testing.assert_allclose(jax.jit(lambda x: ruled(x, 3)["y"])(X), X**3)  # another power
    assert counted.calls == 2


def test_what_tells_traces_apart():
    counted = Counted(lambda x, y: x * jnp.asarray(y, x.dtype))

    def value(*args):
        closed, tree = trace_once(counted, args)
        arrays = [x for x in jax.tree.leaves(args) if isinstance(x, jax.Array)]
        return tree.unflatten(eval_jaxpr(closed.jaxpr, closed.consts, *arrays))

    different = [2, 3, 2.0, True, -0.0, 0.0, np.ones(3), np.zeros(3), np.float32(1)]
    for _ in range(2):
        for y in different:
            np.testing.assert_allclose(value(X, y), np.asarray(X) * y)
    assert counted.calls == len(different)
    value(X[:2], 2)
    assert counted.calls == len(different) + 1
    clear_caches()
    value(X, 2)
    assert counted.calls == len(different) + 2


def test_values_of_a_transformation_are_not_kept():
    """A function that another one makes has a tracer inside, which must not outlive its trace."""

    def captured(a):
        return trace_once(lambda x: x * a, (X,))[0].consts[0] * 1.0

    assert jax.jit(captured)(jnp.ones(())) == 1 and jax.jit(captured)(jnp.zeros(3))[0] == 0

    class Held:
        a: jax.Array

        def __call__(self, x):
            return x * self.a

    held, counted = Held(), []

    def again(a):
        held.a = a
        counted.append(trace_once(held, (X,)))
        return jnp.sum(eval_jaxpr(counted[-1][0].jaxpr, counted[-1][0].consts, X)[0])

    assert jax.grad(again)(2.0) == 3 and jax.grad(again)(5.0) == 3  # of X, whose sum is 3


def test_list_of_functions_is_no_key():
    """Static arguments that cannot be hashed are traced each time."""

    class Unhashable:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __init__(self, k):
            self.k = k

        def __eq__(self, other):
            return True

    counted = Counted(lambda x, f: x * f.k)
    for k in (2, 3):
        closed, _ = trace_once(counted, (X, Unhashable(k)))
        np.testing.assert_allclose(eval_jaxpr(closed.jaxpr, closed.consts, X)[0], X * k)
    assert counted.calls == 2
