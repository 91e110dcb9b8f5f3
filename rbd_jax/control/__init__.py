"""Robots that are told what to do: inverse kinematics, controllers, paths.

Functions take one robot in one state, as everywhere; map over many with ``jax.vmap``.
"""

from ..model.outcome import RESULTS as RESULTS
from ._joints import (
    computed_torque as computed_torque,
    gravity_compensation as gravity_compensation,
    joint_impedance as joint_impedance,
)
from ._operational import (
    Task as Task,
    TaskDynamics as TaskDynamics,
    frame_task as frame_task,
    operational_space as operational_space,
    task_dynamics as task_dynamics,
    task_impedance as task_impedance,
)
from ._paths import TimedPath as TimedPath, time_optimal_path as time_optimal_path
from ._reach import Reached as Reached, inverse_kinematics as inverse_kinematics, middle as middle
from ._targets import (
    Target as Target,
    direction as direction,
    look_at as look_at,
    orientation as orientation,
    pose as pose,
    position as position,
)
