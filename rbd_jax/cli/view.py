"""``rbd-jax view``: a robot and its motions in the browser."""

import importlib.util
import webbrowser
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from . import _robots
from ._show import console


def view(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    trajectory: Annotated[
        Path | None,
        typer.Argument(help="What rollout or optimize saved (.npz). None: one configuration."),
    ] = None,
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    robots: Annotated[int, typer.Option(help="At most so many motions of a batch.", min=1)] = 16,
    spacing: Annotated[
        float | None, typer.Option(help="Distance between them (m); 0: all in one place.", min=0)
    ] = None,
    frames: Annotated[bool, typer.Option(help="Draw the frames of all links.")] = False,
    skeleton: Annotated[bool, typer.Option(help="A skeleton instead of the meshes.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page that needs no server, and end.")
    ] = None,
    port: Annotated[int, typer.Option(help="First port to try.", min=1, max=65535)] = 8080,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Show a robot in the browser, at rest or in the motions of a file. Needs the extra view."""
    missing = [name for name in ("viser", "trimesh") if importlib.util.find_spec(name) is None]
    if missing:
        _robots.fail(f'{", ".join(missing)} not installed; run: pip install "rbd-jax[view]"')
    from .. import view as show
    from ..view.motion import read_motion

    _robots.writable(html)
    loaded, out = _robots.load(robot, floating_base), console()
    try:
        motion = read_motion(loaded.model, trajectory)
    except (ValueError, OSError) as error:
        hint = "" if floating_base else "; a robot that floats needs --floating-base"
        _robots.fail(f"{error}{hint}")
    shown, urdf = motion.q[:robots], None if skeleton else loaded.path
    viewer = show(loaded.model, {"t": motion.t, "q": np.asarray(shown)}, urdf=urdf,
                  frames=frames, spacing=spacing, port=port)  # fmt: skip
    if html is not None:
        page = viewer.as_html(html)
        viewer.stop()
        out.print(f"[green]✔[/] {html}: {len(page) / 1e6:.1f} MB", highlight=False)
        return
    times = f"{len(motion.t)} samples of {motion.t[-1]:.3g} s" if len(motion.t) > 1 else "at rest"
    out.print(f"{len(shown)} of {len(motion.q)} motions, {times}", highlight=False)
    out.print(f"[green]✔[/] {viewer.url} (Ctrl-C ends it)", highlight=False)
    if browser:
        webbrowser.open(viewer.url)
    viewer.wait()
