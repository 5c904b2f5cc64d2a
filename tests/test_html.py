"""The exported page: complete in itself, formulas as MathML, widgets as their twins, alternative text kept."""

import re

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers import notebooks
from helpers.batch.html import mathml, to_html

ALT = "Accuracy against layer: it rises to the middle and stays there"


@pytest.fixture
def export(tmp_path):
    """Exports cells and returns the page's text."""

    def export(*cells):
        path = tmp_path / "toy.ipynb"
        notebooks.write(new_notebook(cells=list(cells)), path)
        page = to_html(path)
        assert page == tmp_path / "toy.html" and sorted(file.name for file in tmp_path.iterdir()) == [
            page.name,
            path.name,
        ]
        return page.read_text(encoding="utf-8")

    return export


def shown(**data):
    names = {"html": "text/html", "markdown": "text/markdown", "plain": "text/plain", "latex": "text/latex"}
    bundle = {names.get(name, name): value for name, value in data.items()}
    return new_code_cell("show()", execution_count=1, outputs=[new_output("display_data", bundle)])


def elsewhere(page):
    """Everything on the page that a browser would fetch; links are only followed by readers."""
    soup = BeautifulSoup(page, "html.parser")
    addresses = [
        element.get(name)
        for element in soup.find_all(True)
        for name in ("src", "href", "data", "poster", "srcset")
        if element.get(name) and not (element.name == "a" and name == "href")
    ]
    addresses += re.findall(r"url\(([^)]*)\)|@import", page)
    return [address for address in addresses if not address.startswith(("data:", "#"))]


def test_the_page_fetches_nothing(export):
    page = export(
        new_markdown_cell("# A & *title*\n\n[![badge](https://example.org/b.svg)](https://example.org)\n\n$x$"),
        shown(
            html=f'<img alt="{ALT}" src="data:image/png;base64,AAAA"><script src="https://cdn.example/x.js"></script>'
        ),
        shown(html='<link rel="stylesheet" href="//cdn.example/x.css"><iframe src="http://example.org"></iframe>'),
    )
    assert elsewhere(page) == []
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert "require" not in page and "MathJax" not in page.replace("$", "")
    assert "[badge]" in page and ALT in page


def test_a_page_with_a_script_from_elsewhere_would_be_noticed():
    assert elsewhere('<script src="https://cdn.example/x.js"></script>') == ["https://cdn.example/x.js"]


def test_formulas_become_mathml_and_code_does_not(export):
    page = export(
        new_markdown_cell(
            "# T\n\nSo $a_b * c_d * e$, `$code$` and \\$5 to \\$6.\n\n$$\n\\frac{a}{b} < c\n$$\n\n```\n$x$\n```"
        ),
        new_markdown_cell("## On $\\theta$\n\n| a |\n|---|\n| $y^2$ |\n\n\\begin{align} a &= b \\end{align}"),
        shown(markdown="It is $z$ here", plain="x"),
        shown(latex="$\\displaystyle w^2$", plain="w**2"),
    )
    soup = BeautifulSoup(page, "html.parser")
    assert len(soup.find_all("math")) == 7 and len(soup.find_all("math", display="block")) == 3
    assert [code.text for code in soup.find_all("code")][:2] == ["$code$", "$x$\n"]
    assert "$5 to $6" in soup.text and "<em>" not in str(soup.find("p"))
    assert soup.h2.math is not None and soup.td.math is not None


def test_a_formula_that_cannot_be_read_shows_its_source():
    assert mathml(r"\frac{a}{b}", "inline").startswith("<math")
    assert mathml("a_b_c", "inline") == "<code>a_b_c</code>"


def test_widgets_give_way_to_their_twins(export):
    view = {notebooks.WIDGET_VIEW: {"model_id": "1"}, "plain": "interactive(children=())"}
    page = export(shown(**view), shown(**view, html="<p>the twin</p>"))
    assert "interactive(" not in page and "widget" not in page and "the twin" in page


def test_the_ledger_shows_as_its_table(export):
    page = export(shown(html="<table><tr><td>C1 holds</td></tr></table>", **{notebooks.LEDGER_MIME: {"claims": []}}))
    assert "C1 holds" in page and "vnd.hookbook" not in page


def test_title_language_and_dark_mode(export):
    page = export(new_markdown_cell("Text.\n\n# On `hooks` & more\n\nText."))
    assert '<html lang="en">' in page and "<title>On hooks &amp; more</title>" in page
    assert "prefers-color-scheme: dark" in page


def test_a_notebook_without_a_title_takes_the_files_name(export):
    assert "<title>toy</title>" in export(new_code_cell("1"))


def test_hidden_code_is_folded_and_links_find_their_cells(export):
    solution = new_code_cell(
        "x = 1", id="solution-1", metadata={"tags": ["solution"], "jupyter": {"source_hidden": True}}
    )
    page = export(new_markdown_cell("[the solution](#solution-1)"), solution)
    soup = BeautifulSoup(page, "html.parser")
    assert soup.details.summary.text == "Show the solution" and "x" in soup.details.find(class_="input").text
    assert soup.find(id=soup.a["href"][1:]).details is not None


def test_errors_are_shown(export):
    error = new_output("error", ename="ValueError", evalue="no", traceback=["\x1b[31mValueError\x1b[0m: no"])
    page = export(new_code_cell("1/0", outputs=[error], execution_count=1))
    assert "ValueError" in page and "\x1b" not in page


def test_an_image_beside_the_notebook_is_embedded(export, tmp_path):
    (tmp_path / "toy.png").write_bytes(b"\x89PNG")
    page = BeautifulSoup(_exported(tmp_path), "html.parser")
    assert page.img["src"].startswith("data:image/png;base64,") and page.img["alt"] == ALT


def _exported(folder):
    notebooks.write(new_notebook(cells=[new_markdown_cell(f"![{ALT}](toy.png)")]), folder / "toy.ipynb")
    return to_html(folder / "toy.ipynb").read_text(encoding="utf-8")
