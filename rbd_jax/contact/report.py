"""Contacts and constraint forces by name."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model.arguments import algorithm
from .collision.detection import ContactGroup
from .kinds.contacts import ContactRows
from .kinds.tendon_rows import InertiaRows
from .scene import Scene, constants as constants_of
from .solver.problem import SolverInputs, row_forces
from .weights import Constants


class ContactReport(eqx.Module):
    """All candidate contact points of a scene, one row each; distant ones have no force."""

    distance: Float[Array, " n"]
    """Distance of the surfaces, negative where they overlap (m)."""
    point: Float[Array, "n 3"]
    """The position halfway between the surfaces, in the world (m)."""
    frame: Float[Array, "n 3 3"]
    """Axes of the contact in the world, as rows: the normal from the first shape to the second,
    then both tangents."""
    force: Float[Array, "n 3"]
    """Force on the second shape, in world axes (N). The first shape gets the opposite force."""
    moment: Float[Array, "n 3"]
    """Moment on the second shape about the point, in world axes (N m): spinning and rolling
    friction."""
    names: tuple[tuple[str, str], ...] = eqx.field(static=True)
    """The names of both shapes of each point."""

    def rows(self, one: str, other: str | None = None) -> list[int]:
        """The rows of all contacts of a shape, or of the contacts of two shapes.

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
    """The constraint forces at one state."""

    contacts: ContactReport
    lower: dict[str, Float[Array, ""]]
    """Force of the lower limit of each hinge or slide, by the joint's name (N m, N)."""
    upper: dict[str, Float[Array, ""]]
    """Force of the upper limit; a positive force pushes towards smaller q."""
    ball_limits: dict[str, Float[Array, ""]]
    """Torque of the limit of each ball joint, against its rotation (N m)."""
    joint_friction: dict[str, Float[Array, " k"]]
    """Dry friction by the joint's name (N m, N); zero for a joint without dry friction. The forces
    of a free joint are along the axes of the world."""
    welds: Float[Array, "nw 6"]
    """For each connect and weld in the order of the file, the force on the first body in world
    axes (N) and the multipliers of the orientation error."""
    joint_equalities: Float[Array, " nc"]
    """Force of each joint equality on its first joint, in the order of the file (N m, N)."""
    tendon_lower: dict[str, Float[Array, ""]]
    """Force of the lower limit of each limited tendon, by the tendon's name (N)."""
    tendon_upper: dict[str, Float[Array, ""]]
    """Force of the upper limit; a positive force shortens the tendon."""
    tendon_friction: dict[str, Float[Array, ""]]
    """Dry friction by the tendon's name (N)."""
    tendon_equalities: Float[Array, " ne"]
    """Force of each tendon equality on its first tendon, in the order of the file (N)."""
    others: dict[str, Any]
    """Forces of constraints of other kinds, by the names that they report."""
    total: Float[Array, " nv"]
    """The sum of all constraint forces in generalized coordinates, MuJoCo's ``qfrc_constraint``."""


@algorithm(driven_joints=True)
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
        ValueError: for a wrong shape, or a scene with a noslip pass: its forces are those of
            ``scene_step(…, forces=True)``. TypeError: if the first argument is not a scene.
    """
    if scene.constraints.noslip is not None:
        raise ValueError(
            "constraint_forces: the scene has a noslip pass, so that its forces do not follow from "
            "accelerations alone; take them of scene_step(…, forces=True).forces"
        )
    constants = constants_of(scene) if constants is None else constants
    return forces_at(scene, q, v, a, constants)


def forces_at(scene: Scene, q: Array, v: Array, a: Array, constants: Constants) -> ConstraintForces:
    """The forces at accelerations that minimize the cost, which are those before a noslip pass."""
    model = scene.model
    zero = jnp.zeros_like(v)
    inputs = SolverInputs(model, scene.constraints, constants, q, v, zero, scene.dt)
    found = row_forces(inputs, inputs.state(), a)
    held = inverse_dynamics(model, q, v, zero, found.loads.wrenches[:-1])
    total = found.loads.tau + inverse_dynamics(model, q, v, zero) - held
    joints = [model.joint_names[b] for b in model.topology.dof_bodies]
    named: dict[str, Any] = {"lower": {}, "upper": {}, "ball_limits": {}, "joint_friction": {}}
    named |= {"welds": jnp.zeros((0, 6), v.dtype), "joint_equalities": jnp.zeros((0,), v.dtype)}
    named |= {"tendon_lower": {}, "tendon_upper": {}, "tendon_friction": {}}
    named["tendon_equalities"] = jnp.zeros((0,), v.dtype)
    contacts, others = [], {}
    for rows, f in zip(found.rows, found.forces, strict=True):
        if isinstance(rows, ContactRows):
            contacts.append((rows.group, *rows.world_forces(f)))
            continue
        if isinstance(rows, InertiaRows):
            total = total - rows.pull(f, zero)
        for key, value in rows.report(f, joints).items():
            into = named if key in named else others
            into[key] = _merged(into[key], value) if isinstance(into.get(key), dict) else value
    return ConstraintForces(_contact_report(scene, contacts), **named, others=others, total=total)


def _merged(one: dict[str, Array], two: dict[str, Array]) -> dict[str, Array]:
    """Forces by name; those of one name after each other."""
    both = {k: jnp.concatenate([one[k], x]) for k, x in two.items() if k in one}
    return one | two | both


def _contact_report(scene: Scene, contacts: list[tuple[ContactGroup, Array, Array]]):
    shapes, pairs = scene.contacts.shapes, scene.contacts.pairs
    own = [pairs.shapes[k] for group, *_ in contacts for k in group.pair]
    names = tuple((shapes.names[i], shapes.names[j]) for i, j in own)
    parts = [[jnp.zeros((0, *s), scene.model.dtype) for s in ((), (3,), (3, 3), (3,), (3,))]]
    parts += [[x.distance, x.point, x.frame, force, moment] for x, force, moment in contacts]
    return ContactReport(*(jnp.concatenate(x) for x in zip(*parts, strict=True)), names=names)
