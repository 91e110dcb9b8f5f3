"""Integrators on the configuration manifold, rollouts, and the bridge to diffrax."""

from ._diffrax import (
    AdaptiveTrajectory as AdaptiveTrajectory,
)
from ._diffrax import (
    Driven as Driven,
)
from ._diffrax import (
    VectorField as VectorField,
)
from ._diffrax import (
    adaptive_rollout as adaptive_rollout,
)
from ._free_body import FreeBody as FreeBody
from ._free_body import free_body_at as free_body_at
from ._free_body import free_body_path as free_body_path
from ._free_body import free_body_step as free_body_step
from ._free_body import free_body_twist as free_body_twist
from ._generalized_alpha import GeneralizedAlpha as GeneralizedAlpha
from ._momentum import momentum_munthe_kaas as momentum_munthe_kaas
from ._momentum import variational as variational
from ._munthe_kaas import TABLEAUS as TABLEAUS
from ._munthe_kaas import Tableau as Tableau
