"""The command line ``rbd-jax``. It needs the extra ``cli``."""

import importlib.util
import os
import sys

_NEEDS = ("typer", "rich", "matplotlib", "optax")


def main() -> None:
    """Entry point of the ``rbd-jax`` command. If a package is missing, it says what to install."""
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        sys.exit(f'rbd-jax: {names} not installed. Run: pip install "rbd-jax[cli]"')
    if sys.stderr.isatty():
        os.environ.setdefault("RBD_JAX_PROGRESS", "1")
    from ._app import COMMANDS, application

    named = [name for name in sys.argv[1:2] if name in COMMANDS]
    application(*(named or COMMANDS))()
