"""Writes the book's source: pages from templates, notebooks as pages, documents of the repository, pictures, tables."""

import json
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup

from book import curves, heads, notebook_page, reference, references, scores, strips, syllabus, teaching, untrained
from book.relink import relink
from book.shown import DEFAULT_MODEL, TIERS, Shown, shown
from book.thumbnails import thumbnail
from helpers import badges, gallery, notebooks, papers, tables
from helpers.audit import summary
from helpers.papers import ROOT, Paper

HERE = Path(__file__).parent
# documents of the repository that are pages of the book
DOCUMENTS = {
    "docs/sweeps.md": "run/sweep.md",
    "docs/audit.md": "run/audit.md",
    "CONTRIBUTING.md": "run/add.md",
    "data/README.md": "reference/data.md",
}


@dataclass(frozen=True)
class Book:
    """Everything that pages are made from; `root` is where notebooks, ledgers and audits lie."""

    catalogue: dict[str, Paper] = field(default_factory=papers.catalogue)
    root: Path = ROOT

    @cached_property
    def papers(self) -> list[Shown]:
        """All papers, in the order of the themes."""
        return shown(self.catalogue, self.root)

    @property
    def standing(self) -> list[Shown]:
        """Those with a notebook."""
        return [one for one in self.papers if one.stands]

    @property
    def planned(self) -> list[Shown]:
        """Those without."""
        return [one for one in self.papers if not one.stands]

    @cached_property
    def pages(self) -> dict[str, str]:
        """Path from the root -> path of the page in the book's source."""
        model = {"book/pages/model.md": "model.md"}  # which notebooks may link, as a file of the repository
        return DOCUMENTS | model | {one.place.as_posix(): f"papers/{one.slug}.ipynb" for one in self.standing}

    @cached_property
    def scores(self) -> list[scores.Score]:
        """The scoreboard."""
        return scores.scores(self.papers)

    @cached_property
    def audited(self) -> list[untrained.Audited]:
        """The claims that were tried on networks that learned nothing."""
        folder = self.root / "data" / "audit"
        return untrained.audited(self.papers, summary.records(folder))

    @cached_property
    def modules(self) -> list[reference.Module]:
        """The modules that have a page of their own."""
        return reference.modules(self.root / one.place for one in self.standing)

    @cached_property
    def cover(self) -> Shown | None:
        """The paper whose figure opens the book."""
        with_cover = {one.slug: one for one in self.standing if one.cover and one.cover.sentence}
        return with_cover.get(gallery.COVER) or next(iter(with_cover.values()), None)


def write(folder: Path, book: Book | None = None) -> Book:
    """Write the whole source into a folder.

    Raises:
        HookbookError: the catalogue, a notebook, a ledger or an audit cannot be read, or a notebook holds an error.
    """
    book = book or Book()
    jinja = _templates(book)
    for template in sorted((HERE / "pages").rglob("*.md")):
        name = template.relative_to(HERE / "pages")
        _put(folder / name, jinja.get_template(name.as_posix()).render())
    for file, page in DOCUMENTS.items():
        _put(folder / page, relink((ROOT / file).read_text(encoding="utf-8"), file, book.pages))
    for module in book.modules:
        _put(folder / "reference" / f"{module.name}.md", module.page)
    for one in book.standing:
        _notebook(folder, one, book, jinja)
    extra = folder / "_extra"
    _put(extra / "scoreboard.csv", scores.as_csv(book.scores))
    if book.cover:
        (extra / "cover.png").write_bytes(book.cover.cover.picture)
    return book


def _notebook(folder: Path, one: Shown, book: Book, jinja: Environment) -> None:
    nb = notebooks.read(book.root / one.place)
    known = {
        "one": one,
        "sections": notebook_page.sections(nb),
        "badges": badges.badges(one.paper),
        "bibtex": references.bibtex(one.paper),
        "provenance": references.provenance(nb.metadata),
    }
    head = jinja.get_template("paper-head.md").render(known)
    foot = jinja.get_template("paper-foot.md").render(known)
    place = one.place.as_posix()
    page = notebook_page.page(nb, place, head, foot, book.pages)
    _put(folder / "papers" / f"{one.slug}.ipynb", nbformat.writes(page))
    downloads = folder / "_extra" / "notebooks"
    downloads.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(book.root / one.place, downloads / f"{one.slug}.ipynb")
    if one.cover:
        picture = folder / "_extra" / "covers" / f"{one.slug}.webp"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(thumbnail(one.cover.picture))


def _templates(book: Book) -> Environment:
    jinja = Environment(
        loader=FileSystemLoader([HERE / "pages", HERE / "templates"]),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters.update(number=tables.number, span=tables.span, look=strips.look, inline=_inline)
    jinja.globals.update(
        book=book,
        themes=papers.THEMES,
        symbols=tables.SYMBOLS,
        strip=strips.strip,
        look=strips.look,
        told=strips.told,
        Scale=strips.Scale,
        nulls=untrained.NAMES,
        graphs=teaching.graphs,
        syllabus=syllabus.weeks,
        heads=heads.met,
        curves=curves.curves,
        oddities=_oddities(book.root),
        default_model=DEFAULT_MODEL,
        tiers=TIERS,
        source=gallery.source,
    )
    return jinja


def _oddities(root: Path) -> dict[str, Any] | None:
    path = root / "data" / "oddities.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _inline(markdown: str) -> Markup:
    """One sentence of a notebook as HTML, its emphasis kept."""
    return Markup(MarkdownIt("commonmark", {"html": False}).renderInline(markdown))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
