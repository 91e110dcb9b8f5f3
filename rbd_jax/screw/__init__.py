"""Screw theory: product of exponentials, four twist representations, closed forms.

Source: Müller 2017, Vlasblom 2015 and the notes on the Lie-algebra RNEA; ``README.md`` beside this
file maps every one of their equations to a function, with the misprints found.
"""

from . import build as build
from . import vlasblom as vlasblom
from .build import from_body_screws as from_body_screws
from .build import from_joint_screws as from_joint_screws
from .build import from_spatial_screws as from_spatial_screws
from .christoffel import christoffel_by_binet as christoffel_by_binet
from .christoffel import christoffel_by_brackets as christoffel_by_brackets
from .closed_form import euler_jourdain_torque as euler_jourdain_torque
from .closed_form import lagrange_coriolis_matrix as lagrange_coriolis_matrix
from .closed_form import lagrange_mass_matrix as lagrange_mass_matrix
from .closed_form import spatial_momenta as spatial_momenta
from .closed_form import spatial_momentum_rates as spatial_momentum_rates
from .closed_form import torque_of_momentum_rates as torque_of_momentum_rates
from .closed_form import velocity_of_momenta as velocity_of_momenta
from .components import component_inverse_dynamics as component_inverse_dynamics
from .explicit import acceleration_sums as acceleration_sums
from .explicit import jerk_sums as jerk_sums
from .linearized import LinearizedEquations as LinearizedEquations
from .linearized import linearized_dynamics as linearized_dynamics
from .linearized import linearized_equations as linearized_equations
from .modern_robotics import from_modern_robotics as from_modern_robotics
from .modern_robotics import to_modern_robotics as to_modern_robotics
from .newton_euler import body_fixed_wrench as body_fixed_wrench
from .newton_euler import hybrid_wrench as hybrid_wrench
from .newton_euler import mixed_wrench as mixed_wrench
from .newton_euler import spatial_wrench as spatial_wrench
from .newton_euler import wrench_in_frame as wrench_in_frame
from .partials import jacobian_partials as jacobian_partials
from .poe import body_screws as body_screws
from .poe import joint_screws as joint_screws
from .poe import poses_by_body_screws as poses_by_body_screws
from .poe import poses_by_spatial_screws as poses_by_spatial_screws
from .poe import spatial_screws as spatial_screws
from .representations import REPRESENTATIONS as REPRESENTATIONS
from .representations import Representation as Representation
from .representations import accelerations as accelerations
from .representations import convert_twist as convert_twist
from .representations import inverse_dynamics as inverse_dynamics
from .representations import jacobians as jacobians
from .representations import jerks as jerks
from .representations import twists as twists
from .sensitivity import Geometry as Geometry
from .sensitivity import forward_dynamics_sensitivity as forward_dynamics_sensitivity
from .sensitivity import frame_sensitivity as frame_sensitivity
from .sensitivity import inverse_dynamics_sensitivity as inverse_dynamics_sensitivity
from .sensitivity import with_geometry as with_geometry
from .series_elastic import series_elastic_feedforward as series_elastic_feedforward
from .system import joint_accelerations as joint_accelerations
from .system import system_factors as system_factors
from .system import system_jacobian as system_jacobian
from .system import system_jacobian_rate as system_jacobian_rate
from .torque_rates import inverse_dynamics_rates as inverse_dynamics_rates
