"""``rbd-jax demo``: the command, its stages, the scenarios, the landing and the picture."""

from ._command import demo as demo
