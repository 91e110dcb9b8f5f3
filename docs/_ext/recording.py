"""Puts a recording of the viewer beside the pages: a robot that walks without a server.

The motion is one cycle of a walk in ``walk.npz``, from ``rbd-jax optimize walk --robot hyq``.
Where a browser cannot draw it, ``_static/recording.js`` leaves the picture that is in the page.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from sphinx.application import Sphinx

import rbd_jax as rbd

NAME = "recording.html"
CYCLE = Path(__file__).with_name("walk.npz")


def walk(cycles: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and configurations of several cycles, each of which starts where the last one ended."""
    stored = np.load(CYCLE)
    t, q = stored["t"], stored["q"]
    drift = q[-1] - q[0]
    step = np.eye(q.shape[1])[0] * drift[0]  # forward, along x
    q = q - np.outer(t / t[-1], drift - step)  # the end is the start, a step further
    times = [k * t[-1] + t[:-1] for k in range(cycles)]
    return np.concatenate(times), np.concatenate([q[:-1] + k * step for k in range(cycles)])


def record(app: Sphinx, exception: Exception | None) -> None:
    """HyQ walks, as a page of its own."""
    if exception is not None or app.builder.format != "html":
        return
    page = Path(app.outdir, NAME)
    if page.exists():
        return
    urdf = rbd.example_robot("hyq")
    model = rbd.load_urdf(urdf, floating_base=True)
    t, q = walk(4)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    with rbd.view(model, {"t": t, "q": q}, urdf=urdf) as viewer:
        viewer.as_html(page, fps=25)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("build-finished", record)
    return {"parallel_read_safe": True}
