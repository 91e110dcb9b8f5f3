"""Pictures and films: what they show is compared with projections by hand and with MuJoCo's."""

import importlib.util
import os
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.view.raster import Camera, background, draw

pytest.importorskip("trimesh")
Image = pytest.importorskip("PIL.Image")

SCENE = """<mujoco><visual><global fovy="40"/></visual><worldbody>
<geom name="table" type="box" size=".2 .3 .1" pos=".5 0 .1"/>
<body pos=".5 0 .3"><freejoint/><geom name="ball" type="sphere" size=".06"/></body>
<body pos="0 0 .4" euler="0 30 40"><joint axis="0 1 0"/>
<geom name="rod" type="capsule" fromto="0 0 0 .3 0 .1" size=".04"/>
<geom name="can" type="cylinder" size=".05 .1" pos="0 -.2 0"/>
<geom name="egg" type="ellipsoid" size=".1 .05 .03" pos="0 .2 0"/></body></worldbody></mujoco>"""

RENDERED = """
import sys
import mujoco, numpy as np
m = mujoco.MjModel.from_xml_string(sys.stdin.read())
d = mujoco.MjData(m)
mujoco.mj_forward(m, d)
camera = mujoco.MjvCamera()
camera.lookat, camera.distance, camera.azimuth, camera.elevation = (.3, 0, .25), 1.8, 144, -18
with mujoco.Renderer(m, 360, 480) as renderer:
    renderer.enable_segmentation_rendering()
    renderer.update_scene(d, camera)
    found = renderer.render()
np.save(sys.argv[1], found[..., 0])
"""


def test_a_picture_shows_what_is_in_front():
    """A red square of 1 m at 5 m, before a larger green one that is nearer on one side only."""
    vertices = np.array([
        [5.0, -0.5, -0.5], [5.0, 0.5, -0.5], [5.0, 0.5, 0.5], [5.0, -0.5, 0.5],
        [9.0, -2.0, -2.0], [3.0, 2.0, -2.0], [3.0, 2.0, 2.0], [9.0, -2.0, 2.0],
    ])  # fmt: skip
    square = np.array([[0, 1, 2], [0, 2, 3]])
    red, green = np.array([255.0, 0, 0]), np.array([0, 255.0, 0])
    camera, size = Camera(np.zeros(3), np.array([1.0, 0, 0])), (200, 300)
    sky = background(camera, None, size)
    alone = draw(camera, sky, vertices, square, np.stack([red] * 2), size)
    at = np.argwhere(alone[..., 1] < 100)
    focal = 100 / np.tan(np.deg2rad(20))
    corner = np.array([100, 150]) - 0.5 * focal / 5
    np.testing.assert_allclose(at.min(axis=0), corner, atol=1)
    np.testing.assert_allclose(at.max(axis=0), np.array([200, 300]) - corner, atol=1.5)
    both = np.concatenate([square, square + 4])
    pair = draw(camera, sky, vertices, both, np.stack([red] * 2 + [green] * 2), size)
    # the green square is at x = 6 − 1.5 y: in front of x = 5 where y > 2/3 · (6 − 5) …
    row = pair[100].astype(int)
    shown = np.flatnonzero(row[:, 0] > row[:, 1] + 50)
    y = (150 - shown - 0.5) * 5 / focal  # left in the picture is +y
    assert y.min() == pytest.approx(-0.5, abs=0.03) and y.max() == pytest.approx(0.5, abs=0.03)
    vertices[4:, 0] -= 1.0  # now x = 5 − 1.5 y: it hides where y > 0
    half = draw(camera, sky, vertices, both, np.stack([red] * 2 + [green] * 2), size)[100]
    shown = np.flatnonzero(half[:, 0].astype(int) > half[:, 1].astype(int) + 50)
    y = (150 - shown - 0.5) * 5 / focal
    assert y.max() == pytest.approx(0, abs=0.03) and y.min() == pytest.approx(-0.5, abs=0.03)


def test_a_scene_is_where_mujoco_sees_it(tmp_path):
    """The pixels of each body are those of MuJoCo's segmentation, where it can draw."""
    pytest.importorskip("mujoco")
    saved = tmp_path / "seen.npy"
    environment = os.environ | {"MUJOCO_GL": "egl"}
    done = subprocess.run(
        [sys.executable, "-c", RENDERED, saved], input=SCENE, text=True, capture_output=True,
        env=environment,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("MuJoCo finds no EGL to draw with")
    ids = np.load(saved)
    ours = rbd.render(rbd.load_mjcf(SCENE), look_at=(0.3, 0, 0.25), distance=1.8).astype(int)
    tints = {  # by the ratio of colors, which shading keeps
        "table": np.array([196, 200, 208]), "ball": np.array([96, 134, 206]),
    }  # fmt: skip
    sky = (ours > 240).all(axis=-1)
    theirs = {"table": ids == 0, "ball": ids == 1, "sky": ids < 0}
    share = ours / ours.sum(axis=-1, keepdims=True)
    far = {name: np.linalg.norm(share - x / x.sum(), axis=-1) for name, x in tints.items()}
    found = {name: (x < 0.01) & ~sky for name, x in far.items()} | {"sky": sky}
    for name, mask in theirs.items():
        both, either = (mask & found[name]).sum(), (mask | found[name]).sum()
        assert both / either > 0.97, name


def test_a_robot_is_drawn_by_its_meshes_and_by_its_skeleton():
    model = rbd.samples.arm()
    q = 0.3 * jnp.arange(1.0, 8.0)
    one = rbd.render(model, q, size=(120, 160))
    assert one.shape == (120, 160, 3) and one.dtype == np.uint8
    moved = rbd.render(model, q.at[1].add(0.5), size=(120, 160))
    assert (np.abs(one.astype(int) - moved).max(axis=-1) > 20).mean() > 0.01
    several = rbd.render(model, jnp.stack([q, q + 0.3]), size=(120, 160), spacing=0)
    assert several.shape == one.shape and (several != one).any()
    with pytest.raises(ValueError, match="not finite"):
        rbd.render(model, q.at[0].set(jnp.nan))


@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_a_film_has_a_picture_for_every_time(tmp_path, ending):
    packed = importlib.util.find_spec("imageio_ffmpeg") is not None
    if ending == "mp4" and not (packed or shutil.which("ffmpeg")):
        with pytest.raises(FileNotFoundError, match="needs the program ffmpeg"):
            rbd.film(rbd.samples.double_pendulum(), jnp.zeros((3, 2)), tmp_path / "no.mp4")
        return
    model = rbd.samples.double_pendulum()
    path = rbd.rollout(
        model, jnp.array([1.0, 0.5]), jnp.zeros(2), jnp.zeros((50, 2)), 0.01
    )  # half a second
    view = {"size": (64, 80), "look_at": (0, 0, 0), "distance": 6.0}
    file = rbd.film(model, path, tmp_path / f"swing.{ending}", fps=20, **view)
    if ending == "gif":
        with Image.open(file) as film:
            assert film.size == (80, 64) and film.n_frames == 11
            assert film.info["duration"] == 50
            film.seek(10)
            last = np.asarray(film.convert("RGB"), int)
        first, wanted = (
            rbd.render(model, q, **view).astype(int) for q in path.q[np.array([0, -1])]
        )
        assert np.abs(last - wanted).mean() < 0.1 * np.abs(first - wanted).mean() + 1.0
    else:
        assert file.stat().st_size > 500
    with pytest.raises(ValueError, match=r"'swing.avi' must end with .gif or .mp4"):
        rbd.film(model, path, tmp_path / "swing.avi")


def test_a_motion_is_plotted_with_the_names_of_the_joints(tmp_path):
    pytest.importorskip("matplotlib")
    model = rbd.samples.double_pendulum()
    path = rbd.rollout(model, jnp.array([1.0, 0.5]), jnp.zeros(2), jnp.ones((20, 2)), 0.01)
    figure = path.plot(model, tmp_path / "motion.png")
    q, v, u = figure.axes
    np.testing.assert_allclose(np.stack([x.get_ydata() for x in q.lines], axis=1), path.q)
    np.testing.assert_allclose(np.stack([x.get_ydata() for x in u.lines], axis=1), path.controls)
    assert [x.get_text() for x in v.get_legend().get_texts()] == list(model.joint_names)
    assert (tmp_path / "motion.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="robot 'arm' has nq = 7"):
        path.plot(rbd.samples.arm())
    with pytest.raises(ValueError, match="takes one motion"):
        type(path)(*(x[None] for x in path[:4])).plot()
