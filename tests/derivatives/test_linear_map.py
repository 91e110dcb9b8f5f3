"""The linear maps behind the rules, in every mode of JAX, against plain operations."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import random_states
from support.inputs import assert_relative, random_like

from rbd_jax import samples
from rbd_jax.algorithms import world_frame
from rbd_jax.derivatives.custom_jvp.forward_dynamics import accelerations
from rbd_jax.derivatives.custom_jvp.inverse_dynamics import torque_map
from rbd_jax.derivatives.custom_jvp.mass_matrix_solver import _solve_map
from rbd_jax.derivatives.linearization import joint_operator, linearization_point


def small():
    """Every way in which a joint's parameters enter."""
    return samples.random_tree(1, kinds=("free", "revolute", "helical"))


@partial(quick_jit, static_argnums=0)
def _residuals(name, m, states):
    """What the two maps take, in several states: the residual and the factorized mass matrix."""

    def one(s):
        g = world_frame.quantities(m, s.q)
        r = linearization_point(m, g, world_frame.motion(m, g, s.v, s.a, s.f_ext))
        if name == "torque":
            return r
        return accelerations(m, s.q, s.v, s.a, s.tau, None, s.f_ext)[-1]

    return jax.vmap(one)(states)


def linear_case(name):
    """The map, the same as plain operations, two residuals and a vector."""
    m = small()
    topology, rs = m.topology, _residuals(name, m, random_states(m, 2))
    if name == "solve":
        eye = jnp.eye(m.nv)
        dense = lambda s, b: jnp.matmul(s.columns(topology, eye), b, precision="highest")  # noqa: E731
        return partial(_solve_map, topology), dense, rs, random_like(jnp.zeros(m.nv), 1)
    plain = lambda r, x: joint_operator(topology, r, x.reshape(3, m.nv))  # noqa: E731
    return partial(torque_map, topology), plain, rs, random_like(jnp.zeros(3 * m.nv), 1)


def modes_of_vector(f, rs, x, xs, ct):
    """Everything that JAX can do to ``f(r, x)`` as a map of x."""
    n = len(ct)
    r = jax.tree.map(lambda y: y[0], rs)
    fwd, rev = jax.jacfwd(f, argnums=1), jax.jacrev(f, argnums=1)
    over_robots = jax.vmap(f, in_axes=(0, None))
    return {
        "value": f(r, x),
        "jvp": jax.jvp(partial(f, r), (x,), (xs[0],))[1],
        "vjp": jax.vjp(partial(f, r), x)[1](ct)[0],
        "jacfwd": fwd(r, x),
        "jacrev": rev(r, x),
        "hessian": jax.jacfwd(jax.jacrev(lambda x: jnp.sum(jnp.sin(f(r, x)))))(x),
        "vectors": jax.vmap(f, in_axes=(None, -1))(r, jnp.moveaxis(xs, 0, -1)),
        "robots": over_robots(rs, x),
        "vmap of jacfwd": jax.vmap(fwd, in_axes=(0, None))(rs, x),
        "vmap of jacrev": jax.vmap(rev, in_axes=(0, None))(rs, x),
        "jacfwd of vmap": jax.jacfwd(over_robots, argnums=1)(rs, x),
        "jacrev of vmap": jax.jacrev(over_robots, argnums=1)(rs, x),
        "nested vmap": jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(rs, xs),
        "scan": jax.grad(lambda x: jax.lax.scan(lambda c, y: (c + y @ f(r, c * x), None), 1.0,
                                                xs[:, :n])[0])(x),
    }  # fmt: skip


def modes_of_both(f, rs, x, xs, ct, dr, er):
    """Derivatives of first and second order by the residual and the vector."""
    r = jax.tree.map(lambda y: y[0], rs)
    dx, ex = xs[:2]
    push = lambda r, x: jax.jvp(f, (r, x), (dr, dx))[1]  # noqa: E731
    pull = lambda r, x: jax.vjp(f, r, x)[1](ct)  # noqa: E731
    return {
        "jvp": push(r, x),
        "vjp": pull(r, x),
        "jvp of jvp": jax.jvp(push, (r, x), (er, ex))[1],
        "jvp of vjp": jax.jvp(pull, (r, x), (er, ex))[1],
        "vjp of jvp": jax.vjp(push, r, x)[1](ct),
        "vjp of vjp": jax.vjp(pull, r, x)[1](pull(r, 2 * x)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("torque", marks=pytest.mark.slow), "solve"])
def test_linear_map_in_every_mode_of_its_vector(name):
    f, plain, rs, x = linear_case(name)
    args = rs, x, random_like(jnp.stack([x] * 4), 2), random_like(x[: small().nv], 3)
    found, expected = (quick_jit(partial(modes_of_vector, g))(*args) for g in (f, plain))
    for mode in expected:
        assert_relative(found[mode], expected[mode], 1e-11, lead=0)


@pytest.mark.slow
def test_linear_map_with_its_residual():
    """The four combinations of second order, by the residual and the vector together."""
    f, plain, rs, x = linear_case("torque")
    r = jax.tree.map(lambda y: y[0], rs)
    args = rs, x, random_like(jnp.stack([x] * 4), 2), random_like(x[: small().nv], 3)
    args = *args, random_like(r, 4), random_like(r, 5)
    found, expected = (quick_jit(partial(modes_of_both, g))(*args) for g in (f, plain))
    for mode in expected:
        assert_relative(found[mode], expected[mode], 1e-11, lead=0)


@pytest.mark.parametrize("name", ["torque", "solve"])
def test_linear_map_assembles_once_for_many_vectors(name):
    """Under jacfwd and jacrev the program holds no batch of operators but one matrix."""
    f, _, rs, x = linear_case(name)
    r = jax.tree.map(lambda y: y[0], rs)
    for mode in (jax.jacfwd, jax.jacrev):
        program = str(jax.make_jaxpr(mode(partial(f, r)))(x))
        assert program.count("= rbd_") == 1  # the value, which nobody asked for
        assert "lead=1" not in program
