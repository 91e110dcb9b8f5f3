"""The viewer: what it serves is compared with kinematics, and a real browser draws it."""

import shutil
import subprocess
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.io.visuals import read_visuals
from rbd_jax.view.motion import poses_of, read_motion
from rbd_jax.view.shapes import parts_of_visuals, skeleton

pytest.importorskip("viser")
pytest.importorskip("trimesh")

from scipy.spatial.transform import Rotation  # noqa: E402
from support.helpers import within  # noqa: E402
from support.viewer_client import Client, Scene, recorded  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # of threads that viser starts

URDF = """<robot name="shapes">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"><visual><geometry><box size="1 2 3"/></geometry></visual></link>
  <link name="arm">
    <inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 -0.5" rpy="1.5707963267948966 0 0"/>
      <geometry><cylinder radius="0.1" length="1"/></geometry><material name="red"/></visual>
    <visual><geometry><sphere radius="0.2"/></geometry>
      <material name="blue"><color rgba="0 0 1 0.5"/></material></visual>
    <visual><geometry><mesh filename="package://here/no.stl"/></geometry></visual>
  </link>
  <joint name="hinge" type="continuous"><origin xyz="0 0 1"/><parent link="base"/>
    <child link="arm"/><axis xyz="0 1 0"/></joint>
</robot>
"""


def motions(model, batch: int, samples: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(0), batch * samples)
    q = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys)
    return np.asarray(q).reshape(batch, samples, model.nq)


def assert_same_poses(shown, R, p):
    wxyz, position = shown
    np.testing.assert_allclose(position, p, atol=2e-6)
    found = Rotation.from_quat(wxyz, scalar_first=True).as_matrix()
    np.testing.assert_allclose(found, R, atol=2e-6)


def test_served_poses_are_those_of_forward_kinematics():
    model = rbd.samples.quadruped()
    q = motions(model, 2, 3)
    kinematics = jax.jit(jax.vmap(jax.vmap(rbd.forward_kinematics, (None, 0)), (None, 0)))
    R, p = (np.asarray(x) for x in kinematics(model, q))
    Rf, pf = jax.jit(jax.vmap(lambda q: rbd.frame_placement(model, q, "lf_foot")))(q[:, 2])
    with rbd.view(model, q, spacing=3.0, frames=["lf_foot"], port=18080) as viewer:
        client = Client(viewer.url)
        for k in (0, 2, 1):
            viewer.show(k)
            settle(client)
            names = [n for n, x in client.nodes.items() if n != "/frames" and "batched_wxyzs" in x]
            offset = np.array([[0, -1.5, 0], [0, 1.5, 0]])
            assert {name.split("/")[2] for name in names} == set(model.body_names)
            for name in names:
                body = model.body_names.index(name.split("/")[2])
                assert_same_poses(client.pose(name), R[:, k, body], p[:, k, body] + offset)
            if k == 2:
                assert_same_poses(client.pose("/frames"), Rf, pf + offset)
        client.close()


def settle(client):
    """Messages come in windows: wait until none has come for a moment."""
    try:
        client.listen(lambda _: False, 0.4)
    except TimeoutError:
        pass


SHAPES = (3, 7, 6), (4, 2, 3), (4, 2, 3)


def test_forces_and_contacts():
    model = rbd.samples.arm()
    q = motions(model, 1, 4)
    rng = np.random.default_rng(0)
    f_ext, points, forces = (100 * rng.normal(size=s) for s in SHAPES)
    forces[3, 1] = 0  # a contact that is open
    with rbd.view(model, q[0], f_ext=f_ext, contacts=(points, forces), port=18080) as viewer:
        client = Client(viewer.url)
        viewer.show(3)
        settle(client)
        client.close()
    ends = client.nodes["/contacts/arrows"]["points"].reshape(-1, 2, 3)
    assert len(ends) == 1
    np.testing.assert_allclose(ends[0, 0], points[3, 0], rtol=1e-6)
    along, force = ends[0, 1] - ends[0, 0], forces[3, 0]
    weight = float(rbd.total_mass(model)) * 9.81
    size = viewer._scene.size  # an arrow as long as the robot is twice its weight
    np.testing.assert_allclose(along, force * size / (2 * weight), atol=2e-5)
    R, p = (np.asarray(x) for x in jax.jit(rbd.forward_kinematics)(model, q[0, 3]))
    ends = client.nodes["/forces/arrows"]["points"].reshape(-1, 2, 3)
    np.testing.assert_allclose(ends[:, 0], p, atol=1e-6)
    along = ends[:, 1] - ends[:, 0]
    world = np.einsum("nij,nj->ni", R, f_ext[2, :, 3:])  # the last of three holds at the fourth
    np.testing.assert_allclose(along, world * size / (2 * weight), atol=1e-5)


def test_play_pause_and_samples():
    model = rbd.samples.pendulum()
    t = np.linspace(0, 0.4, 5)
    with rbd.view(model, {"t": t, "q": np.zeros((5, 1))}, port=18080) as viewer:
        end = time.monotonic() + 20
        while viewer.index < 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert viewer.index >= 3
        viewer.show(1)
        time.sleep(0.5)
        assert viewer.index == 1
        with pytest.raises(IndexError, match="no sample 5; there are 0 to 4"):
            viewer.show(5)
        viewer.play()
        while viewer.index == 1 and time.monotonic() < end:
            time.sleep(0.02)
        assert viewer.index != 1
        assert viewer.url in viewer._repr_html_()


def test_static_page_holds_the_motion(tmp_path):
    model = rbd.samples.double_pendulum()
    q = motions(model, 1, 3)[0]
    with rbd.view(model, {"t": np.array([0, 0.1, 0.2]), "q": q}, port=18080) as viewer:
        page = viewer.as_html(tmp_path / "page.html", fps=10)
    assert (tmp_path / "page.html").read_text() == page
    _, p = jax.jit(jax.vmap(rbd.forward_kinematics, (None, 0)))(model, q)
    scene, seen = Scene(), {}
    for when, message in recorded(page):
        scene.apply(message)
        if "/robot/lower/1" in scene.nodes:
            seen[round(when, 6)] = scene.pose("/robot/lower/1")[1][0]
    assert list(seen) == [0.0, 0.1, 0.2]
    np.testing.assert_allclose(list(seen.values()), p[:, 1], atol=2e-6)


def test_motions_that_are_understood(tmp_path):
    model = rbd.samples.double_pendulum()
    path = jax.jit(rbd.rollout)(model, jnp.zeros(2), jnp.ones(2), jnp.zeros((4, 2)), 0.1)
    several = jax.tree.map(lambda x: jnp.stack([x, x]), path)
    np.savez(tmp_path / "a.npz", t=path.t, q=path.q, joint_names=np.array(model.joint_names))
    for given, batch in ((path, 1), (several, 2), (tmp_path / "a.npz", 1), (path._asdict(), 1)):
        motion = read_motion(model, given)
        np.testing.assert_allclose(motion.q, np.broadcast_to(path.q, (batch, 5, 2)))
        np.testing.assert_allclose(motion.t, path.t)
    assert read_motion(model).q.shape == (1, 1, 2)
    assert read_motion(model, jnp.zeros(2)).q.shape == (1, 1, 2)


def test_motions_that_are_refused(tmp_path):
    model = rbd.samples.double_pendulum()
    with pytest.raises(ValueError, match=r"shape \(5, 3\), but robot 'double_pendulum' has nq = 2"):
        read_motion(model, np.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"not finite in sample\(s\) 1"):
        read_motion(model, np.array([[[0.0, 0.0]], [[np.nan, 0.0]]]))
    with pytest.raises(ValueError, match="expected 3 times that do not decrease"):
        read_motion(model, {"t": np.array([0, 2, 1]), "q": np.zeros((3, 2))})
    np.savez(tmp_path / "a.npz", q=np.zeros((3, 2)), joint_names=np.array(["a", "b"]))
    with pytest.raises(ValueError, match="joints a, b…, but this robot has shoulder, elbow"):
        read_motion(model, tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"f_ext has shape \(3, 6\), expected \(2, 6\)"):
        rbd.view(model, f_ext=np.zeros((3, 6)))
    with pytest.raises(KeyError, match="no frame 'hand'"):
        rbd.view(model, frames=["hand"])


def test_visuals_of_a_urdf():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        box, cylinder, sphere = read_visuals(URDF)
    assert "mesh files not found: 'package://here/no.stl'" in str(caught[0].message)
    assert (box.frame, box.shape, box.size, box.color) == ("base", "box", (1, 2, 3), None)
    assert cylinder.color == (1, 0, 0, 1) and sphere.color == (0, 0, 1, 0.5)
    np.testing.assert_allclose(cylinder.R @ [0, 0, 1], [0, -1, 0], atol=1e-12)
    bad = URDF.replace('radius="0.1"', 'radius="thick"')
    with pytest.raises(rbd.RobotDescriptionError, match=r"<string>:7: <cylinder> radius='thick'"):
        read_visuals(bad)
    model = rbd.load_urdf(URDF)
    parts = parts_of_visuals(model, [box, cylinder, sphere])
    assert [p.body for p in parts] == [-1, 0, 0]
    along = parts[1].vertices  # the cylinder's axis is −y in the arm, its middle 0.5 below
    np.testing.assert_allclose([along.min(0), along.max(0)], [[-0.1, -0.5, -0.6], [0.1, 0.5, -0.4]])
    assert parts[2].opacity == 0.5 and parts[2].color == (0, 0, 255)


@pytest.mark.parametrize("robot", ["ur5_robot", "talos_full_v2", "panda", "hyq_no_sensors"])
def test_meshes_lie_where_pinocchio_puts_them(robot):
    """The extent of the visuals of each body, in the frame of its joint."""
    pin = pytest.importorskip("pinocchio")
    robots = rbd.example_robots()
    if robot not in robots:
        pytest.skip("example-robot-data is not installed")
    path = robots[robot]
    model = rbd.load_urdf(path)
    folder = next(p for p in path.parents if p.name == "example-robot-data").parent
    theirs = pin.buildModelFromUrdf(str(path))
    shapes = pin.buildGeomFromUrdf(theirs, str(path), pin.GeometryType.VISUAL, [str(folder)])
    expected: dict[str, list] = {}
    for shape in shapes.geometryObjects:
        if hasattr(shape.geometry, "vertices"):
            points = np.array(shape.geometry.vertices())
        else:
            shape.geometry.computeLocalAABB()
            box = shape.geometry.aabb_local
            points = np.array(np.meshgrid(*zip(box.min_, box.max_, strict=True))).reshape(3, -1).T
        placed = points @ np.array(shape.placement.rotation).T + np.array(
            shape.placement.translation
        )
        expected.setdefault(theirs.names[shape.parentJoint], []).append(placed)
    parts: dict[str, list] = {}
    for visual in read_visuals(path):
        for part in parts_of_visuals(model, [visual]):
            name = model.joint_names[part.body] if part.body >= 0 else "universe"
            parts.setdefault(name, []).append(part.vertices)
    assert set(parts) == set(expected) and len(parts) > 5
    for name, points in expected.items():
        found, placed = np.concatenate(parts[name]), np.concatenate(points)
        np.testing.assert_allclose(found.min(0), placed.min(0), atol=2e-5, err_msg=name)
        np.testing.assert_allclose(found.max(0), placed.max(0), atol=2e-5, err_msg=name)


def test_skeleton_draws_the_box_of_equal_inertia():
    model = rbd.samples.quadruped()
    parts = skeleton(model)
    trunk = [p for p in parts if p.body == 0]
    np.testing.assert_allclose(sorted(np.ptp(trunk[1].vertices, axis=0)), [0.15, 0.3, 0.6])
    thigh = [p for p in parts if p.body == model.body_names.index("lf_thigh")][1]
    np.testing.assert_allclose(thigh.vertices[:, 2].min(), -0.3)  # a rod of 0.3 m that hangs
    np.testing.assert_allclose(thigh.vertices[:, 2].max(), 0, atol=within(1e-12, 1e-6))


def browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.mark.slow
def test_a_browser_draws_the_robot_where_it_is():
    """A pinhole camera says where the bob of a pendulum has to be seen."""
    if browser() is None:
        pytest.skip("no chromium on this machine")
    model = rbd.samples.pendulum()
    q = np.array([[0.0], [0.7], [-0.5]])
    with rbd.view(model, q, f_ext=None, port=18080) as viewer:
        viewer.pause()
        command = [browser(), "--headless=new", "--no-sandbox", "--use-angle=swiftshader",
                   "--enable-unsafe-swiftshader", "--window-size=500,400", viewer.url]  # fmt: skip
        window = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 90
            while not viewer.server.get_clients() and time.monotonic() < end:
                time.sleep(0.2)
            (client,) = viewer.server.get_clients().values()
            look = {"position": (0.0, -4.0, 0.0), "fov": 0.6}  # towards y, the picture's up is z
            turned = Rotation.from_matrix(np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]))
            look["wxyz"] = tuple(turned.as_quat(scalar_first=True))
            for k in (1, 2):
                viewer.show(k)
                time.sleep(0.5)
                for _ in range(2):  # the first one may still wait for shaders
                    picture = client.get_render(300, 300, timeout=120.0, **look)
                dark = picture[..., :3].astype(float).sum(-1) < 500
                rows, columns = np.nonzero(dark)
                assert len(rows) > 20
                f = 150 / np.tan(0.3)
                tip = np.array([-np.sin(q[k, 0]), -np.cos(q[k, 0])])  # x and z of the bob
                seen = 150 + f * tip[0] / 4, 150 - f * tip[1] / 4
                far = np.hypot(columns - seen[0], rows - seen[1])
                assert far.min() < 12, (seen, far.min())
                middle = 150 + f * tip[0] / 8, 150 - f * tip[1] / 8  # of the rod
                assert abs(np.median(columns) - middle[0]) < 20
        finally:
            window.terminate()
            window.wait()


def test_poses_of_the_world_are_the_identity():
    model = rbd.samples.pendulum()
    poses = poses_of(model, np.zeros((2, 3, 1)))
    np.testing.assert_array_equal(poses.position[:, :, -1], 0)
    np.testing.assert_array_equal(poses.R[:, :, -1], np.broadcast_to(np.eye(3), (2, 3, 3, 3)))
