"""The README's Python blocks run as they stand, in order; its commands name what exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.M | re.S)


@pytest.mark.slow  # CI runs it with the notebooks
def test_snippets():
    """In a process of its own: with JAX's default settings, as a reader would run them."""
    code = "\n".join(blocks("python"))
    assert "forward_dynamics" in code
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(README.parent / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | cache
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "µs per forward dynamics" in done.stdout


def test_commands():
    text = "\n".join(blocks("bash"))
    assert '".[demo]"' in text and "rbd-jax demo" in text
    assert '".[test]"' in text and "-m pytest" in text
