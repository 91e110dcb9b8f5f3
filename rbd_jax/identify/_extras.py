"""Libraries that only identification needs, imported when they are."""

import importlib
from typing import Any


def extra(name: str) -> Any:
    """The module, or an ImportError that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f"identification needs {package}: pip install 'rbd-jax[identify]'"
        ) from error
