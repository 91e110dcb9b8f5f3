"""Limits, dry friction, equalities and inertia of tendons.

Source: MuJoCo's documentation, "Computation", constraint model. Each row acts on the length of one
tendon, or couples those of two. The armature of a tendon is inertia of its length. It is an
equality whose cost is the kinetic part ``½ armature (J a + J̇ v)²`` of Gauss' principle.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Topology
from ..solver import force_laws
from ..solver.force_laws import SolverParams, impedance, regularization, stiffness_and_damping
from ..solver.rows import Constraint, DryRows, JointRows, State, classical_offset, indices, slope
from ..tendons import Tendons


class TendonRows(JointRows):
    """Rows that act on lengths of tendons, ``z = J a − a_ref``."""

    a_ref: Float[Array, " n"]
    D: Float[Array, " n"]
    J: Float[Array, "n s"]
    """The moments of ``dofs``."""
    names: tuple[str, ...] = eqx.field(static=True)
    """The tendon of each row."""
    dofs: tuple[int, ...] = eqx.field(static=True)
    sets: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Degrees of freedom that one row couples."""

    def _entries(self) -> tuple[np.ndarray, Float[Array, "n k"]]:
        """The degrees of freedom that move the tendons of each row, and its moments of these.

        A tendon passes few joints. Rows with fewer than others have more entries, which are zero.
        """
        rows, width = len(self.a_ref), max(1, *map(len, self.sets))
        sets = [indices(x) for x in self.sets * (rows // len(self.sets))]
        dofs = np.stack([np.pad(x, (0, width - len(x))) for x in sets])
        real = np.arange(width)[None] < np.array([len(x) for x in sets])[:, None]
        column = np.where(real, np.searchsorted(indices(self.dofs), dofs), 0)
        return dofs, jnp.where(real, self.J[np.arange(rows)[:, None], column], 0)

    def map(self, a: Float[Array, " nv"]) -> Float[Array, " n"]:
        """``J a``."""
        dofs, J = self._entries()
        return jnp.sum(J * a[dofs], axis=1)

    def pull(self, f: Float[Array, " n"], tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``tau + Jᵀ f``."""
        dofs, J = self._entries()
        return tau.at[dofs].add(f[:, None] * J)

    def curvature(self, z: Float[Array, " n"], H: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
        """Adds ``−Jᵀ (∂f/∂z) J``."""
        dofs, J = self._entries()
        steep = -slope(self.force, z)[:, None] * J
        blocks = J[:, :, None] * steep[:, None, :]
        return H.at[dofs[:, :, None], dofs[:, None, :]].add(blocks)

    def coupled(self, topology: Topology) -> list[np.ndarray]:
        """The degrees of freedom of each row."""
        return [indices(x) for x in self.sets]


class EqualityRows(TendonRows):
    """Rows of equalities."""

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The force along the first tendon."""
        return force_laws.equality(z, self.D)

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, Any]:
        """The forces in the order of the file."""
        return {"tendon_equalities": f}


class InertiaRows(EqualityRows):
    """Rows of inertia, which are no constraint."""

    inertial = True

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, Any]:
        """Nothing: inertia is no force of a constraint."""
        return {}


class FrictionRows(DryRows, TendonRows):
    """Rows of dry friction."""

    loss: Float[Array, " n"]
    """The greatest force (N)."""

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The force against the motion, at most ``loss``."""
        return force_laws.friction_loss(z, self.D, self.loss)

    def places(self, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
        """Tendons come after all joints."""
        dofs = np.array([(*x, *self.dofs)[0] for x in self.sets], dtype=np.int32)
        return dofs, 2 * topology.nv + np.arange(len(dofs), dtype=np.int32)

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, Any]:
        """The forces by the names of the tendons."""
        return {"tendon_friction": dict(zip(self.names, f, strict=True))}


class LimitRows(TendonRows):
    """Rows of lower limits, then of upper limits."""

    def force(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """A limit pushes away from itself only."""
        return force_laws.inequality(z, self.D)

    def report(self, f: Float[Array, " n"], joints: list[str]) -> dict[str, Any]:
        """The forces of the lower and upper limits by the names of the tendons."""
        n = len(f) // 2
        lower, upper = (dict(zip(self.names[:n], x, strict=True)) for x in (f[:n], f[n:]))
        return {"tendon_lower": lower, "tendon_upper": upper}


class TendonLimits(Constraint):
    """Lower and upper limits of the lengths of tendons."""

    params: SolverParams
    margin: Float[Array, " n"]
    """Distance to the limit at which it begins to act (m)."""
    range: Float[Array, "n 2"]
    """The least and the greatest length (m)."""
    tendons: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    sets: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """The degrees of freedom of each tendon."""

    def rows(self, state: State) -> Sequence[LimitRows]:
        """Two rows for each tendon; D is zero where a limit is farther away than its margin."""
        own, s, fixed = indices(self.tendons), *_of(state)
        length, speed, weight = s.length[own], s.speed(state.v)[own], fixed.weight[own]
        parts = []
        for k, side in ((0, 1.0), (1, -1.0)):
            violation = side * (length - self.range[:, k]) - self.margin
            near = violation < 0
            violation = jnp.where(near, violation, 0)
            R, a_ref = self.params.regularized(violation, side * speed, weight, state.least_time)
            parts.append((a_ref, jnp.where(near, 1 / R, 0), side * s.J[own]))
        a_ref, D, J = (jnp.concatenate(x) for x in zip(*parts, strict=True))
        return [LimitRows(a_ref, D, J, 2 * self.names, s.dofs, self.sets)]


class TendonFriction(Constraint):
    """Dry friction of tendons, MuJoCo's ``frictionloss``."""

    params: SolverParams
    loss: Float[Array, " n"]
    """The greatest force (N)."""
    tendons: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    sets: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def rows(self, state: State) -> Sequence[FrictionRows]:
        """One row for each tendon, whose reference acceleration damps the rate of the length."""
        own, s, fixed = indices(self.tendons), *_of(state)
        speed = s.speed(state.v)[own]
        _, b = stiffness_and_damping(self.params, state.least_time)
        d = impedance(self.params.solimp, jnp.zeros_like(speed))
        D = 1 / regularization(d, fixed.weight[own])
        return [
            FrictionRows(-b * speed, D, s.J[own], self.names, s.dofs, self.sets, loss=self.loss)
        ]


class TendonEqualities(Constraint):
    """``L1 − L1⁰ = polynomial(L2 − L2⁰)`` for the lengths of tendons.

    If the second tendon is −1, the first one is held at the constant. L⁰ is the length in the
    reference configuration.
    """

    polynomial: Float[Array, "n 5"]
    """The coefficients, from the constant on."""
    params: SolverParams
    active: Float[Array, " n"]
    """One, or zero where the equality is switched off."""
    tendons: tuple[tuple[int, int], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    sets: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """The degrees of freedom of both tendons."""

    def rows(self, state: State) -> Sequence[EqualityRows]:
        """One row for each pair of tendons."""
        (one, two), (s, fixed) = np.array(self.tendons, dtype=np.int32).T, _of(state)
        alone = two < 0
        error, rate = self.errors(state)
        J = s.J[one] - rate[:, None] * s.J[two]
        both = fixed.weight[one] + jnp.where(alone, 0, fixed.weight[two])
        speed = s.speed(state.v)
        speed = speed[one] - rate * speed[two]
        R, a_ref = self.params.regularized(error, speed, both, state.least_time)
        return [EqualityRows(a_ref, self.active / R, J, self.names, s.dofs, self.sets)]

    def errors(self, state: State) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The errors (m), and the derivatives of the polynomials."""
        (one, two), (s, fixed) = np.array(self.tendons, dtype=np.int32).T, _of(state)
        alone, change = two < 0, s.length - fixed.length
        x = jnp.where(alone, 0, change[two])
        a = [self.polynomial[:, k] for k in range(5)]
        rate = a[1] + x * (2 * a[2] + x * (3 * a[3] + x * 4 * a[4]))
        held = a[0] + x * (a[1] + x * (a[2] + x * (a[3] + x * a[4])))
        return change[one] - held, jnp.where(alone, 0, rate)


class TendonInertia(Constraint):
    """The armature of tendons."""

    tendons: Tendons

    def rows(self, state: State) -> Sequence[InertiaRows]:
        """One row for each tendon."""
        x, (s, _) = self.tendons, _of(state)
        a_ref = -x.drift(state.model, state.q, state.v)
        a_ref = a_ref + s.speed(classical_offset(state.model, state.v))
        return [InertiaRows(a_ref, x.inertia, s.J, x.names, s.dofs, x.sets)]


def _of(state: State):
    """The tendons of a state, and what they need of the reference configuration."""
    tendons, fixed = state.tendons, state.constants.tendons
    assert tendons is not None and fixed is not None
    return tendons, fixed
