"""Rules about what a run left in the file: ledger, counts, errors, metadata, stamp, pictures, paths."""

import re
from collections.abc import Iterator
from typing import Any

from bs4 import BeautifulSoup

from helpers import alt_text, notebooks, papers
from helpers.fingerprint import differences, fingerprint
from helpers.rulebook import Book, Found, rule

VERDICTS = ("holds", "fails", "open", "not tested", "out of scope", "checked")
MAX_BYTES = 500_000
_ABSOLUTE = re.compile(
    r"(?<![\w.:/~-])/(?:home|Users|root|tmp|var|opt|usr|mnt|srv|private|content|data|scratch|workspace|kaggle|Volumes"
    r"|gpfs|lustre|nfs)/\w|file:///|\b[A-Z]:(?:\\\\?|/)\w"
)
_DATA_URI = re.compile(r"data:[\w/+;=-]+,[A-Za-z0-9+/=]+")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(\s*([^)\s]+)")


@rule
def claims_reached(book: Book) -> Found:
    """Every claim of the catalogue has a verdict in the ledger that the outputs hold."""
    ledger = notebooks.ledger(book.nb)
    rows = {row["id"]: row for row in ledger["claims"]} if ledger else {}
    for claim in book.paper.claims if book.paper else ():
        row = rows.get(claim.id)
        if row is None or row.get("verdict") not in VERDICTS:
            yield "The ledger", f"{claim.id} has no verdict in the outputs: run `hookbook refresh {book.path.stem}`"
        elif (row.get("reason") or "").startswith("never reached"):
            yield "The ledger", f"{claim.id} was never reached"


@rule
def ledger_in_sync(book: Book) -> Found:
    """The ledger in the outputs states the claims as the catalogue does, and comes from the quick preset."""
    ledger = notebooks.ledger(book.nb)
    if ledger is None or book.paper is None:
        return
    stated = {claim.id: claim for claim in book.paper.claims}
    for row in ledger["claims"]:
        claim = stated.get(row["id"])
        if claim is None:
            yield "The ledger", f"the catalogue states no claim {row['id']}"
            continue
        for field, value in expected_row(claim).items():
            if row.get(field) != value:
                yield "The ledger", f"{claim.id}: its {field} is {row.get(field)!r}, in data/papers.yaml {value!r}"
    if ledger.get("preset") != "quick":
        yield "The ledger", f"it comes from the preset {ledger.get('preset')}, committed outputs are those of quick"
    if ledger.get("paper") != book.paper.slug:
        yield "The ledger", f"it is the ledger of {ledger.get('paper')}"


def expected_row(claim: papers.Claim) -> dict[str, Any]:
    """What a ledger's row must say about its claim; the value and the verdict are the run's."""
    return {
        "kind": claim.kind,
        "statement": claim.statement,
        "statistic": claim.statistic,
        "unit": claim.unit,
        "test": claim.test.describe(),
        "paper_value": claim.paper.value,
        "tolerance": claim.tolerance,
    }


@rule
def executed(book: Book) -> Found:
    """Every code cell ran once, from top to bottom."""
    for count, (index, cell) in enumerate(book.code, start=1):
        if cell.execution_count != count:
            shown = cell.execution_count or "no number"
            yield index, f"this cell has {shown} where {count} is expected: it was not run in one go"
            return


@rule
def no_errors(book: Book) -> Found:
    """No output is an error, not even one that was caught and printed."""
    for index, output in book.outputs:
        if output.output_type == "error":
            yield index, f"the output is an error ({output.ename})"
        elif "Traceback (most recent call last)" in notebooks.text_of(output.get("text", "")):
            yield index, "the output shows a traceback"


@rule
def metadata(book: Book) -> Found:
    """Nothing that hides failures, belongs to one run only, or needs a kernel of another name."""
    nb = book.nb
    for key in set(nb.metadata) - {"kernelspec", "language_info", "hookbook"}:
        yield "metadata", f"`{key}` may not stand in a committed notebook"
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "metadata", "the kernel must be called python3"
    for index, output in book.outputs:
        for key in output.get("metadata", {}):
            yield index, f"`{key}` may not stand in an output's metadata"
    for index, cell in enumerate(nb.cells):
        for key in set(cell.metadata) - {"tags", "jupyter"}:
            yield index, f"`{key}` may not stand in a cell's metadata"
        for tag in {"injected-parameters", "raises-exception", "skip-execution"} & set(cell.metadata.get("tags", [])):
            yield index, f"the tag {tag} is not allowed"


@rule
def no_widget_views(book: Book) -> Found:
    """Widgets are kept as their static twins only."""
    for index, output in book.outputs:
        if notebooks.WIDGET_VIEW in output.get("data", {}):
            yield index, "a widget view without its kernel shows an error: refresh the notebook"


@rule
def stamp(book: Book) -> Found:
    """What the outputs depend on is what they were made with."""
    stored = book.nb.metadata.get("hookbook", {}).get("fingerprint", {}).get("hard")
    if not stored:
        yield "metadata", f"there is no stamp: run `hookbook refresh {book.path.stem}`"
        return
    if changed := differences(stored, fingerprint(book.path, book.defaults).hard):
        yield "metadata", f"stale since {', '.join(changed)} changed: run `hookbook refresh {book.path.stem}`"


@rule
def stale_libraries(book: Book) -> Found:
    """Figures and library versions may lag behind; that is only listed."""
    stored = book.nb.metadata.get("hookbook", {}).get("fingerprint", {}).get("soft")
    if stored and (changed := differences(stored, fingerprint(book.path, book.defaults).soft)):
        yield "metadata", f"made with other versions of {', '.join(changed)}"


@rule
def no_absolute_paths(book: Book) -> Found:
    """Nothing that only one machine knows: not in the cells, not in their outputs, not in any metadata."""
    for index, cell in enumerate(book.nb.cells):
        outputs = [_written(output) for output in cell.get("outputs", [])]
        if path := _path_in([cell.source, cell.metadata, *outputs]):
            yield index, f"an absolute path: {path!r}"
    if path := _path_in([book.nb.metadata]):
        yield "metadata", f"an absolute path: {path!r}"


def _written(output: Any) -> dict[str, Any]:
    """An output without its pictures, whose letters say nothing."""
    data = output.get("data", {})
    readable = {mime: value for mime, value in data.items() if "svg" in mime or not mime.startswith("image/")}
    return {**output, "data": readable}


def _path_in(values: list[Any]) -> str | None:
    """The beginning of the first absolute path in the texts of these values."""
    texts = (_DATA_URI.sub("", text) for text in notebooks.strings(values))
    return next((text[found.start() :][:40] for text in texts if (found := _ABSOLUTE.search(text))), None)


@rule
def alternative_text(book: Book) -> Found:
    """Every picture says what is drawn against what, and what it shows, to those who cannot see it."""
    for index, output in book.outputs:
        for mime in output.get("data", {}):
            if mime.startswith("image/"):
                yield index, f"a picture as {mime} has no place for alternative text: show it with helpers.plots"
        for alt in _alts(notebooks.text_of(output.get("data", {}).get("text/html", ""))):
            yield from ((index, text) for text in alt_text.lacks(alt))
    for index, cell in book.markdown:
        source = notebooks.without_code(cell.source)
        for alt, target in _IMAGE.findall(source):
            # a badge is a link's label, short by nature
            if not target.startswith("http"):
                yield from ((index, f"{target}: {text}") for text in _too_short(alt))
        for alt in _alts(source):
            yield from ((index, text) for text in _too_short(alt))


def _too_short(alt: str) -> Iterator[str]:
    """A drawing in the prose may have neither axes nor a finding, but it must be told."""
    if len(alt) < alt_text.SHORTEST:
        yield f"a picture needs {alt_text.SHORTEST} characters of alternative text, it has {alt!r}"


def _alts(html: str) -> list[str]:
    """The alternative texts of all pictures in HTML."""
    images = BeautifulSoup(html, features="html.parser").find_all("img") if "<img" in html else []
    return [(image.get("alt") or "").strip() for image in images]


@rule
def small_file(book: Book) -> Found:
    """A notebook that a browser and a diff can bear."""
    if (size := book.path.stat().st_size) > MAX_BYTES:
        yield "the whole notebook", f"{size:,} bytes are more than {MAX_BYTES:,}: fewer or smaller figures"
