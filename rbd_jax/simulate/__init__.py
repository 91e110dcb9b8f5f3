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
