"""Robots to try the library on: ``example-robot-data`` and ``robot_descriptions``."""

import difflib
import importlib
import sys
import sysconfig
from pathlib import Path
from typing import Any

from ..model import Model
from ._load import load_urdf

_BELOW = Path("share", "example-robot-data", "robots")
_WHOLE = {"talos": "talos_full_v2", "hyq": "hyq_no_sensors"}
_REMEDY = "install the robots with `pip install rbd-jax[robots]`"


def _folder() -> Path | None:
    sites = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}
    places = [Path(site, "cmeel.prefix") for site in sorted(sites) if site] + [Path(sys.prefix)]
    return next((p / _BELOW for p in places if (p / _BELOW).is_dir()), None)


def example_robots() -> dict[str, Path]:
    """Paths of the installed example robots by short names, the files' names without ``.urdf``.

    It is empty if the package ``example-robot-data`` of the extra ``robots`` is not installed.
    """
    folder = _folder()
    paths = sorted(folder.rglob("*.urdf")) if folder else []
    robots: dict[str, Path] = {}
    for path in paths:
        robots[path.stem if path.stem not in robots else f"{path.parts[-3]}/{path.stem}"] = path
    return robots


def example_robot(name: str) -> Path:
    """Path of one example robot; :func:`load_example_robot` loads it.

    Args:
        name: a name of :func:`example_robots`, or the beginning of one: of several robots the one
            with the shortest name is taken. ``"talos"`` and ``"hyq"`` are the whole robots. A name
            that ends in ``_description`` is one of the package ``robot_descriptions``, which
            downloads the robot when it is asked for the first time.

    Raises:
        FileNotFoundError: if the package is not installed.
        KeyError: if it has no such robot; the message holds the nearest names.
    """
    if name.endswith("_description"):
        return _described(name)
    robots = example_robots()
    if not robots:
        raise FileNotFoundError(
            f"no example robot {name!r}: example-robot-data is missing; {_REMEDY}"
        )
    found = _WHOLE.get(name, name)
    if found not in robots and name:
        found = next((n for n in sorted(robots, key=len) if n.startswith(name)), name)
    if found not in robots:
        near = difflib.get_close_matches(name, robots, n=4, cutoff=0.3) or list(robots)
        raise KeyError(f"no example robot {name!r}; nearest or first of them: {', '.join(near)}")
    return robots[found]


def load_example_robot(name: str, **options: Any) -> Model:
    """The model of one example robot, as in ``load_example_robot("panda")``.

    Args:
        name: see :func:`example_robot`, which returns the path of its file.
        **options: of :func:`load_urdf`, such as ``floating_base=True``.
    """
    return load_urdf(example_robot(name), **options)


def _described(name: str) -> Path:
    """Path of a robot of the package ``robot_descriptions``: its URDF, or else its MJCF."""
    try:
        module = importlib.import_module(f"robot_descriptions.{name}")
    except ModuleNotFoundError as error:
        if error.name == "robot_descriptions":
            raise FileNotFoundError(
                f"no robot {name!r}: run `pip install robot_descriptions`, or take an example robot"
            ) from None
        if error.name == f"robot_descriptions.{name}":
            raise KeyError(f"no robot {name!r} in the package robot_descriptions") from None
        raise
    return Path(getattr(module, "URDF_PATH", None) or module.MJCF_PATH)
