"""Dry friction of the translation of free joints, along the axes of the world.

Source: MuJoCo's documentation, "Computation", constraint model, friction loss. The degrees of
freedom of a free joint of MuJoCo are the velocity in world axes and the angular velocity in body
axes; :class:`rbd_jax.contact.JointFriction` has the rows of the latter.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Topology
from ...spatial import so3
from ..solver import force_laws
from ..solver.force_laws import SolverParams, impedance, regularization, stiffness_and_damping
from ..solver.rows import Constraint, DryRows, State, slope


class FreeFriction(Constraint):
    """Dry friction of the translation of some free joints; its size is ``model.friction``."""

    params: SolverParams
    """Three rows for each joint."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    """The first degree of freedom of the translation of each joint."""
    bodies: tuple[int, ...] = eqx.field(static=True)
    """The body that each joint moves."""

    def rows(self, state: State) -> Sequence["FreeFrictionRows"]:
        """Three rows for each joint, whose reference acceleration damps the velocity."""
        if not self.dofs:
            return ()
        R = jnp.stack([state.bodies.R[b] for b in self.bodies])
        pick = lambda x: jnp.concatenate([x[d : d + 3] for d in self.dofs])  # noqa: E731
        speed = so3.rotate(R, pick(state.v).reshape(-1, 3)).reshape(-1)
        _, b = stiffness_and_damping(self.params, state.least_time)
        d = impedance(self.params.solimp, jnp.zeros_like(speed))
        D = 1 / regularization(d, pick(state.constants.weights.dofs))
        return [FreeFrictionRows(-b * speed, D, pick(state.model.friction), R, self.dofs)]


class FreeFrictionRows(DryRows):
    """``z = R a − a_ref`` of the translation of free joints."""

    a_ref: Float[Array, " n"]
    D: Float[Array, " n"]
    loss: Float[Array, " n"]
    """The greatest force (N)."""
    R: Float[Array, "k 3 3"]
    """The orientation of each body."""
    dofs: tuple[int, ...] = eqx.field(static=True)

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The force against the motion, at most ``loss`` along each axis of the world."""
        return force_laws.friction_loss(z, self.D, self.loss)

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " n"]:
        """``J a``."""
        own = jnp.stack([a[d : d + 3] for d in self.dofs])
        return so3.rotate(self.R, own).reshape(-1)

    def pull(self, f: Float[Array, " n"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        own = so3.rotate_inverse(self.R, f.reshape(-1, 3))
        for k, d in enumerate(self.dofs):
            tau = tau.at[d : d + 3].add(own[k])
        return tau

    def curvature(self, z: Float[Array, " n"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        rate = -slope(self.force, z).reshape(-1, 3)
        blocks = so3.matmul(so3.transpose(self.R), rate[:, :, None] * self.R)
        for k, d in enumerate(self.dofs):
            H = H.at[d : d + 3, d : d + 3].add(blocks[k])
        return H

    def places(self, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
        """The translation comes before the rotation."""
        dofs = np.array([d + k for d in self.dofs for k in range(3)], dtype=np.int32)
        return dofs, np.repeat(2 * np.array(self.dofs, dtype=np.int32) - 7, 3)

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, dict[str, Array]]:
        """The forces by the names of the joints, after the torques of the rotation."""
        own = zip([joints[d] for d in self.dofs], f.reshape(-1, 3), strict=True)
        return {"joint_friction": dict(own)}
