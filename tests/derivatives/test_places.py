"""Frames and the center of mass with analytical rules, against autodiff of the functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import cast
from support.inputs import inputs, random_like
from support.rule_cases import robot

import rbd_jax as rbd
from rbd_jax.derivatives.custom_jvp.kinematics import (
    center_of_mass_custom_jvp,
    frame_placement_custom_jvp,
)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("float64", marks=pytest.mark.float64),
        pytest.param("float32", marks=pytest.mark.slow),
    ],
)
def test_places_and_their_derivatives(dtype):
    """Value, jvp along the configuration and all leaves, vjp, and second derivatives."""
    m = robot("random_tree")
    m, q = cast((m, inputs(m)["q"]), jnp.dtype(dtype))
    frame = m.frame_names[-1]
    moved = jax.tree.map(lambda x: 0.1 * x, random_like(eqx.filter(m, eqx.is_inexact_array), 1))
    dq = 0.3 * random_like(q, 2)

    def along(place, center):
        def numbers(m, q):
            R, p = place(m, q, frame)
            return jnp.concatenate([jnp.ravel(R), p, center(m, q)])

        def first(m, q):
            return eqx.filter_jvp(numbers, (m, q), (moved, dq))[1]

        def all_of(m, q):
            back = jax.vjp(lambda q: numbers(m, q), q)[1](jnp.arange(15, dtype=dtype))[0]
            second = jax.jvp(lambda q: first(m, q), (q,), (dq,))[1]
            return numbers(m, q), first(m, q), jax.jacfwd(lambda q: numbers(m, q))(q), back, second

        return eqx.filter_jit(all_of)(m, q)

    ours = along(frame_placement_custom_jvp, center_of_mass_custom_jvp)
    theirs = along(rbd.frame_placement, rbd.center_of_mass)
    digits = {"float64": 1e-12, "float32": 2e-5}[dtype]
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, y, rtol=digits, atol=digits * float(jnp.abs(y).max()))
