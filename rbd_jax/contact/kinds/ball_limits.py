"""Limits of the angle of ball joints.

Source: MuJoCo's documentation, "Computation", constraint model, limits.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...spatial import so3
from ..solver import force_laws
from ..solver.force_laws import SolverParams
from ..solver.rows import Constraint, JointRows, State, indices, slope


class BallLimits(Constraint):
    """The largest angle of ball joints from their neutral orientation."""

    params: SolverParams
    margin: Float[Array, " n"]
    """Distance to the limit at which it begins to act (rad)."""
    angle: Float[Array, " n"]
    """The largest angle (rad)."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    """The first degree of freedom of each joint."""
    places: tuple[int, ...] = eqx.field(static=True)
    """Where the quaternion of each joint begins in q."""

    def rows(self, state: State) -> Sequence["BallLimitRows"]:
        """One row for each joint; D is zero where the limit is farther away than its margin."""
        if not self.dofs:
            return ()
        quat = jnp.stack([state.q[k : k + 4] for k in self.places])
        speed = jnp.stack([state.v[k : k + 3] for k in self.dofs])
        turn = so3.quat_log(so3.quat_normalize(quat))
        n2 = so3.dot(turn, turn)
        some = n2 > 0
        angle = jnp.where(some, jnp.sqrt(jnp.where(some, n2, 1)), 0)
        axis = jnp.where(some[:, None], turn / jnp.where(some, angle, 1)[:, None], 0)
        violation = self.angle - angle - self.margin
        near = violation < 0
        rate, violation = -so3.dot(axis, speed), jnp.where(near, violation, 0)
        weight = state.constants.weights.dofs[indices(self.dofs)]
        R, a_ref = self.params.regularized(violation, rate, weight, state.least_time)
        return [BallLimitRows(a_ref, jnp.where(near, 1 / R, 0), axis, self.dofs)]


class BallLimitRows(JointRows):
    """``z = −axis · a − a_ref`` of ball joints."""

    a_ref: Float[Array, " n"]
    D: Float[Array, " n"]
    axis: Float[Array, "n 3"]
    """The axis of the joint's rotation."""
    dofs: tuple[int, ...] = eqx.field(static=True)

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """A limit pushes towards smaller angles only."""
        return force_laws.inequality(z, self.D)

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " n"]:
        """``J a``."""
        return -so3.dot(self.axis, jnp.stack([a[d : d + 3] for d in self.dofs]))

    def pull(self, f: Float[Array, " n"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        for k, d in enumerate(self.dofs):
            tau = tau.at[d : d + 3].add(-self.axis[k] * f[k])
        return tau

    def curvature(self, z: Float[Array, " n"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        rate = slope(self.force, z)
        for k, d in enumerate(self.dofs):
            block = -rate[k] * self.axis[k][:, None] * self.axis[k][None]
            H = H.at[d : d + 3, d : d + 3].add(block)
        return H

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, dict[str, Array]]:
        """The forces by the names of the joints."""
        return {"ball_limits": dict(zip([joints[d] for d in self.dofs], f, strict=True))}
