"""Screw theory: product of exponentials, four twist representations, closed forms.

Source: Müller 2017, Vlasblom 2015 and the notes on the Lie-algebra RNEA; ``README.md`` beside this
file maps every one of their equations to a function, with the misprints found.
"""

from . import build as build, vlasblom as vlasblom
from .articulated import forward_dynamics as forward_dynamics
from .build import (
    from_body_screws as from_body_screws,
    from_joint_screws as from_joint_screws,
    from_spatial_screws as from_spatial_screws,
)
from .christoffel import (
    christoffel_by_binet as christoffel_by_binet,
    christoffel_by_brackets as christoffel_by_brackets,
)
from .closed_form import (
    euler_jourdain_torque as euler_jourdain_torque,
    lagrange_coriolis_matrix as lagrange_coriolis_matrix,
    lagrange_mass_matrix as lagrange_mass_matrix,
    spatial_momenta as spatial_momenta,
    spatial_momentum_rates as spatial_momentum_rates,
    torque_of_momentum_rates as torque_of_momentum_rates,
)
from .components import component_inverse_dynamics as component_inverse_dynamics
from .explicit import acceleration_sums as acceleration_sums, jerk_sums as jerk_sums
from .hybrid_forms import hybrid_accelerations as hybrid_accelerations
from .jacobian_rates import (
    jacobian_rates as jacobian_rates,
    jacobian_second_rates as jacobian_second_rates,
)
from .linearized import (
    LinearizedEquations as LinearizedEquations,
    linearized_dynamics as linearized_dynamics,
    linearized_equations as linearized_equations,
)
from .lines import (
    line_of_screw as line_of_screw,
    reciprocal_product as reciprocal_product,
    screw_of_line as screw_of_line,
)
from .modern_robotics import (
    from_modern_robotics as from_modern_robotics,
    to_modern_robotics as to_modern_robotics,
)
from .newton_euler import (
    body_fixed_wrench as body_fixed_wrench,
    hybrid_wrench as hybrid_wrench,
    mixed_wrench as mixed_wrench,
    spatial_wrench as spatial_wrench,
    wrench_in_frame as wrench_in_frame,
)
from .partials import jacobian_partials as jacobian_partials
from .phase_space import (
    CanonicalRates as CanonicalRates,
    PhaseRates as PhaseRates,
    TwistRates as TwistRates,
    body_twist_rates as body_twist_rates,
    canonical_momenta as canonical_momenta,
    canonical_rates as canonical_rates,
    phase_rates as phase_rates,
    velocity_of_momenta as velocity_of_momenta,
)
from .poe import (
    body_screws as body_screws,
    joint_screws as joint_screws,
    poses_by_body_screws as poses_by_body_screws,
    poses_by_spatial_screws as poses_by_spatial_screws,
    spatial_screws as spatial_screws,
)
from .representations import (
    REPRESENTATIONS as REPRESENTATIONS,
    Representation as Representation,
    accelerations as accelerations,
    convert_twist as convert_twist,
    inverse_dynamics as inverse_dynamics,
    jacobians as jacobians,
    jerks as jerks,
    twist_rates as twist_rates,
    twists as twists,
)
from .sensitivity import (
    Geometry as Geometry,
    forward_dynamics_sensitivity as forward_dynamics_sensitivity,
    frame_sensitivity as frame_sensitivity,
    inverse_dynamics_sensitivity as inverse_dynamics_sensitivity,
    with_geometry as with_geometry,
)
from .series_elastic import (
    series_elastic_feedback as series_elastic_feedback,
    series_elastic_feedforward as series_elastic_feedforward,
)
from .system import (
    joint_accelerations as joint_accelerations,
    joint_velocities as joint_velocities,
    system_factors as system_factors,
    system_jacobian as system_jacobian,
    system_jacobian_rate as system_jacobian_rate,
)
from .torque_rates import (
    forward_dynamics_rates as forward_dynamics_rates,
    inverse_dynamics_rates as inverse_dynamics_rates,
)
