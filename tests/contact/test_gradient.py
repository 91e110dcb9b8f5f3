"""Derivatives of a step in every leaf: forward and reverse mode against central differences."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.scenes import EQUALITIES, everything

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")


def moving(cone: str):
    """A scene some time after its start, in contact, away from a switch."""
    m = mujoco.MjModel.from_xml_string(everything(f'cone="{cone}"', "box", EQUALITIES))
    m.geom_condim[:4] = [3, 4, 6, 3]
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    d.qvel[:] = 0.5 * rng.normal(size=m.nv)
    d.ctrl[:] = 0.3 * rng.normal(size=m.nu)
    for _ in range(60):
        mujoco.mj_step(m, d)
    assert d.ncon >= 3
    scene = rbd.contact.scene_of(m)
    q = scene.layout.q_from(jnp.array(d.qpos))
    v = scene.layout.v_from(q, jnp.array(d.qvel))
    return scene, q, v, jnp.array(d.ctrl)


SWITCH = "solref_friction"  # zero means another parameter: a place where nothing is differentiable


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["elliptic", "pyramidal"])
def test_every_leaf(cone):
    scene, q, v, u = moving(cone)
    leaves, static = eqx.partition(scene, eqx.is_inexact_array)
    inputs = leaves, q, v, u

    def after(x):
        r = rbd.contact.scene_step(eqx.combine(x[0], static), *x[1:])
        return jnp.concatenate([r.q, r.v])

    named, tree = jax.tree_util.tree_flatten_with_path(inputs)
    names = [jax.tree_util.keystr(k) for k, _ in named]

    def direction(i):
        """Random in leaf i, of the size of its entries; nowhere else and not where it is inf."""
        x = np.asarray(named[i][1])
        r = np.random.default_rng(i).normal(size=x.shape)
        d = np.where(np.isfinite(x), r * (np.abs(np.nan_to_num(x)) % 1e6 + 1e-2), 0)
        rows = [jnp.array(d if j == i else np.zeros(y.shape)) for j, (_, y) in enumerate(named)]
        return jax.tree.unflatten(tree, rows)

    cotangent = jnp.array(np.random.default_rng(9).normal(size=q.size + v.size))
    value = jax.jit(after)
    push = jax.jit(lambda d: jax.jvp(after, (inputs,), (d,))[1])
    pulled = jax.jit(lambda c: jax.vjp(after, inputs)[1](c)[0])(cotangent)
    assert not any(np.isnan(x).any() for x in jax.tree.leaves(pulled))
    h, moved = 1e-6, []
    for i, name in enumerate(names):
        if not named[i][1].size or name.endswith(SWITCH):
            continue
        d = direction(i)
        at = lambda k, d=d: value(jax.tree.map(lambda x, y: x + k * h * y, inputs, d))  # noqa: E731
        difference = (8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * h)
        tangent = push(d)
        scale = 1 + float(jnp.abs(difference).max())
        np.testing.assert_allclose(tangent / scale, difference / scale, atol=1e-6, err_msg=name)
        both = [jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (pulled, d)), strict=True)]
        np.testing.assert_allclose(sum(both), cotangent @ tangent, rtol=1e-8, atol=1e-8)
        if float(jnp.abs(tangent).max()) > 1e-9:
            moved.append(name)
    physics = "stiffness rest inertia armature damping position_upper"
    law = "friction solimp size margin torque_scale polynomial gear"
    for part in (*physics.split(), *law.split()):
        assert any(name.endswith(part) for name in moved), part


BALL = """<mujoco><option timestep=".002" cone="{}"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 {}"><freejoint/><geom type="sphere" size=".1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("cone", ["elliptic", pytest.param("pyramidal", marks=pytest.mark.slow)])
def test_no_nan_at_rest_at_first_touch_and_without_slip(cone):
    """Values and gradients are finite where a norm or a distance vanishes."""
    scene = rbd.load_mjcf(BALL.format(cone, 0.1))

    @jax.jit
    @jax.vmap
    def gradient(q, v):
        def loss(scene, q, v):
            q, v, *_ = rbd.contact.scene_step(scene, q, v, jnp.zeros(0))
            return jnp.sum(q) + jnp.sum(v)

        return eqx.filter_value_and_grad(lambda x: loss(*x))((scene, q, v))

    q = np.array([[0, 0, z, 1, 0, 0, 0.0] for z in (0.1, 0.1, 0.099, 0.099, 0.2, 0.0999)])
    v = np.zeros((6, 6))
    v[1, 5], v[3, 3] = -0.5, 0.2
    value, found = gradient(jnp.array(q), jnp.array(v))
    chex.assert_tree_all_finite((value, found))
    assert float(jnp.abs(found[0].constraints.contacts.pairs.friction).max()) > 0


@pytest.mark.slow
def test_a_and_b_are_mujocos():
    """The derivative of a step against MuJoCo's central differences (mjd_transitionFD)."""
    scene, q, v, u = moving("elliptic")
    xml = everything('cone="elliptic"', "box", EQUALITIES)
    m = mujoco.MjModel.from_xml_string(xml)
    m.geom_condim[:4] = [3, 4, 6, 3]
    d = mujoco.MjData(m)
    layout = scene.layout
    d.qpos[:], d.qvel[:], d.ctrl[:] = layout.q_to(q), layout.v_to(q, v), u
    n = m.nv
    A, B = np.zeros((2 * n, 2 * n)), np.zeros((2 * n, m.nu))
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_WARMSTART)
    mujoco.mjd_transitionFD(m, d, 1e-6, 1, A, B, None, None)

    def moved(x):
        """MuJoCo's step of ours in MuJoCo's tangent coordinates, from a perturbed state."""
        dq, dv, du = jnp.split(x, [n, 2 * n])
        start = layout.q_to(q)
        turned = layout.q_from(_shifted(m, start, dq))
        velocity = layout.v_from(turned, layout.v_to(q, v) + dv)
        r = rbd.contact.scene_step(scene, turned, velocity, u + du)
        return jnp.concatenate([layout.q_to(r.q), layout.v_to(r.q, r.v)])

    J = jax.jit(jax.jacfwd(moved))(jnp.zeros(2 * n + m.nu))
    np.testing.assert_allclose(J[m.nq :, : 2 * n], A[n:], atol=2e-5 * np.abs(A).max())
    np.testing.assert_allclose(J[m.nq :, 2 * n :], B[n:], atol=2e-5 * np.abs(B).max())


def _shifted(m, q, dq):
    """``mj_integratePos`` for one unit of time in JAX."""
    from rbd_jax.spatial import so3

    parts = []
    for j in range(m.njnt):
        at, d = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
        if m.jnt_type[j] == 0:
            parts.append(q[at : at + 3] + dq[d : d + 3])
            at, d = at + 3, d + 3
        if m.jnt_type[j] < 2:
            turn = so3.quat_exp(dq[d : d + 3])
            parts.append(so3.quat_multiply(so3.quat_normalize(q[at : at + 4]), turn))
        else:
            parts.append(q[at : at + 1] + dq[d : d + 1])
    return jnp.concatenate(parts)
