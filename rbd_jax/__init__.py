"""rbd_jax: differentiable rigid-body dynamics for JAX. ``import rbd_jax as rbd``."""

from . import optimize as optimize, screw as screw, simulate as simulate, spatial as spatial
from ._version import __version__ as __version__
from .algorithms.aba import aba as aba, hybrid_aba as hybrid_aba
from .algorithms.crba import crba as crba, mass_matrix as mass_matrix
from .algorithms.energy import (
    center_of_mass as center_of_mass,
    centroidal_momentum as centroidal_momentum,
    kinetic_energy as kinetic_energy,
    potential_energy as potential_energy,
    total_mass as total_mass,
)
from .algorithms.jacobians import (
    frame_acceleration as frame_acceleration,
    frame_velocity as frame_velocity,
    jacobian as jacobian,
    jacobian_time_derivative as jacobian_time_derivative,
    relative_placement as relative_placement,
)
from .algorithms.kinematics import (
    body_accelerations as body_accelerations,
    body_velocities as body_velocities,
    forward_kinematics as forward_kinematics,
    frame_placement as frame_placement,
)
from .algorithms.momentum import spatial_momentum as spatial_momentum
from .algorithms.regressors import (
    joint_torque_regressor as joint_torque_regressor,
    kinetic_energy_regressor as kinetic_energy_regressor,
    momentum_regressor as momentum_regressor,
    potential_energy_regressor as potential_energy_regressor,
)
from .algorithms.rnea import rnea as rnea
from .algorithms.torques import bias_torque as bias_torque, gravity_torque as gravity_torque
from .derivatives.coriolis import christoffel as christoffel, coriolis_matrix as coriolis_matrix
from .derivatives.fdsva import forward_dynamics_derivatives as forward_dynamics_derivatives
from .derivatives.idsva import inverse_dynamics_derivatives as inverse_dynamics_derivatives
from .derivatives.kim import Perturbation as Perturbation, perturbation_of as perturbation_of
from .derivatives.kim_hybrid import (
    kim_forward_dynamics_derivative as kim_forward_dynamics_derivative,
    kim_hybrid_dynamics_derivative as kim_hybrid_dynamics_derivative,
)
from .derivatives.kim_inverse import (
    kim_inverse_dynamics_derivative as kim_inverse_dynamics_derivative,
)
from .derivatives.rules import (
    forward_dynamics as forward_dynamics,
    hybrid_dynamics as hybrid_dynamics,
    inverse_dynamics as inverse_dynamics,
    mass_matrix_inverse as mass_matrix_inverse,
    mass_matrix_product as mass_matrix_product,
    mass_matrix_solve as mass_matrix_solve,
)
from .derivatives.second_order import (
    Hessian as Hessian,
    SecondDerivatives as SecondDerivatives,
    forward_dynamics_hessian as forward_dynamics_hessian,
    forward_dynamics_second_derivatives as forward_dynamics_second_derivatives,
    inverse_dynamics_hessian as inverse_dynamics_hessian,
    inverse_dynamics_second_derivatives as inverse_dynamics_second_derivatives,
    mass_matrix_derivative as mass_matrix_derivative,
)
from .io import (
    Layout as Layout,
    build_model as build_model,
    convert as convert,
    example_robot as example_robot,
    example_robots as example_robots,
    export_urdf as export_urdf,
    load_urdf as load_urdf,
    read_urdf as read_urdf,
    samples as samples,
)
from .lanes import lanes as lanes
from .model import (
    JointSpec as JointSpec,
    LinkSpec as LinkSpec,
    MimicMap as MimicMap,
    MimicSpec as MimicSpec,
    Model as Model,
    RobotDescriptionError as RobotDescriptionError,
    RobotDescriptionWarning as RobotDescriptionWarning,
    RobotSpec as RobotSpec,
    Topology as Topology,
    difference as difference,
    integrate as integrate,
    mimic_map as mimic_map,
    neutral as neutral,
    random_configuration as random_configuration,
    rate_from_velocity as rate_from_velocity,
    velocity_from_rate as velocity_from_rate,
)
from .simulate import (
    Episode as Episode,
    GeneralizedAlpha as GeneralizedAlpha,
    Tableau as Tableau,
    Trajectory as Trajectory,
    munthe_kaas as munthe_kaas,
    rk4 as rk4,
    rollout as rollout,
    semi_implicit_euler as semi_implicit_euler,
    step as step,
    step_derivatives as step_derivatives,
)
from .view import view as view
