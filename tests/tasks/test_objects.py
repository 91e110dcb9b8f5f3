"""Objects that are pushed and turned: their goals, their starts, and a search that finds how."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks


@cache
def task(name: str) -> tasks.ObjectTask:
    return tasks.OBJECTS[name](8, dtype=jnp.float32)


@pytest.mark.parametrize("name", tasks.OBJECTS)
def test_an_object_arrives_near_its_goal_only(name):
    t = task(name)
    model, (far, angle) = t.problem.model, t.near
    assert t.arrives(t.goal)
    assert not jax.jit(jax.grad(lambda q: sum(t.miss(q))))(t.goal).any()  # zero, and no NaN
    rows = model.v_slice("object")

    @jax.jit
    def moved(step):
        q = rbd.integrate(model, t.goal, step)
        return t.arrives(q), t.miss(q)

    for k, size, limit in ((2, angle, angle), (3, far, far), (4, far, far)):
        for share, inside in ((0.9, True), (1.1, False)):
            step = np.zeros(model.nv, t.goal.dtype)
            step[rows.start + k] = share * size
            arrives, missed = moved(step)
            assert bool(arrives) == inside
            np.testing.assert_allclose(missed[k < 3], share * limit, rtol=1e-3)


@pytest.mark.parametrize("name", tasks.OBJECTS)
def test_starts_differ_and_nothing_touches_the_object_but_the_ground(name):
    t = task(name)
    assert not jax.vmap(t.arrives)(t.q0).any()
    assert len(np.unique(np.asarray(t.q0), axis=0)) == len(t.q0)
    m = mujoco.MjModel.from_xml_string(t.mjcf)
    for q, u in zip(np.asarray(t.q0), np.asarray(t.u), strict=True):
        d = mujoco.MjData(m)
        d.qpos[:], d.ctrl[:] = q, u[0]
        mujoco.mj_forward(m, d)
        touching = {min(c.geom) for c in d.contact[: d.ncon]}
        assert touching == {0}  # the plane
        robot = [i for i in range(m.nv) if i >= 6]
        assert np.abs(d.qacc[robot]).max() < 1e-3  # the servos hold


def test_other_seeds_are_other_starts():
    one, other = (np.asarray(tasks.push_block(4, seed).q0) for seed in (0, 1))
    assert np.abs(one - other).max() > 0.01
    np.testing.assert_array_equal(one, np.asarray(tasks.push_block(4, 0).q0))


@pytest.mark.slow
def test_a_search_pushes_blocks_to_their_goal():
    t = task("push")

    def find(q, v, u, key):
        return opt.cem(t.problem, q, v, u, key, **t.search).q[-1]

    keys = jax.random.split(jax.random.key(0), len(t.q0))
    ends = jax.jit(jax.vmap(find))(t.q0, t.v0, t.u, keys)
    assert jax.vmap(t.arrives)(ends).sum() >= len(t.q0) // 2
