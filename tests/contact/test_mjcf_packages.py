"""Scenes of this repository, and of a folder of packages if there is one, against MuJoCo."""

import os
from pathlib import Path

import pytest
from support.scenes import EQUALITIES, everything

mujoco = pytest.importorskip("mujoco")

FOLDER = os.environ.get("RBD_JAX_MJCF")
"""A folder with unpacked packages, see ``python -m benchmarks mjcf``; none by default."""


def scenes():
    """``(name, XML or path)``."""
    from benchmarks import mjcf
    from benchmarks._ground import QUADRUPED

    yield "quadruped", QUADRUPED
    yield "everything", everything('cone="elliptic"', "cylinder", EQUALITIES)
    for path in mjcf.files(Path(FOLDER)) if FOLDER else ():
        yield mjcf.title(path, Path(FOLDER or "")), path


@pytest.mark.slow
@pytest.mark.parametrize(("name", "source"), list(scenes()))
def test_steps_and_sensors_are_mujocos(name, source):
    """One step to 1e-8, 50 steps to 1e-5, sensors to 1e-10, with both cones and two integrators.

    Larger errors count as agreement only where MuJoCo, moved by 1e-12, is as far from itself.
    """
    import rbd_jax as rbd
    from benchmarks import mjcf
    from rbd_jax.io.mjcf import compile_mjcf

    for other in (False, True):
        try:
            m = compile_mjcf(source)
        except rbd.RobotDescriptionError:
            pytest.skip("MuJoCo refuses the file")
        dropped, _ = mjcf.stopped(m, mujoco)
        if m.nv == 0 or dropped:
            pytest.skip(f"nothing in it moves, or it has what is not supported: {dropped}")
        if other:
            mjcf.other_options(m, mujoco)
        found = mjcf.pushed(m, mujoco, rbd.contact.scene_of(m))
        assert mjcf.agrees(found), found
        assert mjcf.near_enough(found, "sensors", mjcf.SENSED), found
