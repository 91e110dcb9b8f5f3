"""All constraints of a scene."""

import equinox as eqx

from .kinds.ball_limits import BallLimits
from .kinds.contacts import Contacts
from .kinds.free_friction import FreeFriction
from .kinds.joint_equalities import JointEqualities
from .kinds.joint_friction import JointFriction
from .kinds.joint_limits import JointLimits
from .kinds.tendon_rows import TendonEqualities, TendonFriction, TendonInertia, TendonLimits
from .kinds.welds import Welds
from .solver.noslip import NoSlip
from .solver.rows import Constraint, Rows, State
from .tendons import Tendons
from .weights import Parts


class Constraints(eqx.Module):
    """All constraints of a scene."""

    contacts: Contacts
    limits: JointLimits
    ball_limits: BallLimits
    friction: JointFriction
    welds: Welds
    joint_equalities: JointEqualities
    parts: Parts
    """The bodies of the file that the constraints name."""
    others: tuple[Constraint, ...] = ()
    """Constraints of further kinds, see :class:`rbd_jax.contact.solver.rows.Constraint`."""
    tendons: Tendons | None = None
    """The tendons, on which the following kinds act; None without tendons."""
    tendon_limits: TendonLimits | None = None
    tendon_friction: TendonFriction | None = None
    tendon_equalities: TendonEqualities | None = None
    free_friction: FreeFriction | None = None
    """Dry friction of the translation of free joints; None if there is none."""
    noslip: NoSlip | None = None
    """The pass that takes the softness out of friction; None without it."""

    @property
    def kinds(self) -> tuple[Constraint, ...]:
        """One object for each kind, in the order in which their rows are evaluated."""
        joints = self.limits, self.friction, self.joint_equalities, self.ball_limits
        tendons = [self.tendon_limits, self.tendon_friction, self.tendon_equalities]
        if self.tendons is not None and self.tendons.armature is not None:
            tendons.append(TendonInertia(self.tendons))
        own = [x for x in (self.free_friction, *tendons) if x is not None]
        return (*joints, self.contacts, self.welds, *own, *self.others)

    def rows(self, state: State) -> list[Rows]:
        """The rows of all kinds at a state."""
        return [rows for kind in self.kinds for rows in kind.rows(state)]
