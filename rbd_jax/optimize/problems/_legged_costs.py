"""Costs of legged motion as residuals: swing feet, center of mass, momentum, friction."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.energy import centroidal_momentum
from ...derivatives.custom_jvp.kinematics import (
    center_of_mass_custom_jvp,
    frame_placement_custom_jvp,
)
from ...model import Model
from ...model.functions import as_module
from ...spatial import so3
from ._problem import Problem


class CostSum(eqx.Module):
    """The sum of costs that return residuals."""

    costs: tuple[Callable[..., Array], ...] = eqx.field(
        converter=lambda costs: tuple(map(as_module, costs))
    )

    def __call__(self, *state) -> Float[Array, " r"]:
        """The residuals of all costs."""
        return jnp.concatenate([cost(*state) for cost in self.costs])


class Table(eqx.Module):
    """A row for each step; the first and the last row hold before and after."""

    rows: Float[Array, "S *s"]
    dt: Float[Array, ""]

    def at(self, t: Float[Array, ""]) -> Float[Array, "*s"]:
        """The row of the step that begins at time t."""
        return self.rows[jnp.clip(jnp.round(t / self.dt).astype(jnp.int32), 0, len(self.rows) - 1)]


class FootSwing(eqx.Module):
    """``½ |w (p − p_target)|²`` of the origin of each foot, with targets and weights over time."""

    targets: Table
    """Positions in the world (S, c, 3), in m."""
    weights: Table
    """Weights (S, c) of the residuals (1/m), zero for feet that stand."""
    feet: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, model: Model, t: Array, q: Array, *_: Array) -> Float[Array, " r"]:
        """Residuals at time t."""
        p = jnp.stack([frame_placement_custom_jvp(model, q, f)[1] for f in self.feet])
        return jnp.reshape(self.weights.at(t)[:, None] * (p - self.targets.at(t)), (-1,))


class CenterOfMass(eqx.Module):
    """``½ |w (c − c_target)|²`` of the center of mass, with targets over time."""

    targets: Table
    """Positions in the world (S, 3), in m."""
    weight: Float[Array, "3"]

    def __call__(self, model: Model, t: Array, q: Array, *_: Array) -> Float[Array, "3"]:
        """Residuals at time t."""
        return self.weight * (center_of_mass_custom_jvp(model, q) - self.targets.at(t))


class CentroidalMomentum(eqx.Module):
    """``½ |w (h − h_target)|²`` of the momentum about the center of mass, angular part first."""

    target: Float[Array, "6"]
    weight: Float[Array, "6"]

    def __call__(self, model: Model, t: Array, q: Array, v: Array, *_: Array) -> Float[Array, "6"]:
        """Residuals of a state."""
        return self.weight * (centroidal_momentum(model, q, v) - self.target)


class Orientation(eqx.Module):
    """``½ |w log(R_targetᵀ R)|²`` of a frame."""

    R: Float[Array, "3 3"]
    weight: Float[Array, "3"]
    frame: str = eqx.field(static=True)

    def __call__(self, model: Model, t: Array, q: Array, *_: Array) -> Float[Array, "3"]:
        """Residuals of a state."""
        R = frame_placement_custom_jvp(model, q, self.frame)[0]
        return self.weight * so3.log(so3.matmul(so3.transpose(self.R), R))


class FrictionPyramid(eqx.Module):
    """A quadratic penalty of forces outside the friction pyramid, as in Crocoddyl's barrier.

    Four planes ``±f_x − friction f_z ≤ 0``, ``±f_y − friction f_z ≤ 0`` and one for ``f_z ≥ 0``;
    forces that hold cost nothing. Their strict form is :func:`friction_cone`.
    """

    friction: Float[Array, ""]
    weight: Float[Array, ""]
    rows: tuple[int, ...] = eqx.field(static=True)
    """Where the force (3,) of each contact begins among the rows; z is the normal."""

    def __call__(self, model: Model, t, q, v, u, forces: Array) -> Float[Array, " r"]:
        """Residuals of the contact forces."""
        f = forces[np.add.outer(np.array(self.rows, int), np.arange(3))]
        bound = self.friction * f[:, 2:]
        planes = jnp.concatenate([f[:, :2] - bound, -f[:, :2] - bound, -f[:, 2:]], axis=1)
        return self.weight * jnp.reshape(jnp.maximum(planes, 0), (-1,))


class CenterOfPressure(eqx.Module):
    """A quadratic penalty of centers of pressure outside of rectangular soles.

    A sole that is held with all six components would also pull at the ground. Without that its
    moments are bounded by the force: ``|m_x| ≤ w f_z``, ``|m_y| ≤ l f_z`` about the middle.

    Source: Caron, Pham, Nakamura (2015), "Stability of surface contacts for humanoid robots",
    without the bound of the moment about z.
    """

    half: Float[Array, "2"]
    """Half the length l along x and half the width w along y (m)."""
    weight: Float[Array, ""]
    """Weight of the moments outside the limits (1/(N m))."""
    rows: tuple[int, ...] = eqx.field(static=True)
    """Where the wrench (6,) of each sole begins among the rows, with the moment first."""

    def __call__(self, model: Model, t, q, v, u, forces: Array) -> Float[Array, " r"]:
        """Residuals of the contact forces."""
        wrench = forces[np.add.outer(np.array(self.rows, int), np.arange(6))]
        bound = wrench[:, 5:] * self.half[None, ::-1]
        edges = jnp.concatenate([wrench[:, :2] - bound, -wrench[:, :2] - bound], axis=1)
        return self.weight * jnp.reshape(jnp.maximum(edges, 0), (-1,))


class ContactForces(eqx.Module):
    """Contact forces as a function that :func:`friction_cone` takes."""

    problem: Problem
    """Its plant is a :class:`rbd_jax.simulate.ConstrainedRobot`."""
    rows: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, model: Model, t: Array, q: Array, v: Array, u: Array) -> Array:
        """Forces (c, 3) in the world (N), zero where the contact does not hold."""
        problem = eqx.tree_at(lambda p: p.model, self.problem, model)
        (forces,) = problem.outputs(t, q, v, u)
        return forces[np.add.outer(np.array(self.rows, int), np.arange(3))]


def swing_path(
    start: Float[Array, "3"], stride: Float[Array, "3"], height: float, steps: int
) -> Float[Array, "steps 3"]:
    """Positions of a foot at each step of a swing that leaves and meets the ground at rest.

    Along the stride the foot moves as ``s − sin(2πs)/2π``, upwards as ``height sin²(πs)``, with s
    from 0 to 1.
    """
    s = jnp.arange(steps, dtype=start.dtype) / steps
    along = s - jnp.sin(2 * jnp.pi * s) / (2 * jnp.pi)
    up = height * jnp.sin(jnp.pi * s) ** 2
    z = jnp.asarray([0.0, 0.0, 1.0], start.dtype)
    return jax.vmap(lambda a, h: start + a * stride + h * z)(along, up)
