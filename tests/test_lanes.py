"""The experiment with Pallas, in its interpreter: one robot a lane does what the passes do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, model, random_states

import rbd_jax as rbd
from benchmarks import _lanes, _scalars


def inverse(m, s):
    return rbd.rnea(m, s.q, s.v, s.a, s.f_ext)


def forward(m, s):
    return rbd.aba(m, s.q, s.v, s.tau, s.f_ext)


def operator(m, s):
    f = lambda q, v: rbd.inverse_dynamics(m, q, v, s.a, s.f_ext)  # noqa: E731
    return jax.jvp(f, (s.q, s.v), (s.q, s.a))


@pytest.mark.parametrize(
    ("function", "name", "batch"),
    [
        (inverse, "random_tree", 2),
        (forward, "only_spherical", _lanes.LANES + 2),  # two blocks
        (operator, "floating_tree", 2),
        pytest.param(forward, "random_tree", 2, marks=pytest.mark.slow),
        pytest.param(operator, "random_tree", 2, marks=pytest.mark.slow),
    ],
)
def test_a_robot_in_a_lane(function, name, batch):
    """Kernels give what scans over the bodies give, each robot with a mass of its own."""
    m = model(name, "float64")
    states = random_states(m, batch)
    masses = jnp.linspace(0.5, 2, batch)

    def one(mass, s):
        return function(eqx.tree_at(lambda m: m.inertia, m, mass * m.inertia), s)

    expected = jax.jit(jax.vmap(one))(masses, states)
    with _lanes.used(interpret=True) as kernels:
        found = jax.jit(jax.vmap(lambda *x: one(*x)))(masses, states)
    assert len(kernels) >= 2 and all(min(k) > 0 for k in kernels)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(x, y, rtol=1e-10, atol=1e-10 * float(jnp.abs(y).max()))


def test_one_robot_needs_no_kernel():
    """Without a vmap the passes are the library's: this runs on a CPU, where a kernel would not."""
    m = model("floating_tree", "float64")
    s = jax.tree.map(lambda x: x[0], random_states(m, 1))
    with _lanes.used() as kernels:
        found = jax.jit(lambda s: inverse(m, s))(s)
    assert not kernels
    assert_close(found, jax.jit(inverse)(m, s), rtol=1e-12, atol=1e-12)


def test_numbers_one_by_one():
    """Evaluated number by number a function is the same; what is known beforehand is left out."""

    def f(x, y):
        A = jnp.stack([x, 2 * x, jnp.zeros(3)]).T + jnp.eye(3) * y[0]
        B = jnp.where(y[1] > 0, A[:, ::2], -A[:, ::2])
        return jnp.sum(jnp.cos(B) / (1 + x[:, None] ** 2), axis=0), jax.jit(jnp.concatenate)([x, y])

    x, y = jnp.array([0.1, 0.2, 0.3]), jnp.array([2.0, -1.0])
    numbers = [_scalars.array(z, z.shape) for z in (x, y)]
    found = _scalars.evaluate(jax.make_jaxpr(f)(x, y), numbers)
    for a, b in zip(found, f(x, y), strict=True):
        np.testing.assert_allclose(a.astype(float), b, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="sort cannot be done number by number"):
        _scalars.evaluate(jax.make_jaxpr(jnp.sort)(x), numbers[:1])
