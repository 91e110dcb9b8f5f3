"""The two-link robot of the notes §8–§10 with skew axes, and its torques expanded by hand."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import screw
from rbd_jax.spatial import motion, se3

cross = np.cross


def link_inertia(theta: np.ndarray, m: float) -> np.ndarray:
    return np.block([[theta, np.zeros((3, 3))], [np.zeros((3, 3)), m * np.eye(3)]])


@cache
def skew():
    """Two links whose axes are skew and whose inertias have no symmetry."""
    rng = np.random.default_rng(1)
    home = np.array(jax.jit(lambda x: se3.matrix(se3.exp(x)))(rng.normal(size=(2, 6))))
    S = []
    for _ in range(2):
        e, p = rng.normal(size=(2, 3))
        e /= np.linalg.norm(e)
        S.append(np.r_[e, cross(p, e)])
    G = []
    for mass in (1.2, 0.7):
        A = rng.normal(size=(3, 3))
        Sigma = A @ A.T
        G.append(link_inertia(np.trace(Sigma) * np.eye(3) - Sigma, mass))
    S = np.array(S).T
    m = screw.from_modern_robotics(home, G, S, gravity=(0.0, 0.0, 0.0))
    A1 = motion.to_child(se3_of(home[0]), jnp.asarray(S[:, 0]))
    A2 = motion.to_child(se3_of(home[0] @ home[1]), jnp.asarray(S[:, 1]))
    return m, home[1], np.array(A1), np.array(A2), G


def se3_of(T: np.ndarray):
    return jnp.asarray(T[:3, :3]), jnp.asarray(T[:3, 3])


def expanded(q):
    """Coefficients of θ̇1², θ̇1 θ̇2, θ̇2² in (τ1, τ2) for θ̈ = 0: the notes §10.1–§10.4, corrected.

    §10.1 lacks I₂ twice, and the term I₂ ω̇₂ with ω̇₂ = θ̇1 θ̇2 R z1 × z2, which is zero in §9.1. §10.2
    has R z1 in place of R b1 in one row. §10.4 has the child's wrench in the child's own axes.
    """
    _, M12, A1, A2, (G1, G2) = skew()
    T12 = M12 @ np.array(se3.matrix(se3.exp(jnp.asarray(A2 * q[1]))))
    R, p = T12[:3, :3].T, -T12[:3, :3].T @ T12[:3, 3]  # of T_21
    z1, b1, z2, b2 = A1[:3], A1[3:], A2[:3], A2[3:]
    I1, m1, I2, m2 = G1[:3, :3], G1[5, 5], G2[:3, :3], G2[5, 5]
    a, u = R @ z1, cross(p, R @ z1) + R @ b1  # ω2 = a θ̇1 + z2 θ̇2, v2 = u θ̇1 + b2 θ̇2
    n2 = [
        cross(a, I2 @ a),
        cross(a, I2 @ z2) + cross(z2, I2 @ a) + I2 @ cross(a, z2),
        cross(z2, I2 @ z2),
    ]
    f2 = [m2 * cross(a, u), 2 * m2 * cross(a, b2), m2 * cross(z2, b2)]
    tau2 = [n @ z2 + f @ b2 for n, f in zip(n2, f2, strict=True)]
    p12 = T12[:3, 3]
    n1 = [R.T @ n + cross(p12, R.T @ f) for n, f in zip(n2, f2, strict=True)]
    f1 = [R.T @ f for f in f2]
    n1[0], f1[0] = n1[0] + cross(z1, I1 @ z1), f1[0] + m1 * cross(z1, b1)
    tau1 = [n @ z1 + f @ b1 for n, f in zip(n1, f1, strict=True)]
    return np.array([tau1, tau2])
