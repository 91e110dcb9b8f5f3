"""Pictures of robots and scenes as arrays, and films of their motions as files.

They need no display, no browser and no graphics card.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from ..contact import Scene
from ..io.visuals import Visual, read_visuals
from ..model import CoordinateModel, Model
from ..model.arguments import check_number
from .motion import Motion, Poses, poses_of, read_motion
from .raster import OPENING, Camera, background, draw
from .scene import grid
from .shapes import Part, parts_of_shapes, parts_of_visuals, skeleton

Picture = UInt8[np.ndarray, "h w 3"]


def render(
    what: Model | Scene,
    q: Any = None,
    *,
    size: tuple[int, int] = (360, 480),
    urdf: str | os.PathLike | None = None,
    visuals: Iterable[Visual] | None = None,
    package_dirs: Iterable[str | os.PathLike] = (),
    azimuth: float = -36.0,
    elevation: float = 18.0,
    distance: float | None = None,
    look_at: Any = None,
    spacing: float | None = None,
) -> Picture:
    """A picture of a robot or of a scene as an array of pixels.

    A scene is drawn by its contact shapes, and a robot as by :func:`rbd_jax.view`: by the visual
    shapes of ``urdf``, or as a skeleton without it. It is drawn in NumPy, without a display, a
    browser or a graphics card, by a depth buffer with flat shading: no textures and no shadows.

    Args:
        what: the robot or the scene.
        q: configuration (nq,), or several robots (n, nq). None for the neutral one, or the one in
            which a file places the bodies of a scene.
        size: height and width of the picture in pixels.
        urdf: the URDF that the model was loaded from, for its shapes.
        visuals: shapes on frames of the robot, instead of those of a URDF.
        package_dirs: folders that contain the packages of ``package://`` mesh files.
        azimuth: where the camera is, about the vertical; 0 is on the side of +x, 90 of +y (°).
        elevation: how high the camera is (°), from −90 to 90.
        distance: from the camera to ``look_at``; what is drawn fills the picture if None (m).
        look_at: the middle of the picture (3,) (m); the middle of what is drawn if None.
        spacing: distance between several robots, as for :func:`rbd_jax.view` (m).

    Returns:
        Red, green and blue, 0 … 255, (height, width, 3).

    Raises:
        ImportError: without trimesh (extra ``view``).
        ValueError: for q of another shape or not finite, and for urdf or visuals of a scene.
    """
    if q is not None:
        q = np.asarray(q)
        q = q[:, None] if q.ndim == 2 else q
    how = azimuth, elevation, distance, look_at
    stage = _stage(what, q, urdf, visuals, package_dirs, spacing)
    return next(_pictures(stage, [0], size, how))


def film(
    what: Model | Scene,
    trajectory: Any,
    path: str | os.PathLike,
    *,
    fps: int = 30,
    speed: float = 1.0,
    size: tuple[int, int] = (360, 480),
    urdf: str | os.PathLike | None = None,
    visuals: Iterable[Visual] | None = None,
    package_dirs: Iterable[str | os.PathLike] = (),
    azimuth: float = -36.0,
    elevation: float = 18.0,
    distance: float | None = None,
    look_at: Any = None,
    spacing: float | None = None,
) -> Path:
    """A film of a motion as a file, drawn as by :func:`rbd_jax.render`.

    Args:
        what: the robot or the scene.
        trajectory: as for :func:`rbd_jax.view`: configurations (T, nq) or (B, T, nq), a
            trajectory, an episode, a solution, a mapping, or a ``.npz`` file.
        path: the file; its ending is ``.gif`` or ``.mp4``. An MP4 needs the program ``ffmpeg``, or
            the package ``imageio-ffmpeg``, which contains it.
        fps: pictures a second. A GIF counts in hundredths of a second, so that 30 becomes 33.
        speed: how many seconds of the motion pass in a second of the film.
        size: height and width in pixels, even numbers for an MP4.
        urdf: as for :func:`rbd_jax.render`, like all other arguments.

    Returns:
        The path of the file.

    Raises:
        ValueError: for another ending, and as :func:`rbd_jax.render`.
        ImportError: without trimesh, or without Pillow for a GIF (extra ``view``).
        FileNotFoundError: for an MP4 without ffmpeg.
    """
    path = Path(path)
    writers = {".gif": _write_gif, ".mp4": _write_mp4}
    if path.suffix.lower() not in writers:
        raise ValueError(f"film: {path.name!r} must end with {' or '.join(writers)}")
    for name, value in (("fps", fps), ("speed", speed)):
        check_number("film", name, value, positive=True)
    stage = _stage(what, trajectory, urdf, visuals, package_dirs, spacing)
    t = stage.motion.t
    now = np.arange(t[0], t[-1] + 0.5 * speed / fps, speed / fps)
    samples = np.searchsorted(t, now + 1e-9, side="right") - 1
    how = azimuth, elevation, distance, look_at
    writers[path.suffix.lower()](path, _pictures(stage, samples, size, how), fps)
    return path


class _Stage(NamedTuple):
    """What is drawn: shapes on bodies, and where these are."""

    motion: Motion
    poses: Poses
    parts: list[Part]
    offsets: Float[np.ndarray, "B 3"]
    """Where each robot of a batch stands (m)."""
    low: Float[np.ndarray, "3"]
    """The corner of the box around all that is drawn, over all times (m)."""
    high: Float[np.ndarray, "3"]
    floor: float | None
    """The height of the floor (m)."""


def _stage(what, trajectory, urdf, visuals, package_dirs, spacing) -> _Stage:
    if isinstance(what, Scene):
        if urdf is not None or visuals is not None:
            raise ValueError("render: a scene is drawn by its own shapes, without urdf and visuals")
        model, shapes = what.model, what.contacts.shapes
        parts = parts_of_shapes(model, shapes)
        trajectory = what.q0 if trajectory is None else trajectory
    else:
        model, shapes = what, None
        if urdf is not None and visuals is not None:
            raise ValueError("render: give urdf or visuals, not both")
        if urdf is not None:
            visuals = read_visuals(urdf, package_dirs)
        robot = model.robot if isinstance(model, CoordinateModel) else model
        parts = parts_of_visuals(robot, visuals or ()) or skeleton(robot)
    motion = read_motion(model, trajectory)
    poses = poses_of(model, motion.q)
    boxes = [_box(part, poses) for part in parts if len(part.vertices)]
    if not boxes:
        raise ValueError(f"render: robot {model.topology.name!r} has nothing to draw")
    low = np.min([x for x, _ in boxes], axis=0)  # of each robot, (B, 3)
    high = np.max([x for _, x in boxes], axis=0)
    size = float(np.linalg.norm((high - low)[0]))
    offsets = grid(len(motion.q), (size or 1.0) if spacing is None else spacing)
    low, high = (low + offsets).min(axis=0), (high + offsets).max(axis=0)
    floor = float(low[2])
    if shapes is not None:
        planes = [k for k, kind in enumerate(shapes.kinds) if kind == "plane"]
        flat = [float(shapes.p[k, 2]) for k in planes if float(shapes.R[k, 2, 2]) > 0.999]
        floor = max(flat, default=None)
    return _Stage(motion, poses, parts, offsets, low, high, floor)


def _box(part: Part, poses: Poses) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the box around a part in the world, over all times, (B, 3) each."""
    v = part.vertices
    pick = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T
    corners = np.where(pick, v.max(axis=0), v.min(axis=0))
    at = np.einsum("btij,kj->btki", poses.R[:, :, part.body], corners)
    at = at + poses.position[:, :, part.body][:, :, None]
    return at.min(axis=(1, 2)), at.max(axis=(1, 2))


def _pictures(stage: _Stage, samples, size, how) -> Iterator[Picture]:
    azimuth, elevation, distance, look_at = how
    middle = 0.5 * (stage.low + stage.high) if look_at is None else np.asarray(look_at, float)
    radius = 0.5 * float(np.linalg.norm(stage.high - stage.low)) or 1.0
    if distance is None:
        distance = 0.9 * radius / np.sin(np.deg2rad(0.5 * OPENING))
    a, e = np.deg2rad(azimuth), np.deg2rad(elevation)
    toward = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
    camera = Camera(middle + distance * toward, middle)
    tile = 10.0 ** np.floor(np.log10(radius))
    floor = None if stage.floor is None else (stage.floor, tile)
    behind = background(camera, floor, size)
    robots, counts = range(len(stage.offsets)), [len(x.vertices) for x in stage.parts]
    starts = np.cumsum([0, *counts])[:-1]
    faces = np.concatenate([x.faces + k for x, k in zip(stage.parts, starts, strict=True)])
    faces = np.concatenate([faces + b * sum(counts) for b in robots])
    tints = [np.tile(np.array(x.color, float), (len(x.faces), 1)) for x in stage.parts]
    colors = np.concatenate(tints * len(stage.offsets))
    for k in samples:
        vertices = np.concatenate([
            x.vertices @ stage.poses.R[b, k, x.body].T
            + stage.poses.position[b, k, x.body] + stage.offsets[b]
            for b in robots for x in stage.parts
        ])  # fmt: skip
        yield draw(camera, behind, vertices, faces, colors, size)


def _write_gif(path: Path, pictures: Iterator[Picture], fps: int) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('film needs Pillow for a GIF: pip install "rbd-jax[view]"') from error
    first, *rest = (Image.fromarray(x) for x in pictures)
    lasts = max(10 * round(100 / fps), 20)  # ms; browsers do not show less than 20
    first.save(path, save_all=True, append_images=rest, duration=lasts, loop=0)


def _write_mp4(path: Path, pictures: Iterator[Picture], fps: int) -> None:
    program = shutil.which("ffmpeg")
    if program is None:
        try:
            import imageio_ffmpeg  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise FileNotFoundError(
                "film: an MP4 needs the program ffmpeg; install it, or run: pip install "
                "imageio-ffmpeg, or write a .gif"
            ) from None
        program = imageio_ffmpeg.get_ffmpeg_exe()
    first = next(pictures)
    h, w = first.shape[:2]
    if h % 2 or w % 2:
        raise ValueError(f"film: an MP4 has an even height and width, got {h} and {w}")
    command = [
        program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{w}x{h}", "-r", str(fps), "-i", "-", "-pix_fmt", "yuv420p", str(path),
    ]  # fmt: skip
    data = b"".join(x.tobytes() for x in (first, *pictures))
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"film: ffmpeg failed: {done.stderr.decode(errors='replace').strip()}")
