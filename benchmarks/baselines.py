"""The baselines of Singh, Table II: what IDSVA and FDSVA are compared with.

- RNEACR: the chain rule on RNEA, one directional derivative for each of the 2 nv tangents. Twice:
  by Kim's Table 5, which is that chain rule written out, and by forward-mode autodiff.
- ABACR: the chain rule on ABA, by forward-mode autodiff.
- Central differences of ABA, of Table I.
- FDCR: ``∂FD = −M⁻¹ RNEACR``, M⁻¹ apart.
- Pinocchio ID Derivs: the algorithm of Pinocchio before IDSVA (2.6.0), of which no release can be
  installed. It is written here after the paper's description and after Carpentier and Mansard,
  "Analytical derivatives of rigid body dynamics algorithms", 2018.
- IDSVA in body coordinates, for Fig. 3.

All work in the tangent space: column k is along ``integrate(q, ε e_k)``.
"""

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.algorithms import world_frame
from rbd_jax.algorithms.passive import base_acceleration
from rbd_jax.algorithms.tree import (
    ancestor_matrices,
    leaf_to_root,
    per_dof,
    root_to_leaf,
    subtree_sum,
)
from rbd_jax.derivatives.kim.perturbation import perturbation_of
from rbd_jax.derivatives.kim.table5 import kim_inverse_dynamics_derivative
from rbd_jax.derivatives.linearization import coriolis_block, linearization_point, parents
from rbd_jax.model import joint_placements, motion_subspace
from rbd_jax.spatial import inertia, linear, so3
from rbd_jax.spatial.motion import (
    ad_matrix,
    cross_twist,
    cross_wrench,
    to_child,
    wrench_to_parent,
)


def rneacr_kim(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v)`` by Kim, Table 5, over all unit tangents."""
    eye = jnp.eye(model.nv, dtype=q.dtype)

    def along_q(e):
        p = perturbation_of(model, q, dq=rbd.rate_from_velocity(model, q, e))
        return kim_inverse_dynamics_derivative(model, q, v, a, p)[1]

    def along_v(e):
        p = perturbation_of(model, q, dv=e)
        return kim_inverse_dynamics_derivative(model, q, v, a, p)[1]

    return jax.vmap(along_q, out_axes=1)(eye), jax.vmap(along_v, out_axes=1)(eye)


def _in_chart(function, model, q, v, u):
    def at(dq, v):
        return function(model, rbd.integrate(model, q, dq), v, u)

    return jax.jacfwd(at, (0, 1))(jnp.zeros_like(v), v)


def rneacr(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v)`` by forward-mode autodiff of RNEA."""
    return _in_chart(rbd.rnea, model, q, v, a)


def abacr(model, q, v, tau):
    """``(∂a/∂q, ∂a/∂v)`` by forward-mode autodiff of ABA."""
    return _in_chart(rbd.aba, model, q, v, tau)


def differences(model, q, v, tau):
    """``(∂a/∂q, ∂a/∂v)`` by central differences of ABA on the manifold; Singh, Table I."""
    h = float(jnp.finfo(q.dtype).eps) ** (1 / 3)

    def slope(f):
        def along(e):
            return (f(h * e) - f(-h * e)) / (2 * h)

        return jax.vmap(along, out_axes=1)(jnp.eye(model.nv, dtype=q.dtype))

    by_q = slope(lambda d: rbd.aba(model, rbd.integrate(model, q, d), v, tau))
    return by_q, slope(lambda d: rbd.aba(model, q, v + d, tau))


def fdcr(model, q, v, tau):
    """``(∂a/∂q, ∂a/∂v, M⁻¹)`` with RNEACR; Singh (5)."""
    a = rbd.aba(model, q, v, tau)
    dq, dv = rneacr(model, q, v, a)
    factor = jax.scipy.linalg.cho_factor(rbd.crba(model, q))
    Minv = jax.scipy.linalg.cho_solve(factor, jnp.eye(model.nv, dtype=q.dtype))
    return -jnp.matmul(Minv, dq), -jnp.matmul(Minv, dv), Minv


def pinocchio_id(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v, M)`` by the algorithm of Pinocchio before IDSVA, in ground coordinates.

    The rate D of each composite inertia is a full matrix of 36 numbers, and each ancestor of a body
    takes products with the rows ``Sᵀ I`` and ``Sᵀ D`` of six numbers. IDSVA carries 12 numbers of D
    and takes three numbers of the second row.
    """
    topology = model.topology
    g = world_frame.quantities(model, q)
    r = linearization_point(model, g, world_frame.motion(model, g, v, a, None))
    h, cross, I6 = inertia.apply(r.I, r.v), ad_matrix(r.v), inertia.matrix(r.I)
    n, f = so3.hat(h[:, :3]), so3.hat(h[:, 3:])
    turned = jnp.concatenate([jnp.concatenate([n, f], -1), jnp.concatenate([f, 0 * f], -1)], -2)
    transposed = jnp.swapaxes(cross, -1, -2)
    D = -jnp.matmul(transposed, I6, precision="highest")
    D = D - jnp.matmul(I6, cross, precision="highest") - turned  # v ×* I − I v× + (· ×* h)
    sums = jnp.concatenate([r.I, D.reshape(model.nb, 36)], axis=-1)
    sums = per_dof(topology, subtree_sum(topology.tree, sums))
    I, D, S = sums[:, :10], sums[:, 10:].reshape(-1, 6, 6), r.S
    v_up, a_up = (per_dof(topology, x) for x in parents(topology, r))
    dV = cross_twist(v_up, S)
    dA_v = cross_twist(per_dof(topology, r.v), S) + dV
    dA_q = cross_twist(a_up, S) + cross_twist(v_up, dV)
    times = lambda A, x: jnp.sum(A * x[:, None, :], axis=-1)  # noqa: E731
    dF_a = inertia.apply(I, S)
    dF_v = times(D, S) + inertia.apply(I, dA_v)
    dF_q = times(D, dV) + inertia.apply(I, dA_q) + cross_wrench(S, per_dof(topology, r.F))
    rows = S, dV, dA_q, dA_v, dF_a, dF_q, dF_v, times(jnp.swapaxes(D, -1, -2), S)

    def motion(i, j):
        S, dV, dA_q, dA_v, *_ = j
        SI, SD = i[4], i[7]
        q_ij = linear.matmul(SI, dA_q) + linear.matmul(SD, dV)
        v_ij = linear.matmul(SI, dA_v) + linear.matmul(SD, S)
        return (q_ij, linear.matmul(S, i[5])), (v_ij, linear.matmul(S, i[6]))

    def mass(i, j):
        return ((linear.matmul(i[4], j[0]), linear.matmul(i[4], j[0])),)

    dq, dv = ancestor_matrices(topology.dofs_above, motion, rows)
    (M,) = ancestor_matrices(topology.dof_tree.ancestor_mask, mass, rows)
    return dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)


def idsva_body(model, q, v, a):
    """``(∂τ/∂q, ∂τ/∂v, M)`` by Singh, Algorithm 1, in body coordinates; joints of one dof each.

    Composites and the vectors t1 … t4 of the whole subtree are carried to the parent's frame at
    every step of the backward pass, where the ground frame needs nothing.
    """
    if model.nv != model.nb:
        raise ValueError(f"idsva_body: all joints must have one dof; nv = {model.nv}")
    I, S, T = model.inertia, motion_subspace(model), joint_placements(model, q)
    world = jnp.zeros_like(base_acceleration(model)), base_acceleration(model)
    Sv, Sa = S * v[:, None], S * a[:, None]

    def forward(parent, x):
        T, Sv, Sa = x
        V = to_child(T, parent[0]) + Sv
        return V, to_child(T, parent[1]) + cross_twist(V, Sv) + Sa

    V, A = root_to_leaf(model.topology.tree, forward, (T, Sv, Sa), world)
    V_up, A_up = V - Sv, A - cross_twist(V, Sv) - Sa  # of the parent, in the body's frame
    dPsi = cross_twist(V_up, S)  # = Ṡ for one dof
    ddPsi = cross_twist(A_up, S) + cross_twist(V_up, dPsi)
    h = inertia.apply(I, V)
    own = I, coriolis_block(I, V, h), h[:, 3:], inertia.apply(I, A) + cross_wrench(V, h)

    def backward(x, below):
        T, own, S, dPsi, ddPsi, unit = x
        I, G, l, F = (x + y for x, y in zip(own, below[0], strict=True))

        def two_B(w):
            return jnp.concatenate([so3.rotate(G, w[:3]), -2 * so3.cross(l, w[:3])])

        t1 = inertia.apply(I, S)
        t2 = two_B(S) + 2 * inertia.apply(I, dPsi)
        t3 = two_B(dPsi) + inertia.apply(I, ddPsi) + cross_wrench(S, F)
        t4 = so3.rotate_inverse(G, S[:3]) + 2 * so3.cross(l, S[3:])
        t4 = jnp.concatenate([t4, jnp.zeros_like(t4)])
        ts = tuple(
            y + unit[:, None] * t[None] for y, t in zip(below[1], (t1, t2, t3, t4), strict=True)
        )
        columns = (
            _dot(ts[3], dPsi) + _dot(ts[0], ddPsi),
            _dot(ts[3], S) + 2 * _dot(ts[0], dPsi),
            _dot(ts[0], S),
        )
        rows = _dot(below[1][2], S), _dot(below[1][1], S)
        R, p = T
        l = so3.rotate(R, l)
        G = so3.matmul(so3.matmul(R, G), so3.transpose(R)) - 2 * so3.matmul(so3.hat(p), so3.hat(l))
        up = inertia.to_parent(T, I), G, l, wrench_to_parent(T, F)
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, (*unit.shape, *x.shape)), T)
        return (up, tuple(wrench_to_parent(many, t) for t in ts)), (columns, rows)

    unit = jnp.eye(model.nv, dtype=q.dtype)
    zero = jax.tree.map(lambda x: jnp.zeros_like(x[0]), own), (jnp.zeros_like(S),) * 4
    x = T, own, S, dPsi, ddPsi, unit
    (by_q, by_v, M), (row_q, row_v) = leaf_to_root(model.topology.tree, backward, x, zero)
    M = M + M.T - jnp.diag(jnp.diag(M)) + jnp.diag(model.armature)
    return by_q.T + row_q, by_v.T + row_v + jnp.diag(model.damping), M


def _dot(A, x):
    return jnp.matmul(A, x, precision="highest")


def check(name: str, reference: tuple, other: tuple) -> float:
    """Largest difference of two results over the largest entry; raise if it is not rounding.

    Long chains are ill-conditioned (M of a hundred links: about 1e8, growing with the fourth power
    of the length), and so the limit grows.
    """
    pairs = zip(other, reference[: len(other)], strict=True)
    found = max(float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y))) for x, y in pairs)
    n = reference[0].shape[-1]
    limit = max(1e-9, 1e-6 * (n / 100) ** 4)
    if not found < limit:
        raise AssertionError(f"{name} differs from its reference by {found:.1e}")
    return found
