"""Rules about what a run left in the file: ledger, counts, errors, metadata, stamp, pictures, paths."""

import re
from collections.abc import Iterator
from typing import Any

from bs4 import BeautifulSoup

from helpers import notebooks, papers
from helpers.fingerprint import differences, fingerprint
from helpers.rulebook import Book, Found, rule

VERDICTS = ("holds", "fails", "open", "not tested", "out of scope", "checked")
MAX_BYTES = 500_000
MIN_ALT = 40  # characters
_ABSOLUTE = re.compile(r"(?<![\w.:/~-])/(?:home|Users|root|tmp|var|opt|usr|mnt|srv|private|content)/\w|\b[A-Z]:\\\\?\w")
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
    """No output is an error."""
    for index, output in book.outputs:
        if output.output_type == "error":
            yield index, f"the output is an error ({output.ename})"


@rule
def metadata(book: Book) -> Found:
    """Nothing that hides failures, belongs to one run only, or needs a kernel of another name."""
    nb = book.nb
    for key in set(nb.metadata) - {"kernelspec", "language_info", "hookbook"}:
        yield "metadata", f"`{key}` may not stand in a committed notebook"
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "metadata", "the kernel must be called python3"
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
    """Nothing that only one machine knows."""
    for index, cell in enumerate(book.nb.cells):
        texts = [cell.source]
        for output in cell.get("outputs", []):
            texts.append(notebooks.text_of(output.get("text", "")))
            data = output.get("data", {})
            texts += [notebooks.text_of(value) for mime, value in data.items() if mime.startswith("text/")]
        for text in texts:
            if found := _ABSOLUTE.search(re.sub(r"data:[\w/+;=-]+,[A-Za-z0-9+/=]+", "", text)):
                yield index, f"an absolute path: {text[found.start() :][:40]!r}"
                break


@rule
def alternative_text(book: Book) -> Found:
    """Every picture says what it shows, to those who cannot see it."""
    for index, output in book.outputs:
        for mime in output.get("data", {}):
            if mime.startswith("image/"):
                yield index, f"a picture as {mime} has no place for alternative text: show it with helpers.plots"
        yield from (
            (index, text) for text in _weak_alts(notebooks.text_of(output.get("data", {}).get("text/html", "")))
        )
    for index, cell in book.markdown:
        source = notebooks.without_code(cell.source)
        for alt, target in _IMAGE.findall(source):
            # a badge is a link's label, short by nature
            if len(alt) < MIN_ALT and not target.startswith("http"):
                yield index, f"the picture {target} needs {MIN_ALT} characters of alternative text, it has {len(alt)}"
        yield from ((index, text) for text in _weak_alts(source))


def _weak_alts(html: str) -> Iterator[str]:
    if "<img" not in html:
        return
    for image in BeautifulSoup(html, features="html.parser").find_all("img"):
        alt = (image.get("alt") or "").strip()
        if len(alt) < MIN_ALT:
            yield f"a picture needs {MIN_ALT} characters of alternative text, it has {alt!r}"


@rule
def small_file(book: Book) -> Found:
    """A notebook that a browser and a diff can bear."""
    if (size := book.path.stat().st_size) > MAX_BYTES:
        yield "the whole notebook", f"{size:,} bytes are more than {MAX_BYTES:,}: fewer or smaller figures"
