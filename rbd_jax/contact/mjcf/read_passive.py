"""Gravity compensation and fluid of a compiled MuJoCo model."""

import numpy as np

from ...spatial import inertia
from ...spatial.host import rotation_of_quat
from ..passive import LIGHTEST, Ellipsoids, Fluid, GravityCompensation
from .reader import Reader


def gravcomp_of(r: Reader) -> GravityCompensation | None:
    """The gravity compensation of the file's bodies; None if no body has a ``gravcomp``."""
    m = r.m
    share = np.asarray(m.body_gravcomp)
    off = r.disabled("SPRING") and r.disabled("DAMPER")  # then there are no passive forces
    found = [b for b in np.flatnonzero(share).tolist() if r.bodies.index[b] >= 0]
    found = [b for b in found if m.body_mass[b] > 0]
    if not found or r.disabled("GRAVITY") or off:
        return None
    own = [share[b] * r.part_of_mass(b) for b in found]
    taken = np.flatnonzero(np.asarray(m.jnt_actgravcomp)[np.asarray(m.dof_jntid)])
    return GravityCompensation(
        r.array(own, len(found)), r.parts(found), tuple(sorted(r.dof_of(int(d)) for d in taken))
    )


def fluid_of(r: Reader) -> Fluid | None:
    """The fluid of a compiled MuJoCo model; None if it has neither density nor viscosity."""
    m, o = r.m, r.m.opt
    if not (o.density > 0 or o.viscosity > 0) or (r.disabled("SPRING") and r.disabled("DAMPER")):
        return None
    found = [b for b in range(m.nbody) if r.bodies.index[b] >= 0 and m.body_mass[b] >= LIGHTEST]
    shaped = [
        g for g in range(m.ngeom) if m.geom_fluid[g, 0] > 0 and int(m.geom_bodyid[g]) in found
    ]
    found = [b for b in found if all(int(m.geom_bodyid[g]) != b for g in shaped)]
    R = [r.bodies.R[b] @ rotation_of_quat(m.body_iquat[b]) for b in found]
    n = len(found)
    axes, parts = r.array(R, n, 3, 3), r.parts(found)
    own = np.array([m.body_inertia[b] / m.body_mass[b] for b in found]).reshape(n, 3)
    whole = np.asarray(inertia.inertia_com(r.model.inertia), float)
    mass = np.asarray(inertia.mass(r.model.inertia), float)
    gyration = np.zeros((n, 3))
    for k, (b, i) in enumerate(zip(found, parts.bodies, strict=True)):
        if r.part_of_mass(b) < 1:
            gyration[k] = own[k] - np.diagonal(R[k].T @ whole[i] @ R[k]) / mass[i]
    return Fluid(
        r.array(o.density), r.array(o.viscosity), r.array(o.wind, 3), axes,
        r.array(gyration, n, 3), parts, _ellipsoids(r, shaped),
    )  # fmt: skip


def _ellipsoids(r: Reader, geoms: list[int]) -> Ellipsoids | None:
    """The ellipsoids that stand for some geoms; None for none."""
    if not geoms:
        return None
    m, n = r.m, len(geoms)
    on = [int(m.geom_bodyid[g]) for g in geoms]
    numbers, both = np.asarray(m.geom_fluid, float)[geoms], list(zip(on, geoms, strict=True))
    R = [r.bodies.R[b] @ rotation_of_quat(m.geom_quat[g]) for b, g in both]
    return Ellipsoids(
        R=r.array(R, n, 3, 3),
        p=r.array([r.point(b, m.geom_pos[g]) for b, g in both], n, 3),
        axes=r.array([_semi_axes(r, g) for g in geoms], n, 3),
        share=r.array(numbers[:, 0], n),
        coef=r.array(numbers[:, 1:6], n, 5),
        added=r.array(np.stack([numbers[:, 9:], numbers[:, 6:9]], axis=1), n, 2, 3),
        bodies=tuple(int(r.bodies.index[b]) for b in on),
    )


def _semi_axes(r: Reader, geom: int) -> np.ndarray:
    """The semi-axes of the ellipsoid that stands for a geom (m)."""
    a, b, c = r.m.geom_size[geom]
    kind = str(r.mj.mjtGeom(int(r.m.geom_type[geom])).name).removeprefix("mjGEOM_").lower()
    like = {"sphere": (a, a, a), "capsule": (a, a, a + b), "cylinder": (a, a, b)}
    return np.array(like.get(kind, (a, b, c)))
