"""Limits and dry friction of the joints of a compiled MuJoCo model."""

from ..kinds.joints import BallLimits, JointFriction, Joints, Limits
from .reader import Reader


def joints_of(r: Reader) -> Joints:
    """Limits of all hinges and slides and of limited balls; dry friction of all but free joints.

    A joint without limit or friction has rows too, which do nothing until the robot's own leaves
    (``position_lower``, ``position_upper``, ``friction``) say otherwise.
    """
    m = r.m
    off = r.disabled("CONSTRAINT")
    every = [] if off or r.disabled("LIMIT") else range(m.njnt)
    straight = [j for j in every if m.jnt_type[j] >= 2]
    balls = [j for j in every if m.jnt_type[j] == 1 and m.jnt_limited[j]]
    rough = not off and not r.disabled("FRICTIONLOSS")
    dry = [d for d in range(m.nv) if rough and m.jnt_type[m.dof_jntid[d]] != 0]

    def soft(joints):
        return r.soft(m.jnt_solref[joints], m.jnt_solimp[joints], len(joints))

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
        JointFriction(
            r.soft(m.dof_solref[dry], m.dof_solimp[dry], len(dry)),
            tuple(dof(int(d)) for d in dry),
        ),
    )
