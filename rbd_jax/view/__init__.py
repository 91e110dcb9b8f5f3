"""Robots and their motions in a browser, as pictures and as films.

Needs the extra ``view``: viser for the browser, trimesh, and Pillow for films.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..io.visuals import Visual, read_visuals
from ..model import Model
from .film import film as film, render as render

if TYPE_CHECKING:
    from .viewer import Viewer


def view(
    model: Model,
    trajectory: Any = None,
    *,
    urdf: str | os.PathLike | None = None,
    visuals: Iterable[Visual] | None = None,
    package_dirs: Iterable[str | os.PathLike] = (),
    frames: Sequence[str] | bool = (),
    f_ext: Any = None,
    contacts: tuple[Any, Any] | None = None,
    spacing: float | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
) -> "Viewer":
    """Serve a 3D view of a motion to the browser, and return at once.

    A :class:`Model` holds no shapes. With ``urdf=`` the viewer reads the visual meshes and
    primitives of that file. Without it, and for the built-in samples, it draws a skeleton: sticks
    between the joints, and for each body the box that has the body's mass and inertia.

    Args:
        model: the robot.
        trajectory: None for the neutral configuration; configurations (nq,), (T, nq) or
            (B, T, nq); a trajectory, an episode or a solution, batched or not; a mapping with
            ``t`` and ``q``; or the path of a ``.npz`` file from ``rbd-jax rollout`` or ``rbd-jax
            optimize``. Without times, samples are 1/30 s apart.
        urdf: the URDF that the model was loaded from, for its shapes.
        visuals: shapes on frames of the robot, instead of those of a URDF.
        package_dirs: folders that contain the packages of ``package://`` mesh files.
        frames: names of the frames to draw as axes; True for all.
        f_ext: external wrenches (n, f) on the bodies in their frames, (nb, 6), (T, nb, 6) or
            (B, T, nb, 6); their forces are drawn as arrows. An arrow as long as the robot is
            twice its weight.
        contacts: ``(points, forces)`` in the world frame, each (n, 3), (T, n, 3) or (B, T, n, 3);
            drawn as points and arrows.
        spacing: distance between the robots of a batch (m); 0 draws them in one place. By default
            they stand on a square grid, one size of the robot apart.
        host: address to serve at. The default is reached from this machine only.
        port: the first port to try; the next free one is taken.

    Returns:
        The viewer. ``.url`` is its address, ``.as_html()`` makes a page that needs no server,
        ``.wait()`` serves until Ctrl-C, ``.stop()`` ends it. In a notebook it shows itself.

    Raises:
        ImportError: without the extra ``view``.
        ValueError: if a shape is not one of the above, or configurations are not finite.
        KeyError: for frames that the robot does not have.
    """
    from .motion import contact_arrows, poses_of, read_motion, wrench_arrows
    from .shapes import parts_of_visuals, skeleton
    from .viewer import Viewer

    names = model.frame_names if frames is True else frames or ()
    numbers = tuple(model.topology.frame_index(name) for name in names)
    if urdf is not None and visuals is not None:
        raise ValueError("view: give urdf or visuals, not both")
    if urdf is not None:
        visuals = read_visuals(urdf, package_dirs)
    motion = read_motion(model, trajectory)
    poses = poses_of(model, motion.q)
    forces = None if f_ext is None else wrench_arrows(poses, f_ext)
    touches = None if contacts is None else contact_arrows(poses, *contacts)
    parts = parts_of_visuals(model, visuals or ()) or skeleton(model)
    drawn = numbers, forces, touches, spacing
    return Viewer(model, motion, poses, parts, *drawn, host, port)
