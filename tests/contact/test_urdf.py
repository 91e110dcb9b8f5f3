"""Robots of URDF on the ground: ``<collision>`` shapes, limits and dry friction as in MuJoCo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

INERTIAL = """<inertial><origin xyz="{}"/><mass value="{}"/>
<inertia ixx=".02" iyy=".03" izz=".025" ixy=".001" ixz="0" iyz="0"/></inertial>"""
SHAPE = '<collision><origin xyz="{}" rpy="{}"/><geometry>{}</geometry></collision>'
URDF = f"""<robot name="walker"><link name="trunk">{INERTIAL.format(".01 0 .02", 3)}
{SHAPE.format("0 0 0", "0 0 .2", '<box size=".3 .2 .1"/>')}</link>
<link name="thigh">{INERTIAL.format("0 0 -.1", 1)}
{SHAPE.format("0 0 -.1", ".1 0 0", '<cylinder radius=".03" length=".2"/>')}</link>
<link name="shin">{INERTIAL.format("0 .01 -.1", 0.5)}
{SHAPE.format("0 0 -.2", "0 0 0", '<sphere radius=".03"/>')}</link>
<link name="toe"><inertial><origin xyz="0 0 .01"/><mass value=".1"/>
<inertia ixx=".001" iyy=".001" izz=".001" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hip" type="revolute"><parent link="trunk"/><child link="thigh"/>
<origin xyz=".1 0 -.05"/><axis xyz="0 1 0"/><limit lower="-.1" upper=".5" effort="9" velocity="9"/>
<dynamics damping=".1" friction=".3"/></joint>
<joint name="knee" type="revolute"><parent link="thigh"/><child link="shin"/>
<origin xyz="0 0 -.2"/><axis xyz="0 1 0"/><limit lower="-1" upper="0" effort="9" velocity="9"/>
</joint>
<joint name="tip" type="fixed"><parent link="shin"/><child link="toe"/><origin xyz=".02 0 -.2"/>
</joint></robot>"""


@pytest.fixture(scope="module")
def walker():
    return rbd.load_urdf(URDF, floating_base=True)


def theirs():
    """MuJoCo's model of the same file, with a free joint, on a plane, with torques as controls."""
    mujoco = pytest.importorskip("mujoco")
    spec = mujoco.MjSpec.from_string(URDF)
    spec.body("trunk").add_freejoint()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], conaffinity=3)
    for geom in spec.geoms[1:]:
        geom.contype, geom.conaffinity = 2, 0  # with the ground alone
    o = spec.option
    o.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    o.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    o.tolerance, o.iterations, o.ls_tolerance, o.ls_iterations = 1e-14, 300, 1e-10, 200
    return mujoco, spec.compile()


@pytest.mark.float64
def test_collisions_of_a_urdf_act_as_in_mujoco(walker):
    """The steps of a fall, each from MuJoCo's state: to 1e-8, with limits and dry friction."""
    mujoco, m = theirs()
    scene = rbd.contact.scene_on_ground(walker, rbd.contact.solids_of(URDF))
    assert scene.contacts.shapes.names == ("ground", "trunk", "thigh", "shin")
    layout = rbd.convert.mujoco(walker, m)
    d = mujoco.MjData(m)
    d.qpos[:7], d.qvel[:] = [0, 0, 0.2, 0.8, 0.6, 0, 0], 0.3
    d.qfrc_applied[6:] = [0.5, -0.8]
    order = [scene.actuators.names.index(n) for n in ("hip", "knee")]
    u = jnp.zeros(2).at[np.array(order)].set(jnp.array([0.5, -0.8]))

    @jax.jit
    def step(qpos, qvel):
        q = layout.q_from(qpos)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), u)
        return layout.q_to(r.q), layout.v_to(r.q, r.v)

    touched = pushed = 0
    for _ in range(400):
        q, v = step(jnp.array(d.qpos), jnp.array(d.qvel))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q, d.qpos, atol=1e-8)
        np.testing.assert_allclose(v, d.qvel, atol=1e-8)
        touched, pushed = max(touched, d.ncon), max(pushed, d.nefc - 3 * d.ncon)
    assert touched >= 3 and pushed >= 2


@pytest.mark.slow
def test_contact_points_corners_and_terrain(walker):
    """Points at frames touch; the corners of a box are the box; terrain is the ground."""
    foot = rbd.contact.points(["toe"], 0.01)
    box = np.array([[x, y, z] for x in (-0.15, 0.15) for y in (-0.1, 0.1) for z in (-0.05, 0.05)])
    hull = rbd.contact.corners("trunk", box)
    plain = rbd.contact.Solid("trunk", "box", (0.15, 0.1, 0.05), name="box")
    q = rbd.neutral(walker).at[2].set(0.0499)
    v = jnp.zeros(8).at[3].set(0.1)

    def force(solids, **options):
        scene = rbd.contact.scene_on_ground(walker, solids, **options)
        step = jax.jit(lambda q, v: rbd.contact.scene_step(scene, q, v, jnp.zeros(2), forces=True))
        r = step(q, v)
        return r.v, r.forces.contacts

    expected, touching = force([plain])
    assert float(touching.force_on("box")[2]) > 10
    moved, touching = force(hull)
    np.testing.assert_allclose(moved, expected, atol=1e-9)
    assert touching.names[7] == ("ground", "trunk:7")
    level, touching = force([plain, *foot], terrain=lambda x: 0.001 * x[0])
    height = touching.distance[np.array(touching.rows("toe"))]
    place = rbd.frame_placement(walker, q, "toe")[1]
    np.testing.assert_allclose(height, place[2] - 0.001 * place[0] - 0.01, atol=1e-6)
    assert np.abs(level - expected).max() > 0.1


def test_what_is_refused(walker):
    build, Solid = rbd.contact.scene_on_ground, rbd.contact.Solid
    foot = Solid("toe", "sphere", (0.02,))
    cases = [
        (KeyError, "nowhere", [Solid("nowhere", "sphere", (1.0,))], {}),
        (ValueError, "'toe' has the kind 'cone'.*corners", [Solid("toe", "cone", (1.0,))], {}),
        (ValueError, "'toe' is a mesh without vertices", [Solid("toe", "mesh", ())], {}),
        (ValueError, "'toe' has no convex hull", [rbd.contact.hull("toe", np.eye(3))], {}),
        (ValueError, "but a box has 3 numbers", [Solid("toe", "box", (1.0,))], {}),
        (ValueError, "none negative", [Solid("toe", "sphere", (-1.0,))], {}),
        (ValueError, "two solids are named 'toe'", [foot, foot], {}),
        (ValueError, "integrator 'implicit'", [foot], {"integrator": "implicit"}),
        (ValueError, "condim is 2", [foot], {"surface": rbd.contact.Surface(condim=2)}),
        (KeyError, "no solid 'hand'", [foot], {"touching": [("toe", "hand")]}),
        (ValueError, "'toe' cannot touch itself", [foot], {"touching": [("toe", "toe")]}),
    ]
    for error, words, solids, options in cases:
        with pytest.raises(error, match=words):
            build(walker, solids, **options)
    mesh = URDF.replace('<sphere radius=".03"/>', '<mesh filename="a.stl"/>')
    with pytest.warns(rbd.RobotDescriptionWarning, match="collision meshes are left out.*shin"):
        assert len(rbd.contact.solids_of(mesh)) == 2


def panda(mujoco):
    """The arm with its gripper, whose second finger mimics the first; MuJoCo's of the same file."""
    import re

    try:
        urdf = rbd.example_robot("panda").read_text()
    except FileNotFoundError:
        pytest.skip("example-robot-data is not installed")
    urdf = re.sub(r"<(visual|collision)\b.*?</\1>", "", urdf, flags=re.S)
    spec = mujoco.MjSpec.from_string(urdf)
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], contype=1, conaffinity=1
    )
    for name in ("panda_leftfinger", "panda_rightfinger"):
        spec.body(name).add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.01, 0, 0], pos=[0, 0.01, 0.05], mass=0,
            contype=2, conaffinity=1,
        )  # fmt: skip
    o = spec.option
    o.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    o.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    o.tolerance, o.iterations, o.ls_tolerance, o.ls_iterations = 1e-14, 300, 1e-10, 200
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE:
            geom.contype, geom.conaffinity = 0, 1
    return urdf, spec.compile()


def test_solids_of_the_fixed_base_stand_still_and_are_touched():
    """A pendulum that is pushed against a block comes to rest there; the block does not move."""
    model = rbd.samples.pendulum()
    base, bob = model.frame_names[0], model.frame_names[-1]
    rod = rbd.contact.Solid(bob, "sphere", (0.1,), p=np.array([0.0, 0.0, -1.0]), name="ball")
    at = np.array([-0.3, 0.0, -1.0])
    block = rbd.contact.Solid(base, "box", (0.1, 0.1, 0.1), p=at, name="block")
    model = eqx.tree_at(lambda m: m.damping, model, model.damping + 0.5)
    scene = rbd.contact.scene_on_ground(model, [rod, block], touching=[("ball", "block")])
    assert scene.contacts.pairs.shapes == ((0, 1), (1, 2))  # nothing of the block and the ground
    far = np.array([0.0, 0.0, 5.0])
    scene = eqx.tree_at(
        lambda s: s.constraints.contacts.shapes.p, scene, replace_fn=lambda p: p.at[0].add(-far)
    )
    push = jnp.full((1500, 1), 3.0)
    path = jax.jit(lambda u: rbd.rollout(scene, jnp.zeros(1), jnp.zeros(1), u, scene.dt))(push)
    gap = rbd.contact.distances(scene, path.q[-1], [("ball", "block")]).distance[0]
    assert abs(float(path.v[-1, 0])) < 1e-3 and abs(float(gap)) < 2e-3
    with pytest.raises(ValueError, match="'block' and 'ground' both stand still"):
        rbd.contact.scene_on_ground(model, [rod, block], touching=[("block", "ground")])


@pytest.mark.float64
@pytest.mark.parametrize(
    "mimic", [pytest.param("constrain", marks=pytest.mark.slow), "independent"]
)
def test_a_mimic_gripper_touches_as_in_mujoco(mimic):
    """The Panda's fingers, pushed apart and down on the ground, each step from MuJoCo's state."""
    mujoco = pytest.importorskip("mujoco")
    urdf, m = panda(mujoco)
    assert m.neq == 1 and m.nv == 9
    model = rbd.load_urdf(urdf, mimic=mimic)
    tip = rbd.contact.Solid("", "sphere", (0.01,), p=np.array([0, 0.01, 0.05]))
    fingers = ("panda_leftfinger", "panda_rightfinger")
    scene = rbd.contact.scene_on_ground(model, [tip._replace(frame=f) for f in fingers])
    assert scene.model.nv == 9 and scene.nu == 8
    layout = rbd.convert.mujoco(scene.model, m)
    d = mujoco.MjData(m)
    d.qpos[:] = [0, 0.9, 0, -1.9, 0, 2.8, 0.8, 0.02, 0.015]
    mujoco.mj_forward(m, d)
    d.qpos[1] += 0.3 * (d.geom_xpos[1:, 2].min() - 0.005)  # about the reach: the tips sink in
    d.qfrc_applied[7] = 2.0

    @jax.jit
    def step(qpos, qvel):
        q = layout.q_from(qpos)
        push = jnp.zeros(8).at[-1].set(2.0)
        r = rbd.contact.scene_step(scene, q, layout.v_from(q, qvel), push, forces=True)
        assert r.forces is not None
        return layout.q_to(r.q), layout.v_to(r.q, r.v), r.forces.joint_equalities

    touched, pulled = 0, 0.0
    for _ in range(150):
        q, v, coupling = step(jnp.array(d.qpos), jnp.array(d.qvel))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q, d.qpos, atol=1e-8)
        np.testing.assert_allclose(v, d.qvel, atol=1e-8)
        touched, pulled = max(touched, d.ncon), max(pulled, float(jnp.abs(coupling[0])))
    assert touched and pulled > 0.5


@pytest.mark.float64
def test_mimic_joints_follow_their_leaves():
    """Multipliers and offsets are leaves; without mimics the joints are free; laws are refused."""
    mimic = '<mimic joint="hip" multiplier="-2" offset=".1"/>'
    urdf = URDF.replace(
        '<axis xyz="0 1 0"/><limit lower="-1"', f'<axis xyz="0 1 0"/>{mimic}<limit lower="-1"'
    )
    model = rbd.load_urdf(urdf, floating_base=True)
    feet = rbd.contact.points(["toe"], 0.01)
    scene = rbd.contact.scene_on_ground(model, feet)
    tied = scene.constraints.joint_equalities
    np.testing.assert_array_equal(tied.polynomial, [[0.1, -2, 0, 0, 0]])
    assert tied.places == ((8, 7),) and scene.actuators.names == ("hip",)
    np.testing.assert_allclose(scene.model.position_lower[7:], [-0.1, -0.9])
    np.testing.assert_allclose(scene.model.position_upper[7:], [0.5, 0.3])

    def line(multiplier):
        robot = eqx.tree_at(lambda m: m.laws[0].multiplier, model, multiplier)
        return rbd.contact.scene_on_ground(robot, feet).constraints.joint_equalities.polynomial

    np.testing.assert_array_equal(jax.jacfwd(line)(jnp.array([-2.0]))[0, :, 0], [0, 1, 0, 0, 0])
    free = rbd.contact.scene_on_ground(model, feet, mimics=False)
    assert not free.constraints.joint_equalities.places and free.nu == 2
    assert isinstance(model, rbd.CoordinateModel)
    curved = rbd.with_coordinates(model.robot, lambda u: u**2, ["knee"], ["hip"])
    with pytest.raises(TypeError, match="knee are driven by a law that is not affine"):
        rbd.contact.scene_on_ground(curved, feet)


def test_hulls_are_mujocos():
    """Corners and flat faces of convex hulls, of bodies with triangles and with larger faces."""
    mujoco = pytest.importorskip("mujoco")
    from rbd_jax.contact.collision.hulls import convex_hull
    from rbd_jax.contact.mjcf.hulls import hulls

    random = np.random.default_rng(0)
    rock = random.normal(size=(20, 3))
    rock = np.concatenate([rock / np.linalg.norm(rock, axis=1)[:, None], 0.3 * rock])
    ring = [[np.cos(t), np.sin(t), z] for z in (-1, 2) for t in 2 * np.pi * np.arange(7) / 7]
    for points in (rock, np.array(ring)):
        text = " ".join(map(str, points.ravel()))
        m = mujoco.MjModel.from_xml_string(
            f'<mujoco><asset><mesh name="x" vertex="{text}"/></asset><worldbody><body>'
            '<freejoint/><geom type="mesh" mesh="x"/></body></worldbody></mujoco>'
        )
        theirs, ours = hulls(m, [0]).tables, convex_hull(points)
        sets = lambda c, faces: {  # noqa: E731
            frozenset(tuple(np.round(x, 4) + 0.0) for x in c[list(f)]) for f in faces
        }
        place, turn = np.zeros(3), np.zeros(9)
        mujoco.mju_quat2Mat(turn, m.geom_quat[0])
        place = theirs.corners[0] @ turn.reshape(3, 3).T + m.geom_pos[0]
        assert sets(place, theirs.polygons[0]) == sets(ours.corners, ours.faces)
        for face in ours.faces:  # counterclockwise if seen from outside
            a, b, c = ours.corners[face[:3]]
            assert np.cross(b - a, c - a) @ (a - ours.corners.mean(axis=0)) > 0
    with pytest.raises(ValueError, match="no volume"):
        convex_hull(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]))


def test_a_collision_mesh_is_its_hull(tmp_path):
    """A box that is given as a mesh falls on the ground as a box does."""
    trimesh = pytest.importorskip("trimesh")
    trimesh.creation.box((0.2, 0.1, 0.3)).export(tmp_path / "box.stl")
    inertial = (
        '<inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/>'
        "</inertial>"
    )
    shapes = '<mesh filename="box.stl" scale="2 2 2"/>', '<box size="0.4 0.2 0.6"/>'
    after = []
    for k, shape in enumerate(shapes):
        path = tmp_path / f"{k}.urdf"
        path.write_text(
            f'<robot name="b"><link name="box">{inertial}<collision><origin xyz="0 0 .1"/>'
            f"<geometry>{shape}</geometry></collision></link></robot>"
        )
        robot = rbd.load_urdf(path, floating_base=True)
        solids = rbd.contact.solids_of(path, hulls=True)
        assert [x.kind for x in solids] == [("mesh", "box")[k]]
        scene = rbd.contact.scene_on_ground(robot, solids)
        q = scene.q0.at[2].set(0.195)
        v = jnp.array([0.1, 0.2, 0, 0, 0.3, -0.5])
        r = jax.jit(lambda q, v, s=scene: rbd.contact.scene_step(s, q, v, jnp.zeros(0))[:2])(q, v)
        after.append(r)
    np.testing.assert_allclose(after[0][1], after[1][1], atol=1e-4)
    assert after[0][1][5] > -0.49  # the ground pushed
