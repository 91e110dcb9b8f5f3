"""Which joints make a robot's mass matrix singular. Host side, NumPy.

Loading a robot must not compile anything, so this is the one mass matrix that is not
:func:`rbd_jax.crba`.
"""

import numpy as np

from ..model import NV
from ..spatial import host
from ._build import Bodies

SINGULAR = 1e-10  # smallest eigenvalue of the mass matrix scaled to a unit diagonal


def mass_matrix(bodies: Bodies, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass matrix without armature, and what the rounding of its diagonal is measured by.

    Source: Singh, Algorithm 1, line 13, with pseudo-inertias: two screws X and Y move the mass of
    a subtree with the energy ``tr(X P Yᵀ)``. ``q`` is one number a body: the angle or slide of a
    screw joint; joints with several degrees of freedom take some pose made from it.
    """
    n, parents = len(bodies.parents), bodies.parents
    T, S, body = [], [], []
    for i, joint in enumerate(bodies.joints):
        A = bodies.placements[i] @ _displacement(joint, q[i])
        T.append(A if parents[i] < 0 else T[parents[i]] @ A)
        S += list(_columns(joint))
        body += [i] * NV[joint.kind]
    composite = [P.copy() for P in bodies.pseudo]
    moves = np.eye(n, dtype=bool)  # moves[i, j]: joint j moves body i
    for i in range(n):
        if parents[i] >= 0:
            moves[i] |= moves[parents[i]]
    for i in reversed(range(n)):
        if parents[i] >= 0:
            A = host.inverse(T[parents[i]]) @ T[i]
            composite[parents[i]] += A @ composite[i] @ A.T
    X, P = np.array([host.screw_matrix(s) for s in S]), np.array(composite)[body]
    there, back = np.array(T)[body], np.array([host.inverse(A) for A in T])[body]
    seen = back[:, None] @ (there @ X @ back)[None] @ there[:, None]  # screw k from body j
    M = np.einsum("jab,jbc,jkac->jk", X, P, seen)
    M = np.where(moves[np.ix_(body, body)], M, 0.0)
    M = np.tril(M) + np.tril(M, -1).T
    # exact zeros, free of the rounding of moment arms
    np.fill_diagonal(M, np.einsum("jab,jbc,jac->j", X, P, X))
    S, second = np.array(S), np.abs(np.einsum("jaa->ja", P)[:, :3]).sum(1)
    return M, np.sum(S[:, :3] ** 2, 1) * second + np.sum(S[:, 3:] ** 2, 1) * P[:, 3, 3]


def singular_joints(bodies: Bodies, seed: int = 0) -> list[str]:
    """Joints that make the mass matrix singular (or indefinite) in every configuration.

    A random configuration stands for all: a determinant that is zero there is zero everywhere,
    with probability one. The matrix is scaled to a unit diagonal first, so that a light finger on a
    heavy arm is not mistaken for a massless one. The joints are those that take part in its null
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


def gimbals(bodies: Bodies) -> list[list[str]]:
    """Chains of three or more hinges with nothing but massless bodies between them.

    The chain turns one body about three axes. At some angle of a middle joint the axes lie in one
    plane (gimbal lock). There one direction of the joint velocities moves no mass.
    """
    n = len(bodies.parents)
    children = [[i for i in range(n) if bodies.parents[i] == k] for k in range(n)]

    def between(k: int) -> bool:
        joint = bodies.joints[k]
        empty = not np.any(bodies.pseudo[k]) and not joint.armature
        return joint.kind == "revolute" and empty and len(children[k]) == 1

    found = []
    for i in range(n):
        if between(i) and not (bodies.parents[i] >= 0 and between(bodies.parents[i])):
            chain = [i]
            while between(chain[-1]):
                chain += children[chain[-1]]
            if len(chain) > 2 and bodies.joints[chain[-1]].kind == "revolute":
                found.append([bodies.joint_names[k] for k in chain])
    return found


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
    w, v = np.split(q * np.sum(_columns(joint), axis=0), 2)
    angle = np.linalg.norm(w)
    return host.pose(host.about(w / (angle or 1.0), float(angle)), v)
