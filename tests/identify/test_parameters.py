"""Charts of parameters: inverse maps, physical consistency, gradients against differences."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, central_difference, random_state, within

import rbd_jax as rbd
from rbd_jax import identify, samples
from rbd_jax.identify import select
from rbd_jax.identify.parameters import _physical as physical
from rbd_jax.spatial import inertia

BALL = identify.Ellipsoid(jnp.array([[0.1, 0.0, -0.1]]), 1.5 * jnp.eye(3)[None])
SETS = {
    "all": lambda m: (
        *(select(m, x) for x in ("inertia", "placement", "axis", "pitch", "armature", "gravity")),
        select(m, "damping", chart=identify.Bounded(-0.1, 1.0)),
        select(m, "friction", chart=identify.Real(0.1)),
        select(m, "frame", m.frame_names[-1]),
    ),
    "other charts": lambda m: (
        select(m, "inertia", "link2", identify.InEllipsoid(BALL)),
        select(m, "placement", "joint2", _length(m)),
        select(m, "gravity", chart=identify.Direction),
    ),
}
SLOW = ("all", "other charts")
CASES = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SETS]
CENTERED = ("inertia", "placement", "axis", "frame")


def _length(m):
    row = slice(m.joint_names.index("joint2"), m.joint_names.index("joint2") + 1)
    return identify.PoseChart(m.placement_R[row], m.placement_p[row], (3, 4, 5))


@cache
def _robot():
    m = samples.random_tree(3, kinds=("revolute", "prismatic", "helical", "spherical", "free"))
    m = eqx.tree_at(lambda m: m.armature, m, 0.1 + 0.05 * jnp.arange(float(m.nv)))
    return eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    m = _robot()
    learn = identify.Parameters(m, *SETS[name](m))
    assert len(learn.names) == learn.start.size == len(set(learn.names)) > 0
    z = learn.start + 0.6 * jax.random.normal(jax.random.key(1), learn.start.shape)

    @quick_jit
    def round_trip(z):
        other = learn.model(z)
        return learn.coordinates(other), other, learn.model(learn.coordinates(other))

    for point in (learn.start, z):
        back, other, again = round_trip(point)
        assert_close(back, point, atol=2e-12)
        assert_close(again, other, atol=1e-12)
    assert_close(round_trip(learn.start)[1], m, atol=1e-13)
    if name == "all":
        centered = np.array([n.split(":")[0] in CENTERED for n in learn.names])
        np.testing.assert_allclose(np.asarray(learn.start)[centered], 0, atol=1e-12)
    for leaf in ("position_lower", "velocity_limit", "effort_limit"):
        np.testing.assert_array_equal(getattr(other, leaf), getattr(m, leaf))
    moved = jax.tree.map(
        lambda x, y: float(jnp.abs(x - y).max(initial=0)), other.inertia, m.inertia
    )
    assert moved > 0.01


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """Gradients through charts and rules, in both modes, at the nominal robot and elsewhere.

    The outputs are torques with friction and the pose of the last frame, which all parameters
    change.
    """
    m = _robot()
    learn, s = identify.Parameters(m, *SETS[name](m)), random_state(m)

    def f(z):
        other = learn.model(z)
        tau = rbd.inverse_dynamics(other, s.q, s.v, s.a) + identify.friction_torque(other, s.v, 1.0)
        R, p = rbd.frame_placement(other, s.q, m.frame_names[-1])
        return jnp.concatenate([tau, p, R[0], R[1]])

    ways = quick_jit(jax.jacfwd(f)), quick_jit(jax.jacrev(f))
    by_difference = quick_jit(lambda z: central_difference(f, z))
    shift = 0.3 * jnp.cos(jnp.arange(1.0, learn.start.size + 1))
    for z in (learn.start, learn.start + shift):
        (forward, reverse), difference = (way(z) for way in ways), by_difference(z)
        size = jnp.abs(difference).max(axis=0)
        # A rotation of a free body's joint, or of a frame, may not change any output.
        assert float((size > 1e-4).mean()) > 0.9
        scale = jnp.maximum(size, 1e-2)[None]
        np.testing.assert_allclose(forward / scale, difference / scale, rtol=0, atol=1e-8)
        np.testing.assert_allclose(reverse / scale, forward / scale, rtol=0, atol=1e-11)


@pytest.mark.float64
def test_every_point_is_physical():
    """Coordinates of size 3 give values over many orders of magnitude, all of them physical."""
    m = _robot()
    plain = select(m, "inertia")
    bounded = select(m, "inertia", "link2", identify.InEllipsoid(BALL))
    row = list(m.body_names).index("link2")

    @quick_jit
    def look(key):
        z = 3 * jax.random.normal(key, (len(plain.names),))
        other = plain.put(m, z)
        P = inertia.pseudo(other.inertia)
        d = jax.lax.rsqrt(jnp.diagonal(P, axis1=-2, axis2=-1))
        within = bounded.put(m, z[:10]).inertia[row]
        scaled = P * d[:, :, None] * d[:, None, :]
        return scaled, inertia.inertia_com(other.inertia), within, other.inertia[row]

    scaled, J, within, outside = jax.vmap(look)(jax.random.split(jax.random.key(0), 500))
    # NumPy is an independent oracle for the factors of small matrices.
    least = np.linalg.eigvalsh(scaled)[..., 0]
    J = np.linalg.eigvalsh(J)
    triangle = J[..., 0] + J[..., 1] - J[..., 2]
    assert least.min() > -1e-14 and np.median(least) > 1e-6
    assert triangle.min() > -1e-9 * triangle.max()

    @jax.jit
    def in_ball(within, outside):
        ball = jax.tree.map(lambda x: jnp.broadcast_to(x, (500, *x.shape[1:])), BALL)
        return ball.to_unit_ball(within), ball.contains(outside)

    P, contained = map(np.asarray, in_ball(within, outside))
    slack = P[:, 3, 3] - P[:, 0, 0] - P[:, 1, 1] - P[:, 2, 2]
    assert (slack / P[:, 3, 3]).min() > -1e-12
    within = np.asarray(within)
    com = within[:, 1:4] / within[:, :1]
    assert np.linalg.norm(com - np.asarray(BALL.center), axis=-1).max() < 1.5
    assert not contained.all()


def test_ellipsoid_around_a_box():
    lower, upper = jnp.array([[-0.1, 0.2, 0.0]]), jnp.array([[0.3, 0.3, 0.6]])
    e = identify.Ellipsoid.around_box(lower, upper)
    size, c = (upper - lower)[0], 0.5 * (lower + upper)
    full = inertia.from_com(jnp.ones(1), c, jnp.diag(jnp.sum(size**2) - size**2)[None] / 12)
    assert bool(e.contains(full)[0])
    corners = (jnp.sum(size**2) - size**2) / 4  # all mass in the eight corners
    for factor, inside in ((0.999, True), (1.001, False)):
        J = jnp.diag(corners)[None] * factor
        assert bool(e.contains(inertia.from_com(jnp.ones(1), c, J))[0]) is inside
    with pytest.raises(ValueError, match="enlarge"):
        m = samples.chain(2)
        small = identify.Ellipsoid(jnp.zeros((2, 3)), 0.01 * jnp.stack([jnp.eye(3)] * 2))
        select(m, "inertia", chart=identify.InEllipsoid(small))


def test_entropic_distance():
    m = _robot()
    I0, I1 = m.inertia[:2]
    P0, P1 = (np.asarray(inertia.pseudo(x)) for x in (I0, I1))
    X = np.linalg.solve(P0, P1)
    expected = np.trace(X) - np.linalg.slogdet(X)[1] - 4
    d = quick_jit(identify.entropic_distance)
    np.testing.assert_allclose(d(I0, I1), expected, rtol=within(1e-12, 1e-5))
    T = rbd.spatial.se3.exp(jnp.array([0.3, -0.2, 0.5, 0.1, 0.7, -0.4]))
    moved = [rbd.spatial.inertia.to_parent(T, x) for x in (I0, I1)]
    np.testing.assert_allclose(d(*moved), expected, rtol=within(1e-9, 1e-4))
    assert float(d(I0, I0)) < within(1e-25, 1e-10)
    U0 = physical.upper_cholesky(inertia.pseudo(I0))
    chart = identify.LogCholesky(U0[None])
    r = lambda z: physical.entropic_residuals(U0, chart.value(z[None])[0])  # noqa: E731
    shift = 0.2 * jnp.cos(jnp.arange(10.0))
    J, D = quick_jit(lambda z: (jax.jacfwd(r)(z), central_difference(r, z)))(jnp.zeros(10))
    np.testing.assert_allclose(J, D, atol=within(1e-10, 5e-3))
    J, D = quick_jit(lambda z: (jax.jacfwd(r)(z), central_difference(r, z)))(shift)
    np.testing.assert_allclose(J, D, atol=within(1e-9, 5e-3))
    assert np.linalg.cond(J) < 1e3


def test_inconsistent_robots_are_refused_and_repaired():
    m = samples.double_pendulum()  # point masses
    assert not bool(identify.consistent(m).any())
    with pytest.raises(ValueError, match=r"upper.*made_consistent"):
        select(m, "inertia")
    repaired = identify.made_consistent(m)
    assert bool(identify.consistent(repaired).all())
    np.testing.assert_allclose(repaired.inertia[:, :4], m.inertia[:, :4], atol=1e-12)
    wrong = eqx.tree_at(lambda m: m.inertia, _robot(), _robot().inertia.at[1, 4].set(50.0))
    fixed = identify.made_consistent(wrong)
    assert identify.consistent(wrong).tolist().count(False) == 1
    assert bool(identify.consistent(fixed).all())
    np.testing.assert_array_equal(fixed.inertia[2:], wrong.inertia[2:])


def test_errors_and_names():
    m = _robot()
    with pytest.raises(ValueError, match="leaf must be one of"):
        select(m, "mass")
    with pytest.raises(KeyError, match="link9"):
        select(m, "inertia", "link9")
    with pytest.raises(ValueError, match="Positive.*positive value"):
        select(m, "friction")
    ball = m.joint_names[m.topology.kinds.index("spherical")]
    with pytest.raises(ValueError, match="have no axis"):
        select(m, "axis", ball)
    assert select(m, "armature", ball).names == tuple(f"armature:{ball}[{k}]" for k in range(3))
    body = m.body_names[2]
    assert select(m, "inertia", m.joint_names[2]).rows == select(m, "inertia", body).rows == (2,)
    with pytest.raises(ValueError, match="two blocks"):
        identify.Parameters(m, select(m, "inertia"), select(m, "inertia", body))
    learn = identify.Parameters(m, select(m, "gravity"))
    with pytest.raises(ValueError, match="vmap"):
        learn.model(jnp.zeros((4, 3)))
