"""Limits and dry friction of the joints of a compiled MuJoCo model."""

from ..kinds.ball_limits import BallLimits
from ..kinds.free_friction import FreeFriction
from ..kinds.joint_friction import JointFriction
from ..kinds.joint_limits import JointLimits
from .reader import Reader


def free_friction_of(r: Reader) -> FreeFriction | None:
    """Dry friction of the translation of free joints; None if no free joint has any."""
    m = r.m
    own = [j for j in range(m.njnt) if m.jnt_type[j] == 0]
    own = [j for j in own if m.dof_frictionloss[m.jnt_dofadr[j]] > 0]
    if not own or r.disabled("CONSTRAINT") or r.disabled("FRICTIONLOSS"):
        return None
    dofs = [int(m.jnt_dofadr[j]) + k for j in own for k in range(3)]
    return FreeFriction(
        r.params(m.dof_solref[dofs], m.dof_solimp[dofs], len(dofs)),
        tuple(r.dof(j) + 3 for j in own),
        tuple(int(r.bodies.index[m.jnt_bodyid[j]]) for j in own),
    )


def joints_of(r: Reader) -> tuple[JointLimits, BallLimits, JointFriction]:
    """Limits of all hinges and slides and of limited balls, and dry friction.

    A joint without limit or friction has rows too, which do nothing until the robot's own leaves
    (``position_lower``, ``position_upper``, ``friction``) say otherwise. A free joint has rows if
    the file gives it dry friction.
    """
    m = r.m
    off = r.disabled("CONSTRAINT")
    every = [] if off or r.disabled("LIMIT") else range(m.njnt)
    straight = [j for j in every if m.jnt_type[j] >= 2]
    balls = [j for j in every if m.jnt_type[j] == 1 and m.jnt_limited[j]]
    on = not off and not r.disabled("FRICTIONLOSS")
    turning = [m.jnt_type[m.dof_jntid[d]] != 0 or d - m.jnt_dofadr[m.dof_jntid[d]] >= 3
               and m.dof_frictionloss[d] > 0 for d in range(m.nv)]  # fmt: skip
    rough = [d for d in range(m.nv) if on and turning[d]]

    def params(joints):
        return r.params(m.jnt_solref[joints], m.jnt_solimp[joints], len(joints))

    def margin(joints):
        return r.array(m.jnt_margin[joints], len(joints))

    def where(joints):
        return tuple(map(r.dof, joints)), tuple(map(r.place, joints))

    largest = r.array(m.jnt_range[balls].max(axis=-1, initial=0), len(balls))
    dry = r.params(m.dof_solref[rough], m.dof_solimp[rough], len(rough))
    return (
        JointLimits(params(straight), margin(straight), *where(straight)),
        BallLimits(params(balls), margin(balls), largest, *where(balls)),
        JointFriction(dry, tuple(map(r.dof_of, rough))),
    )
