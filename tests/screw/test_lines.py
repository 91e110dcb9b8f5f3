"""Screws, their lines, and the reciprocal product. Müller App. B.2."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from support.calls import quick_jit
from support.helpers import assert_close

from rbd_jax import screw
from rbd_jax.spatial import motion, se3, so3

RNG = np.random.default_rng(2)


def _lines(n: int):
    e, p = RNG.normal(size=(2, n, 3))
    return jnp.asarray(e / np.linalg.norm(e, axis=1)[:, None]), jnp.asarray(p)


def test_screws_of_lines_and_back():
    """The point that is returned is the closest one to the origin. A translation has none."""
    (e, p), h = _lines(6), jnp.array([0.0, 0.3, -2.0, 1e-3, jnp.inf, jnp.inf])
    X = screw.screw_of_line(3 * e, p, h)
    assert_close(X[4:], jnp.concatenate([0 * e, e], axis=1)[4:])
    line = screw.line_of_screw(2.5 * X)
    assert_close(line.e, e)
    assert_close(line.h, h)
    assert_close(line.magnitude, np.full(6, 2.5))
    foot = p - so3.dot(p, e)[:, None] * e
    assert_close(line.p[:4], foot[:4])
    assert_close(line.p[4:], 0 * foot[4:])
    again = line.magnitude[:, None] * screw.screw_of_line(line.e, line.p, line.h)
    assert_close(again, 2.5 * X)


def test_a_screw_is_the_motion_about_its_line():
    """exp rotates about the axis and moves its points by the pitch. Models can be built from it."""
    (e, p), h, angle = _lines(1), 0.2, 0.7
    X = screw.screw_of_line(e, p, h)[0]
    T = se3.exp(angle * X)
    assert_close(se3.act(T, p[0]), p[0] + h * angle * e[0])
    assert_close(T[0], so3.exp(angle * e[0]))
    m = screw.from_spatial_screws([X], [np.eye(6)])
    assert m.topology.kinds == ("helical",)
    assert_close(m.pitch, np.array([h]))
    revolute = screw.from_spatial_screws(np.asarray(screw.screw_of_line(e, p)), [np.eye(6)])
    assert revolute.topology.kinds == ("revolute",)


def test_reciprocal_product():
    """It is invariant, gives the power, and is zero for lines that meet or are parallel."""
    (e, p), xi = _lines(4), jnp.asarray(RNG.normal(size=(4, 6)))
    T, V, F = se3.exp(xi), *jnp.asarray(RNG.normal(size=(2, 4, 6)))
    product = screw.reciprocal_product(V, F)
    assert_close(screw.reciprocal_product(motion.to_parent(T, V), motion.to_parent(T, F)), product)
    force_first = jnp.concatenate([F[:, 3:], F[:, :3]], axis=1)
    assert_close(screw.reciprocal_product(V, force_first), so3.dot(V, F))
    one = screw.screw_of_line(e, p)
    meeting = screw.screw_of_line(jnp.roll(e, 1, axis=0), p + 0.4 * e)
    parallel = screw.screw_of_line(e, jnp.roll(p, 1, axis=0))
    for other in (meeting, parallel):
        assert_close(screw.reciprocal_product(one, other), np.zeros(4))
    assert float(jnp.abs(screw.reciprocal_product(one, jnp.roll(one, 1, axis=0))).min()) > 1e-3


def test_derivatives_of_screws_of_lines():
    (e, p), h = _lines(3), jnp.array([0.0, 0.4, jnp.inf])

    def f(e, p, h):
        return screw.screw_of_line(e, p, h)

    J = quick_jit(jax.jacrev(f, (0, 1)))(e, p, h)
    chex.assert_tree_all_finite(J)
    d = jnp.asarray(RNG.normal(size=(3, 3)))
    rate = jax.jvp(lambda t: f(e, p + t * d, h), (0.0,), (1.0,))[1]
    assert_close(rate[:2], jnp.concatenate([0 * d, so3.cross(d, e)], axis=1)[:2])
    back = quick_jit(jax.jacrev(lambda X: screw.line_of_screw(X)[:2]))(f(e, p, h))
    chex.assert_tree_all_finite(back)
