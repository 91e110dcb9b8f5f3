"""Trajectory optimization: problems, and solvers that use the exact derivatives."""

from ..simulate import RESULTS as RESULTS
from . import tasks as tasks
from ._associative import (
    parallel_backward as parallel_backward,
    parallel_forward as parallel_forward,
)
from ._box import box_qp as box_qp
from ._costs import FrameCost as FrameCost, StateCost as StateCost
from ._ilqr import ddp as ddp, ilqr as ilqr
from ._multiple_shooting import multiple_shooting as multiple_shooting
from ._problem import Problem as Problem
from ._progress import print_progress as print_progress
from ._riccati import Gains as Gains, backward as backward, forward as forward
from ._single_shooting import single_shooting as single_shooting
from ._solution import History as History, Solution as Solution
