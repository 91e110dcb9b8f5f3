"""Geometric sensitivity and linearized equations against autodiff, and a calibration."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state, random_states, within

import rbd_jax as rbd
from rbd_jax import samples, screw
from rbd_jax.spatial import se3, so3

KINDS = ("free", "spherical", "revolute", "helical", "prismatic", "translation")


@cache
def _robot():
    """All joint kinds. Bodies have several parameters, out of order, and one body has none."""
    m = samples.random_tree(1, kinds=KINDS)
    bodies = (4, 1, 4, 0, 2, 4, 5, 2)
    screws = jax.random.normal(jax.random.key(3), (len(bodies), 6))
    pi = 0.3 * jax.random.normal(jax.random.key(4), (len(bodies),))
    return m, screw.Geometry(bodies, screws), pi


def test_reference_poses_are_products_of_exponentials():
    m, geometry, pi = _robot()
    changed = jax.jit(screw.with_geometry)(m, geometry, pi)
    after = jax.jit(lambda T, x: se3.compose(T, se3.exp(x)))
    for body in range(m.nb):
        T = m.placement_R[body], m.placement_p[body]
        for j in np.flatnonzero(np.array(geometry.bodies) == body):
            T = after(T, geometry.screws[j] * pi[j])
        assert_close((changed.placement_R[body], changed.placement_p[body]), T)
    same = jax.jit(screw.with_geometry)(m, geometry, 0 * pi)
    assert_close((same.placement_R, same.placement_p), (m.placement_R, m.placement_p))


def _closed(m, geometry, pi, s):
    frame = len(m.frame_names) - 1
    return (
        screw.frame_sensitivity(m, s.q, frame, geometry, pi),
        screw.inverse_dynamics_sensitivity(m, s.q, s.v, s.a, geometry, pi, s.f_ext),
        screw.forward_dynamics_sensitivity(m, s.q, s.v, s.tau, geometry, pi, s.f_ext),
    )


def _automatic(m, geometry, pi, s):
    """Autodiff through the raw algorithms of the robot with these parameters."""
    frame = len(m.frame_names) - 1
    robot = lambda x: screw.with_geometry(m, geometry, x)  # noqa: E731
    R, p = rbd.frame_placement(robot(pi), s.q, frame)
    dR, dp = jax.jacfwd(lambda x: rbd.frame_placement(robot(x), s.q, frame))(pi)
    turn = jax.vmap(lambda d: so3.vee(so3.matmul(R.T, d)), 2, 1)(dR)
    twist = jnp.concatenate([turn, R.T @ dp])
    dtau = jax.jacfwd(lambda x: rbd.rnea(robot(x), s.q, s.v, s.a, s.f_ext))(pi)
    da = jax.jacfwd(lambda x: rbd.aba(robot(x), s.q, s.v, s.tau, s.f_ext))(pi)
    return twist, dtau, da


@pytest.mark.slow
@pytest.mark.parametrize("where", ["nominal", "changed"])
def test_sensitivities_against_autodiff_of_the_raw_algorithms(where):
    m, geometry, pi = _robot()
    pi = 0 * pi if where == "nominal" else pi
    s = random_state(m, 1)
    ours = quick_jit(_closed)(m, geometry, pi, s)
    theirs = quick_jit(_automatic)(m, geometry, pi, s)
    for a, b in zip(ours, theirs, strict=True):
        assert float(jnp.abs(b).max()) > 0.1
        assert_close(a, b, atol=1e-11 * float(jnp.abs(b).max()))


def test_six_parameters_of_named_joints():
    m = samples.arm()
    geometry = screw.Geometry.of_joints(m, ("joint2", "joint5"))
    assert geometry.bodies == (1,) * 6 + (4,) * 6 and geometry.screws.shape == (12, 6)
    assert len(screw.Geometry.of_joints(m).bodies) == 6 * m.nb
    with pytest.raises(KeyError, match="has no joint 'elbow'"):
        screw.Geometry.of_joints(m, ("elbow",))
    for wrong in (-1, m.nb):
        with pytest.raises(ValueError, match="has the bodies 0 to 6"):
            screw.with_geometry(m, screw.Geometry((wrong,), jnp.eye(6)[:1]), jnp.zeros(1))
    with pytest.raises(
        ValueError, match=r"12 parameters: screws must .* pi \(12,\), got .* \(1,\)"
    ):
        screw.with_geometry(m, geometry, jnp.zeros(1))


def test_kinematic_calibration_of_an_arm():
    """Gauss–Newton on measured tool poses finds a geometry that is wrong by millimeters.

    The tool's pose does not determine all parameters. The pseudo-inverse takes the smallest change,
    and the tool's pose at other configurations is right.
    """
    m = samples.arm()
    geometry = screw.Geometry.of_joints(m)
    true = 0.005 * jax.random.normal(jax.random.key(0), (len(geometry.bodies),))
    q = random_states(m, 40).q
    seen, unseen = q[:30], q[30:]

    def tools(pi, q):
        robot = screw.with_geometry(m, geometry, pi)
        return jax.vmap(lambda q: rbd.frame_placement(robot, q, "tool"))(q)

    def gaps(pi, q):
        """Twists from the tool poses with these parameters to those of the true robot."""
        error = jax.vmap(lambda a, b: se3.log(se3.compose(se3.inverse(a), b)))
        return error(tools(pi, q), tools(true, q))

    @quick_jit
    def measured(pi):
        J = jax.vmap(lambda q: screw.frame_sensitivity(m, q, "tool", geometry, pi))(seen)
        return J.reshape(-1, pi.size), gaps(pi, seen).reshape(-1), jnp.abs(gaps(pi, unseen)).max()

    pi, errors = 0 * true, []
    for _ in range(5):
        J, gap, error = (np.asarray(x) for x in measured(pi))
        errors.append(float(error))
        pi = pi + np.linalg.lstsq(J, gap, rcond=within(1e-10, 1e-5))[0]
    print("largest error at new configurations", errors)
    assert errors[0] > 5e-3 and errors[-1] < within(1e-12, 1e-5)
    assert float(jnp.abs(pi - true).max()) > 1e-4  # The poses do not determine all of them.


def test_linearized_equations_are_the_derivatives_of_inverse_dynamics():
    m = samples.random_tree(1, kinds=("free", "spherical", "revolute"))
    s = random_state(m)
    ours = quick_jit(screw.linearized_equations)(m, s.q, s.v, s.a, s.f_ext)
    zero = jnp.zeros(m.nv)
    raw = lambda d, v, a: rbd.rnea(m, rbd.integrate(m, s.q, d), v, a, s.f_ext)  # noqa: E731
    K, D, M = quick_jit(jax.jacfwd(raw, (0, 1, 2)))(zero, s.v, s.a)
    assert_close(tuple(ours), (M, D, K), atol=1e-10)


@pytest.mark.slow
def test_linearized_dynamics_is_the_rate_of_the_step_derivatives():
    """``(∂x(h)/∂x₀ − 1) / h`` for small h, on a manifold with curved joints."""
    m = samples.random_tree(1, kinds=("free", "spherical", "revolute"))
    s = random_state(m)
    A, B = quick_jit(screw.linearized_dynamics)(m, s.q, s.v, s.tau, s.f_ext)
    derivatives = quick_jit(
        partial(rbd.simulate.step_derivatives, integrator="rk4"),
    )
    errors = []
    for h in (2e-3, 1e-3):
        # Central differences cancel the even terms in h.
        F, G = derivatives(m, s.q, s.v, s.tau, h, f_ext=s.f_ext)
        Fb, Gb = derivatives(m, s.q, s.v, s.tau, -h, f_ext=s.f_ext)
        errors.append(
            [float(jnp.abs(x).max()) for x in ((F - Fb) / (2 * h) - A, (G - Gb) / (2 * h) - B)]
        )
    print(errors)
    ratio = np.array(errors[0]) / np.array(errors[1])
    assert (np.abs(ratio - 4) < 0.2).all() and max(errors[1]) < 1e-3 * float(jnp.abs(A).max())
