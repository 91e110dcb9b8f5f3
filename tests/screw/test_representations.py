"""The four twist representations: twists, Jacobians, accelerations, jerks, inverse dynamics."""

import inspect
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, model, random_state, random_states

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.spatial import so3

KINDS = screw.REPRESENTATIONS
BATCH = 3
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in ("arm", "floating_tree", "quadruped")]
NAMES = ["random_tree", *SLOW]
every = pytest.mark.parametrize("kind", KINDS)
robots = pytest.mark.parametrize("name", NAMES)


@cache
def robot(name: str) -> rbd.Model:
    """A sample robot with gravity that is not aligned with any axis."""
    return eqx.tree_at(lambda m: m.gravity, model(name), jnp.array([1.3, -3.1, -8.7]))


PAIRS = {"body_fixed": "local", "spatial": "world", "hybrid": "local_world_aligned"}


def _body_frames(m: rbd.Model) -> list[int]:
    """The frames of the first and the last body that have a frame of their own name."""
    frames = [m.frame_names.index(n) for n in m.body_names if n in m.frame_names]
    return [frames[0], frames[-1]]


def _twist_of(C, dC, kind: str):
    """The twist of a pose that moves with Ċ, by its definition."""
    (R, r), (dR, dr) = C, dC
    in_body = kind in ("body_fixed", "mixed")
    turning = so3.matmul(*((so3.transpose(R), dR) if in_body else (dR, so3.transpose(R))))
    w = so3.vee(turning)
    v = {"body_fixed": so3.rotate_inverse(R, dr), "spatial": dr - so3.cross(w, r)}.get(kind, dr)
    return jnp.concatenate([w, v], axis=-1)


def _all_of(m, s, j):
    """Values at a state of motion, and their time derivatives."""

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
        x[kind]["dV sums"] = screw.acceleration_sums(m, s.q, s.v, s.a, kind)
        x[kind]["ddV sums"] = screw.jerk_sums(m, s.q, s.v, s.a, j, kind)
        x[kind]["to"] = {k: screw.convert_twist(C, x[kind]["V"], kind, k) for k in KINDS}
        x[kind]["of pose"] = _twist_of(C, dC, kind)
        x[kind]["tau"] = screw.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext, kind)
    frames = {k: [rbd.jacobian(m, s.q, f, r) for f in _body_frames(m)] for k, r in PAIRS.items()}
    return x, dx, rbd.rnea(m, s.q, s.v, s.a, s.f_ext), frames


@cache
def facts(name: str):
    m = robot(name)
    s = random_states(m, BATCH)
    j = jax.random.normal(jax.random.key(9), s.v.shape)
    out = quick_jit(jax.vmap(_all_of, in_axes=(None, 0, 0)))(m, s, j)
    return m, *jax.tree.map(np.asarray, (s, *out))


@pytest.mark.slow
@every
@robots
def test_torques_are_those_of_rnea(name, kind):
    _, _, x, _, tau, _ = facts(name)
    assert_close(x[kind]["tau"], tau, rtol=1e-12, atol=1e-11)


@pytest.mark.slow
@robots
def test_body_fixed_twists_are_those_of_the_poses(name):
    """(97): C⁻¹ Ċ and Ċ C⁻¹, and the velocity of the body's origin."""
    x = facts(name)[2]
    for kind in KINDS:
        assert_close(x[kind]["V"], x[kind]["of pose"], atol=1e-11)


@pytest.mark.slow
@every
@robots
def test_jacobians_and_rates(name, kind):
    """(101)–(102): V = J q̇. Accelerations are rates of twists, and jerks of accelerations."""
    _, s, x, dx, *_ = facts(name)
    x, dx = x[kind], dx[kind]
    assert_close(np.einsum("sbcn,sn->sbc", x["J"], s.v), x["V"], atol=1e-11)
    assert_close(dx["V"], x["dV"], rtol=1e-12, atol=1e-11)
    assert_close(dx["dV"], x["ddV"], rtol=1e-12, atol=1e-11)
    by_jacobian = np.einsum("sbcn,sn->sbc", dx["J"], s.v)
    by_jacobian += np.einsum("sbcn,sn->sbc", x["J"], s.a)
    assert_close(by_jacobian, x["dV"], rtol=1e-12, atol=1e-11)


@pytest.mark.slow
@every
@robots
def test_explicit_sums_are_the_recursions(name, kind):
    """(6), (13), (17), (21), (29), (31), (33)."""
    x = facts(name)[2][kind]
    assert_close(x["dV sums"], x["dV"], rtol=1e-12, atol=1e-11)
    assert_close(x["ddV sums"], x["ddV"], rtol=1e-12, atol=1e-10)


@pytest.mark.slow
@every
@robots
def test_conversions_of_twists(name, kind):
    """(98)–(100), between all pairs of representations."""
    x = facts(name)[2]
    for target in KINDS:
        assert_close(x[kind]["to"][target], x[target]["V"], atol=1e-11)


@pytest.mark.slow
@robots
def test_jacobians_are_those_of_frames(name):
    m, _, x, *_, frames = facts(name)
    for kind, Js in frames.items():
        for f, J in zip(_body_frames(m), Js, strict=True):
            assert_close(x[kind]["J"][:, m.topology.frame_bodies[f]], J)


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
    """Also for a robot that cannot move and for one body, by tracing, in both precisions."""
    one = rbd.samples.random_tree(5, kinds=("free",))
    for m in (robot("random_tree"), one, _still()):
        _shapes(cast(m, dtype), kind)


@pytest.mark.slow
def test_derivatives_of_the_recursions_are_those_of_rnea():
    """Gradients by state and model agree, also at zero velocity and unnormalized quaternions."""
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
