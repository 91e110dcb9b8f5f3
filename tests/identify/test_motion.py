"""Fits to motions that MuJoCo simulated, and exciting motions for identification."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, central_difference, stack, within
from support.recorded import THREE, MuJoCo

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.identify import select
from rbd_jax.identify.fits._chain import Chain, chain_cost, compressed, solve_chain
from rbd_jax.identify.fits._trajectories import linear_step

LOAD = (
    '<robot name="swing"><link name="base"/>'
    + THREE[THREE.index('<link name="one">') : THREE.index('<link name="three">')]
    + THREE[THREE.index('<joint name="j1"') : THREE.index('<joint name="j3"')]
    + "</robot>"
)


DT, NOISE, EVERY = 0.02, 2e-3, 12


@pytest.fixture(scope="module")
def swing():
    """Two joints with a load and without dry friction: the robot, its motion in MuJoCo, torques."""
    m = eqx.tree_at(lambda m: m.friction, rbd.load_urdf(LOAD), jnp.zeros(2))
    t = DT * np.arange(121)
    tau = np.stack([2 * np.sin(3 * t), 1.5 * np.cos(5 * t)], axis=1)
    q, v = MuJoCo(m, LOAD).simulate(np.array([0.3, -0.4]), np.zeros(2), tau, DT)
    return m, t, q, v, jnp.asarray(tau)


def _far(m, seed: int):
    """A start with 0.5 or 1.5 times the load, and with damping that is wrong by up to ten times."""
    rng = np.random.default_rng(seed)
    block = select(m, "inertia", "two")
    far = jax.jit(lambda m, z: block.put(m, z))(m, jnp.asarray(0.4 * rng.normal(size=10)))
    values = far.inertia.at[1].multiply([0.5, 1.5][seed % 2]), m.damping * 10 ** rng.uniform(-1, 1)
    return eqx.tree_at(lambda m: (m.inertia, m.damping), far, values)


def _unknown(m):
    return identify.Parameters(m, select(m, "damping"), select(m, "inertia", "two"))


@pytest.mark.slow
def test_trajectories_of_mujoco_by_multiple_shooting(swing):
    """Noisy positions and far starts give damping, a load and the states, every time."""
    m, t, q, v, tau = swing
    rng = np.random.default_rng(0)
    measured = jnp.asarray(q + NOISE * rng.normal(size=(2, *q.shape)))
    starts = stack([_far(m, seed) for seed in range(4)])

    @quick_jit
    def run(starts):
        def one(start, q):
            data = identify.Dataset(jnp.asarray(t), q, None, None, tau).windows(EVERY + 1, EVERY)
            out = identify.fit_trajectories(_unknown(start), data, DT, q_sigma=NOISE, prior=1e-3)
            return out, identify.consistent(out.fit.model).all()

        return jax.vmap(one)(starts, jnp.concatenate([measured, measured]))

    (fit, q0, v0), physical = run(starts)
    assert bool(fit.converged.all()) and bool(physical.all())
    deviation = jnp.sqrt(jnp.diagonal(fit.covariance, axis1=1, axis2=2))[:, :2]
    error = jnp.log(fit.model.damping / m.damping[None])
    print("damping", fit.model.damping, "deviation", deviation, "steps", fit.steps)
    assert bool((jnp.abs(error) < 4.5 * deviation).all()) and float(deviation.max()) < 0.1
    # Each recording has two starts. Both give the same result, up to the weak prior at each start.
    np.testing.assert_allclose(fit.model.damping[:2], fit.model.damping[2:], rtol=1e-3)
    # The fitted states are closer to the truth than the measured ones, and velocities are right.
    miss = np.asarray(q0) - q[:-1:EVERY]
    assert np.sqrt((miss**2).mean()) < 0.4 * NOISE
    assert np.abs(np.asarray(v0) - v[:-1:EVERY]).max() < 0.05
    # The windows join to one motion. Simulated from its first state, it is MuJoCo's motion.
    again = quick_jit(jax.vmap(lambda m, q, v: identify.simulated(m, q, v, tau, DT)[0]))
    whole, before = (np.asarray(again(robot, q0[:, 0], v0[:, 0])) for robot in (fit.model, starts))
    np.testing.assert_allclose(whole[:, :-1:EVERY], q0, atol=1e-2 * NOISE)
    good, bad = (np.abs(x - q).max(axis=(1, 2)) for x in (whole, before))
    assert good.max() < 5e-3 < 0.1 < bad.min()


@pytest.mark.slow
def test_trajectories_in_single_precision_and_with_speeds(swing):
    """Separate windows, which share no sample, in float32, with measured velocities."""
    m, t, q, v, tau = swing
    rng = np.random.default_rng(1)
    data = identify.Dataset(
        None,
        jnp.asarray(q + NOISE * rng.normal(size=q.shape)),
        jnp.asarray(v + 0.01 * rng.normal(size=v.shape)),
        None,
        tau,
    )
    learn, data = cast((_unknown(_far(m, 0)), data), jnp.float32)

    @quick_jit
    def run(learn, data):
        return [
            identify.fit_trajectories(
                learn, data.windows(EVERY + 1, stride), DT, q_sigma=NOISE, prior=1e-3, loss=loss
            )
            for stride, loss in ((EVERY, "squares"), (None, "huber"))
        ]

    for out in run(learn, data):
        assert out.q0.dtype == out.fit.covariance.dtype == jnp.float32
        assert bool(out.fit.converged)
        deviation = jnp.sqrt(jnp.diagonal(out.fit.covariance))[:2]
        error = jnp.log(out.fit.model.damping / cast(m.damping, jnp.float32))
        assert bool((jnp.abs(error) < 4.5 * deviation).all()) and float(deviation.max()) < 0.1


def test_chain_of_states_is_solved_as_a_whole():
    """The oracle is dense least squares. The third state has no next one."""
    rng, (B, m, s, k) = np.random.default_rng(0), (5, 7, 2, 3)
    chain = Chain(
        jnp.asarray(rng.normal(size=(B, m, s + k + 1))),
        jnp.asarray(rng.normal(size=(B, s, 2 * s + k + 1))).at[np.array([2, 4])].set(0),
        jnp.asarray(rng.normal(size=(4, k + 1))),
    )
    rows = []
    for b in range(B):
        at = [*range(s * b, s * (b + 1))]
        end = [*range(s * B, s * B + k + 1)]
        for part, columns in (
            (chain.measurements, at + end),
            (chain.continuity, at + [s * b + s, s * b + 3] + end),
        ):
            if b == B - 1 and part is chain.continuity:
                continue
            M = np.zeros((part.shape[1], s * B + k + 1))
            M[:, columns] = part[b]
            rows.append(M)
    M = np.concatenate([*rows, np.pad(chain.prior, ((0, 0), (s * B, 0)))])
    A, r = M[:, :-1], M[:, -1]
    found = jax.jit(solve_chain)(chain)
    np.testing.assert_allclose(chain_cost(chain), 0.5 * r @ r, rtol=within(1e-12, 1e-5))
    best = np.linalg.lstsq(A, -r, rcond=None)[0]
    np.testing.assert_allclose(np.append(found.x, found.z), best, atol=within(1e-12, 1e-4))
    np.testing.assert_allclose(found.length, np.linalg.norm(A @ best), rtol=within(1e-12, 1e-5))
    spread = np.linalg.inv(A.T @ A)[s * B :, s * B :]
    np.testing.assert_allclose(np.linalg.inv(found.R.T @ found.R), spread, atol=within(1e-12, 1e-6))
    again = jax.jit(lambda c: solve_chain(compressed(c)))(chain)
    assert_close(again.z, found.z, atol=1e-12)


@pytest.mark.slow
def test_linear_steps_stay_within_what_bodies_can_be():
    m = rbd.load_urdf(LOAD)
    learn, size = _unknown(m), jnp.array([0.1, 100.0])
    dz = jnp.cos(jnp.arange(12.0))
    z, a = jax.jit(jax.vmap(lambda s: linear_step(learn, learn.start, s * dz)))(size)

    def look(z):
        new = jax.vmap(learn.model)(z)
        sound = jax.vmap(identify.consistent)(new)
        return new, sound, jax.jvp(learn.model, (learn.start,), (dz,))[1]

    new, sound, rate = jax.jit(look)(z)
    np.testing.assert_allclose(a[0], 1)
    assert 0 < float(a[1]) < 0.1 and bool(sound[1].all())
    for leaf in ("inertia", "damping"):
        moved = (
            getattr(m, leaf)[None]
            + (a * size).reshape(-1, *[1] * getattr(m, leaf).ndim) * (getattr(rate, leaf)[None])
        )
        np.testing.assert_allclose(getattr(new, leaf), moved, rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def motion():
    m = rbd.load_urdf(THREE)
    first = identify.excitation(m, jax.random.key(0), period=5.0)
    improve = quick_jit(lambda e: identify.optimal_excitation(m, e, samples=40, steps=60))
    return m, first, *improve(first)


@pytest.mark.slow
def test_excitation_moves_consistently_within_limits(motion):
    m, first, best, _ = motion
    big = eqx.tree_at(lambda e: e.coefficients, first, 100 * first.coefficients)
    for e in (first, best, big):
        t = jnp.linspace(0.0, 5.0, 400)
        q, v, a = jax.jit(jax.vmap(e.at, (None, 0)))(m, t)
        assert bool((q > m.position_lower[None]).all() & (q < m.position_upper[None]).all())
        assert bool((jnp.abs(v) < m.velocity_limit[None]).all())
        assert float(jnp.abs(v).max()) > 0.5
        assert_close(q[-1], q[0], atol=1e-12)
    rate = lambda f: central_difference(lambda t: f(t[0]), jnp.array([1.3]))[..., 0]  # noqa: E731
    rates = jax.jit(lambda: [rate(lambda t, k=k: first.at(m, t)[k]) for k in (0, 1)])()
    q, v, a = jax.jit(lambda t: first.at(m, t))(jnp.array(1.3))
    assert_close(rates[0], v, atol=1e-9)
    assert_close(rates[1], a, atol=1e-9)


@pytest.mark.slow
def test_optimal_excitation_tells_more(motion):
    """The determinant grows, and here the worst base parameter becomes more certain too."""
    m, first, best, history = motion
    assert float(history.max()) > float(history[0]) + 5
    base = identify.base_parameters(m)
    sigma = jnp.ones(3)

    @quick_jit
    def look(e):
        data = e.sample(m, 300)
        H = identify.information(m, base, data, sigma, width=0.1)
        return jnp.linalg.slogdet(H)[1], data.tau

    (before, _), (after, tau) = look(first), look(best)
    assert float(after) > float(before) + 5
    assert float(jnp.abs(tau).max(axis=0).max()) < 1.3 * 30
    print("log det", float(before), "→", float(after))
