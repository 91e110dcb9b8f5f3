"""The robot: its description by name, the shape of its tree, its joints and its parameters."""

from ._model import (
    Model as Model,
)
from ._model import (
    chart_rate as chart_rate,
)
from ._model import (
    chart_velocity as chart_velocity,
)
from ._model import (
    coadjoint as coadjoint,
)
from ._model import (
    difference as difference,
)
from ._model import (
    integrate as integrate,
)
from ._model import (
    joint_placements as joint_placements,
)
from ._model import (
    motion_subspace as motion_subspace,
)
from ._model import (
    neutral as neutral,
)
from ._model import (
    random_configuration as random_configuration,
)
from ._model import (
    rate_from_velocity as rate_from_velocity,
)
from ._model import (
    velocity_from_rate as velocity_from_rate,
)
from ._spec import (
    JointSpec as JointSpec,
)
from ._spec import (
    LinkSpec as LinkSpec,
)
from ._spec import (
    MimicSpec as MimicSpec,
)
from ._spec import (
    RobotDescriptionError as RobotDescriptionError,
)
from ._spec import (
    RobotDescriptionWarning as RobotDescriptionWarning,
)
from ._spec import (
    RobotSpec as RobotSpec,
)
from ._topology import Topology as Topology
