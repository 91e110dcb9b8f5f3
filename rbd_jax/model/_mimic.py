"""Joints that mimic others: the linear constraint q = G q_r + c and what follows from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._model import Model
from ._spec import RobotDescriptionError
from .topology import NQ, NV, Topology

_EXACT = jax.lax.Precision.HIGHEST


class MimicMap(eqx.Module):
    """``q = G_q q_r + c`` and ``v = G v_r``: a robot whose independent joints move all others.

    ``q_r``, ``v_r`` and ``tau_r`` hold the joints that mimic no other, in the model's order.
    Reduced dynamics follow by projection: ``rnea_r = Gᵀ rnea(G_q q_r + c, G v_r, G a_r)`` and
    ``M_r = Gᵀ M G``; forward dynamics is a solve with ``M_r``.
    """

    G: Float[Array, "nv nv_r"]
    """Velocity (and acceleration) of every joint from the independent ones."""
    G_q: Float[Array, "nq nq_r"]
    """Configuration of every joint from the independent ones; it differs from G for quaternions."""
    c: Float[Array, " nq"]
    """Offsets (rad or m); zero for independent joints."""
    joint_names: tuple[str, ...] = eqx.field(static=True)
    """The independent joints."""

    def expand_q(self, q_r: Float[Array, " nq_r"]) -> Float[Array, " nq"]:
        """``G_q q_r + c``, the configuration of all joints."""
        return jnp.matmul(self.G_q, q_r, precision=_EXACT) + self.c

    def expand_v(self, v_r: Float[Array, " nv_r"]) -> Float[Array, " nv"]:
        """``G v_r``, the velocity (or acceleration) of all joints."""
        return jnp.matmul(self.G, v_r, precision=_EXACT)

    def reduce_tau(self, tau: Float[Array, " nv"]) -> Float[Array, " nv_r"]:
        """``Gᵀ tau``, the torque on the independent joints of the same power."""
        return jnp.matmul(self.G.T, tau, precision=_EXACT)

    def reduce_mass_matrix(self, M: Float[Array, "nv nv"]) -> Float[Array, "nv_r nv_r"]:
        """``Gᵀ M G``."""
        MG = jnp.matmul(M, self.G, precision=_EXACT)
        return jnp.matmul(self.G.T, MG, precision=_EXACT)


def mimic_map(model: Model) -> MimicMap:
    """The constraint that a robot's mimic joints obey, chains of them resolved.

    Source: ``position = multiplier · position(target) + offset`` of URDF; the projection agrees
    with Pinocchio's reduced models (``mimic=True``).

    Raises:
        RobotDescriptionError: if a mimic joint's target is missing, fixed, itself or part of a
            cycle, or if either of them does not have exactly one degree of freedom.
    """
    topo = model.topology
    rules = {joint: (target, m, c) for joint, target, m, c in topo.mimics}
    independent = [i for i, name in enumerate(topo.joint_names) if name not in rules]
    column_q = dict(
        zip(independent, np.cumsum([0] + [NQ[topo.kinds[i]] for i in independent]), strict=False)
    )
    column_v = dict(
        zip(independent, np.cumsum([0] + [NV[topo.kinds[i]] for i in independent]), strict=False)
    )
    G_q = np.zeros((topo.nq, sum(NQ[topo.kinds[i]] for i in independent)))
    G = np.zeros((topo.nv, sum(NV[topo.kinds[i]] for i in independent)))
    offset = np.zeros(topo.nq)
    resolved = {joint: _resolve(topo, rules, joint) for joint in rules}
    for i in range(topo.nb):
        source, scale, shift = resolved.get(topo.joint_names[i], (i, 1.0, 0.0))
        for matrix, starts, column in (
            (G_q, topo.q_starts, column_q),
            (G, topo.v_starts, column_v),
        ):
            for k in range(starts[i + 1] - starts[i]):
                matrix[starts[i] + k, column[source] + k] = scale
        offset[topo.q_starts[i]] = shift
    names = tuple(topo.joint_names[i] for i in independent)
    arrays = [jnp.asarray(x, dtype=model.dtype) for x in (G, G_q, offset)]
    return MimicMap(*arrays, joint_names=names)


def _resolve(topo: Topology, rules: dict, joint: str) -> tuple[int, float, float]:
    """Follow the targets of ``joint`` to an independent one: its number, multiplier, offset."""
    chain, scale, shift = [joint], 1.0, 0.0
    while chain[-1] in rules:
        target, multiplier, offset = rules[chain[-1]]
        shift += scale * offset
        scale *= multiplier
        if target in chain:
            circle = " -> ".join([*chain, target])
            raise _error(topo, f"joint {joint!r} mimics itself: {circle}; break the cycle")
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
    return RobotDescriptionError(f"robot {topo.name!r}: {text}")
