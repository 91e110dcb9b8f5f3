"""Which geoms of a compiled MuJoCo model may touch, and with what parameters.

Source: MuJoCo's documentation, "Computation", collision detection (selection), and "Modeling",
contact parameters (mixing).
"""

from typing import Any, NamedTuple

import numpy as np

from ...io.mjcf import name_of
from ..collision.ground import POINTS
from ..collision.primitives import PAIRS
from .hulls import flaw


class GeomPair(NamedTuple):
    """Two geoms that may touch, in the order of their types, and the parameters of the contact."""

    geoms: tuple[int, int]
    condim: int
    friction: np.ndarray
    solref: np.ndarray
    solref_friction: np.ndarray
    solimp: np.ndarray
    margin: float


def geom_pairs(m: Any, mj: Any) -> tuple[list[GeomPair], list[str]]:
    """All pairs that may touch, and the names of those whose shapes are not supported.

    Args:
        m: a ``mujoco.MjModel``. mj: the package ``mujoco``.
    """
    kind = [str(mj.mjtGeom(t).name).removeprefix("mjGEOM_").lower() for t in m.geom_type]
    found, unsupported_pairs = [], []
    for meeting in (*_listed(m), *_filtered(m, mj)):
        a, b = kind[meeting.geoms[0]], kind[meeting.geoms[1]]
        wrong = flaw(m, meeting.geoms[1]) if b == "mesh" else ""
        b = wrong or b
        if (a == "plane" and b in POINTS) or (a, b) in PAIRS:
            found.append(meeting)
        else:
            names = [name_of(m, "geom", g) for g in meeting.geoms]
            unsupported_pairs.append(f"{names[0]} ({a}) with {names[1]} ({b})")
    found.sort(key=lambda x: (x.condim, kind[x.geoms[0]], kind[x.geoms[1]]))
    return found, unsupported_pairs


def _ordered(m: Any, a: int, b: int) -> tuple[int, int]:
    return (a, b) if m.geom_type[a] <= m.geom_type[b] else (b, a)


def _listed(m: Any) -> list[GeomPair]:
    """The pairs of the ``<contact>`` section, which state all of their parameters."""
    pairs = []
    for i in range(m.npair):
        geoms = _ordered(m, int(m.pair_geom1[i]), int(m.pair_geom2[i]))
        pairs.append(
            GeomPair(geoms, int(m.pair_dim[i]), m.pair_friction[i], m.pair_solref[i],
                    m.pair_solreffriction[i], m.pair_solimp[i], float(m.pair_margin[i]))
        )  # fmt: skip
    return pairs


def _filtered(m: Any, mj: Any) -> list[GeomPair]:
    """The pairs that the masks, the tree of bodies and the exclusions allow."""
    signature = {tuple(sorted((int(s) >> 16, int(s) & 0xFFFF))) for s in m.exclude_signature}
    listed = {
        tuple(sorted((int(a), int(b)))) for a, b in zip(m.pair_geom1, m.pair_geom2, strict=True)
    }
    weld = [int(w) for w in m.body_weldid]
    up = [weld[int(m.body_parentid[w])] for w in weld]
    moving = [int(m.body_dofnum[w]) > 0 for w in weld]
    keep_parents = bool(m.opt.disableflags & int(mj.mjtDisableBit.mjDSBL_FILTERPARENT))
    pairs = []
    for a in range(m.ngeom):
        for b in range(a + 1, m.ngeom):
            i, j = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
            allowed = (m.geom_contype[a] & m.geom_conaffinity[b]) or (
                m.geom_contype[b] & m.geom_conaffinity[a]
            )
            if not allowed or weld[i] == weld[j] or not (moving[i] or moving[j]):
                continue
            family = weld[i] == up[j] or weld[j] == up[i]
            if not keep_parents and weld[i] and weld[j] and family:
                continue
            if tuple(sorted((i, j))) in signature or (a, b) in listed:
                continue
            pairs.append(_mixed(m, *_ordered(m, a, b)))
    return pairs


def _mixed(m: Any, a: int, b: int) -> GeomPair:
    """A pair with the parameters of the geom of higher priority, or with mixed parameters."""
    first, second = int(m.geom_priority[a]), int(m.geom_priority[b])
    one = a if first > second else b
    condim, friction = int(m.geom_condim[one]), m.geom_friction[one]
    solref, solimp = m.geom_solref[one], m.geom_solimp[one]
    if first == second:
        condim = max(int(m.geom_condim[a]), int(m.geom_condim[b]))
        friction = np.maximum(m.geom_friction[a], m.geom_friction[b])
        x, y = float(m.geom_solmix[a]), float(m.geom_solmix[b])
        tiny = 1e-15
        mix = (
            x / (x + y)
            if x >= tiny and y >= tiny
            else 0.5
            if x < tiny and y < tiny
            else float(x >= tiny)
        )
        standard = m.geom_solref[a, 0] > 0 and m.geom_solref[b, 0] > 0
        blend = mix * m.geom_solref[a] + (1 - mix) * m.geom_solref[b]
        solref = blend if standard else np.minimum(m.geom_solref[a], m.geom_solref[b])
        solimp = mix * m.geom_solimp[a] + (1 - mix) * m.geom_solimp[b]
    five = np.array([friction[0], friction[0], friction[1], friction[2], friction[2]])
    margin = float(m.geom_margin[a] + m.geom_margin[b])
    return GeomPair((a, b), condim, five, np.array(solref), np.zeros(2), np.array(solimp), margin)
