"""Learned terms added to rigid bodies: energy, passivity, gradients, and uses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, quaternion_slices, random_state, random_states

import rbd_jax as rbd
from rbd_jax import identify as idf, optimize as opt, samples

STRUCTURE = ("potential", "mass", "friction")
TREE = samples.random_tree(0)  # one joint of every kind


def shaken(dynamics, seed=1, size=0.3):
    """All trained arrays are changed at random, because most terms start at zero."""
    rng = np.random.default_rng(seed)
    moving, fixed = eqx.partition(dynamics, idf.trainable(dynamics))
    step = lambda x: (size * rng.normal(size=x.shape)).astype(x.dtype)  # noqa: E731
    moved = jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + step(x)), moving)
    return eqx.combine(moved, fixed)


def undamped(model):
    return eqx.tree_at(lambda m: m.damping, model, jnp.zeros_like(model.damping))


def make(name, model, seed=0, **options):
    key = jax.random.key(seed)
    if name == "hamiltonian":
        return shaken(idf.Hamiltonian(model, key, **options))
    parts = {"hybrid": STRUCTURE, "lagrangian": STRUCTURE, "all": idf.PARTS}[name]
    return shaken(idf.learned_dynamics(model, parts, key, rigid=name != "lagrangian", **options))


# --- what networks see ----------------------------------------------------------------------------


@pytest.mark.float64
def test_features_are_those_of_the_configuration():
    """Full turns and the length and sign of quaternions change nothing. Motions change features."""
    q = random_state(TREE).q
    same, turns = q, TREE.topology.q_starts[TREE.topology.bodies_of("revolute")]
    same = same.at[turns].add(2 * jnp.pi)
    for s in quaternion_slices(TREE):
        same = same.at[s].multiply(-1.7)
    f = jax.jit(lambda q: idf.features(TREE, q))
    assert_close(f(same), f(q), atol=1e-14)
    # The features form an immersion: every direction of motion changes them.
    seen = lambda d: idf.features(TREE, rbd.integrate(TREE, q, d))  # noqa: E731
    J = quick_jit(jax.jacfwd(seen))(jnp.zeros(TREE.nv))
    assert jnp.linalg.svd(J, compute_uv=False).min() > 0.05


# --- physics --------------------------------------------------------------------------------------


@pytest.mark.float64
def test_terms_have_the_torques_of_their_energies():
    """With the energies of rigid bodies, the torques are their Coriolis and gravity torques."""

    class Bodies(idf.MassMatrix):
        def momentum(self, model, q, v):
            return rbd.derivatives.mass_matrix_product(model, q, v)

        def energy(self, model, q, v):
            return rbd.kinetic_energy(model, q, v)

    class Gravity(idf.Potential):
        def energy(self, model, q):
            return rbd.potential_energy(model, q)

    model = eqx.tree_at(lambda m: m.armature, undamped(TREE), 0 * TREE.armature)
    given = model, idf.unit_scaling(model), idf.Sizes(2, 1), jax.random.key(0)
    mass, potential = Bodies(*given), Gravity(*given)

    @quick_jit
    def both(q, v):
        bias = mass.coriolis(model, q, v) + potential.torque(model, q)
        return bias, rbd.bias_torque(model, q, v)

    for s in (random_state(model, k) for k in range(3)):
        found, expected = both(s.q, s.v)
        assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["hybrid", "hamiltonian", pytest.param("lagrangian", marks=pytest.mark.slow)]
)
def test_power_is_the_rate_of_energy(name):
    """``dE/dt = v · (τ − f_θ)`` up to rounding, friction dissipates, inverse and forward agree."""
    model = undamped(TREE)
    dynamics = make(name, model)

    @quick_jit
    @jax.vmap
    def run(s):
        a = dynamics(s.q, s.v, s.tau)
        rates = rbd.rate_from_velocity(model, s.q, s.v), a
        E, dE = jax.jvp(dynamics.energy, (s.q, s.v), rates)
        back = s.tau if name == "hamiltonian" else dynamics.inverse(s.q, s.v, a)
        lost = jnp.sum(s.v * dynamics.friction.torque(model, s.q, s.v))
        return a, E, dE, lost, back

    s = random_states(model, 4)
    a, E, dE, lost, back = run(s)
    power = jnp.sum(s.v * s.tau, axis=1)
    scale = jnp.max(jnp.abs(s.v * a)) + jnp.max(jnp.abs(power))
    assert jnp.max(jnp.abs(dE - power + lost)) < 1e-10 * scale
    assert jnp.std(E) > 0.1 and jnp.min(lost) > 0.1
    assert_close(back, s.tau, atol=1e-9)


@pytest.mark.float64
def test_energy_does_not_drift():
    """Without friction, a learned robot keeps its energy to the order of the integrator."""
    model = samples.double_pendulum()
    dynamics = eqx.tree_at(lambda d: d.friction, make("hybrid", model), None)
    q0, v0 = jnp.array([1.0, -0.5]), jnp.array([0.5, 1.0])

    @quick_jit
    @jax.vmap
    def drift(dt):
        path = dynamics.rollout(q0, v0, jnp.zeros((100, 2)), dt, integrator="rk4")
        E = jax.vmap(dynamics.energy)(path.q, path.v)
        T = jax.vmap(lambda q, v: rbd.kinetic_energy(model, q, v))(path.q, path.v)
        first = path.t < 1.005
        return jnp.max(jnp.abs(E - E[0]), where=first, initial=0), jnp.max(T) - jnp.min(T)

    (a, b, c), moved = drift(jnp.array([0.04, 0.02, 0.01]))
    assert moved.min() > 0.1  # kinetic and potential energy are exchanged
    assert c < 1e-4 and a / b > 12 and b / c > 12


def test_friction_only_takes_energy():
    model = samples.arm()
    friction = shaken(
        idf.learned_dynamics(model, ("friction",), jax.random.key(0)), size=1.0
    ).friction
    s = random_states(model, 64)
    power = quick_jit(jax.vmap(lambda q, v: v * friction.torque(model, q, v)))(s.q, s.v)
    assert jnp.all(power >= 0) and jnp.max(power) > 0.1
    still = quick_jit(lambda q: friction.torque(model, q, jnp.zeros(model.nv)))(s.q[0])
    assert_close(still, jnp.zeros(model.nv))


def test_mass_is_positive():
    s = random_states(TREE, 8)
    for name, least in (("hybrid", -1e-12), ("lagrangian", 0.05 - 1e-12)):
        mass = make(name, TREE).mass
        M = np.asarray(jax.vmap(lambda q, m=mass: m.matrix(TREE, q))(s.q))
        assert_close(M, np.swapaxes(M, 1, 2), atol=1e-15)
        assert np.linalg.eigvalsh(M).min() >= least


def test_untrained_is_rigid():
    """Dynamics without learned parts, and with parts that start at zero, are the rigid bodies'."""
    s = random_state(TREE)
    parts = ("torque", "acceleration", "potential")
    expected = jax.jit(rbd.forward_dynamics)(TREE, s.q, s.v, s.tau, s.f_ext)
    for chosen in ((), parts):
        dynamics = idf.learned_dynamics(TREE, chosen, jax.random.key(0))
        found = jax.jit(lambda d, s: d(s.q, s.v, s.tau, s.f_ext))(dynamics, s)
        assert_close(found, expected, atol=1e-12)


# --- wherever accelerations are expected ----------------------------------------------------------


@pytest.mark.slow
def test_rollouts_steps_and_problems():
    """Learned accelerations in an integrator and learned torques give the same motion."""
    model = samples.double_pendulum()
    start = idf.learned_dynamics(model, ("torque",), jax.random.key(0), sizes=idf.Sizes(8, 1))
    dynamics, s, u = shaken(start), random_state(model), 0.1 * jnp.ones((5, 2))
    cost = opt.StateCost(s.q, jnp.ones(2), jnp.ones(2))
    stage = lambda m, t, q, v, u: jnp.sum(u * u)  # noqa: E731
    problem = opt.Problem(model, stage, cost, 0.01, 5, dynamics.actuation, nu=2)

    @quick_jit
    def run(dynamics):
        path = dynamics.rollout(s.q, s.v, u, 0.01)
        step = dynamics.integrator("euler")
        A, B = rbd.simulate.step_derivatives(model, s.q, s.v, u[0], 0.01, integrator=step)
        slopes = jax.jacfwd(dynamics, (1, 2))(s.q, s.v, u[0])
        return path, problem.simulate(s.q, s.v, u), (A, B), slopes

    path, by_torques, (A, B), (Av, Bu) = run(dynamics)
    assert_close((by_torques.q, by_torques.v), (path.q, path.v), atol=1e-12)
    assert_close(A[2:, 2:], jnp.eye(2) + 0.01 * Av, atol=1e-12)
    assert_close(B[2:], 0.01 * Bu, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["generalized_alpha", "variational"])
def test_implicit_steps(method):
    """Implicit integrators find the same motion, to their order."""
    model = samples.double_pendulum()
    start = idf.learned_dynamics(model, ("potential",), jax.random.key(0), sizes=idf.Sizes(8, 1))
    dynamics, s = shaken(start), random_state(model)

    @quick_jit
    def run(dynamics):
        u = 0.1 * jnp.ones((4, model.nv))
        options = [("rk4", 4)] + [(method, n) for n in (2, 4)]
        return [
            dynamics.rollout(s.q, s.v, u, 0.02, integrator=m, substeps=n).v[-1] for m, n in options
        ]

    fine, coarse, better = run(dynamics)
    assert 3 < jnp.linalg.norm(coarse - fine) / jnp.linalg.norm(better - fine) < 5


@pytest.mark.parametrize(
    "parts, gradient",
    [
        pytest.param(("mass", "friction"), "full", marks=pytest.mark.slow),
        pytest.param(idf.PARTS, "full", marks=pytest.mark.slow),
        pytest.param(idf.PARTS, "adjoint", marks=pytest.mark.slow),
    ],
)
def test_gradient_through_a_rollout(parts, gradient):
    """The derivative along a random direction of all parameters agrees with differences."""
    model = samples.random_tree(4, kinds=("spherical",))
    start = idf.learned_dynamics(model, parts, jax.random.key(0), sizes=idf.Sizes(8, 1))
    dynamics, s = shaken(start), random_states(model, 4)
    loss = idf.RolloutLoss(0.01, jnp.ones(model.nv), jnp.ones(model.nv), gradient=gradient)
    window = idf.Dataset(None, s.q, s.v, None, s.tau)
    moving, fixed = eqx.partition(dynamics, idf.trainable(dynamics))
    d = jax.tree.map(
        lambda x: jnp.sin(1.0 + jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), moving
    )

    def f(moving):
        return loss(eqx.combine(moving, fixed), window)

    h = 1e-3
    steps = h * jnp.array([1.0, -1.0, 2.0, -2.0])
    along = lambda e: f(jax.tree.map(lambda x, y: x + e * y, moving, d))  # noqa: E731
    y = quick_jit(jax.vmap(along))(steps)
    numeric = jnp.dot(y, jnp.array([8.0, -8.0, -1.0, 1.0])) / (12 * h)
    g = quick_jit(jax.grad(f))(moving)
    pairs = list(zip(*map(jax.tree.leaves, (g, d)), strict=True))
    exact = sum(float(jnp.sum(a * b)) for a, b in pairs)
    assert abs(exact - numeric) < 1e-8 * abs(numeric)
    still = sum(float(jnp.abs(a).max()) == 0 for a, _ in pairs)
    assert still == ("potential" in parts)  # Only the constant of the potential has no effect.


@pytest.mark.slow
def test_float32_and_precision():
    """All results stay in float32, and every matrix product states its precision."""
    model = samples.double_pendulum(dtype=jnp.float32)
    single, s = make("all", model), random_state(model)
    for dynamics in (single, make("hamiltonian", model)):
        text = str(jax.make_jaxpr(lambda s, d=dynamics: d(s.q, s.v, s.tau))(s))
        products = text.split("dot_general[")[1:]
        assert "f64" not in text and products and all("HIGHEST" in p[:300] for p in products)
    run = quick_jit(lambda d, s: d(s.q, s.v, s.tau))
    found, expected = run(single, s), run(cast(single, jnp.float64), cast(s, jnp.float64))
    error = found.astype(jnp.float64) - expected
    assert jnp.linalg.norm(error) < 1e-4 * jnp.linalg.norm(expected)


# --- errors ---------------------------------------------------------------------------------------


def test_errors():
    model, key = samples.double_pendulum(), jax.random.key(0)
    x = jnp.zeros(2)
    with pytest.raises(ValueError, match=r"parts must be of .*got \['torques'\]"):
        idf.learned_dynamics(model, ("torques",), key)
    with pytest.raises(ValueError, match="without rigid bodies, a learned mass or acceleration"):
        idf.learned_dynamics(model, ("torque",), key, rigid=False)
    with pytest.raises(ValueError, match="has no degree of freedom"):
        idf.learned_dynamics(
            rbd.build_model(rbd.RobotSpec("rock", (rbd.LinkSpec("rock"),), ())), (), key
        )
    plain = idf.learned_dynamics(model, ("acceleration",), key, rigid=False)
    with pytest.raises(ValueError, match="has no inverse"):
        plain.inverse(x, x, x)
    for dynamics in (plain, idf.Hamiltonian(model, key)):
        with pytest.raises(
            ValueError, match="f_ext acts on rigid bodies, but these dynamics have none"
        ):
            dynamics(x, x, x, jnp.zeros((2, 6)))
    with pytest.raises(
        ValueError, match=r"LearnedDynamics: v has shape \(3,\), expected \(nv,\) = \(2,\)"
    ):
        plain(x, jnp.zeros(3), x)
    with pytest.raises(ValueError, match="integrator must be one of .*got 'rk5'"):
        plain.integrator("rk5")
    step = plain.integrator("rk4")
    with pytest.raises(TypeError, match="needs the torques of rbd_jax.rollout"):
        step(model, lambda t, q, v: v, jnp.zeros(()), x, x, jnp.ones(()))
    with pytest.raises(ValueError, match=r"residual_torques: the data have no \['a', 'tau'\]"):
        idf.residual_torques(model, idf.Dataset(None, x[None], x[None]))
