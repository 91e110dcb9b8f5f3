"""Mocap bodies of a compiled MuJoCo model, and what is fixed to them."""

from collections.abc import Iterable

from ...io.mjcf import name_of
from ..mocap import Carried, Mocap
from .read_contacts import touching_geoms
from .read_equalities import held_bodies
from .read_tendons import strung_bodies
from .reader import Reader


def mocap_of(r: Reader) -> Mocap | None:
    """The mocap bodies that carry no joints; None if there are none.

    Those that carry joints stand still: what hangs at them is a robot whose base does not move.
    """
    m = r.m
    carrier = r.mocap
    own = [b for b in range(m.nbody) if m.body_mocapid[b] >= 0 and b in carrier]
    if not own:
        return None
    number = {b: k for k, b in enumerate(own)}

    def carried(bodies: Iterable[int]) -> Carried:
        """The rows that stand for something on a mocap body, for the body of each row."""
        found = ((i, carrier.get(int(b))) for i, b in enumerate(bodies))
        return tuple((i, number[c]) for i, c in found if c is not None)

    held = held_bodies(r)
    points, wraps = strung_bodies(r)
    return Mocap(
        p=r.array(m.body_pos[own], len(own), 3),
        quat=r.array(m.body_quat[own], len(own), 4),
        names=tuple(name_of(m, "body", b) for b in own),
        shapes=carried(m.geom_bodyid[g] for g in touching_geoms(r)),
        frames=_frames(r, carrier, number),
        sensed=carried(r.sensed),
        first=carried(a for a, _ in held),
        second=carried(b for _, b in held),
        points=carried(points),
        wraps=carried(wraps),
    )


def _frames(r: Reader, carrier: dict[int, int], number: dict[int, int]) -> Carried:
    m, known = r.m, r.model.frame_names
    rows = [(known.index(name_of(m, "body", b)), b) for b in carrier]
    rows += [(r.site(s), int(b)) for s, b in enumerate(m.site_bodyid) if int(b) in carrier]
    return tuple((i, number[carrier[b]]) for i, b in rows)
