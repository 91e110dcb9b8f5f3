"""Time derivatives of inverse dynamics, against nested forward mode along the motion."""

import inspect
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from support.calls import quick_jit
from support.helpers import assert_close, random_state, within

import rbd_jax as rbd
from rbd_jax import samples, screw

ROBOTS = {
    "random_tree": lambda: samples.random_tree(0),
    "quadruped": samples.quadruped,
    "double_pendulum": samples.double_pendulum,
}
FORMS = ("body_fixed", "hybrid")


@cache
def _motion(name):
    m = ROBOTS[name]()
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))
    s = random_state(m, 1)
    return m, s, jax.random.normal(jax.random.key(2), (4, m.nv))


def _nested(m, q, v, rates, f_ext, order):
    """``dᵏτ/dtᵏ`` by plain autodiff of raw RNEA. Each derivative is along ``(q̇, v̇, …)``."""

    def along(f):
        def rate(q, *motion):
            dq = rbd.rate_from_velocity(m, q, motion[0])
            return jax.jvp(f, (q, *motion), (dq, *motion[1:], jnp.zeros_like(v)))[1]

        return rate

    f = lambda q, v, a, *_: rbd.rnea(m, q, v, a, f_ext)  # noqa: E731
    rows = []
    for _ in range(order):
        rows.append(f(q, v, *rates))
        f = along(f)
    return jnp.stack(rows)


@cache
def _expected(name):
    m, s, rates = _motion(name)
    return quick_jit(lambda m, q, v, r, f: _nested(m, q, v, r, f, 3))(
        m, s.q, s.v, rates[:3], s.f_ext
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n != "random_tree" else n for n in ROBOTS],
)
@pytest.mark.parametrize("form", FORMS)
def test_rates_against_nested_forward_mode(name, form):
    """τ, τ̇ and τ̈ on trees of all joint kinds, with wrenches, rotors and damping."""
    m, s, rates = _motion(name)
    run = quick_jit(lambda *x: screw.inverse_dynamics_rates(*x, representation=form))
    ours = run(m, s.q, s.v, rates[:3], s.f_ext)
    for row, expected in zip(ours, _expected(name), strict=True):
        assert_close(row, expected, atol=1e-11 * float(jnp.abs(expected).max()))


@pytest.mark.slow
def test_any_order_and_both_forms_agree():
    m, s, rates = _motion("double_pendulum")
    values = [
        quick_jit(lambda *x, form=form: screw.inverse_dynamics_rates(*x, representation=form))(
            m, s.q, s.v, rates
        )
        for form in FORMS
    ]
    assert values[0].shape == (4, 2)
    assert_close(*values, atol=1e-10)
    one = quick_jit(screw.inverse_dynamics_rates)(m, s.q, s.v, rates[:1])
    assert_close(one[0], values[0][0])
    expected = quick_jit(lambda *x: _nested(*x, None, 4))(m, s.q, s.v, rates)
    assert_close(values[0], expected, atol=1e-11 * float(jnp.abs(expected).max()))


def _of_q(m, v, rates, form, q):
    return screw.inverse_dynamics_rates(m, q, v, rates, representation=form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["body_fixed", "hybrid"])
def test_gradients_and_batches(form):
    m, s, rates = _motion("double_pendulum")
    along, ones = jnp.array([0.7, -0.3]), jnp.ones((3, 2))

    def everything(q):
        f = partial(_of_q, m, s.v, rates[:3], form)
        value, forward = jax.jvp(f, (q,), (along,))
        return forward, jax.vjp(f, q)[1](ones)[0], jax.vmap(f)(jnp.stack([q, q + along])), value

    forward, reverse, many, value = quick_jit(everything)(s.q)
    assert abs(float(reverse @ along - forward.sum())) < 1e-9
    assert_close(many[0], value)
    assert float(jnp.abs(many[1] - value).max()) > 0.1


def test_single_precision():
    m = samples.double_pendulum(dtype=jnp.float32)
    x = jnp.ones(2, jnp.float32)
    for form in FORMS:
        out = jax.eval_shape(partial(_of_q, m, x, jnp.ones((3, 2), jnp.float32), form), x)
        assert out.dtype == jnp.float32


def test_wrong_arguments():
    m, s, rates = _motion("double_pendulum")
    with pytest.raises(
        ValueError, match=r"rates has shape \(4, 1\), expected \(k, nv\) = \(k ≥ 1, 2\)"
    ):
        screw.inverse_dynamics_rates(m, s.q, s.v, rates[:, :1])
    with pytest.raises(ValueError, match="representation must be one of"):
        screw.inverse_dynamics_rates(m, s.q, s.v, rates, representation="spatial")
    ball = samples.random_tree(0, kinds=("spherical",))
    x = jnp.zeros(3)
    with pytest.raises(ValueError, match="springs act on joints without quaternions"):
        screw.series_elastic_feedforward(ball, rbd.neutral(ball), x, jnp.zeros((3, 3)), x, x)
    plain = inspect.unwrap(screw.series_elastic_feedforward)  # without the check of annotations
    with pytest.raises(
        ValueError, match=r"rates has shape \(2, 2\), expected \(3, nv\) = \(3, 2\)"
    ):
        plain(m, s.q, s.v, rates[:2], s.v, s.v)


def with_rates(planned, t):
    """A planned motion and its first four rates at one time."""
    rows, f = [], planned
    for _ in range(5):
        rows.append(f(t))
        f = lambda t, g=f: jax.jvp(g, (t,), (jnp.ones_like(t),))[1]  # noqa: E731
    return jnp.stack(rows)


def solved(rate, x, steps, h):
    """The states after each step of the classical Runge-Kutta method for ``ẋ = rate(t, x)``."""

    def advance(x, k):
        t = k * h
        k1 = rate(t, x)
        k2 = rate(t + h / 2, x + h / 2 * k1)
        k3 = rate(t + h / 2, x + h / 2 * k2)
        k4 = rate(t + h, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x, x

    return jax.lax.scan(advance, x, jnp.arange(float(steps)))[1]


@pytest.mark.slow
def test_series_elastic_arm_follows_its_flat_output():
    """Motors under the feedforward alone move the links along the planned motion."""
    m = samples.chain(3)
    K, B = jnp.array([300.0, 250.0, 120.0]), jnp.array([0.1, 0.08, 0.05])
    planned = lambda t: 0.5 * jnp.sin(jnp.array([1.0, 1.7, 2.3]) * t + jnp.array([0.2, 0.5, 1.0]))  # noqa: E731

    def feedforward(t):
        q, v, *rates = with_rates(planned, t)
        return screw.series_elastic_feedforward(m, q, v, jnp.stack(rates), K, B)

    def rate(t, x):
        q, v, theta, dtheta = x
        spring = K * (theta - q)
        motor = (feedforward(t)[2] - spring) / B
        return jnp.stack([v, rbd.aba(m, q, v, spring), dtheta, motor])

    def run(steps, h):
        q, v, *_ = with_rates(planned, jnp.zeros(()))
        start = jnp.stack([q, v, *feedforward(jnp.zeros(()))[:2]])

        path = solved(rate, start, steps, h)
        return path[:, 0] - jax.vmap(planned)(h * jnp.arange(1.0, steps + 1))

    errors = quick_jit(lambda: run(1000, 0.001))()
    print("largest deviation", float(jnp.abs(errors).max()))
    assert float(jnp.abs(errors).max()) < 1e-8


@pytest.mark.slow
def test_series_elastic_feedback_makes_deviations_linear():
    """Each joint's error obeys its own equation of fourth order, independent of the others."""
    m = samples.chain(3)
    K, B = jnp.array([300.0, 250.0, 120.0]), jnp.array([0.1, 0.08, 0.05])
    poles = jnp.array([8.0, 10.0, 12.0])  # (s + pole)⁴
    gains = jnp.stack([poles**4, 4 * poles**3, 6 * poles**2, 4 * poles])
    planned = lambda t: 0.5 * jnp.sin(jnp.array([1.0, 1.7, 2.3]) * t)  # noqa: E731

    def rate(t, x):
        q, v, theta, dtheta = x
        spring = K * (theta - q)
        torque = screw.series_elastic_feedback(
            m, q, v, theta, dtheta, with_rates(planned, t), gains, K, B
        )
        return jnp.stack([v, rbd.aba(m, q, v, spring), dtheta, (torque - spring) / B])

    def errors(x):
        """Deviation of q and of its first three derivatives at the start."""
        q, v, theta, dtheta = x
        acceleration = lambda q, v, theta: rbd.aba(m, q, v, K * (theta - q))  # noqa: E731
        a = acceleration(q, v, theta)
        jerk = jax.jvp(acceleration, (q, v, theta), (v, a, dtheta))[1]
        return jnp.stack([q, v, a, jerk]) - with_rates(planned, jnp.zeros(()))[:4]

    def run(x, steps, h):
        return errors(x), solved(rate, x, steps, h)[-1, 0] - planned(steps * h)

    rng = np.random.default_rng(0)
    q, v = 0.2 * rng.normal(size=(2, 3))
    start = jnp.stack([jnp.asarray(x) for x in (q, v, q + 0.02 * rng.normal(size=3), v)])
    e, end = quick_jit(lambda x: run(x, 400, 0.001))(start)
    for i, pole in enumerate(np.asarray(poles)):
        A = np.diag(np.ones(3), 1)
        A[3] = -np.asarray(gains)[:, i]
        assert abs((expm(0.4 * A) @ np.asarray(e)[:, i])[0] - end[i]) < 1e-6, pole
    assert float(jnp.abs(end - e[0]).min()) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("rigid", [[1], [0, 2], [0, 1, 2]])
def test_series_elastic_feedback_with_rigid_joints(rigid):
    """Elastic joints keep their equation of fourth order, rigid ones obey one of second order."""
    m, stiff = samples.chain(3), np.isin(np.arange(3), rigid)
    K = jnp.where(stiff, jnp.inf, jnp.array([300.0, 250.0, 120.0]))
    B = jnp.array([0.1, 0.08, 0.05])
    m = eqx.tree_at(lambda m: m.damping, m, jnp.array([0.3, 0.2, 0.1]))
    heavy = eqx.tree_at(lambda m: m.armature, m, m.armature + jnp.where(stiff, B, 0))
    poles = np.array([8.0, 10.0, 12.0])
    gains = np.stack([poles**4, 4 * poles**3, 6 * poles**2, 4 * poles])
    planned = lambda t: 0.5 * jnp.sin(jnp.array([1.0, 1.7, 2.3]) * t)  # noqa: E731

    def rate(t, x):
        q, v, theta, dtheta = x
        torque = screw.series_elastic_feedback(
            m, q, v, theta, dtheta, with_rates(planned, t), jnp.asarray(gains), K, B
        )
        spring = jnp.where(stiff, 0, K) * jnp.where(stiff, 0, theta - q)
        a = rbd.aba(heavy, q, v, jnp.where(stiff, torque, spring))
        return jnp.stack([v, a, dtheta, jnp.where(stiff, a, (torque - spring) / B)])

    def run(x, steps, h):
        a = lambda t, x: rate(t, x)[1]  # noqa: E731
        zero = jnp.zeros(())
        jerk = jax.jvp(a, (zero, x), (jnp.ones(()), rate(zero, x)))[1]
        start = jnp.stack([x[0], x[1], a(zero, x), jerk]) - with_rates(planned, zero)[:4]
        return start, solved(rate, x, steps, h)[-1, 0] - planned(steps * h)

    rng = np.random.default_rng(0)
    q, v = 0.2 * rng.normal(size=(2, 3))
    theta = np.where(stiff, q, q + 0.02 * rng.normal(size=3))
    start = jnp.stack([jnp.asarray(x) for x in (q, v, theta, v)])
    e, end = quick_jit(lambda x: run(x, 400, 0.001))(start)
    for i in range(3):
        n, limit = 2 if stiff[i] else 4, within(1e-6, 3e-3 * (1 + abs(float(end[i]))))
        A = np.diag(np.ones(n - 1), 1)
        A[-1] = -gains[:2, i] / gains[2, i] if stiff[i] else -gains[:, i]
        assert abs((expm(0.4 * A) @ np.asarray(e)[:n, i])[0] - end[i]) < limit, i
    assert float(jnp.abs(end - e[0]).min()) > 0.01


@pytest.mark.slow
def test_variable_stiffness():
    """Springs of given K(t): the feedforward keeps the motion, the feedback its linear equation."""
    m, B = samples.chain(3), jnp.array([0.1, 0.08, 0.05])
    m = eqx.tree_at(lambda m: m.damping, m, jnp.array([0.3, 0.2, 0.1]))
    stiffness = lambda t: jnp.array([300.0, 250.0, 120.0]) * (1 + 0.3 * jnp.sin(5 * t))  # noqa: E731
    poles = jnp.array([8.0, 10.0, 12.0])
    gains = jnp.stack([poles**4, 4 * poles**3, 6 * poles**2, 4 * poles])
    planned = lambda t: 0.5 * jnp.sin(jnp.array([1.0, 1.7, 2.3]) * t)  # noqa: E731

    def rate(t, x):
        q, v, theta, dtheta = x
        K = with_rates(stiffness, t)[:3]
        torque = screw.series_elastic_feedback(
            m, q, v, theta, dtheta, with_rates(planned, t), gains, K, B
        )
        spring = K[0] * (theta - q)
        return jnp.stack([v, rbd.aba(m, q, v, spring), dtheta, (torque - spring) / B])

    def motor(t):
        reference, K = with_rates(planned, t), with_rates(stiffness, t)[:3]
        return screw.series_elastic_feedforward(m, *reference[:2], reference[2:], K, B)

    def errors(x):
        a = lambda t, x: rate(t, x)[1]  # noqa: E731
        zero = jnp.zeros(())
        jerk = jax.jvp(a, (zero, x), (jnp.ones(()), rate(zero, x)))[1]
        return jnp.stack([x[0], x[1], a(zero, x), jerk]) - with_rates(planned, zero)[:4]

    def run(x):
        t = jnp.asarray(0.3)
        (theta, dtheta, tau), (rate_of_theta, ddtheta, _) = jax.jvp(motor, (t,), (1.0,))
        spring = stiffness(t) * (theta - planned(t))
        moving = with_rates(planned, t)
        checks = (
            rate_of_theta - dtheta,
            B * ddtheta + spring - tau,
            rbd.aba(m, moving[0], moving[1], spring) - moving[2],
        )
        return checks, errors(x), solved(rate, x, 400, 0.001)[-1, 0] - planned(0.4)

    rng = np.random.default_rng(0)
    q, v = 0.2 * rng.normal(size=(2, 3))
    start = jnp.stack([jnp.asarray(x) for x in (q, v, q + 0.02 * rng.normal(size=3), v)])
    checks, e, end = quick_jit(run)(start)
    assert_close(checks, jax.tree.map(jnp.zeros_like, checks), atol=1e-9)
    for i, pole in enumerate(np.asarray(poles)):
        A = np.diag(np.ones(3), 1)
        A[3] = -np.asarray(gains)[:, i]
        assert abs((expm(0.4 * A) @ np.asarray(e)[:, i])[0] - end[i]) < 1e-6, pole


def test_series_elastic_feedback_refuses_what_it_cannot_do():
    ball, x = samples.random_tree(0, kinds=("spherical",)), jnp.zeros(3)
    plain = inspect.unwrap(screw.series_elastic_feedback)
    five, four = jnp.zeros((5, 3)), jnp.zeros((4, 1))
    with pytest.raises(ValueError, match="feedback: springs act on joints without quaternions"):
        plain(ball, rbd.neutral(ball), x, x, x, five, four, x, x)
    with pytest.raises(ValueError, match=r"reference has shape \(4, 3\), expected \(5, nv\)"):
        plain(samples.chain(3), x, x, x, x, five[:4], four, x, x)
    slide = samples.random_tree(0, kinds=("translation",))
    with pytest.raises(ValueError, match="rigid along some of their axes and elastic along others"):
        plain(slide, x, x, x, x, five, four, jnp.array([1.0, jnp.inf, 1.0]), x)
    feedforward = inspect.unwrap(screw.series_elastic_feedforward)
    with pytest.raises(
        ValueError, match=r"stiffness has shape \(2, 3\), expected \(nv,\) = \(3,\)"
    ):
        feedforward(samples.chain(3), x, x, five[:3], five[:2], x)
    for function, rows in ((plain, (x, x, five, four)), (feedforward, (five[:3],))):
        with pytest.raises(ValueError, match="stiffness must be positive"):
            function(samples.chain(3), x, x, *rows, jnp.array([1.0, 0.0, 1.0]), x)
