"""Everything that physical identities speak of, computed once for each robot."""

from functools import cache, partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import samples
from support.calls import quick_jit
from support.helpers import SINGLE_KIND, Compiled, model, random_states

run = Compiled(rbd)
BATCH, SETS = 4, 8


def floating_random(seed: int) -> rbd.Model:
    """A random tree of all kinds on one free root without rotor inertia or damping."""
    while True:
        robot = samples.random_tree(seed)
        if robot.topology.kinds[0] == "free":
            break
        seed += 1000
    leaves = lambda m: (m.armature, m.damping)  # noqa: E731
    return eqx.tree_at(leaves, robot, tuple(x.at[:6].set(0) for x in leaves(robot)))


ROBOTS = {
    **{f"random_tree{seed}": partial(samples.random_tree, seed) for seed in range(3)},
    "floating_random": partial(floating_random, 0),
    "quadruped": samples.quadruped,
    **{name: partial(model, name) for name in SINGLE_KIND},
}


def names(*default: str) -> list:
    return [pytest.param(n, marks=() if n in default else pytest.mark.slow) for n in ROBOTS]


NAMES = names("quadruped")


@cache
def robot(name: str) -> rbd.Model:
    """A robot of ROBOTS under a gravity that no axis is aligned with."""
    return eqx.tree_at(lambda m: m.gravity, ROBOTS[name](), jnp.array([1.3, -3.1, -8.7]))


def facts_of_state(m, s, prescribed):
    """Everything that the identities speak of, at one state."""
    x = SimpleNamespace()
    q, v, a, tau, f_ext = s
    zero = jnp.zeros_like(v)
    no_wrench = jnp.zeros_like(f_ext)
    rate = rbd.rate_from_velocity(m, q, v)

    cases = (v, a, f_ext), (v, a, no_wrench), (v, zero, f_ext), (zero, zero, no_wrench)
    cases = [jnp.stack(c) for c in zip(*cases, strict=True)]
    x.tau_id, x.tau_without, x.h, x.g = jax.vmap(lambda v, a, f: rbd.rnea(m, q, v, a, f))(*cases)
    x.a_fd, x.a_back = jax.vmap(lambda t: rbd.aba(m, q, v, t, f_ext))(jnp.stack([tau, x.tau_id]))
    x.tau_back = rbd.rnea(m, q, v, x.a_fd, f_ext)
    x.hybrid = jax.vmap(lambda p: rbd.hybrid_dynamics(m, q, v, a, tau, p, f_ext))(prescribed)
    x.M, x.dM = jax.jvp(lambda q: rbd.crba(m, q), (q,), (rate,))

    def moving(q, v):
        return dict(
            T=rbd.kinetic_energy(m, q, v),
            V=rbd.potential_energy(m, q),
            com=rbd.center_of_mass(m, q),
            momentum=rbd.centroidal_momentum(m, q, v),
            V_bodies=rbd.algorithms.body_velocities(m, q, v),
        )

    value, change = jax.jvp(moving, (q, v), (rate, x.a_fd))
    for name in value:
        setattr(x, name, value[name])
        setattr(x, "d" + name, change[name])
    x.A_bodies = rbd.algorithms.body_accelerations(m, q, v, x.a_fd)
    x.J_bodies = jax.vmap(lambda e: rbd.algorithms.body_velocities(m, q, e), out_axes=-1)(
        jnp.eye(m.nv)
    )
    x.R, x.p = rbd.forward_kinematics(m, q)
    slope = lambda d: rbd.potential_energy(m, rbd.integrate(m, q, d))  # noqa: E731
    x.V_slope = jax.jacfwd(slope)(zero)
    return vars(x)


@cache
def facts(name: str) -> tuple[rbd.Model, object, np.ndarray, SimpleNamespace]:
    m = robot(name)
    s = random_states(m, BATCH)
    key = jax.random.key(7)
    sets = jax.random.bernoulli(key, 0.5, (BATCH, SETS, m.nb)).at[:, 0].set(False)
    sets = sets.at[:, 1].set(True)
    x = quick_jit(jax.vmap(facts_of_state, in_axes=(None, 0, 0)))(m, s, sets)
    s, x = jax.tree.map(np.asarray, (s, x))
    return m, s, np.asarray(sets), SimpleNamespace(**x)


def straight(m) -> bool:
    """Whether nothing in the robot turns, so that its velocity terms vanish."""
    return set(m.topology.kinds) <= {"prismatic", "translation"}


def close(a, b, tol=1e-11, vanish=False):
    """Equal relative to the largest number on either side; or both zero."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    if vanish:
        assert max(np.abs(a).max(), np.abs(b).max()) < 1e-12
        return
    scale = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    assert scale > 1e-3, "nothing to compare: both sides vanish"
    np.testing.assert_allclose(a, b, rtol=0, atol=tol * scale, equal_nan=False)


matvec = partial(np.einsum, "...ij,...j->...i")
