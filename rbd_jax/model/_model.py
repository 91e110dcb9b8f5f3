"""The model: every physical parameter a stacked array and a leaf, the tree's shape static."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .topology import Topology


class Model(eqx.Module):
    """A robot: the tree's shape (static) and its parameters (leaves).

    Every leaf may be changed with ``eqx.tree_at``, differentiated, or given a leading axis and
    mapped over with ``jax.vmap``. The dtype of the leaves decides the dtype of the results.
    """

    placement_R: Float[Array, "*b nb 3 3"]
    """Rotation of the joint frame in the parent body's frame. Gradients are tangent to SO(3)."""
    placement_p: Float[Array, "*b nb 3"]
    """Origin of the joint frame in the parent body's frame (m)."""
    axis: Float[Array, "*b nb 3"]
    """Axis of a screw joint in the joint frame; only its direction matters. Zero for others."""
    pitch: Float[Array, "*b nb"]
    """Advance of a revolute or helical joint (m/rad). Other kinds do not use it."""
    inertia: Float[Array, "*b nb 10"]
    """Ten inertial parameters in the body frame, see :mod:`rbd_jax.spatial.inertia`."""
    gravity: Float[Array, "*b 3"]
    """Gravitational acceleration in the world frame (m/s²)."""
    armature: Float[Array, "*b nv"]
    """Rotor inertia added to the diagonal of the mass matrix (kg m² or kg)."""
    damping: Float[Array, "*b nv"]
    """Viscous joint damping, a torque ``−damping · v`` (N m s/rad or N s/m)."""
    friction: Float[Array, "*b nv"]
    """Dry joint friction (N m or N). It acts in a scene's step only (:mod:`rbd_jax.contact`)."""
    position_lower: Float[Array, "*b nq"]
    """Lower position limits; −inf where there is none. They act in a scene's step only."""
    position_upper: Float[Array, "*b nq"]
    """Upper position limits; inf where there is none. They act in a scene's step only."""
    velocity_limit: Float[Array, "*b nv"]
    """Speed limits; inf where there is none. Not enforced."""
    effort_limit: Float[Array, "*b nv"]
    """Torque or force limits; inf where there is none. Not enforced."""
    frame_R: Float[Array, "*b nf 3 3"]
    """Rotations of the frames in their bodies."""
    frame_p: Float[Array, "*b nf 3"]
    """Origins of the frames in their bodies (m)."""
    topology: Topology = eqx.field(static=True)
    stiffness: Float[Array, "*b nv"] | None = None
    """Joint springs, a torque ``−stiffness · (q ⊖ rest)`` (N m/rad or N/m); None: no springs."""
    rest: Float[Array, "*b nq"] | None = None
    """Where the springs are at rest, laid out as q; None exactly if ``stiffness`` is None."""

    @property
    def space(self) -> Topology:
        """The joints whose coordinates are q and v: those of the robot, or of fewer coordinates."""
        return self.topology

    @property
    def nj(self) -> int:
        """Number of independent joints: of all joints, or without those that others drive."""
        return self.space.nb

    @property
    def nq(self) -> int:
        """Number of configuration coordinates."""
        return self.space.nq

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return self.space.nv

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return self.topology.nb

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the bodies; body i is moved by joint i."""
        return self.topology.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, one for each body."""
        return self.topology.joint_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Names of the frames: every link of the description is one."""
        return self.topology.frame_names

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the parameters, and so of the results."""
        return self.inertia.dtype

    def q_slice(self, joint: str) -> slice:
        """Where the named joint lives in q. Raises KeyError for an unknown name."""
        return self.space.q_slice(joint)

    def v_slice(self, joint: str) -> slice:
        """Where the named joint lives in v, a and tau. Raises KeyError for an unknown name."""
        return self.space.v_slice(joint)
