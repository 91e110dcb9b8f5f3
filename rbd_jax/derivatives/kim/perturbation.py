"""Kim's recursive derivatives of the dynamics along a scalar p: the inputs (64) and Tables 5–7."""

import dataclasses
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.passive import spring_torque
from ...algorithms.tree import sum_dofs
from ...model import CoordinateModel, Model, integrate, motion_subspace, velocity_from_rate
from ...model.arguments import algorithm
from ...model.coordinates import CoordinateMap
from ..perturbation import nonzero_tangents, placement_twists, subspace_rates


class Perturbation(NamedTuple):
    """How everything that enters the dynamics changes with a scalar p; None is zero.

    Source: Kim (61), (64) and the rates of the coordinates; all in the frame of body i. What is
    None is left out of the recursions. These are the savings of Kim, §3.2: along a velocity, an
    acceleration or a torque no inertia changes, articulated inertias included. Where only one joint
    changes, :class:`JointPerturbation` also leaves out the bodies that do not feel it.
    """

    dh: Float[Array, "nb 6"] | None = None
    """``∂h = T⁻¹ ∂T/∂p`` of the placement T of each body in its parent."""
    dS: Float[Array, "nv 6"] | None = None
    """``∂S/∂p``, one row a degree of freedom. Zero for p = q: S is constant in the body."""
    dSdot: Float[Array, "nv 6"] | None = None
    """``∂Ṡ/∂p``. Zero for every joint kind of this library, whose Ṡ is zero; for joints of S(q)
    see ``dlaws``."""
    dI: Float[Array, "nb 10"] | None = None
    """Change of the ten inertial parameters."""
    df_ext: Float[Array, "nb 6"] | None = None
    """Change of the external wrench (n, f) on each body."""
    dv: Float[Array, " nv"] | None = None
    """``∂q̇/∂p``."""
    da: Float[Array, " nv"] | None = None
    """``∂q̈/∂p``; an input of Table 5, and of Table 7 for prescribed joints."""
    dtau: Float[Array, " nv"] | None = None
    """``∂τ/∂p``; an input of Table 6, and of Table 7 for joints that are not prescribed."""
    dgravity: Float[Array, "3"] | None = None
    """Change of the gravitational acceleration, in the world frame."""
    darmature: Float[Array, " nv"] | None = None
    """Change of the rotor inertia."""
    ddamping: Float[Array, " nv"] | None = None
    """Change of the viscous damping."""
    dspring: Float[Array, " nv"] | None = None
    """Change of the torque of the joint springs, which Kim's robots do not have."""
    dcoordinates: Float[Array, " nq"] | None = None
    """``∂q/∂p`` of the independent coordinates of a robot with driven joints; None for others."""
    dlaws: Any = None
    """Change of the laws of driven joints. With ``dcoordinates`` it decides ∂S and ∂Ṡ of S(q)."""


class JointPerturbation(eqx.Module):
    """How the quantities of one joint and its body change with a scalar p; nothing else changes.

    Then the recursions start at that joint: twists change below it alone, wrenches and articulated
    inertias on its way to the root. For a joint near the tip of a chain the derivative of inverse
    dynamics costs the few bodies below it and one wrench for each body above it, instead of the
    whole chain. Which joint it is belongs to the structure, so that each joint is a program of its
    own. Source: Kim (63) and §3.2.
    """

    joint: int | str = eqx.field(static=True)
    """The number of the joint or its name."""
    rows: Perturbation
    """The rows of this joint alone: ``dh``, ``dI`` and ``df_ext`` have one row, the others a row or
    a number for each of its degrees of freedom. What belongs to no joint has to be None:
    ``dgravity``, ``dcoordinates`` and ``dlaws``."""

    @classmethod
    def along(
        cls,
        model: Model,
        q: Float[Array, " nq"],
        joint: int | str,
        u: Float[Array, " w"] | None = None,
        *,
        dv: Float[Array, " w"] | None = None,
        da: Float[Array, " w"] | None = None,
        dtau: Float[Array, " w"] | None = None,
    ) -> "JointPerturbation":
        """The quantities (64) along tangents of one joint, which has w degrees of freedom.

        Source: Kim (62).

        Args:
            model: the robot. q: configuration.
            joint: the number of the joint or its name.
            u: tangent of its coordinates, as for :func:`rbd_jax.integrate`.
            dv: rate of its velocity. da: of its acceleration. dtau: of its torque.

        Raises:
            KeyError: for an unknown name. IndexError: for an unknown number.
            ValueError: for a wrong shape, or a robot with driven joints.
        """
        joint = model.topology.joint_index(joint)
        dofs = slice(*(int(x) for x in model.topology.v_starts[joint : joint + 2]))
        dh = spring = None
        if u is not None:
            fitting(model, cls(joint, Perturbation(dv=u)), dv="u")
            dh = jnp.sum(motion_subspace(model)[dofs] * u[:, None], axis=0, keepdims=True)
            if model.stiffness is not None:
                whole = jnp.zeros((model.nv,), model.dtype).at[dofs].set(u)
                moved = lambda d: spring_torque(model, integrate(model, q, d))  # noqa: E731
                spring = jax.jvp(moved, (jnp.zeros_like(whole),), (whole,))[1][dofs]
        d = cls(joint, Perturbation(dh=dh, dv=dv, da=da, dtau=dtau, dspring=spring))
        return fitting(model, d)


class ValueAndDerivative(NamedTuple):
    """What Tables 5 to 7 give together: the dynamics, and their derivative along p."""

    value: Any
    derivative: Any


@algorithm(driven_joints=True)
def perturbation_of(
    model: Model,
    q: Float[Array, " nq"],
    dmodel: Model | None = None,
    dq: Float[Array, " nq"] | None = None,
    *,
    dv: Float[Array, " nv"] | None = None,
    da: Float[Array, " nv"] | None = None,
    dtau: Float[Array, " nv"] | None = None,
    df_ext: Float[Array, "nb 6"] | None = None,
) -> Perturbation:
    """The quantities (64) along tangents of the inputs and of the leaves of the model.

    Source: Kim (61), (62) and (64). For a model ``f(p)``, ``jax.jvp(f, (p,), (1.0,))`` gives the
    model and ``dmodel``; p may be a mass, a length, an axis or gravity. Derivatives are those of
    autodiff.

    Args:
        model: the robot. One with driven joints has joints of S(q); then ``dh``, ``dS``, ``dI`` and
            the changes of rotors, damping and springs are of all joints, and the rates of
            coordinates, velocities, accelerations and torques are of the independent ones.
        q: configuration.
        dmodel: a model that holds the rates of the leaves; leaves that are None do not change.
        dq: rate of the coordinates, as ``rate_from_velocity(model, q, u)`` for a tangent u.
        dv: rate of the velocity. da: of the acceleration. dtau: of the torques.
        df_ext: rate of the external wrenches.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    if isinstance(model, CoordinateModel):
        dlaws = None if dmodel is None else getattr(dmodel, "laws", None)
        full, dfull = joint_rates(model, q, dlaws, dq)
        d = perturbation_of(CoordinateMap(model, q).robot, full, dmodel, dfull, df_ext=df_ext)
        return fitting(model, d._replace(dcoordinates=dq, dlaws=dlaws, dv=dv, da=da, dtau=dtau))
    dh = placement_twists(model, dmodel, q)
    if dq is not None:
        moved = motion_subspace(model) * velocity_from_rate(model, q, dq)[:, None]
        moved = sum_dofs(model.topology, moved)  # (62)
        dh = moved if dh is None else dh + moved
    leaf = lambda name: nonzero_tangents(dmodel, name).get(name)  # noqa: E731
    d = Perturbation(
        dh=dh,
        dS=subspace_rates(model, dmodel),
        dI=leaf("inertia"),
        df_ext=df_ext,
        dv=dv,
        da=da,
        dtau=dtau,
        dgravity=leaf("gravity"),
        darmature=leaf("armature"),
        ddamping=leaf("damping"),
        dspring=_spring_rate(model, dmodel, q, dq),
    )
    return fitting(model, d)


def joint_rates(
    model: CoordinateModel, y: Float[Array, " nq_y"], dlaws: Any, dy: Array | None
) -> tuple[Float[Array, " nq"], Float[Array, " nq"] | None]:
    """The configuration of all joints, and its rate; None if nothing moves them."""

    def joints(laws, y):
        return CoordinateMap(dataclasses.replace(model, laws=laws), y).q

    if dy is None and not jax.tree.leaves(dlaws):
        return joints(model.laws, y), None
    return eqx.filter_jvp(joints, (model.laws, y), (law_tangents(model, dlaws), dy))


def law_tangents(model: CoordinateModel, dlaws: Any) -> Any:
    """The tangents of the laws, where None stands for laws that do not change."""
    return jax.tree.map(lambda _: None, model.laws) if dlaws is None else dlaws


def _spring_rate(
    model: Model, dmodel: Model | None, q: Float[Array, " nq"], dq: Float[Array, " nq"] | None
) -> Float[Array, " nv"] | None:
    leaves = nonzero_tangents(dmodel, "stiffness", "rest")
    if model.stiffness is None or not (leaves or dq is not None):
        return None
    rates = [leaves.get(n, jnp.zeros_like(getattr(model, n))) for n in ("stiffness", "rest")]

    def torque(stiffness, rest, q):
        return spring_torque(dataclasses.replace(model, stiffness=stiffness, rest=rest), q)

    primals = model.stiffness, model.rest, q
    return jax.jvp(torque, primals, (*rates, jnp.zeros_like(q) if dq is None else dq))[1]


def of_all_joints(model: Model, d: Perturbation | JointPerturbation) -> Perturbation:
    """The perturbation of a robot with driven joints; ValueError for one of a single joint."""
    if isinstance(d, JointPerturbation):
        raise ValueError(
            f"perturbation: robot {model.topology.name!r} has driven joints, so that a coordinate "
            "may move several joints; take perturbation_of"
        )
    return d


P = TypeVar("P", Perturbation, JointPerturbation)


def fitting(model: Model, d: P, **names: str) -> P:
    """The perturbation itself. Raises ValueError for a shape that does not fit the robot.

    ``names`` says what a tangent is called in a message, as ``dv="u"``.
    """
    nb, n, nv = model.topology.nb, model.topology.nv, model.nv
    of = f"robot {model.topology.name!r}"
    rows: Perturbation = d.rows if isinstance(d, JointPerturbation) else d
    if isinstance(d, JointPerturbation):
        if isinstance(model, CoordinateModel):
            of_all_joints(model, d)
        joint = model.topology.joint_index(d.joint)
        of = f"joint {model.topology.joint_names[joint]!r} of {of}"
        nb, n = 1, int(np.diff(model.topology.v_starts)[joint])
        nv = n
        for name in ("dgravity", "dcoordinates", "dlaws"):
            if jax.tree.leaves(getattr(rows, name)):
                raise ValueError(f"perturbation: {name} is of no single joint; leave it None")
    shapes = dict(
        dh=(nb, 6), dS=(n, 6), dSdot=(n, 6), dI=(nb, 10), df_ext=(nb, 6), dv=(nv,), da=(nv,),
        dtau=(nv,), dgravity=(3,), darmature=(n,), ddamping=(n,), dspring=(n,),
        dcoordinates=(model.nq,),
    )  # fmt: skip
    for name, shape in shapes.items():
        x = getattr(rows, name)
        if x is not None and jnp.shape(x) != shape:
            raise ValueError(
                f"perturbation: {names.get(name, name)} has shape {jnp.shape(x)}, expected {shape} "
                f"for {of}; leave it None where nothing changes"
            )
    driven = rows.dcoordinates is not None or jax.tree.leaves(rows.dlaws)
    if driven and not isinstance(model, CoordinateModel):
        raise ValueError(
            f"perturbation: dcoordinates and dlaws are of robots with driven joints, and "
            f"{model.topology.name!r} has none; leave them None"
        )
    return d
