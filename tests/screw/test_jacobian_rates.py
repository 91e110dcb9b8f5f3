"""Rates of Jacobians in closed form, against derivatives along the motion. Müller (8)–(30)."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import screw


@pytest.fixture(scope="module")
def tree():
    kinds = ("free", "revolute", "spherical", "helical", "prismatic", "universal")
    m = rbd.samples.random_tree(4, kinds=kinds)
    return m, random_state(m, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", screw.REPRESENTATIONS)
def test_rates_of_jacobians(tree, kind):
    """The first and second rates, and the accelerations and jerks that follow from them."""
    m, s = tree
    jerk = jnp.cos(jnp.arange(1.0, m.nv + 1))

    def run(m, s):
        def along(f):
            rate = lambda q, v: (rbd.rate_from_velocity(m, q, v), s.a)  # noqa: E731
            return lambda q, v: jax.jvp(f, (q, v), rate(q, v))[1]

        J = lambda q, v: screw.jacobians(m, q, kind)  # noqa: E731
        expected = along(J)(s.q, s.v), along(along(J))(s.q, s.v)
        dJ = screw.jacobian_rates(m, s.q, s.v, kind)
        ddJ = screw.jacobian_second_rates(m, s.q, s.v, s.a, kind)
        J = screw.jacobians(m, s.q, kind)
        sums = J @ s.a + dJ @ s.v, J @ jerk + 2 * dJ @ s.a + ddJ @ s.v
        whole = (
            screw.accelerations(m, s.q, s.v, s.a, kind),
            screw.jerks(m, s.q, s.v, s.a, jerk, kind),
        )
        return (dJ, ddJ, *sums), (*expected, *whole)

    got, expected = quick_jit(run)(m, s)
    for x, y in zip(got, expected, strict=True):
        assert_close(x, y, atol=1e-11 * (1 + float(jnp.abs(y).max())))


def test_unknown_representations_are_refused(tree):
    m, s = tree
    for f, rates in ((screw.jacobian_rates, (s.v,)), (screw.jacobian_second_rates, (s.v, s.a))):
        with pytest.raises(ValueError, match="representation must be one of"):
            inspect.unwrap(f)(m, s.q, *rates, "local")
