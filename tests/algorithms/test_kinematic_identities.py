"""Kinematic identities: momenta, Jacobians, frames and their rates."""

from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import deepest_frame, quick_jit
from support.helpers import assert_close, central_difference, random_state, random_states
from support.physical_facts import BATCH, NAMES, close, facts, matvec, names, robot, straight

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.spatial import se3

REFERENCES = ("local", "world", "local_world_aligned")
FRAME_NAMES = names("random_tree0")


def frame_facts_of_state(m, s):
    x = SimpleNamespace()
    q, v, a = s.q, s.v, s.a
    frame = deepest_frame(m)
    rate = rbd.rate_from_velocity(m, q, v)
    place = lambda d: rbd.frame_placement(m, rbd.integrate(m, q, d), frame)  # noqa: E731
    x.R, x.p = rbd.frame_placement(m, q, frame)
    x.dR, x.dp = jax.jacfwd(place)(jnp.zeros_like(v))
    jacobians = lambda q: [rbd.jacobian(m, q, frame, r) for r in REFERENCES]  # noqa: E731
    on_path = lambda t: jacobians(rbd.integrate(m, q, t[0] * v))  # noqa: E731
    x.J = jacobians(q)
    x.dJ_numeric = [d[..., 0] for d in central_difference(on_path, jnp.zeros(1))]
    x.dJ = [rbd.algorithms.jacobian_time_derivative(m, q, v, frame, r) for r in REFERENCES]
    twists = lambda q, v: [rbd.frame_velocity(m, q, v, frame, r) for r in REFERENCES]  # noqa: E731
    x.twist, x.twist_rate = jax.jvp(twists, (q, v), (rate, a))
    x.acceleration = [rbd.algorithms.frame_acceleration(m, q, v, a, frame, r) for r in REFERENCES]
    x.V_body = rbd.algorithms.body_velocities(m, q, v)[m.topology.frame_bodies[frame]]
    return vars(x)


@cache
def frame_facts(name: str):
    m = robot(name)
    s = random_states(m, BATCH)
    x = quick_jit(jax.vmap(frame_facts_of_state, in_axes=(None, 0)))(m, s)
    return m, *jax.tree.map(np.asarray, (s, SimpleNamespace(**x).__dict__))


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_linear_momentum_is_mass_times_the_velocity_of_the_center(name):
    m, _, _, x = facts(name)
    close(x.momentum[:, 3:], np.asarray(rbd.total_mass(m)) * x.dcom)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_body_accelerations_are_rates_of_body_velocities(name):
    _, _, _, x = facts(name)
    close(x.A_bodies, x.dV_bodies)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_angular_momentum_is_that_of_the_bodies(name):
    """Written out with moments of inertia about each body's own center of mass."""
    m, _, _, x = facts(name)
    I = rbd.spatial.inertia
    mass, c, Jc = (np.asarray(f(m.inertia)) for f in (I.mass, I.com, I.inertia_com))
    w, u = x.V_bodies[..., :3], x.V_bodies[..., 3:]
    velocity = np.einsum("nbij,nbj->nbi", x.R, u + np.cross(w, c))
    arm = np.einsum("nbij,bj->nbi", x.R, c) + x.p - x.com[:, None]
    spin = np.einsum("nbij,bjk,nbk->nbi", x.R, Jc, w)
    linear = mass[:, None] * velocity
    close(x.momentum[:, :3], (spin + np.cross(arm, linear)).sum(1))


@pytest.mark.float64
@pytest.mark.parametrize("name", FRAME_NAMES)
def test_jacobians_are_derivatives_of_the_placement(name):
    _, _, x = frame_facts(name)
    R, p, u = x["R"], x["p"], x["dp"]
    spin = np.einsum("nijk,nlj->nilk", x["dR"], R)  # [ω_k] = ∂_k R Rᵀ
    w = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    J = dict(zip(REFERENCES, x["J"], strict=True))
    close(J["local_world_aligned"], np.concatenate([w, u], axis=1))
    at_origin = u - np.cross(w, p[:, :, None], axis=1)
    close(J["world"], np.concatenate([w, at_origin], axis=1))
    turned = [np.einsum("nji,njk->nik", R, y) for y in (w, u)]
    close(J["local"], np.concatenate(turned, axis=1))


@pytest.mark.float64
@pytest.mark.parametrize("name", FRAME_NAMES)
def test_twist_of_a_link_is_that_of_its_body(name):
    m, _, x = frame_facts(name)
    if m.frame_names[deepest_frame(m)] not in m.body_names:
        pytest.skip("the frame is not that of a body")
    close(x["twist"][0], x["V_body"])


@pytest.mark.float64
@pytest.mark.parametrize("name", FRAME_NAMES)
@pytest.mark.parametrize("k", range(3), ids=REFERENCES)
def test_jacobian_time_derivative(name, k):
    m, s, x = frame_facts(name)
    close(x["dJ"][k], x["dJ_numeric"][k], 1e-9, vanish=straight(m))
    close(x["twist"][k], matvec(x["J"][k], s.v))
    close(x["acceleration"][k], x["twist_rate"][k])


def test_frames_by_name_and_by_number_and_of_the_base():
    m = robot("quadruped")
    q = random_state(m).q
    frame = m.frame_names.index("lh_foot")
    both = [jax.jit(lambda q, f=f: [rbd.jacobian(m, q, f, r) for r in REFERENCES])(q)
            for f in ("lh_foot", frame)]  # fmt: skip
    assert_close(*both, atol=0)
    fixed = samples.arm()

    @jax.jit
    def places(q):
        of = (
            partial(rbd.frame_placement, fixed, q),
            partial(rbd.algorithms.relative_placement, fixed, q),
        )
        there, back = of[1]("tool", "base"), of[1]("base", "tool")
        ends = of[0]("base"), of[0]("tool")
        return rbd.jacobian(fixed, q, "base"), ends, there, se3.compose(there, back)

    still, (base, tool), there, loop = places(random_state(fixed).q)
    assert not jnp.any(still)
    assert_close(base, (jnp.eye(3), jnp.zeros(3)))
    assert_close(there, tool)
    assert_close(loop, (jnp.eye(3), jnp.zeros(3)))
