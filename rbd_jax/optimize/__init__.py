"""Trajectory optimisation: problems, and solvers that use the exact derivatives."""

from ._box import box_qp as box_qp
from ._costs import FrameCost as FrameCost
from ._costs import StateCost as StateCost
from ._ilqr import ddp as ddp
from ._ilqr import ilqr as ilqr
from ._problem import Problem as Problem
from ._progress import print_progress as print_progress
from ._solution import RESULTS as RESULTS
from ._solution import History as History
from ._solution import Solution as Solution
