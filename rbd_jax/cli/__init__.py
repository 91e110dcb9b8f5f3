"""The command line, ``rbd-jax --help``. Needs the extra ``cli``."""

import importlib.util
import sys

_NEEDS = ("typer", "rich", "matplotlib")


def main() -> None:
    """Entry point of the ``rbd-jax`` command; says in one line what to install if it cannot run."""
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        sys.exit(f'rbd-jax: {names} not installed; run: pip install "rbd-jax[cli]"')
    from ._app import app

    app()
