"""Tendons against MuJoCo: lengths, moments, steps; derivatives, also where a string switches."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.contact.wrapping import wrap

mujoco = pytest.importorskip("mujoco")

FREE = 'contype="0" conaffinity="0"'
STRINGS = f"""<mujoco><worldbody><site name="w0" pos="0 -.3 .2"/><site name="w1" pos=".02 .02 0"/>
<geom name="wc" type="cylinder" size=".05 .3" pos="0 0 .5" euler="10 80 20" {FREE}/>
<body pos="0 0 .5"><joint type="ball"/><geom size=".05" pos=".3 0 0" {FREE}/>
 <geom name="s" type="sphere" size=".08" pos=".1 .1 0" {FREE}/>
 <geom name="c" type="cylinder" size=".06 .1" pos=".15 -.1 0" euler="30 20 10" {FREE}/>
 <site name="b0" pos=".3 .1 .1"/><site name="side" pos=".1 .2 .05"/>
 <site name="b2" pos=".05 .3 .1"/>
 <site name="inside" pos=".11 .11 0.02"/><site name="cin" pos=".15 -.1 0.01"/>
 <body pos=".3 0 0"><joint axis="0 1 0"/><joint axis="1 0 .3"/>
  <geom size=".05" pos=".1 0 0" {FREE}/><site name="c0" pos=".1 .1 -.1"/></body></body></worldbody>
<tendon>
<spatial><site site="w0"/><site site="b0"/><pulley divisor="2"/><site site="w1"/><site site="c0"/>
 <site site="b0"/></spatial>
<spatial><site site="w0"/><geom geom="s"/><site site="b0"/><geom geom="c"/>
 <site site="c0"/></spatial>
<spatial><site site="w0"/><geom geom="s" sidesite="side"/><site site="b0"/>
 <geom geom="c" sidesite="b0"/><site site="c0"/></spatial>
<spatial><site site="w0"/><geom geom="s" sidesite="inside"/><site site="b2"/>
 <geom geom="c" sidesite="cin"/><site site="c0"/></spatial>
<spatial><site site="b0"/><geom geom="wc" sidesite="side"/><site site="c0"/></spatial>
</tendon></mujoco>"""

FIXED = f"""<mujoco><option {{}}/><worldbody>
<body pos="0 0 1"><joint name="a" axis="0 1 0"/><geom size=".05" pos=".3 0 0" {FREE}/>
<body pos=".3 0 0"><joint name="b" axis="0 1 0"/><geom size=".05" pos=".3 0 0" {FREE}/>
<body pos=".3 0 0"><joint name="c" type="slide" axis="1 0 0"/><geom size=".05" pos=".1 0 0" {FREE}/>
<site name="s" pos=".1 0 .1"/></body></body></body><site name="w" pos=".3 .2 .5"/></worldbody>
<tendon><fixed name="t1" limited="true" range="-.1 .1" stiffness="3" springlength="-.05 .02"
 damping=".3" frictionloss=".2" armature=".05"><joint joint="a" coef=".6"/>
 <joint joint="b" coef="-.8"/></fixed>
<fixed name="t2" stiffness="2"><joint joint="b" coef=".6"/><joint joint="c" coef="1.5"/></fixed>
<fixed name="t3"><joint joint="a" coef="1"/></fixed>
<spatial name="t4" armature=".02" stiffness="4" limited="true" range="0 .9"><site site="w"/>
 <site site="s"/></spatial></tendon>
<actuator><motor tendon="t1" gear="2"/><position tendon="t2" kp="20" kv="1"/></actuator>
<equality><tendon tendon1="t2" tendon2="t3" polycoef=".05 .4 .1 .2 0"/></equality></mujoco>"""


@pytest.mark.float64
def test_lengths_and_moments_are_mujocos_and_moments_are_derivatives():
    """Around spheres and cylinders, with and without sides, inside, and over a pulley."""
    m = mujoco.MjModel.from_xml_string(STRINGS)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    model, layout, tendons = scene.model, scene.layout, scene.tendons
    rng = np.random.default_rng(0)
    q, lengths, moments, wraps = [], [], [], []
    for _ in range(200):
        d.qpos[:] = m.qpos0
        mujoco.mj_integratePos(m, d.qpos, 2 * rng.normal(size=m.nv), 1.0)
        for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_tendon):
            stage(m, d)
        J = np.zeros((m.ntendon, m.nv))
        mujoco.mju_sparse2dense(J, d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
        q.append(layout.q_from(jnp.array(d.qpos)))
        lengths.append(d.ten_length.copy())
        moments.append(J)
        wraps.append(d.ten_wrapnum.copy())

    @jax.jit
    @jax.vmap
    def ours(q):
        s = tendons.at(model, q)
        moved = lambda x: tendons.at(model, rbd.integrate(model, q, x)).length  # noqa: E731
        return s.length, s.dense(), jax.jacfwd(moved)(jnp.zeros(model.nv))

    length, J, slope = ours(jnp.stack(q))
    np.testing.assert_allclose(length, lengths, atol=1e-10)
    np.testing.assert_allclose(J, moments, atol=1e-6)  # MuJoCo's inside wrap converges to 1e-6
    np.testing.assert_allclose(J, slope, atol=1e-6)
    assert len(np.unique(np.array(wraps)[:, 1:])) > 3  # strings wrap, and do not


def against_mujoco(xml, steps, options=""):
    m = mujoco.MjModel.from_xml_string(xml.format(options))
    m.opt.tolerance, m.opt.ls_tolerance, m.opt.iterations = 0, 1e-10, 100
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    rng = np.random.default_rng(0)
    d.qpos[:], d.qvel[:] = 0.1 * rng.normal(size=m.nq), 0.5 * rng.normal(size=m.nv)
    d.ctrl[:] = rng.normal(size=m.nu)
    step = jax.jit(lambda q, v: rbd.contact.scene_step(scene, q, v, jnp.array(d.ctrl))[:2])
    own, rows = (jnp.array(d.qpos), jnp.array(d.qvel)), 0
    for _ in range(steps):
        q, v = step(jnp.array(d.qpos), jnp.array(d.qvel))
        own = step(*own)
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q, d.qpos, atol=1e-8)
        np.testing.assert_allclose(v, d.qvel, atol=1e-8)
        rows = max(rows, d.nefc)
    np.testing.assert_allclose(own[0], d.qpos, atol=1e-5)
    return scene, own, rows


@pytest.mark.float64
@pytest.mark.parametrize(
    "integrator",
    ["Euler"] + [pytest.param(x, marks=pytest.mark.slow) for x in ("implicitfast", "RK4")],
)
def test_steps_with_tendons_are_mujocos(integrator):
    """Springs, dampers, armature, limits, dry friction, an equality and actuators, 50 steps."""
    scene, (q, v), rows = against_mujoco(FIXED, 50, f'integrator="{integrator}"')
    assert rows >= 3
    assert scene.constraints.tendon_limits.names == ("t1", "t4")


@pytest.mark.slow
@pytest.mark.float64
def test_a_step_is_differentiable_by_every_leaf_of_the_tendons():
    scene, (q, v), _ = against_mujoco(FIXED, 5)
    where = lambda s: (s.constraints.tendons, s.constraints.tendon_limits,  # noqa: E731
                       s.constraints.tendon_friction, s.constraints.tendon_equalities)  # fmt: skip
    leaves, static = eqx.partition(where(scene), eqx.is_inexact_array)

    def after(x):
        changed = eqx.tree_at(where, scene, eqx.combine(x[0], static))
        return jnp.concatenate(rbd.contact.scene_step(changed, *x[1:], jnp.array([1.0, 0.3]))[:2])

    inputs = leaves, q, v
    named, tree = jax.tree_util.tree_flatten_with_path(inputs)
    value, push = jax.jit(after), jax.jit(lambda d: jax.jvp(after, (inputs,), (d,))[1])
    pulled = jax.jit(lambda c: jax.vjp(after, inputs)[1](c)[0])
    moved, h = 0, 1e-6
    for i, (path, x) in enumerate(named):
        own = np.where(np.isfinite(x), np.random.default_rng(i).normal(size=x.shape), 0)
        own = own * (np.abs(np.nan_to_num(x)) % 1e6 + 1e-2)
        rows = [own if k == i else np.zeros(y.shape) for k, (_, y) in enumerate(named)]
        direction = jax.tree.unflatten(tree, [jnp.array(y) for y in rows])
        at = lambda k, d=direction: value(jax.tree.map(lambda a, b: a + k * h * b, inputs, d))  # noqa: E731
        difference = (8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * h)
        tangent = push(direction)
        scale = 1 + float(jnp.abs(difference).max())
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(tangent / scale, difference / scale, atol=1e-6, err_msg=name)
        both = jax.tree.map(jnp.vdot, pulled(tangent), direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(both)), tangent @ tangent, rtol=1e-8)
        moved += float(jnp.abs(tangent).max()) > 1e-9
    assert moved >= 14


def test_gradients_are_finite_where_a_string_switches():
    """Ends on the surface, inside, at the center, on one line with it, and in one point."""
    points = [[0.1, 0, 0], [0.1, 0, 0.2], [0, 0, 0], [0.05, 0, 0], [-0.3, 0, 0], [0.3, 0, 0],
              [0.3, 0.1, 0], [-0.1, 0, 0], [0, 0.3, 0]]  # fmt: skip
    sides = [[0.05, 0.01, 0.0], [0.0, -0.4, 0.1], [-0.1, 0.0, 0.0]]
    cases = [(a, b, c) for a in points for b in points for c in sides]
    one, two, side = jnp.moveaxis(jnp.array(4 * cases), 1, 0)
    n = len(one)
    eye, zero = jnp.broadcast_to(jnp.eye(3), (n, 3, 3)), jnp.zeros((n, 3))
    round_, sided = (np.repeat(x, n // 4) for x in ([0, 0, 1, 1], [0, 1, 0, 1]))

    @jax.jit
    def total(one, two, radius, side):
        w = wrap((one, two), eye, zero, radius, side, round_ > 0, sided > 0)
        on = w.wraps.astype(one.dtype)
        parts = [jnp.sum(x * on[:, None]) for x in (w.first, w.last, w.arrives, w.leaves)]
        return jnp.sum(on * w.length) + sum(parts)

    gradient = jax.jit(jax.value_and_grad(total, (0, 1, 2, 3)))
    chex.assert_tree_all_finite(gradient(one, two, jnp.full(n, 0.1), side))
