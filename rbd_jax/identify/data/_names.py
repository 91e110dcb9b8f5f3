"""Columns of tables as ROS and its tools name them, translated into the names of this library."""

import re
from collections.abc import Mapping

import numpy as np

from ...model import Model

_WORDS = {
    "q": ("position", "positions", "pos"), "v": ("velocity", "velocities", "vel"),
    "a": ("acceleration", "accelerations", "acc"),
    "tau": ("effort", "efforts", "torque", "torques"),
    "name": ("name", "names"),
}  # fmt: skip
_TIMES = ("time", "__time", "%time", "timestamp", "t", "stamp")


def translated(
    path, model: Model, header: list[str], rows: list[list[str]], columns: Mapping[str, str] | None
) -> tuple[list[str], list[list[str]]]:
    """Header and rows with the columns that belong to the robot, under the names of this library.

    With ``columns``, those that it names are renamed, and those that have a name of this library
    stay. Otherwise, if no column does, names of ROS are looked for: a column belongs to a quantity
    if its name has a word for it (position, velocity, effort …), and to a joint if it has the name
    of a joint, or a number. The columns ``name0``, ``name.0``, ``name[0]`` or ``name_0`` then say
    which joint has the number, and if there are none, it is the place of the joint in the robot.
    Others are left out.

    Raises:
        ValueError: if a column of ``columns`` is missing, or there are numbers without names and
            their count is not that of the robot's joints.
    """
    if columns is not None:
        if missing := [c for c in columns if c not in header]:
            raise ValueError(f"{path}: there are no columns {missing}; there are {header[:12]}")
        ours = [columns.get(c, c) for c in header]
        keep = [k for k, c in enumerate(ours) if header[k] in columns or _is_ours(c)]
    elif any(_is_ours(c) for c in header if c != "t"):
        return header, rows
    else:
        ours = _from_ros(path, model, header, rows)
        keep = [k for k, c in enumerate(ours) if c]
        if not any(c.startswith("q:") for c in ours):
            return header, rows  # whose reader says what is missing
    return [ours[k] for k in keep], [[row[k] if k < len(row) else "" for k in keep] for row in rows]


def _is_ours(name: str) -> bool:
    return name == "t" or name.partition(":")[0] in ("q", "v", "a", "tau")


def _from_ros(path, model: Model, header: list[str], rows: list[list[str]]) -> list[str]:
    """The new name of each column; empty for one that is not needed."""
    joints = sorted(model.space.joint_names, key=len, reverse=True)
    found: list[tuple[str, str | int | None]] = [_parts(name, joints) for name in header]
    labels = {
        number: rows[0][k].strip()
        for k, (what, number) in enumerate(found)
        if what == "name" and isinstance(number, int) and rows
    }
    numbers = {n for what, n in found if what == "q" and isinstance(n, int)}
    if numbers and not labels:
        names = model.space.joint_names
        if numbers != set(range(len(names))):
            raise ValueError(
                f"{path}: positions are numbered {sorted(numbers)} and no column names the joints, "
                f"but robot {model.topology.name!r} has {len(names)} joints: give the names of "
                "columns by the argument columns, or --columns"
            )
        labels = dict(enumerate(names))
    known, out = set(model.space.joint_names), []
    for what, which in found:
        joint = labels.get(which) if isinstance(which, int) else which
        if what == "t":
            out.append("t" if "t" not in out else "")
        else:
            out.append(
                f"{what}:{joint}" if what in ("q", "v", "a", "tau") and joint in known else ""
            )
    return out


def _parts(name: str, joints: list[str]) -> tuple[str, str | int | None]:
    """The quantity of a column, and its joint or the number of its joint."""
    if name.lower().strip("/") in _TIMES:
        return "t", None
    joint = next(
        (j for j in joints if re.search(rf"(^|[./:\[_]){re.escape(j)}($|[./:\]_])", name)), None
    )
    rest = name if joint is None else name.replace(joint, " ")
    words = [w for w in re.split(r"[^A-Za-z]+", rest.lower()) if w]
    what = next((k for k, those in _WORDS.items() for w in words[::-1] if w in those), "")
    number = re.search(r"(\d+)\]?$", rest)
    return what, joint if joint is not None else int(number[1]) if number else None


def seconds_from(header: list[str], t: np.ndarray) -> np.ndarray:
    """Times that begin at zero. The column ``%time`` of ``rostopic echo -p`` has nanoseconds."""
    t = t - t[:1]
    return 1e-9 * t if any(c.strip() == "%time" for c in header) else t
