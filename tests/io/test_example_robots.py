"""Robots by name: of example-robot-data, and of the package robot_descriptions."""

import sys

import numpy as np
import pytest
from support.recorded import THREE

import rbd_jax as rbd


def test_a_model_and_a_path_by_name():
    if "panda" not in rbd.example_robots():
        pytest.skip("example-robot-data is not installed")
    m = rbd.load_example_robot("panda", floating_base=True)
    path = rbd.example_robot("panda")
    np.testing.assert_array_equal(m.inertia, rbd.load_urdf(path, floating_base=True).inertia)


def test_names_of_robot_descriptions(tmp_path, monkeypatch):
    """The package gives a path; a small one in its place shows what is done with it."""
    with pytest.raises((FileNotFoundError, KeyError), match="no_such_description"):
        rbd.example_robot("no_such_description")
    folder = tmp_path / "robot_descriptions"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "three_description.py").write_text(f"URDF_PATH = {str(tmp_path / 'a.urdf')!r}\n")
    (tmp_path / "a.urdf").write_text(THREE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.startswith("robot_descriptions")]:
        monkeypatch.delitem(sys.modules, name)
    assert rbd.load_example_robot("three_description").joint_names == ("j1", "j2", "j3")
    with pytest.raises(KeyError, match="four_description"):
        rbd.example_robot("four_description")
