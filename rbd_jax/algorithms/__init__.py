"""Kinematics and dynamics, one table of a paper in each file; ``tree`` owns every loop over bodies.

The functions of ``aba``, ``crba`` and ``rnea`` are at the top level, as ``rbd_jax.aba``.
"""

from .aba import hybrid_aba as hybrid_aba
from .jacobians import (
    frame_acceleration as frame_acceleration,
    jacobian_time_derivative as jacobian_time_derivative,
    relative_placement as relative_placement,
)
from .kinematics import (
    body_accelerations as body_accelerations,
    body_velocities as body_velocities,
)
from .momentum import spatial_momentum as spatial_momentum
from .passive import BaseMotion as BaseMotion
from .regressors import (
    joint_torque_regressor as joint_torque_regressor,
    kinetic_energy_regressor as kinetic_energy_regressor,
    momentum_regressor as momentum_regressor,
    potential_energy_regressor as potential_energy_regressor,
)
