"""The tasks of learning. They need the extra ``learn``, so they are imported when first used."""

from .environments._cart_pole import (
    CartPole as CartPole,
    cart_pole_environment as cart_pole_environment,
)
from .environments._gymnasium import (
    FromGymnasium as FromGymnasium,
    from_gymnasium as from_gymnasium,
)
from .environments._playground import (
    FromPlayground as FromPlayground,
    JoystickTask as JoystickTask,
    from_playground as from_playground,
)
from .environments._stander import (
    STAND_UP as STAND_UP,
    Stander as Stander,
    StanderWeights as StanderWeights,
    stander as stander,
)
from .environments._walker import (
    G1_WALK as G1_WALK,
    Walker as Walker,
    WalkerRobot as WalkerRobot,
    WalkerTask as WalkerTask,
    WalkerVariation as WalkerVariation,
    WalkerWeights as WalkerWeights,
    g1 as g1,
    go1 as go1,
    quadruped as quadruped,
    walker as walker,
)
from .judges._stand_judge import stand_judge as stand_judge
from .judges._stand_mujoco import Stand as Stand, stand_in_mujoco as stand_in_mujoco
from .judges._stander_mjcf import stander_mjcf as stander_mjcf
from .judges._walk_mujoco import Walk as Walk, walk_in_mujoco as walk_in_mujoco
