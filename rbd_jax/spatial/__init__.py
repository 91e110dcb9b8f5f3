"""Spatial algebra: rotations, rigid motions, twists, wrenches and inertias. Knows no robot.

A twist is ``(ω, v)`` and a wrench is ``(n, f)``, angular part first (Kim (10), (12)).
A pose is a pair ``(R, p)`` that maps child coordinates to parent coordinates.
Every function works on a single item or, by broadcasting, on leading batch axes.
"""

from . import (
    articulated as articulated,
    host as host,
    inertia as inertia,
    linear as linear,
    motion as motion,
    se3 as se3,
    so3 as so3,
)
