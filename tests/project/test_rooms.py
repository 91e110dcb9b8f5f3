"""The rooms of the package: imports go down the list only, take public names, and make no cycle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "rbd_jax"
# From the ground up. A room may use the rooms that stand before it.
ROOMS = (
    "spatial", "lanes", "model", "io", "algorithms", "derivatives", "constraints", "contact",
    "screw", "simulate", "control", "optimize", "identify", "learn", "tasks", "view",
    "cli",
)  # fmt: skip


class Import(NamedTuple):
    """``module`` imports ``target`` (a path of names in the package), at its top or later."""

    module: tuple[str, ...]
    target: tuple[str, ...]
    at_top: bool


def modules(package: Path) -> dict[tuple[str, ...], Path]:
    """Every module of a package by its path of names; a package's is that of its ``__init__``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        names = path.relative_to(package).with_suffix("").parts
        found[names[:-1] if names[-1] == "__init__" else names] = path
    return found


def imports(package: Path) -> list[Import]:
    """All imports between modules of a package, those within functions too."""
    found = []
    for module, path in modules(package).items():
        tree = ast.parse(path.read_text())
        top = {id(x) for x in tree.body}
        here = module if path.name == "__init__.py" else module[:-1]
        for node in ast.walk(tree):
            targets = []
            if isinstance(node, ast.ImportFrom) and node.level:
                base = here[: len(here) - node.level + 1]
                base += tuple(node.module.split(".")) if node.module else ()
                targets = [(*base, a.name) for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == package.name:
                base = tuple(node.module.split(".")[1:])
                targets = [(*base, a.name) for a in node.names]
            elif isinstance(node, ast.Import):
                names = [tuple(a.name.split(".")) for a in node.names]
                targets = [n[1:] for n in names if n[0] == package.name]
            found += [Import(module, target, id(node) in top) for target in targets]
    return found


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def problems(package: Path) -> list[str]:
    """What breaks the rule of the rooms, one sentence each."""
    found = []
    for module, target, _ in imports(package):
        room = module[0] if module else ""
        if room not in ROOMS or target[:1] == (room,):
            continue
        text = f"{'.'.join(module)} imports {'.'.join(target) or 'the whole package'}"
        if room == "cli" and target in (("__version__",), ()):
            continue
        if not target or target[0] not in ROOMS:
            found.append(f"{text}, which is in no room")
        elif ROOMS.index(target[0]) > ROOMS.index(room):
            found.append(f"{text}, a room above its own")
        elif any(map(private, target)):
            found.append(f"{text}, which is private to that room")
    return found


def graph(package: Path) -> dict[tuple, set[tuple]]:
    """Which modules each module needs before it can be executed."""
    known = modules(package)
    needs: dict[tuple, set[tuple]] = {m: set() for m in known}
    for module, target, at_top in imports(package):
        needed = target if target in known else target[:-1]
        if at_top and needed in known and needed != module:
            needs[module].add(needed)
    return needs


def cycle(package: Path) -> list[tuple] | None:
    """Modules that import one another in a circle; None if there are none."""
    try:
        TopologicalSorter(graph(package)).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_rooms_use_the_public_names_of_rooms_below():
    assert problems(PACKAGE) == []


def test_every_folder_is_a_room():
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= set(ROOMS)


def test_no_module_imports_itself_in_a_circle():
    assert cycle(PACKAGE) is None
    # the rooms alone: a room needs no other room that needs it
    rooms = {r: set() for r in ROOMS}
    for module, target, _ in imports(PACKAGE):
        if module and target and {module[0], target[0]} <= set(ROOMS) and module[0] != target[0]:
            rooms[module[0]].add(target[0])
    TopologicalSorter(rooms).prepare()


# From the ground up. A part of the room may use the parts that stand before it.
IDENTIFY = ("_extras", "_progress", "data", "parameters", "linear", "fits", "neural")


def upward(found: list[Import]) -> list[Import]:
    """Imports between the parts of identify that go up."""
    inside = [i for i in found if i.module[:1] == i.target[:1] == ("identify",) and i.module[1:]]
    place = IDENTIFY.index
    return [i for i in inside if place(i.target[1]) > place(i.module[1])]


def test_folders_of_identify_import_in_one_direction():
    assert upward(imports(PACKAGE)) == []
    bad = Import(("identify", "data", "_a"), ("identify", "fits", "_b", "c"), False)
    assert upward([bad]) == [bad]


BREAKS = {
    "upwards": ({"model/a.py": "from ..io import load"}, "a room above its own"),
    "within a function": (
        {"model/a.py": "def f():\n    from ..io.b import load"},
        "a room above its own",
    ),
    "private module": ({"io/a.py": "from ..model._b import c"}, "private to that room"),
    "private name": ({"io/a.py": "from ..model.b import _c"}, "private to that room"),
    "whole package": ({"io/a.py": "from .. import samples"}, "in no room"),
    "absolute": ({"io/a.py": "from rbd_jax.model._b import c"}, "private to that room"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_the_rule_is_found(name, tmp_path):
    files, text = BREAKS[name]
    assert [p for p in problems(_written(tmp_path, files)) if text in p]


FOLDERS = {
    "optimize": ("problems", "linear_quadratic", "solvers", "receding_horizon"),
    "tasks": ("robots", "problems", "environments", "judges"),
}
"""The folders of a room, from the ground up. A folder may use the folders that stand before it."""


@pytest.mark.parametrize("room", FOLDERS)
def test_folders_of_a_room_use_the_folders_below(room):
    order, inside = FOLDERS[room], PACKAGE / room
    assert {p.name for p in inside.iterdir() if p.is_dir() and p.name[0] != "_"} == set(order)
    for module, target, _ in imports(PACKAGE):
        if module[:1] == (room,) and len(module) > 1 and module[1] in order and target[0] == room:
            assert target[1] in order[: order.index(module[1]) + 1], (module, target)


def test_circles_are_found(tmp_path):
    files = {"model/a.py": "from .b import x", "model/b.py": "from . import a"}
    assert cycle(_written(tmp_path, files))
    later = {"model/b.py": "def f():\n    from . import a"}
    assert cycle(_written(tmp_path, later)) is None


def _written(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "rbd_jax"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package
