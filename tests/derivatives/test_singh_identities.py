"""The identities J1–J9 of Singh et al., 2022, appendix C, from which IDSVA is derived.

Left sides are automatic derivatives of the library's ground coordinates along the free modes of
a joint, ``integrate(q, ε e_p)``; right sides the paper's spatial cross products. Both on a tree
of every joint kind, joints of several degrees of freedom included. No misprint was found; J3
writes its force once as a scalar ``f``. The origin is the world's: that of
:func:`world_frame.quantities` moves with a root that translates.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_states

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.algorithms import world_frame
from rbd_jax.algorithms.passive import base_acceleration
from rbd_jax.algorithms.tree import per_dof
from rbd_jax.model.topology import NV
from rbd_jax.spatial import inertia
from rbd_jax.spatial.motion import cross_twist, cross_wrench

BATCH = 3
IDENTITIES = tuple(f"J{k}" for k in range(1, 10))
SEEDS = (2, pytest.param(3, marks=pytest.mark.slow))


def quantities(m, q, v, a):
    """``(S, I, v, ξ, γ)`` of Singh, §III, with the world's origin."""
    g = world_frame.quantities_at(m, *rbd.forward_kinematics(m, q))
    moving = world_frame.motion(m, g, v, jnp.zeros_like(a), None)
    starting = world_frame.motion(m, g, jnp.zeros_like(v), a, None)
    xi, gamma = (x.a - base_acceleration(m)[None] for x in (moving, starting))
    return g.S, g.I, moving.v, xi, gamma


def left_sides(m, s, f, u):
    """The derivatives, with axes (body or degree of freedom i, degree of freedom j, component)."""

    def along(d):
        q, v = rbd.integrate(m, s.q, d[: m.nv]), s.v + d[m.nv :]
        S, I, vb, xi, gamma = quantities(m, q, v, s.a)
        return {
            "J1": S,
            "J2": cross_wrench(vb, f),
            "J3": jnp.sum(S * per_dof(m.topology, f), axis=-1, keepdims=True),
            "J4": inertia.apply(I, u),
            "J5": inertia.apply(I, vb),
            "J6": xi,
            "J7": gamma,
            "J8": vb,
            "J9": xi,
        }

    found = jax.jacfwd(along)(jnp.zeros(2 * m.nv))
    by_v = {name: slice(m.nv, None) for name in ("J8", "J9")}
    first = slice(m.nv)
    return {n: jnp.swapaxes(x[..., by_v.get(n, first)], 1, 2) for n, x in found.items()}


def right_sides(m, s, f, u):
    """The paper's case ``j ⪯ i`` for all pairs (i, j), with the same axes."""
    topology = m.topology
    S, I, v, xi, gamma = quantities(m, s.q, s.v, s.a)

    def above(x):
        """The row of the parent λ(j), zero for the world."""
        rows = jnp.concatenate([x, jnp.zeros_like(x[:1])])[topology.tree.parent_rows]
        return per_dof(topology, rows)[None]

    v_up, xi_up, gamma_up = above(v), above(xi), above(gamma)
    vj, Sj, Si, fi = per_dof(topology, v)[None], S[None], S[:, None], per_dof(topology, f)
    dS, dPsi = cross_twist(vj, Sj), cross_twist(v_up, Sj)  # Algorithm 1, lines 5 and 6
    I, v, xi, gamma, f, u, fi = (x[:, None] for x in (I, v, xi, gamma, f, u, fi))
    return {
        "J1": cross_twist(Sj, Si),
        "J2": cross_wrench(cross_twist(v_up - v, Sj), f),
        "J3": -jnp.sum(Si * cross_wrench(Sj, fi), axis=-1, keepdims=True),
        "J4": cross_wrench(Sj, inertia.apply(I, u)) + inertia.apply(I, cross_twist(u, Sj)),
        "J5": cross_wrench(Sj, inertia.apply(I, v)) + inertia.apply(I, dPsi),
        "J6": cross_twist(v_up - v, dPsi) + cross_twist(xi_up - xi, Sj),
        "J7": cross_twist(gamma_up - gamma, Sj),
        "J8": jnp.broadcast_to(Sj, (m.nb, m.nv, 6)),
        "J9": dPsi + dS - cross_twist(v, Sj),
    }


@cache
def both_sides(seed: int):
    """The robot and both sides at a batch of states, by name."""
    m = samples.random_tree(seed)
    states = random_states(m, BATCH, seed)
    u = jax.random.normal(jax.random.key(seed), (BATCH, m.nb, 6))

    @quick_jit
    def run(m, states, u):
        one = lambda s, u: (left_sides(m, s, s.f_ext, u), right_sides(m, s, s.f_ext, u))  # noqa: E731
        return jax.vmap(one)(states, u)

    return m, *jax.tree.map(np.asarray, run(m, states, u))


@pytest.mark.float64
@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_identity_of_singh(seed, identity):
    """The formula where joint j is body i's own or above it (j ⪯ i), zero everywhere else."""
    m, left, right = both_sides(seed)
    left, right, bodies = left[identity], right[identity], m.topology.dof_bodies
    rows = bodies if left.shape[1] == m.nv else np.arange(m.nb)
    precedes = m.topology.tree.ancestor_mask[np.ix_(rows, bodies)]
    scale = np.abs(right[:, precedes]).max()
    np.testing.assert_allclose(left[:, precedes], right[:, precedes], rtol=0, atol=1e-12 * scale)
    assert not left[:, ~precedes].any()
    assert np.abs(right[:, ~precedes]).max() > 1e-2 * scale  # there the formula would be wrong
    kinds = np.array(m.topology.kinds)[bodies]
    for kind in NV:
        assert np.abs(right[:, precedes & (kinds == kind)[None]]).max() > 1e-3 * scale, kind
