"""Integrators on the configuration manifold, rollouts, and the bridge to diffrax."""

from ._diffrax import (
    AdaptiveTrajectory as AdaptiveTrajectory,
    Driven as Driven,
    VectorField as VectorField,
    adaptive_rollout as adaptive_rollout,
)
from ._free_body import (
    FreeBody as FreeBody,
    free_body_at as free_body_at,
    free_body_path as free_body_path,
    free_body_step as free_body_step,
    free_body_twist as free_body_twist,
)
from ._generalized_alpha import GeneralizedAlpha as GeneralizedAlpha
from ._integrators import (
    implicit_damping as implicit_damping,
    resolve as resolve,
    semi_implicit_euler as semi_implicit_euler,
)
from ._linearize import step as step, step_derivatives as step_derivatives
from ._momentum import momentum_munthe_kaas as momentum_munthe_kaas, variational as variational
from ._munthe_kaas import (
    TABLEAUS as TABLEAUS,
    Tableau as Tableau,
    munthe_kaas as munthe_kaas,
    rk4 as rk4,
)
from ._rollout import Episode as Episode, Trajectory as Trajectory, rollout as rollout
