"""Policies that remember: integral terms, delays, noise; their gradients and their errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close

import rbd_jax as rbd
from rbd_jax import samples

DT, STEPS = 0.01, 12


@pytest.fixture(scope="module")
def arm():
    m = samples.double_pendulum()
    return m, jnp.array([0.3, -0.5], m.dtype), jnp.array([0.2, 0.1], m.dtype)


def pid(gains):
    """A controller whose carry is the integral of the error, and which acts one step too late."""

    def policy(carry, seen):
        total, late = carry
        t, q, v = seen
        total = total + DT * q
        u = -gains[0] * q - gains[1] * total - gains[2] * v + 0 * t
        return (total, u), late

    return policy


def by_hand(m, q, v, gains):
    """The same in a Python loop, step by step."""
    carry, rows = (0 * v, 0 * v), [(q, v)]
    for k in range(STEPS):
        carry, u = pid(gains)(carry, (jnp.asarray(k * DT, q.dtype), q, v))
        q, v = rbd.step(m, q, v, u, DT)
        rows.append((q, v))
    return [jnp.stack(x) for x in zip(*rows, strict=True)], carry


@pytest.mark.parametrize(
    "gradient",
    ["adjoint", *(pytest.param(x, marks=pytest.mark.slow) for x in ("full", "checkpoint"))],
)
def test_a_policy_with_an_integral_and_a_delay(arm, gradient):
    """States, the carry at the end, and gradients by gains and by the first carry."""
    m, q, v = arm
    gains = jnp.array([3.0, 2.0, 0.5], m.dtype)

    def ours(gains, late):
        start = 0 * v, late
        path = rbd.rollout(
            m, q, v, pid(gains), DT, steps=STEPS, carry=start, gradient=gradient, stride=3
        )
        return jnp.sum(jnp.sin(path.q[-1])) + jnp.sum(path.carry[0]), (path, path.carry)

    def plain(gains, late):
        (qs, vs), carry = by_hand(m, q, v, gains)
        return jnp.sum(jnp.sin(qs[-1])) + jnp.sum(carry[0]), (qs, vs, carry)

    both = [jax.value_and_grad(f, argnums=0, has_aux=True) for f in (ours, plain)]
    ((a, (path, carry)), da), ((b, (qs, vs, end)), db) = quick_jit(
        lambda g: tuple(f(g, 0 * v) for f in both)
    )(gains)
    assert_close(a, b, rtol=1e-5)
    assert_close((path.q, path.v, carry), (qs[::3], vs[::3], end), rtol=1e-5, atol=1e-6)
    assert_close(da, db, rtol=1e-4, atol=1e-6)
    assert float(jnp.abs(da).min()) > 0


def test_the_carry_goes_on_in_batches_and_stops_with_the_motion(arm):
    m, q, v = arm
    gains = jnp.array([3.0, 2.0, 0.5], m.dtype)
    start = (0 * v, 0 * v)

    @quick_jit
    @jax.vmap
    def runs(v):
        whole = rbd.rollout(m, q, v, pid(gains), DT, steps=STEPS, carry=start)
        half = rbd.rollout(m, q, v, pid(gains), DT, steps=5, carry=start)
        last = half.q[-1], half.v[-1]
        rest = rbd.rollout(m, *last, pid(gains), DT, steps=STEPS - 5, carry=half.carry)
        late = lambda t, q, v: t > 4.5 * DT  # noqa: E731
        ended = rbd.rollout(m, q, v, pid(gains), DT, steps=STEPS, carry=start, stop=late)
        return (whole.q[5:], whole.carry), (rest.q, rest.carry), half.carry, ended.carry

    whole, parts, half, ended = runs(jnp.stack([v, 2 * v, -v]))
    assert_close(whole, parts, rtol=1e-5, atol=1e-6)
    assert_close(half, ended, rtol=1e-5, atol=1e-6)


def test_the_policy_sees_what_is_observed_and_gets_keys(arm):
    m, q, v = arm

    def policy(count, seen, key):
        noise = 1e-3 * jax.random.normal(key, seen.shape, seen.dtype)
        return count + 1, seen + noise

    path = rbd.rollout(m, q, v, policy, DT, steps=4, carry=0, key=jax.random.key(0),
                       observe=lambda t, q, v: 2 * q)  # fmt: skip
    assert int(path.carry) == 4
    noise = path.controls - path.observations[:-1]
    assert 0 < float(jnp.abs(noise).min()) and float(jnp.abs(noise).max()) < 0.01
    assert len(np.unique(np.asarray(noise))) == noise.size


def test_wrong_policies_are_told(arm):
    m, q, v = arm
    run = lambda policy, **more: rbd.rollout(m, q, v, policy, DT, steps=3, **more)  # noqa: E731
    told = (
        r"is called with 3 arguments, \(t, q, v\), but the function takes \(carry, seen\)"
        r".*needs carry=…"
    )
    with pytest.raises(TypeError, match=told):
        run(lambda carry, seen: (carry, 0 * v))
    with pytest.raises(
        TypeError, match=r"called with 2 arguments, \(carry, observation\), .* \(t, q, v\)"
    ):
        run(lambda t, q, v: 0 * v, carry=0.0)
    with pytest.raises(
        TypeError, match=r"\(carry, observation, key\), but the function takes \(c, "
    ):
        run(lambda c, x: (c, 0 * v), carry=0.0, key=jax.random.key(0))
    with pytest.raises(TypeError, match="a last argument key needs key=…"):
        run(lambda t, q, v, key: 0 * v)
    with pytest.raises(TypeError, match=r"has to return \(carry, u\), got a"):
        run(lambda c, x: 0 * v, carry=0.0)
    with pytest.raises(ValueError, match="changes the kind of its carry, .* shapes and dtypes"):
        run(lambda c, x: ((c, c), 0 * v), carry=0.0)
    with pytest.raises(ValueError, match="the policy returned torques of shape"):
        run(lambda c, x: (c, jnp.zeros(5)), carry=0.0)
    with pytest.raises(ValueError, match="carry belongs to a policy"):
        rbd.rollout(m, q, v, jnp.zeros((3, 2)), DT, carry=0.0)
    with pytest.raises(ValueError, match="gradient='adjoint' needs a carry of floats"):
        run(lambda c, x: (c, 0 * v), carry=0, gradient="adjoint")
