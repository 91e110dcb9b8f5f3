"""Partial derivatives of Jacobians by nested screw products, against nested autodiff."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state, within

import rbd_jax as rbd
from rbd_jax import screw

SEVERAL = ("revolute", "spherical", "helical")


@pytest.fixture(scope="module")
def tree():
    """A tree of one- and three-degree-of-freedom joints, a configuration, the deepest body."""
    m = rbd.samples.random_tree(0, kinds=(*SEVERAL, "prismatic", "revolute"))
    return m, random_state(m).q, int(np.argmax(m.topology.tree.depths))


def _by_autodiff(m, q, body, kind, order):
    """Derivatives along successive steps. The first index belongs to the first step."""

    def along(f):
        return lambda q: jax.jacfwd(lambda d: f(rbd.integrate(m, q, d)))(jnp.zeros(m.nv))

    f = lambda q: screw.jacobians(m, q, kind)[body]  # noqa: E731
    for _ in range(order):
        f = along(f)
    # The outermost derivative is that of the first step, and it is the last axis.
    return jnp.moveaxis(f(q), list(range(2, 2 + order)), list(range(1 + order, 1, -1)))


@pytest.mark.parametrize("kind", screw.REPRESENTATIONS)
def test_first_partials(tree, kind):
    """(5), (15), (24)–(25), and the mixed partials."""
    m, q, body = tree
    assert m.topology.tree.depths[body] >= 2

    @quick_jit
    def both(m, q):
        return screw.jacobian_partials(m, q, body, 1, kind), _by_autodiff(m, q, body, kind, 1)

    got, expected = both(m, q)
    assert_close(got, expected, atol=1e-11)


@pytest.mark.parametrize("kind", screw.REPRESENTATIONS)
def test_second_partials(tree, kind):
    """(12), (20) and hybrid. They commute between joints, but not within a spherical joint."""
    m, q, body = tree

    @quick_jit
    def both(m, q):
        return screw.jacobian_partials(m, q, body, 2, kind), _by_autodiff(m, q, body, kind, 2)

    got, expected = both(m, q)
    assert_close(got, expected, atol=1e-11)
    twist = np.array(got - jnp.swapaxes(got, -1, -2))
    b = m.topology.dof_bodies
    assert np.abs(twist[..., b[:, None] != b[None]]).max() < within(1e-12, 1e-5)
    assert np.abs(twist[..., b[:, None] == b[None]]).max() > 1e-2


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow) for k in ("body_fixed", "mixed", "hybrid", "spatial")],
)
def test_third_partials(kind):
    """(14), (23) by nested brackets for one chain. Hybrid and mixed partials follow from these."""
    m = rbd.samples.random_tree(2, kinds=("revolute", "helical", "spherical"))
    q, body = random_state(m).q, int(np.argmax(m.topology.tree.depths))

    @quick_jit
    def both(m, q):
        return screw.jacobian_partials(m, q, body, 3, kind), _by_autodiff(m, q, body, kind, 3)

    got, expected = both(m, q)
    assert got.shape == (6, *[m.nv] * 4)
    assert_close(got, expected, atol=1e-11)
    assert float(jnp.abs(got).max()) > 0.1


def test_time_derivative_from_partials(tree):
    """Σ_k ∂J/∂q_k q̇_k is the rate of the frame Jacobian."""
    m, q, body = tree
    v = jnp.linspace(-1, 1, m.nv)
    frame = m.frame_names.index(m.body_names[body])
    references = {"body_fixed": "local", "spatial": "world", "hybrid": "local_world_aligned"}

    @quick_jit
    def both(m, q, v):
        return {
            kind: (
                screw.jacobian_partials(m, q, body, 1, kind) @ v,
                rbd.algorithms.jacobian_time_derivative(m, q, v, frame, reference),
            )
            for kind, reference in references.items()
        }

    for got, expected in both(m, q, v).values():
        assert_close(got, expected, atol=1e-11)


def test_refused_orders_and_bodies(tree):
    m, q, _ = tree
    plain = inspect.unwrap(screw.jacobian_partials)
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        plain(m, q, 0, 0, "spatial")
    for body in (5, -1, -5):
        with pytest.raises(IndexError, match=f"within 0 and 4 .*got {body}"):
            plain(m, q, body)
