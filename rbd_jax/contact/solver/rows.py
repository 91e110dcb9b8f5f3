"""The interface of all kinds of constraints: parameters that make rows at a state.

A :class:`Constraint` holds the parameters of one kind. At a state it makes :class:`Rows`, which
know their reference acceleration, their force law and their Jacobian J. The solver asks for J in
two forms. The form by bodies costs O(n) and is what derivatives go through. The dense form is what
Newton's method uses. Rows that act on single joints have one form for both, see :class:`JointRows`.

Source: MuJoCo's documentation, "Computation", constraint model. The unknown a is MuJoCo's ``qacc``.
For a free joint it is the classical acceleration of the origin, in the axes of the body.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...algorithms.world_frame import WorldQuantities
from ...derivatives.custom_jvp.kinematics import twists, world_quantities_custom_jvp
from ...model import Model, Topology
from ...spatial import so3
from ..collision.detection import Candidates
from ..tendons import TendonState
from ..weights import Constants, with_world


def classical_offset(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ω × v`` of every free joint: the classical acceleration of its origin is ``v̇ + ω × v``."""
    c = jnp.zeros_like(v)
    topology = model.topology
    for b in topology.bodies_of("free"):
        s = int(topology.v_starts[b])
        c = c.at[s + 3 : s + 6].set(so3.cross(v[s : s + 3], v[s + 3 : s + 6]))
    return c


class Bodies(NamedTuple):
    """Poses of the bodies in the world and twists in world axes; the world is the last row."""

    R: Float[Array, "frames 3 3"]
    p: Float[Array, "frames 3"]
    w: Float[Array, "frames 3"]
    v: Float[Array, "frames 3"]
    """Velocity of the body's origin."""


class State(NamedTuple):
    """What the rows of a constraint may depend on."""

    model: Model
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    poses: WorldQuantities
    root: Float[Array, "nb 3"]
    """Origin of the poses: the origin of the root body of each tree (m)."""
    bodies: Bodies
    constants: Constants
    least_time: Float[Array, ""]
    """The least time constant of all constraints (s)."""
    tendons: TendonState | None = None
    """Lengths and moments of the tendons; None without tendons."""
    candidates: list[Candidates] | None = None
    """The candidate points of the contacts; None if they are not known."""
    solving: bool = False
    """Whether only rows that may act are needed, and not those of all candidates by name."""
    loops: bool = False
    """Whether these may be a loop over the rows that act, instead of arrays of all of them."""
    dense: bool = False
    """Whether their dense Jacobian is needed, and not their motion and loads body by body."""

    def moving(self, v: Float[Array, " nv"]) -> Bodies:
        """The bodies at the same poses, with the twists of other joint speeds."""
        return _bodies(self.model, self.poses, self.root, v)


def state_of(
    model: Model,
    q: Array,
    v: Array,
    constants: Constants,
    least_time: Float[Array, ""],
    tendons: TendonState | None = None,
) -> State:
    """MuJoCo's position and velocity stages: poses and twists of the bodies."""
    poses, root = world_quantities_custom_jvp(model, q)
    bodies = _bodies(model, poses, root, v)
    return State(model, q, v, poses, root, bodies, constants, least_time, tendons)


def _bodies(
    model: Model, g: WorldQuantities, root: Float[Array, "nb 3"], v: Float[Array, " nv"]
) -> Bodies:
    zero, (w, speed) = jnp.zeros((3,), root.dtype), twists(model.topology, g, v)
    return Bodies(
        with_world(g.R, jnp.eye(3, dtype=root.dtype)),
        with_world(g.p + root, zero),
        with_world(w, zero),
        with_world(speed, zero),
    )


class Loads(NamedTuple):
    """Forces that rows exert: on bodies and on single degrees of freedom."""

    wrenches: Float[Array, "frames 6"]
    """On each body, in its frame; the last row is the world's."""
    tau: Float[Array, " nv"]

    def push(
        self, bodies: Bodies, on: np.ndarray | Array, point, force, moment, sign: float
    ) -> "Loads":
        """The loads with forces and moments in world axes added, which act at points in the world.

        Args:
            bodies: the poses. on: the body of each force; −1 is the world.
            point: where the forces act (m).
            force: (N). moment: (N m). sign: 1.0 or −1.0, for a reaction.
        """
        R, at = bodies.R[on], bodies.p[on]
        n = so3.rotate_inverse(R, moment + so3.cross(point - at, force))
        both = jnp.concatenate([n, so3.rotate_inverse(R, force)], axis=-1)
        return self._replace(wrenches=self.wrenches.at[on].add(sign * both))


def moving(topology: Topology, bodies: np.ndarray) -> np.ndarray:
    """Which degrees of freedom move any of the bodies of each row; −1 is the world."""
    mask = np.concatenate([topology.tree.ancestor_mask, np.zeros((1, topology.nb), bool)])
    return np.asarray(mask[bodies].any(axis=1))[:, topology.dof_bodies]


def coupled_dofs(topology: Topology, bodies: np.ndarray) -> list[np.ndarray]:
    """For rows that act on bodies, the sets of degrees of freedom that one row couples."""
    return [np.flatnonzero(x) for x in np.unique(moving(topology, bodies), axis=0)]


class Subspaces(NamedTuple):
    """The motion subspaces S of all degrees of freedom, from which dense Jacobians are made."""

    topology: Topology
    S: Float[Array, "nv 6"]
    root: Float[Array, "frames 3"]
    """The origin that S of each body refers to; the world is the last row (m)."""

    @classmethod
    def of(cls, state: State) -> "Subspaces":
        """The motion subspaces of a state."""
        zero = jnp.zeros((3,), state.q.dtype)
        return cls(state.model.topology, state.poses.S, with_world(state.root, zero))

    def lines(
        self, body: np.ndarray | Int[Array, " n"], wrench: Float[Array, "n k 6"], dofs: np.ndarray
    ) -> Float[Array, "n k s"]:
        """``wrench · S`` on some degrees of freedom, zero on those that do not move each body."""
        if isinstance(body, np.ndarray):
            moves = moving(self.topology, body[:, None])[:, dofs]
        else:
            every = np.append(np.arange(self.topology.nb), -1)
            moves = _rows_of_bits(moving(self.topology, every[:, None])[:, dofs], body)
        n, k, _ = wrench.shape
        flat = wrench.reshape(n * k, 6)
        J = jnp.matmul(flat, self.S[dofs].T, precision=jax.lax.Precision.HIGHEST)
        J = J.reshape(n, k, len(dofs))
        alike = isinstance(moves, np.ndarray) and moves.all()
        return J if alike else jnp.where(moves[:, None, :], J, 0)


def _rows_of_bits(table: np.ndarray, at: Int[Array, " n"]) -> Bool[Array, "n s"]:
    """Rows of a table of booleans, of which each is looked up as few numbers of 32 bits."""
    column = np.arange(table.shape[1])
    bits = np.left_shift(table.astype(np.uint32), (column % 32).astype(np.uint32))
    words = np.add.reduceat(bits, np.arange(0, table.shape[1], 32), axis=1, dtype=np.uint32)
    found = jnp.asarray(words)[at][:, column // 32]
    return jnp.right_shift(found, (column % 32).astype(np.uint32)[None]) & 1 == 1


class Friction(NamedTuple):
    """Blocks of k rows whose forces f friction bounds: ``|f / scale| ≤ limit`` in each block."""

    J: Float[Array, "n k nv"]
    a_ref: Float[Array, "n k"]
    f: Float[Array, "n k"]
    scale: Float[Array, "n k"]
    limit: Float[Array, " n"]
    bodies: np.ndarray | Int[Array, "n 2"]
    """The bodies that each block touches; the world is −1, or the last if they are no constants."""
    place: np.ndarray | None = None
    """For dry friction, where each block is in MuJoCo's order of all of them."""
    pair: np.ndarray | Int[Array, " n"] | None = None
    """For contacts, the number of the pair of shapes of each block."""


class Jacobian(eqx.Module):
    """The dense Jacobian J of some rows; z and f are what the rows define."""

    @abstractmethod
    def map(self, a: Float[Array, " nv"]) -> PyTree:
        """``J a``."""

    @abstractmethod
    def pull(self, f: PyTree, tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""

    def diagonal(self, z: PyTree, total: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J`` of rows on single degrees of freedom, which is diagonal."""
        return total

    def curvature(self, z: PyTree, H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J`` of other rows to the lower triangle of a Hessian, or to all."""
        return H


class Rows(eqx.Module):
    """The rows of one kind of constraint at a state.

    The residual z and the force f of the rows are arrays, or tuples of arrays, of the same shapes
    as ``a_ref``.
    """

    a_ref: eqx.AbstractVar[PyTree]
    """The reference acceleration."""

    @abstractmethod
    def force(self, z: PyTree) -> PyTree:
        """The force law: f from the residual ``z = J a − a_ref``."""

    @abstractmethod
    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> PyTree:
        """``J a`` body by body; the twists of ``bodies`` are those of the joint speeds a."""

    @abstractmethod
    def load(self, f: PyTree, bodies: Bodies, loads: Loads) -> Loads:
        """Adds ``Jᵀ f`` to the loads on bodies and joints."""

    def loaded(self, bodies: Bodies, a: Float[Array, " nv"], loads: Loads) -> tuple[Loads, PyTree]:
        """Adds the forces at the accelerations a to the loads; also the forces themselves."""
        z = jax.tree.map(jnp.subtract, self.motion(bodies, a), self.a_ref)
        f = self.force(z)
        return self.load(f, bodies, loads), f

    @abstractmethod
    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """The dense Jacobian."""

    def crowded(self) -> Bool[Array, ""]:
        """Whether rows that act had to be left out."""
        return jnp.zeros((), bool)

    inertial: ClassVar[bool] = False
    """Whether the rows are no constraint but inertia of the robot."""

    def acting(self) -> tuple[np.ndarray | Array, Bool[Array, " n"]] | None:
        """For contacts, both bodies of each and whether it acts; None for other rows."""
        return None

    def friction(self, jacobian: Any, z: PyTree, f: PyTree, topology: Topology) -> Friction | None:
        """What friction bounds; None for other rows.

        Args:
            jacobian: the dense Jacobian of the rows.
            z: the residuals. f: the forces.
            topology: the robot.
        """
        return None

    def with_friction(self, f: PyTree, new: Float[Array, "n k"]) -> PyTree:
        """The forces f with new forces of friction, in the order of :meth:`friction`."""
        return f

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """Sets of degrees of freedom of different branches that one row couples in the Hessian."""
        return []

    def report(self, f: PyTree, joints: list[str]) -> dict[str, Any]:
        """The forces by name, as fields of :class:`rbd_jax.contact.ConstraintForces`.

        Args:
            f: the forces. joints: the name of the joint of each degree of freedom.
        """
        return {}


class JointRows(Rows, Jacobian):
    """Rows that act on single joints: their Jacobian is sparse and needs no poses."""

    def motion(self, bodies: Bodies, a: Float[Array, " nv"]) -> PyTree:
        """``J a``."""
        return self.map(a)

    def load(self, f: PyTree, bodies: Bodies, loads: Loads) -> Loads:
        """Adds ``Jᵀ f`` to the generalized forces."""
        return loads._replace(tau=self.pull(f, loads.tau))

    def jacobian(self, subspaces: Subspaces) -> Jacobian:
        """The rows themselves."""
        return self


class DryRows(JointRows):
    """Rows of dry friction. Subclasses have the field ``loss``, the greatest forces."""

    @abstractmethod
    def places(self, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
        """One degree of freedom of each row, and the place of the row in MuJoCo's order."""

    def friction(self, jacobian: Any, z: PyTree, f: PyTree, topology: Topology) -> Friction:
        """Each row is a block."""
        dofs, place = self.places(topology)
        unit = jnp.eye(topology.nv, dtype=f.dtype)
        J = jax.vmap(self.map, out_axes=1)(unit)[:, None]
        a_ref, loss = self.a_ref[:, None], getattr(self, "loss")  # noqa: B009
        bodies = np.stack([topology.dof_bodies[dofs], np.full(len(dofs), -1)], axis=1)
        return Friction(J, a_ref, f[:, None], jnp.ones_like(a_ref), loss, bodies, place)

    def with_friction(self, f: Float[Array, " n"], new: Float[Array, "n 1"]) -> Float[Array, " n"]:
        """The new forces."""
        return new[:, 0]


def slope(force: Callable[[PyTree], PyTree], z: PyTree) -> PyTree:
    """``∂f/∂z`` of a force law that acts on each row alone."""
    return jax.jvp(force, (z,), (jax.tree.map(jnp.ones_like, z),))[1]


class Constraint(eqx.Module):
    """The parameters of one kind of constraint."""

    @abstractmethod
    def rows(self, state: State) -> Sequence[Rows]:
        """The rows at a state; none if there is no constraint of this kind."""


def indices(x: Sequence) -> np.ndarray:
    """Numbers of degrees of freedom or bodies, for indexing."""
    return np.array(x, dtype=np.int32)
