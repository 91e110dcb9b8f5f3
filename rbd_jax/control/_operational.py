"""Control of what tasks see: their inertia, consistent null spaces, several tasks by priority.

A *task* is some rows of the motion of the robot, with the Jacobian J: their velocity is ``J v``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.crba import mass_matrix
from ..algorithms.jacobians import frame_velocity, jacobian, jacobian_time_derivative
from ..algorithms.kinematics import frame_placement
from ..algorithms.torques import bias_torque, gravity_torque
from ..lanes import lanes
from ..model import Model
from ..model.arguments import algorithm, checked, takes_coordinates
from ..spatial import so3
from ..spatial.linear import inverse, matmul


class TaskDynamics(NamedTuple):
    """The dynamics that a task sees: ``F = Λ ẍ + μ``, with μ of Coriolis forces and gravity."""

    inertia: Float[Array, "m m"]
    """Λ = (J M⁻¹ Jᵀ)⁻¹, for a position in kg."""
    inverse: Float[Array, "nv m"]
    """J̄ = M⁻¹ Jᵀ Λ, the dynamically consistent inverse of J."""
    null_space: Float[Array, "nv nv"]
    """Nᵀ = 1 − Jᵀ J̄ᵀ: torques ``Nᵀ τ`` do not accelerate the task."""
    bias: Float[Array, " m"]
    """μ = J̄ᵀ h − Λ J̇ v, the force that holds the task unaccelerated (N m, N)."""


@algorithm(driven_joints=True)
def task_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    J: Float[Array, "m nv"],
    J_rate: Float[Array, "m nv"],
    damping: float | Float[Array, ""] = 0.0,
) -> TaskDynamics:
    """Inertia, consistent inverse and null space of a task.

    Source: Khatib, "A unified approach for motion and force control of robot manipulators: the
    operational space formulation" (1987).

    Args:
        model: the robot.
        q: configuration. v: velocity.
        J: Jacobian of the task, such as ``rbd.jacobian(model, q, "hand", "local_world_aligned")``.
        J_rate: its time derivative, from :func:`rbd_jax.algorithms.jacobian_time_derivative`.
        damping: a share of the mean diagonal entry of ``J M⁻¹ Jᵀ`` that is added to its diagonal.
            Near singular configurations the inertia stays finite then, and the null space is no
            longer exact. Zero: rows of J have to be independent.
    """
    Minv, h = inverse(mass_matrix(model, q)), bias_torque(model, q, v)
    return _task_dynamics(Minv, h, v, J, J_rate, jnp.asarray(damping, model.dtype))


def _task_dynamics(Minv, h, v, J, J_rate, damping) -> TaskDynamics:
    inertia = _task_inertia(Minv, J, damping)
    consistent = matmul(matmul(Minv, J.T), inertia)
    null = jnp.eye(len(v), dtype=J.dtype) - matmul(J.T, consistent.T)
    bias = matmul(consistent.T, h) - matmul(inertia, matmul(J_rate, v))
    return TaskDynamics(inertia, consistent, null, bias)


def _task_inertia(Minv, J, damping) -> Array:
    A = matmul(matmul(J, Minv), J.T)
    return inverse(A + damping * jnp.mean(jnp.diagonal(A)) * jnp.eye(len(A), dtype=A.dtype))


class Task(eqx.Module):
    """Rows of a motion with a wanted acceleration; :func:`frame_task` and the like make one."""

    J: Float[Array, "*b m nv"]
    """Jacobian of the rows."""
    J_rate: Float[Array, "*b m nv"]
    """Its time derivative along the motion."""
    acceleration: Float[Array, "*b m"]
    """Wanted acceleration of the rows, ẍ* with the feedback (rad/s², m/s²)."""


@checked
@takes_coordinates
def operational_space(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tasks: Task | Sequence[Task],
    tau: Float[Array, " nv"] | None = None,
    *,
    damping: float | Float[Array, ""] = 0.0,
) -> Float[Array, " nv"]:
    """Torques that give tasks their accelerations, the first exactly, others as far as is left.

    Source: Khatib (1987) for one task; Sentis, Khatib, "Synthesis of whole-body behaviors through
    hierarchical control of behavioral primitives" (2005) for several: task k is controlled in the
    null space of all tasks before it, ``τ = Σ_k (J_k N)ᵀ F_k + Nᵀ τ₀ + …``, with the accelerations
    that the tasks before it cause taken into account.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        tasks: the tasks, the most important one first.
        tau: torques for the motion that no task sees, as those of :func:`joint_impedance`. They
            are projected into the null space of all tasks. If None, there are none but those
            against gravity and Coriolis forces.
        damping: as in :func:`task_dynamics`, for rows that the tasks before leave no freedom:
            1e-6 in float64, 1e-3 in float32. With zero the rows of all tasks have to be
            independent.

    Raises:
        ValueError: if there is no task, or for a task of another robot. TypeError: for a value
            that is no task.
    """
    tasks = (tasks,) if isinstance(tasks, Task) else tuple(tasks)
    if not tasks:
        raise ValueError("operational_space: give at least one task, as control.frame_task(…)")
    for task in tasks:
        if not isinstance(task, Task):
            raise TypeError(
                f"operational_space: a task must be a control.Task, got {type(task).__name__}"
            )
        m = task.acceleration.shape[-1] if task.acceleration.ndim else 0
        for name, x, shape in (("J", task.J, (m, model.nv)), ("J_rate", task.J_rate, (m, model.nv)),
                               ("acceleration", task.acceleration, (m,))):  # fmt: skip
            if jnp.shape(x) != shape:
                raise ValueError(
                    f"operational_space: {name} of a task has shape {jnp.shape(x)}, expected "
                    f"{shape} for robot {model.topology.name!r}; use jax.vmap for many states"
                )
    return _operational_space(model, q, v, tasks, tau, jnp.asarray(damping, model.dtype))


@lanes
def _operational_space(model: Model, q, v, tasks: tuple[Task, ...], tau, damping):
    """The torques ``τ = h + Σ_k (J_k N_k)ᵀ Λ_k (ẍ_k − J̇_k v − J_k a_k) + Nᵀ τ``.

    ``a_k`` are the accelerations that the tasks before k cause.
    """
    Minv, h = inverse(mass_matrix(model, q)), bias_torque(model, q, v)
    one = jnp.eye(model.nv, dtype=model.dtype)
    N, a, total = one, jnp.zeros_like(v), h
    # a null space with more damping than that would let the forces of damped rows through
    exact = jnp.where(damping > 0, 10 * float(jnp.finfo(model.dtype).eps), 0)
    for task in tasks:
        J = matmul(task.J, N)
        wanted = task.acceleration - matmul(task.J_rate, v) - matmul(task.J, a)
        torque = matmul(J.T, matmul(_task_inertia(Minv, J, damping), wanted))
        a, total = a + matmul(Minv, torque), total + torque
        consistent = matmul(matmul(Minv, J.T), _task_inertia(Minv, J, exact))
        N = matmul(N, one - matmul(consistent, J))
    return total if tau is None else total + matmul(N.T, tau - h)


@algorithm(driven_joints=True)
def frame_task(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | int,
    R: Float[Array, "3 3"] | None = None,
    p: Float[Array, "3"] | None = None,
    velocity: Float[Array, "6"] | None = None,
    acceleration: Float[Array, "6"] | None = None,
    *,
    stiffness: Any = 100.0,
    damping: Any = 20.0,
) -> Task:
    """A frame follows an orientation, a position, or both, with the gains of a spring and damper.

    Source: Khatib (1987), ``ẍ* = a* + K_d (V* − V) + K_p e`` in world axes, with the rotation
    vector of ``R* Rᵀ`` as the angular error.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        frame: name of the frame.
        R: wanted orientation; free if None. p: wanted position (m); free if None.
        velocity: wanted twist (ω, v) in world axes, of the frame's origin; zero if None.
        acceleration: its rate; zero if None.
        stiffness: K_p (1/s²), a number or six. damping: K_d (1/s).

    Raises:
        ValueError: if neither R nor p is given.
    """
    rows = _rows_of(R, p, "frame_task")
    error, J, V = _frame_error(model, q, v, frame, R, p)
    J_rate = jacobian_time_derivative(model, q, v, frame, _AXES)
    velocity, acceleration = (jnp.zeros((6,), model.dtype) if x is None else x
                              for x in (velocity, acceleration))  # fmt: skip
    kp, kd = (jnp.broadcast_to(jnp.asarray(x, model.dtype), (6,)) for x in (stiffness, damping))
    wanted = acceleration + kp * error + kd * (velocity - V)
    return Task(J[rows], J_rate[rows], wanted[rows])


@algorithm(driven_joints=True)
def task_impedance(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | int,
    R: Float[Array, "3 3"] | None = None,
    p: Float[Array, "3"] | None = None,
    velocity: Float[Array, "6"] | None = None,
    *,
    stiffness: Any = 500.0,
    damping: Any = 50.0,
) -> Float[Array, " nv"]:
    """Torques of a spring and a damper between a frame and a wanted pose, and against gravity.

    Source: Hogan, "Impedance control" (1985), without shaping of the inertia:
    ``τ = Jᵀ (K e + D (V* − V)) + g(q)``. It needs no inverse, so that singular configurations do
    no harm, and the closed loop is passive. The rest of the robot is free to move; add torques of
    :func:`joint_impedance` through the null space of :func:`task_dynamics`.

    Args:
        model: the robot.
        q: configuration. v: velocity. frame: name of the frame.
        R: wanted orientation; free if None. p: wanted position (m); free if None.
        velocity: wanted twist (ω, v) in world axes; zero if None.
        stiffness: K (N m/rad for rotations, N/m for positions), a number or six.
        damping: D (N m s/rad, N s/m).

    Raises:
        ValueError: if neither R nor p is given.
    """
    rows = _rows_of(R, p, "task_impedance")
    error, J, V = _frame_error(model, q, v, frame, R, p)
    velocity = jnp.zeros((6,), model.dtype) if velocity is None else velocity
    K, D = (jnp.broadcast_to(jnp.asarray(x, model.dtype), (6,)) for x in (stiffness, damping))
    wrench = K * error + D * (velocity - V)
    return matmul(J[rows].T, wrench[rows]) + gravity_torque(model, q)


_AXES: Any = "local_world_aligned"


def _rows_of(R, p, name: str) -> slice:
    if R is None and p is None:
        raise ValueError(f"{name}: give a wanted orientation R, a wanted position p, or both")
    return slice(0 if R is not None else 3, 6 if p is not None else 3)


def _frame_error(model: Model, q, v, frame, R, p) -> tuple[Array, Array, Array]:
    """Rotation vector and vector to the wanted pose in world axes, the Jacobian and the twist."""
    at = frame_placement(model, q, frame)
    turn = jnp.zeros((3,), model.dtype)
    if R is not None:
        turn = so3.log(so3.matmul(R, so3.transpose(at[0])))
    move = jnp.zeros((3,), model.dtype) if p is None else p - at[1]
    J, V = jacobian(model, q, frame, _AXES), frame_velocity(model, q, v, frame, _AXES)
    return jnp.concatenate([turn, move]), J, V
