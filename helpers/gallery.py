"""The README's generated parts: one notebook's cover, the table of those that stand with verdicts, what is planned."""

from collections import Counter
from pathlib import Path

from helpers import covers, notebooks, papers, stored
from helpers.audit import summary
from helpers.errors import HookbookError
from helpers.papers import ROOT, THEMES, Paper

START, END = "<!-- gallery:start -->", "<!-- gallery:end -->"
UNTRAINED_START, UNTRAINED_END = "<!-- untrained:start -->", "<!-- untrained:end -->"
COVER = "sentiment-direction"  # whose figure opens the README
_ORDER = ("holds", "fails", "open", "checked", "not tested", "out of scope")


def gallery_markdown(catalogue: dict[str, Paper], root: Path = ROOT) -> str:
    """The table of the papers that stand and the line of those planned, as Markdown whose links start at `root`.

    Verdicts come from `data/claims/<model>/<slug>.json`, one line per model with the date, the units and the minutes of
    the evidence run; where there is none, from the ledger in the committed notebook, and the line says so. A claim of
    the catalogue that a ledger lacks counts as not tested.

    Raises:
        HookbookError: a stored ledger cannot be read.
    """
    standing = [paper for paper in by_theme(catalogue) if paper.status == "stands"]
    planned = Counter(paper.theme for paper in by_theme(catalogue) if paper.status == "planned")
    lines = []
    if standing:
        lines += ["| Notebook | Theme | Level | Claims | Verdicts |", "|---|---|---|---|---|"]
        lines += [_row(paper, root) for paper in standing]
    if planned:
        count = sum(planned.values())
        themes = ", ".join(f"{theme} {planned[theme]}" for theme in planned)
        lines += [*([""] if lines else []), f"Planned: {count} more paper{'s' * (count != 1)} ({themes})."]
    return "\n".join(lines) + "\n"


def untrained_markdown(records: list[dict], root: Path = ROOT) -> str:
    """Which claims a network that has learned nothing passes too, as Markdown whose links start at `root`.

    Args:
        records: of the audits, as `helpers.audit.summary.records` gives them.
        root: where data/audit lies.
    """
    tried = [(record, claim) for record in records for claim in record["claims"] if claim["nulls"]]
    if not tried:
        return (
            "**Claims that an untrained network also passes:** no audit is kept yet ([docs/audit.md](docs/audit.md)).\n"
        )
    passed = [f"{record['paper']} {claim['id']}" for record, claim in tried if summary.passing(claim)]
    found = f"{len(passed)} of the {len(tried)} audited so far ({', '.join(passed)})" if passed else ""
    found = found or f"none of the {len(tried)} audited so far"
    folders = [(record, summary.folder_of(record["model"], Path("data/audit"))) for record in records]
    shown = [
        f"[{record['paper']}]({(folder / figure['file']).as_posix()})"
        for record, folder in folders
        if (figure := record.get("figures", {}).get("nulls")) and (root / folder / figure["file"]).exists()
    ]
    beside = f" Their values beside the trained model's: {', '.join(shown)}." if shown else ""
    tried_how = "[how they were tried](docs/audit.md)"
    return f"**Claims that an untrained network also passes:** {found}; {tried_how}.{beside}\n"


def is_current(readme: Path = ROOT / "README.md") -> bool:
    """Whether the gallery, the cover and its picture are those that would be written now.

    Raises:
        HookbookError: the README lacks the markers, or the catalogue, a ledger or the cover cannot be read.
    """
    picture, shown = _picture(readme)
    return _rendered(readme) == _text(readme) and picture.exists() and picture.read_bytes() == shown


def write(readme: Path = ROOT / "README.md") -> None:
    """Bring what stands between the README's markers up to date, and the cover's picture; the rest stays as it is.

    Raises:
        HookbookError: as for `is_current`.
    """
    text = _rendered(readme)
    picture, shown = _picture(readme)
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_bytes(shown)
    notebooks.write_text(readme, text)


def _picture(readme: Path) -> tuple[Path, bytes]:
    paper = papers.paper(COVER)
    return readme.parent / covers.picture_path(paper), covers.cover(paper.notebook).picture


def _rendered(readme: Path) -> str:
    text = _between(readme, _text(readme), START, END, gallery_markdown(papers.catalogue()))
    untrained = untrained_markdown(summary.records())
    text = _between(readme, text, UNTRAINED_START, UNTRAINED_END, untrained)
    return _between(readme, text, covers.START, covers.END, covers.markdown(papers.paper(COVER)))


def by_theme(catalogue: dict[str, Paper]) -> list[Paper]:
    """The papers in the order of the themes, and by slug within each."""
    return sorted(catalogue.values(), key=lambda paper: (THEMES.index(paper.theme), paper.slug))


def _row(paper: Paper, root: Path) -> str:
    title = paper.title.replace("|", "\\|").replace("[", "\\[").replace("]", "\\]")
    place = _place(paper)
    # claims are stated before the notebook is written
    link = f"[{title}]({place.as_posix()})" if (root / place).exists() else title
    verdicts = "<br>".join(_verdicts(paper, ledger) for ledger in ledgers(paper, root)) or "no run stored"
    minutes = f"{paper.teaching.minutes.read} min"
    return f"| {link} | {paper.theme} | {paper.teaching.difficulty}, {minutes} | {len(paper.claims)} | {verdicts} |"


def _place(paper: Paper) -> Path:
    return paper.notebook.relative_to(ROOT)


def ledgers(paper: Paper, root: Path) -> list[dict]:
    """The evidence of each model, else what the committed notebook shows, else nothing."""
    if kept := stored.of_paper(paper.slug, root / "data" / "claims"):
        return kept
    notebook = root / _place(paper)
    shown = notebooks.ledger(notebook) if notebook.exists() else None
    return [shown] if shown else []


def counts(paper: Paper, ledger: dict) -> dict[str, int]:
    """How many of the paper's claims have each verdict in a ledger; those with none are left out."""
    found = {claim["id"]: claim["verdict"] for claim in ledger["claims"]}
    counted = Counter(found.get(claim.id, "not tested") for claim in paper.claims)
    return {verdict: counted[verdict] for verdict in _ORDER if counted[verdict]}


def worded(paper: Paper, ledger: dict) -> dict[str, str]:
    """Those counts in words, `3 hold here`; a replication only on a model of the paper's own class."""
    own_class = ledger["model"].startswith(tuple(paper.model_class))
    found = counts(paper, ledger)
    return {verdict: f"{count} {_words(verdict, count, own_class)}" for verdict, count in found.items()}


def _verdicts(paper: Paper, ledger: dict) -> str:
    """`smollm2-135m: 3 hold here, 1 open (...)`."""
    return f"{ledger['model']}: {', '.join(worded(paper, ledger).values())} ({source(ledger)})"


def source(ledger: dict) -> str:
    """`2026-11-30, 10 to 150 units, 6.2 min` of an evidence run; of crossed units the fewer are counted."""
    if "run" not in ledger:
        return "quick run"
    counts = sorted(claim["n"] for claim in ledger["claims"] if claim.get("n"))
    units = "no units" if not counts else " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) + " units"
    return f"{ledger['run']['date']}, {units}, {ledger['run']['minutes']:g} min"


def _words(verdict: str, count: int, own_class: bool) -> str:
    if verdict == "holds":
        verb = "replicate" if own_class else "hold"
    elif verdict == "fails":
        verb = "fail"
    else:
        return verdict
    return f"{verb}{'s' * (count == 1)}{'' if own_class else ' here'}"


def _text(readme: Path) -> str:
    try:
        return readme.read_bytes().decode("utf-8")  # bytes, so that line endings survive
    except (OSError, UnicodeDecodeError) as error:
        raise HookbookError(f"{readme} cannot be read: {error}.") from None


def _between(readme: Path, text: str, start: str, end: str, content: str) -> str:
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise HookbookError(f"{readme} must have the lines {start} and {end} once each, in this order.")
    newline = "\r\n" if "\r\n" in text else "\n"
    block = f"\n\n{content}\n".replace("\n", newline)
    return text[: text.index(start) + len(start)] + block + text[text.index(end) :]
