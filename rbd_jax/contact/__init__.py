"""Robots on the ground: MuJoCo's scenes, actuators, soft constraints and frictional contact.

Source: MuJoCo's documentation, chapter "Computation". ``rbd.load_mjcf`` makes a :class:`Scene`;
:func:`step` advances it, as does ``rbd.rollout(..., scene=scene)``.
"""

from .actuators import (
    Actuators as Actuators,
    motors as motors,
    pd_actuators as pd_actuators,
)
from .contacts import Contacts as Contacts, Pairs as Pairs, Shapes as Shapes
from .equalities import Couplings as Couplings, Equalities as Equalities, Welds as Welds
from .forces import (
    Forces as Forces,
    Touching as Touching,
    constraint_forces as constraint_forces,
)
from .joints import BallLimits as BallLimits, Dry as Dry, Joints as Joints, Limits as Limits
from .load import load_mjcf as load_mjcf, scene_of as scene_of
from .rows import Constraints as Constraints
from .scene import Keyframe as Keyframe, Scene as Scene
from .step import Step as Step, constrained_acceleration as constrained_acceleration, step as step
