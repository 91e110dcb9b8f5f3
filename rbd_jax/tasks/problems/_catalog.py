"""The ready problems by their names, for the command line and for tests."""

from collections.abc import Callable

from ._humanoid import balance, biped_walk, squat, step_forward
from ._legged import jump, pace, trot, walk
from ._smooth import cart_pole, double_pendulum, quadrotor, reach, reorient
from ._task import Task

TASKS: dict[str, Callable[..., Task]] = {
    "cart-pole": cart_pole,
    "double-pendulum": double_pendulum,
    "reach": reach,
    "reorient": reorient,
    "quadrotor": quadrotor,
}
"""Tasks of robots without contacts."""

HUMANOID: dict[str, Callable[..., Task]] = {
    "squat": squat,
    "step": step_forward,
    "balance": balance,
    "biped-walk": biped_walk,
}
"""The tasks of :data:`LEGGED` that need a humanoid."""

LEGGED: dict[str, Callable[..., Task]] = {
    "walk": walk,
    "trot": trot,
    "pace": pace,
    "jump": jump,
    **HUMANOID,
}
"""Tasks of robots that stand, for :func:`multiple_shooting` from a robot that stands still."""
