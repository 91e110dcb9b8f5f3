"""Writes the pages on the papers: which equation is implemented where, and what is missing.

The tables are made of the ``Source:`` lines of the docstrings, so that they say what the code says.
``equations`` lists what the papers contain. A row of that list that has no place in the code, and a
test that does not exist, are warnings, which end the build of the site.
"""

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

from api import contents
from equations import FULL, KIM, MUELLER, NOTES, SINGH, VLASBLOM, Row
from sphinx.application import Sphinx
from sphinx.util import logging

import rbd_jax

LOG = logging.getLogger(__name__)
PACKAGE = Path(rbd_jax.__file__).resolve().parent
TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
EQUATIONS = {
    "Kim": KIM, "Singh": SINGH, "Müller": MUELLER, "Vlasblom": VLASBLOM, "notes": NOTES,
}  # fmt: skip
BY_DOCSTRINGS = ("Kim", "Singh")
"""The papers whose rows find their places in the docstrings."""
FOLDER = Path(__file__).resolve().parent.parent / "papers"
PAPERS = {
    "Kim": ("kim", "Kim 2012", "J. Kim, *Lie group formulation of articulated rigid body dynamics*,"
            " 2012. Recursive dynamics with joints of several degrees of freedom (Tables 2 to 4),"
            " and their derivatives along any parameter (Tables 5 to 7)."),
    "Singh": ("singh", "Singh, Russell and Wensing 2022", "S. Singh, R. P. Russell, P. M. Wensing,"
              " *Efficient analytical derivatives of rigid-body dynamics using spatial vector"
              " algebra*, 2022. IDSVA (Algorithm 1) and the derivatives of forward dynamics that"
              " follow from it."),
    "Müller": ("mueller", "Müller 2017", "A. Müller, *Screw and Lie group theory in multibody"
               " dynamics. Recursive algorithms and equations of motion of tree-topology systems*,"
               " 2017. Four representations of twists, recursions and closed forms in each,"
               " derivatives of any order, sensitivities, integration on Lie groups."),
    "Vlasblom": ("vlasblom", "Vlasblom 2015", "E. Vlasblom, *Recursive rigid body dynamics. A"
                 " geometric approach based on Lagrange equations and screw theory*, 2015. Body"
                 " Jacobians, the mass matrix and its derivative, Christoffel symbols."),
    "notes": ("notes", "Notes on the Lie-algebra RNEA", "Working notes *Recursive Newton–Euler"
              " algorithm: Lie algebra formulation*. The product of exponentials, the recursion in"
              " components, passivity."),
}  # fmt: skip


class Source(NamedTuple):
    """One citation: which function, of which file, says what."""

    module: str
    name: str
    text: str


def sources() -> list[Source]:
    """The ``Source:`` paragraphs of all docstrings of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = module.removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += _of(tree, module, "")
    return found


def _of(node: ast.AST, module: str, name: str) -> list[Source]:
    found = []
    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
        for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
            if "Source:" in paragraph:
                text = " ".join(paragraph.split("Source:", 1)[1].split())
                found.append(Source(module, name, text))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            found += _of(child, module, f"{name}.{child.name}" if name else child.name)
    return found


def place(paper: str, text: str) -> tuple:
    """Where in the paper the first citation points, to sort by: tables and algorithms first."""
    after = text[text.index(paper) + len(paper) :]
    what = re.search(r"Table (\d+)|Algorithm (\d+)|\((\d+)(?:\.(\d+))?|§(\d+)(?:\.(\d+))?", after)
    if what is None:
        return (9, 0, 0)
    table, algorithm, equation, sub, section, part = what.groups()
    if table or algorithm:
        return (0, int(table or algorithm), 0)
    if equation:
        return (1, int(equation), int(sub or 0))
    return (2, int(section), int(part or 0))


def write(app: Sphinx, *_: Any) -> None:
    """Write one page for each paper, and one for what other sources are cited."""
    top, rooms = contents()
    entries = [*top, *(e for modules in rooms.values() for _, mine, _ in modules for e in mine)]
    public = {(getattr(e.value, "__module__", ""), e.path.split(".")[-1]): e.path for e in entries}
    said = sources()
    pages, others = {}, []
    for paper, (stem, title, about) in PAPERS.items():
        rows = sorted((place(paper, s.text), s) for s in said if _cites(s.text, paper))
        if not rows:
            LOG.warning("no docstring cites %s", paper)
        pages[stem] = _page(title, about, [s for _, s in rows], public)
    for s in said:
        if not any(_cites(s.text, paper) for paper in PAPERS):
            others.append(s)
    about = "Sources beside the five above, and derivations that are our own."
    pages["others"] = _page("Other sources", about, others, public)
    pages["open"] = _open()
    pages["table"] = "".join(_equations(paper, said, public) for paper in EQUATIONS)
    FOLDER.mkdir(exist_ok=True)
    for stem, page in pages.items():
        path = FOLDER / f"{stem}.md"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)
    LOG.info("papers: %d citations", len(said))


def _mentions(text: str, paper: str) -> list[str]:
    """What a docstring says about a paper: from its name to the end of the sentence."""
    names = "|".join(PAPERS)
    found = re.finditer(rf"(?<!Wensing, )\b{paper}\b(.*?)(?=;|\.\s|\b(?:{names})\b|$)", text)
    return [match[1] for match in found]


def _cites(text: str, paper: str) -> bool:
    return bool(_mentions(text, paper))


_ITEM = re.compile(
    r"\((\d+)\)(?:–\((\d+)\))?"
    r"|(?:Tables?|Algorithm|Figs?\.) \w+(?:, \d+)*(?: (?:and|to) \d+)?|§[\w.-]*\w|footnote \d+"
)


def items(text: str) -> set[str]:
    """``Tables 2 and 5, (61)–(63)`` → ``{"Table 2", "Table 5", "(61)", "(62)", "(63)"}``."""
    found = set()
    for match in _ITEM.finditer(text):
        if match[1]:
            found |= {f"({k})" for k in range(int(match[1]), int(match[2] or match[1]) + 1)}
        elif match[0].startswith("Table"):
            found |= {f"Table {k}" for k in re.findall(r"\d+|\b[IV]+\b", match[0])}
        else:
            found.add(match[0])
    return found


def _where(s: Source, public: dict) -> str:
    short, path = s.module.removeprefix("rbd_jax.") or "rbd_jax", public.get((s.module, s.name))
    if path:
        return f"{{py:obj}}`{short}.{s.name} <{path}>`"
    return f"`{short}.{s.name}`" if s.name else f"`{short}`"


def _test(name: str) -> str:
    """The path of a test; it may also lie in one folder with the tests of other rooms."""
    room, stem = name.split("/")
    paths = sorted(TESTS.rglob(f"test_*{stem}.py"), key=lambda p: (room not in str(p), len(str(p))))
    if not paths:
        LOG.warning("equations.py names the test %r, which does not exist", name)
        return name
    return f"`{paths[0].relative_to(TESTS.parent)}`"


def _equations(paper: str, said: list[Source], public: dict) -> str:
    """The table of a paper's equations: what, where, tests, state."""
    lines = [
        f"### {PAPERS[paper][1]}\n",
        "| item | what | where | tests | state |",
        "|" + "---|" * 5,
    ]
    cited = [(s, set().union(*map(items, _mentions(s.text, paper)))) for s in said]
    for row in EQUATIONS[paper]:
        wanted = items(row.items) if paper in BY_DOCSTRINGS else set()
        places = [_where(s, public) for s, names in cited if names & wanted and s.name]
        places += [row.others] if row.others else []
        if not places and row.state == FULL:
            LOG.warning("no docstring cites %s %s", paper, row.items)
        tests = ", ".join(map(_test, row.tests.split()))
        lines.append(f"| {row.items} | {row.what} | {', '.join(places)} | {tests} | {row.state} |")
    return "\n".join([*lines, "\n"])


def _open() -> str:
    """What is partial or absent, of all papers: a part of the page ``guide/papers``."""
    rows = [(p, r) for p, rows in EQUATIONS.items() for r in rows if not _done(r)]
    rows = [(p, r.items, r.what, r.state) for p, r in rows]
    lines = ["| paper | item | what | state |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _done(row: Row) -> bool:
    return row.state.startswith(FULL)


def _page(title: str, about: str, rows: list[Source], public: dict) -> str:
    lines = [f"# {title}\n", f"{about}\n", "{doc}`../guide/papers` has them row by row.\n"]
    lines += ["| where | what its docstring cites |", "|---|---|"]
    lines += [f"| {_where(s, public)} | {_markdown(s.text)} |" for s in rows]
    return "\n".join(lines) + "\n"


_PARTS = re.compile(r"(``.*?``|:\w+:`[^`]*`)")


def _markdown(text: str) -> str:
    """A docstring's text in a cell of a Markdown table."""
    out = []
    for part in _PARTS.split(text):
        if part.startswith("``"):
            out.append("`" + part[2:-2].replace("|", "\\|") + "`")
        elif role := re.fullmatch(r":\w+:`~?([^`]*)`", part):
            out.append(f"`{role[1].removeprefix('rbd_jax.')}`")
        else:
            out.append(re.sub(r"([|\[\]*_<>])", r"\\\1", part))
    return "".join(out)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
