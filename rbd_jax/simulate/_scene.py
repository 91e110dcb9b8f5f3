"""A scene as an integrator with memory: what it remembers is where its solver starts."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from ..contact import Scene, constants, scene_step
from ..model import Model


def in_scene(scene: Scene, model: Model) -> tuple[Callable, Callable]:
    """``(start, advance)`` of the steps of a scene, see :mod:`rbd_jax.simulate._integrators`.

    The model is the robot in the place of the scene's own, the same in all steps.

    The place of the accelerations is taken by the controls. The memory is MuJoCo's warm start: the
    accelerations of the step before, which decide how long the solver searches, not what it finds.
    """

    scene = dataclasses.replace(scene, model=model)
    fixed = constants(scene)

    def start(model, acceleration, t, q, v, dt):
        return jnp.zeros_like(v)

    def advance(model, controls, t, q, v, dt, memory):
        now = dataclasses.replace(scene, dt=dt)
        end = scene_step(now, q, v, controls, warmstart=memory, constants=fixed)
        return (end.q, end.v), end.a

    return start, advance
