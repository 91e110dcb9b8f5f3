"""Limits and dry friction of the joints of a compiled MuJoCo model."""

import numpy as np

from .joints import BallLimits, Dry, Joints, Limits
from .reader import Reader


def joints_of(r: Reader) -> Joints:
    """Limits and dry friction."""
    m = r.m
    off = r.disabled("CONSTRAINT")
    limited = [] if off or r.disabled("LIMIT") else np.flatnonzero(m.jnt_limited).tolist()
    straight = [j for j in limited if m.jnt_type[j] >= 2]
    balls = [j for j in limited if m.jnt_type[j] == 1]
    dry = (
        [] if off or r.disabled("FRICTIONLOSS") else np.flatnonzero(m.dof_frictionloss > 0).tolist()
    )
    dry = [d for d in dry if m.jnt_type[m.dof_jntid[d]] != 0]

    def soft(joints):
        weight = m.dof_invweight0[m.jnt_dofadr[joints]]
        return r.soft(m.jnt_solref[joints], m.jnt_solimp[joints], weight)

    def where(joints):
        return tuple(map(r.dof, joints)), tuple(map(r.place, joints))

    def dof(d: int) -> int:
        j = int(m.dof_jntid[d])
        return r.dof(j) + d - int(m.jnt_dofadr[j])

    return Joints(
        Limits(soft(straight), r.array(m.jnt_margin[straight], len(straight)), *where(straight)),
        BallLimits(
            soft(balls),
            r.array(m.jnt_margin[balls], len(balls)),
            r.array(m.jnt_range[balls].max(axis=-1, initial=0), len(balls)),
            *where(balls),
        ),
        Dry(
            r.soft(m.dof_solref[dry], m.dof_solimp[dry], m.dof_invweight0[dry]),
            tuple(dof(int(d)) for d in dry),
        ),
    )
