"""The training loop, with progress, checkpoints and resumption."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ..model.arguments import check_number
from ..model.outcome import RESULTS, throw_unless_successful
from ._checkpoint import load_checkpoint, save_checkpoint
from ._environment import Environment
from ._networks import Policy
from ._shac import Learner, Progress, Settings, start, update

DEFAULTS = Settings()
_BAD_IN_A_ROW = 10


class TrainResult(eqx.Module):
    """The result of training."""

    policy: Policy
    """The best of the judged policies. If none was judged it is the last one, or the running mean
    with :attr:`Settings.average`."""
    history: Progress
    """The metrics of each update, (steps,) each."""
    seconds: Float[np.ndarray, " steps"]
    """Wall time at the end of each update, compiling included (s)."""
    steps: int
    """Number of updates."""
    result: RESULTS
    """Whether training succeeded."""
    learner: Learner
    """The complete state of the learner, from which training can continue."""


def print_progress(step: int, now: Progress, seconds: float) -> None:
    """Print one line for each update to the standard output."""
    print(
        f"{step:5d}  {seconds:7.1f} s  reward {float(now.reward):8.4f}  failures "
        f"{float(now.failures):.5f}  length {float(now.age):6.1f}  value error "
        f"{float(now.value_error):9.3g}  gradient {float(now.gradient):9.3g}",
        flush=True,
    )


def shac(
    env: Environment,
    key: Key[Array, ""],
    settings: Settings = DEFAULTS,
    *,
    progress: Callable[[int, Progress, float], None] | None = None,
    checkpoint: str | os.PathLike | None = None,
    every: int = 25,
    judge: Callable[[Policy], float] | None = None,
    resume: bool = False,
    throw: bool = True,
) -> TrainResult:
    """Learn a policy by short-horizon actor–critic.

    Source: Xu et al., "Accelerated Policy Learning with Parallel Differentiable Simulation"
    (2022). The policy's gradient is the exact gradient of simulations over a short horizon that
    ends in a value function; the value function is fitted to TD(λ) targets. The same key gives the
    same policy on the same machine.

    Args:
        env: the task.
        key: random key.
        settings: hyperparameters.
        progress: called after each update with its number, its metrics and the wall time (s), for
            example :func:`print_progress`.
        checkpoint: file that is written every ``every`` updates and at the end.
        every: updates between two checkpoints, and between two judgments.
        judge: from a policy to its score, for example :func:`rbd_jax.tasks.stand_judge`. It is
            called every ``every`` updates and at the end, for the policy and, if there is one, the
            running mean.
            The result is then what had the highest score, the later one of two equal ones, because
            the last policy of a noisy training is not always the best. Judge in other states than
            those in which you report the result.
        resume: go on from the file ``checkpoint`` if it exists. The result is the same as without
            the interruption.
        throw: raise unless learning succeeded.

    Returns:
        The policy, the history, and how it ended. ``nonfinite`` means that the gradient of ten
        updates in a row was not finite; such updates change nothing.

    Raises:
        RuntimeError: with ``throw``, for a ``nonfinite`` result.
        ValueError: to resume from a checkpoint of other settings or of another task, or for fewer
            than one robot, step, update, pass or minibatch.
    """
    for name in ("robots", "horizon", "updates", "passes", "minibatches"):
        check_number("shac", name, getattr(settings, name), least=1, whole=True)
    learner = start(env, settings, key)
    rows: list[np.ndarray] = []
    path = None if checkpoint is None else Path(checkpoint)
    if resume and path is not None and path.is_file():
        learner, rows = load_checkpoint(path, env, settings)
    before = rows[-1][-1] if rows else 0.0
    began, bad, result = time.perf_counter(), 0, RESULTS.successful
    for number in range(len(rows) + 1, settings.updates + 1):
        learner, now = update(env, settings, learner)
        bad = 0 if np.isfinite(float(now.gradient)) else bad + 1
        seconds = before + time.perf_counter() - began
        rows.append(np.array([*map(float, now), seconds]))
        if progress is not None:
            progress(number, now, seconds)
        last = number == settings.updates or bad == _BAD_IN_A_ROW
        if judge is not None and (number % every == 0 or last):
            learner = judged(learner, judge, settings.average > 0)
        if path is not None and (number % every == 0 or last):
            save_checkpoint(path, settings, learner, rows)
        if bad == _BAD_IN_A_ROW:
            result = RESULTS.nonfinite
            break
    table = np.array(rows).reshape(len(rows), -1).T
    policy = learner.chosen
    if throw:
        policy = throw_unless_successful(policy, result)
    return TrainResult(policy, Progress(*table[:-1]), table[-1], len(rows), result, learner)


def judged(learner: Learner, judge: Callable[[Policy], float], mean: bool) -> Learner:
    """The learner, which remembers its policy if that is at least as good as the best so far.

    With ``mean`` also the running mean is judged.
    """
    for policy in (learner.policy, learner.mean) if mean else (learner.policy,):
        score = jnp.asarray(judge(policy), learner.score.dtype)
        if score >= learner.score:  # false if it is not a number
            new = policy, score
            learner = eqx.tree_at(lambda x: (x.best, x.score), learner, new)
    return learner


def bptt(env: Environment, key: Key[Array, ""], settings: Settings = DEFAULTS, **options):
    """Learn a policy by plain back-propagation through time.

    Each update simulates all robots for ``settings.horizon`` control steps from new beginnings, and
    follows the exact gradient of the mean reward. There is no value function. Arguments and result
    are the same as in :func:`shac`.
    """
    return shac(env, key, settings._replace(critic=False), **options)
