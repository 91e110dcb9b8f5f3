"""Composite joints: cylindrical, universal, planar."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.descriptions import X, Y, Z, joint, one_joint, robot
from support.helpers import assert_close, jit

from rbd_jax import RobotSpec, build_model
from rbd_jax.model import joint_placements


def rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    K = np.cross(axis / np.linalg.norm(axis), np.eye(3)).T
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def whole(spec: RobotSpec, q) -> tuple[np.ndarray, np.ndarray]:
    """Pose of the last body of a chain that starts at the world."""
    R, p = np.eye(3), np.zeros(3)
    Rs, ps = map(np.asarray, jit(joint_placements)(build_model(spec), jnp.asarray(q)))
    for Ri, pi in zip(Rs, ps, strict=True):
        R, p = R @ Ri, p + R @ pi
    return R, p


def test_cylindrical_joint():
    axis = np.array([0.0, 0.6, 0.8])
    R, p = whole(one_joint("cylindrical", axis=axis), [0.3, 0.7])
    assert_close((R, p), (rotation(axis, 0.7), 0.3 * axis), atol=1e-15)


def test_universal_joint():
    axis2 = np.array([0.0, 0.6, 0.8])
    R, p = whole(one_joint("universal", axis=X, axis2=axis2), [0.3, 0.7])
    assert_close((R, p), (rotation(X, 0.3) @ rotation(axis2, 0.7), np.zeros(3)), atol=1e-15)


def test_planar_joint_about_z_moves_in_x_and_y():
    R, p = whole(one_joint("planar", axis=2 * Z), [0.3, 0.7, 1.1])
    assert_close((R, p), (rotation(Z, 1.1), np.array([0.3, 0.7, 0.0])), atol=1e-15)


def _tilted(angle: float) -> np.ndarray:
    return np.array([0.6 * np.sin(angle), 0.8 * np.sin(angle), -np.cos(angle)])


NORMALS = [X, -X, Y, -Y, Z, -Z, np.array([1.0, -2.0, 0.5])]
NEAR_DOWN = [_tilted(t) for t in (1e-7, 1e-6, 2e-6, 1e-5, 1e-3)]


@pytest.mark.parametrize("normal", [*NORMALS, *NEAR_DOWN])
def test_planar_axes_are_a_right_handed_frame_with_the_normal(normal):
    model = build_model(one_joint("planar", axis=normal))
    frame = np.asarray(model.axis).T
    assert_close(frame.T @ frame, np.eye(3), atol=1e-15)
    assert np.linalg.det(frame) > 0
    assert_close(frame[:, 2], normal / np.linalg.norm(normal), atol=1e-15)


@pytest.mark.parametrize("kind, parts", [("cylindrical", 2), ("universal", 2), ("planar", 3)])
def test_composites_put_the_placement_first_and_the_mass_last(kind, parts):
    spec = robot(
        joint("j", kind, "base", "link", 7, axis2=Y), joint("next", "revolute", "link", "tip")
    )
    model = build_model(spec)
    assert model.nb == parts + 1 and model.topology.parents == tuple(range(-1, parts))
    assert model.body_names[-2:] == ("link", "tip")
    assert not np.any(model.inertia[: parts - 1]) and model.inertia[parts - 1, 0] > 0
    eye = np.broadcast_to(np.eye(3), (parts - 1, 3, 3))
    assert_close(model.placement_R[1:parts], eye, atol=0)
    assert_close(model.placement_R[0], spec.joints[0].R, atol=0)
    assert model.v_slice("j") == slice(0, parts) and model.v_slice("next") == slice(
        parts, parts + 1
    )
