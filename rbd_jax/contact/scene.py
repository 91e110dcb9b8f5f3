"""A scene: a robot, its actuators, its constraints and contacts, and its integrator."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.crba import crba
from ..derivatives.custom_jvp.kinematics import world_quantities_custom_jvp
from ..io import Layout
from ..lanes import lanes
from ..model import Model
from ..model.arguments import check_number
from .actuators import Actuators, Driven
from .constraints import Constraints
from .kinds.contacts import AtDistance, Contacts
from .mocap import Mocap
from .passive import Fluid, GravityCompensation, gravity_compensation
from .sensor_specs import Sensors
from .tendons import Tendons, inverse_mass, tendon_constants
from .weights import Constants, weights, with_world
from .wrapping import root


class Keyframe(eqx.Module):
    """A named state. It unpacks as ``q, v, controls``."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    controls: Float[Array, " nu"]
    act: Float[Array, " na"] | None = None
    """Activations; None if no actuator has one."""

    def __iter__(self):
        return iter((self.q, self.v, self.controls))


class Scene(eqx.Module):
    """A robot with actuators, constraints, contacts and an integrator, as MuJoCo defines them.

    :func:`rbd_jax.load_mjcf` and :func:`rbd_jax.contact.scene_on_ground` make scenes. Every float
    array of a scene is a leaf.
    """

    model: Model
    actuators: Actuators
    constraints: Constraints
    q0: Float[Array, " nq"]
    """The reference configuration, MuJoCo's ``qpos0``, in which the file places the bodies. The
    inverse weights of constraints are those of this configuration."""
    keyframes: dict[str, Keyframe]
    gravcomp: GravityCompensation | None
    """Gravity-compensated mass of each body; None if no weight is compensated."""
    fluid: Fluid | None
    """The fluid around the bodies; None if there is none."""
    dt: Float[Array, ""]
    """Time step (s)."""
    integrator: str = eqx.field(static=True)
    """``"euler"`` (semi-implicit, damping implicit), ``"implicit"``, ``"implicitfast"`` or
    ``"rk4"``."""
    implicit_damping: bool = eqx.field(static=True)
    """Whether ``"euler"`` takes joint damping implicitly."""
    layout: Layout | None = eqx.field(static=True)
    """Converts states and generalized forces to and from MuJoCo's; None without an MJCF file."""
    sensors: Sensors | None = None
    """The sensors of the file, see :func:`rbd_jax.contact.sensors`; None without sensors."""
    mocap: Mocap | None = None
    """The mocap bodies, see :func:`rbd_jax.contact.with_mocap`; None without any."""

    def torque(
        self,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        controls: Float[Array, " nu"],
        act: Float[Array, " na"] | None = None,
    ) -> Float[Array, " nv"]:
        """The generalized forces of the actuators (N m, N), see :meth:`Actuators.torque`.

        Args:
            q: configuration. v: velocity. controls: one number an actuator.
            act: activations, of scenes whose actuators have some.
        """
        damping, acc0 = _of_actuators(self)
        tendons = None if self.tendons is None else self.tendons.at(self.model, q)
        driven = Driven(act, self.dt, tendons, acc0, actuator_gravcomp(self, q))
        return self.actuators.damped(damping).torque(self.model, q, v, controls, driven)

    def keeping(self, contacts: int | None) -> "Scene":
        """The same scene whose solver has room for so many contact points at once.

        A scene has room for every candidate point of every pair, and a step costs what touches. A
        small room saves memory, and derivatives of a step compile and run faster in it. A step that
        finds more points than that ignores some of them and says so: its ``result`` is
        ``RESULTS.crowded``, and ``throw=True`` raises an error. A rollout is NaN from there on.

        Args:
            contacts: the most points that may act at once; None for all. A few more may find room.

        Raises:
            ValueError: for less than one point.
        """
        if contacts is not None:
            check_number("keeping", "contacts", contacts, least=1, whole=True)
        where = lambda s: s.constraints.contacts  # noqa: E731
        few = dataclasses.replace(where(self), most=contacts)
        return eqx.tree_at(where, self, few)

    def at_distance(self, reach: float | Array, softness: float | Array = 0.1) -> "Scene":
        """The same scene whose contacts act at a distance, so that its steps are smooth.

        Derivatives of a contact that is not there say nothing of what it would do. Here a contact
        acts on shapes that are up to ``reach`` apart: with a share of its impedance, which falls to
        zero there, it pushes where they approach. It begins to push smoothly: for its row z of a
        pyramidal friction cone, the force law ``D max(−z, 0)`` becomes ``D s log(1 + exp(−z/s))``
        with the softness s. Contacts that press by much more than s act as before.

        The motion of this scene is another one. Where its derivatives are wanted for the motion of
        this scene as it is, use :class:`rbd_jax.simulate.StraightThrough`.

        Elliptic cones are replaced by pyramids, and a ``noslip`` pass is left out.

        Source: the idea is that of smoothed contact models, as in Pang, Suh, Yang, Tedrake (2023),
        "Global planning for contact-rich manipulation via local smoothing of quasi-dynamic contact
        models".

        Args:
            reach: how far beyond their margin contacts act (m).
            softness: how softly they begin to push (m/s²).

        Raises:
            ValueError: for numbers that are not positive.
        """
        check_number("at_distance", "reach", reach, positive=True)
        check_number("at_distance", "softness", softness, positive=True)
        reach, softness = (jnp.asarray(x, self.model.dtype) for x in (reach, softness))
        constraints = self.constraints
        contacts = dataclasses.replace(
            constraints.contacts, at_distance=AtDistance(reach, softness)
        )
        constraints = dataclasses.replace(constraints, contacts=contacts, noslip=None)
        return dataclasses.replace(self, constraints=constraints)

    @property
    def tendons(self) -> Tendons | None:
        """The tendons; None if there are none."""
        return self.constraints.tendons

    @property
    def contacts(self) -> Contacts:
        """Shapes, pairs and their parameters."""
        return self.constraints.contacts

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.actuators.nu

    @property
    def na(self) -> int:
        """Number of activations, which are a part of the state."""
        return self.actuators.na


@lanes
def constants(scene: Scene) -> Constants:
    """Inverse weights, anchors of welds and damping by damping ratios, at ``scene.q0``.

    A step of a scene computes them by itself. In a loop over steps of one scene they are the same
    in each step: compute them before it and pass them to :func:`scene_step`, as ``rbd.rollout``
    does.
    They follow every leaf of the robot, and are differentiable.

    Source: MuJoCo's ``mj_setConst``.
    """
    model, c = scene.model, scene.constraints
    heavy = c.tendons is not None and c.tendons.armature is not None
    inverse = inverse_mass(c.tendons, model, scene.q0) if heavy else None
    found = weights(model, scene.q0, c.parts, inverse)
    anchors = None
    if any(c.welds.refers):
        g, root = world_quantities_custom_jvp(model, scene.q0)
        R = with_world(g.R, jnp.eye(3, dtype=model.dtype))
        anchors = c.welds.anchors(R, with_world(g.p + root, jnp.zeros_like(root[0])))
    tendons = tendon_constants(c.tendons, model, scene.q0)
    damping, acc0 = _of_actuators(scene)
    mean = None
    if c.noslip is not None and c.noslip.inertia is None:
        M = crba(model, scene.q0)
        if heavy and c.tendons is not None:
            M = M + c.tendons.mass(c.tendons.at(model, scene.q0))
        mean = jnp.mean(jnp.diagonal(M))
    return Constants(found, anchors, damping, tendons, acc0, mean)


def actuator_gravcomp(scene: Scene, q: Float[Array, " nq"]) -> Float[Array, " nv"] | None:
    """Gravity compensation that counts as a force of actuators (N m, N); None if there is none."""
    if scene.gravcomp is None or not scene.gravcomp.by_actuators:
        return None
    return scene.gravcomp.split(gravity_compensation(scene.model, scene.gravcomp, q))[1]


def _of_actuators(scene: Scene) -> tuple[Array | None, Array | None]:
    """Damping by damping ratios, and accelerations by unit forces, at ``scene.q0``."""
    a, model, tendons = scene.actuators, scene.model, scene.tendons
    scaled = a.muscles is not None and a.muscles.scaled
    if a.dampratio is None and not scaled:
        return None, None
    there = None if tendons is None else tendons.at(model, scene.q0)
    inverse = inverse_mass(tendons, model, scene.q0)
    damping = a.damping(model, scene.q0, there, inverse)
    if not scaled:
        return damping, None
    rows = jnp.matmul(a.moment(model, scene.q0, there), inverse, precision="highest")
    return damping, root(jnp.sum(rows * rows, axis=1))
