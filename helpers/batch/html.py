"""An executed notebook as one HTML file that needs nothing else: no network, no script library, formulas as MathML."""

import html
import logging
import re
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from helpers import notebooks

_WIDGETS = (notebooks.WIDGET_VIEW, "application/javascript")
_ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
# a browser that tried to load anything from elsewhere would be stopped by this
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; font-src data:"
_STYLE = """
:root { --ground: #fff; --ink: #1b1b1b; --faint: #5c5c5c; --line: #d8d8d8; --box: #f6f6f6; --link: #0b5cad }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e4e4e4; --faint: #a0a0a0; --line: #3a3d44; --box: #20232a; --link: #7db7ff }
}
:root { color-scheme: light dark }
body { background: var(--ground); color: var(--ink); font: 17px/1.55 system-ui, sans-serif; margin: 0 }
main { max-width: 58rem; margin: 0 auto; padding: 1.5rem 1rem 6rem }
h1, h2, h3 { line-height: 1.25; margin: 1.6em 0 .5em }
a { color: var(--link) }
.anchor-link, .prompt { display: none }
pre, code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .8em }
pre { margin: 0; padding: .6rem .8rem; overflow-x: auto; line-height: 1.4 }
.input_area, .rendered_html pre { background: var(--box); border: 1px solid var(--line); border-radius: 4px }
.input_area { margin: .8rem 0 .3rem }
.output_stderr { color: var(--faint) }
.output_error pre { border-left: 4px solid #c0392b }
.rendered_html { overflow-x: auto }
table { border-collapse: collapse; font-size: .92em; margin: .6rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top }
blockquote { border-left: 3px solid var(--line); color: var(--faint); margin: 0; padding: 0 1rem }
img, svg { max-width: 100%; height: auto }
img { background: #fff; border-radius: 4px }
math[display="block"] { margin: .8rem 0; overflow-x: auto }
.ansi-bold { font-weight: bold }
.ansi-red-fg, .ansi-red-intense-fg { color: #c0392b }
.ansi-green-fg, .ansi-green-intense-fg { color: #2e8b57 }
.ansi-blue-fg, .ansi-cyan-fg { color: var(--link) }
"""


def to_html(notebook: Path) -> Path:
    """Write `<notebook>.html` beside the notebook and return its path.

    Widgets give way to their static twins, alternative texts stay, whatever would be loaded from elsewhere is left out.

    Raises:
        HookbookError: the notebook cannot be read.
    """
    nb = _static(notebooks.read(notebook))
    title = _title(nb) or notebook.stem
    exporter = _Exporter(template_name="basic", embed_images=True, exclude_anchor_links=True)
    exporter.log = logging.getLogger("hookbook.html")  # it warns of missing alternative text; a rule refuses that
    exporter.log.setLevel(logging.ERROR)
    hidden = [cell for cell in nb.cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    body, _ = exporter.from_notebook_node(nb, {"metadata": {"path": str(notebook.parent), "name": title}})
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}{_highlighting()}</style>\n</head>\n"
        f"<body>\n<main>\n{_alone(body, hidden)}\n</main>\n</body>\n</html>\n"
    )
    target = notebook.with_suffix(".html")
    notebooks.write_text(target, page)
    return target


def mathml(latex: str, display: str) -> str:
    """A formula as MathML ("inline" or "block"); its source as code where it cannot be read."""
    try:
        return convert(latex.strip(), display=display)
    except Exception:  # latex2mathml raises many things; a typo in a formula must not cost the page
        return f"<code>{html.escape(latex.strip())}</code>"


class _Renderer(IPythonRenderer):
    """nbconvert's Markdown, which knows what is a formula and what is code, with MathML in place of MathJax."""

    def inline_math(self, body: str) -> str:
        return mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return mathml(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        renderer = _Renderer(
            escape=False,
            attachments=context.get("cell", {}).get("attachments", {}),
            embed_images=True,
            path=context["resources"]["metadata"]["path"],
            exclude_anchor_links=True,
        )
        return MarkdownWithMath(renderer=renderer).render(source)


def _static(nb: NotebookNode) -> NotebookNode:
    nb.metadata.pop("widgets", None)
    nb.metadata.language_info = {"name": "python"}
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if any(mime in data for mime in _WIDGETS):
                data.pop("text/plain", None)  # "interactive(children=...": nothing to read
            for mime in _WIDGETS:
                data.pop(mime, None)
            if "text/latex" in data:
                formula = notebooks.text_of(data["text/latex"]).strip().strip("$")
                data["text/html"] = mathml(formula.removeprefix(r"\displaystyle"), "block")
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("data") != {}]
    return nb


def _title(nb: NotebookNode) -> str | None:
    for cell in nb.cells:
        found = cell.cell_type == "markdown" and re.search(r"^# +(.+?)[ #]*$", cell.source, flags=re.MULTILINE)
        if found:
            return found[1].replace("`", "")
    return None


def _highlighting() -> str:
    light = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    both = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    return both + ".highlight { background: transparent }\n"


def _alone(body: str, hidden: list[NotebookNode]) -> str:
    """The page without what it would load from elsewhere; links within it find their cells, hidden code is folded."""
    soup = BeautifulSoup(body, features="html.parser")
    for element in soup.find_all(["script", "link", "iframe", "object", "embed", "source", "video", "audio"]):
        if _ELSEWHERE.match(element.get("src") or element.get("href") or element.get("data") or ""):
            element.decompose()
    for image in soup.find_all("img"):
        if _ELSEWHERE.match(image.get("src", "")):
            image.replace_with(f"[{image.get('alt') or 'image'}]")
    for link in soup.find_all("a", href=re.compile(r"^#.")):
        cell = f"cell-id={link['href'][1:]}"
        if soup.find(id=link["href"][1:]) is None and soup.find(id=cell) is not None:
            link["href"] = f"#{cell}"
    for cell in hidden:
        code = soup.find(id=f"cell-id={cell.id}").find(class_="input")
        folded = code.wrap(soup.new_tag("details"))
        summary = soup.new_tag("summary")
        summary.string = "Show the solution" if notebooks.has_tag(cell, "solution") else "Show the code"
        folded.insert(0, summary)
    return str(soup)
