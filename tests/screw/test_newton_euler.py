"""All Newton–Euler equations of a body are the rate of the spatial momentum. Müller §3."""

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import assert_close

from rbd_jax import screw
from rbd_jax.spatial import inertia, motion, se3, so3


def _turn(R, X):
    return jnp.concatenate([so3.rotate(R, X[..., :3]), so3.rotate(R, X[..., 3:])], axis=-1)


def _velocity(C, V):
    """Ċ of a pose that moves with the body-fixed twist V."""
    return so3.matmul(C[0], so3.hat(V[:, :3])), so3.rotate(C[0], V[:, 3:])


def _rates(C, V, dV, M):
    """Twist, its rate and inertia in each representation, and the rate of spatial momentum."""
    R, r = C

    def all_of(C, V):
        twists = {k: screw.convert_twist(C, V, "body_fixed", k) for k in screw.REPRESENTATIONS}
        Ms = inertia.matrix(inertia.to_parent(C, M))
        Pi = inertia.apply(M, V)
        return twists, Ms, motion.wrench_to_parent(C, Pi), _turn(C[0], Pi)

    state, velocity = (C, V), (_velocity(C, V), dV)
    (V_of, Ms, _, Pi), (dV_of, dMs, W, dPi) = jax.jvp(all_of, state, velocity)
    turned = inertia.to_parent((R, jnp.zeros_like(r)), M)
    pair = lambda kind: (V_of[kind], dV_of[kind])  # noqa: E731
    wrenches = {
        "body_fixed": screw.body_fixed_wrench(M, *pair("body_fixed")),
        "spatial": screw.spatial_wrench(inertia.to_parent(C, M), *pair("spatial")),
        "hybrid": screw.hybrid_wrench(turned, *pair("hybrid")),
        "mixed": screw.mixed_wrench(M, R, *pair("mixed")),
    }
    zero = jnp.zeros_like(V)
    world = zero.at[:, 3:].set(V_of["hybrid"][:, 3:])
    in_frame = {
        "body_fixed": screw.wrench_in_frame(M, V, dV, V),
        "spatial": screw.wrench_in_frame(inertia.to_parent(C, M), *pair("spatial"), zero),
        "hybrid": screw.wrench_in_frame(turned, *pair("hybrid"), world),
    }
    moving = so3.cross(V_of["hybrid"][:, 3:], Pi[:, 3:])
    return V_of, (Ms, dMs), W, wrenches, in_frame, dPi.at[:, :3].add(moving)


def _in_frames(C, V, dV, M):
    """The wrench at a frame j in the axes of k, by (60) and (63), and its right value."""
    Cj, Vj, dVj = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), (C, V, dV))
    Ck, Vk = jax.tree.map(lambda x: jnp.roll(x, 2, axis=0), (C, V))
    W = motion.wrench_to_parent(C, screw.body_fixed_wrench(M, V, dV))

    def at_frame(C, V, Cj, Vj, Rk):
        """Twist and inertia of the body at the origin of j in the axes of k; velocity of j."""
        turn = so3.matmul(so3.transpose(Rk), Cj[0])
        U = _turn(turn, motion.to_child(Cj, motion.to_parent(C, V)))
        in_j = inertia.to_parent(se3.inverse(Cj), inertia.to_parent(C, M))
        M_jk = inertia.to_parent((turn, jnp.zeros_like(C[1])), in_j)
        return U, M_jk, so3.rotate(turn, Vj[:, 3:])

    pairs = []
    for k, V_k in ((Cj, Vj), (Ck, Vk)):  # k = j is equation (60)
        x = C, V, Cj, Vj, k[0]
        dx = _velocity(C, V), dV, _velocity(Cj, Vj), dVj, _velocity(k, V_k)[0]
        (U, M_jk, v_j), (dU, _, _) = jax.jvp(at_frame, x, dx)
        frame = jnp.concatenate([V_k[:, :3], v_j], axis=-1)
        turn = so3.matmul(so3.transpose(k[0]), Cj[0])
        expected = _turn(turn, motion.wrench_to_child(Cj, W))
        pairs.append((screw.wrench_in_frame(M_jk, U, dU, frame), expected))
    return pairs


@pytest.fixture(scope="module")
def body():
    """Six bodies in motion: pose, twist and acceleration in body axes, inertia."""
    return jax.jit(_body)()


def _body():
    keys = jax.random.split(jax.random.key(0), 4)
    R, r = so3.exp(jax.random.normal(keys[0], (6, 3))), jax.random.normal(keys[1], (6, 3))
    V, dV = jax.random.normal(keys[2], (2, 6, 6))
    A = jax.random.normal(keys[3], (6, 4, 4))
    return (R, r), V, dV, inertia.from_pseudo(A @ so3.transpose(A))


@pytest.fixture(scope="module")
def facts(body):
    return quick_jit(_rates)(*body)


def test_wrenches_are_rates_of_momentum(body, facts):
    """(36), and from it (38), (41), (53), (56)–(57)."""
    (R, _), (_, _, W, wrenches, _, hybrid) = body[0], facts
    assert_close(wrenches["spatial"], W, rtol=1e-12, atol=1e-11)
    Wb = motion.wrench_to_child(body[0], W)
    assert_close(wrenches["body_fixed"], Wb, rtol=1e-12, atol=1e-11)
    Wh = _turn(R, Wb)
    assert_close(wrenches["hybrid"], Wh, rtol=1e-12, atol=1e-11)
    assert_close(hybrid, Wh, rtol=1e-12, atol=1e-11)  # (52), about a point that moves
    Wm = jnp.concatenate([Wb[:, :3], Wh[:, 3:]], axis=-1)
    assert_close(wrenches["mixed"], Wm, rtol=1e-12, atol=1e-11)


def test_newton_euler_in_an_arbitrary_frame(body, facts):
    """(60) and (63), with the body-fixed, spatial and hybrid equations as special cases."""
    for got, expected in quick_jit(_in_frames)(*body):
        assert_close(got, expected, rtol=1e-11, atol=1e-10)
    _, _, _, wrenches, in_frame, _ = facts
    for kind, W in in_frame.items():
        assert_close(W, wrenches[kind], rtol=1e-12, atol=1e-11)


def test_skew_symmetry_of_the_equations_of_a_body(facts):
    """(37) and Remark 2: Ṁˢ − 2Cˢ is antisymmetric for Cˢ = −ad_Vᵀ Mˢ."""
    V_of, (Ms, dMs), *_ = facts
    ad = motion.ad_matrix(V_of["spatial"])
    assert_close(dMs, -so3.transpose(ad) @ Ms - Ms @ ad, rtol=1e-12, atol=1e-10)
    N = dMs + 2 * so3.transpose(ad) @ Ms
    assert_close(N, -so3.transpose(N), rtol=1e-12, atol=1e-10)
    assert float(jnp.abs(N).max()) > 1
