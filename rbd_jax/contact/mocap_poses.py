"""Scenes whose mocap bodies are moved by hand: their poses are inputs of a step.

A mocap body is a part of the world. Whatever is fixed to it moves with it: shapes, sites and other
frames, anchors of connects and welds, points of tendons.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..model.arguments import ArrayArgument, check_array
from ..spatial import so3
from .mocap import Carried
from .scene import Scene


class _Motion(NamedTuple):
    """How far each mocap body has moved: ``x`` in the world becomes ``R x + p``."""

    R: Float[Array, "n 3 3"]
    p: Float[Array, "n 3"]
    quat: Float[Array, "n 4"]

    def points(self, x: Float[Array, "k 3"], of: Carried) -> Float[Array, "k 3"]:
        """Points, of which some are carried."""
        rows, k = _columns(of)
        return x.at[rows].set(so3.rotate(self.R[k], x[rows]) + self.p[k])

    def matrices(self, R: Float[Array, "k 3 3"], of: Carried) -> Float[Array, "k 3 3"]:
        """Orientations, of which some are carried."""
        rows, k = _columns(of)
        return R.at[rows].set(so3.matmul(self.R[k], R[rows]))

    def quaternions(self, quat: Float[Array, "k 4"], of: Carried) -> Float[Array, "k 4"]:
        """Orientations as quaternions, of which some are carried."""
        rows, k = _columns(of)
        return quat.at[rows].set(so3.quat_multiply(self.quat[k], quat[rows]))


def _columns(of: Carried) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(of, dtype=np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def with_mocap(scene: Scene, p: Float[Array, "n 3"], quat: Float[Array, "n 4"]) -> Scene:
    """The same scene with its mocap bodies at other poses.

    The poses are MuJoCo's ``mocap_pos`` and ``mocap_quat``. A step of the result has them as
    inputs, with derivatives. As in MuJoCo a mocap body has no velocity: contacts and welds see it
    stand still at its pose. What MuJoCo derives at the reference configuration, such as rest
    lengths of tendons, is that of the poses in the file: pass the ``constants`` of the scene as it
    was loaded.

    Args:
        scene: a scene whose file has mocap bodies, ``scene.mocap.names``.
        p: the place of each in the world (m).
        quat: its orientation, ``wxyz``, of any length but zero.

    Raises:
        ValueError: if the scene has no mocap bodies, or for a wrong shape.
        TypeError: for values that are no arrays of floats.
    """
    mocap = scene.mocap
    if mocap is None:
        raise ValueError("with_mocap: the scene has no mocap bodies that can be moved")
    n = len(mocap.names)
    argument = lambda k: ArrayArgument((n, k), "float", False, False)  # noqa: E731
    p = check_array("with_mocap", scene.model, "p", p, argument(3))
    quat = check_array("with_mocap", scene.model, "quat", quat, argument(4))
    new, old = so3.quat_normalize(quat), so3.quat_normalize(mocap.quat)
    turn = so3.quat_multiply(new, so3.quat_conjugate(old))
    R = so3.quat_to_matrix(turn)
    by = _Motion(R, p - so3.rotate(R, mocap.p), turn)
    model, shapes, welds = scene.model, scene.contacts.shapes, scene.constraints.welds
    model = eqx.tree_at(
        lambda x: (x.frame_R, x.frame_p),
        model,
        (by.matrices(model.frame_R, mocap.frames), by.points(model.frame_p, mocap.frames)),
    )
    shapes = eqx.tree_at(
        lambda x: (x.R, x.p),
        shapes,
        (by.matrices(shapes.R, mocap.shapes), by.points(shapes.p, mocap.shapes)),
    )
    welds = eqx.tree_at(
        lambda x: (x.p1, x.p2, x.quat1, x.quat2),
        welds,
        (
            by.points(welds.p1, mocap.first),
            by.points(welds.p2, mocap.second),
            by.quaternions(welds.quat1, mocap.first),
            by.quaternions(welds.quat2, mocap.second),
        ),
    )
    moved = eqx.tree_at(
        lambda s: (s.model, s.constraints.contacts.shapes, s.constraints.welds, s.mocap),
        scene,
        (model, shapes, welds, eqx.tree_at(lambda m: (m.p, m.quat), mocap, (p, quat))),
    )
    if mocap.sensed and scene.sensors is not None:
        seen = scene.sensors
        both = by.matrices(seen.R, mocap.sensed), by.points(seen.p, mocap.sensed)
        moved = eqx.tree_at(lambda s: (s.sensors.R, s.sensors.p), moved, both)
    if (mocap.points or mocap.wraps) and scene.tendons is not None:
        x = scene.tendons.strings
        assert x is not None
        strings = eqx.tree_at(
            lambda x: (x.points, x.R, x.p),
            x,
            (
                by.points(x.points, mocap.points),
                by.matrices(x.R, mocap.wraps),
                by.points(x.p, mocap.wraps),
            ),
        )
        moved = eqx.tree_at(lambda s: s.constraints.tendons.strings, moved, strings)
    return moved
