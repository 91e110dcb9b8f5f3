"""The viewer: a server that a browser looks at. Needs viser."""

import contextlib
import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..model import Model
from .motion import Arrows, Motion, Poses
from .player import Player
from .scene import Scene
from .shapes import Part


class Viewer:
    """A served scene of one or several robots; in a notebook it shows itself.

    Open ``viewer.url`` in a browser. Leave a ``with`` block, or call ``stop()``, to end the server.
    """

    def __init__(
        self,
        model: Model,
        motion: Motion,
        poses: Poses,
        parts: list[Part],
        frames: tuple[int, ...],
        forces: Arrows | None,
        contacts: Arrows | None,
        spacing: float | None,
        host: str,
        port: int,
    ):
        try:
            import viser
        except ImportError as error:
            raise ImportError('view needs viser; run: pip install "rbd-jax[view]"') from error
        self._motion, self._host = motion, host
        title = model.topology.name
        with _silence():
            self.server: Any = viser.ViserServer(host, port, label=title, verbose=False)
        drawn = parts, frames, forces, contacts, spacing
        self._scene = Scene(self.server, model, motion, poses, *drawn)
        self._player = Player(self.server, motion, self._scene)

    @property
    def url(self) -> str:
        """Where the scene is served."""
        return f"http://{self._host}:{self.server.get_port()}"

    @property
    def index(self) -> int:
        """The number of the sample that is shown."""
        return self._player.index

    def play(self) -> None:
        """Let time pass, from the sample that is shown."""
        self._player.play()

    def pause(self) -> None:
        """Stand still."""
        self._player.pause()

    def show(self, k: int) -> None:
        """Pause, and show the sample ``k``. Raises IndexError if there is none."""
        self._player.pause()
        self._player.show(k)

    def as_html(self, path: str | Path | None = None, *, fps: float | int = 30) -> str:
        """A web page with the motion inside, which needs no server and no network.

        Args:
            path: where to write the page too; None for nowhere.
            fps: pictures a second of the recording.

        Returns:
            The text of the page; about 1 MB more than the meshes and the motion.
        """
        was, k, t = self._player.playing, self.index, self._motion.t
        self._player.pause()
        self._player.show(0)
        record = self.server.get_scene_serializer()
        if len(t) > 1:
            for now in np.arange(t[0], t[-1] + 0.5 / fps, 1 / fps):
                self._scene.show(int(np.searchsorted(t, now + 1e-9, side="right")) - 1)
                record.insert_sleep(1 / fps)
        page = record.as_html()
        self._player.show(k)
        if was:
            self._player.play()
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def wait(self) -> None:
        """Serve until the program is interrupted (Ctrl-C), then stop."""
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """End the server."""
        self._player.stop()
        with _silence():
            self.server.stop()

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _repr_html_(self) -> str:
        style = "width:100%;height:480px;border:1px solid #ddd"
        return f'<iframe src="{self.url}" style="{style}"></iframe>'


def _silence():
    """Hide what viser prints about its server."""
    return contextlib.redirect_stdout(io.StringIO())
