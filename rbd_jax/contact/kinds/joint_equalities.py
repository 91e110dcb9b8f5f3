"""Joints whose positions are coupled by a polynomial, MuJoCo's equality ``joint``.

Source: MuJoCo's documentation, "Computation", constraint model, equality.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Topology
from ..solver import force_laws
from ..solver.force_laws import SolverParams
from ..solver.rows import Constraint, JointRows, State, indices, slope


class JointEqualities(Constraint):
    """``q1 − q1⁰ = polynomial(q2 − q2⁰)`` for joints of one degree of freedom.

    If the second degree of freedom is −1, the first joint is held at the constant.
    """

    polynomial: Float[Array, "n 5"]
    """The coefficients, from the constant on."""
    start: Float[Array, "n 2"]
    """``q1⁰`` and ``q2⁰``."""
    params: SolverParams
    active: Float[Array, " n"]
    """One, or zero where the equality is switched off."""
    dofs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """The degrees of freedom of both joints."""
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Where both joints are in q."""

    def rows(self, state: State) -> Sequence["JointEqualityRows"]:
        """One row for each pair of joints."""
        if not self.dofs:
            return ()
        q, v, weight = state.q, state.v, state.constants.weights.dofs
        (one, two), (at1, at2) = _columns(self.dofs), _columns(self.places)
        alone = two < 0
        x = jnp.where(alone, 0, q[at2] - self.start[:, 1])
        a = [self.polynomial[:, k] for k in range(5)]
        error = q[at1] - self.start[:, 0] - (a[0] + x * (a[1] + x * (a[2] + x * (a[3] + x * a[4]))))
        rate = a[1] + x * (2 * a[2] + x * (3 * a[3] + x * 4 * a[4]))
        rate = jnp.where(alone, 0, rate)
        both = weight[one] + jnp.where(alone, 0, weight[two])
        speed = v[one] - rate * v[two]
        R, a_ref = self.params.regularized(error, speed, both, state.least_time)
        return [JointEqualityRows(a_ref, self.active / R, rate, self.dofs)]


class JointEqualityRows(JointRows):
    """``z = a1 − rate a2 − a_ref`` of coupled joints."""

    a_ref: Float[Array, " n"]
    D: Float[Array, " n"]
    rate: Float[Array, " n"]
    """The derivative of the polynomial."""
    dofs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The force on the first joint."""
        return force_laws.equality(z, self.D)

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " n"]:
        """``J a``."""
        one, two = _columns(self.dofs)
        return a[one] - self.rate * a[two]

    def pull(self, f: Float[Array, " n"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        one, two = _columns(self.dofs)
        return tau.at[one].add(f).at[two].add(-self.rate * f)

    def curvature(self, z: Float[Array, " n"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        steep = slope(self.force, z)
        for k, (i, j) in enumerate(self.dofs):
            w, s = -steep[k], self.rate[k]
            H = H.at[i, i].add(w)
            if j >= 0:
                H = H.at[j, j].add(w * s * s).at[i, j].add(-w * s).at[j, i].add(-w * s)
        return H

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """Both joints of each pair."""
        return [np.array([d for d in pair if d >= 0]) for pair in self.dofs]

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, Array]:
        """The forces on the first joints, in the order of the file."""
        return {"joint_equalities": f}


def _columns(pairs: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    both = indices(pairs)
    return both[:, 0], both[:, 1]
