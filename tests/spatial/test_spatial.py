"""Scalar functions of θ², and what holds for all of the spatial room: batches, dtypes."""

from fractions import Fraction
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, cast, jit
from support.lie_groups import (
    ANGLES,
    EPS,
    GROUPS,
    MIDDLE,
    SMALL,
    inertia,
    jacobian,
    motion,
    normal,
    se3,
    so3,
)

from rbd_jax.spatial import _series as scalar_series

# --- the scalar functions of θ² ------------------------------------------------------------------


def _series(offset: int):
    return [Fraction((-1) ** k, factorial(2 * k + offset)) for k in range(40)]


def _derivative(c):
    return [k * c[k] for k in range(1, len(c))]


def _at(c, x: Fraction) -> Fraction:
    y = Fraction(0)
    for a in reversed(c):
        y = y * x + a
    return y


def _exact(c, x: float) -> list[float]:
    """Value and two derivatives of a power series, in exact arithmetic."""
    d = _derivative(c)
    return [float(_at(s, Fraction(x))) for s in (c, d, _derivative(d))]


def _exact_cotc(x: float) -> list[float]:
    """The same for cotc, the quotient of ``(sin h / h − cos h) / h²`` and ``4 sin h / h``."""
    h2 = Fraction(x) / 4
    n = [b - a for a, b in zip(_series(0)[1:], _series(1)[1:], strict=True)]
    n0, n1, n2 = (_at(s, h2) for s in (n, _derivative(n), _derivative(_derivative(n))))
    d = _series(1)
    d0, d1, d2 = (_at(s, h2) for s in (d, _derivative(d), _derivative(_derivative(d))))
    f0 = n0 / d0
    f1 = (n1 - f0 * d1) / d0
    f2 = (n2 - 2 * f1 * d1 - f0 * d2) / d0
    return [float(f0 / 4), float(f1 / 16), float(f2 / 64)]


SMALL_FUNCTIONS = {
    "cos_theta": lambda x: _exact(_series(0), x),
    "sinc": lambda x: _exact(_series(1), x),
    "cosc": lambda x: _exact(_series(2), x),
    "sinc3": lambda x: _exact(_series(3), x),
    "cosc4": lambda x: _exact(_series(4), x),
    "sinc5": lambda x: _exact(_series(5), x),
    "cotc": _exact_cotc,
}


@pytest.mark.parametrize("name", SMALL_FUNCTIONS)
def test_small_functions_and_two_derivatives_are_exact(name):
    f = getattr(scalar_series, name)
    xs = np.array([t * t for t in ANGLES])
    expected = np.array([SMALL_FUNCTIONS[name](x) for x in xs]).T
    forms = [f, jax.grad(f), jax.grad(jax.grad(f))], [f, jax.jacfwd(f), jax.jacfwd(jax.jacfwd(f))]
    for ladder in forms:
        actual = jnp.stack([jax.jit(jax.vmap(g))(jnp.asarray(xs)) for g in ladder])
        assert_close(actual, expected, atol=20 * EPS)


# --- shapes and dtypes ---------------------------------------------------------------------------


ON_BATCHES = {
    "so3.exp": (so3.exp, [(3,)]),
    "so3.about": (so3.about, [(3,), ()]),
    "so3.log": (so3.log, [(3, 3)]),
    "so3.left_jacobian": (so3.left_jacobian, [(3,)]),
    "so3.left_jacobian_inverse": (so3.left_jacobian_inverse, [(3,)]),
    "so3.quat_from_matrix": (so3.quat_from_matrix, [(3, 3)]),
    "so3.quat_log": (so3.quat_log, [(4,)]),
    "so3.quat_multiply": (so3.quat_multiply, [(4,), (4,)]),
    "se3.exp": (se3.exp, [(6,)]),
    "se3.log": (lambda R, p: se3.log((R, p)), [(3, 3), (3,)]),
    "se3.matrix": (lambda R, p: se3.matrix((R, p)), [(3, 3), (3,)]),
    "se3.left_jacobian": (se3.left_jacobian, [(6,)]),
    "se3.left_jacobian_inverse": (se3.left_jacobian_inverse, [(6,)]),
    "motion.to_parent": (lambda R, p, V: motion.to_parent((R, p), V), [(3, 3), (3,), (6,)]),
    "motion.Ad_matrix": (lambda R, p: motion.Ad_matrix((R, p)), [(3, 3), (3,)]),
    "motion.ad_matrix": (motion.ad_matrix, [(6,)]),
    "motion.cross_wrench": (motion.cross_wrench, [(6,), (6,)]),
    "inertia.from_com": (inertia.from_com, [(), (3,), (3, 3)]),
    "inertia.com": (inertia.com, [(10,)]),
    "inertia.inertia_com": (inertia.inertia_com, [(10,)]),
    "inertia.apply": (inertia.apply, [(10,), (6,)]),
    "inertia.to_parent": (lambda R, p, x: inertia.to_parent((R, p), x), [(3, 3), (3,), (10,)]),
    "inertia.matrix": (inertia.matrix, [(10,)]),
    "inertia.pseudo": (inertia.pseudo, [(10,)]),
    "inertia.from_pseudo": (inertia.from_pseudo, [(4, 4)]),
}


def _inputs(shapes, batch):
    """Random arrays, (3, 3) ones rotations and (4,) ones unit quaternions."""
    make = {
        (3, 3): lambda k: so3.exp(normal(*batch, 3, seed=k)),
        (4,): lambda k: so3.quat_normalize(normal(*batch, 4, seed=k)),
    }
    return [make.get(s, lambda k, s=s: normal(*batch, *s, seed=k))(i) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("name", ON_BATCHES)
def test_leading_axes_are_a_vmap(name):
    f, shapes = ON_BATCHES[name]
    args = _inputs(shapes, (2, 3))
    assert_close(jit(f)(*args), jax.jit(jax.vmap(jax.vmap(f)))(*args), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ON_BATCHES)
def test_empty_batches(name):
    f, shapes = ON_BATCHES[name]
    full, empty = (jax.eval_shape(f, *_inputs(shapes, (n,))) for n in (2, 0))
    for a, b in zip(jax.tree.leaves(full), jax.tree.leaves(empty), strict=True):
        assert b.shape == (0, *a.shape[1:])


@pytest.mark.parametrize("name", ON_BATCHES)
def test_float32_stays_float32_and_accurate(name):
    f, shapes = ON_BATCHES[name]
    args = _inputs(shapes, (50,))
    single, double = jit(f)(*cast(args, jnp.float32)), jit(f)(*args)
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        assert a.dtype == jnp.float32
        scale = float(jnp.max(jnp.abs(b)))
        assert_close(a / scale, b / scale, atol=3e-6)


@GROUPS
def test_float32_at_singular_points(group, points):
    """Values to a few units in the last place, derivatives too, in both modes."""
    x = cast(points((*SMALL, *MIDDLE)), jnp.float32)
    chart = lambda x: group.log(group.exp(x))  # noqa: E731
    assert_close(jax.jit(jax.vmap(chart))(x), x, atol=2e-6)
    for mode in ("forward", "reverse"):
        J = jacobian(chart, mode)(x)
        assert_close(J, jnp.broadcast_to(jnp.eye(x.shape[1]), J.shape), atol=2e-5)
