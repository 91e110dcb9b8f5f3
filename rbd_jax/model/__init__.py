"""The robot: its description by names, the shape of its tree, its joints and its parameters."""

from . import _pickle as _pickle
from ._configuration import (
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
from ._mimic import with_mimics as with_mimics
from ._model import Model as Model
from ._spec import (
    COMPOSITE as COMPOSITE,
    ELEMENTARY as ELEMENTARY,
    KINDS as KINDS,
    JointSpec as JointSpec,
    LinkSpec as LinkSpec,
    MimicSpec as MimicSpec,
    RobotDescriptionError as RobotDescriptionError,
    RobotDescriptionWarning as RobotDescriptionWarning,
    RobotSpec as RobotSpec,
)
from .coordinates import (
    CoordinateModel as CoordinateModel,
    with_coordinates as with_coordinates,
)
from .laws import Affine as Affine, Function as Function, Law as Law
from .topology import NQ as NQ, NV as NV, Topology as Topology, Tree as Tree
