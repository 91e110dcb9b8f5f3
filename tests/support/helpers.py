"""What several test files need: models by name, random states, differences, comparisons."""

import os
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import rbd_jax as rbd
from rbd_jax.model import COMPOSITE, ELEMENTARY

samples = rbd.samples

KINDS = (*ELEMENTARY, *COMPOSITE)
SINGLE_KIND = tuple(f"only_{kind}" for kind in KINDS)
MODELS = {
    "pendulum": samples.pendulum,
    "double_pendulum": samples.double_pendulum,
    "chain": partial(samples.chain, 6),
    "tree": partial(samples.tree, 9, 2),
    "floating_tree": partial(samples.tree, 7, 3, floating_base=True),
    "quadruped": samples.quadruped,
    "arm": samples.arm,
    "random_tree": partial(samples.random_tree, 0),
}


@cache
def model(name: str, dtype=None) -> rbd.Model:
    """A sample by its name in MODELS; ``only_<kind>`` is a random tree of three such joints."""
    if name.startswith("only_"):
        kind = name.removeprefix("only_")
        return samples.random_tree(KINDS.index(kind), kinds=(kind,), n=3, dtype=dtype)
    return MODELS[name](dtype=dtype)


@cache
def jit(f):
    """``jax.jit(f)``, one compiled function for the whole session."""
    return jax.jit(f)


class Compiled:
    """The functions of a module, each behind :func:`jit`: far faster here than one op at a time."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name: str):
        return jit(getattr(self.module, name))


class State(NamedTuple):
    """Everything a dynamics algorithm takes besides the model."""

    q: Array
    v: Array
    a: Array
    tau: Array
    f_ext: Array


@partial(jax.jit, static_argnums=1)
def _states(model: rbd.Model, batch: int, key: Array) -> State:
    def one(key):
        kq, *keys = jax.random.split(key, 5)
        shapes = [(model.nv,)] * 3 + [(model.nb, 6)]
        rest = [jax.random.normal(k, s, model.dtype) for k, s in zip(keys, shapes, strict=True)]
        return State(rbd.random_configuration(model, kq), *rest)

    return jax.vmap(one)(jax.random.split(key, batch))


def random_states(model: rbd.Model, batch: int, seed: int = 0) -> State:
    """States with a leading batch axis, in the model's dtype."""
    return _states(model, batch, jax.random.key(seed))


def random_state(model: rbd.Model, seed: int = 0) -> State:
    """One state, in the model's dtype."""
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[0]), random_states(model, 1, seed))


def cast(tree, dtype):
    """Every inexact array leaf in another dtype; not to be called under jit."""
    change = lambda x: jnp.asarray(np.asarray(x).astype(dtype))  # noqa: E731
    return jax.tree.map(lambda x: change(x) if eqx.is_inexact_array(x) else x, tree)


def stack(trees: list):
    """Trees of the same structure as one tree with a leading axis on each leaf; not under jit."""
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *trees)


def central_difference(f, x: Array, h: float = 1e-3):
    """``∂f/∂x`` of a vector x by a difference of fourth order; the derivative's axis comes last.

    Its error is about 1e-12 for a function with derivatives of order one, in float64.
    """
    steps = h * jnp.array([1.0, -1.0, 2.0, -2.0])
    weights = jnp.array([8.0, -8.0, -1.0, 1.0]) / (12 * h)
    at = x[None, None] + steps[:, None, None] * jnp.eye(x.size)[None]
    values = jax.vmap(jax.vmap(f, out_axes=-1), out_axes=-1)(at)
    return jax.tree.map(lambda y: y @ weights, values)


def tangent_difference(model: rbd.Model, f, q: Array, h: float = 1e-3):
    """``∂f/∂q`` along ``integrate(q, ε e_k)``, by central differences; the axis of k comes last."""
    return central_difference(lambda d: f(rbd.integrate(model, q, d)), jnp.zeros(model.nv), h)


def quaternion_slices(model: rbd.Model) -> list[slice]:
    """Where the quaternions live in q."""
    topo = model.topology
    ends = topo.q_starts[1:][np.isin(topo.kinds, ("spherical", "free"))]
    return [slice(int(e) - 4, int(e)) for e in ends]


def scale_quaternions(model: rbd.Model, q: Array, factor: float) -> Array:
    """Another q of the same configuration; a negative factor takes the other cover."""
    for s in quaternion_slices(model):
        q = q.at[..., s].multiply(factor)
    return q


def canonical(model: rbd.Model, q: Array) -> Array:
    """The q of the same configuration whose quaternions have length 1 and w ≥ 0."""
    for s in quaternion_slices(model):
        x = q[..., s]
        sign = jnp.where(x[..., :1] < 0, -1.0, 1.0)
        q = q.at[..., s].set(sign * x / jnp.linalg.norm(x, axis=-1, keepdims=True))
    return q


def assert_close(actual, expected, rtol: float = 0.0, atol: float = 1e-12) -> None:
    """Same tree and shapes, no NaN, values within the tolerances.

    In JAX's default mode there are only float32 arrays, and three digits of them are compared.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        rtol, atol = max(rtol, 1e-3), max(atol, 1e-3)
    actual, expected = jax.tree.map(np.asarray, (actual, expected))
    chex.assert_trees_all_equal_shapes(actual, expected)
    chex.assert_trees_all_close(actual, expected, rtol=rtol, atol=atol)
    assert not any(np.isnan(x).any() for x in jax.tree.leaves(expected)), "NaN is expected"


def within(tolerance: float, single: float) -> float:
    """The tolerance in float64, or the one of float32 in JAX's default mode."""
    return tolerance if jax.config.jax_enable_x64 else single  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def computed_as(name: str, **changes):
    """Trace programs as they are on another backend: without lanes, unless these are named."""
    from rbd_jax.algorithms.formulations import formulation

    before = os.environ.get("RBD_JAX_LANES")
    os.environ["RBD_JAX_LANES"] = "1" if name == "lanes" else "0"
    try:
        with formulation(name, **changes):
            yield
    finally:
        os.environ.pop("RBD_JAX_LANES")
        if before is not None:
            os.environ["RBD_JAX_LANES"] = before
