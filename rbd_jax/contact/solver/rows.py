"""All constraint rows of one moment: where they act, their laws, their forces.

Source: MuJoCo's documentation, "Computation", constraint model. The unknown a is MuJoCo's ``qacc``:
for a free joint the classical acceleration of its origin, in our body axes.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.ground import Placed
from ...algorithms.kinematics import body_accelerations, body_velocities
from ...derivatives.poses import twists
from ...model import Model
from ...spatial import so3
from ..kinds.contacts import Contacts, Reference, find, reference
from ..kinds.equalities import (
    Anchors,
    CouplingRow,
    Equalities,
    State,
    WeldRow,
    coupling_rows,
    weld_rows,
)
from ..kinds.joints import BallRow, Joints, Row, ball_rows, dry_row, limit_rows
from ..weights import Parts, Weights
from . import force_laws as laws


class Constraints(eqx.Module):
    """Everything that pushes, stops or holds."""

    contacts: Contacts
    joints: Joints
    equalities: Equalities
    parts: Parts
    """Where bodies are pushed to find out how much they give way."""


class Constants(NamedTuple):
    """What :func:`rbd_jax.contact.constants` computes from a scene."""

    weights: Weights
    anchors: Anchors | None
    """What welds hold together; None if none refers to the reference configuration."""
    damping: Float[Array, " nu"] | None
    """Of actuators with damping ratios; None for none."""

    def of(self, pairs: tuple[tuple[int, int], ...]) -> Float[Array, "n 2"]:
        """How much both parts of each pair give way to forces (1/kg) and torques (1/(kg m²))."""
        parts = with_world(self.weights.parts, jnp.zeros((2,), self.weights.dofs.dtype))
        ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        return parts[ends[:, 0]] + parts[ends[:, 1]]


class SolverInputs(NamedTuple):
    """All that the accelerations depend on."""

    model: Model
    constraints: Constraints
    constants: Constants
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]
    dt: Float[Array, ""]


def classical(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ω × v`` of every free joint: the classical acceleration of its origin is ``v̇ + ω × v``."""
    c = jnp.zeros_like(v)
    topology = model.topology
    for b in topology.bodies_of("free"):
        s = int(topology.v_starts[b])
        c = c.at[s + 3 : s + 6].set(so3.cross(v[s : s + 3], v[s + 3 : s + 6]))
    return c


class Body(NamedTuple):
    """Poses of the bodies in the world and twists in world axes; the world is the last row."""

    R: Float[Array, "nb+1 3 3"]
    p: Float[Array, "nb+1 3"]
    w: Float[Array, "nb+1 3"]
    v: Float[Array, "nb+1 3"]
    """Velocity of the body's origin."""


def with_world(x: Array, row: Array) -> Array:
    """Rows of the bodies, and one for the world."""
    return jnp.concatenate([x, row[None]])


def bodies(model: Model, g: Placed, root: Float[Array, "nb 3"], v: Float[Array, " nv"]) -> Body:
    """Bodies at given poses, whose twists are those of joint speeds v."""
    zero, (w, speed) = jnp.zeros((3,), root.dtype), twists(model.topology, g, v)
    return Body(
        with_world(g.R, jnp.eye(3, dtype=root.dtype)),
        with_world(g.p + root, zero),
        with_world(w, zero),
        with_world(speed, zero),
    )


def relative(body: Body, group) -> Float[Array, "n d"]:
    """Velocity of the second body against the first at each contact, in its frame."""
    i, j = group.bodies[:, 0], group.bodies[:, 1]
    at = lambda b: body.v[b] + so3.cross(body.w[b], group.point - body.p[b])  # noqa: E731
    linear = so3.rotate(group.frame, at(j) - at(i))
    if group.dim <= 3:
        return linear[:, : group.dim]
    turning = so3.rotate(group.frame, body.w[j] - body.w[i])
    return jnp.concatenate([linear, turning], axis=-1)[:, : group.dim]


class Rows(NamedTuple):
    """Where everything touches and the laws at the present velocity."""

    groups: list
    references: list[Reference]
    lower: Row
    upper: Row
    dry: Row
    balls: BallRow
    welds: WeldRow | None
    couplings: CouplingRow


class Values(NamedTuple):
    """One number a row: residuals ``J a − a_ref``, forces, or tangents of either."""

    contacts: tuple[Array, ...]
    lower: Array
    upper: Array
    dry: Array
    balls: Array
    couplings: Array
    welds: Array


def weld_state(body: Body, ends: np.ndarray) -> State:
    """Both bodies of every weld."""
    return State(*(x[ends[:, k]] for k in (0, 1) for x in body))


def rows(theta: SolverInputs, g: Placed, root: Float[Array, "nb 3"]) -> Rows:
    """All rows at a state, for the poses of its bodies."""
    model, c, constants, q, v, _, dt = theta
    least = c.contacts.least_time * dt
    R, body = g.R, bodies(model, g, root, v)
    groups = find(c.contacts, R, g.p + root)
    part = c.contacts.shapes.parts
    touching = constants.of(tuple((part[i], part[j]) for i, j in c.contacts.pairs.shapes))[:, 0]
    references = [reference(c.contacts, x, relative(body, x), touching, dt) for x in groups]
    weight = constants.weights.dofs
    lower, upper = limit_rows(c.joints.limits, model, q, v, weight, least)
    welds = None
    if c.equalities.welds.bodies:
        ends = np.array(c.equalities.welds.bodies, dtype=np.int32)
        V = body_velocities(model, q, v)
        A = body_accelerations(model, q, v, -classical(model, v))
        rate = with_world(so3.rotate(R, A[:, 3:] + so3.cross(V[:, :3], V[:, 3:])), body.v[-1])
        spin = with_world(so3.rotate(R, A[:, :3]), body.w[-1])
        moved = Body(so3.matmul(so3.hat(body.w), body.R), body.v, spin, rate)
        s, ds = weld_state(body, ends), weld_state(moved, ends)
        tied = c.equalities.welds
        held = constants.anchors or Anchors(tied.p1, tied.p2, tied.quat1)
        welds = weld_rows(tied, held, constants.of(tied.parts), s, ds, least)
    return Rows(
        groups,
        references,
        lower,
        upper,
        dry_row(c.joints.dry, v, weight, least),
        ball_rows(c.joints.balls, q, v, weight, least),
        welds,
        coupling_rows(c.equalities.couplings, q, v, weight, least),
    )


def forces(theta: SolverInputs, r: Rows, z: Values) -> Values:
    """The force of every row."""
    c = theta.constraints
    dry = np.array(c.joints.dry.dofs, dtype=np.int32)
    elliptic = c.contacts.elliptic
    return Values(
        tuple(
            laws.contact(x, y.cone, elliptic) for x, y in zip(z.contacts, r.references, strict=True)
        ),
        laws.one_sided(z.lower, r.lower.D),
        laws.one_sided(z.upper, r.upper.D),
        laws.dry(z.dry, r.dry.D, theta.model.friction[dry]),
        laws.one_sided(z.balls, r.balls.D),
        laws.two_sided(z.couplings, r.couplings.D),
        z.welds if r.welds is None else laws.two_sided(z.welds, r.welds.D),
    )


def targets(r: Rows) -> Values:
    """``a_ref`` of every row."""
    none = jnp.zeros((0, 6), r.lower.D.dtype)
    return Values(
        tuple(x.target for x in r.references),
        r.lower.target,
        r.upper.target,
        r.dry.target,
        r.balls.target,
        r.couplings.target,
        none if r.welds is None else r.welds.target,
    )


def joint_values(c: Constraints, r: Rows, a: Array) -> tuple[Array, Array, Array, Array, Array]:
    """``J a`` of the rows that act on joints alone."""
    limit, dry = (np.array(x.dofs, dtype=np.int32) for x in (c.joints.limits, c.joints.dry))
    one, two = (
        np.array([d[k] for d in c.equalities.couplings.dofs], dtype=np.int32) for k in (0, 1)
    )
    turning = [a[d : d + 3] for d in c.joints.balls.dofs]
    balls = -so3.dot(r.balls.axis, jnp.stack(turning)) if turning else r.balls.D
    return a[limit], -a[limit], a[dry], balls, a[one] - r.couplings.slope * a[two]


def joint_torques(c: Constraints, r: Rows, f: Values, tau: Array) -> Float[Array, " nv"]:
    """``tau + Jᵀ f`` of the same rows."""
    limit, dry = (np.array(x.dofs, dtype=np.int32) for x in (c.joints.limits, c.joints.dry))
    one, two = (
        np.array([d[k] for d in c.equalities.couplings.dofs], dtype=np.int32) for k in (0, 1)
    )
    tau = tau.at[limit].add(f.lower - f.upper).at[dry].add(f.dry)
    tau = tau.at[one].add(f.couplings).at[two].add(-r.couplings.slope * f.couplings)
    for k, d in enumerate(c.joints.balls.dofs):
        tau = tau.at[d : d + 3].add(-r.balls.axis[k] * f.balls[k])
    return tau
