"""The ledger as people see it: a sentence, an HTML table, a table for the terminal. Reads only the ledger's JSON."""

from html import escape
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

SYMBOLS = {"holds": "✓", "fails": "✗", "open": "?", "not tested": "–", "out of scope": "⊘", "checked": "☑"}
NONE = "–"
HERE = "Here [95 % interval]"
HEADER = ("Claim", "Statement and test", "Paper", HERE, "Hardest control", "Units", "Verdict")
PLAIN_WIDTH = 100  # columns; what notebooks and terminals show without wrapping


def number(value: float | None) -> str:
    """Write a number with about three digits: 0.953, 12.35, 1,234, 3.1e-05; a dash for none."""
    if value is None:
        return NONE
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


def span(ends: list[float] | tuple[float, float] | None) -> str:
    """Write an interval: [0.912, 0.987]; nothing for none."""
    return f"[{number(ends[0])}, {number(ends[1])}]" if ends else ""


def sentence(claim: dict[str, Any]) -> str:
    """Say in one line what was found for a claim, given as its entry in the ledger's JSON."""
    found = f"{claim['id']} {_verdict(claim)}"
    if claim["value"] is not None:
        found += f": {_here(claim)} (test {claim['test']}, n = {_units(claim)})"
    if claim["control"]:
        found += f"; control {_control(claim)}"
    return f"{found}. {_reason(claim)}".rstrip()


def html_table(ledger: dict[str, Any]) -> str:
    """Return the ledger as an HTML table: no colours, scripts or style sheets, so that any theme shows it."""
    header = "".join(_cell("th", escape(name), 'scope="col"') for name in HEADER)
    rows = "".join(f"<tr>{_html_row(claim)}</tr>" for claim in ledger["claims"])
    items = "".join(f"<li>{escape(item)}</li>" for item in ledger["not_claimed"])
    return (
        f'<table style="table-layout:auto"><caption style="text-align:left">{escape(_title(ledger))}</caption>'
        f"<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
        + (f"<p>Not claimed:</p><ul>{items}</ul>" if items else "")
    )


def _html_row(claim: dict[str, Any]) -> str:
    paper = claim["paper_says"]
    control = claim["controls"].get(claim["control"])
    contrast = f"value minus control: {number(control['contrast'])} {span(control['interval'])}" if control else ""
    cells = [
        (claim["statement"], f"{claim['statistic']} {claim['test']}"),
        (_paper(claim), f"{paper['model']}, {paper['place']}"),
        (_here(claim), ""),
        (_control(claim), contrast),
        (_units(claim), ""),
        (_verdict(claim), _reason(claim)),
    ]
    body = "".join(
        _cell("td", escape(text) + (f"<br><small>{escape(aside)}</small>" if aside else "")) for text, aside in cells
    )
    return _cell("th", escape(claim["id"]), 'scope="row"') + body


def _cell(tag: str, content: str, attribute: str = "") -> str:
    return f'<{tag} {attribute} style="text-align:left;vertical-align:top">{content}</{tag}>'


def plain_table(ledger: dict[str, Any]) -> str:
    """Return the ledger as text of at most 100 columns."""
    paper = StringIO()
    # in a notebook rich would show the table at once, beside writing it
    print_table(ledger, Console(file=paper, width=PLAIN_WIDTH, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in paper.getvalue().splitlines())


def print_table(ledger: dict[str, Any], console: Console) -> None:
    """Print the ledger's table, the reasons of its verdicts below, and what is not claimed."""
    table = Table(title=Text(_title(ledger)), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Claim and test", ratio=1)
    table.add_column("Paper", max_width=8, no_wrap=True)
    table.add_column(Text(HERE), max_width=24)
    table.add_column("Hardest control", max_width=16)
    table.add_column("Units", max_width=8)
    table.add_column("Verdict", no_wrap=True)
    for claim in ledger["claims"]:
        units = " × ".join(map(str, claim["units"].values())) or NONE
        stated = f"{claim['id']} {claim['statement']}\n{claim['test']}"
        cells = [stated, number(claim["paper_value"]), _here(claim), _control(claim), units, _verdict(claim)]
        table.add_row(*map(Text, cells))
    console.print(table)
    for claim in ledger["claims"]:
        words = f" The paper, in words: {claim['paper_says']['text']}" if claim["paper_value"] is None else ""
        console.print(Text(f"{claim['id']} {claim['verdict']}: {_reason(claim)}{words}"))
    if ledger["not_claimed"]:
        console.print(Text("Not claimed: " + "; ".join(ledger["not_claimed"])))


def _title(ledger: dict[str, Any]) -> str:
    preset = f", preset {ledger['preset']}" if ledger["preset"] else ""
    return f"{ledger['paper']} on {ledger['model']}{preset}"


def _verdict(claim: dict[str, Any]) -> str:
    return f"{SYMBOLS[claim['verdict']]} {claim['verdict']}"


def _paper(claim: dict[str, Any]) -> str:
    return number(claim["paper_value"]) if claim["paper_value"] is not None else claim["paper_says"]["text"]


def _here(claim: dict[str, Any]) -> str:
    return f"{number(claim['value'])} {span(claim['interval'])}".rstrip()


def _control(claim: dict[str, Any]) -> str:
    return f"{claim['control'].replace('_', ' ')}: {number(claim['control_value'])}" if claim["control"] else NONE


def _units(claim: dict[str, Any]) -> str:
    return f"{' × '.join(map(str, claim['units'].values()))} {' × '.join(claim['units'])}" if claim["units"] else NONE


def _reason(claim: dict[str, Any]) -> str:
    gate = f"Its gate did not open: {claim['gate']}." if claim["gate"] and claim["gate"] != claim["reason"] else ""
    return " ".join(part for part in (claim["reason"], gate) if part)
