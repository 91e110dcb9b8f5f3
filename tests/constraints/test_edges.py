"""Loops against differences; redundant, contradictory and idle constraints; single precision."""

import dataclasses
from functools import cache

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import cast, central_difference

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.model.coordinates import CoordinateMap

GAINS = dict(position_gain=3.0, velocity_gain=2.0)


@cache
def robot():
    """Two arms with joint springs on a floating body."""
    m = rbd.samples.tree(8, 2, floating_base=True)
    k = jax.random.split(jax.random.key(1), 3)
    normal = [jax.random.normal(x, (m.nv,)) for x in k[:2]]
    rest = rbd.random_configuration(m, k[1])
    m = dataclasses.replace(m, stiffness=jnp.linspace(1.0, 4.0, m.nv), rest=rest)
    return m, rbd.random_configuration(m, k[2]), *normal


def ends(m):
    """Links at the ends of two branches."""
    parents = m.topology.parents
    leaves = [b for b in range(m.nb) if b not in parents]
    bodies = m.topology.frame_bodies
    return [next(n for n, b in zip(m.frame_names, bodies, strict=True) if b == leaf)
            for leaf in leaves[:2]]  # fmt: skip


def along(m, q, v, tau, c):
    def f(d):
        dq, dv, dtau = jnp.split(d, 3)
        x = rbd.constrained_dynamics(m, rbd.integrate(m, q, dq), v + dv, tau + dtau, c)
        return jnp.concatenate(x)

    return f


@quick_jit
def by_differences(m, q, v, tau, c):
    """Values, explicit blocks and central differences of the values."""
    f, zero = along(m, q, v, tau, c), jnp.zeros(3 * m.nv)
    d = rbd.constrained_dynamics_derivatives(m, q, v, tau, c)
    top, bottom = jnp.concatenate(d[:3], axis=1), jnp.concatenate(d[3:], axis=1)
    J = jax.jvp(f, (zero,), (jnp.cos(jnp.arange(3.0 * m.nv)),))[1]
    return f(zero), jnp.concatenate([top, bottom]), central_difference(f, zero, 2e-4), J


def check(m, q, v, tau, c, tolerance=1e-7):
    value, explicit, expected, pushed = by_differences(m, q, v, tau, c)
    scale = np.abs(expected).max()
    assert np.isfinite(value).all() and scale > 1e-3
    np.testing.assert_allclose(explicit, expected, atol=tolerance * scale)
    direction = np.cos(np.arange(3.0 * m.nv))
    np.testing.assert_allclose(pushed, explicit @ direction, atol=1e-9 * scale)
    return value


@pytest.mark.parametrize(
    "kind, reference",
    [
        pytest.param("point", "local", marks=pytest.mark.slow),
        pytest.param("weld", "local_world_aligned", marks=pytest.mark.slow),
        pytest.param("point", "local_world_aligned", marks=pytest.mark.slow),
        pytest.param("weld", "local", marks=pytest.mark.slow),
    ],
)
def test_loops(kind, reference):
    """Points, and frames with some rows, between two branches in both references, open a bit."""
    m, q, v, tau = robot()
    one, two = ends(m)
    R = rbd.spatial.so3.exp(jnp.array([0.3, -0.5, 0.2]))
    numbers = GAINS | {"reference": reference}
    if kind == "point":
        c = constraints.point(m, one, two, at=[1.0, 0.2, 0.1], **numbers)
    else:
        c = constraints.frame(m, one, two, at=(R, 0.1 * jnp.ones(3)), rows=(0, 1, 4), **numbers)
    check(m, q, v, tau, c)


def driven_under_a_loop():
    """A robot of which two joints follow laws that are not linear, with two ends tied."""
    m, _, _, _ = robot()
    one, two = ends(m)
    names = [j for j, k in zip(m.joint_names, m.topology.kinds, strict=True) if k != "free"]
    law = lambda u: jnp.stack([jnp.sin(u[0]) + u[1] ** 2, u[0] * u[1]])  # noqa: E731
    driven = rbd.with_coordinates(m, law, [names[1], names[-1]], by=[names[0], "motor"])
    keys = jax.random.split(jax.random.key(4), 3)
    q = rbd.random_configuration(driven, keys[0])
    v, tau = (jax.random.normal(k, (driven.nv,)) for k in keys[1:])
    return driven, q, v, tau, constraints.point(driven, one, two, at=[1.0, 0.2, 0.1], **GAINS)


@pytest.mark.slow
def test_springs_and_nonlinear_driven_joints_under_a_loop():
    """The equations of all joints hold, springs included, and derivatives are differences."""
    driven, q, v, tau, c = driven_under_a_loop()
    value = check(driven, q, v, tau, c)
    a, forces = value[: driven.nv], value[driven.nv :]

    def left(q, v, a, forces):
        x = CoordinateMap(driven, q)
        assert x.robot.stiffness is not None
        torque = rbd.rnea(x.robot, x.q, x.velocity(v), x.acceleration(v, a))
        J = constraints.jacobian(x.robot, x.q, c)
        return x.project(torque - J.T @ forces)

    torque = quick_jit(left)(q, v, a, forces)
    np.testing.assert_allclose(torque, tau, atol=1e-9)


def box(m, frame):
    """Four corners of a foot: twelve rows that hold six."""
    corners = [(x, y, -0.1) for x in (-0.1, 0.1) for y in (-0.05, 0.05)]
    return constraints.join(*(
        constraints.point(m, frame, offset=c, name=f"corner {k}", **GAINS)
        for k, c in enumerate(corners)
    ))  # fmt: skip


@pytest.mark.slow
@pytest.mark.float64
def test_redundant_rows_have_the_least_forces():
    """Four corners of a box: the motion of a weld, by the least forces."""
    m, q, v, tau = robot()
    frame = ends(m)[0]
    c = quick_jit(constraints.anchored)(m, q, box(m, frame))
    v = quick_jit(rbd.constraints.project)(m, q, v, c).v
    value = np.concatenate(quick_jit(rbd.constrained_dynamics)(m, q, v, tau, c))
    weld = quick_jit(constraints.anchored)(m, q, constraints.frame(m, frame, **GAINS))
    a = quick_jit(rbd.constrained_dynamics)(m, q, v, tau, weld).a
    np.testing.assert_allclose(value[: m.nv], a, atol=1e-9)
    G, forces = np.asarray(quick_jit(constraints.delassus)(m, q, c)), value[m.nv :]
    values, vectors = np.linalg.eigh(G)
    null = vectors[:, values < 1e-9 * values.max()]
    assert null.shape[1] == 6
    np.testing.assert_allclose(null.T @ forces, 0, atol=1e-9)


@pytest.mark.slow
def test_derivatives_of_redundant_rows():
    """Four corners of a box: explicit derivatives of the motion and of the least forces."""
    m, q, v, tau = robot()
    c = quick_jit(constraints.anchored)(m, q, box(m, ends(m)[0]))
    check(m, q, quick_jit(rbd.constraints.project)(m, q, v, c).v, tau, c)


@quick_jit
def struck(m, q, v, c):
    """Explicit blocks of an impact, and central differences."""

    def f(d):
        dq, dv = jnp.split(d, 2)
        return jnp.concatenate(rbd.impact(m, rbd.integrate(m, q, dq), v + dv, c))

    d = constraints.impact_derivatives(m, q, v, c)
    blocks = jnp.block([[d.dv_dq, d.dv_dv], [d.dimpulses_dq, d.dimpulses_dv]])
    return blocks, central_difference(f, jnp.zeros(2 * m.nv), 2e-4)


def redundant():
    m, q, v, tau = robot()
    return m, q, v, tau, quick_jit(constraints.anchored)(m, q, box(m, ends(m)[0]))


@pytest.mark.float64
@pytest.mark.slow
@pytest.mark.parametrize("case", [redundant, driven_under_a_loop])
def test_derivatives_of_impacts(case):
    """Rows that depend on each other and bounce, and driven joints: matrices are differences."""
    m, q, v, _, c = case()
    c = dataclasses.replace(c, restitution=jnp.full_like(c.restitution, 0.4))
    explicit, expected = struck(m, q, v, c)
    scale = np.abs(expected).max()
    assert scale > 1
    np.testing.assert_allclose(explicit, expected, atol=1e-6 * scale)


@pytest.mark.slow
def test_contradictory_rows_give_least_squares():
    m, q, v, tau = robot()
    frame = ends(m)[0]
    apart = [constraints.point(m, frame, at=[x, 0, 0], name=f"{x}", **GAINS) for x in (0.0, 1.0)]
    both = constraints.join(*apart)
    (a, forces), d = quick_jit(lambda *x: (rbd.constrained_dynamics(*x),
        rbd.constrained_dynamics_derivatives(*x)))(m, q, v, tau, both)  # fmt: skip
    middle = constraints.point(m, frame, at=[0.5, 0, 0], **GAINS)
    alone = quick_jit(rbd.constrained_dynamics)(m, q, v, tau, middle)
    np.testing.assert_allclose(a, alone.a, atol=1e-9)
    np.testing.assert_allclose(forces[:3] + forces[3:], alone.forces, atol=1e-9)
    chex.assert_tree_all_finite(d)


def holding_nothing(name):
    m, *state = robot()
    idle = constraints.point(m, ends(m)[0], active=False, **GAINS)
    return m, *state, {"none": constraints.none(m), "idle": idle}[name]


@pytest.mark.float64
@pytest.mark.parametrize("name", ["none", "idle"])
def test_nothing_held(name):
    """No constraint, and idle ones, leave the free motion."""
    m, q, v, tau, c = holding_nothing(name)
    a, forces = quick_jit(rbd.constrained_dynamics)(m, q, v, tau, c)
    np.testing.assert_allclose(a, quick_jit(rbd.forward_dynamics)(m, q, v, tau), atol=1e-11)
    assert not forces.any() and forces.shape == (c.size,)


@quick_jit
def without(m, q, v, tau, c):
    """Derivatives under constraints that hold nothing, and of the free motion."""
    d = rbd.constrained_dynamics_derivatives(m, q, v, tau, c)
    gradient = jax.grad(lambda q: rbd.impact(m, q, v, c).v.sum())(q)
    struck = constraints.impact_derivatives(m, q, v, c)
    return d.da_dtau, rbd.mass_matrix_inverse(m, q), gradient, struck


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none", "idle"])
def test_derivatives_with_nothing_held(name):
    """They are those of the free motion, and not NaN."""
    da_dtau, free, gradient, struck = without(*holding_nothing(name))
    np.testing.assert_allclose(da_dtau, free, atol=1e-10)
    np.testing.assert_allclose(struck.dv_dv, np.eye(len(free)), atol=1e-10)
    assert not any(x.any() for x in (struck.dv_dq, struck.dimpulses_dq, struck.dimpulses_dv))
    assert np.isfinite(gradient).all()


@pytest.mark.float64
@pytest.mark.parametrize("size", [None, 1.0, 0.1])
def test_single_precision(size):
    """Accelerations and forces to 1e-5 of the largest: a point, and boxes of redundant rows.

    The budget is 30 ε over the lever of the smallest box, relative to the robot: 0.01 m.
    """
    m, q, v, tau = robot()
    frame = ends(m)[0]
    c = box(m, frame) if size else constraints.point(m, frame, **GAINS)
    c = eqx.tree_at(lambda c: c.p_1, c, c.p_1 * (size or 1.0))
    c = quick_jit(constraints.anchored)(m, q, c)
    dynamics = quick_jit(rbd.constrained_dynamics)
    exact, single = dynamics(m, q, v, tau, c), dynamics(*cast((m, q, v, tau, c), jnp.float32))
    for x, y in zip(single, exact, strict=True):
        assert x.dtype == jnp.float32
        error = np.abs(np.asarray(x, float) - y).max() / np.abs(y).max()
        print(error)
        assert error < 1e-5


@pytest.mark.float64
def test_errors():
    m, q, v, tau = robot()
    c = constraints.point(m, ends(m)[0])
    with pytest.raises(TypeError, match="constraints must be a set|parameter 'constraints'"):
        rbd.constrained_dynamics(m, q, v, tau, None)
    with pytest.raises(ValueError, match="distinct names"):
        c + c
    with pytest.raises(ValueError, match="use jax.vmap for many sets"):
        rbd.impact(m, q, v, c.with_active(jnp.ones((3, 1), bool)))
    with pytest.raises(KeyError, match="no frame 'nowhere'"):
        constraints.point(m, "nowhere")
    with pytest.raises(ValueError, match="pass constraints="):
        rbd.simulate.ConstrainedRobot(m, project=True)
    with pytest.raises(ValueError, match=r"active must be bool of shape \(T, c\) = \(T, 1\)"):
        rbd.simulate.ConstrainedRobot(m, constraints=c, active=jnp.ones((2, 3), bool))
    plant = rbd.simulate.ConstrainedRobot(m, constraints=c, active=jnp.ones((3, 1), bool))
    with pytest.raises(ValueError, match="active has 3 rows, one for each step, but there are 2"):
        rbd.rollout(plant, q, v, jnp.zeros((2, m.nv)), 0.01)
