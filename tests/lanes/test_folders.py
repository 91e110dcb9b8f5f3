"""The folders of lanes: imports between them go in one direction, and lanes need no other room."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rbd_jax.lanes  # noqa: F401

PACKAGE = Path(sys.modules["rbd_jax.lanes"].__file__).resolve().parent
# From the ground up: single files, the folders of the pipeline, and the files that use them all.
# A part may use the parts that stand before it.
ORDER = (
    "_jax_internals", "_failures", "_progress",
    "ir", "primitive", "frontend", "llvm", "xla", "cpu", "gpu",
    "_sharding", "_lowering", "_api", "_report", "__init__",
)  # fmt: skip
APART = {("primitive", "ir"), ("llvm", "frontend"), ("llvm", "primitive"), ("gpu", "cpu")}
"""Parts of which the first does not use the second, although it stands behind it."""


def part(path: Path, package: Path) -> str:
    """The folder of a file, or the file itself if it is in none."""
    return path.relative_to(package).with_suffix("").parts[0]


def uses(package: Path) -> set[tuple[str, str]]:
    """Which part imports from which, at the top of a file, in a function or for types alone."""
    found = set()
    for path in package.rglob("*.py"):
        here = path.relative_to(package).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = here[: len(here) - node.level + 1]
                assert node.level <= len(here) + 1, f"{path} imports what is outside of lanes"
                base += tuple(node.module.split(".")) if node.module else ()
                targets = [(*base, a.name)[0] for a in node.names]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names]
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
                assert not any(n.split(".")[0] == "rbd_jax" for n in names), path
                continue
            else:
                continue
            found |= {(part(path, package), target) for target in targets}
    return {(a, b) for a, b in found if a != b}


def problems(package: Path) -> list[str]:
    """What breaks the order, one sentence each."""
    found = []
    for a, b in sorted(uses(package)):
        if ORDER.index(b) > ORDER.index(a) or (a, b) in APART:
            found.append(f"{a} imports from {b}")
    return found


def test_imports_go_in_one_direction():
    parts = {part(p, PACKAGE) for p in PACKAGE.rglob("*.py")}
    assert parts == set(ORDER)
    assert problems(PACKAGE) == []


@pytest.mark.parametrize("text", [
    "from ..cpu import _kernel", "def f():\n    from ..cpu._kernel import kernel_text",
    "from .. import _api",
])  # fmt: skip
def test_what_breaks_the_order_is_found(text, tmp_path):
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "_a.py").write_text(text)
    assert len(problems(tmp_path)) == 1


@pytest.mark.parametrize("text", ["from ...spatial import se3", "import rbd_jax.spatial"])
def test_another_room_is_found(text, tmp_path):
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "_a.py").write_text(text)
    with pytest.raises(AssertionError):
        uses(tmp_path)


ALONE = """
import sys
import jax, jax.numpy as jnp
import alone
f = alone.lanes(lambda x: jnp.sin(x) * x[0], strict=True)
x = jnp.linspace(0, 1, 60).reshape(20, 3)
print(bool(jnp.allclose(jax.vmap(f)(x), jnp.sin(x) * x[:, :1], atol=1e-6)),
      [r.width for r in alone.report(jax.vmap(f), x)],
      [m for m in sys.modules if m.split(".")[0] == "rbd_jax"])
"""


def test_a_copy_of_the_folder_is_a_package(tmp_path):
    """It compiles a function where the rest of the library is missing."""
    pytest.importorskip("llvmlite")
    shutil.copytree(PACKAGE, tmp_path / "alone", ignore=shutil.ignore_patterns("__pycache__"))
    env = os.environ | {"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("True [") and done.stdout.endswith("] []\n")


README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def test_the_page_that_follows_a_program():
    """The Python of the README runs from top to bottom, and prints what the page shows."""
    pytest.importorskip("llvmlite")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", README, re.M | re.S))
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent.parent), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (read,) = re.findall(r"^```text\n(\[<uniform.*?)^```", README, re.M | re.S)
    assert read in done.stdout
    assert "(1000,) ((True,), (False,))\n" in done.stdout


def test_the_readme_names_files_that_exist():
    """Each file of a folder stands in the table of folders, and only such files do."""
    table = dict(re.findall(r"^\| `(\w+)/` \|(.*)$", README, re.M))
    for folder, line in table.items():
        files = {p.stem for p in (PACKAGE / folder).glob("_*.py")} - {"__init__"}
        assert set(re.findall(r"`(_\w+)`", line)) == files, folder
    for folder, name in re.findall(r"`(\w+)/(_\w+)", README):
        assert (PACKAGE / folder / f"{name}.py").exists(), name
