"""The robot: its description by name, the shape of its tree, its joints and its parameters."""

from ._model import (
    Model as Model,
    chart_rate as chart_rate,
    chart_velocity as chart_velocity,
    coadjoint as coadjoint,
    difference as difference,
    displacement as displacement,
    integrate as integrate,
    joint_placements as joint_placements,
    motion_subspace as motion_subspace,
    neutral as neutral,
    random_configuration as random_configuration,
    rate_from_velocity as rate_from_velocity,
    velocity_from_rate as velocity_from_rate,
)
from ._spec import (
    JointSpec as JointSpec,
    LinkSpec as LinkSpec,
    MimicSpec as MimicSpec,
    RobotDescriptionError as RobotDescriptionError,
    RobotDescriptionWarning as RobotDescriptionWarning,
    RobotSpec as RobotSpec,
)
from ._topology import Topology as Topology
