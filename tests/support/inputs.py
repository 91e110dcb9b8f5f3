"""All that the dynamics depends on as one dictionary, and random directions in it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.spatial import so3
from support.helpers import assert_close, random_state

LEAVES = ("placement_p", "axis", "pitch", "inertia", "gravity", "armature", "damping")
STATE = ("q", "v", "a", "tau", "f_ext")
NO_PHYSICS = ("friction", "position_lower", "position_upper", "velocity_limit", "effort_limit",
              "frame_R", "frame_p")  # fmt: skip
Inputs = dict[str, jax.Array]


def inputs(model: rbd.Model, seed: int = 0) -> Inputs:
    """Leaves and a random state. ``turn`` (rad) turns the joint frames: it keeps R in SO(3)."""
    leaves = {n: getattr(model, n) for n in LEAVES}
    leaves["gravity"] = jnp.array([1.3, -3.1, -8.7], model.dtype)
    turn = jnp.zeros((model.nb, 3), model.dtype)
    return leaves | {"turn": turn} | random_state(model, seed)._asdict()


def with_leaves(model: rbd.Model, x: Inputs) -> rbd.Model:
    """The model with the leaves of ``x``, its joint frames turned."""
    R = so3.matmul(model.placement_R, so3.exp(x["turn"]))
    where = lambda m: [m.placement_R, *(getattr(m, n) for n in LEAVES)]  # noqa: E731
    return eqx.tree_at(where, model, [R, *(x[n] for n in LEAVES)])


def random_like(tree, seed: int):
    """Normal random numbers of the same structure and shapes, the same ones in every dtype.

    Not to be called under jit: two programs may round the same random numbers differently.
    """
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    numbers = [
        jax.random.normal(k, y.shape, jnp.float32) for k, y in zip(keys, leaves, strict=True)
    ]
    numbers = [np.asarray(x).astype(y.dtype) for x, y in zip(numbers, leaves, strict=True)]
    return jax.tree.unflatten(treedef, [jnp.asarray(x) for x in numbers])


def directions(x: Inputs, seed: int = 1) -> Inputs:
    """One random direction for each input alone and one along all of them, stacked."""
    full = random_like(x, seed)
    return {n: jnp.stack([d if m == n else 0 * d for m in x] + [d]) for n, d in full.items()}


def assert_relative(actual, expected, tolerance: float, lead: int = 1, floor: float = 1e-6) -> None:
    """Close relative to the greatest entry of each slice over the first ``lead`` axes.

    Slices that vanish (in free fall gravity changes nothing) are held to ``floor`` of the greatest.
    """
    for y, z in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        y, z = np.asarray(y), np.asarray(z)
        scale = np.max(np.abs(z), axis=tuple(range(lead, z.ndim)), keepdims=True, initial=0)
        scale = np.maximum(scale, floor * np.max(scale, initial=0))
        scale = np.where(scale > 0, scale, 1)
        assert_close(y / scale, z / scale, atol=tolerance)
