"""Optional libraries, which are imported only when a function needs them."""

import importlib
from typing import Any


def extra(name: str) -> Any:
    """Import a module; the ImportError says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f"identification needs {package}: pip install 'rbd-jax[identify]'"
        ) from error
