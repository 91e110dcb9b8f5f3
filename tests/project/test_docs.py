"""The pages: their code runs, and the functions and tests that they name exist."""

import ast
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


def test_one_version():
    version = rbd.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "docs" / "changelog.md").read_text()


@pytest.mark.slow  # CI runs it with the notebooks
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_snippets(page):
    run(page)
