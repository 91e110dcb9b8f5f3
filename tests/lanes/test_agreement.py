"""Every public function in lanes is XLA's program to rounding, for a robot with all kinds of joints.

XLA computes the same formulas with lanes switched off. Values, jvp, vjp, and the jvp of the vjp are
compared, with respect to the state and to all numbers of the model. Batches fill blocks of lanes
exactly, in part, or not at all. The samples are states of one robot, or of a fleet of robots.
"""

import os
from contextlib import contextmanager
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import public_functions, quick_jit, traced
from support.helpers import KINDS

import rbd_jax as rbd
from rbd_jax.algorithms.formulations import formulation
from rbd_jax.spatial import so3

pytest.importorskip("llvmlite")

MOST = 1000
SIZES = (0, 1, 7, 8, 9, MOST)
PART = 125
"""XLA computes so many samples at a time; of second derivatives it would keep 20 GB of more."""
BY_XLA = {"random_configuration"}  # random numbers are not supported in lanes
NAMES = sorted(public_functions().keys() - BY_XLA)
QUICK = ("kinetic_energy",)
FACTOR = 30  # a difference may be so many times what the last digits of the inputs do


@pytest.fixture(autouse=True)
def forget_each_case():
    """No program is used twice."""
    yield
    jax.clear_caches()


@cache
def every_kind(dtype: str) -> rbd.Model:
    return rbd.samples.random_tree(0, KINDS, dtype=jnp.dtype(dtype))


@contextmanager
def by_xla():
    """The same formulas as in lanes, compiled by XLA."""
    before = os.environ.get("RBD_JAX_LANES")
    os.environ["RBD_JAX_LANES"] = "0"
    try:
        with formulation("lanes"):
            yield
    finally:
        os.environ.pop("RBD_JAX_LANES")
        if before is not None:
            os.environ["RBD_JAX_LANES"] = before


def normal(seed: int, *shape: int, like) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(like.dtype))


def fleet(model: rbd.Model, n: int) -> rbd.Model:
    """Robots whose numbers differ by some percent, with their joints turned."""
    leaves, tree = jax.tree.flatten(model)
    scales = [1 + 0.05 * normal(k, n, *[1] * x.ndim, like=x) for k, x in enumerate(leaves)]
    robots = tree.unflatten(x[None] * s for x, s in zip(leaves, scales, strict=True))
    turn = so3.exp(0.1 * normal(99, n, model.nb, 3, like=model.gravity))
    R = so3.matmul(jnp.broadcast_to(model.placement_R, turn.shape), turn)
    return eqx.tree_at(lambda m: m.placement_R, robots, R)


def states(arrays: dict, model: rbd.Model, n: int) -> dict:
    """The arguments of a public function with an axis of samples, but for integers and keys."""
    keys = jax.random.split(jax.random.key(3), (3, n))
    draw = quick_jit(jax.vmap(partial(rbd.random_configuration, model)))
    found = {}
    for k, (name, x) in enumerate(arrays.items()):
        if name in ("q", "q0", "q1"):
            found[name] = draw(keys[("q", "q0", "q1").index(name)])
        else:
            spread = lambda y, k=k: y[None] + 0.3 * normal(k, n, *y.shape, like=y)  # noqa: E731
            found[name] = jax.tree.map(lambda y, s=spread: s(y) if _moves(y) else y, x)
    return found


def _moves(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


class Case:
    """A public function of the floating-point leaves of its arguments, and a batch of these."""

    def __init__(self, name: str, dtype: str, fleets: bool):
        model = every_kind(dtype)
        function, (_, arrays) = traced(name, model)
        arrays.pop("key", None)  # a rollout takes one, for random numbers in its policy
        batch = states(arrays, model, MOST)
        leaves, self.tree = jax.tree.flatten((fleet(model, MOST) if fleets else model, batch))
        shared = len(jax.tree.leaves(model)) if not fleets else 0
        self.moving = [k for k, x in enumerate(leaves) if _moves(x)]
        self.axes = [None if k < shared else 0 for k in self.moving]
        self.still = dict(enumerate(leaves))
        self.leaves = [leaves[k] for k in self.moving]
        self.function, self.dtype = function, dtype

    def of_one(self, *xs):
        """Floating-point results for one sample of the moving leaves."""
        leaves = self.still | dict(zip(self.moving, xs, strict=True))
        out = self.function(*self.tree.unflatten(leaves[k] for k in sorted(leaves)))
        return [y for y in jax.tree.leaves(out) if _moves(y)]

    def directions(self) -> tuple[list, list]:
        """A tangent of each leaf and a cotangent of each result, for every sample."""
        one = [x if a is None else x[0] for x, a in zip(self.leaves, self.axes, strict=True)]
        out = jax.eval_shape(self.of_one, *one)
        make = lambda xs, s: [normal(s + k, MOST, *x.shape, like=x) for k, x in enumerate(xs)]  # noqa: E731
        return make(one, 200), make(out, 300)


def orders(f, xs, dxs, cts):
    """Value, jvp, vjp, and jvp of the vjp."""
    back = lambda *xs: jax.vjp(f, *xs)[1](cts)  # noqa: E731
    value, forward = jax.jvp(f, xs, dxs)
    reverse, second = jax.jvp(back, xs, dxs)
    return {"value": value, "jvp": forward, "vjp": reverse, "jvp of vjp": second}


def _per_sample(x, reduce, **options):
    return reduce(x, axis=tuple(range(1, x.ndim)), keepdims=True, **options)


def rounding(wanted, others):
    """How far a sample's results can be apart by rounding: its largest change in ``others``.

    These are XLA's results for inputs that differ in their last digits. To it comes what a
    result takes at least, relative to its largest number in this sample or in an ordinary one.
    """

    def one(y, *zs):
        y, zs = np.asarray(y), [np.asarray(z) for z in zs]
        eps = np.finfo(y.dtype).eps
        largest = _per_sample(np.abs(y), np.max, initial=0)
        least = np.maximum(largest, np.median(largest) if len(y) else 0) * eps
        change = [_per_sample(np.abs(np.nan_to_num(z - y)), np.max, initial=0) for z in zs]
        return FACTOR * np.max([least, *change], axis=0)

    return jax.tree.map(one, wanted, *others)


def compare(found, wanted, limits) -> None:
    """The same numbers but for rounding."""

    def one(path, x, y, limit):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape and x.dtype == y.dtype
        scale = np.where(limit > 0, limit, 1)
        name = f"{jax.tree_util.keystr(path)}, in units of the limit"
        np.testing.assert_allclose(x / scale, y / scale, 0, 1, err_msg=name)

    jax.tree_util.tree_map_with_path(one, found, wanted, limits)


def last_digits(x, seed: int):
    """The same numbers with other last digits."""
    signs = np.random.default_rng(seed).choice([-1, 1], x.shape).astype(x.dtype)
    return x * (1 + 2 * jnp.finfo(x.dtype).eps * signs)


def spoiled(arguments, axes):
    """One entry of each mapped argument is NaN in one sample and infinite in another one.

    Returns the arguments and how many samples are spoiled, the first ones.
    """
    arguments, sample = [np.array(x) for x in arguments], 0
    for x in (x for x, a in zip(arguments, axes, strict=True) if a == 0 and x.size):
        for bad in (np.nan, np.inf):
            x.reshape(len(x), -1)[sample, (5 * sample) % x[0].size] = bad
            sample += 1
    return [jnp.asarray(x) for x in arguments], sample


def compare_spoiled(found, wanted, unspoiled, count: int, limits) -> None:
    """A sample has NaN or infinity if it has with XLA, and what is finite in both agrees.

    Which numbers of a spoiled sample are NaN may differ, because the product with a constant zero
    is zero here. If all of them are finite here although a number was NaN, then it makes no
    difference: they are those of the same sample before it was spoiled. An infinite number may make
    one, because what is divided by it is zero. The samples after the first ``count`` are not
    spoiled, and have the same NaN and infinity.
    """
    found, wanted, unspoiled = (
        [np.asarray(x) for x in jax.tree.leaves(t)] for t in (found, wanted, unspoiled)
    )
    lost = lambda xs: sum(_per_sample(~np.isfinite(x), np.any).ravel() for x in xs) > 0  # noqa: E731
    was_nan = np.arange(len(wanted[0])) % 2 == 0  # see :func:`spoiled`
    same = lost(wanted) & ~lost(found) & was_nan
    pick = lambda xs: [np.asarray(x)[same] for x in xs]  # noqa: E731
    compare(pick(found), pick(unspoiled), pick(jax.tree.leaves(limits)))
    both = [np.isfinite(x) & np.isfinite(y) for x, y in zip(found, wanted, strict=True)]
    clean = lambda xs: [np.where(b, x, 0) for b, x in zip(both, xs, strict=True)]  # noqa: E731
    compare(clean(found), clean(wanted), jax.tree.leaves(limits))
    assert np.all(
        [np.all(b[count:] == np.isfinite(y[count:])) for b, y in zip(both, wanted, strict=True)]
    )


def check(name: str, dtype: str, fleets: bool, sizes=SIZES) -> None:
    case = Case(name, dtype, fleets)
    directions = case.directions()

    def of_batch(function):
        return quick_jit(jax.vmap(partial(orders, function), (case.axes, 0, 0)))

    def first(n):
        xs = [x if a is None else x[:n] for x, a in zip(case.leaves, case.axes, strict=True)]
        return xs, *jax.tree.map(lambda x: x[:n], directions)

    odd, count = spoiled(case.leaves, case.axes)
    of_part = of_batch(case.of_one)

    def by_other(xs, *others):
        parts = []
        for k in range(0, MOST, PART):
            cut = lambda x, k=k: x[k : k + PART]  # noqa: E731
            mine = [x if a is None else cut(x) for x, a in zip(xs, case.axes, strict=True)]
            parts.append(jax.tree.map(np.asarray, of_part(mine, *jax.tree.map(cut, others))))
        return jax.tree.map(lambda *ys: np.concatenate(ys), *parts)

    with by_xla():
        wanted, wanted_odd = by_other(*first(MOST)), by_other(odd, *directions)
        near = [[last_digits(x, s) for x in case.leaves] for s in range(3)]
        limits = rounding(wanted, [by_other(xs, *directions) for xs in near])
    mapped = of_batch(rbd.lanes(case.of_one, strict=True))
    for n in sizes:
        compare(mapped(*first(n)), *jax.tree.map(lambda y: y[:n], (wanted, limits)))  # noqa: B023
    found = mapped(odd, *directions)
    for order in wanted:
        compare_spoiled(found[order], wanted_odd[order], wanted[order], count, limits[order])


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_some_functions(name):
    check(name, "float64", fleets=False, sizes=(0, 1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_states(name):
    """States of one robot."""
    check(name, "float32", fleets=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fleets(name):
    """Robots that differ, each in a state of its own."""
    check(name, "float64", fleets=True)
