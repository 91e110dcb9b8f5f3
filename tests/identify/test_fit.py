"""Fits to data of Pinocchio and MuJoCo: accuracy, covariance, and physical consistency."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import cast
from support.recorded import THREE, MuJoCo, dataset, noisy, pinocchio_torques
from support.three_joints import SIGMA, all_linear, recorded, robot, states

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.identify import select
from rbd_jax.spatial import inertia


def _wrong(m, seed=0, size=1.0):
    """A physical robot that is far from the true one."""
    block = select(m, "inertia")
    key = jax.random.key(seed)
    far = jax.jit(lambda m, z: block.put(m, z))(
        m, size * jax.random.normal(key, (len(block.names),))
    )
    where = lambda m: [m.armature, m.damping, m.friction]  # noqa: E731
    return eqx.tree_at(where, far, [jnp.full(3, 1.0)] * 3)


def _base_error(model, base):
    """The error of a fit's base parameters."""
    truth = base.B @ np.asarray(identify.linear_parameters(robot()))
    return base.B @ np.asarray(identify.linear_parameters(model)) - truth


@pytest.mark.slow
@pytest.mark.float64
def test_torques_identify_everything_that_can_be():
    """From a bad start, base parameters are as accurate as the closed form, and physical."""
    _, data = recorded()
    learn = all_linear(_wrong(robot(), size=0.6))
    base = identify.base_parameters(robot())
    fit = quick_jit(lambda d: identify.fit_torques(learn, d, prior=1e-3))(data)
    print("steps", int(fit.steps), "cost", float(fit.cost))
    assert bool(fit.converged)
    assert bool(identify.consistent(fit.model).all())
    np.testing.assert_allclose(fit.sigma, SIGMA, rtol=0.2)
    Y, tau = quick_jit(identify.regression)(learn.nominal, data)
    closed = jax.jit(lambda Y, tau: identify.least_squares(base, Y, tau))(Y, tau)
    error = _base_error(fit.model, base)
    assert (np.abs(error) < 4.5 * np.asarray(closed.deviation)).all()
    J = jax.jit(jax.jacfwd(lambda z: identify.linear_parameters(learn.model(z))))(fit.z)
    deviation = np.sqrt(np.diag(base.B @ J @ fit.covariance @ J.T @ base.B.T))
    assert (deviation < 1.3 * np.asarray(closed.deviation)).all()
    fresh = states(50, 9)
    clean = pinocchio_torques(robot(), THREE, fresh.q, fresh.v, fresh.a)
    clean = clean + np.asarray(robot().friction) * np.tanh(np.asarray(fresh.v) / 0.01)
    held_out = dataset(fresh.q, fresh.v, fresh.a, jnp.asarray(clean))
    held_out_error = quick_jit(identify.torque_error)
    assert (held_out_error(fit.model, held_out) < 0.3 * SIGMA).all()
    assert (held_out_error(learn.nominal, held_out) > 10 * SIGMA).all()


@pytest.mark.slow
def test_single_precision():
    """Data, start and arithmetic in float32 give the same robot within its intervals."""
    _, data = recorded()
    m = robot()
    block = select(m, "inertia", "three")
    wrong = jax.jit(lambda z: block.put(m, z))(0.3 * jnp.cos(jnp.arange(10.0)))
    wrong = eqx.tree_at(lambda m: m.damping, wrong, jnp.full(3, 1.0))
    parts = select(wrong, "inertia", "three"), select(wrong, "damping")
    learn = cast(identify.Parameters(wrong, *parts), jnp.float32)
    fit = quick_jit(lambda d: identify.fit_torques(learn, d, prior=1e-3))(cast(data, jnp.float32))
    assert fit.z.dtype == fit.covariance.dtype == jnp.float32
    assert bool(fit.converged) and bool(identify.consistent(fit.model).all())
    error = jax.jit(lambda m: learn.coordinates(m))(cast(m, jnp.float32)) - fit.z
    assert (jnp.abs(error) < 4.5 * jnp.sqrt(jnp.diagonal(fit.covariance))).all()
    np.testing.assert_allclose(fit.model.damping, m.damping, rtol=0.1)


@pytest.mark.slow
def test_single_precision_without_noise():
    """With exact data only rounding errors are left. The fit neither follows them nor gives NaN."""
    m = cast(rbd.samples.chain(2), jnp.float32)
    samples = [identify.excitation(m, jax.random.key(k)).sample(m, 20) for k in range(16)]
    data = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *samples)
    learn = identify.Parameters(m, identify.select(m, "inertia"))
    fit = quick_jit(jax.vmap(lambda d: identify.fit_torques(learn, d, prior=1e-3)))(data)
    assert bool(fit.converged.all())
    torques = jax.vmap(jax.vmap(rbd.rnea, (None, 0, 0, 0)))
    error = quick_jit(torques)(fit.model, data.q, data.v, data.a) - data.tau
    assert float(jnp.abs(error).max()) < 1e-4 * float(jnp.abs(data.tau).max())


@pytest.mark.slow
def test_geometry_and_gravity_from_torques():
    """Nonlinear parameters: lengths, an axis and the direction of gravity, together with a load."""
    _, data = recorded()
    m = robot()

    def blocks(m):
        pose = identify.PoseChart(m.placement_R[1:2], m.placement_p[1:2], (3, 5))
        return (
            select(m, "placement", "j2", pose),
            select(m, "axis", "j3"),
            select(m, "gravity", chart=identify.Direction),
            select(m, "inertia", "three"),
        )

    true = identify.Parameters(m, *blocks(m))
    shift = 0.15 * jnp.cos(jnp.arange(float(true.start.size)))
    learn = identify.Parameters(true.model(shift), *blocks(true.model(shift)))
    fit = quick_jit(lambda d: identify.fit_torques(learn, d, jnp.asarray(SIGMA)))(data)
    error = np.asarray(learn.coordinates(m) - fit.z)
    deviation = np.sqrt(np.diag(fit.covariance))
    geometry = slice(0, 6)
    print("deviation", deviation.round(4), "error", error.round(4))
    assert bool(fit.converged) and deviation[geometry].max() < 0.05
    assert (np.abs(error) < 4.5 * deviation).all()
    assert float(np.abs(learn.coordinates(m))[geometry].max()) > 0.1


@pytest.mark.slow
def test_fewer_equations_than_unknowns():
    """Six equations for ten nonlinear unknowns, without a prior: a nearby robot solves them all."""
    m, s = robot(), states(2)
    data = dataset(s.q, s.v, s.a, jnp.asarray(pinocchio_torques(m, THREE, s.q, s.v, s.a)))
    m = eqx.tree_at(lambda m: m.friction, m, jnp.zeros(3))

    def blocks(m):
        gravity = select(m, "gravity", chart=identify.Direction)
        return select(m, "placement", "j2"), select(m, "axis", "j3"), gravity

    start = identify.Parameters(m, *blocks(m))
    wrong = start.model(0.03 * jnp.cos(jnp.arange(10.0)))
    learn = identify.Parameters(wrong, *blocks(wrong))

    fit = quick_jit(lambda d: identify.fit_torques(learn, d, jnp.asarray(SIGMA)))(data)
    left = quick_jit(identify.predicted_torques)(fit.model, data) - data.tau
    away, deviation = jnp.abs(fit.z - learn.start), jnp.sqrt(jnp.diagonal(fit.covariance))
    print("steps", fit.steps, "left", jnp.abs(left).max(), "away", away, "deviation", deviation)
    assert bool(fit.converged) and float(jnp.abs(left).max()) < 1e-6
    assert float(away.max()) < 0.5
    assert float(deviation.max()) > 100  # the data do not determine them


def spoiled(count: int = 200):
    """Recorded data in which a tenth of the torques is wrong by up to 50 N m."""
    clean, data = recorded(count)
    rng = np.random.default_rng(0)
    bad = rng.random(clean.shape) < 0.1
    tau = jnp.where(bad, data.tau + jnp.asarray(50.0 * rng.random(clean.shape)), data.tau)
    return eqx.tree_at(lambda d: d.tau, data, tau)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "cauchy"])
def test_robust_losses_ignore_outliers(loss):
    """All inertias, rotors, damping and friction from data with outliers and a bad start.

    The result is close to the minimum of the loss itself, which is written out here.
    """
    data, prior = spoiled(), 1e-3
    learn = all_linear(_wrong(robot(), size=0.6))
    base = identify.base_parameters(robot())
    calls = []

    @quick_jit
    def run(data):
        fit = identify.fit_torques(
            learn, data, loss=loss, prior=prior, progress=lambda *x: calls.append(x)
        )

        def cost(z):
            m = learn.model(z)
            r = (identify.predicted_torques(m, data) - data.tau) / fit.sigma[None]
            width = {"huber": 1.345, "cauchy": 2.385}[loss]
            x = (r / width) ** 2
            each = jnp.sqrt(1 + x) - 1 if loss == "huber" else 0.5 * jnp.log1p(x)
            positive = jnp.concatenate([
                jnp.log(new / old) for new, old in (
                    (getattr(m, t), getattr(learn.nominal, t)) for t in identify.TERMS[1:]
                )
            ])  # fmt: skip
            far = identify.entropic_distance(learn.nominal.inertia, m.inertia).sum()
            far = far + jnp.sum(jnp.expm1(positive) - positive)
            return width**2 * jnp.sum(each) + 0.5 * prior * far

        value, slope = jax.value_and_grad(cost)(fit.z)
        return fit, value, jnp.sqrt(slope @ fit.covariance @ slope)

    fit, cost, distance = run(data)
    plain = quick_jit(lambda d: identify.fit_torques(learn, d, prior=prior))(data)
    print(loss, "steps", int(fit.steps), "noise", fit.sigma, "distance", float(distance))
    assert bool(fit.converged) and bool(identify.consistent(fit.model).all())
    np.testing.assert_allclose(fit.cost, cost, rtol=1e-9)
    assert float(distance) < 1e-3  # in standard deviations
    np.testing.assert_allclose(fit.sigma, SIGMA, rtol=0.5)
    error, without = (np.abs(_base_error(x.model, base)) for x in (fit, plain))
    assert (error < 0.2 * without + 0.01).all() and error.max() < 0.1 * without.max()
    steps, costs = np.array(calls).T
    assert len(calls) == int(fit.steps) and steps.min() == 0 and np.isfinite(costs).all()


@pytest.mark.slow
def test_robust_loss_of_a_nonlinear_problem():
    """Accelerations, which are not linear in damping, with outliers."""
    m = eqx.tree_at(lambda m: m.friction, robot(), jnp.zeros(3))
    s = states(200, 3)
    tau = MuJoCo(m, THREE).torques(s.q, s.v, s.a)
    sigma, rng = jnp.array([0.02, 0.03, 0.05]), np.random.default_rng(1)
    a = noisy(s.a, sigma, 4) + jnp.where(rng.random(s.a.shape) < 0.1, 50 * rng.random(s.a.shape), 0)
    start = eqx.tree_at(lambda m: m.damping, m, jnp.full(3, 1.0))
    learn = identify.Parameters(start, select(start, "damping"))
    data = dataset(s.q, s.v, a, jnp.asarray(tau))
    fit = quick_jit(lambda d: identify.fit_accelerations(learn, d, loss="huber"))(data)
    error = np.asarray(learn.coordinates(m) - fit.z)
    assert bool(fit.converged)
    assert (np.abs(error) < 4.5 * np.sqrt(np.diag(fit.covariance))).all()
    np.testing.assert_allclose(fit.sigma, sigma, rtol=0.3)


def _limited(**options):
    return identify.fit_torques(
        all_linear(robot()), spoiled(40), loss="huber", max_steps=5, **options
    )


@pytest.mark.slow
def test_limits_are_reported():
    fit = _limited(throw=False)
    assert bool(fit.result == rbd.simulate.RESULTS.max_steps_reached) and int(fit.steps) == 5
    assert not bool(fit.converged)


@pytest.mark.slow
def test_limits_raise():
    data, learn = spoiled(40), all_linear(robot())
    with pytest.raises(RuntimeError, match="maximum number of steps"):
        _limited()
    with pytest.raises(ValueError, match="loss must be"):
        identify.fit_torques(learn, data, loss="tukey")


@pytest.mark.slow
def test_accelerations_of_mujoco():
    """Damping, armature and a load from known torques and measured accelerations."""
    m = eqx.tree_at(lambda m: m.friction, robot(), jnp.zeros(3))
    s = states(200, 3)
    tau = MuJoCo(m, THREE).torques(s.q, s.v, s.a)
    sigma = jnp.array([0.02, 0.03, 0.05])
    data = dataset(s.q, s.v, noisy(s.a, sigma, 4), jnp.asarray(tau))

    def blocks(m):
        parts = select(m, "damping"), select(m, "armature", "j3"), select(m, "inertia", "three")
        return parts  # The data cannot separate rotors of j1 and j2 from the last inertia.

    true = identify.Parameters(m, *blocks(m))
    start = true.model(true.start + 0.3 * jnp.sin(jnp.arange(float(true.start.size))))
    learn = identify.Parameters(start, *blocks(start))
    fit = quick_jit(lambda d: identify.fit_accelerations(learn, d))(data)
    error = np.asarray(learn.coordinates(m) - fit.z)
    deviation = np.sqrt(np.diag(fit.covariance))
    assert bool(fit.converged)
    assert (np.abs(error) < 4.5 * deviation).all() and deviation[:4].max() < 0.1
    np.testing.assert_allclose(fit.sigma, sigma, rtol=0.2)
    wrong, right = (identify.acceleration_error(x, data) for x in (start, fit.model))
    assert (right < 1.1 * sigma).all() and (wrong > 3 * sigma).all()


def test_parameters_by_gradients_of_batches():
    """The training loop of networks also fits coordinates of charts."""
    optax = pytest.importorskip("optax")
    _, data = recorded()
    m = robot()
    wrong = eqx.tree_at(lambda m: m.damping, m, jnp.full(3, 1.0))
    learn = identify.Parameters(wrong, select(wrong, "damping"))

    def loss(z, sample):
        return jnp.mean((identify.predicted_torques(learn.model(z), sample) - sample.tau) ** 2)

    run = quick_jit(lambda d: identify.train(
        loss, learn.start, d, jax.random.key(0), steps=600, batch=40, optimizer=optax.adam(1e-2)
    ))  # fmt: skip
    z, losses = run(data)
    np.testing.assert_allclose(learn.model(z).damping, m.damping, atol=0.03)
    assert float(losses[-20:].mean()) < 0.1 * float(losses[:5].mean())


def test_what_is_missing_is_said():
    learn = all_linear(robot())
    s = states(4)
    with pytest.raises(ValueError, match=r"\['a'\].*filter_and_differentiate"):
        identify.fit_torques(learn, identify.Dataset(None, s.q, s.v, None, s.tau))
    with pytest.raises(ValueError, match="Dataset.windows"):
        identify.fit_trajectories(learn, dataset(s.q, s.v, s.a, s.tau), 0.01)
    assert float(jnp.trace(inertia.inertia_com(robot().inertia[0]))) > 0
