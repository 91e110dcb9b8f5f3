"""The pages: their code runs, and the functions and tests that they name exist."""

import ast
import importlib.util
import pydoc
import re

import pytest
from support.pages import PAGES, ROOT, blocks, name, run

import rbd_jax as rbd
import rbd_jax.identify
import rbd_jax.learn  # noqa: F401, these rooms are imported when they are first used

WITH_CODE = [page for page in PAGES if blocks(page, "python")]


def paths(text: str) -> set[str]:
    """``rbd.a.b`` and ``rbd_jax.a.b``, in prose, code and references."""
    found = re.findall(r"(?<![\w./-])(rbd(?:_jax)?(?:\.[A-Za-z]\w*)+)(?![\w/])", text)
    return {x for x in found if not x.endswith((".html", ".md", ".py"))}


def exists(path: str) -> bool:
    """Whether ``rbd.a.b`` is there after ``import rbd_jax as rbd``; or ``rbd_jax.a.b`` at all."""
    if path.startswith("rbd_jax."):
        return pydoc.locate(path) is not None
    value = rbd
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value is not None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_exist(page):
    assert not [path for path in sorted(paths(page.read_text())) if not exists(path)]


def test_names_are_found_in_text():
    text = "`rbd.rnea(model)` {py:obj}`rbd_jax.spatial.inertia.from_com` rbd_jax/lanes a.rbd.x"
    assert paths(text) == {"rbd.rnea", "rbd_jax.spatial.inertia.from_com"}
    assert all(map(exists, paths(text)))
    assert not exists("rbd.rneaa") and not exists("rbd_jax.spatial.inertia.from_comm")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_exist(page):
    for file, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text()):
        tree = ast.parse((ROOT / file).read_text())
        assert test in {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}, (file, test)


def _rows():
    """The rows of the table of papers, as ``(paper, row)``."""
    path = ROOT / "docs" / "_ext" / "equations.py"
    spec = importlib.util.spec_from_file_location("equations", path)
    equations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(equations)
    papers = ("KIM", "SINGH", "MUELLER", "VLASBLOM", "NOTES")
    return [(paper, row) for paper in papers for row in getattr(equations, paper)]


def _named(code: str) -> bool:
    """Whether a name or a file that a row of the papers has in code font is there."""
    if code.startswith("python -m benchmarks "):
        return (ROOT / "benchmarks" / f"{code.split()[-1]}.py").exists()
    if "/" in code:
        return (ROOT / code).exists()
    if " " in code or "=" in code:
        return True  # a formula, or an argument
    starts = [code.replace("rbd.", "rbd_jax.", 1)] if code.startswith("rbd.") else []
    starts += [f"rbd_jax.{room}{code}" for room in ("", "screw.", "spatial.motion.", "simulate.",
               "spatial.se3.", "spatial.inertia.", "derivatives.")]  # fmt: skip
    return any(pydoc.locate(name) is not None for name in starts)


def test_rows_of_the_papers_name_tests_and_places_that_exist():
    """Each equation that is implemented has a test; no place in the code is made up."""
    for paper, row in _rows():
        where = paper, row.items, row.what
        for test in row.tests.split():
            room, stem = test.split("/")
            assert (ROOT / "tests" / room / f"test_{stem}.py").exists(), (*where, test)
        assert row.tests or row.state.startswith("absent"), where
        assert row.state == "full" or ":" in row.state, (*where, "needs a reason")
        for code in re.findall(r"`([^`]+)`", re.sub(r"\{\w+\}`[^`]*`", "", row.others)):
            code = re.sub(r"\(.*?\)", "", code)
            assert code.startswith(".") or _named(code), (*where, code)


def test_one_version():
    version = rbd.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "docs" / "changelog.md").read_text()


@pytest.mark.slow  # CI runs it with the notebooks
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_snippets(page):
    run(page)
