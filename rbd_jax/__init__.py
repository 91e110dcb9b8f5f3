"""rbd_jax: differentiable rigid-body dynamics for JAX. ``import rbd_jax as rbd``."""

from . import spatial as spatial
from ._version import __version__ as __version__
from .io import samples as samples
from .io._build import build_model as build_model
from .model import (
    JointSpec as JointSpec,
)
from .model import (
    LinkSpec as LinkSpec,
)
from .model import (
    MimicSpec as MimicSpec,
)
from .model import (
    Model as Model,
)
from .model import (
    RobotDescriptionError as RobotDescriptionError,
)
from .model import (
    RobotDescriptionWarning as RobotDescriptionWarning,
)
from .model import (
    RobotSpec as RobotSpec,
)
from .model import (
    Topology as Topology,
)
from .model import (
    difference as difference,
)
from .model import (
    integrate as integrate,
)
from .model import (
    neutral as neutral,
)
from .model import (
    random_configuration as random_configuration,
)
from .model import (
    rate_from_velocity as rate_from_velocity,
)
from .model import (
    velocity_from_rate as velocity_from_rate,
)
