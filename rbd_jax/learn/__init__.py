"""Learning of policies from the exact gradients of simulations.

An :class:`Environment` is a scene with a task. :func:`shac` and :func:`bptt` learn a
:class:`Policy` for it. :func:`quadruped` and :func:`go1` are robots that learn to walk, and
:func:`walk_in_mujoco` judges them in MuJoCo itself. :func:`stander` is one that learns to stand up
and to withstand pushes. Needs the extra ``learn``.
"""

from ..model.outcome import RESULTS as RESULTS
from ..tasks.environments._cart_pole import CartPole as CartPole, cart_pole as cart_pole
from ._checkpoint import (
    load_checkpoint as load_checkpoint,
    load_policy as load_policy,
    save_checkpoint as save_checkpoint,
)
from ._closed_loop import closed_loop as closed_loop
from ._environment import (
    Environment as Environment,
    State as State,
    advance as advance,
    observe as observe,
)
from ._horizon import Record as Record, horizon as horizon, value_targets as value_targets
from ._mirror import (
    Mirror as Mirror,
    Reflection as Reflection,
    joint_reflection as joint_reflection,
)
from ..tasks.judges._walk_mujoco import Walk as Walk, in_numpy as in_numpy, walk_in_mujoco as walk_in_mujoco
from ._networks import (
    Normalizer as Normalizer,
    Perceptron as Perceptron,
    Policy as Policy,
    Symmetric as Symmetric,
)
from ..tasks.robots._quadrupeds import (
    go1 as go1,
    go1_mjcf as go1_mjcf,
    quadruped as quadruped,
    quadruped_mjcf as quadruped_mjcf,
)
from ._shac import (
    Learner as Learner,
    Progress as Progress,
    Settings as Settings,
    start as start,
    update as update,
)
from ..tasks.judges._stand_judge import stand_judge as stand_judge
from ..tasks.judges._stand_mujoco import Stand as Stand, stand_in_mujoco as stand_in_mujoco
from ..tasks.environments._stander import (
    STAND_UP as STAND_UP,
    Stander as Stander,
    StanderWeights as StanderWeights,
    stander as stander,
)
from ..tasks.judges._stander_mjcf import stander_mjcf as stander_mjcf
from ._train import (
    Learned as Learned,
    bptt as bptt,
    print_progress as print_progress,
    shac as shac,
)
from ..tasks.environments._walker import (
    Robot as Robot,
    Task as Task,
    Variation as Variation,
    Walker as Walker,
    Weights as Weights,
    walker as walker,
)
