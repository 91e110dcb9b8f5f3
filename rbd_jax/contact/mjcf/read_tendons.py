"""Tendons of a compiled MuJoCo model, with their limits, dry friction and equalities."""

from typing import Any

import numpy as np

from ...io.mjcf import name_of
from ...model import Topology
from ...spatial.host import rotation_of_quat
from ..kinds.tendon_rows import TendonEqualities, TendonFriction, TendonLimits
from ..tendons import Strings, Tendons
from .reader import Reader


def tendons_of(r: Reader) -> dict[str, Any]:
    """The fields of :class:`rbd_jax.contact.Constraints` that concern tendons."""
    if not r.m.ntendon:
        return {}
    tendons = _tendons(r)
    found = {
        "tendon_limits": _limits(r, tendons),
        "tendon_friction": _friction(r, tendons),
        "tendon_equalities": _equalities(r, tendons),
    }
    return {"tendons": tendons} | found


def pulled_bodies(r: Reader) -> list[int]:
    """The body of MuJoCo at which each pull of the spatial tendons acts."""
    paths = _Paths(r)
    strings = paths.strings()
    if strings is None:
        return []
    return strings.pulled(*strung_bodies(r))


def strung_bodies(r: Reader) -> tuple[list[int], list[int]]:
    """The bodies of MuJoCo of all points of spatial tendons, and of what they wrap around."""
    paths, m = _Paths(r), r.m
    sites = [int(m.site_bodyid[s]) for s in paths.sites]
    return sites, [int(m.geom_bodyid[g]) for g in paths.geoms]


class _Paths:
    """Walks along the paths of all tendons and collects their parts."""

    def __init__(self, r: Reader):
        self.r, self.joints, self.coef = r, [], []
        self.sites: list[int] = []
        self.divisors = [1.0]
        self.straight: list[tuple[int, int, int, int]] = []
        self.wrapped: list[tuple[int, int, int, int, int]] = []
        self.geoms: list[int] = []
        self.bodies: list[set[int]] = [set() for _ in range(r.m.ntendon)]
        for t in range(r.m.ntendon):
            self._tendon(t)

    def _tendon(self, t: int) -> None:
        r, m = self.r, self.r.m
        kinds = {int(getattr(r.mj.mjtWrap, f"mjWRAP_{k.upper()}")): k for k in
                 ("joint", "site", "pulley", "sphere", "cylinder")}  # fmt: skip
        before, divisor, around = None, 0, None
        for k in range(int(m.tendon_adr[t]), int(m.tendon_adr[t] + m.tendon_num[t])):
            kind, what, number = kinds[int(m.wrap_type[k])], int(m.wrap_objid[k]), m.wrap_prm[k]
            if kind == "joint":
                self.joints.append((t, r.place(what), r.dof(what)))
                self.coef.append(number)
            elif kind == "pulley":
                self.divisors.append(number)
                before, divisor = None, len(self.divisors) - 1
            elif kind != "site":
                around = what, round(number)
            else:
                here = self._point(t, what)
                if around is not None:
                    geom, side = around
                    self.geoms.append(geom)
                    self.bodies[t].add(int(r.bodies.index[m.geom_bodyid[geom]]))
                    at = -1 if side < 0 else self._point(None, side)
                    self.wrapped.append((t, before, here, divisor, at))  # type: ignore
                elif before is not None:
                    self.straight.append((t, before, here, divisor))
                before, around = here, None

    def _point(self, t: int | None, site: int) -> int:
        """The number of a site among the points; adds it if it is new."""
        if t is not None:
            self.bodies[t].add(int(self.r.bodies.index[self.r.m.site_bodyid[site]]))
        if site not in self.sites:
            self.sites.append(site)
        return self.sites.index(site)

    def strings(self) -> Strings | None:
        """The paths of spatial tendons."""
        if not self.sites:
            return None
        r, m = self.r, self.r.m
        on = [int(m.site_bodyid[s]) for s in self.sites]
        carriers = [int(m.geom_bodyid[g]) for g in self.geoms]
        R = [r.bodies.R[b] @ rotation_of_quat(m.geom_quat[g])
             for b, g in zip(carriers, self.geoms, strict=True)]  # fmt: skip
        points = [r.point(b, m.site_pos[s]) for b, s in zip(on, self.sites, strict=True)]
        centers = [r.point(b, m.geom_pos[g]) for b, g in zip(carriers, self.geoms, strict=True)]
        n, sphere = len(self.geoms), int(r.mj.mjtGeom.mjGEOM_SPHERE)
        return Strings(
            points=r.array(points, len(points), 3),
            divisor=r.array(self.divisors, len(self.divisors)),
            R=r.array(R, n, 3, 3),
            p=r.array(centers, n, 3),
            radius=r.array([m.geom_size[g, 0] for g in self.geoms], n),
            bodies=tuple(int(r.bodies.index[b]) for b in on),
            straight=tuple(self.straight),
            wrapped=tuple(self.wrapped),
            carriers=tuple(int(r.bodies.index[b]) for b in carriers),
            spheres=tuple(int(m.geom_type[g]) == sphere for g in self.geoms),
        )

    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The degrees of freedom that move each tendon, and not all of its path alike."""
        found = []
        for t, bodies in enumerate(self.bodies):
            rows = _moving(self.r.model.topology, sorted(bodies))
            moved = np.flatnonzero(rows.any(axis=0) & ~rows.all(axis=0)).tolist()
            found.append(tuple(sorted({*moved, *(d for k, _, d in self.joints if k == t)})))
        return tuple(found)


def _moving(topology: Topology, bodies: list[int]) -> np.ndarray:
    """Which degrees of freedom move each body; −1 is the world."""
    mask = np.concatenate([topology.tree.ancestor_mask, np.zeros((1, topology.nb), bool)])
    return np.asarray(mask[np.array(bodies, dtype=np.int32)])[:, topology.dof_bodies]


def _tendons(r: Reader) -> Tendons:
    m, n = r.m, r.m.ntendon
    paths = _Paths(r)
    sets = paths.sets()
    spring, damper = (not r.disabled(x) for x in ("SPRING", "DAMPER"))
    force = np.array(m.tendon_actfrcrange, float)
    limited = np.asarray(m.tendon_actfrclimited) != 0
    force[~limited] = [-np.inf, np.inf]
    return Tendons(
        coef=r.array(paths.coef, len(paths.coef)),
        strings=paths.strings(),
        stiffness=r.array(m.tendon_stiffness * spring, n),
        damping=r.array(m.tendon_damping * damper, n),
        rest=r.array(m.tendon_lengthspring, n, 2),
        armature=r.array(m.tendon_armature, n) if np.any(m.tendon_armature) else None,
        actfrcrange=r.array(force, n, 2) if limited.any() else None,
        names=tuple(name_of(m, "tendon", t) for t in range(n)),
        joints=tuple(paths.joints),
        refers=_refers(r),
        dofs=tuple(sorted({d for x in sets for d in x})),
        sets=sets,
    )


def _refers(r: Reader) -> tuple[bool, ...]:
    """Whether MuJoCo computed the rest length of each tendon at ``qpos_spring``.

    Of a model that comes without its file, a rest length that is the length there counts.
    """
    m, d = r.m, r.mj.MjData(r.m)
    if r.model.rest is None and np.any(m.qpos_spring != m.qpos0):
        return (False,) * m.ntendon
    if r.spec is not None:
        asked = [np.asarray(x.springlength, float) for x in r.spec.tendons]
        return tuple(bool(np.all(x == -1)) for x in asked)
    d.qpos[:] = m.qpos_spring
    r.mj.mj_kinematics(m, d)
    r.mj.mj_comPos(m, d)
    r.mj.mj_tendon(m, d)
    same = np.abs(np.asarray(m.tendon_lengthspring) - d.ten_length[:, None]) < 1e-9
    return tuple(map(bool, same.all(axis=1)))


def _off(r: Reader, what: str) -> bool:
    return r.disabled("CONSTRAINT") or r.disabled(what)


def _named(tendons: Tendons, own: list[int]) -> dict[str, Any]:
    names, sets = (tuple(x[t] for t in own) for x in (tendons.names, tendons.sets))
    return {"tendons": tuple(own), "names": names, "sets": sets}


def _limits(r: Reader, tendons: Tendons) -> TendonLimits | None:
    m = r.m
    own = np.flatnonzero(m.tendon_limited).tolist()
    if not own or _off(r, "LIMIT"):
        return None
    n = len(own)
    return TendonLimits(
        params=r.params(m.tendon_solref_lim[own], m.tendon_solimp_lim[own], n),
        margin=r.array(m.tendon_margin[own], n),
        range=r.array(m.tendon_range[own], n, 2),
        **_named(tendons, own),
    )


def _friction(r: Reader, tendons: Tendons) -> TendonFriction | None:
    m = r.m
    own = np.flatnonzero(np.asarray(m.tendon_frictionloss) > 0).tolist()
    if not own or _off(r, "FRICTIONLOSS"):
        return None
    n = len(own)
    return TendonFriction(
        params=r.params(m.tendon_solref_fri[own], m.tendon_solimp_fri[own], n),
        loss=r.array(m.tendon_frictionloss[own], n),
        **_named(tendons, own),
    )


def _equalities(r: Reader, tendons: Tendons) -> TendonEqualities | None:
    m = r.m
    own = np.flatnonzero(np.asarray(m.eq_type) == int(r.mj.mjtEq.mjEQ_TENDON)).tolist()
    if not own or _off(r, "EQUALITY"):
        return None
    n = len(own)
    pairs = [(int(m.eq_obj1id[i]), int(m.eq_obj2id[i])) for i in own]
    both = [{d for t in pair if t >= 0 for d in tendons.sets[t]} for pair in pairs]
    return TendonEqualities(
        polynomial=r.array(m.eq_data[own, :5], n, 5),
        params=r.params(m.eq_solref[own], m.eq_solimp[own], n),
        active=r.array(m.eq_active0[own], n),
        tendons=tuple(pairs),
        names=tuple(tendons.names[a] for a, _ in pairs),
        sets=tuple(tuple(sorted(x)) for x in both),
    )
