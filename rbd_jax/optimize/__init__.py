"""Trajectory optimization: problems, and solvers that use the exact derivatives."""

from ..model.outcome import RESULTS as RESULTS
from . import tasks as tasks
from ._associative import (
    parallel_backward as parallel_backward,
    parallel_forward as parallel_forward,
)
from ._augmented import augmented_lagrangian as augmented_lagrangian
from ._box import box_qp as box_qp
from ._constrained_solution import ConstrainedSolution as ConstrainedSolution
from ._constraints import Constraint as Constraint, Rows as Rows
from ._costs import FrameCost as FrameCost, StateCost as StateCost
from ._feedback import Feedback as Feedback, feedback as feedback
from ._ilqr import ddp as ddp, ilqr as ilqr
from ._legged import LeggedProblem as LeggedProblem
from ._legged_costs import (
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
from ._limits import (
    friction_cone as friction_cone,
    half_space as half_space,
    joint_limits as joint_limits,
    torque_limits as torque_limits,
    velocity_limits as velocity_limits,
)
from ._mpc import (
    Closed as Closed,
    Controller as Controller,
    Plan as Plan,
    controller as controller,
    mpc as mpc,
)
from ._multiple_shooting import multiple_shooting as multiple_shooting
from ._problem import Problem as Problem
from ._progress import print_progress as print_progress
from ._riccati import Gains as Gains, backward as backward, forward as forward
from ._sampling import Sampled as Sampled, cem as cem, mppi as mppi
from ._sampling_mpc import Sampler as Sampler, sampler as sampler
from ._scene_problem import SceneProblem as SceneProblem, in_scene as in_scene
from ._single_shooting import single_shooting as single_shooting
from ._solution import History as History, Solution as Solution
