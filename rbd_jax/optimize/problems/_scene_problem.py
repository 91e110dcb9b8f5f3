"""Motion through contact without a schedule: the short way to the problem of a scene."""

from typing import Any

import jax.numpy as jnp

from ...contact import Scene
from ._problem import Cost, Problem


def in_scene(
    scene: Scene, stage: Cost, final: Cost, steps: int, *, substeps: int = 1, **options: Any
) -> Problem:
    """A :class:`Problem` over the horizon of ``steps`` times ``substeps`` steps of a scene.

    Args:
        scene: robot, actuators, contacts, time step.
        stage: cost per second, or residuals. final: cost of the last state, as in :class:`Problem`.
        steps: number of steps, in each of which the controls are held.
        substeps: steps of the scene in each of them.
        options: other arguments of :class:`Problem`, for example bounds of the controls. Without
            bounds, those of the actuators hold.
    """
    a = scene.actuators
    if not {"lower", "upper"} & set(options) and a.nu:
        plain = a.gainprm[:, 0] == 1
        low = jnp.maximum(a.ctrlrange[:, 0], jnp.where(plain, a.forcerange[:, 0], -jnp.inf))
        high = jnp.minimum(a.ctrlrange[:, 1], jnp.where(plain, a.forcerange[:, 1], jnp.inf))
        options |= {"lower": low, "upper": high}
    return Problem(scene, stage, final, substeps * scene.dt, steps, substeps=substeps, **options)
