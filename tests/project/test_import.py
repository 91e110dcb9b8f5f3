"""The import of the package alone imports nothing else; names come when they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import rbd_jax as rbd

SOURCE = Path(rbd.__file__)
ALONE = """
import sys
before = set(sys.modules)
import rbd_jax as rbd
found = {m.split(".")[0] for m in set(sys.modules) - before}
assert not found & {"jax", "numpy", "equinox", "llvmlite"}, found
import rbd_jax.lanes.cpu, rbd_jax.view.motion
assert rbd.lanes.__name__ == "lanes" and callable(rbd.lanes) and callable(rbd.view)
from rbd_jax.lanes import report
assert rbd.control.pose is rbd.control.pose and rbd.Model is rbd.model.Model
try:
    rbd.nothing
except AttributeError as error:
    assert "'rbd_jax' has no attribute 'nothing'" in str(error)
"""


def test_the_package_imports_nothing_until_a_name_is_used():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_for_type_checkers_are_those_that_are_imported_later():
    (block,) = (x for x in ast.parse(SOURCE.read_text()).body if isinstance(x, ast.If))
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        seen |= {a.asname: f".{node.module or ''}" for a in node.names}
    rooms = {name for name, home in seen.items() if home == "."}
    assert rooms == set(rbd._ROOMS)
    assert {n: h for n, h in seen.items() if n not in rooms} == rbd._HOME
    for name in seen:
        assert getattr(rbd, name) is not None
