"""MuJoCo's constants of a scene: what its constraints need of the reference configuration."""

import jax.numpy as jnp

from ..derivatives.poses import placed
from ..lanes import lanes
from .scene import Scene
from .weights import Constants, weights, with_world


@lanes
def constants(scene: Scene) -> Constants:
    """Inverse weights, anchors of welds and damping by damping ratios, at ``scene.q0``.

    A step of a scene computes them by itself. In a loop over steps of one scene they are the same
    in each step: compute them before it and pass them to :func:`scene_step`, as ``rbd.rollout``
    does.
    They follow every leaf of the robot, and are differentiable.

    Source: MuJoCo's ``mj_setConst``.
    """
    model, c = scene.model, scene.constraints
    found = weights(model, scene.q0, c.parts)
    anchors = None
    if any(c.welds.refers):
        g, root = placed(model, scene.q0)
        R = with_world(g.R, jnp.eye(3, dtype=model.dtype))
        anchors = c.welds.anchors(R, with_world(g.p + root, jnp.zeros_like(root[0])))
    return Constants(found, anchors, scene.actuators.damping(model, scene.q0))
