"""The page of jobs: each program stands alone, and the table has the lines that it really has."""

import ast
import builtins
import json
import re

import pytest
from support.pages import ROOT

PAGE = ROOT / "docs" / "guide" / "jobs.md"
NOTEBOOKS = {
    "An arm that reaches": "arm_pick",
    "A batch of robots": "derivatives",
    "Identification": "system_identification",
    "Reinforcement learning": "learning_to_walk",
    "Optimal control": "trajectory_optimization",
    "Learned dynamics": "learning_residuals",
}
PROGRAMS = dict(re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S))


def lines(code: str) -> int:
    """Lines of code, without blank ones and comments."""
    stripped = (line.strip() for line in code.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in stripped)


def in_notebook(name: str) -> int:
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    return sum(lines("".join(x["source"])) for x in cells if x["cell_type"] == "code")


def table() -> str:
    rows = ["| job | lines | at full size | lines |", "|---|---|---|---|"]
    for job, code in PROGRAMS.items():
        more = "| |"
        if job in NOTEBOOKS:
            more = f"{{doc}}`../notebooks/{NOTEBOOKS[job]}` | {in_notebook(NOTEBOOKS[job])} |"
        anchor = job.lower().replace(" ", "-")
        rows.append(f"| [{job}](#{anchor}) | {lines(code)} | {more}")
    return "\n".join(rows)


def test_the_table_has_the_lines_of_all_programs_and_notebooks():
    assert set(NOTEBOOKS) < set(PROGRAMS) and len(PROGRAMS) == 7
    assert table() in PAGE.read_text(), f"the table on the page should be\n\n{table()}\n"


@pytest.mark.parametrize("job", PROGRAMS)
def test_a_program_needs_nothing_that_is_not_in_it(job):
    """Every name that it reads is its own, imported by it, or Python's."""
    nodes = list(ast.walk(ast.parse(PROGRAMS[job])))
    known = set(dir(builtins))
    for x in nodes:
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
            known.add(x.id)
        elif isinstance(x, ast.arg):
            known.add(x.arg)
        elif isinstance(x, ast.FunctionDef | ast.ClassDef):
            known.add(x.name)
        elif isinstance(x, ast.alias):
            known.add((x.asname or x.name).split(".")[0])
    read = {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
    assert not read - known
