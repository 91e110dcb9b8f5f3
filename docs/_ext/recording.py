"""Puts a recording of the viewer beside the pages: robots that move without a server."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from sphinx.application import Sphinx

import rbd_jax as rbd

NAME = "recording.html"


def record(app: Sphinx, exception: Exception | None) -> None:
    """Sixteen double pendulums that start almost alike, as a page of their own."""
    if exception is not None or app.builder.format != "html":
        return
    page = Path(app.outdir, NAME)
    if page.exists():
        return
    model = rbd.samples.double_pendulum()
    starts = jnp.stack([jnp.linspace(2.6, 2.64, 16), jnp.full((16,), 0.5)], axis=1)

    def path(q0):
        still = jnp.zeros((200, model.nv))
        return rbd.rollout(model, q0, jnp.zeros(2), still, 0.04, integrator="rk4", substeps=4)

    paths = jax.jit(jax.vmap(path))(starts)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    with rbd.view(model, paths, spacing=2.5) as viewer:
        viewer.as_html(page, fps=25)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("build-finished", record)
    return {"parallel_read_safe": True}
