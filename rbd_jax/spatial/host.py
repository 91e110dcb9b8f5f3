"""Poses, screws and inertias on the host: float64 NumPy, for what reads, checks or writes robots.

A pose is a homogeneous matrix (4, 4) that maps child coordinates to parent coordinates. Twists and
screws are ``(ω, v)``, as everywhere. An inertia is a 4×4 pseudo-inertia ``∫ (x, 1)(x, 1)ᵀ dm``,
which a pose takes to other coordinates as ``T P Tᵀ``, and which is a sum over the parts of a body.
"""

import numpy as np


def hat(w: np.ndarray) -> np.ndarray:
    """The matrix ``[w]`` with ``[w] x = w × x``. Source: Kim (5)."""
    x, y, z = w
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=float)


def pose(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The homogeneous matrix of a rotation matrix and a position (m). Source: Kim (3)."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, p
    return T


def inverse(T: np.ndarray) -> np.ndarray:
    """``T⁻¹``. Source: Kim (4)."""
    return pose(T[:3, :3].T, -T[:3, :3].T @ T[:3, 3])


def adjoint(T: np.ndarray) -> np.ndarray:
    """``Ad_T``, for rows of screws as ``X @ adjoint(T).T``. Source: Kim (7)."""
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R, np.zeros((3, 3))], [hat(p) @ R, R]])


def screw_matrix(S: np.ndarray) -> np.ndarray:
    """The 4×4 matrix of a screw, the rate of a pose that moves along it. Source: Kim (10)."""
    X = np.zeros((4, 4))
    X[:3, :3], X[:3, 3] = hat(S[:3]), S[3:]
    return X


def about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation by an angle (rad) about a unit vector (Rodrigues)."""
    K = hat(axis)
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def rotation_of_quat(quat: np.ndarray) -> np.ndarray:
    """The rotation matrix of a quaternion ``wxyz``, which need not be normalized."""
    w, x, y, z = np.asarray(quat, dtype=float) / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotation_of_rpy(rpy: np.ndarray) -> np.ndarray:
    """``Rz(yaw) Ry(pitch) Rx(roll)``, URDF's rotation about fixed axes (rad)."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rpy_of_rotation(R: np.ndarray) -> np.ndarray:
    """Roll, pitch and yaw of ``R = Rz(yaw) Ry(pitch) Rx(roll)`` (rad); yaw 0 where not unique."""
    across = np.hypot(R[0, 0], R[1, 0])
    pitch = np.arctan2(-R[2, 0], across)
    if across < 1e-9:
        sign = -np.sign(R[2, 0])
        return np.array([np.arctan2(sign * R[0, 1], R[1, 1]), pitch, 0.0])
    return np.array([np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])])


# --- inertias --------------------------------------------------------------------------------


def second_moment(J: np.ndarray) -> np.ndarray:
    """``∫ x xᵀ dm`` of a rotational inertia (kg m²) about the same point."""
    return 0.5 * np.trace(J) * np.eye(3) - J


def rotational(Sigma: np.ndarray) -> np.ndarray:
    """The rotational inertia (kg m²) of a second moment; inverse of :func:`second_moment`."""
    return np.trace(Sigma) * np.eye(3) - Sigma


def pseudo_inertia(mass: float, com: np.ndarray, inertia_com: np.ndarray) -> np.ndarray:
    """The pseudo-inertia of a mass (kg), a center of mass (m) and the inertia about it (kg m²)."""
    P = np.zeros((4, 4))
    c = np.append(com, 1.0)
    P[:3, :3] = second_moment(inertia_com)
    P += mass * np.outer(c, c)
    return P


def central_inertia(P: np.ndarray) -> np.ndarray:
    """The rotational inertia about the center of mass (kg m²); about the origin without a mass."""
    first = P[:3, 3]
    return rotational(P[:3, :3] - (np.outer(first, first) / P[3, 3] if P[3, 3] > 0 else 0.0))


def ten_parameters(P: np.ndarray) -> np.ndarray:
    """The ten numbers of :mod:`rbd_jax.spatial.inertia`."""
    J = rotational(P[:3, :3])
    six = [J[i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))]
    return np.array([P[3, 3], *P[:3, 3], *six])


def pseudo_of_ten(I10: np.ndarray) -> np.ndarray:
    """The pseudo-inertia of ten numbers; inverse of :func:`ten_parameters`."""
    P = np.empty((4, 4))
    J = I10[np.array([[4, 5, 7], [5, 6, 8], [7, 8, 9]])]
    P[:3, :3], P[:3, 3], P[3, :3], P[3, 3] = second_moment(J), I10[1:4], I10[1:4], I10[0]
    return P


def greatest_ratio(D: np.ndarray, M: np.ndarray) -> tuple[float, np.ndarray]:
    """The greatest ``xᵀ D x / xᵀ M x`` of two symmetric matrices, and the x that has it.

    This is the largest eigenvalue of ``M⁻¹ D``. It is infinite if D is positive where M vanishes,
    and NaN if M + D is not positive definite.
    """
    size = np.sqrt(np.abs(np.diag(M)) + np.abs(np.diag(D)))
    size[size == 0] = 1
    D, M = D / size[:, None] / size, M / size[:, None] / size
    try:
        L = np.linalg.cholesky(M + D)
        half = np.linalg.solve(L, D)
        shares, vectors = np.linalg.eigh(np.linalg.solve(L, half.T))
    except np.linalg.LinAlgError:
        return np.nan, np.full(len(D), np.nan)
    share = shares[-1]  # of D in M + D
    x = np.linalg.solve(L.T, vectors[:, -1])
    return float(share / (1 - share)) if share < 1 else np.inf, x / size
