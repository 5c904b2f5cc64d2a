"""Formulas as MathML, which browsers draw by themselves: no script, no fonts, nothing to load."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator


class FormulaError(SphinxError):
    """A formula that cannot be read."""

    category = "Formula error"


def formula(latex: str, display: str) -> str:
    """A formula as MathML.

    Args:
        latex: its source.
        display: `inline` or `block`.

    Raises:
        FormulaError: it cannot be read.
    """
    try:
        return convert(latex.strip(), display=display)
    except Exception as error:  # latex2mathml raises many things
        raise FormulaError(f"{latex.strip()!r} is no formula that latex2mathml can read ({error})") from None


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer that `html_math_renderer` names."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
