"""Trajectory optimization: problems, and solvers that use the exact derivatives."""

from ..model.outcome import RESULTS as RESULTS
from .linear_quadratic._associative import (
    parallel_backward as parallel_backward,
    parallel_forward as parallel_forward,
)
from .linear_quadratic._box_qp import box_qp as box_qp
from .linear_quadratic._riccati import (
    Gains as Gains,
    lqr_rollout as lqr_rollout,
    riccati_backward as riccati_backward,
)
from .problems._constraints import Constraint as Constraint, Rows as Rows
from .problems._costs import FrameCost as FrameCost, StateCost as StateCost
from .problems._legged_costs import (
    CenterOfMass as CenterOfMass,
    CenterOfPressure as CenterOfPressure,
    CentroidalMomentum as CentroidalMomentum,
    ContactForces as ContactForces,
    CostSum as CostSum,
    FootSwing as FootSwing,
    FrictionPyramid as FrictionPyramid,
    Orientation as Orientation,
    Table as Table,
    swing_path as swing_path,
)
from .problems._limits import (
    clear_of as clear_of,
    friction_cone as friction_cone,
    half_space as half_space,
    joint_limits as joint_limits,
    keep_apart as keep_apart,
    torque_limits as torque_limits,
    velocity_limits as velocity_limits,
)
from .problems._problem import Problem as Problem
from .problems._scene_problem import in_scene as in_scene
from .receding_horizon._feedback import Feedback as Feedback, feedback as feedback
from .receding_horizon._mpc import (
    AbstractMPC as AbstractMPC,
    ClosedLoop as ClosedLoop,
    Controller as Controller,
    Plan as Plan,
    controller as controller,
    mpc as mpc,
)
from .receding_horizon._sampling_mpc import Sampler as Sampler, sampler as sampler
from .solvers._augmented_lagrangian import augmented_lagrangian as augmented_lagrangian
from .solvers._ilqr import ddp as ddp, ilqr as ilqr
from .solvers._interior_point import interior_point as interior_point
from .solvers._multiple_shooting import multiple_shooting as multiple_shooting
from .solvers._progress import print_progress as print_progress
from .solvers._sampling import Sampled as Sampled, cem as cem, mppi as mppi
from .solvers._single_shooting import single_shooting as single_shooting
from .solvers._solution import (
    ConstrainedSolution as ConstrainedSolution,
    History as History,
    Solution as Solution,
)
