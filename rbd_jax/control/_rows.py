"""The errors of all targets and closed loops at a configuration, and their exact Jacobian."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics, frame_in_body
from ..constraints import Constraints, jacobian as constraint_jacobian, residual
from ..contact import Clearance, Distances
from ..model import CoordinateModel, Model, motion_subspace, neutral
from ..spatial import se3, so3
from ..spatial.linear import matmul
from ..spatial.motion import to_parent
from ._targets import Target, parts


class Aim(eqx.Module):
    """What is to be reached by which degrees of freedom."""

    model: Model
    targets: tuple[Target, ...]
    constraints: Constraints | None
    columns: tuple[int, ...] = eqx.field(static=True)
    """The degrees of freedom that may move."""
    clear: tuple[Clearance, ...] = ()

    @property
    def moving(self) -> np.ndarray:
        """The degrees of freedom that may move, as an index."""
        return np.array(self.columns, dtype=int)


class Rows(NamedTuple):
    """Errors, their rates, and the sizes of the errors."""

    error: Float[Array, " m"]
    rates: Float[Array, "n m"]
    """Of each row, for each degree of freedom that may move: the transpose of the Jacobian."""
    angle: Float[Array, " k"]
    """The angular error of each target (rad), zero if it has none."""
    position: Float[Array, " k"]
    """The linear error of each target (m), zero if it has none."""
    loop: Float[Array, ""]
    """The largest error of a row of the constraints (m, rad)."""
    distance: Float[Array, " c"]
    """The distance of each pair of shapes that is to stay apart (m)."""
    missing: Float[Array, " c"]
    """What is missing of each of these distances to its margin (m); zero where it is kept."""


def rows(aim: Aim, q: Float[Array, " nq"]) -> Rows:
    """Everything about the targets at a configuration.

    Rows of the constraints have the rates of :func:`rbd_jax.constraints.jacobian`, which are exact
    where the constraints hold. A pair of shapes that is nearer than its margin is a row too, and
    one that is farther away is a row of zeros.
    """
    model = aim.model
    errors, rates, angles, positions = [], [], [], []
    frames = _Frames(model, q)
    for target in aim.targets:
        weight = target.weight
        sizes = []
        for k, part in enumerate(parts(target, *frames.tool(target))):
            if part is not None:
                errors.append(weight[k] * part.error)
                rates.append(weight[k] * frames.independent(part.rates)[aim.moving])
            sizes.append(jnp.zeros((), model.dtype) if part is None else part.size)
        angles.append(sizes[0])
        positions.append(sizes[1])
    loop = jnp.zeros((), model.dtype)
    if aim.constraints is not None and aim.constraints.size > 0:
        c = residual(model, q, aim.constraints)
        errors.append(c)
        rates.append(constraint_jacobian(model, q, aim.constraints).T[aim.moving])
        loop = jnp.max(jnp.abs(c))
    distances, missing = [], []
    for clearance in aim.clear:
        near, rate = frames.near(clearance)
        lack = jnp.maximum(clearance.margin - near.distance, 0)
        distances.append(near.distance)
        missing.append(lack)
        errors.append(lack)
        rates.append(jnp.where(lack > 0, -frames.independent(rate)[aim.moving], 0))
    none = jnp.zeros((0,), model.dtype)
    return Rows(
        jnp.concatenate(errors),
        jnp.concatenate(rates, axis=1),
        jnp.stack(angles),
        jnp.stack(positions),
        loop,
        jnp.concatenate([none, *distances]),
        jnp.concatenate([none, *missing]),
    )


class _Frames:
    """Poses of frames and their twists for each degree of freedom, from one forward kinematics."""

    def __init__(self, model: Model, q: Float[Array, " nq"]):
        self.map = model.coordinate_map(q) if isinstance(model, CoordinateModel) else None
        self.robot, x = (model, q) if self.map is None else (self.map.robot, self.map.q)
        self.R, self.p = forward_kinematics(self.robot, x)
        self.S = motion_subspace(self.robot)

    def tool(self, target: Target) -> tuple[se3.Pose, Float[Array, "nv 6"]]:
        """The pose of the tool in the base, and its twists there, for all joints."""
        body, local = frame_in_body(self.robot, target.frame)
        local = se3.compose(local, (so3.orthonormalize(target.offset_R), target.offset_p))
        tool, twists = self._moved(body, local, None)
        if target.base is None:
            return tool, twists
        base, of_base = self._moved(*frame_in_body(self.robot, target.base), tool[1])
        twists = twists - of_base  # of the tool's origin, seen from the base
        axes = base[0][None]
        turned = [so3.rotate_inverse(axes, x) for x in (twists[:, :3], twists[:, 3:])]
        return se3.compose(se3.inverse(base), tool), jnp.concatenate(turned, axis=-1)

    def near(self, clearance: Clearance) -> tuple[Distances, Float[Array, "nv c"]]:
        """The distances of pairs of shapes, and their rates for all joints.

        The rate of a distance is that of its nearest points, if they are fixed to the shapes, along
        the normal n. With the moment ``x × n`` of the normal, it is the same for both points.
        """
        found, topology = clearance.at(self.R, self.p), self.robot.topology
        bodies = topology.dof_bodies
        twists = to_parent((self.R[bodies], self.p[bodies]), self.S)  # at the world's origin
        moment = so3.cross(found.points[:, 0], found.normal)
        lines = jnp.concatenate([moment, found.normal], axis=1)
        above = np.zeros((len(found.names), topology.nv))
        for k, pair in enumerate(clearance.placed.bodies):
            for body, sign in zip(pair, (-1, 1), strict=True):
                if body >= 0:
                    above[k] += sign * (topology.tree.ancestor_mask[body][bodies] != 0)
        return found, matmul(twists, lines.T) * jnp.asarray(above.T, self.p.dtype)

    def _moved(self, body: int, local: se3.Pose, at: Array | None):
        """A frame of a body, and the twists at its origin, or ``at`` a point, in world axes."""
        topology, zero = self.robot.topology, jnp.zeros_like(self.S)
        if body < 0:
            return local, zero
        pose = se3.compose((self.R[body], self.p[body]), local)
        above = np.nonzero(topology.tree.ancestor_mask[body][topology.dof_bodies])[0]
        bodies = topology.dof_bodies[above]
        arm = self.p[bodies] - (pose[1] if at is None else at)[None]
        return pose, zero.at[above].set(to_parent((self.R[bodies], arm), self.S[above]))

    def independent(self, rates: Float[Array, "nv 3"]) -> Float[Array, "n 3"]:
        """Rates for the joints as rates for the independent coordinates."""
        return rates if self.map is None else self.map.project(rates)


def columns(
    model: Model,
    targets: tuple[Target, ...],
    constraints: Constraints | None,
    clear: tuple[Clearance, ...] = (),
) -> tuple[int, ...]:
    """The degrees of freedom that move a target, a body of a constraint, or a shape."""
    robot = model.robot if isinstance(model, CoordinateModel) else model
    topology = robot.topology
    bodies = [topology.frame_bodies[topology.frame_index(t.frame)] for t in targets]
    bodies += [topology.frame_bodies[topology.frame_index(t.base)] for t in targets if t.base]
    bodies += [b for c in clear for pair in c.placed.bodies for b in pair]
    everything = False
    if constraints is not None:
        bodies += [b for p in constraints.pairs for b in (p.body_1, p.body_2)]
        everything = bool(constraints.couplings)
    above = np.full(topology.nv, everything)
    for body in bodies:
        if body >= 0:
            above |= topology.tree.ancestor_mask[body][topology.dof_bodies] != 0
    if isinstance(model, CoordinateModel):
        pattern = model.coordinate_map(neutral(model)).pattern
        above = pattern[above].any(axis=0)
    return tuple(int(k) for k in np.nonzero(above)[0])
