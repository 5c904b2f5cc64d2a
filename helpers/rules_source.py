"""Rules about what an author writes: parameters, sections, cells, prose, imports."""

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

from helpers import cells, notebooks, papers, prose
from helpers.errors import HookbookError
from helpers.fingerprint import loads_model
from helpers.rulebook import CLAIM_IDS, Book, Found, rule

SECTIONS = ("Parameters", "Setup", "Data", "claims", "Controls", "Explore", "The ledger", "Exercises", "At paper size")
ALWAYS = ("model_name", "revision", "dtype", "device", "seed")
WITH_LANGUAGE_MODEL = ("prepend_bos", "chat_template")
MAX_LINES, ADVISED_LINES = 40, 30
_INSTALLS = re.compile(r"^[ \t]*[!%]+[ \t]*(?:python -m )?(?:pip|uv|conda|mamba|apt|apt-get)\b.*", re.MULTILINE)


@rule
def parameters_explained(book: Book) -> Found:
    """Every parameter is annotated and commented, in the section of that name."""
    for parameter in book.parameters:
        if not parameter.annotation or not parameter.comment:
            lacks = "type" if not parameter.annotation else "comment with unit, allowed values and the paper's value"
            yield "Parameters", f"{parameter.name} has no {lacks}"
    index = next(i for i, cell in book.code if notebooks.has_tag(cell, "parameters"))
    if notebooks.heading(book.nb, index) != "Parameters":
        yield index, "the parameters cell stands outside the section Parameters"


@rule
def parameters_complete(book: Book) -> Found:
    """The parameters that every notebook has, and those that every language model needs."""
    names = [parameter.name for parameter in book.parameters]
    wanted = ALWAYS + (WITH_LANGUAGE_MODEL if loads_model(book.nb) else ())
    for name in wanted:
        if name not in names:
            yield "Parameters", f"{name} is missing"


@rule
def parameters_read(book: Book) -> Found:
    """Every parameter is read by a later cell before it gets another value."""
    for name in notebooks.unread_parameters(book.nb):
        yield "Parameters", f"{name} is never read: another value would change nothing"


@rule
def presets(book: Book) -> Found:
    """The catalogue's presets are valid here, and quick is the defaults."""
    for name, values in (book.paper.presets if book.paper else {}).items():
        try:
            typed = notebooks.validate(book.parameters, values, book.path.stem)
        except HookbookError as error:
            yield "data/papers.yaml", f"preset {name}: {error}"
            continue
        for parameter, value in typed.items() if name == "quick" else ():
            if value != book.defaults[parameter]:
                says = f"{value!r}, the parameters cell {book.defaults[parameter]!r}"
                yield "data/papers.yaml", f"preset quick says {parameter} = {says}"


@rule
def first_cell(book: Book) -> Found:
    """The title, then what one learns and what one will see."""
    if not book.nb.cells or not re.match(r"# \S", book.nb.cells[0].source):
        yield "the beginning", "the first cell does not begin with a title (`# ...`)"
        return
    for text in ("You will learn", "What you will see"):
        if not re.search(rf"^(?:###[ \t]+|\*\*){text}", book.nb.cells[0].source, re.MULTILINE):
            yield 0, f"the line `**{text}**` is missing"


@rule
def section_order(book: Book) -> Found:
    """The sections of every notebook, in the order that readers know."""
    order = -1
    seen = []
    for index, text in book.headings(2):
        name = "claims" if CLAIM_IDS.match(text) else text
        if name not in SECTIONS:
            yield index, f"there is no section `## {text}`; the sections are {', '.join(SECTIONS)}"
            continue
        if SECTIONS.index(name) < order or (SECTIONS.index(name) == order and name != "claims"):
            yield index, f"`## {text}` stands in the wrong place; the order is {', '.join(SECTIONS)}"
        order = max(order, SECTIONS.index(name))
        seen.append(name)
    for name in SECTIONS:
        if name not in seen:
            yield "the whole notebook", f"the section {name} is missing"


@rule
def claim_sections(book: Book) -> Found:
    """One section per claim of the catalogue; its heading begins with the claim's id."""
    headed = []
    for _, text in book.headings(2):
        if found := CLAIM_IDS.match(text):
            headed += re.findall(r"C\d+[a-z]?", found[0])
    stated = [claim.id for claim in book.paper.claims] if book.paper else headed
    for name in stated:
        if name not in headed:
            yield "the whole notebook", f"no section `## {name} ...` for that claim"
    for name in headed:
        if name not in stated:
            yield "the whole notebook", f"the catalogue states no claim {name}"


@rule
def no_numbers_in_prose(book: Book) -> Found:
    """A measured number typed into markdown goes stale; `ledger.say` writes those."""
    raw = papers.raw_entry(book.paper.slug) if book.paper else {}
    for index, cell in book.markdown:
        for context in prose.numbers(cell.source, prose.texts(raw)):
            yield index, f"a number in prose: {context!r}; let `ledger.say` write it or put it in a code span"


@rule
def paper_quotes(book: Book) -> Found:
    """`[paper: 53.5 %]` quotes what the catalogue's entry says."""
    texts = prose.texts(papers.raw_entry(book.paper.slug)) if book.paper else []
    for index, cell in book.markdown:
        for quote in prose.quotes(cell.source):
            if not any(quote in text for text in texts):
                yield index, f"[paper: {quote}] does not stand in this paper's entry of data/papers.yaml"


@rule
def short_cells(book: Book) -> Found:
    """A cell fits a screen."""
    for index, cell in book.code:
        if (lines := len(cell.source.splitlines())) > MAX_LINES:
            yield index, f"{lines} lines of code; more than {MAX_LINES} fit no screen"


@rule
def long_cell(book: Book) -> Found:
    """About thirty lines are enough."""
    for index, cell in book.code:
        if ADVISED_LINES < (lines := len(cell.source.splitlines())) <= MAX_LINES:
            yield index, f"{lines} lines of code; about {ADVISED_LINES} are enough"


@rule
def declared_imports(book: Book) -> Found:
    """Only the standard library, helpers, and what pyproject.toml names; a notebook installs nothing."""
    for index, cell in book.code:
        if found := _INSTALLS.search(cell.source):
            yield index, f"`{found[0].strip()}` installs a package: name it in pyproject.toml instead"
        for name in sorted({module.split(".")[0] for module in cells.imports([cell.source])}):
            if name != "helpers" and name not in sys.stdlib_module_names and not _declared(name):
                yield index, f"{name or 'a relative import'} is no dependency that pyproject.toml names"


@cache
def _declared(module: str) -> bool:
    project = tomllib.loads((papers.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {_normal(re.match(r"[\w.-]+", line)[0]) for line in project["dependencies"]}
    return bool({_normal(name) for name in packages_distributions().get(module, [])} & named)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@rule
def nothing_to_do(book: Book) -> Found:
    """No TODO of the skeleton is left."""
    for index, cell in enumerate(book.nb.cells):
        if re.search(r"\bTODO\b", cell.source):
            yield index, "a TODO is left"
