"""Models from screws alone: product-of-exponentials modelling. Source: Müller App. A, §4.4.

Host side, float64 NumPy; :func:`rbd_jax.build_model` makes the arrays. A joint is given by its
screw coordinates, ``(6,)``, or by the rows that span its motions: three of them for a spherical or
translation joint, six for a free one. Poses are homogeneous matrices (4, 4), inertias the 6×6
matrices of (40) in the body-fixed reference frame (BFR) of the body.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..io._build import build_model
from ..model import JointSpec, LinkSpec, Model, RobotDescriptionError, RobotSpec

_TOLERANCE = 1e-6  # lists in float32 pass
Rows = Sequence[Any] | np.ndarray


def adjoint(C: np.ndarray) -> np.ndarray:
    """``Ad_C`` of a homogeneous matrix, for rows of screws: ``X @ adjoint(C).T``. (95)."""
    R, r = C[:3, :3], C[:3, 3]
    return np.block([[R, np.zeros((3, 3))], [_hat(r) @ R, R]])


def _hat(r: np.ndarray) -> np.ndarray:
    x, y, z = r
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=float)


def _pose(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    C = np.eye(4)
    C[:3, :3], C[:3, 3] = R, p
    return C


def _matrices(name: str, C: Any, n: int, size: int = 4) -> np.ndarray:
    """``n`` square matrices as an array, poses checked to be rigid motions if of size 4."""
    C = np.asarray(C, dtype=float)
    if C.shape != (n, size, size) or not np.isfinite(C).all():
        raise ValueError(
            f"{name}: needs {n} finite matrices {size} × {size}, one a body, got shape {C.shape}"
        )
    if size == 4:
        R = C[:, :3, :3]
        far = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2)) > _TOLERANCE
        far |= np.abs(C[:, 3] - [0, 0, 0, 1]).max(axis=1) > _TOLERANCE
        far |= np.linalg.det(R) < 0
        if far.any():
            raise RobotDescriptionError(
                f"{name}: number {int(np.argmax(far))} is no rigid motion; it needs a rotation "
                "matrix with det +1, a position, and the last row 0 0 0 1"
            )
    return C


def _parents(n: int, parents: Sequence[int] | None) -> list[int]:
    """The parents, a chain by default; each before its children."""
    up = list(range(-1, n - 1)) if parents is None else [int(p) for p in parents]
    if len(up) != n:
        raise ValueError(f"parents has {len(up)} entries for {n} screws; one of each a body")
    if any(not -1 <= p < i for i, p in enumerate(up)):
        raise RobotDescriptionError(f"parents {up} must come before their children")
    return up


def _inverse(C: np.ndarray) -> np.ndarray:
    return _pose(C[:3, :3].T, -C[:3, :3].T @ C[:3, 3])


def _joint_of_screws(name: str, X: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """Kind, axis and pitch of the joint that a set of screws spans, and its frame in the BFR."""
    w, v = X[:, :3], X[:, 3:]
    centre = 0.5 * np.cross(w, v).sum(axis=0)  # of three orthonormal w with v = r × w

    def fail(text: str):
        raise RobotDescriptionError(f"screw of {name!r}: {text}")

    if len(X) == 1:
        w, v = w[0], v[0]
        turning, sliding = np.linalg.norm(w), np.linalg.norm(v)
        if turning < _TOLERANCE:
            if abs(sliding - 1) > _TOLERANCE:
                fail(f"a translation needs |v| = 1, got {sliding:.9g}; rescale it")
            return {"kind": "prismatic", "axis": v / sliding}, np.eye(4)
        if abs(turning - 1) > _TOLERANCE:
            fail(f"a rotation needs |ω| = 1, got {turning:.9g}; rescale it")
        w, v = w / turning, v / turning
        pitch = float(w @ v)
        kind = "revolute" if abs(pitch) < 1e-14 else "helical"
        return {"kind": kind, "axis": w, "pitch": pitch}, _pose(np.eye(3), np.cross(w, v))
    if len(X) == 3 and np.abs(w).max() < _TOLERANCE:
        kind, D = "translation", _pose(v.T, np.zeros(3))
    elif len(X) == 3:
        kind, D = "spherical", _pose(w.T, centre)
    elif len(X) == 6:
        kind, D = "free", _pose(w[:3].T, 0.5 * np.cross(w[:3], v[:3]).sum(axis=0))
    else:
        fail(f"needs 1, 3 or 6 rows, got {len(X)}; give other joints as chains of these")
    R, S = D[:3, :3], {"translation": np.eye(6)[3:], "spherical": np.eye(6)[:3]}
    rotation = np.abs(R.T @ R - np.eye(3)).max() < _TOLERANCE and np.linalg.det(R) > 0
    if not rotation or np.abs(X - S.get(kind, np.eye(6)) @ adjoint(D).T).max() > _TOLERANCE:
        fail(f"its {len(X)} rows are not those of a {kind} joint: unit screws along the axes of "
             "one right-handed frame, rotations first")  # fmt: skip
    return {"kind": kind}, D


def _link(name: str, M: np.ndarray) -> LinkSpec:
    """Mass, centre of mass and inertia about it, of a 6×6 inertia matrix. Source: (39)–(40)."""
    m = float(M[5, 5])
    md = np.array([M[2, 4], M[0, 5], M[1, 3]])
    d = md / m if m else md
    Theta = 0.5 * (M[:3, :3] + M[:3, :3].T)
    shape = np.block([[Theta, m * _hat(d)], [-m * _hat(d), m * np.eye(3)]])
    if np.abs(M - shape).max() > _TOLERANCE * (1 + np.abs(M).max()):
        raise RobotDescriptionError(
            f"inertia of {name!r} is not of the form [[Θ, m d×], [−m d×, m 1]] of Müller (40)"
        )
    return LinkSpec(name, m, d, Theta + m * _hat(d) @ _hat(d))


def from_body_screws(
    X: Rows,
    B: Rows,
    inertia: Rows,
    parents: Sequence[int] | None = None,
    name: str = "screws",
    tool: np.ndarray | None = None,
    joint_data: Sequence[dict[str, Any]] | None = None,
    **options: Any,
) -> Model:
    """A model from body-fixed joint screws: ``C_i = C_λ B_i exp(X_i q_i)``.

    Source: Müller (91), (92). Bodies and joints are named ``body1`` … and ``joint1`` …; the BFR of
    body i is the frame ``link{i}`` of the model, whose own body frame lies on the joint's axis.

    Args:
        X: screw(s) of each joint in the BFR of its body (rad, m).
        B: (n, 4, 4) pose of each BFR in the parent's BFR at q = 0 (m).
        inertia: (n, 6, 6) inertia of each body in its BFR, angular part first.
        parents: the body that each body hangs on, −1 for the world; a chain if None. Parents
            come first; the model numbers bodies depth first, whatever the order here.
        name: of the robot.
        tool: (4, 4) pose of a frame named ``tool`` in the last BFR (m), if any.
        joint_data: for each joint what :class:`rbd_jax.JointSpec` takes besides (limits, damping,
            friction, armature).
        options: ``dtype`` and ``gravity`` of :func:`rbd_jax.build_model`.

    Raises:
        RobotDescriptionError: for screws that are not those of a known joint, an inertia that is
            not a rigid body's, or parents that do not come first.
        ValueError: if the numbers of joints, poses and inertias differ.
    """
    screws = [np.atleast_2d(np.asarray(x, dtype=float)) for x in X]
    n = len(screws)
    up = _parents(n, parents)
    B = _matrices("B", B, n)
    inertia = _matrices("inertia", inertia, n, 6)
    if joint_data is not None and len(joint_data) != n:
        raise ValueError(f"joint_data has {len(joint_data)} entries for {n} screws")
    links, joints, frames = [LinkSpec("base")], [], [np.eye(4)]
    for i, (x, p) in enumerate(zip(screws, up, strict=True)):
        kind, D = _joint_of_screws(f"joint{i + 1}", x)
        place = frames[p + 1] @ B[i] @ D
        parent = "base" if p < 0 else f"body{p + 1}"
        link = _link(f"link{i + 1}", inertia[i])
        links += [LinkSpec(f"body{i + 1}"), link]
        frames.append(_inverse(D))  # the BFR seen from the joint's axis
        extra: dict[str, Any] = joint_data[i] if joint_data else {}
        joints += [
            JointSpec(f"joint{i + 1}", parent=parent, child=f"body{i + 1}", R=place[:3, :3],
                      p=place[:3, 3], **kind, **extra),
            _fixed(f"weld{i + 1}", f"body{i + 1}", f"link{i + 1}", frames[-1]),
        ]  # fmt: skip
    if tool is not None and n:
        links.append(LinkSpec("tool"))
        joints.append(_fixed("flange", f"link{n}", "tool", _matrices("tool", [tool], 1)[0]))
    return build_model(RobotSpec(name, tuple(links), tuple(joints)), **options)


def _fixed(name: str, parent: str, child: str, C: np.ndarray) -> JointSpec:
    return JointSpec(name, "fixed", parent, child, R=C[:3, :3], p=C[:3, 3])


def from_spatial_screws(
    Y: Rows,
    inertia: Rows,
    A: Rows | None = None,
    parents: Sequence[int] | None = None,
    **options: Any,
) -> Model:
    """A model from spatial joint screws: ``C_i = exp(Y_1 q_1) … exp(Y_i q_i) A_i``.

    Source: Müller (93), (94), §4.4; the notes §1.3, §2.1 with ``A_i = M_{0,i}``.

    Args:
        Y: screw(s) of each joint in the world frame at q = 0 (rad, m).
        inertia: (n, 6, 6) inertia of each body in its BFR.
        A: (n, 4, 4) home poses ``C_i(0)`` of the BFRs (m). None: all BFRs coincide with the world
            frame at q = 0, so that no body frames need be given at all (§4.4); the inertias are
            then those of the assembled robot in the world frame, and ``X_i = Y_i``.
        parents: see :func:`from_body_screws`.
        options: those of :func:`from_body_screws`.

    Raises:
        RobotDescriptionError, ValueError: as :func:`from_body_screws`.
    """
    n = len(Y)
    home = _matrices("A", np.tile(np.eye(4), (n, 1, 1)) if A is None else A, n)
    up = _parents(n, parents)
    back = [_inverse(a) for a in home]
    X = [np.atleast_2d(np.asarray(y, dtype=float)) @ adjoint(b).T
         for y, b in zip(Y, back, strict=True)]  # fmt: skip
    B = [a if p < 0 else back[p] @ a for a, p in zip(home, up, strict=True)]
    return from_body_screws(X, B, inertia, up, **options)


def from_joint_screws(
    Z: Rows,
    S_parent: Rows,
    S_child: Rows,
    inertia: Rows,
    parents: Sequence[int] | None = None,
    **options: Any,
) -> Model:
    """A model from screws in joint frames: ``C_i = C_λ S_{λ,i} exp(Z_i q_i) S_{i,i}⁻¹``.

    Source: Müller (91), (94): ``B_i = S_{λ,i} S_{i,i}⁻¹`` and ``X_i = Ad_{S_{i,i}} Z_i``.

    Args:
        Z: screw(s) of each joint in its joint frame (rad, m).
        S_parent: (n, 4, 4) joint frame in the BFR of the parent body (m).
        S_child: (n, 4, 4) joint frame in the BFR of the body (m).
        inertia: (n, 6, 6) inertia of each body in its BFR.
        parents: see :func:`from_body_screws`.
        options: those of :func:`from_body_screws`.

    Raises:
        RobotDescriptionError, ValueError: as :func:`from_body_screws`.
    """
    n = len(Z)
    above, below = _matrices("S_parent", S_parent, n), _matrices("S_child", S_child, n)
    X = [np.atleast_2d(np.asarray(z, dtype=float)) @ adjoint(s).T
         for z, s in zip(Z, below, strict=True)]  # fmt: skip
    B = [s @ _inverse(c) for s, c in zip(above, below, strict=True)]
    return from_body_screws(X, B, inertia, parents, **options)
