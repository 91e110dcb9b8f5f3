"""Every mode of a rule, what it must not forget, and what it must leave out."""

from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from support.calls import quick_jit
from support.helpers import jit, random_state, stack
from support.inputs import NO_PHYSICS, assert_relative, inputs, random_like, with_leaves
from support.rule_cases import BATCH, FUNCTIONS, RULES, batch, dot, of_inputs, robot

import rbd_jax as rbd

RAW = {name: raw for name, (_, raw) in FUNCTIONS.items()}


# --- every mode of one function -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
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
    # one argument mapped, the others not
    rest = pick(xs, 0)
    axes = {n: 0 if n == "inertia" else None for n in rest}
    alone = jax.vmap(gradient, in_axes=(None, axes))
    expected = [single(m, rest | {"inertia": xs["inertia"][j]}) for j in range(BATCH)]
    found = quick_jit(alone)(m, rest | {"inertia": xs["inertia"]})
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        chex.assert_tree_all_finite(gradient)
