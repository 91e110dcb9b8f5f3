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
def test_with_and_without_contact(name, source):
    """Dynamics without contact to 1e-10; one step to 1e-8, 100 steps to 1e-5, both cones.

    Larger errors count as agreement only where MuJoCo, moved by 1e-12, is as far from itself.
    """
    from benchmarks import mjcf

    def compiled():
        if isinstance(source, Path):
            return mjcf.compiled(source, floor=True)[0]
        return mujoco.MjModel.from_xml_string(source)

    m = compiled()
    if m is None or m.nv == 0:
        pytest.skip("MuJoCo refuses the file, or nothing in it moves")
    scene, dropped, _ = mjcf.scene_of(m, mujoco)
    if set(dropped) - {"collision of these shapes"}:
        pytest.skip(f"it has what is not supported: {dropped}")
    errors = mjcf.unconstrained(scene, m, mujoco)
    assert max(errors.values()) < 1e-10, errors
    for other in (False, True):
        m = compiled()
        if other:
            mjcf.other_options(m, mujoco)
        found = mjcf.pushed(m, mujoco, mjcf.scene_of(m, mujoco)[0])
        if found["notes"] == mjcf.UNKNOWN:
            pytest.skip(mjcf.UNKNOWN)
        assert mjcf.agrees(found), found
