"""Slow tests and benchmarks run seldom, so that a name that is gone would stay in them unseen."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest
from support.pages import ROOT

OURS = ("rbd_jax", "support", "benchmarks")
FILES = sorted(f for room in ("tests", "benchmarks") for f in (ROOT / room).glob("**/*.py"))
GONE = object()


def member(module, name):
    """What a module has under a name, a module of its own included; ``GONE`` if it has nothing."""
    try:
        return getattr(module, name)
    except AttributeError:
        pass
    full = f"{module.__name__}.{name}"
    try:
        return importlib.import_module(full) if hasattr(module, "__path__") else GONE
    except ImportError as error:
        return GONE if error.name == full else None  # else it needs a package that is not here


def imported(tree, package):
    """The modules of ours that a file imports, by its names for them, and what is gone."""
    known, gone = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split(".")[0] in OURS:
                    whole = importlib.import_module(a.name)
                    first = importlib.import_module(a.name.split(".")[0])
                    known[a.asname or first.__name__] = whole if a.asname else first
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join([*above, *([node.module] if node.module else [])])
            if name.split(".")[0] not in OURS:
                continue
            module = importlib.import_module(name)
            for a in node.names:
                found = member(module, a.name)
                if found is GONE:
                    gone.append(f"line {node.lineno}: {name}.{a.name}")
                elif isinstance(found, ModuleType):
                    known[a.asname or a.name] = found
    return known, gone


def missing(file):
    """The names of our modules that a file uses and that do not exist."""
    tree = ast.parse(file.read_text())
    known, gone = imported(tree, file.relative_to(ROOT).parts[:-1])
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    own = {n.id for n in names} | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}

    def module(node):
        """The module that an expression names; None for everything else."""
        if isinstance(node, ast.Name):
            return known.get(node.id) if node.id not in own else None
        if isinstance(node, ast.Attribute) and (base := module(node.value)) is not None:
            found = member(base, node.attr)
            if found is GONE:
                gone.append(f"line {node.lineno}: {base.__name__}.{node.attr}")
            return found if isinstance(found, ModuleType) else None
        return None

    for node in ast.walk(tree):
        module(node)
    return sorted(set(gone))


def test_tests_and_benchmarks_use_names_that_exist():
    pytest.importorskip("optax")
    gone = {str(f.relative_to(ROOT)): x for f in FILES if (x := missing(f))}
    assert not gone, gone


def test_a_name_that_is_gone_is_found(monkeypatch):
    text = "from support import pages\nimport rbd_jax as rbd\n\nrbd.load_urdf\npages.gone(rbd.n)"
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    found = missing(ROOT / "tests" / "project" / "none.py")
    assert found == ["line 5: rbd_jax.n", "line 5: support.pages.gone"]
