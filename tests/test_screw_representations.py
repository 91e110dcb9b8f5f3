"""The four twist representations: twists, Jacobians, accelerations, jerks, inverse dynamics."""

import inspect
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import quick_jit
from helpers import assert_close, cast, model, random_state, random_states

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.spatial import so3

KINDS = screw.REPRESENTATIONS
BATCH = 3
NAMES = ["random_tree", "arm", pytest.param("floating_tree", marks=pytest.mark.slow)]
every = pytest.mark.parametrize("kind", KINDS)
robots = pytest.mark.parametrize("name", NAMES)


@cache
def robot(name: str) -> rbd.Model:
    """A sample under a gravity that no axis is aligned with."""
    return eqx.tree_at(lambda m: m.gravity, model(name), jnp.array([1.3, -3.1, -8.7]))


def _all_of(m, s, j):
    """Values at a state of motion, and their rates along it."""

    def moving(q, v, a):
        values = {}
        for kind in KINDS:
            values[kind] = dict(
                J=screw.jacobians(m, q, kind),
                V=screw.twists(m, q, v, kind),
                dV=screw.accelerations(m, q, v, a, kind),
            )
        return values, rbd.forward_kinematics(m, q)

    rate = rbd.rate_from_velocity(m, s.q, s.v)
    (x, C), (dx, dC) = jax.jvp(moving, (s.q, s.v, s.a), (rate, s.a, j))
    for kind in KINDS:
        x[kind]["ddV"] = screw.jerks(m, s.q, s.v, s.a, j, kind)
        x[kind]["tau"] = screw.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext, kind)
    return x, C, dx, dC, rbd.rnea(m, s.q, s.v, s.a, s.f_ext)


@cache
def facts(name: str):
    m = robot(name)
    s = random_states(m, BATCH)
    j = jax.random.normal(jax.random.key(9), s.v.shape)
    out = quick_jit(jax.vmap(_all_of, in_axes=(None, 0, 0)))(m, s, j)
    return m, s, *out


@every
@robots
def test_torques_are_those_of_rnea(name, kind):
    _, _, x, _, _, _, tau = facts(name)
    assert_close(x[kind]["tau"], tau, rtol=1e-12, atol=1e-11)


@robots
def test_body_fixed_twists_are_those_of_the_poses(name):
    """(97): C⁻¹ Ċ and Ċ C⁻¹, and the velocity of the body's origin."""
    _, _, x, (R, r), _, (dR, dr), _ = facts(name)
    w_body = so3.vee(so3.transpose(R) @ dR)
    w_world = so3.vee(dR @ so3.transpose(R))
    expected = {
        "body_fixed": (w_body, so3.rotate_inverse(R, dr)),
        "spatial": (w_world, dr - so3.cross(w_world, r)),
        "hybrid": (w_world, dr),
        "mixed": (w_body, dr),
    }
    for kind in KINDS:
        assert_close(x[kind]["V"], jnp.concatenate(expected[kind], axis=-1), atol=1e-11)


@every
@robots
def test_jacobians_and_rates(name, kind):
    """(101)–(102): V = J q̇; accelerations and jerks are the rates of what comes before."""
    _, s, x, _, dx, _, _ = facts(name)
    x, dx = x[kind], dx[kind]
    assert_close(jnp.einsum("sbcn,sn->sbc", x["J"], s.v), x["V"], atol=1e-11)
    assert_close(dx["V"], x["dV"], rtol=1e-12, atol=1e-11)
    assert_close(dx["dV"], x["ddV"], rtol=1e-12, atol=1e-11)
    by_jacobian = jnp.einsum("sbcn,sn->sbc", dx["J"], s.v)
    by_jacobian += jnp.einsum("sbcn,sn->sbc", x["J"], s.a)
    assert_close(by_jacobian, x["dV"], rtol=1e-12, atol=1e-11)


@every
@robots
def test_conversions_of_twists(name, kind):
    """(98)–(100), from each representation to each other."""
    _, _, x, C, _, _, _ = facts(name)
    for target in KINDS:
        got = screw.convert_twist(C, x[kind]["V"], kind, target)
        assert_close(got, x[target]["V"], atol=1e-11)


def test_jacobians_are_those_of_frames():
    m = robot("random_tree")
    s = random_state(m)
    pairs = {"body_fixed": "local", "spatial": "world", "hybrid": "local_world_aligned"}
    frames = [m.frame_names.index(n) for n in m.body_names if n in m.frame_names]

    @quick_jit
    def both(m, q):
        ours = {k: screw.jacobians(m, q, k) for k in pairs}
        return ours, {k: [rbd.jacobian(m, q, f, r) for f in frames] for k, r in pairs.items()}

    ours, theirs = both(m, s.q)
    for kind in pairs:
        for f, J in zip(frames, theirs[kind], strict=True):
            assert_close(ours[kind][m.topology.frame_bodies[f]], J)


# --- what every function must do ---------------------------------------------------------------


def test_unknown_representation():
    m = robot("arm")
    s = random_state(m)
    plain = inspect.unwrap(screw.jacobians)
    with pytest.raises(ValueError, match="jacobians: representation must be one of .*'world'"):
        plain(m, s.q, "world")
    with pytest.raises(ValueError, match="jerks: j has shape"):
        screw.jerks(m, s.q, s.v, s.a, s.v[:-1])


def _still() -> rbd.Model:
    return rbd.build_model(rbd.RobotSpec("rock", (rbd.LinkSpec("base", 1.0),), ()))


def _shapes(m: rbd.Model, kind: str) -> None:
    nq, nv, nb = m.nq, m.nv, m.nb
    S = lambda *s: jax.ShapeDtypeStruct(s, m.dtype)  # noqa: E731
    run = lambda f, *x: jax.eval_shape(partial(f, representation=kind), m, *x)  # noqa: E731
    q, v = S(nq), S(nv)
    tau = run(screw.inverse_dynamics, q, v, v, S(nb, 6))
    assert (tau.shape, tau.dtype) == ((nv,), m.dtype)
    bodies = (
        run(screw.twists, q, v),
        run(screw.accelerations, q, v, v),
        run(screw.jerks, q, v, v, v),
    )
    for out in bodies:
        assert (out.shape, out.dtype) == ((nb, 6), m.dtype)
    J = run(screw.jacobians, q)
    assert (J.shape, J.dtype) == ((nb, 6, nv), m.dtype)


@every
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_shapes_and_dtypes(kind, dtype):
    """Also of a robot that cannot move and of one body; traced only, in both precisions."""
    one = rbd.samples.random_tree(5, kinds=("free",))
    for m in (robot("random_tree"), one, _still()):
        _shapes(cast(m, dtype), kind)


@pytest.mark.slow
def test_derivatives_of_the_recursions_are_those_of_rnea():
    """Gradients by state and model agree, at zero velocity and at unnormalised quaternions too."""
    m = rbd.samples.random_tree(2, kinds=("revolute", "spherical"))
    s = random_state(m)
    still = s._replace(v=jnp.zeros_like(s.v), q=1.1 * s.q)
    weights = jnp.cos(jnp.arange(m.nv, dtype=m.dtype))

    def gradients(m, s):
        losses = {
            kind: lambda m, s, k=kind: (
                weights @ screw.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext, k)
            )
            for kind in KINDS
        }
        losses["rnea"] = lambda m, s: weights @ rbd.rnea(m, s.q, s.v, s.a, s.f_ext)
        return {k: jax.grad(f, (0, 1))(m, s) for k, f in losses.items()}

    got = quick_jit(jax.vmap(gradients, in_axes=(None, 0)))(
        m, jax.tree.map(lambda *x: jnp.stack(x), s, still)
    )
    for kind in KINDS:
        assert_close(got[kind], got["rnea"], rtol=1e-11, atol=1e-10)
        assert np.abs(got[kind][0].placement_p).max() > 1e-3
