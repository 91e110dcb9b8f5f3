"""Models from screws alone: product-of-exponentials modeling. Source: Müller App. A, §4.4.

This runs on the host in float64 NumPy, and :func:`rbd_jax.build_model` makes the arrays. A joint is
given by its screw coordinates, ``(6,)``, or by the rows that span its motions: three rows for a
spherical or translation joint, six for a free one. Poses are homogeneous matrices (4, 4). Inertias
are the 6×6 matrices of (40) in the body-fixed reference frame (BFR) of the body.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..io import build_model
from ..model import JointSpec, LinkSpec, Model, RobotDescriptionError, RobotSpec
from ..spatial.host import adjoint, hat, inverse, pose

_TOLERANCE = 1e-6  # It accepts numbers that were rounded to float32.
# Random axes in float32 and float64, up to 100 m away, need at most 0.4 of this.
_ROUNDINGS = 4
_DIGITS = range(4, 8)  # numbers with so many digits are taken for rounded ones
Rows = Sequence[Any] | np.ndarray


def _matrices(name: str, C: Any, n: int, size: int = 4) -> np.ndarray:
    """``n`` square matrices as an array. Matrices of size 4 are checked to be rigid motions."""
    C = np.asarray(C, dtype=float)
    if C.shape != (n, size, size) or not np.isfinite(C).all():
        raise ValueError(
            f"{name} must be {n} finite matrices {size} × {size}, one for each body; "
            f"got shape {C.shape}"
        )
    if size == 4:
        R = C[:, :3, :3]
        far = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2)) > _TOLERANCE
        far |= np.abs(C[:, 3] - [0, 0, 0, 1]).max(axis=1) > _TOLERANCE
        far |= np.linalg.det(R) < 0
        if far.any():
            raise RobotDescriptionError(
                f"{name}: matrix {int(np.argmax(far))} is not a rigid motion; it must have a "
                "rotation matrix with determinant +1, a position, and the last row 0 0 0 1"
            )
        for _ in range(2):  # make R orthogonal to rounding, so that screws keep their pitch
            R = 1.5 * R - 0.5 * R @ np.swapaxes(R, 1, 2) @ R
        C = C.copy()
        C[:, :3, :3] = R
    return C


def _parents(n: int, parents: Sequence[int] | None) -> list[int]:
    """The parents; a chain if None. ValueError or RobotDescriptionError if they are wrong."""
    up = list(range(-1, n - 1)) if parents is None else [int(p) for p in parents]
    if len(up) != n:
        raise ValueError(f"parents has {len(up)} entries, but there are screws of {n} joints")
    if any(not -1 <= p < i for i, p in enumerate(up)):
        raise RobotDescriptionError(f"parents {up}: every parent must come before its children")
    return up


def _screws(X: Rows, poses: np.ndarray | None = None) -> tuple[list[np.ndarray], list[float]]:
    """The screws of each joint in float64, and the pitches that rounding alone can give (m/rad).

    A pitch is a product of ω and v. So its rounding error is the relative precision of the numbers
    times the distance from the origin, which is that of the farthest axis plus that of the farthest
    body, if ``poses`` are given. The precision follows from the dtypes. Numbers may have been
    rounded before, for example in a file with seven digits. This shows in axes whose length is not
    exactly 1, and in the digits of v, see :func:`_rounding_of_digits`.
    """
    given = [np.asarray(x) for x in X]
    rows = [np.atleast_2d(x.astype(float)) for x in given]
    every = np.concatenate([np.zeros((1, 6)), *[x for x in rows if x.shape[1:] == (6,)]])
    turning, lever = np.linalg.norm(every[:, :3], axis=1), np.linalg.norm(every[:, 3:], axis=1)
    axes = turning > _TOLERANCE
    precision = max([np.finfo(x.dtype if x.dtype.kind == "f" else float).eps for x in given],
                    default=0.0)  # fmt: skip
    precision = max(precision, np.abs(turning[axes] - 1).max(initial=0.0))
    distance = lever[axes].max(initial=0.0)
    if poses is not None:
        distance += np.linalg.norm(poses[:, :3, 3], axis=1).max(initial=0.0)
    least = float(_ROUNDINGS * precision * (1 + distance))
    return rows, [max(least, _rounding_of_digits(x, g)) for x, g in zip(rows, given, strict=True)]


def _rounding_of_digits(X: np.ndarray, given: np.ndarray) -> float:
    """The pitch that the rounding of v can give to a screw whose v shows 4 to 7 digits (m/rad).

    Numbers with fewer digits count as numbers of 4, and numbers with more than 7 as exact. The
    digits are significant ones, or those after the decimal point: half a unit of the last one in
    each entry of v, times ω.
    """
    if X.shape[1:] != (6,):
        return 0.0
    w, v = np.abs(X[:, :3]), X[:, 3:]
    eps = np.finfo(given.dtype if given.dtype.kind == "f" else float).eps
    size = np.floor(np.log10(np.where(v == 0, 1, np.abs(v))))
    worst = 0.0
    for place in (np.zeros_like(v), 1 + size):  # of the first digit
        for n in _DIGITS:
            unit = 10.0 ** (place - n)
            if np.all(np.abs(np.round(v / unit) * unit - v) <= 4 * eps * np.abs(v)):
                worst = max(worst, 0.5 * np.sum(w * unit, axis=1).max())
                break
    return worst


def _joint_of_screws(
    name: str, X: np.ndarray, rounding: float
) -> tuple[dict[str, Any], np.ndarray]:
    """Kind, axis and pitch of the joint that a set of screws spans, and its frame in the BFR.

    ``rounding`` (m/rad) is the pitch that rounding can give to a joint without pitch.
    """
    w, v = X[:, :3], X[:, 3:]
    center = 0.5 * np.cross(w, v).sum(axis=0)  # The point r of three orthonormal w with v = r × w.

    def fail(text: str):
        raise RobotDescriptionError(f"screw of {name!r}: {text}")

    if len(X) == 1:
        w, v = w[0], v[0]
        turning, sliding = np.linalg.norm(w), np.linalg.norm(v)
        if turning < _TOLERANCE:
            if abs(sliding - 1) > _TOLERANCE:
                fail(f"a translation must have |v| = 1, got {sliding:.9g}; rescale it")
            return {"kind": "prismatic", "axis": v / sliding}, np.eye(4)
        if abs(turning - 1) > _TOLERANCE:
            fail(f"a rotation must have |ω| = 1, got {turning:.9g}; rescale it")
        w, v = w / turning, v / turning
        pitch = float(w @ v)
        kind = "revolute" if abs(pitch) < rounding else "helical"
        return {"kind": kind, "axis": w, "pitch": pitch}, pose(np.eye(3), np.cross(w, v))
    if len(X) == 3 and np.abs(w).max() < _TOLERANCE:
        kind, D = "translation", pose(v.T, np.zeros(3))
    elif len(X) == 3:
        kind, D = "spherical", pose(w.T, center)
    elif len(X) == 6:
        kind, D = "free", pose(w[:3].T, 0.5 * np.cross(w[:3], v[:3]).sum(axis=0))
    else:
        fail(f"it must have 1, 3 or 6 rows, got {len(X)}; model other joints as chains of these")
    R, S = D[:3, :3], {"translation": np.eye(6)[3:], "spherical": np.eye(6)[:3]}
    rotation = np.abs(R.T @ R - np.eye(3)).max() < _TOLERANCE and np.linalg.det(R) > 0
    allowed = max(_TOLERANCE, rounding)
    if not rotation or np.abs(X - S.get(kind, np.eye(6)) @ adjoint(D).T).max() > allowed:
        fail(f"its {len(X)} rows are not a {kind} joint, which has unit screws along the axes of "
             "one right-handed frame, rotations first")  # fmt: skip
    return {"kind": kind}, D


def _link(name: str, M: np.ndarray) -> LinkSpec:
    """Mass, center of mass and inertia about it from a 6×6 inertia matrix. Source: (39)–(40)."""
    m = float(M[5, 5])
    md = np.array([M[2, 4], M[0, 5], M[1, 3]])
    d = md / m if m else md
    Theta = 0.5 * (M[:3, :3] + M[:3, :3].T)
    shape = np.block([[Theta, m * hat(d)], [-m * hat(d), m * np.eye(3)]])
    if np.abs(M - shape).max() > _TOLERANCE * (1 + np.abs(M).max()):
        raise RobotDescriptionError(
            f"inertia of {name!r} does not have the form [[Θ, m d×], [−m d×, m 1]] of Müller (40)"
        )
    return LinkSpec(name, m, d, Theta + m * hat(d) @ hat(d))


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

    Bodies and joints are named ``body1`` … and ``joint1`` …. The BFR of body i is the frame
    ``link{i}`` of the model. The model's own body frame lies on the joint's axis. The result is not
    differentiated by the screws.

    A screw becomes a revolute joint if its pitch is not greater than the rounding error of its
    numbers, and helical otherwise. The error follows from the dtype, from the distance of the axes
    from the origin, and from the digits of v: numbers of at most 4, of 5, 6 or 7 digits (after the
    decimal point or significant) count as rounded to them. So a pitch of less than
    ``½ 10⁻⁴ (|ω_x| + |ω_y| + |ω_z|)`` m/rad, which is 0.3 to 0.5 mm a turn, needs a v with more
    than 4 digits.

    Source: Müller (91), (92).

    Args:
        X: screw(s) of each joint in the BFR of its body (rad, m).
        B: (n, 4, 4) pose of each BFR in the parent's BFR at q = 0 (m).
        inertia: (n, 6, 6) inertia of each body in its BFR, angular part first.
        parents: the parent of each body, −1 for the world; a chain if None. Parents come before
            their children. The model numbers bodies depth first, whatever the order here.
        name: name of the robot.
        tool: (4, 4) pose of a frame named ``tool`` in the last BFR (m), if any.
        joint_data: for each joint other fields of :class:`rbd_jax.JointSpec` (limits, damping,
            friction, armature).
        options: options ``dtype`` and ``gravity`` of :func:`rbd_jax.build_model`.

    Raises:
        RobotDescriptionError: for screws that belong to no known joint, an inertia that no rigid
            body has, or parents that come after their children.
        ValueError: if the numbers of joints, poses and inertias differ.
    """
    rows, rounding = _screws(X)
    return _from_rows(rows, rounding, B, inertia, parents, name, tool, joint_data, **options)


def _from_rows(
    screws: list[np.ndarray],
    rounding: list[float],
    B: Rows,
    inertia: Rows,
    parents: Sequence[int] | None,
    name: str = "screws",
    tool: np.ndarray | None = None,
    joint_data: Sequence[dict[str, Any]] | None = None,
    **options: Any,
) -> Model:
    """The same as :func:`from_body_screws`, from the results of :func:`_screws`."""
    n = len(screws)
    up = _parents(n, parents)
    B = _matrices("B", B, n)
    inertia = _matrices("inertia", inertia, n, 6)
    if joint_data is not None and len(joint_data) != n:
        raise ValueError(f"joint_data has {len(joint_data)} entries for {n} screws")
    links, joints, frames = [LinkSpec("base")], [], [np.eye(4)]
    for i, (x, p) in enumerate(zip(screws, up, strict=True)):
        kind, D = _joint_of_screws(f"joint{i + 1}", x, rounding[i])
        place = frames[p + 1] @ B[i] @ D
        parent = "base" if p < 0 else f"body{p + 1}"
        link = _link(f"link{i + 1}", inertia[i])
        links += [LinkSpec(f"body{i + 1}"), link]
        frames.append(inverse(D))  # the BFR in the body frame on the joint's axis
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
        A: (n, 4, 4) home poses ``C_i(0)`` of the BFRs (m). If None, all BFRs coincide with the
            world frame at q = 0, so that no body frames are needed at all (§4.4). The inertias are
            then in the world frame at q = 0, and ``X_i = Y_i``.
        parents: see :func:`from_body_screws`.
        options: options of :func:`from_body_screws`.

    Raises:
        RobotDescriptionError, ValueError: in the same cases as :func:`from_body_screws`.
    """
    n = len(Y)
    home = _matrices("A", np.tile(np.eye(4), (n, 1, 1)) if A is None else A, n)
    up = _parents(n, parents)
    back = [inverse(a) for a in home]
    rows, rounding = _screws(Y, home)
    X = [y @ adjoint(b).T for y, b in zip(rows, back, strict=True)]
    B = [a if p < 0 else back[p] @ a for a, p in zip(home, up, strict=True)]
    return _from_rows(X, rounding, B, inertia, up, **options)


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
        options: options of :func:`from_body_screws`.

    Raises:
        RobotDescriptionError, ValueError: in the same cases as :func:`from_body_screws`.
    """
    n = len(Z)
    above, below = _matrices("S_parent", S_parent, n), _matrices("S_child", S_child, n)
    rows, rounding = _screws(Z, below)
    X = [z @ adjoint(s).T for z, s in zip(rows, below, strict=True)]
    B = [s @ inverse(c) for s, c in zip(above, below, strict=True)]
    return _from_rows(X, rounding, B, inertia, parents, **options)
