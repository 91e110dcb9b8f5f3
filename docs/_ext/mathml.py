"""Writes formulas as MathML when the site is built, so that browsers show them without a network.

The formulas are LaTeX in the pages and notebooks. A formula that cannot be converted is a warning,
which ends the build of the site.
"""

import html
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)

# LaTeX that the converter does not know, and what it knows instead.
_LATEX = [
    (re.compile(r"\{aligned\}"), "{align*}"),
    (re.compile(r"\\arg\\min(?![a-z])"), r"\\operatorname*{argmin}"),
]
# Browsers follow MathML Core, which has neither frames nor the alignment of columns.
_MATHML = [
    (re.compile(r'<menclose notation="box">'), '<mrow class="framed">'),
    (re.compile(r"</menclose>"), "</mrow>"),
    (re.compile(r'<mtd columnalign="(left|right)">'), r'<mtd style="text-align: \1">'),
]


def mathml(latex: str, display: str) -> str:
    """A formula in LaTeX as an element of HTML.

    Args:
        latex: the formula without its dollar signs.
        display: ``"inline"`` for a formula in a line of text, ``"block"`` for one of its own.

    Raises:
        ValueError: if a command of LaTeX has no counterpart.
    """
    for pattern, replacement in _LATEX:
        latex = pattern.sub(replacement, latex)
    if display == "block":  # also where the sum stands in a box or a bracket
        latex = re.sub(r"(\\sum|\\operatorname\*\{\w+\})_", r"\1\\limits_", latex)
    text = convert(latex.strip(), display=display)
    for pattern, replacement in _MATHML:
        text = pattern.sub(replacement, text)
    if unknown := re.findall(r"\\\w+|>&<|linebreak", text):
        raise ValueError(f"no MathML for {', '.join(unknown)}")
    return text


def _element(node: nodes.Element, display: str) -> str:
    try:
        return mathml(node.astext(), display)
    except Exception as error:  # the converter raises errors of many types
        LOG.warning("formula %r: %s", node.astext(), error, location=node)
        return html.escape(node.astext())


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_element(node, "inline"))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    writer.body.append(f"{_element(node, 'block')}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
