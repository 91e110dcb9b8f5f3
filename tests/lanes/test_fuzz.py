"""Random programs as users write them: lanes against JAX's own operations, one sample at a time.

``--examples 5000`` tries so many programs, which takes an hour or two; otherwise there are few.
"""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support import fenced, random_library_programs as library
from support.random_programs import Drawn, arguments, drawn, program

pytest.importorskip("llvmlite")

from rbd_jax.lanes import lanes  # noqa: E402
from rbd_jax.lanes.primitive._primitive import lanes_p  # noqa: E402

BASE = {"value": 8, "forward": 4, "backward": 4, "second": 2}
"""Samples that differ."""
EPS = {4: 2e-5, 8: 1e-12}


def floats(outputs) -> list:
    """The results that have derivatives."""
    return [y for y in jax.tree.leaves(outputs) if jnp.issubdtype(jnp.result_type(y), jnp.floating)]


def value(f, x, m, n, shared):
    return f(x, m, n, shared)


def forward(f, x, m, n, shared):
    """Directional derivatives by all numbers, those that all samples share included."""
    of = lambda *args: floats(f(*args[:2], n, args[2]))  # noqa: E731
    return jax.jvp(of, (x, m, shared), (jnp.ones_like(x), 2 * m, shared * 0 + 0.5))


def backward(f, x, m, n, shared):
    of = lambda *args: floats(f(*args[:2], n, args[2]))  # noqa: E731
    out, back = jax.vjp(of, x, m, shared)
    return back([y * 0 + 0.5 + k for k, y in enumerate(map(jnp.asarray, out))])


def second(f, x, m, n, shared):
    def of(x):
        return sum((jnp.sum(y * y) for y in floats(f(x, m, n, shared))), start=jnp.sum(x * 0.5))

    return jax.jvp(lambda x: jax.grad(of)(x), (x,), (jnp.ones_like(x),))[1]


TRANSFORMS = (value, forward, backward, value, second, value)


def right(transform, f, args) -> list[list[np.ndarray]]:
    """The results of each sample that differs, operation by operation, without compilation."""
    count = min(len(args[0]), BASE[transform.__name__])
    with jax.disable_jit():
        each = [transform(f, *(a[k] for a in args[:3]), args[3]) for k in range(count)]
    return [[np.asarray(y) for y in jax.tree.leaves(jax.tree.map(jnp.asarray, x))] for x in each]


def by_lanes(transform, case: Drawn, f, args) -> list[np.ndarray]:
    """The results of all samples, in one of many ways to call the same function."""
    g = lanes(f, strict=True)
    whole = partial(transform, g)
    way = case.way // len(TRANSFORMS) % 8
    axes = (0, 0, 0, None)
    if way == 1:  # the batch is the last axis
        args = tuple(jnp.moveaxis(a, 0, -1) for a in args[:3]) + args[3:]
        axes = (-1, -1, -1, None)
    mapped = jax.vmap(whole, axes)
    if way == 2:  # in two levels, of which the outer one has only some operands
        samples = len(args[0])
        split = [a.reshape(samples, 1, *a.shape[1:]) for a in args[:2]]
        inner = jax.vmap(whole, (0, 0, None, None))
        mapped, args = jax.vmap(inner, (0, 0, 0, None)), (*split, *args[2:])
    elif way == 3:  # operands that XLA may overwrite
        donated = tuple(jnp.array(a) for a in args[:3])
        run = jax.jit(mapped, donate_argnums=(0, 1, 2))
        return list(map(np.asarray, jax.tree.leaves(run(*donated, args[3]))))
    elif way == 4 and transform is value:  # memory with fences
        return by_fenced(mapped, args)
    elif way == 5:  # without jit around it, and one sample without a batch
        one = [np.asarray(y) for y in jax.tree.leaves(whole(*(a[0] for a in args[:3]), args[3]))]
        out = list(map(np.asarray, jax.tree.leaves(mapped(*args))))
        return [np.concatenate([a[None], b[1:]]) for a, b in zip(one, out, strict=True)]
    elif way == 6:  # a robot of each sample's own, in the place of the shared one
        many = jnp.broadcast_to(args[3], (len(args[0]), *args[3].shape))
        mapped, args = jax.vmap(whole), (*args[:3], many)
    out = list(map(np.asarray, jax.tree.leaves(jax.jit(mapped)(*args))))
    return [y.reshape(y.shape[0], *y.shape[2:]) for y in out] if way == 2 else out


def by_fenced(mapped, args) -> list[np.ndarray]:
    """The results of a kernel in memory that ends at a forbidden page."""
    jaxpr = jax.make_jaxpr(mapped)(*args)
    (eqn,) = [e for e in jaxpr.jaxpr.eqns if e.primitive is lanes_p]
    known = dict(zip(jaxpr.jaxpr.invars, args, strict=True))
    operands = [known.get(v) if not hasattr(v, "val") else v.val for v in eqn.invars]
    p = eqn.params
    made = dict(zip(eqn.outvars, fenced.call(p["program"], p["sizes"], p["mapped"], operands),
                    strict=True))  # fmt: skip
    return [made[v] for v in jaxpr.jaxpr.outvars]


def check(case: Drawn) -> None:
    transform = TRANSFORMS[case.way % len(TRANSFORMS)]
    if transform is not value:  # derivatives of NaN are nobody's business
        case = case._replace(odd=False)
    base = BASE[transform.__name__]
    f, args = program(case), arguments(case, base)
    try:
        found = by_lanes(transform, case, f, args)
    except (ValueError, NotImplementedError) as e:  # what JAX has no derivatives of
        if not re.search("Reverse-mode differentiation|scatter_mul gradients", str(e)):
            raise
        return
    wanted = right(transform, f, args)
    assert len(found) == len(wanted[0])
    for k, y in enumerate(found):
        for sample in range(len(args[0])):
            x = wanted[sample % base][k]
            assert y.dtype == x.dtype and y[sample].shape == x.shape, (k, y.dtype, x.dtype)
            if x.dtype.kind != "f":
                np.testing.assert_array_equal(y[sample], x, f"result {k} of sample {sample}")
                continue
            size = np.abs(x[np.isfinite(x)]).max(initial=1.0)
            here = y[sample]
            if transform is not value:
                here = np.where(np.isnan(x), x, here)
            np.testing.assert_allclose(
                here, x, EPS[x.dtype.itemsize], EPS[x.dtype.itemsize] * size,
                err_msg=f"result {k} of sample {sample}",
            )  # fmt: skip


@pytest.fixture(autouse=True)
def as_users_write():
    """Users mix types and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def tried(request):
    """Try so many random cases: ``tried(usual, share, cases, check)``."""
    asked = request.config.getoption("--examples")

    def run(usual: int, share: float, cases, check) -> None:
        examples = usual if asked is None else max(int(asked * share), 1)
        options = settings(max_examples=examples, deadline=None, derandomize=asked is None,
                           suppress_health_check=list(HealthCheck), database=None)  # fmt: skip
        options(given(cases)(lambda case: check(case)))()

    return run


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_random_programs(tried):
    """Values, jvp, vjp and second derivatives of random programs, in many ways to call them."""
    tried(15, 1.0, drawn(), check)


SAMPLES = 9


def of_library(way: int, f, model, q, v, tau):
    """Values, directional derivatives, or gradients of what a program gives out."""
    if way == 0:
        return f(model, q, v, tau)
    moving, fixed = eqx.partition(model, eqx.is_inexact_array)
    of = lambda m, v, tau: floats(f(eqx.combine(m, fixed), q, v, tau))  # noqa: E731
    if way == 1:
        ones = jax.tree.map(lambda x: jnp.full_like(x, 0.1), moving)
        return jax.jvp(of, (moving, v, tau), (ones, jnp.ones_like(v), tau))
    return jax.grad(lambda *args: sum(jnp.sum(jnp.sin(y)) for y in of(*args)), (0, 1, 2))(
        moving, v, tau
    )


def in_float64(function, args) -> list[np.ndarray]:
    """The results of a function of float32 arrays, computed in float64."""
    with jax.enable_x64(True), library.without_lanes():
        wide = jax.tree.map(
            lambda x: jnp.asarray(x, jnp.float64) if eqx.is_inexact_array(x) else x, args
        )
        return [np.asarray(y) for y in jax.tree.leaves(function(*wide))]


def check_library(case: library.Drawn) -> None:
    args = library.arguments(case, SAMPLES)
    axes = (0 if case.fleet else None, 0, 0, 0)
    found, right = (
        jax.vmap(partial(of_library, case.way, f), axes)
        for f in (lanes(library.program(case, library.plain), strict=True),
                  library.program(case, library.by_xla))
    )  # fmt: skip
    try:
        found = jax.jit(found)(*args)
    except ValueError as e:
        if "Reverse-mode differentiation" not in str(e):
            raise
        return
    with library.without_lanes():
        wanted = right(*args)
        nudge = lambda x: x * (1 + 4 * jnp.finfo(x.dtype).eps)  # noqa: E731
        near = right(args[0], args[1], nudge(args[2]), nudge(args[3]))
    exact = None
    for k, leaves in enumerate(zip(*map(jax.tree.leaves, (found, wanted, near)), strict=True)):
        x, y, z = map(np.asarray, leaves)
        assert x.dtype == y.dtype and x.shape == y.shape
        # entry by entry: where the last digits of the arguments matter, those of the result do not
        size = np.abs(y).max(axis=tuple(range(1, y.ndim)), keepdims=True, initial=1.0)
        limit = 1e3 * np.finfo("float32").eps * size + 100 * np.abs(y - z).max(
            axis=tuple(range(1, y.ndim)), keepdims=True, initial=0.0
        )
        assert (np.isfinite(x) == np.isfinite(y)).all()
        bad = np.abs(np.where(np.isfinite(y), x.astype(float) - y, 0)) > limit
        if bad.any():  # lanes may be as wrong as XLA is in this precision
            exact = in_float64(right, args) if exact is None else exact
            axes = tuple(range(1, y.ndim))
            ours, theirs = (np.abs(a - exact[k]).max(axis=axes, initial=0.0) for a in (x, y))
            allowed = 10 * theirs + limit.reshape(len(y), -1).max(axis=1)
            assert (ours <= allowed).all(), (np.abs(x - y).max(), limit.max(), ours, theirs)


def test_programs_that_call_the_library(tried):
    """Robots and fleets: values, jvp and gradients by the robot and the state, against XLA."""
    tried(2, 0.1, library.drawn(), check_library)
