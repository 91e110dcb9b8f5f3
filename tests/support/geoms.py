"""Convex geoms of MJCF files, one of each kind."""

import numpy as np


def drum(sides: int) -> np.ndarray:
    """The corners of a mesh with two parallel polygons that are not over each other (m)."""
    angles = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([0.15 * np.cos(angles), 0.12 * np.sin(angles), 0 * angles], axis=1)
    return np.concatenate([ring + [0, 0, -0.05], 0.7 * ring + [0.01, 0, 0.1]])


GEOMS = {
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".06 .2"',
    "ellipsoid": 'type="ellipsoid" size=".2 .15 .1"',
    "cylinder": 'type="cylinder" size=".15 .2"',
    "box": 'type="box" size=".2 .15 .1"',
    "mesh": 'type="mesh" mesh="drum"',
}
"""The mesh ``drum`` has to be among the assets."""
