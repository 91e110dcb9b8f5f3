"""Robots on the ground: MuJoCo's scenes, actuators, soft constraints and frictional contact.

Source: MuJoCo's documentation, chapter "Computation". ``rbd.load_mjcf`` makes a :class:`Scene`;
:func:`scene_step` advances it, as does ``rbd.rollout(..., scene=scene)``;
:func:`constraint_forces` names the contacts and the forces.

Supported: spheres, capsules, boxes, cylinders, ellipsoids and convex meshes against planes, height
fields or one height function (``Contacts.terrain``); all pairs of these shapes; both cones,
``condim`` 1, 3, 4, 6, ``solref``, ``solimp``, masks, exclusions, pairs; limits, dry friction,
connects, welds, joint equalities; fixed and spatial tendons with limits, dry friction, springs,
armature and equalities; motors, servos, muscles and general actuators with fixed, affine or muscle
gain and bias on joints, tendons, sites and slider-cranks, with activation dynamics; gravity
compensation; the drag of a fluid on boxes and ellipsoids; mocap bodies (:func:`with_mocap` moves
them); Euler, ``implicit``, ``implicitfast``, RK4; :func:`sensors`.

Not supported, and refused by name when a file is read: signed distance fields, flexes, plugins, the
activation dynamics of PID controllers and DC motors, polynomial springs. Over a height function,
the points of a shape are those that are lowest over the tangent plane below its center.
"""

from ..model.outcome import RESULTS as RESULTS
from .activation import Activation as Activation, Muscles as Muscles
from .actuators import (
    Actuators as Actuators,
    Driven as Driven,
    motors as motors,
    pd_actuators as pd_actuators,
)
from .clearance import Clearance as Clearance, clear_of as clear_of, keep_apart as keep_apart
from .collision.detection import Pairs as Pairs
from .collision.shapes import HeightField as HeightField, Shapes as Shapes
from .collision.solids import (
    Solid as Solid,
    corners as corners,
    hull as hull,
    points as points,
    solids_of as solids_of,
)
from .constraints import Constraints as Constraints
from .distances import Distances as Distances, distances as distances
from .forward import constrained_acceleration as constrained_acceleration
from .kinds.ball_limits import BallLimits as BallLimits
from .kinds.contacts import Contacts as Contacts
from .kinds.free_friction import FreeFriction as FreeFriction
from .kinds.joint_equalities import JointEqualities as JointEqualities
from .kinds.joint_friction import JointFriction as JointFriction
from .kinds.joint_limits import JointLimits as JointLimits
from .kinds.tendon_rows import (
    TendonEqualities as TendonEqualities,
    TendonFriction as TendonFriction,
    TendonLimits as TendonLimits,
)
from .kinds.welds import Welds as Welds
from .mjcf.load import load_mjcf as load_mjcf, scene_of as scene_of
from .mocap import Mocap as Mocap
from .mocap_poses import with_mocap as with_mocap
from .on_ground import Surface as Surface, scene_on_ground as scene_on_ground
from .passive import (
    Ellipsoids as Ellipsoids,
    Fluid as Fluid,
    GravityCompensation as GravityCompensation,
)
from .report import (
    ConstraintForces as ConstraintForces,
    ContactReport as ContactReport,
    constraint_forces as constraint_forces,
)
from .scene import Keyframe as Keyframe, Scene as Scene, constants as constants
from .sensing import sensors as sensors
from .sensor_specs import Sensors as Sensors
from .solver.force_laws import SolverParams as SolverParams
from .solver.newton import Solution as Solution
from .step import SceneStep as SceneStep, scene_step as scene_step
from .tendons import Strings as Strings, Tendons as Tendons, TendonState as TendonState
from .weights import (
    Constants as Constants,
    Parts as Parts,
    TendonConstants as TendonConstants,
    Weights as Weights,
)
