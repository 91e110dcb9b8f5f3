"""Deep, wide and many-rooted trees, robots of one body or none, and empty batches."""

from functools import cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import each_public_function, traced
from support.helpers import random_state
from support.physical_facts import close, run

import rbd_jax as rbd
from rbd_jax import samples


def _two_roots() -> rbd.Model:
    """Two arms on one base, in a world tree with several roots."""
    link = partial(rbd.LinkSpec, mass=1.0, com=np.array([0.1, 0.2, 0.3]), inertia=0.1 * np.eye(3))
    joints, links = [], [rbd.LinkSpec("base")]
    for side, kinds in {"left": ("revolute", "spherical"), "right": ("free", "prismatic")}.items():
        parent = "base"
        for k, kind in enumerate(kinds):
            name = f"{side}{k}"
            links.append(link(name))
            p = np.array([0.4 if side == "left" else -5.0, 0.1, 0.2])
            axis = np.array([0.6, 0.0, 0.8])
            joints.append(rbd.JointSpec(f"j_{name}", kind, parent, name, p=p, axis=axis))
            parent = name
    return rbd.build_model(rbd.RobotSpec("two_roots", tuple(links), tuple(joints)))


SHAPES = {
    "chain300": partial(samples.chain, 300),
    "wide300": partial(samples.tree, 300, 299),
    "floating_chain150": partial(samples.chain, 150, floating_base=True),
    "two_roots": _two_roots,
}


@pytest.mark.float64
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "chain300" else n for n in SHAPES]
)
def test_deep_wide_and_many_rooted_trees(name):
    m = SHAPES[name]()

    def f(m, s):
        M, h = rbd.crba(m, s.q), rbd.bias_torque(m, s.q, s.v, s.f_ext)
        tau = rbd.rnea(m, s.q, s.v, s.a, s.f_ext)
        a = rbd.aba(m, s.q, s.v, tau, s.f_ext)
        return M, h, tau, a, rbd.kinetic_energy(m, s.q, s.v)

    s = random_state(m)
    M, h, tau, a, T = jax.jit(f)(m, s)
    close(M @ s.a + h, tau)
    close(T, 0.5 * s.v @ M @ s.v)
    close(M @ a + h, tau)
    d = 1 / np.sqrt(np.diag(M))  # 300 links in a row: cond(M) = 5e8, even after scaling
    close(a, s.a, 1e-12 + 2.0**-52 * np.linalg.cond(d[:, None] * np.asarray(M) * d))


def test_bodies_on_two_roots_do_not_feel_each_other():
    m = _two_roots()
    M = run.crba(m, random_state(m).q)
    left = np.isin(m.topology.tree.roots[m.topology.dof_bodies], 0)
    assert left.sum() == 4 and not np.any(np.asarray(M)[np.ix_(left, ~left)])
    assert np.linalg.eigvalsh(M).min() > 0


@cache
def _still() -> rbd.Model:
    joint = rbd.JointSpec("weld", "fixed", "base", "tip", p=np.array([0.0, 0.0, 1.0]))
    links = rbd.LinkSpec("base", 1.0), rbd.LinkSpec("tip", 1.0)
    return rbd.build_model(rbd.RobotSpec("still", links, (joint,)))


@pytest.mark.parametrize("name", each_public_function())
def test_a_robot_that_cannot_move(name):
    """No degrees of freedom: every function gives empty arrays, zeros or fixed poses."""
    if name == "screw.jacobian_partials":
        pytest.skip("asks for a body that moves")
    f, args = traced(name, _still())
    if name in ("center_of_mass", "centroidal_momentum"):  # nothing moves, so nothing has a center
        with pytest.raises(ValueError, match="no center of mass"):
            f(*args)
        return
    out = f(*args)
    chex.assert_tree_all_finite(out)
    shapes = jax.eval_shape(f, *args)
    assert jax.tree.map(lambda x: x.shape, out) == jax.tree.map(lambda x: x.shape, shapes)


ONE_BODY = (pytest.param("revolute", marks=pytest.mark.slow), "free")


@cache
def one_body(*kinds):
    return samples.random_tree(5, kinds=kinds)


@pytest.mark.parametrize("kind", ONE_BODY)
@pytest.mark.parametrize("name", each_public_function())
def test_a_robot_of_one_body(name, kind):
    f, args = traced(name, one_body(kind))
    out = jax.jit(f)(*args)
    assert jax.tree.leaves(out)
    chex.assert_tree_all_finite(out)


@pytest.mark.parametrize("name", each_public_function())
def test_an_empty_batch(name):
    f, (m, arrays) = traced(name, one_body("free", "revolute"))
    f = jax.jit(f)  # traced once
    if not arrays:
        pytest.skip("takes nothing but the model")
    if name == "random_configuration":
        pytest.skip("keys are drawn before the batch is known")
    none = jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), arrays)
    out = jax.jit(jax.vmap(f, in_axes=(None, 0)))(m, none)
    one = jax.eval_shape(f, m, arrays)
    assert jax.tree.map(lambda x: x.shape, out) == jax.tree.map(lambda x: (0, *x.shape), one)
