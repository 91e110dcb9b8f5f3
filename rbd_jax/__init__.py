"""rbd_jax: differentiable rigid-body dynamics for JAX. ``import rbd_jax as rbd``."""

from . import optimize as optimize
from . import screw as screw
from . import simulate as simulate
from . import spatial as spatial
from ._version import __version__ as __version__
from .algorithms.crba import crba as crba
from .algorithms.crba import mass_matrix as mass_matrix
from .algorithms.energy import (
    center_of_mass as center_of_mass,
)
from .algorithms.energy import (
    centroidal_momentum as centroidal_momentum,
)
from .algorithms.energy import (
    kinetic_energy as kinetic_energy,
)
from .algorithms.energy import (
    potential_energy as potential_energy,
)
from .algorithms.energy import (
    total_mass as total_mass,
)
from .algorithms.hybrid import aba as aba
from .algorithms.jacobians import (
    frame_acceleration as frame_acceleration,
)
from .algorithms.jacobians import (
    frame_velocity as frame_velocity,
)
from .algorithms.jacobians import (
    jacobian as jacobian,
)
from .algorithms.jacobians import (
    jacobian_time_derivative as jacobian_time_derivative,
)
from .algorithms.jacobians import (
    relative_placement as relative_placement,
)
from .algorithms.kinematics import (
    body_accelerations as body_accelerations,
)
from .algorithms.kinematics import (
    body_velocities as body_velocities,
)
from .algorithms.kinematics import (
    forward_kinematics as forward_kinematics,
)
from .algorithms.kinematics import (
    frame_placement as frame_placement,
)
from .algorithms.momentum import spatial_momentum as spatial_momentum
from .algorithms.regressors import joint_torque_regressor as joint_torque_regressor
from .algorithms.regressors import kinetic_energy_regressor as kinetic_energy_regressor
from .algorithms.regressors import momentum_regressor as momentum_regressor
from .algorithms.regressors import potential_energy_regressor as potential_energy_regressor
from .algorithms.rnea import rnea as rnea
from .algorithms.torques import bias_torque as bias_torque
from .algorithms.torques import gravity_torque as gravity_torque
from .derivatives._rules import (
    forward_dynamics as forward_dynamics,
)
from .derivatives._rules import (
    hybrid_dynamics as hybrid_dynamics,
)
from .derivatives._rules import (
    inverse_dynamics as inverse_dynamics,
)
from .derivatives._rules import (
    mass_matrix_inverse as mass_matrix_inverse,
)
from .derivatives._rules import (
    mass_matrix_product as mass_matrix_product,
)
from .derivatives._rules import (
    mass_matrix_solve as mass_matrix_solve,
)
from .derivatives.coriolis import christoffel as christoffel
from .derivatives.coriolis import coriolis_matrix as coriolis_matrix
from .derivatives.fdsva import forward_dynamics_derivatives as forward_dynamics_derivatives
from .derivatives.idsva import inverse_dynamics_derivatives as inverse_dynamics_derivatives
from .derivatives.kim import Perturbation as Perturbation
from .derivatives.kim import perturbation_of as perturbation_of
from .derivatives.kim_hybrid import (
    kim_forward_dynamics_derivative as kim_forward_dynamics_derivative,
)
from .derivatives.kim_hybrid import (
    kim_hybrid_dynamics_derivative as kim_hybrid_dynamics_derivative,
)
from .derivatives.kim_inverse import (
    kim_inverse_dynamics_derivative as kim_inverse_dynamics_derivative,
)
from .derivatives.second_order import (
    Hessian as Hessian,
)
from .derivatives.second_order import (
    SecondDerivatives as SecondDerivatives,
)
from .derivatives.second_order import (
    forward_dynamics_hessian as forward_dynamics_hessian,
)
from .derivatives.second_order import (
    forward_dynamics_second_derivatives as forward_dynamics_second_derivatives,
)
from .derivatives.second_order import (
    inverse_dynamics_hessian as inverse_dynamics_hessian,
)
from .derivatives.second_order import (
    inverse_dynamics_second_derivatives as inverse_dynamics_second_derivatives,
)
from .derivatives.second_order import (
    mass_matrix_derivative as mass_matrix_derivative,
)
from .io import convert as convert
from .io import samples as samples
from .io._build import build_model as build_model
from .io._layout import Layout as Layout
from .io._load import load_urdf as load_urdf
from .io._robots import example_robot as example_robot
from .io._robots import example_robots as example_robots
from .io._urdf import read_urdf as read_urdf
from .model import (
    JointSpec as JointSpec,
)
from .model import (
    LinkSpec as LinkSpec,
)
from .model import (
    MimicSpec as MimicSpec,
)
from .model import (
    Model as Model,
)
from .model import (
    RobotDescriptionError as RobotDescriptionError,
)
from .model import (
    RobotDescriptionWarning as RobotDescriptionWarning,
)
from .model import (
    RobotSpec as RobotSpec,
)
from .model import (
    Topology as Topology,
)
from .model import (
    difference as difference,
)
from .model import (
    integrate as integrate,
)
from .model import (
    neutral as neutral,
)
from .model import (
    random_configuration as random_configuration,
)
from .model import (
    rate_from_velocity as rate_from_velocity,
)
from .model import (
    velocity_from_rate as velocity_from_rate,
)
from .model._mimic import MimicMap as MimicMap
from .model._mimic import mimic_map as mimic_map
from .simulate._generalized_alpha import GeneralizedAlpha as GeneralizedAlpha
from .simulate._integrators import (
    semi_implicit_euler as semi_implicit_euler,
)
from .simulate._linearize import step as step
from .simulate._linearize import step_derivatives as step_derivatives
from .simulate._munthe_kaas import Tableau as Tableau
from .simulate._munthe_kaas import munthe_kaas as munthe_kaas
from .simulate._munthe_kaas import rk4 as rk4
from .simulate._rollout import Episode as Episode
from .simulate._rollout import Trajectory as Trajectory
from .simulate._rollout import rollout as rollout
