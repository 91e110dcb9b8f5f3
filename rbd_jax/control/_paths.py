"""The fastest motion along a path of joint positions, under limits of torque and speed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model import Model
from ..model.arguments import checked


class TimedPath(NamedTuple):
    """A motion along a path, at even times."""

    t: Float[Array, " n"]
    """Times (s), from zero to the duration."""
    q: Float[Array, "n nq"]
    v: Float[Array, "n nv"]
    a: Float[Array, "n nv"]
    tau: Float[Array, "n nv"]
    """Torques of inverse dynamics (N m, N), without dry friction."""


@checked
def time_optimal_path(
    model: Model,
    waypoints: Float[Array, "k nq"],
    *,
    effort_limit: Float[Array, " nv"] | None = None,
    velocity_limit: Float[Array, " nv"] | None = None,
    grid: int = 200,
    samples: int = 200,
) -> TimedPath:
    """The fastest motion along a cubic spline through joint positions, from rest to rest.

    Source: Pham, Pham, "A new approach to time-optimal path parameterization based on reachability
    analysis" (2018), by the package ``toppra`` (extra ``paths``), with the torques of
    :func:`rbd_jax.inverse_dynamics` and the dry friction of the model. Torques are bounded between
    the points of the grid too. The spline passes the waypoints at even values of its parameter.

    Args:
        model: the robot, with numbers: not under ``jax.jit`` or ``jax.vmap``. All joints have one
            degree of freedom.
        waypoints: configurations, at least two (rad, m).
        effort_limit: the model's if None (N m, N). Leave a margin for feedback.
        velocity_limit: the model's if None (rad/s, m/s).
        grid: intervals of the path in which it is bounded.
        samples: number of times in the result.

    Returns:
        The motion. It has no derivatives.

    Raises:
        ImportError: without the package. ValueError: for fewer than two waypoints, joints of
        several degrees of freedom, no limits at all, or a path that no torques within the limits
        can follow, for example because the robot cannot hold its own weight there.
    """
    name = "time_optimal_path"
    if model.nq != model.nv:
        raise ValueError(f"{name}: robot {model.topology.name!r} has joints with quaternions")
    if len(waypoints) < 2:
        raise ValueError(f"{name}: give at least two waypoints, got {len(waypoints)}")
    try:
        import toppra  # pyright: ignore[reportMissingImports]
        from toppra import algorithm, constraint  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            f'{name} needs the package toppra: pip install "rbd-jax[paths]"'
        ) from None
    speeds, efforts = (
        _finite(model.velocity_limit if velocity_limit is None else velocity_limit),
        _finite(model.effort_limit if effort_limit is None else effort_limit),
    )
    if np.all(efforts == _NONE):
        raise ValueError(
            f"{name}: robot {model.topology.name!r} has no effort limits; give effort_limit"
        )
    dynamics = jax.jit(inverse_dynamics)

    def torque(q, v, a) -> np.ndarray:
        return np.asarray(dynamics(model, *(jnp.asarray(x, model.dtype) for x in (q, v, a))), float)

    from_zero = np.linspace(0, 1, len(waypoints))
    path = toppra.SplineInterpolator(from_zero, np.asarray(waypoints, float))
    limits = constraint.JointVelocityConstraint(_both(speeds)), (
        constraint.SecondOrderConstraint.joint_torque_constraint(
            torque, _both(efforts), np.asarray(model.friction, float),
            discretization_scheme=constraint.DiscretizationType.Interpolation,
        )
    )  # fmt: skip
    search = algorithm.TOPPRA(
        list(limits), path, gridpoints=np.linspace(0, 1, grid + 1),
        parametrizer="ParametrizeConstAccel",
    )  # fmt: skip
    motion: Any = search.compute_trajectory(0, 0)
    if motion is None:
        raise ValueError(
            f"{name}: no torques within the limits follow this path from rest to rest; raise the "
            f"limits, or choose waypoints at which the robot can hold its weight"
        )
    t = np.linspace(0, motion.duration, samples)
    t, q, v, a = (jnp.asarray(x, model.dtype) for x in (t, motion(t), motion(t, 1), motion(t, 2)))
    return TimedPath(t, q, v, a, jax.vmap(inverse_dynamics, (None, 0, 0, 0))(model, q, v, a))


_NONE = 1e6  # stands for no limit


def _finite(x) -> np.ndarray:
    x = np.asarray(x, float)
    return np.where(np.isfinite(x), x, _NONE)


def _both(x: np.ndarray) -> np.ndarray:
    return np.stack([-x, x], axis=1)
