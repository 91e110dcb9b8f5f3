"""The quadruped of this package that learns to walk."""

import importlib.resources

LEGS = ("FR", "FL", "RR", "RL")


def quadruped_mjcf() -> str:
    """The MJCF of a quadruped of 14 kg that comes with this package."""
    return importlib.resources.files("rbd_jax.tasks.robots").joinpath("quadruped.xml").read_text()
