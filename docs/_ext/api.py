"""Writes the API reference: a page for the top level and one for each room, from what is public.

Every public name is described once, at the shortest path that leads to it. A build fails if one is
missing, so that the reference stays complete without a list of names.
"""

import importlib
import inspect
import pkgutil
import re
import types
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util import logging

import rbd_jax

LOG = logging.getLogger(__name__)
FOLDER = Path(__file__).resolve().parent.parent / "api"
HIDDEN = ("cli",)  # the command line explains itself
ORDER = (
    "io", "model", "algorithms", "derivatives", "constraints", "contact", "simulate", "control",
    "optimize", "identify", "learn", "tasks", "screw", "spatial", "lanes", "view",
)  # fmt: skip
TITLES = {
    "model": "Robots and configurations", "io": "Reading and writing robots",
    "algorithms": "Kinematics and dynamics",
    "derivatives": "Dynamics with derivative rules, explicit derivatives",
    "constraints": "Constraints and impacts", "contact": "Contact", "simulate": "Simulation",
    "control": "Inverse kinematics and controllers",
    "optimize": "Trajectory optimization", "identify": "Identification",
    "learn": "Learning of policies", "tasks": "Ready tasks", "screw": "Screw theory",
    "spatial": "Spatial algebra", "lanes": "Fast batches on CPUs", "view": "The viewer",
}  # fmt: skip


class Entry(NamedTuple):
    """A public name: its path, what it is, and the room whose code defines it."""

    path: str
    value: Any
    room: str


def _room(value: Any) -> str:
    module = getattr(value, "__module__", None) or type(value).__module__
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "rbd_jax" else ""


def _exports(module: types.ModuleType) -> list[tuple[str, Any]]:
    """Public names of a package's ``__init__``, or those that a module defines."""
    names = []
    for name in dict.fromkeys([*vars(module), *dir(module)]):  # dir has what is imported lazily
        value = getattr(module, name)
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        foreign = getattr(value, "__module__", module.__name__) or module.__name__
        inside = foreign.startswith("rbd_jax")
        own = foreign == module.__name__
        if (own and _described(value)) or (hasattr(module, "__path__") and inside):
            names.append((name, value))
    return names


def _described(value: Any) -> bool:
    """Functions and classes have docstrings; what has none is a part of its module."""
    return callable(value) and bool(getattr(value, "__doc__", None)) and hasattr(value, "__name__")


def _modules(room: str) -> list[types.ModuleType]:
    package = importlib.import_module(f"rbd_jax.{room}")
    found = [package]
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found.append(importlib.import_module(info.name))
    return found


def _key(value: Any) -> Any:
    return id(value)


def contents() -> tuple[list[Entry], dict[str, list[tuple[types.ModuleType, list[Entry], list]]]]:
    """Names of the top level; and for each room its modules, with their names and others' names."""
    top, homes = [], {}
    for name, value in _exports(rbd_jax):
        top.append(Entry(f"rbd_jax.{name}", value, _room(value)))
        homes[_key(value)] = f"rbd_jax.{name}"
    rooms = {}
    present = {info.name for info in pkgutil.iter_modules(rbd_jax.__path__) if info.ispkg}
    unknown = sorted(x for x in present - {*ORDER, *HIDDEN} if not x.startswith("_"))
    for room in [r for r in (*ORDER, *unknown) if r in present]:
        rooms[room] = []
        for module in _modules(room):
            mine, elsewhere = [], []
            for name, value in _exports(module):
                path = f"{module.__name__}.{name}"
                if homes.setdefault(_key(value), path) == path:
                    mine.append(Entry(path, value, room))
                else:
                    elsewhere.append((name, homes[_key(value)]))
            rooms[room].append((module, mine, elsewhere))
    return top, rooms


def _directive(entry: Entry) -> str:
    value = entry.value
    if inspect.isclass(value):
        return f".. autoclass:: {entry.path}\n   :members:\n"
    if callable(value) and hasattr(value, "__name__"):
        return f".. autofunction:: {entry.path}\n"
    return f".. autodata:: {entry.path}\n   :no-value:\n"


def _rank(entry: Entry) -> bool:
    """Functions stand before classes, in the order of the source."""
    return inspect.isclass(entry.value)


def _heading(text: str, mark: str) -> str:
    return f"{text}\n{mark * len(text)}\n"


def _page(title: str, body: list[str]) -> str:
    return "\n".join([_heading(title, "="), *body])


def write(_app: Sphinx, *_: Any) -> None:
    """Write the pages, those that changed only, before Sphinx looks for them."""
    top, rooms = contents()
    pages = {}
    text = ["``import rbd_jax as rbd`` gives these names.\n"]
    for room in [*ORDER, ""]:
        entries = sorted((e for e in top if e.room == room), key=_rank)
        if entries:
            text += [_heading(TITLES.get(room, "Others"), "-"), *map(_directive, entries)]
    pages["top"] = _page("The top level: rbd", text)
    for room, modules in rooms.items():
        text = []
        for module, mine, elsewhere in modules:
            name = module.__name__
            if name != f"rbd_jax.{room}" and not mine:
                continue
            text.append(_heading(name, "-"))
            text.append(f".. automodule:: {name}\n   :no-index:\n" if module.__doc__ else "")
            text.append(f".. py:currentmodule:: {name}\n")
            if elsewhere:
                links = ", ".join(f":py:obj:`{n} <{path}>`" for n, path in sorted(elsewhere))
                text.append(f"Described elsewhere: {links}.\n")
            text += map(_directive, mine)
        pages[room] = _page(f"rbd_jax.{room}: {TITLES.get(room, room).lower()}", text)
    index = [
        "Every public function cites the paper and equation that it implements. Arguments are in",
        "SI units; shapes stand in the annotations. The top level has what most programs need,",
        "the rooms have the rest.\n",
        ".. toctree::\n   :maxdepth: 1\n",
        *(f"   {name}" for name in pages),
        "",
    ]
    pages["index"] = _page("API reference", index)
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, page in pages.items():
        path = FOLDER / f"{name}.rst"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)


_PATHS = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z_])|\bbuiltins\.|\btyping\.|\bcollections\.abc\.")


def shorten(_app, _what, _name, _obj, _options, signature: str | None, returns: str | None):
    """``jaxtyping.Float[jaxlib._jax.Array, 'nq']`` → ``Float[Array, 'nq']`` and the like."""

    def short(text: str | None) -> str | None:
        return None if text is None else _PATHS.sub("", text)

    return short(signature), short(returns)


_TABLE = re.compile(r"^(=+ +=[= ]*\n)(.*?\n)(=+ +=[= ]*)$", re.M | re.S)


def _tables(text: str) -> str:
    """Tables with letters that carry an accent apart, whose columns docutils counts wrongly."""

    def literal(match: re.Match) -> str:
        rows = match[2].splitlines()
        if not any(unicodedata.combining(c) for row in rows for c in row):
            return match[0]
        return "::\n\n" + "\n".join(f"    {row}" for row in rows)

    return _TABLE.sub(literal, text)


_LITERAL = re.compile(r"(``.*?``)", re.S)


def clean(_app, what: str, _name, obj, _options, lines: list[str]) -> None:
    """Bars are absolute values here, not substitutions; a constant has no text of its own."""
    if what == "data" and type(obj).__module__ == "builtins":
        lines.clear()
        return
    lines[:] = _tables("\n".join(lines)).split("\n")
    parts = _LITERAL.split("\n".join(lines))
    parts[::2] = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def _whole(self: Any) -> tuple[str, list[str]]:
    """The docstring of an attribute, without a type.

    Napoleon reads a colon in its first line as ``type: description``. Our types stand in the
    annotations, so a colon is a colon.
    """
    lines = self._dedent(self._consume_to_end())
    return "", self.__class__(lines, self._config).lines()


def short_types(_app: Sphinx, doctree: nodes.document) -> None:
    """Short names in the types of attributes, as in signatures."""
    for annotation in doctree.findall(addnodes.desc_annotation):
        for text in list(annotation.findall(nodes.Text)):
            if (short := _PATHS.sub("", text)) != text:
                text.parent.replace(text, nodes.Text(short))


def check(app: Sphinx, env) -> None:
    """Warn of every public name and every room that the pages do not hold."""
    page = (FOLDER.parent / "contributing.md").read_text(encoding="utf-8")
    picture = page.split("```text", 1)[1].split("```", 1)[0].split()
    for info in pkgutil.iter_modules(rbd_jax.__path__):
        if info.ispkg and info.name not in picture:
            LOG.warning("the picture of contributing.md lacks the room %s", info.name)
    known = set(env.domaindata["py"]["objects"])
    top, rooms = contents()
    entries = [*top, *(e for modules in rooms.values() for _, mine, _ in modules for e in mine)]
    for entry in entries:
        if entry.path not in known:
            LOG.warning("the API reference lacks %s", entry.path)
    LOG.info("API reference: %d public names", len(entries))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    app.connect("autodoc-process-signature", shorten)
    GoogleDocstring._consume_inline_attribute = _whole
    app.connect("doctree-read", short_types)
    app.connect("autodoc-process-docstring", clean)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
