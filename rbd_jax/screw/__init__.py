"""Screw theory of multibody systems. Source: Müller; Vlasblom; the notes."""

from .linearized import LinearizedEquations as LinearizedEquations
from .linearized import linearized_dynamics as linearized_dynamics
from .linearized import linearized_equations as linearized_equations
from .sensitivity import Geometry as Geometry
from .sensitivity import forward_dynamics_sensitivity as forward_dynamics_sensitivity
from .sensitivity import frame_sensitivity as frame_sensitivity
from .sensitivity import inverse_dynamics_sensitivity as inverse_dynamics_sensitivity
from .sensitivity import with_geometry as with_geometry
from .series_elastic import series_elastic_feedforward as series_elastic_feedforward
from .torque_rates import inverse_dynamics_rates as inverse_dynamics_rates
