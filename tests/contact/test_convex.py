"""Pairs of convex shapes: distances, points and steps against MuJoCo's, and their derivatives."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import geoms
from support.helpers import within

import rbd_jax as rbd
from rbd_jax.contact.collision.detection import candidates, grouped
from rbd_jax.contact.collision.many import CONVEX_PAIRS

mujoco = pytest.importorskip("mujoco")


def detect(shapes, pairs, terrain, R, p):
    """All candidate contact points by ``condim``."""
    return grouped(shapes, pairs, candidates(shapes, pairs, terrain, R, p), len(p) - 1)


rng = np.random.default_rng(3)
ROCK = rng.normal(size=(20, 3))
ROCK = 0.15 * ROCK / np.linalg.norm(ROCK, axis=1)[:, None]
DRUM = geoms.drum(9)
MESHES = {"rock": ROCK, "drum": DRUM}
GEOMS = geoms.GEOMS | {"rock": 'type="mesh" mesh="rock"'}
EXACT = (
    '<option ccd_tolerance="1e-12" ccd_iterations="200" cone="elliptic" tolerance="0" '
    'iterations="100"/>'
)
ASSET = "".join(
    f'<mesh name="{k}" vertex="{" ".join(map(str, x.ravel()))}"/>' for k, x in MESHES.items()
)


def world(names, margin=0.0, option=EXACT, pairs=None):
    """Free bodies with one geom each, named after their place in the list."""
    bodies = "".join(
        f'<body><freejoint/><geom name="{k}:{n}" {GEOMS[n]} margin="{margin}"/></body>'
        for k, n in enumerate(names)
    )
    only = "" if pairs is None else 'contype="0" conaffinity="0"'
    listed = "".join(
        f'<pair geom1="{i}:{names[i]}" geom2="{j}:{names[j]}" margin="{2 * margin}"/>'
        for i, j in pairs or ()
    )
    return mujoco.MjModel.from_xml_string(
        f"<mujoco>{option}<asset>{ASSET}</asset><default><geom {only}/></default>"
        f"<worldbody>{bodies}</worldbody><contact>{listed}</contact></mujoco>"
    )


ALL = [*GEOMS, "ellipsoid", "cylinder", "box"]


def random_poses(m, d, seed, spread):
    random = np.random.default_rng(seed)
    qpos = random.normal(size=m.nq)
    for k in range(m.nbody - 1):
        qpos[7 * k : 7 * k + 3] *= spread
        qpos[7 * k + 3 : 7 * k + 7] /= np.linalg.norm(qpos[7 * k + 3 : 7 * k + 7])
    d.qpos[:] = qpos
    mujoco.mj_kinematics(m, d)
    return qpos


@pytest.fixture(scope="module")
def everything():
    """A scene with two shapes of each kind, and all pairs that the search takes and others."""
    m = world(ALL)
    return m, rbd.contact.scene_of(m)


PRIMITIVE = ({"capsule", "box"}, {"sphere", "box"})
"""MuJoCo's functions for contacts of these, which are no distances where they overlap."""


def test_distances_are_mujocos(everything):
    """Apart and overlapping; the nearest points too, up to MuJoCo's tolerance."""
    m, scene = everything
    d, states = mujoco.MjData(m), []
    q = jnp.array([random_poses(m, d, k, 0.1 + 0.1 * (k % 3)) for k in range(24)])
    found = jax.jit(jax.vmap(lambda q: rbd.contact.distances(scene, scene.layout.q_from(q))[:3]))(q)
    names = eqx.filter_eval_shape(rbd.contact.distances, scene, scene.q0).names
    kinds = [tuple(n.split(":")[1] for n in x) for x in names]
    ids = [[m.geom(n).id for n in x] for x in names]
    errors, off = [], []
    for k in range(len(q)):
        d.qpos[:] = q[k]
        mujoco.mj_kinematics(m, d)
        for row, (a, b) in enumerate(ids):
            line = np.zeros(6)
            theirs = mujoco.mj_geomDistance(m, d, a, b, 10.0, line)
            states.append(theirs)
            if set(kinds[row]) in PRIMITIVE and theirs < 0:
                continue
            errors.append(abs(found[0][k, row] - theirs))
            off.append(np.abs(found[1][k, row].ravel() - line).max())
    states = np.array(states)
    assert (states < 0).mean() > 0.2 and (states > 0).mean() > 0.2
    # deep in each other two directions may be alike; MuJoCo's or our bounded search may end early
    assert np.mean(np.array(errors) < within(1e-8, 1e-6)) > 0.995
    assert np.mean(np.array(off) < within(2e-6, 2e-4)) > 0.9
    x, y = found[1][:, :, 0], found[1][:, :, 1]
    np.testing.assert_allclose(y - x, found[0][..., None] * found[2], atol=within(1e-9, 1e-6))


def test_distances_of_chosen_pairs(everything):
    _, scene = everything
    q = scene.layout.q_from(jnp.array(random_poses(*_with_data(everything[0]), 1, 0.5)))
    names = ("4:box", "0:sphere"), ("0:sphere", "4:box")
    both = rbd.contact.distances(scene, q, names)
    assert both.names == names and both.distance[0] == both.distance[1]
    np.testing.assert_allclose(both.normal[0], -both.normal[1])
    np.testing.assert_allclose(both.points[0], both.points[1][::-1])
    with pytest.raises(KeyError, match="no shape is named 'hand'"):
        rbd.contact.distances(scene, q, [("hand", "4:box")])
    with pytest.raises(ValueError, match="one shape or two planes"):
        rbd.contact.distances(scene, q, [("4:box", "4:box")])
    assert rbd.contact.distances(scene, q, []).distance.shape == (0,)


def _with_data(m):
    return m, mujoco.MjData(m)


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_of_distances(everything):
    """Distance, points and normal by state, sizes and corners, against central differences."""
    _, scene = everything
    where = lambda s: (s.contacts.shapes.size, s.contacts.shapes.corners)  # noqa: E731
    m = everything[0]
    qs = [random_poses(*_with_data(m), k, 0.25) for k in range(12)]
    q = jax.vmap(scene.layout.q_from)(jnp.array(qs))
    random = np.random.default_rng(0)
    v = jnp.array(random.normal(size=(12, m.nv)))
    ds, dc = (jnp.array(0.01 * random.normal(size=x.shape)) for x in where(scene))
    corners = scene.contacts.shapes.corners
    copies = (corners == corners[:, :1]).all(axis=-1, keepdims=True)  # at the end of shorter lists
    dc = jnp.where(copies, dc[:, :1], dc)

    def touch(t, q, v):
        size, corners = where(scene)
        changed = eqx.tree_at(where, scene, (size + t * ds, corners + t * dc))
        found = rbd.contact.distances(changed, rbd.integrate(scene.model, q, t * v))
        return jnp.concatenate(
            [found.distance[:, None], found.points.reshape(-1, 6), found.normal], 1
        )

    zero, one = jnp.zeros(()), jnp.ones(())
    slope = jax.jit(jax.vmap(lambda q, v: jax.jvp(lambda t: touch(t, q, v), (zero,), (one,))[1]))(
        q, v
    )
    each, h = jax.jit(jax.vmap(touch, (None, 0, 0))), 1e-5
    at = {k: each(jnp.array(k * h), q, v) for k in (-2, -1, 1, 2)}
    difference = (8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * h)
    error = np.abs(slope - difference).max(axis=2) / (1 + np.abs(difference).max(axis=2))
    assert np.mean(error < 1e-6) > 0.96, np.sort(error.ravel())[-40:]
    assert np.isfinite(slope).all()


def touching(m, d, a, b, random, depth):
    """Places body b at a touch of body a, by bisection; all other bodies are far away."""
    for k in range(m.nbody - 1):
        d.qpos[7 * k : 7 * k + 7] = [10 * k, 50, 0, 1, 0, 0, 0]
    flat = random.random() < 0.5  # nearly parallel faces
    for k in (a, b):
        turn = 0.01 * random.normal(size=4) + [1, 0, 0, 0] if flat else random.normal(size=4)
        d.qpos[7 * k : 7 * k + 3] = 0
        d.qpos[7 * k + 3 : 7 * k + 7] = turn / np.linalg.norm(turn)
    way = np.array([0.0, 0.0, 1.0]) if flat else random.normal(size=3)
    beside = [*(0.05 * random.normal(size=2)), 0]
    low, high = 0.0, 1.5
    for _ in range(40):
        middle = 0.5 * (low + high)
        d.qpos[7 * b : 7 * b + 3] = beside + middle * way / np.linalg.norm(way)
        mujoco.mj_kinematics(m, d)
        apart = mujoco.mj_geomDistance(m, d, a, b, 10.0, None) > depth
        low, high = (low, middle) if apart else (middle, high)
    mujoco.mj_forward(m, d)
    return np.array([[c.dist, *c.pos, *c.frame[:3]] for c in d.contact]).reshape(-1, 7)


@pytest.mark.slow
@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_pairs_touch_where_mujocos_do(margin):
    """All pairs of kinds at a touch, also with faces that are nearly parallel.

    MuJoCo's search ends at its tolerance, so that places and normals of round shapes agree to its
    root. Four of many corners of a polygon are chosen by the area, which may be a tie.
    """
    m = world(ALL, margin)
    scene, d, random = rbd.contact.scene_of(m), mujoco.MjData(m), np.random.default_rng(0)
    shapes, pairs = scene.contacts.shapes, scene.contacts.pairs
    members = [k for k, (i, j) in enumerate(pairs.shapes)
               if (shapes.kinds[i], shapes.kinds[j]) in CONVEX_PAIRS]  # fmt: skip
    R, p, theirs, own = [], [], [], []
    for k in members * 8:
        a, b = (m.geom(shapes.names[i]).id for i in pairs.shapes[k])
        depth = -0.002 if margin == 0 or random.random() < 0.5 else 0.01
        theirs.append(touching(m, d, a, b, random, depth))
        R.append(np.concatenate([d.xmat[1:].reshape(-1, 3, 3), np.eye(3)[None]]))
        p.append(np.concatenate([d.xpos[1:], np.zeros((1, 3))]))
        own.append(k)
    groups = jax.jit(jax.vmap(lambda R, p: [x[:3] for x in detect(shapes, pairs, None, R, p)]))
    (distance, point, frame) = groups(jnp.array(R), jnp.array(p))[0]
    owner = detect(shapes, pairs, None, jnp.array(R[0]), jnp.array(p[0]))[0].pair
    agree, counts = {}, set()
    for k, (row, expected) in enumerate(zip(own, theirs, strict=True)):
        mine = (owner == row) & np.asarray(distance[k] < 2 * margin)
        found = np.concatenate([distance[k][:, None], point[k], frame[k][:, 0]], axis=1)[mine]
        same = len(found) == len(expected) > 0
        same = same and max(np.abs(found - x).max(axis=1).min() for x in expected) < 1e-4
        kinds = tuple(shapes.kinds[i] for i in pairs.shapes[row])
        agree.setdefault(kinds, []).append(same)
        counts.add(len(expected))
    assert set(agree) == set(CONVEX_PAIRS) and counts >= {1, 2, 3, 4}
    for kinds, same in agree.items():
        ties = "cylinder" in kinds and {"box", "mesh", "cylinder"} >= set(kinds)
        assert np.mean(same) >= (0.5 if ties else 0.9), (kinds, same)


@pytest.mark.slow
@pytest.mark.float64
def test_points_of_an_edge_on_a_face_stand_in_mujocos_order():
    """The noslip pass goes through the contacts in their order. One end may be two contacts.

    Where borders cut both ends, rounding decides in MuJoCo: places count that keep their order if
    they are moved by 1e-12.
    """
    kinds = ["cylinder", "capsule", "box", "box", "mesh"]
    m = world(kinds)
    scene, d, random = rbd.contact.scene_of(m), mujoco.MjData(m), np.random.default_rng(5)
    shapes, pairs = scene.contacts.shapes, scene.contacts.pairs
    faces = [k for k, (i, j) in enumerate(pairs.shapes) if shapes.kinds[j] in ("box", "mesh")
             and (shapes.kinds[i], shapes.kinds[j]) in CONVEX_PAIRS]  # fmt: skip
    R, p, theirs, own = [], [], [], []
    for k in faces * 40:
        a, b = (m.geom(shapes.names[i]).id for i in pairs.shapes[k])
        for g in range(m.nbody - 1):
            d.qpos[7 * g : 7 * g + 7] = [10 * g, 50, 0, 1, 0, 0, 0]
        lying = [1, 1, 0, 0] if random.random() < 0.5 else [1, 0, 1, 0]
        tilt = 0.01 * random.normal(size=4) + lying
        d.qpos[7 * a : 7 * a + 7] = [0, 0, 0, *tilt / np.linalg.norm(tilt)]
        d.qpos[7 * b : 7 * b + 7] = [*(0.15 * random.normal(size=2)), 0, 1, 0, 0, 0]
        low, high = 0.0, 1.5
        for _ in range(40):
            d.qpos[7 * b + 2] = 0.5 * (low + high)
            mujoco.mj_kinematics(m, d)
            apart = mujoco.mj_geomDistance(m, d, a, b, 10.0, None) > -0.003
            low, high = (low, d.qpos[7 * b + 2]) if apart else (d.qpos[7 * b + 2], high)
        start, orders = d.qpos.copy(), []
        for size in (0, 1e-12, 1e-12, 1e-12):
            d.qpos[:] = start
            mujoco.mj_integratePos(m, d.qpos, size * random.normal(size=m.nv), 1.0)
            mujoco.mj_forward(m, d)
            orders.append(np.array([[c.dist, *c.pos] for c in d.contact]).reshape(-1, 4))
        if any(x.shape != (2, 4) or np.abs(x - orders[0]).max() > 1e-6 for x in orders):
            continue  # one point, a face, or a tie
        theirs.append(orders[0])
        R.append(np.concatenate([d.xmat[1:].reshape(-1, 3, 3), np.eye(3)[None]]))
        p.append(np.concatenate([d.xpos[1:], np.zeros((1, 3))]))
        own.append(k)
    found = jax.jit(jax.vmap(lambda R, p: detect(shapes, pairs, None, R, p)[0][:2]))
    distance, point = found(jnp.array(R), jnp.array(p))
    owner = detect(shapes, pairs, None, jnp.array(R[0]), jnp.array(p[0]))[0].pair
    right = {}
    for k, (row, expected) in enumerate(zip(own, theirs, strict=True)):
        mine = (owner == row) & np.asarray(distance[k] < 0)
        ours = np.concatenate([distance[k][:, None], point[k]], axis=1)[mine]
        kinds = tuple(shapes.kinds[i] for i in pairs.shapes[row])
        same = len(ours) == 2 and np.abs(ours - expected).max() < 1e-4
        right.setdefault(kinds, []).append(same)
    total = np.concatenate(list(right.values()))
    assert len(total) > 60 and np.mean(total) > 0.95, right


FALLING = EXACT.replace(
    "<option", '<option timestep=".002" ls_tolerance="1e-10" ls_iterations="200"'
)
HEAP = f"""<mujoco>{FALLING}<asset>{ASSET}</asset><worldbody>
<geom name="table" type="box" size="1 1 .1" pos="0 0 -.1"/>
<body pos="0 0 .2"><freejoint/><geom name="can" type="cylinder" size=".15 .2"/></body>
<body pos=".5 .1 .05"><freejoint/><geom name="drum" type="mesh" mesh="drum"/></body>
<body pos=".5 .1 .25" quat="1 .1 .3 .2"><freejoint/>
  <geom name="rock" type="mesh" mesh="rock"/></body>
<body pos="0 .5 .1"><freejoint/><geom name="egg" type="ellipsoid" size=".2 .15 .1"/></body>
<body pos="-.5 -.4 .07" euler="0 90 0"><freejoint/>
  <geom name="rod" type="capsule" size=".06 .2"/></body>
</worldbody></mujoco>"""


@pytest.mark.slow
def test_a_heap_moves_as_mujocos():
    """Steps of a can, meshes, an egg and a rod on a table from states at random, to 1e-8.

    A step counts if MuJoCo itself, moved by 1e-12, is as exact.
    """
    m = mujoco.MjModel.from_xml_string(HEAP)
    d, scene, random = mujoco.MjData(m), rbd.contact.scene_of(m), np.random.default_rng(1)
    start, rows = d.qpos.copy(), []

    def stepped(qpos, qvel):
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(m, d)
        return np.concatenate([d.qpos, d.qvel]), d.ncon

    for _ in range(40):
        qpos, qvel = start.copy(), 0.3 * random.normal(size=m.nv)
        mujoco.mj_integratePos(m, qpos, 0.02 * random.normal(size=m.nv), 1.0)
        end, count = stepped(qpos, qvel)
        near = qpos.copy()
        mujoco.mj_integratePos(m, near, 1e-12 * random.normal(size=m.nv), 1.0)
        rows.append((qpos, qvel, end, np.abs(stepped(near, qvel)[0] - end).max(), count))
    qpos, qvel, end, itself, count = map(np.array, zip(*rows, strict=True))
    layout = scene.layout

    @jax.jit
    @jax.vmap
    def ours(qpos, qvel):
        q = layout.q_from(qpos)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), jnp.zeros(0))
        return jnp.concatenate([layout.q_to(r.q), layout.v_to(r.q, r.v)])

    error = np.abs(ours(jnp.array(qpos), jnp.array(qvel)) - end).max(axis=1)
    assert count.max() > 6
    assert np.mean(error < np.maximum(1e-6, 2 * itself)) > 0.8, np.sort(error)
    assert np.median(error) < 2e-7, np.sort(error)


DEGENERATE = {
    "concentric": ([0, 0, 0], [1, 0, 0, 0]),
    "faces on each other": ([0, 0, 0.3], [1, 0, 0, 0]),
    "an edge on a face": ([0.2, 0.3, 0.0], [1, 0, 0, 1]),
    "corner at corner": ([0.4, 0.3, 0.2], [1, 0, 0, 0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_are_finite_everywhere(dtype):
    """At random states, deep in each other, at parallel faces and touching corners."""
    m = world(["ellipsoid", "cylinder", "box", "mesh", "cylinder", "box"])
    scene = rbd.contact.scene_of(m, dtype)
    random, states = np.random.default_rng(0), []
    for place, turn in DEGENERATE.values():
        q = np.tile([*place, *turn], m.nbody - 1) * 1.0
        q.reshape(-1, 7)[::2, :3] = 0
        states.append(q)
    for _ in range(2000):
        q = random.normal(size=(m.nbody - 1, 7))
        q[:, :3] *= random.choice([0.01, 0.2, 0.5])
        states.append(q.ravel())
    q = np.array(states).reshape(len(states), -1, 7)
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    q = jax.vmap(scene.layout.q_from)(jnp.array(q.reshape(len(q), -1), dtype))
    leaves, static = eqx.partition(scene, eqx.is_inexact_array)

    @jax.jit
    @jax.vmap
    def finite(q):
        def moved(leaves, q):
            s = eqx.combine(leaves, static)
            x = rbd.contact.scene_step(s, q, jnp.ones((m.nv,), dtype), jnp.zeros((0,), dtype))
            return jnp.sum(x.q) + jnp.sum(x.v) + jnp.sum(rbd.contact.distances(s, q).distance)

        value, slope = jax.value_and_grad(moved, (0, 1))(leaves, q)
        return jnp.isfinite(value), jnp.stack(
            [jnp.isfinite(x).all() for x in jax.tree.leaves(slope)]
        )

    value, slope = finite(q)
    assert value.all() and slope.all(), np.flatnonzero(~(value & slope.all(axis=1)))


@pytest.mark.slow
def test_single_precision_and_a_batch_without_samples(everything):
    """JAX's default precision finds the same distances to five digits."""
    m, scene = everything
    single = rbd.contact.scene_of(m, "float32")
    q = jnp.array([random_poses(*_with_data(m), k, 0.6) for k in range(8)])
    f = lambda s: jax.jit(jax.vmap(lambda q: rbd.contact.distances(s, s.layout.q_from(q)).distance))  # noqa: E731
    exact, rough = f(scene)(q), f(single)(q.astype(jnp.float32))
    assert rough.dtype == jnp.float32
    assert np.mean(np.abs(np.asarray(rough) - np.asarray(exact)) < 1e-5) > 0.98
    assert f(scene)(q[:0]).shape == (0, exact.shape[1])


@pytest.mark.slow
def test_one_point_without_multiccd():
    """The file's flag leaves one point to a cylinder that stands on a box."""
    flag = EXACT.replace("/>", '><flag multiccd="disable"/></option>')
    for option, count in ((EXACT, 4), (flag, 1)):
        m = world(["cylinder", "box"], option=option)
        scene, d = rbd.contact.scene_of(m), mujoco.MjData(m)
        d.qpos[:] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0.299, 1, 0.002, 0.001, 0]
        mujoco.mj_forward(m, d)
        q = scene.layout.q_from(jnp.array(d.qpos))
        zero = jnp.zeros(12)
        r = rbd.contact.constraint_forces(scene, q, zero, zero).contacts
        assert (r.distance < 0).sum() == d.ncon == count


RING = """<extension><plugin plugin="mujoco.sdf.torus"><instance name="ring">
<config key="radius1" value=".4"/><config key="radius2" value=".1"/></instance></plugin></extension>
<asset><mesh name="ring"><plugin instance="ring"/></mesh></asset>"""


def test_pairs_that_are_not_supported_are_counted():
    balls = "".join(
        f'<body pos="{k} 0 9"><freejoint/><geom name="b{k}" size=".1"/></body>' for k in range(3)
    )
    ring = '<geom name="ring" type="sdf" mesh="ring"><plugin instance="ring"/></geom>'
    xml = f"<mujoco>{RING}<worldbody>{ring}{balls}</worldbody></mujoco>"
    with pytest.raises(rbd.RobotDescriptionError, match="3 pairs of sphere and sdf, such as b0"):
        rbd.load_mjcf(xml)
    with pytest.warns(rbd.RobotDescriptionWarning, match="3 pairs of sphere and sdf"):
        assert len(rbd.load_mjcf(xml, drop="all").contacts.pairs.shapes) == 3


def test_solids_of_a_robot_touch_each_other():
    """A scene of a robot without a file takes all pairs of shapes, in any order."""
    robot = rbd.samples.quadruped()
    feet = [n for n in robot.frame_names if n.endswith("foot")]
    solids = [
        rbd.contact.Solid(feet[0], "cylinder", (0.05, 0.1)),
        rbd.contact.Solid(feet[1], "ellipsoid", (0.1, 0.05, 0.04)),
    ]
    on = rbd.contact.scene_on_ground(robot, solids, touching=[(feet[0], feet[1])])
    found = rbd.contact.distances(on, on.q0, [(feet[0], feet[1])])
    swapped = rbd.contact.scene_on_ground(robot, solids, touching=[(feet[1], feet[0])])
    assert ("ellipsoid", "cylinder") in [
        tuple(swapped.contacts.shapes.kinds[k] for k in ij) for ij in swapped.contacts.pairs.shapes
    ]
    chex.assert_tree_all_finite(found.distance)
    again = dataclasses.replace(on, q0=on.q0)
    np.testing.assert_array_equal(
        rbd.contact.distances(again, on.q0, found.names).distance, found.distance
    )


@pytest.mark.slow
def test_corners_in_the_middle_of_nearly_flat_faces_touch():
    """MuJoCo joins triangles that are nearly in a plane, and their common corner is of no face."""
    box = [(x, y, z) for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.05, 0.05)]
    tip = (0.01, 0.02, 0.05001)
    vertices = " ".join(f"{x}" for p in [*box, tip] for x in p)
    xml = f"""<mujoco>{EXACT}<asset><mesh name="dome" vertex="{vertices}"/></asset><worldbody>
      <body><freejoint/><geom type="mesh" mesh="dome"/></body>
      <body pos=".01 .02 .0995"><freejoint/><geom type="sphere" size=".05"/></body>
    </worldbody></mujoco>"""
    m = mujoco.MjModel.from_xml_string(xml)
    assert max(m.mesh_polyvert[: m.mesh_polyvertadr[-1] + m.mesh_polyvertnum[-1]]) < m.nmeshvert - 1
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    scene = rbd.load_mjcf(xml)
    found = rbd.contact.distances(scene, scene.q0).distance
    np.testing.assert_allclose(found, d.contact.dist, atol=200 * float(jnp.finfo(found).eps) * 0.1)
    assert abs(d.contact.dist[0] + 0.00051) < 1e-8
