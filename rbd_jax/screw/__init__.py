"""Screw theory: product of exponentials, four twist representations, closed forms.

Source: Müller 2017, Vlasblom 2015 and the notes on the Lie-algebra RNEA; ``README.md`` beside this
file maps every one of their equations to a function, with the misprints found.
"""

from . import build as build
from .build import from_body_screws as from_body_screws
from .build import from_joint_screws as from_joint_screws
from .build import from_spatial_screws as from_spatial_screws
from .modern_robotics import from_modern_robotics as from_modern_robotics
from .modern_robotics import to_modern_robotics as to_modern_robotics
from .newton_euler import body_fixed_wrench as body_fixed_wrench
from .newton_euler import hybrid_wrench as hybrid_wrench
from .newton_euler import mixed_wrench as mixed_wrench
from .newton_euler import spatial_wrench as spatial_wrench
from .newton_euler import wrench_in_frame as wrench_in_frame
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
