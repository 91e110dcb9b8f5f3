"""What touches, where, and how hard: contacts and constraint forces by name."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.rules import inverse_dynamics
from ..lanes import lanes
from ..model.arguments import checked, takes_coordinates
from ..spatial import so3
from .constants import constants as constants_of
from .scene import Scene
from .solver.residual import generalized, push
from .solver.rows import Constants, SolverInputs


class ContactReport(eqx.Module):
    """All candidate contact points of a scene, one row each; far ones have no force."""

    distance: Float[Array, " n"]
    """Between the surfaces, negative where they overlap (m)."""
    point: Float[Array, "n 3"]
    """Halfway between the surfaces, in the world (m)."""
    frame: Float[Array, "n 3 3"]
    """Rows in the world: the normal from the first shape to the second, and both tangents."""
    force: Float[Array, "n 3"]
    """On the second shape, in world axes (N). The first gets the opposite."""
    moment: Float[Array, "n 3"]
    """On the second shape about the point, in world axes: spinning and rolling friction (N m)."""
    names: tuple[tuple[str, str], ...] = eqx.field(static=True)
    """Both shapes of each point."""

    def rows(self, one: str, other: str | None = None) -> list[int]:
        """The rows in which a shape is, or in which two shapes meet.

        Raises:
            KeyError: if there is no such pair.
        """
        wanted = {one} if other is None else {one, other}
        found = [i for i, pair in enumerate(self.names) if wanted <= set(pair)]
        if not found:
            pairs = ", ".join(dict.fromkeys(" with ".join(p) for p in self.names)) or "none"
            raise KeyError(f"no contact of {' with '.join(sorted(wanted))}; candidates: {pairs}")
        return found

    def force_on(self, shape: str, other: str | None = None) -> Float[Array, "3"]:
        """The sum of the forces on a shape, from one other shape or from all (N, world axes)."""
        rows = self.rows(shape, other)
        sign = np.array([1.0 if self.names[i][1] == shape else -1.0 for i in rows])
        return jnp.sum(self.force[np.array(rows)] * sign[:, None].astype(self.force.dtype), axis=0)


class ConstraintForces(NamedTuple):
    """The constraint forces of one moment."""

    contacts: ContactReport
    lower: dict[str, Float[Array, ""]]
    """Of the lower limit of each hinge or slide, by the joint's name (N m, N); zero without one."""
    upper: dict[str, Float[Array, ""]]
    """Of the upper limit; positive pushes towards smaller q."""
    balls: dict[str, Float[Array, ""]]
    """Of the limit of each ball joint, against its rotation (N m)."""
    dry: dict[str, Float[Array, " k"]]
    """Of dry friction, by the joint's name (N m, N); zero for a joint without it."""
    welds: Float[Array, "nw 6"]
    """Of each connect and weld in the order of the file: force (world axes), turn's multipliers."""
    couplings: Float[Array, " nc"]
    """Of each joint equality in the file's order, on its first joint."""
    total: Float[Array, " nv"]
    """All constraint forces in generalized coordinates, MuJoCo's ``qfrc_constraint``."""


@checked
@lanes
@takes_coordinates
def constraint_forces(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    constants: Constants | None = None,
) -> ConstraintForces:
    """Contacts and constraint forces by name, at given accelerations.

    Source: MuJoCo's documentation, "Computation", constraint model. They are differentiable.

    Args:
        scene: robot, contacts, constraints.
        q: configuration. v: velocity. Both at the start of the step.
        a: accelerations, of :func:`constrained_acceleration` or ``scene_step(...).a``.
        constants: those of the scene, see :func:`constants`; computed if None.

    Raises:
        ValueError: for a wrong shape. TypeError: if the first argument is not a scene.
    """
    model = scene.model
    constants = constants_of(scene) if constants is None else constants
    zero = jnp.zeros_like(v)
    theta = SolverInputs(model, scene.constraints, constants, q, v, zero, scene.dt)
    pushed = push(theta, a)
    r, f = pushed.rows, pushed.forces
    on_bodies, on_joints = generalized(theta, pushed, zero)
    held = inverse_dynamics(model, q, v, zero, on_bodies)
    total = on_joints + inverse_dynamics(model, q, v, zero) - held
    joints = scene.constraints.joints
    names = [model.joint_names[b] for b in model.topology.dof_bodies]
    at = lambda x, dofs: {names[d]: x[k] for k, d in enumerate(dofs)}  # noqa: E731
    dry: dict[str, list] = {}
    for k, d in enumerate(joints.dry.dofs):
        dry.setdefault(names[d], []).append(f.dry[k])
    return ConstraintForces(
        _touching(scene, r.groups, f.contacts, v.dtype),
        at(f.lower, joints.limits.dofs),
        at(f.upper, joints.limits.dofs),
        at(f.balls, joints.balls.dofs),
        {k: jnp.stack(x) for k, x in dry.items()},
        f.welds,
        f.couplings,
        total,
    )


def _touching(scene: Scene, groups, values, dtype) -> ContactReport:
    shapes, pairs = scene.contacts.shapes, scene.contacts.pairs
    own = [pairs.shapes[k] for group in groups for k in group.pair]
    names = tuple((shapes.names[i], shapes.names[j]) for i, j in own)
    parts = [[jnp.zeros((0, *s), dtype) for s in ((), (3,), (3, 3), (3,), (3,))]]
    for group, y in zip(groups, values, strict=True):
        wrench = jnp.pad(y, ((0, 0), (0, 6 - group.dim)))
        both = [so3.rotate_inverse(group.frame, wrench[:, s : s + 3]) for s in (0, 3)]
        parts.append([group.distance, group.point, group.frame, *both])
    return ContactReport(*(jnp.concatenate(x) for x in zip(*parts, strict=True)), names=names)
