"""Shapes and pairs of a compiled MuJoCo model."""

import numpy as np

from ...io.mjcf import name_of
from ...spatial.host import rotation_of_quat
from ..collision.detection import Pairs
from ..collision.height_fields import cells_of
from ..collision.shapes import HeightField, Shapes
from ..collision.support import bodies
from ..kinds.contacts import Contacts
from .hulls import hulls
from .reader import Reader


def touching_geoms(r: Reader) -> list[int]:
    """The geoms of MuJoCo that may touch, which become the shapes of the scene."""
    return sorted({g for x in met_pairs(r) for g in x.geoms})


def met_pairs(r: Reader):
    """The pairs that may touch; none if contacts are switched off."""
    off = r.disabled("CONSTRAINT") or r.disabled("CONTACT")
    return [] if off else r.geom_pairs


def contacts_of(r: Reader) -> Contacts:
    """Shapes, the pairs that may touch, and their parameters."""
    m, met, used = r.m, met_pairs(r), touching_geoms(r)
    at = {g: k for k, g in enumerate(used)}
    R, p = [], []
    for g in used:
        b = int(m.geom_bodyid[g])
        R.append(r.bodies.R[b] @ rotation_of_quat(m.geom_quat[g]))
        p.append(r.bodies.p[b] + r.bodies.R[b] @ m.geom_pos[g])
    n, k = len(used), len(met)
    kinds = tuple(_kind(r, g) for g in used)
    hull = hulls(m, used)
    moving = np.asarray(getattr(m, "geom_surfacevel", np.zeros((m.ngeom, 6))))
    shapes = Shapes(
        r.array(R, n, 3, 3),
        r.array(p, n, 3),
        r.array([m.geom_size[g] for g in used], n, 3),
        r.array(hull.tables.corners, *hull.tables.corners.shape),
        kinds,
        tuple(int(r.bodies.index[m.geom_bodyid[g]]) for g in used),
        tuple(r.part(int(m.geom_bodyid[g])) for g in used),
        tuple(name_of(m, "geom", g) for g in used),
        hull.tables.faces,
        hull.rows,
        polygons=hull.tables.polygons,
        bend=r.array(hull.bend, *hull.bend.shape),
        surface=r.array(moving[used], n, 6) if moving.any() else None,
        fields=tuple(_field(r, g) for g, kind in zip(used, kinds, strict=True) if kind == "hfield"),
    )
    pairs = Pairs(
        friction=r.array([x.friction for x in met], k, 5),
        solref=r.array([x.solref for x in met], k, 2),
        solref_friction=r.array([x.solref_friction for x in met], k, 2),
        solimp=r.array([x.solimp for x in met], k, 5),
        margin=r.array([x.margin for x in met], k),
        shapes=tuple((at[x.geoms[0]], at[x.geoms[1]]) for x in met),
        condim=tuple(x.condim for x in met),
        several=not r.disabled("MULTICCD"),
        cells=tuple(
            cells_of(_field(r, x.geoms[0]), _width(shapes, at[x.geoms[1]]) + 2 * x.margin)
            for x in met
            if kinds[at[x.geoms[0]]] == "hfield"
        ),
    )
    elliptic = int(m.opt.cone) == int(r.mj.mjtCone.mjCONE_ELLIPTIC)
    least = 0.0 if r.disabled("REFSAFE") else 2.0
    return Contacts(shapes, pairs, r.array(m.opt.impratio), r.array(least), None, elliptic)


def _kind(r: Reader, g: int) -> str:
    return str(r.mj.mjtGeom(r.m.geom_type[g]).name).removeprefix("mjGEOM_").lower()


def _field(r: Reader, g: int) -> HeightField:
    """The heights of a geom of the kind ``hfield``."""
    k = int(r.m.geom_dataid[g])
    rows, columns = int(r.m.hfield_nrow[k]), int(r.m.hfield_ncol[k])
    half_x, half_y, top, base = r.m.hfield_size[k]
    start = int(r.m.hfield_adr[k])
    data = np.asarray(r.m.hfield_data, float)[start : start + rows * columns]
    heights = r.array(data * top, rows, columns)
    return HeightField(heights, r.array([half_x, half_y], 2), r.array(base))


def _width(shapes: Shapes, k: int) -> float:
    """The diameter of a sphere around a shape, at its origin (m)."""
    at, kind = slice(k, k + 1), shapes.kinds[k]
    corners = shapes.corners[shapes.hulls[k]][None] if kind == "mesh" else None
    body = bodies([kind], shapes.R[at], shapes.p[at], shapes.size[at], corners)
    return 2 * float(type(body)(*(x[0] for x in body)).bound)
