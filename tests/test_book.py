"""The book as files: built whole and twice the same, links that resolve, no other hosts, and what pages show."""

import csv
import io
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import book_site
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from book import (
    curves,
    docstrings,
    heads,
    notebook_page,
    references,
    relink,
    strips,
    syllabus,
    teaching,
    thumbnails,
    untrained,
)
from book import site as checks
from book.shown import DEFAULT_MODEL, Shown, shown
from book.stage import Book, write
from helpers import notebooks, papers, stored
from helpers.audit import summary
from helpers.errors import HookbookError

SLUG = "sentiment-direction"
STANDING = [one for one in shown(papers.catalogue()) if one.stands]


def text_of(path: Path) -> str:
    """What a reader sees of a page, without tags."""

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[str] = []

        def handle_data(self, data: str) -> None:
            self.parts.append(data)

    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return " ".join("".join(reader.parts).split())


# the whole site


def test_links_anchors_sizes_and_hosts(site):
    assert checks.complaints(site) == []


def test_it_has_a_page_for_every_notebook_and_each_of_the_others(site):
    for one in STANDING:
        assert (site / "papers" / f"{one.slug}.html").is_file() and (site / "notebooks" / f"{one.slug}.ipynb").is_file()
    for name in ("gallery", "scoreboard", "untrained", "run/add", "run/sweep", "run/audit", "teach/six-weeks",
                 "teach/twelve-weeks", "teach/classroom", "model", "glossary", "reference/stats"):  # fmt: skip
        assert (site / f"{name}.html").is_file(), name


def test_the_same_input_gives_the_same_bytes(site, tmp_path):
    book_site.build(tmp_path / "again", seed="1")
    files = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    again = {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file()}
    assert files == again
    assert [str(f) for f in sorted(files) if (site / f).read_bytes() != (tmp_path / "again" / f).read_bytes()] == []


def test_nothing_of_this_machine_is_in_it(site):
    home = [str(papers.ROOT), str(Path.home()), str(site.parent), "hookbook-book-"]
    for path in site.rglob("*"):
        if path.suffix in (".html", ".js", ".css", ".csv", ".inv", ".txt"):
            text = path.read_bytes().decode("utf-8", "replace")
            found = [place for place in home if len(place) > 2 and place in text]
            assert not found, f"{path.relative_to(site)} names {found}"


def test_the_gallery_lists_every_paper(site):
    text = (site / "gallery.html").read_text(encoding="utf-8")
    assert text.count("data-card") == len(papers.catalogue())
    missing = [one.title for one in papers.catalogue().values() if one.title not in unescape(text)]
    assert not missing


def test_the_scoreboard_says_what_the_ledgers_say(site):
    rows = list(csv.DictReader((site / "scoreboard.csv").open(encoding="utf-8")))
    for one in STANDING:
        for ledger in stored.of_paper(one.slug):
            for claim in ledger["claims"]:
                found = [
                    r for r in rows if (r["paper"], r["claim"], r["model"]) == (one.slug, claim["id"], ledger["model"])
                ]
                assert len(found) == 1
                assert found[0]["value"] == ("" if claim["value"] is None else str(claim["value"]))
                assert found[0]["verdict"] in (claim["verdict"], "replicates")
    assert (site / "scoreboard.html").read_text(encoding="utf-8").count("<tr data-paper") == len(rows)


@pytest.mark.parametrize("one", STANDING, ids=lambda one: one.slug)
def test_a_paper_page_has_all_its_parts(site, one):
    path = site / "papers" / f"{one.slug}.html"
    page, text = checks.Page(path), text_of(path)
    for claim in one.paper.claims:
        assert f"claim-{claim.id.lower()}" in page.anchors and " ".join(claim.statement.split()) in text
    assert f"make run PAPER={one.slug}" in text and "Download the notebook" in text
    assert f"@inproceedings{{{one.slug}," in text or f"@misc{{{one.slug}," in text
    assert f'href="../untrained.html#{one.slug}"' in path.read_text(encoding="utf-8")
    assert "Parent commit" in text and one.quick["provenance"]["versions"]["torch"] in text
    html = path.read_text(encoding="utf-8")
    assert "above-input" in html and "code-switch" in html
    assert "<summary>Solution</summary>" in html or "above-code" in html or "hide-cell" in html
    assert "application/vnd.hookbook" not in html and "$$" not in text
    assert html.count('class="runbox docutils container"') == 1 and "copybutton.js" in html


def test_papers_on_the_default_model_link_the_page_on_its_oddities(tmp_path):
    def on(model):
        def change(nb):
            for cell in nb.cells:
                for output in cell.get("outputs", []):
                    if ledger := output.get("data", {}).get(notebooks.LEDGER_MIME):
                        ledger["model"] = model

        root = tmp_path / model
        write(root / "source", committed(root, change))
        return (root / "source" / "papers" / f"{SLUG}.ipynb").read_text(encoding="utf-8")

    assert "../model.html" in on(DEFAULT_MODEL) and "../model.html" not in on("gpt2")


def test_no_markup_is_left_in_the_text(site):
    for path in checks.pages(site):
        left = re.findall(r"`{3}|:::|\{%|\{raw\}", text_of(path.path))
        assert not left, f"{path.path.relative_to(site)}: {left[:3]}"


def test_the_page_on_untrained_networks_names_every_audited_claim(site):
    text = text_of(site / "untrained.html")
    claims = untrained.audited(shown(papers.catalogue()), summary.records())
    for one in claims:
        assert " ".join(one.claim["statement"].split()) in text
    assert claims or "No audit is kept yet" in text
    index = (site / "index.html").read_text(encoding="utf-8")
    assert index.index('class="first"><a href="untrained.html"') < index.index('class="doors"'), "linked first of all"


def test_the_search_finds_notebooks_modules_and_words(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for word in (f"papers/{SLUG}", "reference/stats", "glossary", '"sentiment"'):
        assert word in index


def test_only_the_search_page_loads_the_index(site):
    loading = [page.path.name for page in checks.pages(site) if any("searchindex.js" in one for one in page.loaded)]
    assert loading == ["search.html"]


def test_modules_are_told_from_their_docstrings_with_shapes_that_can_be_read(site):
    html = (site / "reference" / "plots.html").read_text(encoding="utf-8")
    text = text_of(site / "reference" / "plots.html")
    assert 'id="helpers.plots.matrix"' in html and "Numbers from -1 to 1 as a coloured table" in text
    assert re.search(r"values: Float\[ndarray, .row column.\]", text)
    assert "jaxtyping." not in text and "py:function" not in text and ":param" not in text


def test_the_page_on_the_default_model_shows_what_was_measured(site):
    measured = json.loads((papers.ROOT / "data" / "oddities.json").read_text(encoding="utf-8"))
    text, html = text_of(site / "model.html"), (site / "model.html").read_text(encoding="utf-8")
    assert f"{measured['resting_heads']} of {measured['heads']} heads give more than" in text
    for one in measured["dimensions"]:
        assert f">{one['dimension']}<" in html
    assert html.count("<polyline") == 4


# what is refused, on sites and notebooks made for it


def page(folder: Path, body: str, name: str = "index.html") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"<html><body>{body}</body></html>", encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="gone.html">x</a>', "leads nowhere"),
        ('<a href="../outside.html">x</a>', "leads nowhere"),
        ('<a href="#nobody">x</a>', "finds no such anchor"),
        ('<a href="other.html#nobody">x</a>', "finds no such anchor"),
        ('<p id="a"></p><p id="a"></p>', "stands twice"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "loads //fonts.example/x.css"),
        ("<style>@import 'https://fonts.example/x';</style>", "loads https://fonts.example/x"),
        ('<p style="background:url(https://e.example/x)"></p>', "loads https://e.example/x"),
        ('<img src="x.png" alt="">', "no alternative text"),
        ("x" * 3_000_001, "3.0 MB"),
    ],
)
def test_a_site_is_refused_for(body, complaint, tmp_path):
    site = tmp_path / "site"
    page(site, "good", "other.html")
    (tmp_path / "outside.html").write_text("x")
    page(site, body)
    assert any(complaint in one for one in checks.complaints(site)), checks.complaints(site)


def test_a_good_site_is_not_refused(tmp_path):
    body = '<p id="é">x</p><a href="#%C3%A9">a</a><a href="">b</a><a href="https://arxiv.org">c</a><a href="#top">d</a>'
    page(tmp_path, body + '<a href="sub/">e</a><img alt="x" src="data:image/png;base64,xx">')
    page(tmp_path / "sub", '<a href="../index.html#%C3%A9">up</a>')
    assert checks.complaints(tmp_path) == []


def test_a_style_sheet_must_not_load_from_elsewhere(tmp_path):
    page(tmp_path, "x")
    (tmp_path / "x.css").write_text("@font-face { src: url('https://fonts.example/a.woff2') }")
    assert checks.complaints(tmp_path) == ["x.css: loads https://fonts.example/a.woff2"]


def committed(root: Path, change) -> Book:
    """A copy of what the book is made from, with another notebook."""
    place = papers.paper(SLUG).notebook.relative_to(papers.ROOT)
    (root / place).parent.mkdir(parents=True)
    nb = notebooks.read(papers.ROOT / place)
    change(nb)
    notebooks.write(nb, root / place)
    return Book(catalogue={SLUG: papers.paper(SLUG)}, root=root)


def test_a_notebook_with_an_error_output_fails_the_build(tmp_path):
    def break_(nb):
        cell = next(cell for cell in nb.cells if cell.cell_type == "code")
        cell.outputs = [new_output("error", ename="ValueError", evalue="x", traceback=["x"])]

    book = committed(tmp_path / "root", break_)
    with pytest.raises(HookbookError, match=r"Parameters, cell parameters-2 ended in ValueError"):
        write(tmp_path / "source", book)


def test_a_notebook_can_link_the_page_on_the_default_model(tmp_path):
    def add(nb):
        nb.cells.append(new_markdown_cell("[oddities](../../book/pages/model.md#outlier-dimensions)", id="more-1"))

    write(tmp_path / "source", committed(tmp_path / "root", add))
    page = (tmp_path / "source" / "papers" / f"{SLUG}.ipynb").read_text(encoding="utf-8")
    assert "../model.html#outlier-dimensions" in page


def test_it_can_be_written_with_nothing_audited_and_no_evidence(tmp_path):
    book = committed(tmp_path / "root", lambda nb: None)
    write(tmp_path / "source", book)
    assert "No audit is kept yet" in (tmp_path / "source" / "untrained.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "source" / "_extra" / "scoreboard.csv").open(encoding="utf-8")))
    assert {row["preset"] for row in rows} == {"quick"}


def test_modules_that_get_a_page_are_read_from_the_same_root(tmp_path):
    def add(nb):
        nb.cells.append(new_code_cell("from helpers import forest", id="more-1"))

    write(tmp_path / "source", committed(tmp_path / "root", add))
    assert (tmp_path / "source" / "reference" / "forest.md").is_file()


def test_it_can_be_written_before_anything_stands(tmp_path):
    planned = {slug: one for slug, one in papers.catalogue().items() if one.status == "planned"}
    book = write(tmp_path / "source", Book(catalogue=planned, root=tmp_path))
    assert not book.standing and "No notebook stands yet" in (tmp_path / "source" / "scoreboard.md").read_text()


def test_a_notebook_that_has_not_run_yet_is_among_the_planned(tmp_path):
    def clear(nb):
        for cell in nb.cells:
            cell.pop("outputs", None) if cell.cell_type == "markdown" else cell.update(outputs=[])

    book = write(tmp_path / "source", committed(tmp_path / "root", clear))
    assert not book.standing and [one.slug for one in book.planned] == [SLUG]
    assert not (tmp_path / "source" / "papers").exists()


def test_a_claim_that_a_null_passes_comes_first(tmp_path):
    book = committed(tmp_path / "root", lambda nb: None)
    record = audit_record("C1a", "passed")
    folder = tmp_path / "root" / "data" / "audit" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / f"{SLUG}.json").write_text(json.dumps(record), encoding="utf-8")
    write(tmp_path / "source", book)
    text = (tmp_path / "source" / "untrained.md").read_text(encoding="utf-8")
    assert "1 of 2 audited claims is passed" in text
    assert f'<p class="test"><a href="papers/{SLUG}.html">{SLUG}</a> on smollm2-135m' in text, (
        "the first part is of all papers"
    )
    assert (
        text.index('id="passed"')
        < text.index("passes it too")
        < text.index(f'id="{SLUG}"')
        < text.index("does not pass")
    )


def audit_record(passing: str, outcome: str) -> dict:
    def claim(name: str, outcome: str) -> dict:
        found = {"verdict": "holds", "value": 0.9, "interval": [0.8, 1.0], "reason": "", "gate": None}
        null = {"null": "random", "outcome": outcome, "status": "done", **found}
        lists = {part: [] for part in ("seeds", "redraws", "jitter", "specifications", "doubts")}
        together = {"outcome": outcome, "decided_by": "random"}
        return {"id": name, "kind": "causal", "statement": f"Statement {name}.", "statistic": "s", "test": "≥ 0.70"} | {
            "region": [0.7, None], "positive": True, "null": together, "nulls": [null], **found, **lists}  # fmt: skip

    rows = [claim("C1a", outcome if passing == "C1a" else "failed"), claim("C2", "failed")]
    return {"paper": SLUG, "model": "smollm2-135m", "claims": rows, "runs": {"planned": 1, "not_done": []}}


def test_relinking_keeps_code_and_strangers_and_finds_pages():
    pages = {"docs/audit.md": "run/audit.md", "CONTRIBUTING.md": "run/add.md", "notebooks/a/x.ipynb": "papers/x.ipynb"}
    given = (
        "[a](docs/audit.md) `[b](docs/audit.md)` [c](https://e.org/x.md) [d](LICENSE) [e](notebooks/a/x.ipynb#c2-14) "
        "[f](#here)\n```\n[g](docs/audit.md)\n```\n[`h`](notebooks/a/x.ipynb)"
    )
    assert relink.relink(given, "CONTRIBUTING.md", pages) == (
        '[a](audit.md) `[b](docs/audit.md)` [c](https://e.org/x.md) d <a href="../papers/x.html#c2-14">e</a> '
        '<a href="#here">f</a>\n```\n[g](docs/audit.md)\n```\n[`h`](../papers/x.ipynb)'
    )


def test_docstrings_keep_code_stars_and_tables():
    lines = ["A `x[*a]` of *some* [*b, c], `d`, e_ and f|g.", "", "| a | b |", "|---|---|", "| `1` | 2 |"]
    assert docstrings.as_rest(lines) == [
        r"A ``x[*a]`` of *some* [\*b, c], ``d``, e\_ and f\|g.", "", "", ".. list-table::", "   :header-rows: 1", "",
        "   * - a", "     - b", "   * - ``1``", "     - 2", "",
    ]  # fmt: skip


def test_a_notebooks_cells_become_a_page():
    nb = new_notebook(
        cells=[
            new_markdown_cell("# Title", id="title-1"),
            new_markdown_cell("## C1a It holds\n\n[there](#c1a-2)", id="c1a-1"),
            new_code_cell("1 + 1", id="c1a-2", outputs=[new_output("display_data", {"text/plain": "2"})]),
            new_code_cell("widgets.explorer()", id="explore-1"),
            new_code_cell("seed: int = 0", id="p", metadata={"tags": ["parameters"]}),
        ]
    )
    made = notebook_page.page(nb, "notebooks/a/x.ipynb", "# Head", "# Foot", {})
    sources = [cell.source for cell in made.cells]
    assert sources[0] == "# Head" and sources[-1] == "# Foot"
    assert 'id="c1a-1"' in sources[1] and '<a href="#c1a-2">there</a>' in sources[1]
    tags = {cell.source: cell.metadata.get("tags") for cell in made.cells if cell.cell_type == "code"}
    assert tags["1 + 1"] == ["hide-input"] and tags["seed: int = 0"] == ["parameters"]
    assert any("sliders" in source for source in sources)
    assert notebook_page.sections(nb) == {"C1a": "c1a-1"}


def test_heads_are_gathered_from_what_the_notebooks_say(tmp_path):
    says = "Of all heads L3H1 and L2H10 matter. L3H1 alone, little. A sentence with L4 and H5 names none."
    said = new_output("display_data", {"text/markdown": says})

    def add(nb):
        nb.cells.insert(1, new_code_cell("1", id="c9-1", outputs=[said]))

    book = committed(tmp_path / "root", add)
    found = {
        tuple(one.names): [(cell, text) for _, cell, text in one.places]
        for one in heads.met(book.papers, "smollm2-135m")
    }
    assert found["L2H10",] == [("c9-1", "Of all heads L3H1 and L2H10 matter.")]
    assert [text for _, text in found["L3H1",]] == ["Of all heads L3H1 and L2H10 matter.", "L3H1 alone, little."]
    assert len({name for names in found for name in names}) == sum(map(len, found)), "each once"
    assert heads.met(book.papers, "gpt2") == []


def test_strips_stay_inside_and_tell_their_numbers():
    scale = strips.Scale.over([0.7, None], [{"value": 0.9, "interval": [0.8, 1.0]}], None)
    html = strips.strip(scale, [0.7, None], {"value": 0.9, "interval": [0.8, 1.0]}, "holds", paper=5.0)
    numbers = [float(number) for number in re.findall(r"(?:left|width|--[ab]):(-?[\d.]+)%", html)]
    assert len(numbers) == 6 and all(0 <= number <= 100 for number in numbers)
    dotted = strips.strip(scale, [0.7, None], None, "none", dots=[0.7, -4.0, 9.0])
    assert [float(place) for place in re.findall(r"M(-?[\d.]+) 0h0", dotted)] == [5.36, 0, 100]
    assert strips.told({"value": 0.9, "interval": [0.8, 1.0]}) == "0.900 [0.800, 1.000]"
    assert strips.told(None) == strips.told({"value": None}) == "no value"
    assert strips.Scale.over([None, None], []) == strips.Scale(-0.06, 1.06)


def test_lines_stay_inside_their_drawing_and_have_a_legend():
    drawn = curves.curves({"a & b": [0.0, 2.0, 1.0], "c": [1.0, 1.0]}, "layer", "Two lines over layers.")
    points = [
        tuple(map(float, point.split(","))) for line in re.findall(r'points="([^"]+)"', drawn) for point in line.split()
    ]
    assert len(points) == 5 and all(0 <= x <= 640 and 0 <= y <= 220 for x, y in points)
    assert points[0][1] > points[2][1] > points[1][1], "larger is higher"
    assert "a &amp; b" in drawn and 'aria-label="Two lines over layers."' in drawn
    assert "nan" not in curves.curves({"a": [0.0]}, "layer", "x")


def test_a_card_gets_a_smaller_picture():
    drawn = io.BytesIO()
    Image.effect_noise((990, 418), 40).convert("RGB").save(drawn, format="png")
    small = thumbnails.thumbnail(drawn.getvalue())
    image = Image.open(io.BytesIO(small))
    assert image.format == "WEBP" and image.size == (640, 270) and len(small) < len(drawn.getvalue()) / 4
    Image.new("RGB", (300, 200)).save(drawn := io.BytesIO(), format="png")
    assert Image.open(io.BytesIO(thumbnails.thumbnail(drawn.getvalue()))).size == (300, 200), "never larger"


def test_bibtex_braces_and_escapes():
    entry = references.bibtex(papers.paper(SLUG))
    assert entry.startswith(f"@inproceedings{{{SLUG},") and "year = {2023}," in entry and entry.endswith("}")
    assert "{{Linear Representations" in entry and "Curt Tigges and Oskar" in entry and "eprint = {2310.15154}" in entry


def many(count: int) -> list[Shown]:
    """Papers that stand, of all themes and levels."""
    base = papers.paper(SLUG)
    found = []
    for index in range(count):
        level = teaching.LEVELS[index % 3]
        theme = papers.THEMES[index % len(papers.THEMES)]
        lesson = base.teaching.model_copy(update={"difficulty": level, "prerequisites": [f"concept {index % 40}"]})
        found.append(_Standing(base.model_copy(update={"slug": f"p{index}", "theme": theme, "teaching": lesson})))
    return found


class _Standing(Shown):
    stands = True


@pytest.mark.parametrize("count", [6, 12])
@pytest.mark.parametrize("standing", [0, 1, 4, 6, 100])
def test_a_syllabus_fills_its_weeks(standing, count):
    plan = syllabus.weeks(many(standing), count)
    assert [week.number for week in plan] == (list(range(1, count + 1)) if standing else [])
    slugs = list(dict.fromkeys(one.slug for week in plan for one in week.papers))
    assert len(slugs) == min(standing, count)
    levels = [teaching.LEVELS.index(week.papers[0].paper.teaching.difficulty) for week in plan]
    assert levels == sorted(levels), "easy ones first"
    if standing == 100:
        assert set(levels) == {0, 1, 2} and len({week.papers[0].paper.theme for week in plan}) > count / 2


@pytest.mark.parametrize("standing", [0, 1, 4, 100])
def test_the_graph_has_every_notebook_once(standing):
    drawn = teaching.graph(many(standing))
    assert drawn.count("<a href") == standing
    assert drawn.count('class="edge"') == standing


@pytest.mark.parametrize(("standing", "graphs"), [(12, 1), (13, 13), (100, len(papers.THEMES))])
def test_many_notebooks_get_a_graph_for_each_theme(standing, graphs):
    found = teaching.graphs(many(standing))
    assert len(found) == graphs and ("" in found) == (graphs == 1)
    assert sum(drawn.count("<a href") for drawn in found.values()) == standing


def test_the_folder_is_replaced_only_by_a_whole_site(tmp_path, monkeypatch):
    from book import build

    out = tmp_path / "site"
    out.mkdir()
    (out / "old.html").write_text("old")
    monkeypatch.setattr(build, "build_main", lambda arguments: 1)
    assert build.build(out) and (out / "old.html").exists()
    monkeypatch.setattr(build, "build_main", lambda arguments: page(Path(arguments[-1]), "new") or 0)
    monkeypatch.setattr(build.site, "complaints", lambda folder: ["index.html: wrong"])
    assert build.build(out) == ["index.html: wrong"] and (out / "old.html").exists()
    monkeypatch.setattr(build.site, "complaints", lambda folder: [])
    assert build.build(out) == [] and not (out / "old.html").exists() and (out / "index.html").exists()
