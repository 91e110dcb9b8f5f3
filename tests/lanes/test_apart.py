"""Long loops of one sample: taken apart, and with states from the results in derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from support.lane_programs import close, numbers

from rbd_jax.lanes import lanes
from rbd_jax.lanes._jax_internals import scan_counts
from rbd_jax.lanes.frontend._read_program import read_program
from rbd_jax.lanes.primitive._loop_fission import SHORTEST, fission
from rbd_jax.lanes.primitive._primitive import lanes_p

pytest.importorskip("llvmlite")
N = SHORTEST + 1


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def motion(weights, start, controls, reverse=False):
    """All states of a loop with two stages in each round, counted, and what each round adds."""

    def stage(x, h):
        return x + h * jnp.sin(weights @ x), None

    def step(carry, u):
        x, count = carry
        new = jax.lax.scan(stage, x + u * count, jnp.array([0.1, 0.2]))[0]
        after = new, count + 1
        return after, (*after, jnp.sum(new * u))

    carry = start, jnp.zeros((), int)
    _, (xs, counts, costs) = jax.lax.scan(step, carry, controls, reverse=reverse)
    parts = [xs, start[None]] if reverse else [start[None], xs]
    return jnp.concatenate(parts), counts, costs


def last_only(weights, start, controls):
    """The same loop without its states in the results."""
    xs, _, costs = motion(weights, start, controls)
    return xs[-1], costs


def objective(f):
    def total(*args):
        xs, *_, costs = f(*args)
        return jnp.sum(jnp.cos(xs)) + jnp.sum(costs * costs)

    return total


FUNCTIONS = {"forward": motion, "reverse": partial(motion, reverse=True), "last": last_only}
TRANSFORMS = {
    "value": lambda f: f,
    "gradient": lambda f: jax.value_and_grad(objective(f), (0, 1, 2)),
    "jvp": lambda f: lambda *args: jax.jvp(objective(f), args, args[:1] + args[1:]),
    "second": lambda f: jax.jacfwd(jax.grad(objective(f), (0, 1)), 1),
    "batch": lambda f: jax.vmap(jax.grad(objective(f), (0, 1, 2)), (None, 0, None)),
}


def arguments(many=False):
    weights, start = numbers((3, 3), "float64", 1, 1)[0], numbers((3,), "float64", 2, 5)
    return weights, start if many else start[0], numbers((N, 3), "float64", 3, 1)[0]


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_long_loops(name, kind):
    """A long loop agrees with XLA's, in each kind of derivative and in a batch."""
    f, transform = FUNCTIONS[name], TRANSFORMS[kind]
    args = arguments(kind == "batch")
    found = jax.jit(transform(lanes(f, strict=True)))(*args)
    wanted = jax.jit(transform(f))(*args)
    jax.tree.map(lambda x, y: close(x, y, kind, 1e-12), found, wanted)


def programs(jaxpr):
    return [e.params["program"] for e in jaxpr.eqns if e.primitive is lanes_p]


def loops(jaxpr):
    """The long loops of a jaxpr."""
    return [e for e in jaxpr.eqns if e.primitive.name == "scan" and e.params["length"] == N]


def carries(eqn) -> bool:
    """Whether a loop hands numbers from round to round, other than counters."""
    _, carried = scan_counts(eqn.params)
    return any(v.aval.dtype.kind == "f" for v in eqn.outvars[:carried])


def test_states_are_taken_from_results():
    """The gradient has one loop that waits for its carry, the way back, and not the way there."""
    for f, forward in ((motion, 0), (last_only, 1)):
        gradient = jax.make_jaxpr(jax.grad(objective(lanes(f))))(*arguments())
        *_, back = programs(gradient.jaxpr)
        waiting = [e for e in loops(back.closed.jaxpr) if carries(e)]
        assert len(waiting) == 1 + forward


def test_only_the_loop_that_waits_is_left():
    """Of a gradient, sines and cosines are computed for all rounds at once."""
    gradient = jax.make_jaxpr(jax.grad(objective(lanes(motion))))(*arguments())
    *_, back = programs(gradient.jaxpr)
    pieces = fission(back)
    assert pieces is not None
    found = jax.make_jaxpr(pieces)(*back.avals_in)
    batched = [e for e in found.eqns if e.primitive is lanes_p and e.params["sizes"] == (N,)]
    alone = [e for e in found.eqns if e.primitive is lanes_p and not e.params["sizes"]]
    assert any(has(e, "cos") for e in batched)
    assert not any(has(e, "cos") for e in alone)


def test_tables_are_no_operands():
    """What depends on no operand is known in each part, and is not handed from one to another."""

    def shuffled(start, controls):
        def stage(x, h):
            return x + h * jnp.sin(x), None

        def step(x, u):
            places = (jnp.arange(x.size) + 1) % x.size
            new = x[places] * u
            return new, jnp.sum(jax.lax.scan(stage, new[places], jnp.array([0.1, 0.2]))[0])

        return jax.lax.scan(step, start, controls)[1]

    args = jnp.arange(3.0), jnp.ones((N, 3))
    (program,) = programs(jax.make_jaxpr(lanes(shuffled))(*args).jaxpr)
    pieces = fission(program)
    assert pieces is not None
    parts = jax.make_jaxpr(pieces)(*args)
    inside = [e for e in parts.eqns if e.primitive.name == "scan"]
    every = [v for e in (*parts.eqns, *inside) for v in e.invars]
    assert not [v for v in every if v.aval.dtype.kind == "i"]


def has(eqn, name: str) -> bool:
    return f"= {name} " in str(eqn.params["program"].closed)


def read(f, *args):
    """The operations of a function, and those inside its only loop."""
    block = read_program(jax.make_jaxpr(f)(*args), [False] * len(args))
    (loop,) = (op for op in block.ops if op.name == "scan")
    return block.ops, loop.params["body"].ops


def test_what_rounds_share_is_computed_before_them():
    def f(x):
        return jax.lax.scan(lambda c, _: (c * jnp.sin(x), None), x, None, length=N)[0]

    outside, inside = read(f, jnp.ones(3))
    assert [op.params.get("fn") for op in inside] == ["mul"]
    assert "sin" in [op.params.get("fn") for op in outside]


def test_rows_of_two_parts_are_not_copied():
    def f(x, y):
        step = lambda c, row: (c + row[0] * row[1:], None)  # noqa: E731
        return jax.lax.scan(step, x[0], jnp.concatenate([x, y], 1))[0]

    outside, _ = read(f, jnp.ones((N, 2)), jnp.ones((N, 1)))
    assert "copy" not in [op.params.get("fn") for op in outside]


def test_a_sum_with_few_places_writes_only_these():
    def f(x, u, k):
        return (
            x
            + jnp.zeros_like(x).at[k].add(u)
            + jax.lax.dynamic_update_slice(jnp.zeros_like(x), u[None], [k])
        )

    args = jnp.arange(9.0), jnp.ones(()), jnp.array(4)
    block = read_program(jax.make_jaxpr(f)(*args), [False] * 3)
    floats = [op for op in block.ops if op.outs[0].dtype.kind == "f"]
    assert "add" not in [op.params.get("fn") for op in floats if op.name == "map"]
    close(jax.jit(lanes(f, strict=True))(*args), f(*args))
