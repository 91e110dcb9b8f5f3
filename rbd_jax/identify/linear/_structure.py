"""Base parameters from the structure of a robot, joint by joint.

This runs on the host in NumPy, once for a robot, and is not differentiated. Letters: S is the
motion subspace. Three spans describe what can happen to a body: W spans its velocities, Q the
products ``V Vᵀ`` of its velocities, and h the gravity vectors in its frame.
"""

from functools import cache

import jax
import numpy as np

from ...model import Model, joint_placements, motion_subspace, neutral
from ...spatial.host import adjoint, hat, inverse, pose, pseudo_of_ten, ten_parameters
from ._base import BaseParameters, default_tolerance, from_nullspace
from ._regressors import TERMS, parameter_names


def base_parameters(
    model: Model, terms: tuple[str, ...] = TERMS, tol: float | None = None
) -> BaseParameters:
    """Base parameters from the robot's structure alone, without any recorded motion.

    Source: after the recursive null space of Wensing, Niemeyer, Slotine, "A geometric
    characterization of observability in inertial parameter identification", 2024, for joints of
    any kind with constant S. Bodies are visited from the leaves to the root. Let c be a change of
    the inertia of body i, together with what its children have passed on to it. The change does not
    affect any torque below joint i, and passes to the parent at q = 0, if two conditions hold:

    - It gives no momentum about the joint: ``S_kᵀ I(c) w = 0`` for every velocity w that body i can
      have. Among the velocities of the joint itself, ``S_kᵀ I(c) S_l + δ_kl armature_k = 0``.
    - The energy does not change as the joint moves: ``⟨I(c), ad_S Q + Q ad_Sᵀ⟩ = 0`` for every
      ``Q = V Vᵀ`` that the parent's motion gives, and ``(D_S h) · c = 0`` for every gravity vector
      h in the body's frame.

    The conditions on different bodies are independent of each other, so the ranks add up. Columns
    of damping and friction are always independent.

    Args:
        model: the robot; the values of its inertias do not matter.
        terms: the parameters θ, see :func:`parameter_names`.
        tol: relative tolerance within which axes count as parallel and points as equal. None stands
            for 1e-9, or 1e-5 for a robot in float32.
    """
    tol = tol or default_tolerance(model.dtype)
    S, poses = _host(model)
    spans = _spans(model, S, poses, tol)
    topology, nv = model.topology, model.nv
    names = parameter_names(model, terms)
    rotor = "armature" in terms
    sizes = {"inertia": 10 * model.nb}
    offsets = dict(zip(terms, np.cumsum([0, *(sizes.get(t, nv) for t in terms)]), strict=False))
    hidden = []
    if "inertia" in terms:
        for i in range(model.nb):
            dofs = np.arange(topology.v_starts[i], topology.v_starts[i + 1])
            for change in _kernel(_conditions(S[dofs], spans[i], rotor, tol), tol).T:
                row = np.zeros(len(names))
                at = offsets["inertia"]
                row[at + 10 * i : at + 10 * i + 10] = change[:10]
                parent = topology.parents[i]
                if parent >= 0:
                    start = at + 10 * parent
                    row[start : start + 10] -= _in_parent(poses[i], change[:10])
                if rotor:
                    row[offsets["armature"] + dofs] = change[10:]
                hidden.append(row)
    N = np.array(hidden).reshape(-1, len(names)).T
    if not N.size:
        return from_nullspace(names, np.zeros((len(names), 0)))
    scale = np.linalg.norm(N, axis=0)
    return from_nullspace(names, np.linalg.qr(N / np.where(scale > 0, scale, 1))[0])


def _host(model: Model) -> tuple[np.ndarray, list[np.ndarray]]:
    """S, and the poses of the bodies in their parents at q = 0, in float64."""
    with jax.ensure_compile_time_eval():  # It also works inside jit if the robot is a constant.
        S, (R, p) = _geometry(model)
    S, R, p = (np.asarray(x, dtype=float) for x in (S, R, p))
    return S, [pose(*T) for T in zip(R, p, strict=True)]


@jax.jit
def _geometry(model: Model):
    return motion_subspace(model), joint_placements(model, neutral(model))


def _spans(model: Model, S: np.ndarray, poses, tol: float) -> list[tuple[np.ndarray, ...]]:
    """For each body the spans of W (6, ·), of Q of its parent (36, ·), and of h (4, ·)."""
    gravity = np.append(np.asarray(model.gravity, dtype=float), 0.0)[:, None]
    found: list[tuple[np.ndarray, ...]] = []
    passed_on = []
    for i, parent in enumerate(model.topology.parents):
        W, Q, h = (
            passed_on[parent] if parent >= 0 else (np.zeros((6, 0)), np.zeros((36, 0)), gravity)
        )
        X = adjoint(inverse(poses[i]))  # from the parent to body i
        rows = S[model.topology.v_starts[i] : model.topology.v_starts[i + 1]]
        ads = [_ad(s) for s in rows]
        W = _closure([-A for A in ads], X @ W, tol)
        Q = _closure([-np.kron(A, np.eye(6)) - np.kron(np.eye(6), A) for A in ads],
                     np.kron(X, X) @ Q, tol)  # fmt: skip
        h = _closure([_gravity_rate(s) for s in rows], _gravity_map(poses[i]) @ h, tol)
        found.append((W, Q, h))
        columns = rows.T
        mixed = [np.kron(s, w) + np.kron(w, s) for s in rows for w in np.hstack([W, columns]).T]
        V = _span(np.hstack([W, columns]), tol)
        passed_on.append((V, _span(np.hstack([Q, np.array(mixed).T]), tol), h))
    return found


def _conditions(S: np.ndarray, spans, rotor: bool, tol: float) -> np.ndarray:
    """Rows that are zero on changes (10 numbers, then one a rotor) that affect no torque."""
    W, Q, h = spans
    n, rows = len(S), []
    zeros = np.zeros(n)
    for k, s in enumerate(S):
        rows += [np.append(_bilinear(np.outer(s, w)), zeros) for w in W.T]
        for l, t in enumerate(S):
            rotors = np.eye(n)[k] * (k == l) * rotor
            rows.append(np.append(_bilinear(np.outer(s, t)), rotors))
        A = _ad(s)
        for x in Q.T:
            V = x.reshape(6, 6)
            rows.append(np.append(_bilinear(A @ V + V @ A.T), zeros))
        for x in (_gravity_rate(s) @ h).T:
            rows.append(np.concatenate([x[3:], x[:3], np.zeros(6), zeros]))
    if rotor:
        rows += [np.append(np.zeros(10), row) for row in _gyroscopic(S)]
    A = np.array(rows)
    length = np.linalg.norm(A, axis=1, keepdims=True)
    A = A / np.where(length > tol, length, np.inf)
    return A if rotor else A[:, :10]


def _gyroscopic(S: np.ndarray) -> list[np.ndarray]:
    """Rows that are zero on rotor inertias which a change of the body's inertia can replace.

    The torque of a rotor is ``armature · a`` alone, but the torque of a body also has gyroscopic
    terms. They vanish if ``γ_kmj armature_j + γ_jmk armature_k = 0`` with the brackets
    ``[S_k, S_m] = Σ_j γ_kmj S_j``. Joints of one degree of freedom give only zero rows.
    """
    n, rows = len(S), []
    brackets = np.array([[_ad(s) @ t for t in S] for s in S]).reshape(-1, 6)
    gamma = np.linalg.lstsq(S.T, brackets.T, rcond=None)[0].T.reshape(n, n, n)
    for m in range(n):
        for k in range(n):
            for j in range(k + 1):
                rows.append(gamma[k, m, j] * np.eye(n)[j] + gamma[j, m, k] * np.eye(n)[k])
    return rows


@cache
def _unit() -> np.ndarray:
    """The 6×6 inertia of each of the ten parameters, (10, 6, 6)."""
    I = np.zeros((10, 6, 6))
    I[0, 3:, 3:] = np.eye(3)
    for k, axis in enumerate(np.eye(3)):
        I[1 + k, :3, 3:], I[1 + k, 3:, :3] = hat(axis), hat(axis).T
    for k, (i, j) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
        I[4 + k, i, j] = I[4 + k, j, i] = 1
    return I


def _bilinear(Q: np.ndarray) -> np.ndarray:
    """The ten coefficients of ``⟨I, Q⟩``."""
    return np.einsum("kij,ij->k", _unit(), Q)


def _in_parent(T: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The same change of inertia (ten numbers) in the parent's frame."""
    return ten_parameters(T @ pseudo_of_ten(change) @ T.T)


def _ad(s: np.ndarray) -> np.ndarray:
    return np.block([[hat(s[:3]), np.zeros((3, 3))], [hat(s[3:]), hat(s[:3])]])


def _gravity_map(T: np.ndarray) -> np.ndarray:
    """The map from parent to child of ``h = (γ, γ·p)``, where γ is gravity in body axes."""
    return np.block([[T[:3, :3].T, np.zeros((3, 1))], [T[None, :3, 3], np.ones((1, 1))]])


def _gravity_rate(s: np.ndarray) -> np.ndarray:
    """The rate of h as the joint moves: ``γ̇ = −ω × γ``, and ``v · γ``."""
    return np.block([[-hat(s[:3]), np.zeros((3, 1))], [s[None, 3:], np.zeros((1, 1))]])


def _span(A: np.ndarray, tol: float) -> np.ndarray:
    """Orthonormal columns of the same span."""
    length = np.linalg.norm(A, axis=0)
    A = A[:, length > tol * length.max(initial=0)]
    if not A.size:
        return A
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return U[:, s > tol * s[0]]


def _closure(generators: list[np.ndarray], A: np.ndarray, tol: float) -> np.ndarray:
    """The smallest space that contains the columns and that every generator maps into itself."""
    A = _span(A, tol)
    while True:
        more = _span(np.hstack([A, *(G @ A for G in generators)]), tol)
        if more.shape[1] == A.shape[1]:
            return A
        A = more


def _kernel(A: np.ndarray, tol: float) -> np.ndarray:
    _, s, Vt = np.linalg.svd(A, full_matrices=True)
    return Vt[int(np.sum(s > tol * s.max(initial=0))) :].T
