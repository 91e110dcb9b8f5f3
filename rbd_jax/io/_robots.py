"""Real robots to try the library on: the URDFs of the package ``example-robot-data``."""

import sys
import sysconfig
from pathlib import Path

_BELOW = Path("share", "example-robot-data", "robots")
_REMEDY = "install the robots with `pip install rbd-jax[robots]`"


def _folder() -> Path | None:
    sites = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}
    places = [Path(site, "cmeel.prefix") for site in sorted(sites) if site] + [Path(sys.prefix)]
    return next((p / _BELOW for p in places if (p / _BELOW).is_dir()), None)


def example_robots() -> dict[str, Path]:
    """Path of every installed example robot by its short name, the file's name without ``.urdf``.

    Empty if the package ``example-robot-data`` (a wheel of the ``robots`` extra) is not installed.
    """
    folder = _folder()
    paths = sorted(folder.rglob("*.urdf")) if folder else []
    robots: dict[str, Path] = {}
    for path in paths:
        robots[path.stem if path.stem not in robots else f"{path.parts[-3]}/{path.stem}"] = path
    return robots


def example_robot(name: str) -> Path:
    """Path of one example robot, as in ``load_urdf(example_robot("talos_full_v2"))``.

    Raises:
        FileNotFoundError: if the package is not installed or has no such robot.
    """
    robots = example_robots()
    if not robots:
        raise FileNotFoundError(
            f"no example robot {name!r}: example-robot-data is missing; {_REMEDY}"
        )
    if name not in robots:
        raise FileNotFoundError(f"no example robot {name!r}; there are: {', '.join(robots)}")
    return robots[name]
