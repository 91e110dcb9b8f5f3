"""The Markdown pages of the repository: their code, and the names that they mention."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/guide").glob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def run(page: Path) -> str:
    """What the Python of a page prints, run from top to bottom as a reader would run it.

    In a process of its own, with JAX's default settings, in an empty folder.
    """
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    strict = ("XLA_FLAGS", "RBD_JAX_LANES_OPT")  # the tests may have set them for themselves
    kept = {k: x for k, x in os.environ.items() if k not in strict}
    environment = kept | cache | {"PYTHONPATH": path}
    code = "\n".join(blocks(page, "python"))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
