"""Joints that mimic others, as URDF declares them: affine in the positions of others."""

import jax.numpy as jnp

from ._model import Model
from ._spec import RobotDescriptionError
from .coordinates import CoordinateModel, drive
from .laws import Affine
from .topology import NQ, Topology


def with_mimics(model: Model) -> Model:
    """The robot whose mimic joints follow the others exactly; chains of them are resolved.

    The multipliers and offsets are leaves, ``model.laws[0].multiplier`` and ``.offset``, in the
    order of ``model.laws[0].driven.joint_names``. A robot without mimic joints stays as it is.

    Source: ``position = multiplier · position(target) + offset`` of URDF.

    Raises:
        RobotDescriptionError: if a mimic joint's target is missing, fixed, itself or part of a
            cycle, or if either of them does not have exactly one degree of freedom.
    """
    topology = model.topology
    rules = {joint: (target, m, c) for joint, target, m, c in topology.mimics}
    if not rules or isinstance(model, CoordinateModel):
        return model
    joints = sorted(rules, key=lambda j: (*topology.joint_names, j).index(j))
    found = [_resolve(topology, rules, joint) for joint in joints]
    targets = sorted({target for target, _, _ in found})
    law = Affine(
        multiplier=jnp.asarray([m for _, m, _ in found], model.dtype),
        offset=jnp.asarray([c for _, _, c in found], model.dtype),
        driven=topology.joints_alone(tuple(topology.joint_names.index(j) for j in joints)),
        by=tuple(topology.joint_names[t] for t in targets),
        source=tuple(targets.index(target) for target, _, _ in found),
    )
    return drive(model, law)


def _resolve(topo: Topology, rules: dict, joint: str) -> tuple[int, float, float]:
    """Follow the targets of ``joint`` to an independent one: its number, multiplier, offset."""
    chain, scale, shift = [joint], 1.0, 0.0
    while chain[-1] in rules:
        target, multiplier, offset = rules[chain[-1]]
        shift += scale * offset
        scale *= multiplier
        if target in chain:
            circle = " -> ".join([*chain, target])
            raise _error(
                topo,
                f"joint {joint!r} mimics itself: {circle}; break the cycle",
            )
        chain.append(target)
    for name in chain:
        if name not in topo.joint_names or NQ[topo.kinds[topo.joint_names.index(name)]] != 1:
            text = f"joint {joint!r} cannot mimic {chain[-1]!r}: "
            composite = name in [x for x, _, _ in topo.composites]
            if composite or name in topo.joint_names:
                text += f"joint {name!r} does not have exactly one degree of freedom"
            else:
                text += f"{name!r} is no moving joint of this robot"
            raise _error(topo, f"{text}; correct or remove the <mimic>")
    return topo.joint_names.index(chain[-1]), scale, shift


def _error(topo: Topology, text: str) -> RobotDescriptionError:
    text = f"{text}, or load with mimic='independent'"
    return RobotDescriptionError(f"robot {topo.name!r}: {text}")
