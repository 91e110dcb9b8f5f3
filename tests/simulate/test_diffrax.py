"""The bridge to diffrax: accuracy, manifold, events and gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, jit, quaternion_slices, random_state, scale_quaternions

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import RESULTS, ControlledRobot, VectorField, adaptive_rollout

diffrax = pytest.importorskip("diffrax")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _policy(t, q, v):
    return jnp.sin(3 * t) - 0.2 * v


@pytest.mark.slow
@pytest.mark.float64
def test_agrees_with_rk4_and_stays_on_the_manifold():
    model = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(model)
    ts = jnp.linspace(0.0, 1.0, 6)
    run = quick_jit(lambda q: adaptive_rollout(model, q, s.v, _policy, ts, rtol=1e-10, atol=1e-12))
    path = run(s.q)
    # torques that change within a step: an integrator's own time
    fine = quick_jit(
        lambda q: rbd.rollout(model, q, s.v, _policy, 1e-4, steps=10_000, stride=2000)
    )(s.q)
    gap = jax.jit(jax.vmap(lambda a, b: rbd.difference(model, a, b)))(path.q, fine.q)
    assert float(jnp.abs(gap).max()) < 2e-3  # the rollout is of order 1
    for at in quaternion_slices(model):
        assert_close(jnp.linalg.norm(path.q[:, at], axis=1), jnp.ones(6), atol=1e-12)
    other = run(scale_quaternions(model, s.q, 2.0))
    assert_close(other.q, path.q, atol=1e-12)

    def smooth(m, acceleration, t, q, v, dt):  # the same field, in steps of fourth order
        a = lambda t, q, v: rbd.forward_dynamics(m, q, v, _policy(t, q, v))  # noqa: E731
        return rbd.simulate.rk4(m, a, t, q, v, dt)

    nothing = jnp.zeros((2000, model.nv))
    exact = quick_jit(
        lambda q: rbd.rollout(model, q, s.v, nothing, 5e-4, integrator=smooth, stride=400)
    )(s.q)
    gap = jax.vmap(lambda a, b: rbd.difference(model, a, b))(path.q, exact.q)
    assert float(jnp.abs(gap).max()) < 1e-8
    assert_close(path.v, exact.v, atol=1e-8)


def test_the_field_is_tangent_and_pulls_quaternions_to_unit_length():
    model = samples.random_tree(4, kinds=("free", "spherical"))
    s = random_state(model)
    field = quick_jit(lambda q: VectorField()(jnp.zeros(()), (q, s.v), ControlledRobot(model)))
    dq, dv = field(s.q)
    assert_close(dq, jit(rbd.rate_from_velocity)(model, s.q, s.v))
    assert_close(dv, jit(rbd.aba)(model, s.q, s.v, jnp.zeros(model.nv)), atol=1e-10)
    long = scale_quaternions(model, s.q, 1.1)
    pulled, same = field(long)
    assert_close(same, dv, atol=1e-10)
    assert_close(pulled - dq, s.q - long)


@pytest.mark.slow
def test_an_event_ends_the_motion_where_it_happens():
    """A pendulum released at 1 rad stops as it passes the bottom: v = √(2 g (1 − cos 1))."""
    import optimistix

    model = samples.pendulum()
    q, v = jnp.ones(1), jnp.zeros(1)
    ts = jnp.array([0.0, 0.1, 5.0])
    finder = optimistix.Newton(1e-10, 1e-10)
    path = quick_jit(
        lambda q: adaptive_rollout(
            model, q, v, None, ts, rtol=1e-10, atol=1e-12, stop=lambda t, q, v: q[0],
            root_finder=finder,
        )
    )(q)  # fmt: skip
    assert bool(path.event_mask) and bool(path.result == RESULTS.successful)
    assert int(path.steps) == int(path.stats["num_steps"]) > 3
    assert bool(jnp.isinf(path.q[-1, 0])) and bool(jnp.isfinite(path.q[:2]).all())
    assert 0.9 < float(path.q[1, 0]) < 1.0
    _, q, v = path.end
    assert_close(q, jnp.zeros(1), atol=1e-8)
    assert_close(v, -jnp.sqrt(2 * 9.81 * (1 - jnp.cos(jnp.ones(1)))), atol=1e-7)


@pytest.mark.slow
def test_gradient_with_respect_to_state_and_robot_equals_differences():
    model = samples.double_pendulum()
    s = random_state(model)
    ts = jnp.linspace(0.0, 0.5, 3)

    def loss(x):
        scale = jnp.exp(x[:2])[:, None]
        m = eqx.tree_at(lambda m: m.inertia, model, model.inertia * scale)
        path = adaptive_rollout(m, x[2:4], x[4:], _policy, ts, rtol=1e-10, atol=1e-12)
        return jnp.sum(jnp.sin(path.q)) + jnp.sum(path.v[-1] ** 2)

    x = jnp.concatenate([jnp.zeros(2), s.q, s.v])
    g = quick_jit(jax.grad(loss))(x)
    many = quick_jit(jax.vmap(loss))
    h = 1e-4
    eye = jnp.eye(6)
    numeric = (many(x[None] + h * eye) - many(x[None] - h * eye)) / (2 * h)
    assert_close(g, numeric, atol=1e-5 * float(jnp.abs(g).max()))
    assert float(jnp.abs(g).min()) > 1e-6


def test_the_result_says_how_the_integration_ended():
    model = samples.pendulum()
    one, ts = jnp.ones(1), jnp.linspace(0.0, 1.0, 2)

    @quick_jit
    def run(scale):  # steps that are rejected however short they are, if scale is infinite
        push = lambda t, q, v: jnp.where(t > 0.5, scale, 0.0) * one  # noqa: E731
        path = adaptive_rollout(model, one, one, push, ts, max_steps=100, throw=False)
        return path.result == RESULTS.successful, path.result == RESULTS.max_steps_reached

    assert [bool(x) for x in run(1.0)] == [True, False]
    assert [bool(x) for x in run(jnp.inf)] == [False, True]


def test_says_what_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "diffrax", None)
    model = samples.pendulum()
    with pytest.raises(ImportError, match=r"pip install 'rbd-jax\[diffrax\]'"):
        adaptive_rollout(model, jnp.ones(1), jnp.ones(1), None, jnp.linspace(0.0, 1.0, 2))


def test_the_robot_decides_the_precision_of_the_times_too():
    model = samples.pendulum(dtype=jnp.float32)
    q = jnp.zeros(1, jnp.float32)
    path = rbd.simulate.adaptive_rollout(model, q, q, None, jnp.linspace(0, 0.1, 2))
    assert {x.dtype for x in (path.t, path.q, path.v)} == {jnp.dtype("float32")}
