"""Programs in processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import gc, os, sys
import jax, jax.numpy as jnp, numpy as np
from rbd_jax.lanes import lanes
from rbd_jax.lanes.xla import _kernel_registry
from rbd_jax.lanes.llvm import _compiler

def f(x):
    return jnp.sin(x) * 2 + jnp.sum(x)

x = jnp.arange(60, dtype=jnp.float32).reshape(20, 3)
right = np.sin(x) * 2 + np.sum(x, 1)[:, None]
"""


def run(program: str, *args: str, begin: str = BEGIN, **environment: str) -> str:
    """What a program prints in a process of its own, which ends well.

    Args:
        program: its text, or the name of a file that ends with ``.py``.
        args: arguments for it.
        begin: what stands before the text.
        environment: variables.
    """
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    text = [program] if program.endswith(".py") else ["-c", begin + textwrap.dedent(program)]
    command = [sys.executable, *text, *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
