"""The rules and the raw algorithms as functions of the same inputs, singular states included."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax import samples
from support.helpers import quaternion_slices, stack
from support.inputs import STATE, directions, inputs, random_like, with_leaves

BATCH = 2


@cache
def robot(name: str) -> rbd.Model:
    """``small`` has every way in which a joint's parameters enter; ``random_tree`` every kind."""
    if name == "small":
        return samples.random_tree(1, kinds=("free", "revolute", "helical"))
    return samples.random_tree(0) if name == "random_tree" else samples.pendulum()


def at_rest(m):
    return eqx.tree_at(lambda m: [m.gravity, m.damping], m, [0 * m.gravity, 0 * m.damping])


# (rule, raw) of (model, prescribed, q, v, a, tau, f_ext)
FUNCTIONS = {
    "inverse": (
        lambda m, prescribed, q, v, a, tau, f: rbd.inverse_dynamics(m, q, v, a, f),
        lambda m, prescribed, q, v, a, tau, f: rbd.rnea(m, q, v, a, f),
    ),
    "forward": (
        lambda m, prescribed, q, v, a, tau, f: rbd.forward_dynamics(m, q, v, tau, f),
        lambda m, prescribed, q, v, a, tau, f: rbd.aba(m, q, v, tau, f),
    ),
    "hybrid": (
        lambda m, prescribed, q, v, a, tau, f: rbd.hybrid_dynamics(m, q, v, a, tau, prescribed, f),
        lambda m, prescribed, q, v, a, tau, f: rbd.hybrid_aba(m, q, v, a, tau, prescribed, f),
    ),
    "hybrid, small": (
        lambda m, prescribed, q, v, a, tau, f: rbd.hybrid_dynamics(m, q, v, a, tau, prescribed, f),
        lambda m, prescribed, q, v, a, tau, f: rbd.hybrid_aba(m, q, v, a, tau, prescribed, f),
    ),
    "product": (
        lambda m, prescribed, q, v, a, tau, f: rbd.derivatives.mass_matrix_product(m, q, a),
        lambda m, prescribed, q, v, a, tau, f: rbd.rnea(at_rest(m), q, 0 * v, a),
    ),
    "solve": (
        lambda m, prescribed, q, v, a, tau, f: rbd.derivatives.mass_matrix_solve(m, q, tau),
        lambda m, prescribed, q, v, a, tau, f: rbd.aba(at_rest(m), q, 0 * v, tau),
    ),
}


RULES = {name: rule for name, (rule, _) in FUNCTIONS.items()}


def of_inputs(function, model, prescribed, x):
    return function(with_leaves(model, x), prescribed, *(x[n] for n in STATE))


def dot(x, y):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


def singular_inputs(m):
    """Identity and half-turn quaternions, zero and other angles; at rest, moving, and all zero."""
    x = inputs(m)
    rest = {n: jnp.zeros_like(x[n]) for n in ("v", "a", "tau", "f_ext")}
    neutral, half = rbd.neutral(m), x["q"]
    for s in quaternion_slices(m):
        half = half.at[s].set(jnp.array([0.0, 0.0, 1.0, 0.0]))
    weightless = {"gravity": jnp.zeros(3)}
    return [
        x | {"q": neutral}, x | {"q": neutral} | rest, x | {"q": neutral} | rest | weightless,
        x | {"q": half}, x | {"q": half} | rest, x | rest,
    ]  # fmt: skip


def batch(name):
    """A batch of robots in as many states, with directions to differentiate along.

    The first BATCH states are random, with robots of different masses; the others are singular.
    """
    m = robot(name)
    x = inputs(m)
    heavy = inputs(m, 1) | {"inertia": 1.3 * x["inertia"]}
    xs = stack([x, heavy, *singular_inputs(m)])
    prescribed = jax.random.bernoulli(jax.random.key(3), 0.4, (len(xs["q"]), m.nb))
    return m, prescribed, xs, directions(x), random_like((x["a"], x["tau"]), 2), random_like(x, 4)
