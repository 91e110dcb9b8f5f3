"""Constraints in time: drift, projection, impacts, schedules and guards; closed forms."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.four_bar import closed_form, four_bar
from support.helpers import central_difference

import rbd_jax as rbd
from rbd_jax import constraints


@cache
def swing(project: bool, gain: float, steps: int = 10_000):
    """Ten seconds of the four-bar's fall: the largest gap, and the energies."""
    model, c = four_bar()
    c = c + constraints.none(model)
    gains = dict(position_gain=jnp.array([gain**2]), velocity_gain=jnp.array([2 * gain]))
    for name, x in gains.items():
        c = _with(c, name, x)
    q0 = closed_form(jnp.asarray(1.0))

    def run(q0):
        def see(t, q, v):
            gap = jnp.abs(constraints.residual(model, q, c)).max()
            return gap, rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)

        plant = rbd.simulate.ConstrainedRobot(model, "rk4", constraints=c, project=project)
        path = rbd.rollout(plant, q0, jnp.zeros(3), jnp.zeros((steps, 3)), 1e-3, observe=see)
        return path.observations

    return quick_jit(run)(q0)


def _with(c, name, x):
    import equinox as eqx

    return eqx.tree_at(lambda c: getattr(c, name), c, x)


@pytest.mark.float64
def test_a_four_bar_moves_as_its_closed_form():
    """Velocities and accelerations are the first and second derivatives of the closed form."""
    model, c = four_bar()
    angle = jnp.asarray(0.7)
    rate = jax.jvp(closed_form, (angle,), (2.0,))[1]
    second = jax.jvp(lambda x: jax.jvp(closed_form, (x,), (2.0,))[1], (angle,), (2.0,))[1]
    q = closed_form(angle)
    np.testing.assert_allclose(constraints.residual(model, q, c), 0, atol=1e-14)
    a = rbd.constrained_dynamics(model, q, rate, jnp.zeros(3), c).a
    expected = second + jax.jvp(closed_form, (angle,), (1.0,))[1] * (a[0] - second[0])
    np.testing.assert_allclose(a, expected, rtol=1e-10)
    # the equation of motion of the crank alone, by projection on the closed form
    J = jax.jvp(closed_form, (angle,), (1.0,))[1]
    torque = J @ rbd.rnea(model, q, rate, a)
    assert abs(torque) <= 1e-11


@pytest.mark.slow
def test_drift():
    """Over ten seconds: below 1e-6 m with projection, bounded by Baumgarte's gains."""
    gap, energy = swing(True, 0.0)
    print("projected", gap.max(), "energy", np.ptp(energy))
    assert gap.max() < 1e-6 and np.ptp(energy) < 1e-3
    gap, _ = swing(False, 20.0)
    print("baumgarte", gap.max())
    assert gap.max() < 1e-4 and gap[5000:].max() < 3 * gap[:5000].max()


@pytest.mark.float64
@pytest.mark.parametrize("e", [0.0, 0.5, 1.0])
def test_balances_of_an_impact(e):
    """Momentum changes by the impulses; energy by ``−½ (1−e²) (Jv)ᵀ G⁻¹ (Jv)``."""
    model = rbd.samples.quadruped()
    feet = [n for n in model.frame_names if "foot" in n][:2]
    assert len(feet) == 2
    c = constraints.join(*(constraints.point(model, f, restitution=e) for f in feet))
    q = rbd.random_configuration(model, jax.random.key(0))
    v = jax.random.normal(jax.random.key(1), (model.nv,))

    @quick_jit
    def everything(q, v):
        out = rbd.impact(model, q, v, c)
        G, u = constraints.delassus(model, q, c), constraints.velocity(model, q, v, c)
        momenta = [rbd.algorithms.spatial_momentum(model, q, x) for x in (v, out.v)]
        energies = [rbd.kinetic_energy(model, q, x) for x in (v, out.v)]
        places = jnp.stack([rbd.frame_placement(model, q, f)[1] for f in feet])
        return out, G, u, constraints.velocity(model, q, out.v, c), momenta, energies, places

    out, G, u, after, momenta, energies, places = everything(q, v)
    np.testing.assert_allclose(after, -e * u, atol=1e-11)
    L = out.impulses.reshape(2, 3)
    pushed = jnp.concatenate([jnp.cross(places, L).sum(0), L.sum(0)])
    np.testing.assert_allclose(momenta[1] - momenta[0], pushed, atol=1e-10)
    lost = 0.5 * (1 - e**2) * u @ jnp.linalg.solve(G, u)
    np.testing.assert_allclose(energies[0] - energies[1], lost, atol=1e-9)


@pytest.mark.slow
def test_schedule_and_guard_of_a_bouncing_ball():
    """A ball that sticks when it touches the ground, by a guard; and by a schedule."""
    spec = rbd.RobotSpec("ball", (rbd.LinkSpec("ground"), rbd.LinkSpec("ball", 1.0)),
                         (rbd.JointSpec("j", "translation", "ground", "ball"),))  # fmt: skip
    model = rbd.build_model(spec)
    c = constraints.point(model, "ball", active=False)
    dt, steps = 1e-3, 700
    args = jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0]), jnp.zeros((steps, 3)), dt

    def run(active, *args):
        plant = rbd.simulate.ConstrainedRobot(model, constraints=c, active=active)
        return rbd.rollout(plant, *args)

    def touch(t, q, v, before):
        return before | (q[2:3] <= 0)

    guarded = quick_jit(lambda *a: run(touch, *a))(*args)
    landing = int(np.argmax(np.asarray(guarded.q[:, 2]) <= 0))
    assert abs(landing * dt - np.sqrt(2 / 9.81)) < 3e-3
    np.testing.assert_allclose(guarded.v[landing + 1 :], 0, atol=1e-12)
    rows = jnp.arange(steps)[:, None] >= landing
    planned = quick_jit(run)(rows, *args)
    np.testing.assert_allclose(planned.q, guarded.q, atol=1e-12)


@pytest.mark.slow
def test_projection_is_differentiable():
    model, c = four_bar()
    q = closed_form(jnp.asarray(0.9)) + jnp.array([0.0, 0.02, -0.03])
    v = jnp.array([1.0, -0.5, 0.3])

    def f(x):
        q, v = jnp.split(x, 2)
        return jnp.concatenate(constraints.project(model, q, v, c, max_steps=4)[:2])

    at = jnp.concatenate([q, v])
    value, J, expected = quick_jit(
        lambda x: (f(x), jax.jacfwd(f)(x), central_difference(f, x))
    )(at)  # fmt: skip
    assert np.abs(constraints.residual(model, value[:3], c)).max() < 1e-12
    assert np.abs(constraints.velocity(model, value[:3], value[3:], c)).max() < 1e-12
    np.testing.assert_allclose(J, expected, atol=1e-8)


@pytest.mark.float64
@pytest.mark.parametrize("reference", ["local", "local_world_aligned"])
def test_points_of_two_branches_obey_their_law(reference):
    """``d̈ + K_d ḋ = 0`` for the distance d of two points, by differences of their positions."""
    model = rbd.samples.random_tree(3, kinds=("revolute",), n=12)
    key, h, gain = jax.random.key(4), 1e-4, 3.0
    q = rbd.random_configuration(model, key)
    v, tau = jax.random.normal(key, (2, model.nv))
    c = constraints.point(
        model, "link10", "link6", at=[0.3, -0.2, 0.1], velocity_gain=gain, reference=reference
    )

    @quick_jit
    def distances(q, v, tau):
        held = constraints.anchored(model, q, c)
        a = rbd.constrained_dynamics(model, q, v, tau, held).a
        one, two = held.pairs[0].body_1, held.pairs[0].body_2

        def distance(t):
            R, p = rbd.forward_kinematics(model, rbd.integrate(model, q, v * t + a * t**2 / 2))
            return p[two] + R[two] @ held.p_2[0] - p[one] - R[one] @ held.p_1[0]

        return jnp.stack([distance(t) for t in (-h, 0.0, h)])

    before, now, after = np.asarray(distances(q, v, tau))
    rate, curvature = (after - before) / (2 * h), (after - 2 * now + before) / h**2
    assert np.abs(now).max() < 1e-12 and np.abs(rate).max() > 0.1
    np.testing.assert_allclose(curvature, -gain * rate, atol=1e-5 * np.abs(rate).max())
