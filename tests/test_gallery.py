"""The README's gallery: what it shows, from where, and that only its own part of the README changes."""

import base64
import json
import re

import pytest
from catalogue_entries import PLANNED, STANDS
from nbformat.v4 import new_code_cell, new_notebook, new_output

from helpers import covers, gallery, notebooks, papers
from helpers.errors import HookbookError
from helpers.papers import Paper

COVER = "<!-- cover:start -->\n<!-- cover:end -->"
UNTRAINED = "<!-- untrained:start -->\n<!-- untrained:end -->"
README = f"# Title\n\n{COVER}\n\n{UNTRAINED}\n\nBefore.\n\n<!-- gallery:start -->\n<!-- gallery:end -->\n\nAfter.\n"


def entry(slug, of=STANDS, **fields):
    return Paper.model_validate({"slug": slug, **of, **fields})


def ledger(model, **verdicts):
    claims = [{"id": c, "verdict": v, "n": 8 * i} for i, (c, v) in enumerate(verdicts.items(), 1)]
    return {"paper": "some-paper", "model": model, "claims": claims, "run": {"date": "2026-01-02", "minutes": 6.0}}


def store(root, model, slug, content):
    path = root / "data" / "claims" / model / f"{slug}.json"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def commit(root, paper, content):
    path = root / "notebooks" / paper.theme / f"{paper.slug}.ipynb"
    path.parent.mkdir(parents=True)
    outputs = [new_output("display_data", {notebooks.LEDGER_MIME: content, "text/html": "table"})] if content else []
    notebooks.write(new_notebook(cells=[new_code_cell("ledger.table()", outputs=outputs)]), path)


def verdicts(text):
    """The last column of the only row."""
    return re.sub(r" \([^)]*\)", "", text.splitlines()[2].split(" | ")[-1].removesuffix(" |"))


def test_a_row_says_where_what_and_how_hard(tmp_path):
    paper = entry("some-paper", title="A | B [C]")
    commit(tmp_path, paper, None)
    text = gallery.gallery_markdown({"some-paper": paper}, tmp_path)
    link = "[A \\| B \\[C\\]](notebooks/circuits/some-paper.ipynb)"
    assert text.splitlines()[2:] == [f"| {link} | circuits | introductory, 20 min | 2 | no run stored |"]


def test_verdicts_say_which_run_they_come_from(tmp_path):
    paper, shown = entry("some-paper"), ledger("m", C1="holds")
    del shown["run"]
    commit(tmp_path, paper, shown)
    text = gallery.gallery_markdown({"some-paper": paper}, tmp_path)
    assert "m: 1 holds here, 1 not tested (quick run)" in text
    store(tmp_path, "m", "some-paper", ledger("m", C1="holds", C2="open"))
    text = gallery.gallery_markdown({"some-paper": paper}, tmp_path)
    assert "m: 1 holds here, 1 open (2026-01-02, 8 to 16 units, 6 min)" in text


def test_a_notebook_that_is_not_written_yet_has_no_link(tmp_path):
    text = gallery.gallery_markdown({"some-paper": entry("some-paper")}, tmp_path)
    assert text.splitlines()[2] == "| A: B | circuits | introductory, 20 min | 2 | no run stored |"


def test_verdicts_come_from_the_stored_claims_of_each_model(tmp_path):
    paper = entry("some-paper")
    store(tmp_path, "smollm2-135m", "some-paper", ledger("smollm2-135m", C1="holds", C2="open"))
    store(tmp_path, "gpt2", "some-paper", ledger("gpt2", C1="holds", C2="fails"))
    store(tmp_path, "other", "another-paper", "not even JSON")
    commit(tmp_path, paper, ledger("smollm2-135m", C1="fails", C2="fails"))
    text = gallery.gallery_markdown({"some-paper": paper}, tmp_path)
    assert verdicts(text) == "gpt2: 1 holds here, 1 fails here<br>smollm2-135m: 1 holds here, 1 open"


def test_without_stored_claims_the_committed_notebook_is_read(tmp_path):
    paper = entry("some-paper")
    commit(tmp_path, paper, ledger("smollm2-135m", C1="holds", C2="holds"))
    assert verdicts(gallery.gallery_markdown({"some-paper": paper}, tmp_path)) == "smollm2-135m: 2 hold here"


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("gpt2-medium", "gpt2-medium: 1 replicates, 1 fails"),
        ("smollm2-135m", "smollm2-135m: 1 holds here, 1 fails here"),
        ("random:gpt2", "random:gpt2: 1 holds here, 1 fails here"),
    ],
)
def test_only_the_papers_own_class_replicates(tmp_path, model, shown):
    store(tmp_path, "m", "some-paper", ledger(model, C1="fails", C2="holds"))
    paper = entry("some-paper", model_class=["gpt2"])
    assert verdicts(gallery.gallery_markdown({"some-paper": paper}, tmp_path)) == shown


def test_a_claim_that_the_ledger_lacks_is_not_hidden(tmp_path):
    store(tmp_path, "m", "some-paper", ledger("m", C1="checked", C9="holds"))
    text = gallery.gallery_markdown({"some-paper": entry("some-paper")}, tmp_path)
    assert verdicts(text) == "m: 1 checked, 1 not tested"


def test_planned_papers_are_counted_per_theme_in_the_order_of_the_book():
    planned = {
        "a": entry("a", PLANNED, theme="vision"),
        "b": entry("b", PLANNED, theme="circuits"),
        "c": entry("c", PLANNED, theme="vision"),
    }
    assert gallery.gallery_markdown(planned) == "Planned: 3 more papers (circuits 1, vision 2).\n"
    one = {"a": planned["a"]}
    assert gallery.gallery_markdown(one) == "Planned: 1 more paper (vision 1).\n"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"model": "m"}', '{"model": "m", "claims": [{"id": "C1", "verdict": "splendid"}]}']
)
def test_a_broken_ledger_is_named(tmp_path, content):
    store(tmp_path, "m", "some-paper", content)
    with pytest.raises(HookbookError, match=r"m.some-paper\.json is not a ledger"):
        gallery.gallery_markdown({"some-paper": entry("some-paper")}, tmp_path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_write_changes_only_what_lies_between_the_markers(tmp_path, newline):
    readme = tmp_path / "README.md"
    readme.write_bytes(README.replace("\n", newline).encode())
    assert not gallery.is_current(readme)
    gallery.write(readme)
    assert gallery.is_current(readme)
    once = readme.read_bytes().decode()
    outside = re.compile(r"(<!-- (\w+):start -->).*?(<!-- \2:end -->)", re.DOTALL)
    assert outside.sub(r"\1\3", once) == outside.sub(r"\1\3", README.replace("\n", newline))
    assert once.count("\n") == once.count(newline)
    assert "Planned: " in once and "![" in once
    gallery.write(readme)
    assert readme.read_bytes().decode() == once
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "docs"]


def test_the_cover_is_the_notebooks_own_figure_and_sentence(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(README)
    gallery.write(readme)
    shown = covers.cover(papers.paper(gallery.COVER).notebook)
    assert f"![{shown.alt}](docs/covers/{gallery.COVER}.png)" in readme.read_text()
    assert shown.sentence in readme.read_text()
    picture = tmp_path / "docs" / "covers" / f"{gallery.COVER}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.write_bytes(b"another")
    assert not gallery.is_current(readme)


def test_a_notebook_without_a_cover_is_told_what_it_lacks(tmp_path):
    path = tmp_path / "some.ipynb"
    notebooks.write(new_notebook(cells=[new_code_cell("1")]), path)
    with pytest.raises(HookbookError, match="tagged `cover`"):
        covers.cover(path)


def test_a_card_takes_the_tagged_picture_or_the_first(tmp_path):
    path, pictures = tmp_path / "some.ipynb", {}
    for name in ("first", "tagged"):
        data = base64.b64encode(name.encode()).decode()
        pictures[name] = new_output(
            "display_data", {"text/html": f'<img alt="A &amp; {name}" src="data:image/png;base64,{data}">'}
        )
    cells = [new_code_cell("1"), new_code_cell("2", outputs=[pictures["first"]])]
    notebooks.write(new_notebook(cells=cells), path)
    assert covers.figure(path) == covers.Cover(b"first", "A & first", "", "")
    cells.append(new_code_cell("3", outputs=[pictures["tagged"]], metadata={"tags": ["cover"]}))
    notebooks.write(new_notebook(cells=cells), path)
    assert covers.figure(path) == covers.Cover(b"tagged", "A & tagged", "", "")
    notebooks.write(new_notebook(cells=cells[:1]), path)
    assert covers.figure(path) is None


def test_the_gallery_is_stale_when_the_catalogue_has_changed(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text(README)
    gallery.write(readme)
    changed = {**papers.catalogue(), "a": entry("a", PLANNED)}
    monkeypatch.setattr(papers, "catalogue", lambda *_: changed)
    assert not gallery.is_current(readme)


def record(slug="some-paper", **outcomes):
    claims = [{"id": c, "nulls": [{"null": "random", "outcome": o}] if o else []} for c, o in outcomes.items()]
    figures = {"nulls": {"file": f"{slug}-nulls.png", "alt": "x"}}
    return {"paper": slug, "model": "org/m", "claims": claims, "figures": figures}


def test_it_names_the_claims_that_an_untrained_network_passes(tmp_path):
    assert "no audit is kept yet" in gallery.untrained_markdown([], tmp_path)
    one, other = record(C1="failed", C2="passed", C3=None), record("other", C1="undefined")
    text = gallery.untrained_markdown([one, other], tmp_path)
    assert "1 of the 3 audited so far (some-paper C2)" in text and ".png" not in text
    folder = tmp_path / "data" / "audit" / "org--m"
    folder.mkdir(parents=True)
    (folder / "other-nulls.png").write_bytes(b"x")
    text = gallery.untrained_markdown([other], tmp_path)
    assert "none of the 1 audited so far" in text and "[other](data/audit/org--m/other-nulls.png)" in text


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "<!-- gallery:start -->",
        "<!-- gallery:end --> <!-- gallery:start -->",
        README + README,
        "<!-- gallery:start -->" + README,
    ],
)
def test_missing_markers_leave_the_readme_alone(tmp_path, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(HookbookError, match="gallery:start"):
        gallery.write(readme)
    assert readme.read_text() == text


def test_missing_readme(tmp_path):
    with pytest.raises(HookbookError, match="cannot be read"):
        gallery.is_current(tmp_path / "README.md")


def test_the_readme_of_this_repository_is_current():
    assert gallery.is_current(), "run `hookbook gallery --write` and commit README.md and docs/covers"
