"""Bilateral constraints: what is held where, the motion under it, and impacts.

``rbd.constraints.point(model, "foot")`` makes a set of one constraint; sets are added with ``+``.
"""

from ..model.outcome import RESULTS as RESULTS
from ._build import (
    coupling as coupling,
    frame as frame,
    hinge as hinge,
    lock as lock,
    none as none,
    point as point,
)
from ._derivatives import (
    ConstrainedDerivatives as ConstrainedDerivatives,
    ImpactDerivatives as ImpactDerivatives,
    constrained_dynamics_derivatives as constrained_dynamics_derivatives,
    impact_derivatives as impact_derivatives,
)
from ._dynamics import (
    ConstrainedMotion as ConstrainedMotion,
    Impact as Impact,
    constrained_dynamics as constrained_dynamics,
    delassus as delassus,
    driven_dynamics as driven_dynamics,
    impact as impact,
)
from ._jacobian import jacobian as jacobian, wrenches as wrenches
from ._projection import Projected as Projected, project as project
from ._rows import (
    acceleration as acceleration,
    anchored as anchored,
    bias as bias,
    residual as residual,
    velocity as velocity,
)
from ._set import Constraints as Constraints, Pair as Pair, check as check, join as join
