"""Two shapes that touch: distance, place and normal against MuJoCo's at random poses."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.contact.collision.ground import POINTS, Ground, contact_frame, on_ground
from rbd_jax.contact.collision.primitives import PAIRS
from rbd_jax.spatial import so3

mujoco = pytest.importorskip("mujoco")

SIZES = {
    "ellipsoid": ".2 .15 .1",
    "sphere": ".1",
    "capsule": ".06 .2",
    "cylinder": ".15 .2",
    "box": ".2 .15 .1",
}


def same_points(ours, expected):
    """Rows of distance, place, normal and first tangent, in any order."""
    assert len(ours) == len(expected)
    left = list(expected)
    for x in ours:  # MuJoCo gives some points twice
        nearest = left.pop(np.argmin([np.abs(x - y).max() for y in left]))
        np.testing.assert_allclose(x, nearest, atol=1e-9)


@pytest.mark.float64
@pytest.mark.parametrize("kinds", PAIRS)
def test_pairs_touch_where_mujocos_do(kinds):
    """Apart, touching, and with the center of the first inside the second."""
    shape = '<geom type="{}" size="{}" margin="5" {}/>'
    first, second = kinds
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody>"
        + shape.format(second, SIZES[second], 'quat="1 .3 .5 .2" pos=".1 .2 .3"')
        + f"<body><freejoint/>{shape.format(first, SIZES[first], '')}</body></worldbody></mujoco>"
    )
    d, rng, poses, theirs = mujoco.MjData(m), np.random.default_rng(0), [], []
    one, two = (0, 1) if kinds[0] == kinds[1] else (1, 0)  # the world's geom is the first
    for k in range(300):
        d.qpos[3:] = rng.normal(size=4)
        d.qpos[:3] = (0.1, 0.2, 0.3) + (0.08, 0.2, 0.5)[k % 3] * rng.normal(size=3)
        mujoco.mj_forward(m, d)
        poses.append([x[g].copy() for g in (one, two) for x in (d.geom_xmat, d.geom_xpos)])
        theirs.append(np.array([[c.dist, *c.pos, *c.frame[:6]] for c in d.contact]))
    R1, p1, R2, p2 = (jnp.array(np.array(x)) for x in zip(*poses, strict=True))
    s1, s2 = (jnp.array(m.geom_size[g]) for g in (one, two))
    found = jax.jit(jax.vmap(PAIRS[kinds], (0, 0, None, 0, 0, None)))(
        R1.reshape(-1, 3, 3), p1, s1, R2.reshape(-1, 3, 3), p2, s2
    )
    n, k = found.distance.shape
    frame = jax.vmap(contact_frame)(found.normal, found.tangent)[:, :, :2].reshape(n, k, 6)
    ours = np.concatenate([found.distance[..., None], found.point, frame], axis=2)
    for x, expected in zip(ours, theirs, strict=True):
        same_points(x[x[:, 0] < 5], expected)
    deepest = np.array([x[:, 0].min() for x in theirs if len(x)])
    assert deepest.min() < -0.05 < 0.3 < deepest.max()
    assert max(map(len, theirs)) >= min(k, 6) - (kinds == ("capsule", "capsule"))
    turned = R2[0].reshape(3, 3)
    slope = jax.jit(jax.jacfwd(lambda x: PAIRS[kinds](turned, x, s1, turned, p2[0], s2)))
    for k in range(2):  # derivatives are finite also where centers coincide and on an axis
        J = slope(p2[0] + 0.1 * k * turned[:, 2])
        chex.assert_tree_all_finite(J)


def moved(x, kind):
    """Orientation, place and size of a shape from nine numbers."""
    R = so3.matmul(so3.exp(x[:3]), so3.exp(jnp.array([0.3, 0.5, 0.2])))
    first = jnp.array([float(s) for s in SIZES[kind].split()] + [0.1, 0.1])[:3]
    return R, x[3:6], first + x[6:]


TOUCHING = [*PAIRS, *(("plane", k) for k in POINTS if k != "mesh")]
SLOW = {("capsule", "box"), ("box", "box")}


@pytest.mark.float64
@pytest.mark.parametrize(
    "kinds", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in TOUCHING]
)
def test_derivatives_of_contact_points(kinds):
    """Distance, place and normal in poses and sizes, against differences, off the switches."""

    def touch(x):
        if kinds[0] == "plane":
            ground = Ground(x[:3], so3.exp(x[3:6])[:, 2])
            found = on_ground(kinds[1], lambda _: ground, *moved(x[9:], kinds[1]))
        else:
            found = PAIRS[kinds](*moved(x[:9], kinds[0]), *moved(x[9:], kinds[1]))
        return jnp.concatenate([jnp.ravel(y) for y in found[:3]])

    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 18)) * np.tile([0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.01, 0.01, 0.01], 2)
    x, d = jnp.array(x), jnp.array(0.1 * rng.normal(size=x.shape))
    value, tangent = jax.jit(jax.vmap(lambda x, d: jax.jvp(touch, (x,), (d,))))(x, d)
    each, h = jax.jit(jax.vmap(touch)), 1e-5
    at = {k: each(x + k * h * d) for k in (-2, -1, 1, 2)}
    difference = (8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * h)
    error = np.abs(tangent - difference).max(axis=1)
    assert np.mean(error < 1e-7) > 0.9, error  # a few lie at a switch of the nearest feature
    assert np.abs(tangent).max() > 0.1 and np.isfinite(value).all()


CAPSULES = """<mujoco><option cone="elliptic" tolerance="1e-14" iterations="300"
ls_tolerance="1e-10" ls_iterations="200"/><worldbody>
<geom type="capsule" size=".06 .2" quat="{0}" pos=".1 .2 .3" margin=".02"/>
<body name="moves"><freejoint/><geom type="capsule" size="{1}" margin=".01"/></body></worldbody>
</mujoco>"""
# How far apart the axes are, how far one is moved along the other, and the angle between them.
PLACES = [
    (apart, along, turn)
    for apart in (0.05, 0.11, 0.125, 0.149, 0.0)
    for along in (0.0, 0.1, 0.3, 0.35, 0.45, -0.3, -0.42, -0.5)
    for turn in (0.0, np.pi, 1e-3, 1e-5, np.pi - 0.9e-4)
    if apart or turn in (0.0, np.pi)  # axes that cross in one point have a normal of rounding
]


@pytest.mark.float64
@pytest.mark.parametrize("size", [".06 .2", ".08 .1"])
@pytest.mark.parametrize("quat", ["1 0 0 0", "1 .3 .5 .2"])
def test_parallel_capsules_touch_in_two_points(size, quat):
    """The points and the motion are MuJoCo's: parallel, nearly so, upside down, end to end."""
    m = mujoco.MjModel.from_xml_string(CAPSULES.format(quat, size))
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    qpos, theirs, ends = [], [], []
    for apart, along, turn in PLACES:
        mujoco.mj_resetData(m, d)
        mujoco.mj_forward(m, d)
        R = d.geom_xmat[0].reshape(3, 3)
        half = np.array([np.cos(turn / 2), np.sin(turn / 2) * 0.6, np.sin(turn / 2) * 0.8, 0])
        quats = np.zeros(4)
        mujoco.mju_mulQuat(quats, m.geom_quat[0], half)
        d.qpos[:] = [*(m.geom_pos[0] + R @ [apart, 0, along]), *quats]
        qpos.append(d.qpos.copy())
        d.qvel[:] = [0.1, -0.2, 0.3, 0.4, 0.5, -0.6]
        mujoco.mj_forward(m, d)
        theirs.append(np.array([[c.dist, *c.pos, *c.frame[:3]] for c in d.contact]))
        mujoco.mj_step(m, d)
        ends.append(np.concatenate([d.qpos, d.qvel]))
    counts = [len(x) for x in theirs]
    assert counts.count(2) > 30 and counts.count(1) > 10 and counts.count(0) > 3

    @jax.jit
    @jax.vmap
    def ours(qpos):
        q = scene.layout.q_from(qpos)
        v = scene.layout.v_from(q, jnp.array([0.1, -0.2, 0.3, 0.4, 0.5, -0.6]))
        r = rbd.contact.scene_step(scene, q, v, jnp.zeros(0), forces=True)
        end = jnp.concatenate([scene.layout.q_to(r.q), scene.layout.v_to(r.q, r.v)])
        return r.forces.contacts, end

    found, end = ours(jnp.array(np.array(qpos)))
    for k, expected in enumerate(theirs):
        c = jax.tree.map(lambda x, k=k: np.asarray(x[k]), found)
        near = c.distance < 0.03
        mine = [[*x] for x in zip(c.distance, *c.point.T, *c.frame[:, 0].T, strict=True)]
        same_points([np.array(x) for x, on in zip(mine, near, strict=True) if on], expected)
        np.testing.assert_allclose(end[k], ends[k], atol=1e-8, err_msg=str(PLACES[k]))


def test_parallel_capsules_in_single_precision():
    """Turned anyhow, in JAX's default precision: two points at the ends of the overlap."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        size = jnp.array([0.06, 0.2, 0.0])

        @jax.jit
        @jax.vmap
        def touch(turn):
            R = so3.exp(turn)
            return PAIRS["capsule", "capsule"](R, 0 * turn, size, R, R @ offset, size)

        offset = jnp.array([0.11, 0.0, 0.1])
        found = touch(jax.random.normal(jax.random.key(0), (200, 3)))
        assert found.distance.dtype == jnp.float32
        np.testing.assert_allclose(found.distance, -0.01, atol=1e-6)
        apart = jnp.linalg.norm(found.point[:, 0] - found.point[:, 1], axis=-1)
        np.testing.assert_allclose(apart, 0.3, atol=1e-6)
