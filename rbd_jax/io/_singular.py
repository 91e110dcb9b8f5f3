"""Which joints make a robot's mass matrix singular. Host side, NumPy."""

import numpy as np

from ..model.topology import NV
from ._build import _Bodies as Bodies

SINGULAR = 1e-10  # smallest eigenvalue of the mass matrix scaled to a unit diagonal


def mass_matrix(bodies: Bodies, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass matrix without armature, and what the rounding of its diagonal is measured by.

    Source: the composite-rigid-body method (Featherstone), sums in body frames, products in the
    ground frame. ``q`` is one number a body: the angle or slide of a screw; joints with several
    degrees of freedom take some pose made from it.
    """
    joints, parents, n = bodies.joints, bodies.parents, len(bodies.parents)
    T, S, dof_body = [], [], []
    for i, joint in enumerate(joints):
        A = bodies.placements[i] @ _displacement(joint, q[i])
        T.append(A if parents[i] < 0 else T[parents[i]] @ A)
        S.append(_columns(joint))
        dof_body += [i] * NV[joint.kind]
    composite = [P.copy() for P in bodies.pseudo]
    below = np.eye(n, dtype=bool)  # below[i, j]: body j is body i or one of its ancestors
    for i in range(n):
        if parents[i] >= 0:
            below[i] |= below[parents[i]]
    for i in reversed(range(n)):
        if parents[i] >= 0:
            A = np.linalg.solve(T[parents[i]], T[i])
            composite[parents[i]] += A @ composite[i] @ A.T
    motions, forces, diagonal, size = [], [], [], []
    for i in range(n):
        F = S[i] @ _spatial(composite[i])
        R, p = T[i][:3, :3], T[i][:3, 3]
        w, v = S[i][:, :3] @ R.T, S[i][:, 3:] @ R.T
        moment, force = F[:, :3] @ R.T, F[:, 3:] @ R.T
        motions.append(np.hstack([w, v + np.cross(p, w)]))
        forces.append(np.hstack([moment + np.cross(p, force), force]))
        diagonal.append(np.sum(F * S[i], axis=1))
        mass, second = composite[i][3, 3], np.abs(np.diag(composite[i][:3, :3])).sum()
        size.append(np.sum(S[i][:, :3] ** 2, 1) * second + np.sum(S[i][:, 3:] ** 2, 1) * mass)
    M = np.vstack(forces) @ np.vstack(motions).T
    M = np.where(below[np.ix_(dof_body, dof_body)], M, 0.0)
    M = np.tril(M) + np.tril(M, -1).T
    np.fill_diagonal(M, np.concatenate(diagonal))  # exact zeros, free of the moment arms' rounding
    return M, np.concatenate(size)


def singular_joints(bodies: Bodies, seed: int = 0) -> list[str]:
    """Joints that make the mass matrix singular (or indefinite) in every configuration.

    A random configuration stands for all: a determinant that is zero there is zero everywhere,
    with probability one. The matrix is scaled to a unit diagonal first, so that a light finger on a
    heavy arm is not mistaken for a massless one; the joints are those that take part in its null
    space.
    """
    n = len(bodies.parents)
    if n == 0:
        return []
    M, size = mass_matrix(bodies, np.random.default_rng(seed).uniform(-2, 2, n))
    counts = [NV[j.kind] for j in bodies.joints]
    M += np.diag(np.repeat([j.armature for j in bodies.joints], counts))
    owner = np.repeat(np.arange(n), counts)
    dead = ~(np.diag(M) > 1e-13 * size)
    scale = np.where(dead, np.inf, np.sqrt(np.abs(np.diag(M))))
    values, vectors = np.linalg.eigh(M / scale[:, None] / scale)
    null = vectors[:, values < SINGULAR]
    involved = dead | (np.abs(null) > 1e-3).any(axis=1)
    return [bodies.joint_names[i] for i in sorted(set(owner[involved].tolist()))]


def _spatial(P: np.ndarray) -> np.ndarray:
    """6×6 inertia (angular first) of a pseudo-inertia."""
    x, y, z = P[:3, 3]
    C = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    J = np.trace(P[:3, :3]) * np.eye(3) - P[:3, :3]
    return np.block([[J, C], [C.T, P[3, 3] * np.eye(3)]])


def _columns(joint) -> np.ndarray:
    """The motion subspace of a joint in the child frame, one row a degree of freedom."""
    a = joint.axis / (np.linalg.norm(joint.axis) or 1.0)
    if joint.kind in ("revolute", "helical"):
        return np.concatenate([a, (joint.pitch if joint.kind == "helical" else 0.0) * a])[None]
    if joint.kind == "prismatic":
        return np.concatenate([np.zeros(3), a])[None]
    rows = {"spherical": slice(0, 3), "translation": slice(3, 6), "free": slice(0, 6)}
    return np.eye(6)[rows[joint.kind]]


def _displacement(joint, q: float) -> np.ndarray:
    """Pose of the child in the joint frame; some rotation and position for multi-DoF joints."""
    S = _columns(joint)
    w, v = (np.sum(S, axis=0) * q)[:3], (np.sum(S, axis=0) * q)[3:]
    angle = np.linalg.norm(w) or 1.0
    k = w / angle
    K = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
    T = np.eye(4)
    T[:3, :3] += np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
    T[:3, 3] = v
    return T
