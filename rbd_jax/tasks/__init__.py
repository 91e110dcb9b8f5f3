"""Ready tasks: problems to optimize, environments to learn in, their robots and their judges.

Functions such as :func:`trot` return a :class:`Task`, a problem with a start and a first guess.
Functions such as :func:`walker` return an environment for :func:`rbd_jax.learn.shac`; they and
their judges need the extra ``learn``.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from .judges._mpc_mujoco import Controlled as Controlled, mpc_in_mujoco as mpc_in_mujoco
from .judges._optimality import Optimality as Optimality, optimality as optimality
from .problems._catalog import HUMANOID as HUMANOID, LEGGED as LEGGED, TASKS as TASKS
from .problems._humanoid import (
    HAND as HAND,
    SOLES as SOLES,
    SoleWeights as SoleWeights,
    balance as balance,
    biped_walk as biped_walk,
    g1_walk as g1_walk,
    squat as squat,
    step_forward as step_forward,
)
from .problems._legged import (
    FEET as FEET,
    STANCES as STANCES,
    jump as jump,
    nudged as nudged,
    pace as pace,
    receding as receding,
    stand as stand,
    standing_guess as standing_guess,
    trot as trot,
    walk as walk,
)
from .problems._literature import PROBLEM_SET as PROBLEM_SET
from .problems._objects import (
    OBJECTS as OBJECTS,
    ObjectTask as ObjectTask,
    push_block as push_block,
    turn_in_hand as turn_in_hand,
)
from .problems._scene import (
    Ledge as Ledge,
    jump_onto as jump_onto,
    lying as lying,
    near_stance as near_stance,
    on_ground as on_ground,
    pushed as pushed,
    rise as rise,
    stand_up as stand_up,
    stands as stands,
    uprightness as uprightness,
)
from .problems._smooth import (
    cart_pole as cart_pole,
    double_pendulum as double_pendulum,
    quadrotor as quadrotor,
    reach as reach,
    reorient as reorient,
    rotors as rotors,
)
from .problems._task import Task as Task
from .problems._trials import Trials as Trials
from .robots._mjlab import g1_mjcf as g1_mjcf, go1_mjcf as go1_mjcf
from .robots._quadruped import quadruped_mjcf as quadruped_mjcf

if _TYPE_CHECKING:
    from ._learning import *  # noqa: F403


def _of_learning() -> dict[str, _Any]:
    names = vars(_importlib.import_module("._learning", __name__))
    return {k: x for k, x in names.items() if not k.startswith("_")}


def __getattr__(name: str) -> _Any:
    """The tasks of learning are imported when they are first used: they need an extra."""
    if not name.startswith("_") and name in (found := _of_learning()):
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    try:
        return [*globals(), *_of_learning()]
    except ImportError:  # without the extra
        return [*globals()]
