"""The rules: value, first and second derivatives against autodiff of the raw algorithms."""

from contextlib import nullcontext
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from support.calls import quick_jit
from support.helpers import cast, computed_as, jit, quaternion_slices, random_state, stack
from support.inputs import (
    NO_PHYSICS,
    STATE,
    assert_relative,
    directions,
    inputs,
    random_like,
    with_leaves,
)

import rbd_jax as rbd
from rbd_jax import samples

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
RAW = {name: raw for name, (_, raw) in FUNCTIONS.items()}


def of_inputs(function, model, prescribed, x):
    return function(with_leaves(model, x), prescribed, *(x[n] for n in STATE))


def dot(x, y):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


def first_order(function, model, prescribed, x, ds, ct, _):
    """Value, jvp along every direction, vjp."""
    f = jax.jit(partial(of_inputs, function, model, prescribed))  # traced once
    value, pull = jax.vjp(f, x)
    jvps = jax.vmap(lambda d: jax.jvp(f, (x,), (d,))[1])(ds)
    return value, jvps, pull(ct)[0]


def second_order(function, model, prescribed, x, ds, ct, w):
    """jvp of vjp along every direction, vjp of vjp."""
    f = jax.jit(partial(of_inputs, function, model, prescribed))  # traced once
    gradient = jax.grad(lambda x: dot(f(x), ct))
    forward_reverse = jax.vmap(lambda d: jax.jvp(gradient, (x,), (d,))[1])(ds)
    return forward_reverse, jax.grad(lambda x: dot(gradient(x), w))(x)


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


@partial(quick_jit, static_argnums=(0, 1))
def _many(what, function, model, prescribed, xs, *fixed):
    return jax.vmap(partial(what, function, model), in_axes=(0, 0, None, None, None))(
        prescribed, xs, *fixed
    )


# These run as on an accelerator, by the inverse of M, the others by articulated bodies.
BY_INVERSE = FUNCTIONS["hybrid, small"]


def many(what, function, model, prescribed, xs, ds, ct, w):
    """``what`` of all robots and states at once; ``ct`` is for two outputs or for one."""
    one = function not in FUNCTIONS["hybrid"] + FUNCTIONS["hybrid, small"]
    with computed_as("accelerator") if function in BY_INVERSE else nullcontext():
        return _many(what, function, model, prescribed, xs, ds, ct[0] if one else ct, w)


@cache
def results(what, function, name):
    """By the rule and by the raw function."""
    return tuple(many(what, f, *batch(name)) for f in FUNCTIONS[function])


def long(*cases):
    return [pytest.param(*c, marks=pytest.mark.slow) for c in cases]


ALL_KINDS = long(*((f, "random_tree") for f in FUNCTIONS))
# the rules of inverse and forward dynamics at rest, and a combination of two others
TAIL = "product", "solve", "hybrid, small"
FIRST = [
    *((f, "small") for f in FUNCTIONS if f not in TAIL),
    *long(*((f, "small") for f in TAIL), ("inverse", "pendulum"), ("forward", "pendulum")),
]
SMALL = long(*((f, "small") for f in FUNCTIONS))


@pytest.mark.parametrize(("function", "name"), FIRST)
def test_first_order(function, name):
    """Value, jvp, vjp for every input and every leaf, under jit and vmap over robots and states."""
    for rule, raw, lead in zip(*results(first_order, function, name), (1, 2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (rule, raw))
        assert_relative(found, expected, 1e-9, lead)


@pytest.mark.parametrize(("function", "name"), FIRST)
def test_singular_points(function, name):
    """Both modes are finite and right at the identity, at half turns, at rest, without gravity."""
    for rule, raw in zip(*results(first_order, function, name), strict=True):
        found, expected = jax.tree.map(lambda y: y[BATCH:], (rule, raw))
        assert_relative(found, expected, 1e-9, lead=0)


@pytest.mark.parametrize(("function", "name"), [*SMALL, *ALL_KINDS])
def test_second_order(function, name):
    """jvp of vjp and vjp of vjp for every input and every leaf, at singular points too."""
    for rule, raw, lead in zip(*results(second_order, function, name), (2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (rule, raw))
        assert_relative(found, expected, 1e-9, lead)
        found, expected = jax.tree.map(lambda y: y[BATCH:], (rule, raw))
        assert_relative(found, expected, 1e-9, lead=0)


@pytest.mark.parametrize("function", ["inverse", *long(("forward",))])
def test_forward_over_forward(function):
    """jvp of jvp."""

    @partial(quick_jit, static_argnums=0)
    def twice(function, m, x, d, e):
        f = partial(of_inputs, function, m, None)
        return jax.jvp(lambda x: jax.jvp(f, (x,), (d,))[1], (x,), (e,))

    m = robot("small")
    x = inputs(m)
    rule, raw = (twice(f, m, x, random_like(x, 1), random_like(x, 2)) for f in FUNCTIONS[function])
    assert_relative(rule, raw, 1e-9, lead=0)


@pytest.mark.parametrize("function", ["forward", *long(("inverse",), ("hybrid",))])
def test_single_precision(function):
    """Rounding alone: 8e-6 at most was measured, in the jvp of the hybrid dynamics."""
    low = many(first_order, RULES[function], *cast(batch("small"), jnp.float32))
    assert all(y.dtype == jnp.float32 for y in jax.tree.leaves(low))
    exact, _ = results(first_order, function, "small")
    for found, expected, lead in zip(low, exact, (1, 2, 1), strict=True):
        found, expected = jax.tree.map(lambda y: y[:BATCH], (found, expected))
        assert_relative(cast(found, jnp.float64), expected, 2e-5, lead, floor=1e-3)


# --- every mode of one function -------------------------------------------------------------------


@pytest.mark.parametrize("mode", [pytest.param(jax.jacfwd, marks=pytest.mark.slow), jax.jacrev])
def test_jacobians_are_the_explicit_derivatives(mode):
    m = robot("random_tree")

    @quick_jit
    def both(m, s):
        def id_(d, v, a):
            return rbd.inverse_dynamics(m, rbd.integrate(m, s.q, d), v, a, s.f_ext)

        def fd(d, v, tau):
            return rbd.forward_dynamics(m, rbd.integrate(m, s.q, d), v, tau, s.f_ext)

        zero = jnp.zeros_like(s.v)
        by_rules = (
            mode(id_, argnums=(0, 1, 2))(zero, s.v, s.a),
            mode(fd, argnums=(0, 1, 2))(zero, s.v, s.tau),
        )
        explicit = (
            rbd.inverse_dynamics_derivatives(m, s.q, s.v, s.a, s.f_ext),
            rbd.forward_dynamics_derivatives(m, s.q, s.v, s.tau, s.f_ext),
        )
        return by_rules, explicit

    assert_relative(*both(m, random_state(m)), 1e-11, lead=0)


def test_vmap_over_anything():
    """Gradients under nested vmap over robots and states, and over one argument alone."""
    m, _, xs, *_ = batch("small")

    def gradient(model, x):
        value = lambda m, x: jnp.sum(jnp.sin(of_inputs(RULES["forward"], m, None, x)))  # noqa: E731
        return jax.grad(lambda x: value(model, x))(x)

    single = quick_jit(gradient)
    robots = stack(
        [m, eqx.tree_at(lambda m: m.placement_R, m, jnp.roll(m.placement_R, 1, axis=-1))]
    )
    nested = quick_jit(jax.vmap(jax.vmap(gradient, in_axes=(None, 0)), in_axes=(0, None)))
    pick = lambda tree, i: jax.tree.map(lambda y: y[i], tree)  # noqa: E731
    loop = [[single(pick(robots, i), pick(xs, j)) for j in range(BATCH)] for i in range(2)]
    xs = jax.tree.map(lambda y: y[:BATCH], xs)
    assert_relative(nested(robots, xs), stack([stack(row) for row in loop]), 1e-11, lead=2)
    for name in ("q", "inertia"):  # one argument mapped, the others not
        rest = pick(xs, 0)
        axes = {n: 0 if n == name else None for n in rest}
        alone = jax.vmap(gradient, in_axes=(None, axes))
        expected = [single(m, rest | {name: xs[name][j]}) for j in range(BATCH)]
        found = quick_jit(alone)(m, rest | {name: xs[name]})
        assert_relative(found, stack(expected), 1e-11)


@pytest.mark.slow
def test_gradient_through_a_scan():
    """A few steps of simulation, differentiated by everything: rule against raw."""

    @partial(quick_jit, static_argnums=0)
    def gradient(function, m, x):
        def loss(x):
            def step(qv, _):
                q, v = qv
                a = of_inputs(function, m, None, x | {"q": q, "v": v})
                v = v + 0.01 * a
                return (rbd.integrate(m, q, 0.01 * v), v), jnp.sum(jnp.sin(q))

            return jnp.sum(jax.lax.scan(step, (x["q"], x["v"]), None, length=3)[1])

        return jax.grad(loss)(x)

    m = robot("small")
    rule, raw = (gradient(f, m, inputs(m)) for f in FUNCTIONS["forward"])
    assert_relative(rule, raw, 1e-9, lead=0)


# --- what a rule must not forget, and what it must leave out --------------------------------------


@quick_jit
def leaf_gradients(m, s, c):
    def of_model(function):
        return jax.grad(lambda m: dot(function(m, None, *s), c), allow_int=True)(m)

    return {name: (of_model(RULES[name]), of_model(RAW[name])) for name in ("inverse", "forward")}


def test_no_leaf_is_dropped():
    """Whole-model gradients: the raw ones, and nowhere zero but where physics says so."""
    m = jit(with_leaves)(robot("small"), inputs(robot("small")))
    s = random_state(m)
    screw = np.isin(m.topology.kinds, ("revolute", "helical"))
    below = np.array([p >= 0 for p in m.topology.parents])
    for rule, raw in leaf_gradients(m, s, random_like(s.v, 1)).values():
        for name in NO_PHYSICS:
            assert not np.any(getattr(rule, name)), name
        assert_relative(rule, raw, 1e-9, lead=0)
        for name in ("inertia", "placement_R", "armature", "damping", "gravity"):
            leaf = np.asarray(getattr(rule, name))
            assert np.abs(leaf).reshape(len(leaf), -1).max(axis=1).min() > 1e-4, name
        assert np.abs(rule.placement_p)[below].max(axis=1).min() > 1e-4
        assert np.abs(rule.axis)[screw].max(axis=1).min() > 1e-4
        assert np.abs(rule.pitch)[screw].min() > 1e-4
        assert not np.any(rule.pitch[~screw]) and not np.any(rule.axis[~screw])
        assert np.abs(rule.placement_p)[~below].max() < 1e-9  # where the root is does not matter


def equations(jaxpr) -> int:
    """The number of equations, those of inner programs included."""
    return len(names_of_equations(jaxpr))


def names_of_equations(jaxpr) -> list[str]:
    """The primitives of a program and of those inside it."""
    programs, found = (core.Jaxpr, core.ClosedJaxpr), []
    for e in jaxpr.eqns:
        inner = jax.tree.leaves(e.params, is_leaf=lambda y: isinstance(y, programs))
        inner = [getattr(y, "closed", y) for y in inner]  # programs of lanes
        found.append(e.primitive.name)
        for y in inner:
            if isinstance(y, programs):
                found += names_of_equations(getattr(y, "jaxpr", y))
    return found


@pytest.mark.parametrize("function", ["inverse", "forward", "hybrid"])
def test_zero_tangents_cost_nothing(function):
    """Differentiating by some inputs leaves out the work of the others."""
    m, prescribed, x = robot("small"), jnp.zeros(robot("small").nb, bool), inputs(robot("small"))

    def program(*names):
        part = {n: x[n] for n in names}
        f = lambda part: of_inputs(RULES[function], m, prescribed, x | part)  # noqa: E731
        return jax.make_jaxpr(lambda part, d: jax.jvp(f, (part,), (d,)))(part, part)

    size = {k: equations(program(*k).jaxpr) for k in [(), ("q",), ("q", "v"), ("gravity",),
                                                      ("q", "inertia"), ("q", "axis")]}  # fmt: skip
    assert size["q",] < size["q", "inertia"] and size["q",] < size["q", "axis"]
    assert size[()] < size["gravity",] < size["q", "axis"]
    assert "rbd_torque_derivative" in names_of_equations(program("q").jaxpr)
    if function != "hybrid":  # which needs it for the torques of prescribed joints
        assert "rbd_torque_derivative" not in names_of_equations(program("gravity").jaxpr)


def test_no_external_wrench_is_a_zero_one():
    m = robot("small")
    x = inputs(m)

    @quick_jit
    def gradients(m, x):
        def f(wrench):
            return lambda x: jnp.sum(of_inputs(RULES["forward"], m, None, x | {"f_ext": wrench}))

        return jax.grad(f(None))(x), jax.grad(f(jnp.zeros_like(x["f_ext"])))(x)

    without, zero = gradients(m, x)
    assert_relative(without, zero, 1e-12, lead=0)


def test_a_robot_that_cannot_move():
    links = rbd.LinkSpec("base", 1.0), rbd.LinkSpec("tip", 1.0)
    m = rbd.build_model(
        rbd.RobotSpec("still", links, (rbd.JointSpec("weld", "fixed", "base", "tip"),))
    )
    x, none = inputs(m), jnp.zeros(0, bool)
    assert m.nv == 0
    for rule in RULES.values():
        total = lambda x, f=rule: dot(*[of_inputs(f, m, none, x)] * 2)  # noqa: E731
        value, gradient = quick_jit(jax.value_and_grad(total))(x)
        assert value == 0
        assert all(np.isfinite(g).all() for g in gradient.values())
