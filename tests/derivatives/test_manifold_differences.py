"""Explicit derivatives of every joint kind against differences of the raw algorithms.

Nothing is shared with what is tested: values of :func:`rbd_jax.rnea` and :func:`rbd_jax.aba`,
which work in body coordinates, at configurations ``integrate(q, h e_k)``.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import SINGLE_KIND, central_difference, model, random_state

import rbd_jax as rbd

LONG = ("random_tree", *SINGLE_KIND)
ROBOTS = ("quadruped", *(pytest.param(name, marks=pytest.mark.slow) for name in LONG))
STRAIGHT = ("only_prismatic", "only_translation")  # nothing turns, so nothing depends on q


@quick_jit
def both(m, s):
    """Explicit derivatives of ID by (q, v, a) and of FD by (q, v, τ), and their differences."""

    def along(d):
        dq, dv, last = jnp.split(d, 3)
        q, v = rbd.integrate(m, s.q, dq), s.v + dv
        return rbd.rnea(m, q, v, s.a + last, s.f_ext), rbd.aba(m, q, v, s.tau + last, s.f_ext)

    differences = central_difference(along, jnp.zeros(3 * m.nv))
    explicit = (
        rbd.inverse_dynamics_derivatives(m, s.q, s.v, s.a, s.f_ext),
        rbd.forward_dynamics_derivatives(m, s.q, s.v, s.tau, s.f_ext),
    )
    return explicit, [jnp.split(x, 3, axis=1) for x in differences]


@pytest.mark.float64
@pytest.mark.parametrize("name", ROBOTS)
def test_derivatives_equal_differences_on_the_manifold(name):
    """To 1e-8 of each column: rounding ε |τ|/h, h = 1e-3, over columns down to 1e-3 of the largest.

    Seen: 5e-10; the step itself, of fourth order, adds h⁴ = 1e-12.
    """
    m = model(name)
    for group in zip(*both(m, random_state(m, 6)), strict=True):
        for by, found, expected in zip(("q", "v", "last"), *group, strict=True):
            found, expected = np.asarray(found), np.asarray(expected)
            greatest = np.abs(expected).max()
            assert greatest > 0.1 or (by == "q" and name in STRAIGHT)
            scale = np.maximum(np.abs(expected).max(axis=0), 1e-3 * max(greatest, 1.0))
            print(name, by, "greatest", greatest, "error", np.abs((found - expected) / scale).max())
            assert found.shape == expected.shape == (m.nv, m.nv)
            np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-8)
