"""The programs of all functions: precision of products, no unrolled loops."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import each_public_function, traced
from support.helpers import computed_as
from support.smoothness import is_smooth

import rbd_jax as rbd
from rbd_jax import samples


def _equations(jaxpr):
    """All equations of a jaxpr and of those inside it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inner = getattr(inner, "closed", inner)  # a program of lanes
            if hasattr(inner, "jaxpr"):
                inner = inner.jaxpr
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _programs(name, m):
    """The jaxprs of a public function: itself, and its forward and its reverse derivative."""
    f, (m, arrays) = traced(name, m)
    f = jax.jit(f)  # traced once
    smooth = {k: x for k, x in arrays.items() if is_smooth(x)}
    rest = {k: x for k, x in arrays.items() if k not in smooth}
    g = lambda m, x: f(m, {**x, **rest})  # noqa: E731
    second = "second" in name or "hessian" in name  # derivatives already
    if second or not is_smooth(jax.eval_shape(g, m, smooth)):
        yield jax.make_jaxpr(f)(m, arrays).jaxpr
        return

    def both(m, x):  # the linear part holds the forward derivative, what pulls back the reverse
        out, push = jax.linearize(g, m, x)
        pull = jax.linear_transpose(push, m, x)
        return out, push(m, x), pull(jax.tree.map(jnp.ones_like, out))

    yield jax.make_jaxpr(both)(m, smooth).jaxpr


def _imprecise(jaxpr) -> list[str]:
    highest = jax.lax.Precision.HIGHEST
    bad = []
    for eqn in _equations(jaxpr):
        if eqn.primitive.name not in ("dot_general", "conv_general_dilated"):
            continue
        if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
            continue
        precision = eqn.params["precision"]
        if precision != (highest, highest) and precision != highest:
            bad.append(f"{eqn.primitive.name} with precision {precision}")
    return bad


def test_the_search_for_imprecise_products_finds_one():
    program = jax.make_jaxpr(jax.jit(lambda x: jax.lax.map(lambda y: y @ y, x)))(
        jnp.ones((2, 3, 3))
    )
    assert len(_imprecise(program.jaxpr)) == 1


@cache
def _four_kinds() -> rbd.Model:
    return samples.random_tree(0, ("free", "spherical", "translation", "revolute"))


@pytest.mark.parametrize("name", each_public_function())
def test_every_product_states_the_highest_precision(name):
    """On a GPU a float32 product of default precision may keep three digits (TF32)."""
    for program in _programs(name, _four_kinds()):
        assert not _imprecise(program)


_chain = cache(samples.chain)


def _growth(name, chains) -> list[int]:
    """By how many equations the program of a chain grows from one length to the next."""
    sizes = []
    for n in chains:
        f, args = traced(name, _chain(n))
        sizes.append(sum(1 for _ in _equations(jax.make_jaxpr(f)(*args).jaxpr)))
    rounds = list(np.diff(sizes))
    assert rounds[0] <= 0.2 * sizes[0]
    return rounds


@pytest.mark.slow
@pytest.mark.parametrize("name", each_public_function())
def test_no_loop_over_bodies_is_unrolled(name):
    """The program of a chain grows by one round of pointer doubling when the chain doubles."""
    with computed_as("accelerator", inverse=0):  # the same algorithm for all lengths
        rounds = _growth(name, (20, 40, 80))
    assert rounds[0] == rounds[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forward_dynamics", "hybrid_dynamics", "mass_matrix_inverse"])
def test_no_inverse_of_the_mass_matrix_is_unrolled(name):
    with computed_as("accelerator", inverse=100, depth=100):
        rounds = _growth(name, (20, 40, 80))
    assert rounds[0] == rounds[1]
