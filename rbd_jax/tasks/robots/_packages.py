"""Folders of packages whose robots are loaded."""

import importlib.util
from pathlib import Path


def package_folder(package: str, missing: str) -> Path:
    """The folder of an installed package, which is found, not imported.

    Args:
        package: its name. missing: the text of the error without it.

    Raises:
        ImportError: if it is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ImportError(missing)
    return Path(found.origin).parent
