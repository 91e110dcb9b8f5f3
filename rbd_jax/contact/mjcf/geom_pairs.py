"""Which geoms of a compiled MuJoCo model may touch, and with what parameters.

Source: MuJoCo's documentation, "Computation", collision detection (selection), and "Modeling",
contact parameters (mixing).
"""

from typing import Any, NamedTuple

import numpy as np

from ...io.mjcf import name_of
from ..collision.ground import POINTS
from ..collision.many import CONVEX_PAIRS
from ..collision.primitives import PAIRS
from ..collision.support import CONVEX
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
    """All pairs that may touch; of pairs whose shapes are not supported, how many of which kinds.

    Args:
        m: a ``mujoco.MjModel``. mj: the package ``mujoco``.
    """
    kind = [str(mj.mjtGeom(t).name).removeprefix("mjGEOM_").lower() for t in m.geom_type]
    kind = [flaw(m, g) or k if k == "mesh" else k for g, k in enumerate(kind)]
    fixed = {("plane", "plane"), ("plane", "hfield"), ("hfield", "hfield")}
    found: list[GeomPair] = []
    unsupported: dict[tuple[str, str], list[GeomPair]] = {}
    for meeting in (*_listed(m), *_filtered(m, mj)):
        kinds = kind[meeting.geoms[0]], kind[meeting.geoms[1]]
        if kinds in fixed:  # MuJoCo has no contacts of these
            continue
        ground = kinds[0] == "plane" and kinds[1] in POINTS
        ground = ground or (kinds[0] == "hfield" and kinds[1] in CONVEX)
        if ground or kinds in PAIRS or kinds in CONVEX_PAIRS:
            found.append(meeting)
        else:
            unsupported.setdefault(kinds, []).append(meeting)
    found.sort(key=lambda x: (x.condim, kind[x.geoms[0]], kind[x.geoms[1]]))
    said = []
    for (a, b), some in unsupported.items():
        first, second = (name_of(m, "geom", g) for g in some[0].geoms)
        count = f"{len(some)} pairs of {a} and {b}, such as " if len(some) > 1 else ""
        said.append(f"{count}{first} ({a}) with {second} ({b})")
    return found, said


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
    type_, affinity = (np.asarray(x) for x in (m.geom_contype, m.geom_conaffinity))
    bodies = np.asarray(m.geom_bodyid, int)
    weld = np.asarray(m.body_weldid, int)
    up = weld[np.asarray(m.body_parentid, int)[weld]]
    moving = np.asarray(m.body_dofnum)[weld] > 0
    keep_parents = bool(m.opt.disableflags & int(mj.mjtDisableBit.mjDSBL_FILTERPARENT))
    w, u, moves = (x[bodies] for x in (weld, up, moving))
    met = (type_[:, None] & affinity[None]) != 0
    met = (met | met.T) & (w[:, None] != w[None]) & (moves[:, None] | moves[None])
    if not keep_parents:
        family = w[:, None] == u[None]
        met &= ~((w[:, None] != 0) & (w[None] != 0) & (family | family.T))
    for s in m.exclude_signature:
        one, two = (bodies == k for k in (int(s) >> 16, int(s) & 0xFFFF))
        both = one[:, None] & two[None]
        met &= ~(both | both.T)
    a, b = np.asarray(m.pair_geom1, int), np.asarray(m.pair_geom2, int)
    met[a, b] = met[b, a] = False
    i, j = np.nonzero(np.triu(met, 1))
    kind = np.asarray(m.geom_type)
    swap = kind[i] > kind[j]
    return _mixed(m, np.where(swap, j, i), np.where(swap, i, j))


def _mixed(m: Any, a: np.ndarray, b: np.ndarray) -> list[GeomPair]:
    """Pairs with the parameters of the geom of higher priority, or with mixed parameters."""
    priority = np.asarray(m.geom_priority)
    one = np.where(priority[a] > priority[b], a, b)
    alike = priority[a] == priority[b]

    def chosen(field: str, both: np.ndarray) -> np.ndarray:
        own = np.asarray(getattr(m, field))[one]
        return np.where(alike.reshape(-1, *[1] * (own.ndim - 1)), both, own)

    each = lambda field: (np.asarray(getattr(m, field))[k] for k in (a, b))  # noqa: E731
    condim = chosen("geom_condim", np.maximum(*each("geom_condim")))
    friction = chosen("geom_friction", np.maximum(*each("geom_friction")))
    (x, y), tiny = each("geom_solmix"), 1e-15
    some = (x >= tiny) & (y >= tiny)
    mix = np.where(
        some, x / np.where(some, x + y, 1), np.where((x < tiny) & (y < tiny), 0.5, x >= tiny)
    )
    mix = mix[:, None]
    r, s = each("geom_solref")
    standard = (r[:, :1] > 0) & (s[:, :1] > 0)
    solref = chosen("geom_solref", np.where(standard, mix * r + (1 - mix) * s, np.minimum(r, s)))
    r, s = each("geom_solimp")
    solimp = chosen("geom_solimp", mix * r + (1 - mix) * s)
    five = friction[:, [0, 0, 1, 2, 2]]
    near, far = each("geom_margin")
    margin = near + far
    none = np.zeros(2)
    return [
        GeomPair((int(a[k]), int(b[k])), int(condim[k]), five[k], solref[k], none, solimp[k],
                 float(margin[k]))
        for k in range(len(a))
    ]  # fmt: skip
