"""The pages: their code runs, and the functions and tests that they name exist."""

import ast
import re

import pytest
from support.pages import PAGES, ROOT, blocks, name, run

import rbd_jax as rbd
import rbd_jax.identify  # noqa: F401, the name rbd.identify is imported when it is first used

WITH_CODE = [page for page in PAGES if blocks(page, "python")]


def paths(text: str) -> set[str]:
    """``rbd.a.b`` and ``rbd_jax.a.b``, in prose, code and references."""
    found = re.findall(r"(?<![\w./-])rbd(?:_jax)?((?:\.[A-Za-z]\w*)+)(?![\w/])", text)
    return {x.removesuffix(".md") for x in found if not x.endswith((".html", ".md", ".py"))}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_exist(page):
    missing = []
    for path in sorted(paths(page.read_text())):
        value = rbd
        for part in path[1:].split("."):
            if not hasattr(value, part):
                missing.append(f"rbd{path}")
                break
            value = getattr(value, part)
    assert not missing


def test_names_are_found_in_text():
    text = "`rbd.rnea(model)` {py:obj}`rbd_jax.spatial.inertia.from_com` rbd_jax/lanes a.rbd.x"
    assert paths(text) == {".rnea", ".spatial.inertia.from_com"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_exist(page):
    for file, test in re.findall(r"(tests/\w+\.py)::(\w+)", page.read_text()):
        tree = ast.parse((ROOT / file).read_text())
        assert test in {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}, (file, test)


@pytest.mark.slow  # CI runs it with the notebooks
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_snippets(page):
    run(page)
