"""Learning of policies from the exact gradients of simulations.

An :class:`Environment` is a plant with a task. :func:`shac` and :func:`bptt` learn a
:class:`Policy` for it. Ready environments, and judges of their policies, are in
:mod:`rbd_jax.tasks`. Needs the extra ``learn``.
"""

from ..model.outcome import RESULTS as RESULTS
from ._brax import as_brax as as_brax
from ._checkpoint import (
    load_checkpoint as load_checkpoint,
    load_policy as load_policy,
    save_checkpoint as save_checkpoint,
)
from ._closed_loop import closed_loop as closed_loop
from ._environment import (
    Environment as Environment,
    SceneEnvironment as SceneEnvironment,
    State as State,
    Transition as Transition,
    Wrapper as Wrapper,
    advance as advance,
    observe as observe,
)
from ._gymnasium import as_gymnasium as as_gymnasium
from ._gymnax import as_gymnax as as_gymnax
from ._horizon import (
    Record as Record,
    rollout_return as rollout_return,
    value_targets as value_targets,
)
from ._mirror import (
    Mirror as Mirror,
    Reflection as Reflection,
    joint_reflection as joint_reflection,
)
from ._networks import (
    Normalizer as Normalizer,
    Perceptron as Perceptron,
    Policy as Policy,
    Symmetric as Symmetric,
)
from ._numpy import in_numpy as in_numpy
from ._shac import (
    Learner as Learner,
    Progress as Progress,
    Settings as Settings,
    start as start,
    update as update,
)
from ._train import (
    TrainResult as TrainResult,
    bptt as bptt,
    print_progress as print_progress,
    shac as shac,
)
