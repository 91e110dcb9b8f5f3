"""Simulation: integrators on the configuration manifold, rollouts, and the bridge to diffrax."""

from ..model.outcome import RESULTS as RESULTS
from ._actuated import ActuatedRobot as ActuatedRobot, implicitly_damped as implicitly_damped
from ._adaptive import (
    AdaptiveTrajectory as AdaptiveTrajectory,
    ControlledRobot as ControlledRobot,
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
from ._guard import Guard as Guard, Switched as Switched, Touching as Touching
from ._integrator import Integrator as Integrator, SingleStep as SingleStep
from ._integrators import (
    INTEGRATORS as INTEGRATORS,
    implicit_coriolis as implicit_coriolis,
    implicit_damping as implicit_damping,
    resolve_integrator as resolve_integrator,
    semi_implicit_euler as semi_implicit_euler,
)
from ._linearize import step as step, step_derivatives as step_derivatives
from ._momentum import momentum_munthe_kaas as momentum_munthe_kaas, variational as variational
from ._munthe_kaas import (
    TABLEAUS as TABLEAUS,
    Acceleration as Acceleration,
    Tableau as Tableau,
    munthe_kaas as munthe_kaas,
    rk4 as rk4,
)
from ._plant import (
    ConstrainedRobot as ConstrainedRobot,
    NoTangent as NoTangent,
    Plant as Plant,
    Robot as Robot,
    ScenePlant as ScenePlant,
    State as State,
    StatePolicy as StatePolicy,
    as_plant as as_plant,
    fresh_memory as fresh_memory,
    fresh_state as fresh_state,
    hold_controls as hold_controls,
    memory_from as memory_from,
    memory_vector as memory_vector,
    with_tangent as with_tangent,
)
from ._rollout import Episode as Episode, Trajectory as Trajectory, rollout as rollout
from ._smoothing import (
    RandomizedSmoothing as RandomizedSmoothing,
    StraightThrough as StraightThrough,
)
from ._stability import (
    advice as advice,
    damping_rate as damping_rate,
    stable_step as stable_step,
    warn_if_unstable as warn_if_unstable,
)
from ._time_scan import Checkpoint as Checkpoint
