"""Derivative rules hold in loops, to any order, with and without lanes."""

import ast
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import computed_as

import rbd_jax as rbd
from rbd_jax.derivatives.custom_jvp.implicit_solve import (
    Root,
    implicit_solve_custom_jvp,
    root_custom_jvp,
)
from rbd_jax.derivatives.custom_jvp.mechanism import custom_jvp

H = 1e-3  # of differences
stop = jax.lax.stop_gradient


@custom_jvp
def sine(p, x, k):
    """sin(p x) and an integer, of which only the rule tells the derivative."""
    return stop(jnp.sin(p * x)), k + 1


@custom_jvp
def cosine(p, x):
    return stop(jnp.cos(p * x))


def _change(primals, tangents):
    (p, x, *_), (dp, dx, *_) = primals, tangents
    return (0 if dp is None else dp * x) + (0 if dx is None else p * dx)


@sine.def_jvp
def _sine_jvp(primals, tangents):
    out, k = sine(*primals)
    return (out, k), (cosine(*primals[:2]) * _change(primals, tangents), None)


@cosine.def_jvp
def _cosine_jvp(primals, tangents):
    return cosine(*primals), -sine(*primals, 0)[0] * _change(primals, tangents)


def by_rule(p, x, wrap=lambda f: f):
    def body(x, k):
        return sine(p, x, k)

    return jnp.sum(jax.lax.scan(wrap(body), x, jnp.arange(3))[0])


def known(p, x):
    for _ in range(3):
        x = jnp.sin(p * x)
    return jnp.sum(x)


def loops():
    """The same function with its loop in other places."""
    checkpointed = lambda f: lambda *x: by_rule(*x, wrap=f)  # noqa: E731
    return {
        "loop": by_rule,
        "loop of blocks": checkpointed(jax.checkpoint),
        "block of a loop": jax.checkpoint(by_rule),
        "branches": lambda p, x: jax.lax.cond(jnp.sum(x) > 0, by_rule, known, p, x),
        "samples": lambda p, x: jnp.sum(jax.vmap(by_rule, (None, 0))(p, x)),
        "robots": lambda p, x: jnp.sum(jax.vmap(by_rule)(jnp.full_like(x, 1) * p, x)),
        "programs": lambda p, x: jax.jit(rbd.lanes(by_rule))(p, x),
    }


@pytest.mark.float64
@pytest.mark.parametrize("name", loops())
def test_every_order_is_the_rules(name):
    at = jnp.asarray(1.2), jnp.asarray([0.7, 0.2])
    along = jnp.asarray(0.3), jnp.asarray([-0.4, 1.0])
    forward = lambda f: lambda *x: jax.jvp(f, x, along)[1]  # noqa: E731
    back = lambda f: lambda *x: sum(map(jnp.vdot, jax.grad(f, (0, 1))(*x), along))  # noqa: E731

    def derivatives(f):
        orders = [forward(back(f)), back(forward(f)), back(back(f)), forward(back(back(f)))]
        return jnp.stack([jax.jit(g)(*at) for g in orders])

    np.testing.assert_allclose(derivatives(loops()[name]), derivatives(known), rtol=1e-13)


def cubic(args, y):
    """``y³ + y − p x``, of one number each."""
    p, x = args
    return y**3 + y - p * x


CUBIC = Root(cubic, lambda _, y: jnp.diag(1 / (3 * stop(y) ** 2 + 1)))


def newton(args, rest, keep):
    """Newton's method until nothing changes, for at most 50 steps."""
    del keep

    def better(state):
        y, n, _ = state
        change = cubic(args, y) / (3 * y**2 + 1)
        return y - change, n + 1, jnp.max(jnp.abs(change))

    start = rest + jnp.zeros_like(args[1]), jnp.zeros((), jnp.int32), jnp.ones((), args[1].dtype)
    y, n, _ = jax.lax.while_loop(lambda s: (s[1] < 50) & (s[2] > 1e-14), better, start)
    return 2 * y, y, n, None


def after_newton(args, y, kept):
    del kept
    y = root_custom_jvp(CUBIC, args, y)
    return 2 * y, y


def searching(p, x, inner=1):
    """All states of a loop whose rounds search, in loops of their own if ``inner`` is not 1."""

    def once(x, _):
        out, y, _, _ = implicit_solve_custom_jvp(newton, after_newton, (p, x), 0.5, False)
        return jnp.sin(out + y), None

    def body(x, _):
        x = jax.lax.scan(once, x, None, length=inner)[0] if inner > 1 else once(x, None)[0]
        return x, x

    return jax.lax.scan(body, x, None, length=17)[1]


@pytest.mark.float64
@pytest.mark.parametrize("inner", [1, 3])
def test_derivatives_of_loops_in_lanes_search_for_nothing(inner):
    at = jnp.asarray(1.2), jnp.asarray([0.7, 0.2])
    in_lanes = rbd.lanes(searching, strict=True)

    def loss(f):
        return lambda p, x: jnp.sum(f(p, x, inner) ** 2)

    gradient = jax.jit(jax.grad(loss(in_lanes), (0, 1)))
    found = gradient(*at), jax.jit(jax.hessian(loss(in_lanes), (0, 1)))(*at)
    wanted = jax.grad(loss(searching), (0, 1))(*at), jax.hessian(loss(searching), (0, 1))(*at)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, wanted)
    samples = jax.vmap(jax.grad(loss(in_lanes), (0, 1)), (None, 0))
    many = jax.jit(samples)(at[0], jnp.stack([at[1], 2 * at[1]]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-12), many, found[0])
    value, derivative = [
        str(e.params["program"].closed)
        for e in jax.make_jaxpr(jax.grad(loss(in_lanes), (0, 1)))(*at).eqns
        if e.primitive.name == "lanes"
    ]
    assert "while" in value and "while" not in derivative


def test_bodies_that_are_linear_in_a_loop_can_be_transposed():
    @custom_jvp
    def scaled(p, x):
        return p * x

    @scaled.def_jvp
    def _(primals, tangents):
        return scaled(*primals), scaled(primals[0], tangents[1])

    def loop(x):
        return jax.lax.scan(lambda x, p: (scaled(p, x), None), x, jnp.array([2.0, 3.0]))[0]

    x = jnp.array([1.0, -1.0])
    np.testing.assert_array_equal(jax.linear_transpose(loop, x)(x)[0], 6 * x)
    both = jax.vmap(lambda x: jax.linear_transpose(loop, x)(x)[0])
    np.testing.assert_array_equal(both(jnp.stack([x, 2 * x])), 6 * jnp.stack([x, 2 * x]))


def test_functions_among_the_arguments_may_hold_traced_numbers():
    """But a derivative by such a number is an error, and not zero."""

    @custom_jvp
    def applied(f, x):
        return f(x)

    @applied.def_jvp
    def _(primals, tangents):
        return applied(*primals), jax.jvp(primals[0], primals[1:], tangents[1:])[1]

    def loop(p, x):
        def body(x, _):
            return applied(lambda y: jnp.sin(p * y), x), None

        return jnp.sum(jax.lax.scan(body, x, None, length=3)[0])

    at = jnp.asarray(1.2), jnp.array([0.7, 0.2])
    for transform in (lambda f: f, lambda f: jax.grad(f, 1), lambda f: jax.vmap(f, (None, 0))):
        found, expected = (jax.jit(transform(f))(*at) for f in (loop, known))
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    with pytest.raises((TypeError, jax.errors.UnexpectedTracerError)):
        jax.jit(jax.grad(loop))(*at)


def test_every_rule_of_the_library_is_kept():
    """Lanes have a rule beside: of a function whose body has the same derivatives."""
    package = Path(rbd.__file__).parent
    files = {p.name: ast.walk(ast.parse(p.read_text())) for p in package.rglob("*.py")}
    named = {n for n, nodes in files.items() for x in nodes if isinstance(x, ast.Attribute)
             and x.attr in ("custom_jvp", "filter_custom_jvp")}  # fmt: skip
    assert named == {"mechanism.py", "_primal_reuse.py"}


# --- rollouts -----------------------------------------------------------------------------------


ConstrainedRobot = rbd.simulate.ConstrainedRobot


class Case(NamedTuple):
    """A rollout and how far around its start it stays smooth."""

    model: rbd.Model
    at: tuple[jax.Array, jax.Array]
    controls: jax.Array
    dt: Any
    far: float
    plant: Any


def coupled():
    """Two joints that turn together."""
    model = rbd.samples.double_pendulum()
    together = rbd.constraints.coupling(
        model, {n: 1.0 + k for k, n in enumerate(model.joint_names)}
    )
    at = jnp.array([0.3, -0.7]), jnp.array([0.5, 0.2])
    return Case(model, at, jnp.ones((1, 2)), 0.1, 1, ConstrainedRobot(model, constraints=together))


def held():
    """A body that turns about a point of it."""
    model = rbd.samples.random_tree(1, kinds=("free",), n=1)
    point = rbd.constraints.point(model, model.frame_names[-1], offset=[0.1, 0.2, 0.3])
    at = rbd.neutral(model), jnp.array([0.5, 0.2, -0.3, 0.1, 0.2, 0.3])
    return Case(model, at, jnp.ones((3, 6)), 0.1, 1, ConstrainedRobot(model, constraints=point))


def touching():
    """A ball that slides on the ground."""
    scene = rbd.load_mjcf(
        """<mujoco><option timestep="0.01" tolerance="1e-14" iterations="100"/><worldbody>
<geom type="plane" size="5 5 1"/><body><freejoint/><geom type="sphere" size=".1"/></body>
</worldbody></mujoco>"""
    )
    q = rbd.neutral(scene.model).at[2].set(0.098)
    at = q, jnp.array([0.1, -0.1, 0.2, 0.4, -0.2, -0.3])
    return Case(scene.model, at, jnp.zeros((3, 0)), scene.dt, 0.1, scene)


FORMS = [
    (held, "xla"),
    (held, "accelerator"),
    (held, "lanes"),
    (touching, "xla"),
    (touching, "lanes"),
]


@pytest.mark.float64
@pytest.mark.parametrize(
    ("case", "form"),
    [pytest.param(*x, marks=pytest.mark.slow) for x in [(coupled, "xla"), *FORMS]],
)
def test_second_derivative_of_a_rollout(case, form):
    """Along a line of initial states it is a difference of values."""
    model, at, controls, dt, far, plant = case()
    rng = np.random.default_rng(0)
    along = [far * jnp.asarray(rng.normal(size=x.shape)) for x in at]

    def score(s):
        q, v = (x + s * d for x, d in zip(at, along, strict=True))
        path = rbd.rollout(plant, q, v, controls, dt)
        return jnp.vdot(path.q[-1], jnp.cos(jnp.arange(float(model.nq)))) + jnp.sum(path.v[-1])

    with computed_as(form):
        found = quick_jit(lambda s: jax.jvp(jax.grad(score), (s,), (jnp.ones_like(s),))[1])(0.0)
        values = quick_jit(jax.vmap(score))(H * jnp.arange(-2.0, 3.0))
    expected = jnp.vdot(values, jnp.array([-1.0, 16, -30, 16, -1])) / (12 * H**2)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
