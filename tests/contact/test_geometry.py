"""Contact with meshes and with height functions, against MuJoCo and against each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close

import rbd_jax as rbd
from rbd_jax.contact.collision.boxes import capsule_box
from rbd_jax.contact.collision.ground import Ground, on_ground
from rbd_jax.spatial import so3

mujoco = pytest.importorskip("mujoco")

ROCK = np.random.default_rng(3).normal(size=(14, 3))
ROCK = 0.1 * ROCK / np.linalg.norm(ROCK, axis=1)[:, None]
ANGLES = np.array([0.1, 0.9, 1.3, 2.4, 3.0, 4.4, 5.5])
RING = np.stack([0.1 * np.cos(ANGLES), 0.07 * np.sin(ANGLES), 0 * ANGLES], axis=1)
DRUM = np.concatenate([RING, 0.6 * RING + [0.01, 0, 0.08]])
CUBE = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])


def mesh(name, vertices):
    return f'<mesh name="{name}" vertex="{" ".join(map(str, vertices.ravel()))}"/>'


FLOOR = 'name="floor" type="plane" size="1 1 1" condim="1" conaffinity="{}"'
HULLS = {"rock": ROCK, "cube": CUBE, "drum": DRUM}
SCENE = f"""<mujoco><asset>{"".join(mesh(*x) for x in HULLS.items())}</asset><default>
<geom condim="1" conaffinity="0"/></default><worldbody><geom {FLOOR.format(1)}/>
<body><freejoint/><geom name="rock" type="mesh" mesh="rock" margin=".02"/></body>
<body><freejoint/><geom name="cube" type="mesh" mesh="cube"/></body>
<body><freejoint/><geom name="drum" type="mesh" mesh="drum"/></body></worldbody></mujoco>"""


@pytest.mark.float64
def test_meshes_touch_the_ground_where_mujocos_do():
    """Contact points of convex meshes with faces of three, four and seven corners, any pose."""
    m = mujoco.MjModel.from_xml_string(SCENE)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)

    @jax.jit
    @jax.vmap
    def ours(q):
        found = rbd.contact.constraint_forces(scene, q, jnp.zeros(18), jnp.zeros(18)).contacts
        return found.distance, found.point

    rng, all_q, theirs = np.random.default_rng(0), [], []
    for k in range(200):
        d.qpos[:] = rng.normal(size=21)
        d.qpos[10:14] = [1, 0, 0, 0] if k < 20 else d.qpos[10:14]
        d.qpos[17:] = [1, *0.1 * d.qpos[18:]] if k % 2 else d.qpos[17:]
        for j in (3, 10, 17):
            d.qpos[j : j + 4] /= np.linalg.norm(d.qpos[j : j + 4])
        d.qpos[[2, 9, 16]] = rng.uniform([0.05, 0.05, 0.01], [0.1, 0.1, 0.03])
        mujoco.mj_forward(m, d)
        all_q.append(d.qpos.copy())
        theirs.append([(c.dist, *c.pos) for c in d.contact])
    distance, point = ours(jnp.array(all_q))
    margins = scene.contacts.pairs.margin
    names = rbd.contact.constraint_forces(scene, jnp.array(all_q[0]), *2 * [jnp.zeros(18)]).contacts
    margin = np.array([0.02 if "rock" in n else 0.0 for n in names.names])
    assert sorted(np.asarray(margins)) == [0, 0, 0.02]
    counts = set()
    for r, p, expected in zip(np.asarray(distance), np.asarray(point), theirs, strict=True):
        near = r < margin
        found = np.concatenate([r[near, None], p[near]], axis=1)
        assert len(found) == len(expected)
        counts.add(len(found))
        for row in np.array(expected):
            assert np.abs(found - row).max(axis=1).min() < 1e-7  # MuJoCo's vertices are float32
    assert len(counts) > 3


class Hill(eqx.Module):
    """A tilted plane with a bump."""

    slope: jax.Array
    bump: jax.Array

    def __call__(self, x):
        return self.slope @ x + self.bump * jnp.exp(-20 * (x @ x))


@pytest.mark.float64
def test_derivatives_of_the_corners_of_a_mesh():
    """Distance and place in pose and corners, against differences; other shapes have theirs."""
    shapes = rbd.contact.scene_of(mujoco.MjModel.from_xml_string(SCENE)).contacts.shapes
    drum = shapes.names.index("drum")
    corners, faces = shapes.corners[shapes.hulls[drum]], jnp.array(shapes.faces[shapes.hulls[drum]])
    ground = Ground(jnp.zeros(3), jnp.array([0.0, 0.6, 0.8]))

    def touch(x):
        hull = corners + 0.01 * x[6:].reshape(corners.shape), faces
        found = on_ground("mesh", lambda _: ground, so3.exp(x[:3]), x[3:6], hull)
        return jnp.concatenate([found.distance, found.point.ravel()])

    rng, h = np.random.default_rng(0), 1e-6
    x, d = jnp.array(rng.normal(size=(2, 40, 6 + corners.size)))
    tangent = jax.jit(jax.vmap(lambda x, d: jax.jvp(touch, (x,), (d,))[1]))(x, d)
    each = jax.jit(jax.vmap(touch))
    difference = (each(x + h * d) - each(x - h * d)) / (2 * h)
    error = np.abs(tangent - difference).max(axis=1)
    assert np.mean(error < 1e-6) > 0.9, error  # a few lie at a switch of the lowest corner
    assert np.abs(tangent).max() > 0.1


BALL = """<mujoco><option timestep=".002" cone="elliptic"/><worldbody>
<geom name="floor" type="plane" size="1 1 1" {}/>
<body pos=".05 .02 .3"><freejoint/><geom name="ball" size=".1" condim="3"/></body>
</worldbody></mujoco>"""


@pytest.mark.slow
def test_a_height_function_is_the_ground():
    """A plane as a function moves a ball as the plane does; a bump's slope has a gradient."""
    slope = np.array([0.2, -0.1])
    normal = np.append(-slope, 1) / np.sqrt(1 + slope @ slope)
    flat = rbd.load_mjcf(BALL.format(f'zaxis="{" ".join(map(str, normal))}"'))
    level = rbd.load_mjcf(BALL.format(""))
    where = lambda s: s.constraints.contacts.terrain  # noqa: E731

    def on(hill):
        return eqx.tree_at(where, level, hill, is_leaf=lambda x: x is None)

    q, v = jnp.array([0.05, 0.02, 0.105, 1, 0, 0, 0]), jnp.array([0.1, 0, 0.2, 0.3, 0, -0.1])
    hill = Hill(jnp.array(slope), jnp.array(0.0))

    @jax.jit
    def moved(hill):
        r = rbd.contact.scene_step(on(hill), q, v, jnp.zeros(0))
        return jnp.concatenate([r.q, r.v])

    r = rbd.contact.scene_step(flat, q, v, jnp.zeros(0))
    expected = jnp.concatenate([r.q, r.v])
    free = q.at[2].add(1.0)
    assert float(jnp.abs(rbd.contact.scene_step(flat, free, v, jnp.zeros(0)).v - r.v).max()) > 0.1
    assert_close(moved(hill), expected, atol=1e-10)
    direction, h = Hill(jnp.array([0.3, 0.4]), jnp.array(0.05)), 1e-6
    bumpy = Hill(jnp.array(slope), jnp.array(0.01))
    tangent = jax.jvp(moved, (bumpy,), (direction,))[1]
    near = lambda k: moved(jax.tree.map(lambda x, y: x + k * h * y, bumpy, direction))  # noqa: E731
    difference = (8 * (near(1) - near(-1)) - near(2) + near(-2)) / (12 * h)
    assert float(jnp.abs(tangent).max()) > 0.1
    np.testing.assert_allclose(tangent, difference, atol=1e-6 * float(jnp.abs(tangent).max()))


def test_a_capsule_touches_a_box_at_its_nearest_point_in_every_precision():
    """Against points along the capsule. In float32 the first end was taken whatever was nearest."""
    rng, dtype = np.random.default_rng(0), jnp.zeros(()).dtype
    n, r, half, box = 400, 0.01, 0.03, np.array([0.02, 0.03, 0.025])
    turns = np.linalg.qr(rng.normal(size=(2, n, 3, 3)))[0]
    turns *= np.sign(np.linalg.det(turns))[..., None, None]
    (R1, R2), place = turns, rng.uniform(-0.07, 0.07, size=(n, 3))
    size, shape = np.tile([r, half], (n, 1)), np.tile(box, (n, 1))
    args = (jnp.asarray(x, dtype) for x in (R1, place, size, R2, np.zeros((n, 3)), shape))
    found = np.asarray(jax.jit(jax.vmap(capsule_box))(*args).distance)[:, 0]
    along = np.linspace(-half, half, 4001)
    points = place[:, None] + along[:, None] * R1[:, None, :, 2]
    inner = np.abs(np.einsum("nki,nij->nkj", points, R2)) - box
    expected = np.linalg.norm(np.maximum(inner, 0), axis=2).min(axis=1) - r
    apart = expected > 1e-3 - r
    assert apart.sum() > n / 2
    np.testing.assert_allclose(found[apart], expected[apart], atol=2e-6)
