"""Writes the pages on the papers: which equation is implemented where.

The tables are made of the ``Source:`` lines of the docstrings, so that they say what the code says.
"""

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

from api import contents
from sphinx.application import Sphinx
from sphinx.util import logging

import rbd_jax

LOG = logging.getLogger(__name__)
PACKAGE = Path(rbd_jax.__file__).resolve().parent
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
    FOLDER.mkdir(exist_ok=True)
    for stem, page in pages.items():
        path = FOLDER / f"{stem}.md"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)
    LOG.info("papers: %d citations", len(said))


def _cites(text: str, paper: str) -> bool:
    return re.search(rf"\b{paper}\b", text) is not None


def _page(title: str, about: str, rows: list[Source], public: dict) -> str:
    lines = [f"# {title}\n", f"{about}\n", "| where | what its docstring cites |", "|---|---|"]
    for s in rows:
        path = public.get((s.module, s.name))
        short = s.module.removeprefix("rbd_jax.") or "rbd_jax"
        where = f"{{py:obj}}`{s.name} <{path}>`" if path else f"`{s.name}`" if s.name else ""
        lines.append(f"| `{short}` {where} | {_markdown(s.text)} |")
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
