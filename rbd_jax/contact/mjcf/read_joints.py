"""Limits and dry friction of the joints of a compiled MuJoCo model."""

from ..kinds.ball_limits import BallLimits
from ..kinds.joint_friction import JointFriction
from ..kinds.joint_limits import JointLimits
from .reader import Reader


def joints_of(r: Reader) -> tuple[JointLimits, BallLimits, JointFriction]:
    """Limits of all hinges and slides and of limited balls; dry friction of all but free joints.

    A joint without limit or friction has rows too, which do nothing until the robot's own leaves
    (``position_lower``, ``position_upper``, ``friction``) say otherwise.
    """
    m = r.m
    off = r.disabled("CONSTRAINT")
    every = [] if off or r.disabled("LIMIT") else range(m.njnt)
    straight = [j for j in every if m.jnt_type[j] >= 2]
    balls = [j for j in every if m.jnt_type[j] == 1 and m.jnt_limited[j]]
    on = not off and not r.disabled("FRICTIONLOSS")
    rough = [d for d in range(m.nv) if on and m.jnt_type[m.dof_jntid[d]] != 0]

    def params(joints):
        return r.params(m.jnt_solref[joints], m.jnt_solimp[joints], len(joints))

    def margin(joints):
        return r.array(m.jnt_margin[joints], len(joints))

    def where(joints):
        return tuple(map(r.dof, joints)), tuple(map(r.place, joints))

    def dof(d: int) -> int:
        j = int(m.dof_jntid[d])
        return r.dof(j) + d - int(m.jnt_dofadr[j])

    largest = r.array(m.jnt_range[balls].max(axis=-1, initial=0), len(balls))
    dry = r.params(m.dof_solref[rough], m.dof_solimp[rough], len(rough))
    return (
        JointLimits(params(straight), margin(straight), *where(straight)),
        BallLimits(params(balls), margin(balls), largest, *where(balls)),
        JointFriction(dry, tuple(dof(int(d)) for d in rough)),
    )
