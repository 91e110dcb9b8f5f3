"""Play, pause and scrub: the controls beside the scene, and the thread that lets time pass."""

import threading
import time
from typing import Any

import numpy as np

from .motion import Motion
from .scene import Scene

_PERIOD = 1 / 30


class Player:
    """Shows one sample of a motion after the other, in its own time or slower or faster."""

    def __init__(self, server: Any, motion: Motion, scene: Scene):
        self._motion, self._scene = motion, scene
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self.index = 0
        last = len(motion.t) - 1
        gui = server.gui
        self._slider = self._play = self._speed = None
        if last > 0:
            self._slider = gui.add_slider("sample", 0, last, 1, 0)
            self._time = gui.add_text("time (s)", self._clock(), disabled=True)
            self._play = gui.add_checkbox("play", True)
            self._speed = gui.add_slider("speed", 0.05, 4.0, 0.05, 1.0)
            self._slider.on_update(lambda event: self._scrubbed(event))
        for name, handles in scene.layers.items():
            self._add_switch(gui, name, handles)
        self._thread = threading.Thread(target=self._run, name="rbd_jax.view", daemon=True)
        if last > 0:
            self._thread.start()

    @property
    def playing(self) -> bool:
        """Whether time passes."""
        return self._play is not None and bool(self._play.value)

    def play(self) -> None:
        """Let time pass, from the sample that is shown."""
        if self._play is not None:
            self._play.value = True

    def pause(self) -> None:
        """Stand still."""
        if self._play is not None:
            self._play.value = False

    def show(self, k: int) -> None:
        """Show sample ``k``, on the slider too."""
        if not 0 <= k < len(self._motion.t):
            raise IndexError(f"view: no sample {k}; there are 0 to {len(self._motion.t) - 1}")
        with self._lock:
            self.index = k
            self._scene.show(k)
            if self._slider is not None:
                self._time.value = self._clock()
                self._slider.value = k

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _clock(self) -> str:
        return f"{self._motion.t[self.index]:.3f}"

    def _scrubbed(self, event: Any) -> None:
        if event.client is not None and self._slider is not None:  # by a hand, not by show
            self.pause()
            self.show(int(self._slider.value))

    def _add_switch(self, gui: Any, name: str, handles: list[Any]) -> None:
        box = gui.add_checkbox(name, True)

        @box.on_update
        def _(_) -> None:
            for handle in handles:
                handle.visible = box.value

    def _run(self) -> None:
        t = self._motion.t
        began, now = time.perf_counter(), t[0]
        while not self._stopped.wait(_PERIOD):
            passed, began = time.perf_counter() - began, time.perf_counter()
            if not self.playing:
                now = t[self.index]
                continue
            now += passed * float(self._speed.value)  # pyright: ignore[reportOptionalMemberAccess]
            if now > t[-1] + 0.5:  # it stands for half a second before it starts again
                now = t[0]
            k = int(np.searchsorted(t, now, side="right")) - 1
            if k != self.index:
                self.show(max(k, 0))
