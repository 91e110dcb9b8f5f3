"""Height fields: contact points and steps against MuJoCo's, and their derivatives."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.geoms import GEOMS, drum

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

ROWS, COLUMNS = 9, 12
HEIGHTS = np.random.default_rng(0).random((ROWS, COLUMNS))
EXACT = """<option ccd_tolerance="1e-12" ccd_iterations="200" cone="elliptic" tolerance="0"
iterations="100" ls_tolerance="1e-10" ls_iterations="200"/>"""
DRUM = drum(7)
CURVED = ("ellipsoid", "cylinder")
"""Shapes on which places agree to the root of a tolerance or of rounding only."""
POSE = 'pos=".1 .2 .3" euler="10 20 30"'


def hills(shapes=GEOMS, margin=1e-9, heights=HEIGHTS, size="1.1 .8 .3 .2", more="", pose=POSE):
    """Free bodies that touch nothing but a height field.

    MuJoCo 4 takes all corners of a prism for one if a box or a mesh meets it without a margin, and
    ends its search too early. With a margin it does not.
    """
    bodies = "".join(
        f'<body><freejoint/><geom name="{k}" {shapes[k]} mass="1" contype="0"/></body>'
        for k in shapes
    )
    vertices = " ".join(map(str, DRUM.ravel()))
    rows, columns = heights.shape
    return f"""<mujoco>{EXACT}<default><geom margin="{margin / 2}"/></default><asset>
      <mesh name="drum" vertex="{vertices}"/><hfield name="h" nrow="{rows}" ncol="{columns}"
      size="{size}" elevation="{" ".join(map(str, heights.ravel()))}"/></asset><worldbody>
      <geom name="hills" type="hfield" hfield="h" {pose}/>{bodies}</worldbody>{more}</mujoco>"""


def above(m, random, low=0.1, high=0.45):
    """Random poses of all bodies over, in and beside the height field."""
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    R, p = d.geom_xmat[0].reshape(3, 3), d.geom_xpos[0]
    q = random.normal(size=(m.nbody - 1, 7))
    q[:, :3] = random.uniform([-1.2, -0.9, low], [1.2, 0.9, high], (m.nbody - 1, 3)) @ R.T + p
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    return q.ravel()


@pytest.mark.float64
@pytest.mark.parametrize("margin", [1e-9, 0.02])
def test_shapes_touch_hills_where_mujocos_do(margin):
    """As many points, in MuJoCo's order; round shapes to the root of MuJoCo's tolerance."""
    m = mujoco.MjModel.from_xml_string(hills(margin=margin))
    d, scene, random = mujoco.MjData(m), rbd.contact.scene_of(m), np.random.default_rng(1)
    qpos, theirs = [], []
    for _ in range(60):
        d.qpos[:] = above(m, random)
        mujoco.mj_forward(m, d)
        qpos.append(d.qpos.copy())
        theirs.append([(m.geom(c.geom2).name, c.dist, *c.pos, *c.frame[:6]) for c in d.contact])

    @jax.jit
    @jax.vmap
    def ours(qpos):
        v = jnp.zeros((scene.model.nv,))
        found = rbd.contact.constraint_forces(scene, scene.layout.q_from(qpos), v, v).contacts
        return found.distance, found.point, found.frame[:, :2].reshape(-1, 6)

    distance, point, frame = ours(jnp.array(qpos))
    zero = jnp.zeros((scene.model.nv,))
    forces = eqx.filter_eval_shape(rbd.contact.constraint_forces, scene, scene.q0, zero, zero)
    names = forces.contacts.names
    off = {kind: [] for kind in GEOMS}
    for kind in GEOMS:
        own = np.array([kind in pair for pair in names])
        for k, expected in enumerate(theirs):
            rows = np.array([x[1:] for x in expected if x[0] == kind]).reshape(-1, 10)
            mine = own & np.asarray(distance[k] < margin)
            found = np.concatenate([distance[k][:, None], point[k], frame[k]], axis=1)[mine]
            assert len(found) == len(rows), kind
            np.testing.assert_allclose(found[:, 0], rows[:, 0], atol=1e-9, err_msg=kind)
            near = 1e-3 if kind in CURVED else 1e-5
            np.testing.assert_allclose(found, rows, atol=near, err_msg=kind)
            off[kind].extend(np.abs(found - rows).max(axis=1))
    assert min(map(len, off.values())) > 80
    assert all(np.quantile(x, 0.9) < (1e-5 if k in CURVED else 1e-6) for k, x in off.items()), off


@pytest.mark.float64
def test_steps_on_hills_are_mujocos(tmp_path):
    """One step of each shape from states at random, of a field that MuJoCo reads from a file."""
    file = tmp_path / "hills.bin"
    with file.open("wb") as f:
        np.array([ROWS, COLUMNS], np.int32).tofile(f)
        HEIGHTS.astype(np.float32).tofile(f)
    xml = hills().replace(f'nrow="{ROWS}" ncol="{COLUMNS}"', f'file="{file}"')
    start = xml.index("elevation=")
    xml = xml[:start] + xml[xml.index("/>", start) :]
    m = mujoco.MjModel.from_xml_string(xml)
    d, scene, random = mujoco.MjData(m), rbd.contact.scene_of(m), np.random.default_rng(2)
    layout, rows = scene.layout, []
    for _ in range(30):
        qpos, qvel = above(m, random, 0.2), 0.3 * random.normal(size=m.nv)
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(m, d)
        rows.append((qpos, qvel, np.concatenate([d.qpos, d.qvel])))
    qpos, qvel, end = map(np.array, zip(*rows, strict=True))

    @jax.jit
    @jax.vmap
    def ours(qpos, qvel):
        q = layout.q_from(qpos)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), jnp.zeros(0))
        return jnp.concatenate([layout.q_to(r.q), layout.v_to(r.q, r.v)])

    found = np.asarray(ours(jnp.array(qpos), jnp.array(qvel)))
    scale = np.maximum(1, np.abs(end).max(axis=1, keepdims=True))
    error = np.abs(found - end) / scale
    q, v = error[:, : m.nq].reshape(30, -1, 7), error[:, m.nq :].reshape(30, -1, 6)
    for k, kind in enumerate(GEOMS):
        worst = np.maximum(q[:, k].max(axis=1), v[:, k].max(axis=1))
        assert np.median(worst) < (1e-6 if kind in CURVED else 1e-8), (kind, worst)
        assert worst.max() < (1e-3 if kind in CURVED else 1e-5), (kind, worst)
    moved = np.abs(end[:, m.nq :] - qvel + [0, 0, 9.81 * m.opt.timestep, 0, 0, 0] * 6)
    assert (moved.reshape(30, 6, 6).max(axis=(0, 2)) > 0.5).all()  # all shapes were pushed


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_of_steps_on_hills():
    """By the state, by heights, lengths and base of the field and by sizes, against differences."""
    m = mujoco.MjModel.from_xml_string(hills())
    scene, random = rbd.contact.scene_of(m), np.random.default_rng(3)
    field = lambda s: jax.tree.leaves(s.contacts.shapes.fields[0])  # noqa: E731
    where = lambda s: (*field(s), s.contacts.shapes.size)  # noqa: E731
    qpos = jnp.array([above(m, random, 0.2) for _ in range(10)])
    q = jax.vmap(scene.layout.q_from)(qpos)
    v = jnp.array(random.normal(size=(10, m.nv)))
    changes = [jnp.array(0.1 * random.normal(size=x.shape)) for x in where(scene)]
    turn = jnp.array(0.1 * random.normal(size=(10, m.nv)))

    def after(t, q, v, turn):
        moved = [x + t * y for x, y in zip(where(scene), changes, strict=True)]
        s = eqx.tree_at(where, scene, moved)
        return rbd.contact.scene_step(s, rbd.integrate(s.model, q, t * turn), v, jnp.zeros(0)).v

    zero, one = jnp.zeros(()), jnp.ones(())
    slope = jax.jit(jax.vmap(lambda *x: jax.jvp(lambda t: after(t, *x), (zero,), (one,))[1]))
    slope, each, h = slope(q, v, turn), jax.jit(jax.vmap(after, (None, 0, 0, 0))), 1e-6
    at = {k: each(jnp.array(k * h), q, v, turn) for k in (-2, -1, 1, 2)}
    difference = (8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * h)
    error = np.abs(slope - difference).reshape(10, -1, 6).max(axis=2)
    size = 1 + np.abs(difference).reshape(10, -1, 6).max(axis=2)
    assert np.mean(error / size < 1e-5) > 0.95, np.sort((error / size).ravel())
    assert (size > 2).any(axis=0).all()  # every shape


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_on_hills_are_finite(dtype):
    """Deep inside, at the border, and at states at random, in reverse mode by every leaf."""
    m = mujoco.MjModel.from_xml_string(hills(margin=0.0))
    scene, random = rbd.contact.scene_of(m, dtype), np.random.default_rng(4)
    q = [above(m, random, low, high) for low, high in ((-0.1, 0.5),) * 300 + ((0.0, 0.0),) * 20]
    q = jax.vmap(scene.layout.q_from)(jnp.array(q, dtype))
    leaves, static = eqx.partition(scene, eqx.is_inexact_array)

    @jax.jit
    @jax.vmap
    def slope(q):
        def end(leaves, q):
            s, zero = eqx.combine(leaves, static), jnp.zeros((0,), dtype)
            r = rbd.contact.scene_step(s, q, jnp.ones((m.nv,), dtype), zero)
            return jnp.sum(r.q) + jnp.sum(r.v)

        value, found = jax.value_and_grad(end, (0, 1))(leaves, q)
        return value, jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(found)])

    value, finite = slope(q)
    chex.assert_tree_all_finite(value)
    assert finite.all()


FLAT = np.linspace(0, 1, 15)[:, None] * np.ones((1, 15))


@pytest.mark.float64
def test_a_large_shape_has_fifty_points():
    """A ball that rests on more prisms has MuJoCo's first fifty."""
    ball = {"ball": 'type="sphere" size="1.5"'}
    xml = hills(ball, heights=FLAT, size="1 1 .001 .1", pose="")
    m = mujoco.MjModel.from_xml_string(xml)
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    d.qpos[:3] = [0.013, 0.021, 1.45]
    mujoco.mj_forward(m, d)
    assert d.ncon == 50
    zero = jnp.zeros(6)
    q = scene.layout.q_from(jnp.array(d.qpos))
    found = rbd.contact.constraint_forces(scene, q, zero, zero).contacts
    assert (found.distance < 0).sum() == 50
    # an edge of two prisms is the nearest feature of both; which of them, rounding decides
    np.testing.assert_allclose(found.distance, d.contact.dist, atol=1e-5)
    np.testing.assert_allclose(found.point, d.contact.pos, atol=2e-2)


@pytest.mark.slow
def test_a_shape_that_has_grown_is_not_ignored_in_silence():
    """It lies over more cells than there is room for, and the result of a step says so."""
    scene = rbd.load_mjcf(hills({"ball": GEOMS["sphere"]}, pose=""))
    q, v = scene.q0.at[:3].set(jnp.array([0.0, 0.0, 0.3])), jnp.zeros(6)
    q = scene.layout.q_from(jnp.array([0.03, 0.02, 0.3, 1, 0, 0, 0]))
    assert (
        rbd.contact.scene_step(scene, q, v, jnp.zeros(0)).result == rbd.contact.RESULTS.successful
    )
    where = lambda s: s.contacts.shapes.size  # noqa: E731
    large = eqx.tree_at(where, scene, 5 * where(scene))
    assert rbd.contact.scene_step(large, q, v, jnp.zeros(0)).result == rbd.contact.RESULTS.crowded


def test_height_fields_have_no_distance():
    ball = {"ball": GEOMS["sphere"]}
    plane = '<geom name="floor" type="plane" size="1 1 1"/>'
    scene = rbd.load_mjcf(hills(ball).replace("<worldbody>", f"<worldbody>{plane}"))
    assert len(scene.contacts.pairs.shapes) == 2  # the plane and the field never touch
    assert rbd.contact.distances(scene, scene.q0).names == (("floor", "ball"),)
    with pytest.raises(ValueError, match="is a height field, which has contacts"):
        rbd.contact.distances(scene, scene.q0, [("ball", "hills")])
