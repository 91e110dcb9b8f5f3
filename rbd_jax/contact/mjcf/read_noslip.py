"""The noslip pass of a compiled MuJoCo model."""

import numpy as np

from ..solver.noslip import NoSlip
from .geom_pairs import GeomPair
from .reader import Reader


def noslip_of(r: Reader, met: list[GeomPair]) -> NoSlip | None:
    """The options of the pass; None without it.

    Args:
        r: the compiled model. met: the pairs that may touch.
    """
    m, o = r.m, r.m.opt
    if not o.noslip_iterations:
        return None
    data = r.mj.MjData(m)
    data.qpos[:] = m.qpos0
    r.mj.mj_fwdPosition(m, data)
    M = np.zeros((m.nv, m.nv))
    r.mj.mj_fullM(m, data, M)
    own, stated = np.diagonal(M).mean() if m.nv else 1.0, float(m.stat.meaninertia)
    return NoSlip(
        tolerance=r.array(o.noslip_tolerance),
        inertia=None if np.isclose(own, stated, rtol=1e-9) else r.array(stated),
        iterations=int(o.noslip_iterations),
        order=_order(r, met),
        islands=not r.disabled("ISLAND"),
    )


def _order(r: Reader, met: list[GeomPair]) -> tuple[int, ...]:
    """The place of each pair in MuJoCo's list of contacts.

    MuJoCo goes through pairs of bodies, and for each through the pairs that the file lists and then
    through the others.
    """
    m = r.m
    listed = {
        frozenset((int(a), int(b))): k
        for k, (a, b) in enumerate(zip(m.pair_geom1, m.pair_geom2, strict=True))
    }

    def key(x: GeomPair):
        bodies = sorted(int(m.geom_bodyid[g]) for g in x.geoms)
        place = listed.get(frozenset(x.geoms))
        return (*bodies, 1, *x.geoms) if place is None else (*bodies, 0, place, 0)

    place = np.empty(len(met), int)
    place[sorted(range(len(met)), key=lambda k: key(met[k]))] = np.arange(len(met))
    return tuple(map(int, place))
