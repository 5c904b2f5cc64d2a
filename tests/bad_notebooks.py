"""The small notebooks in tests/bad: a good one, and one per rule that breaks just that rule.

`python tests/bad_notebooks.py` writes them anew: the good one is executed by the runner, the others are edited copies.
"""

import contextlib
import copy
import tempfile
from pathlib import Path
from unittest import mock

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rich.console import Console

from helpers import notebooks, papers
from helpers.fingerprint import fingerprint

FOLDER = Path(__file__).parent / "bad"
SLUG = "tiny-paper"
PIXEL = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="  # a GIF
ALT = "Accuracy against the template, one grey dot that stands for a figure: 0.95 on average"
LEDGER = f'''
stated = (
    ("C1", "decodable", "It can be read in at least 6 of the 8 templates.", "template"),
    ("C2", "causal", "Moving it moves the answer.", ["template", "word pair"]),
)
claims = [
    {{
        "id": id,
        "kind": kind,
        "statement": statement,
        "statistic": "accuracy on held-out words",
        "unit": unit,
        "test": "≥ 0.70",
        "paper_value": 0.535,
        "paper_says": {{"text": "53.5 % of the words", "model": "toy", "place": "Table 1"}},
        "tolerance": 0.02,
        "value": value,
        "interval": [0.9, 1.0],
        "control": None,
        "control_value": None,
        "n": templates,
        "units": {{"template": templates}},
        "verdict": "holds",
        "reason": None,
        "gate": None,
    }}
    for id, kind, statement, unit in stated
]
ledger = {{"paper": "{SLUG}", "model": model_name, "preset": preset, "claims": claims, "not_claimed": []}}
table = "<table><tr><td>C1</td><td>holds</td></tr></table>"
display({{"text/html": table, "{notebooks.LEDGER_MIME}": ledger}}, raw=True)
'''
STUBS = (
    'def mean(values):\n    """A list of numbers -> their mean."""\n    ...  # your code',
    'def distance(one, other):\n    """Two lists of numbers -> how far apart their means are."""\n    ...  # your code',
)
CHECK = """from helpers.checks import within_seconds


@within_seconds(5)
def check_{name}({name}):
    \"\"\"'ok', or what is wrong with it.\"\"\"
    found = {name}({arguments})
    if found is None:
        return "not yet: nothing came back"
    return "ok" if abs(found - {expected}) < 1e-6 else f"not yet: {{found}} is not {expected}"


print(check_{name}({name}))"""
CHECKS = (
    CHECK.format(name="mean", arguments="[1.0, 2.0, 6.0]", expected="3.0"),
    CHECK.format(name="distance", arguments="[1.0, 3.0], [7.0, 9.0, 8.0]", expected="6.0"),
)
SOLUTIONS = (
    "<details><summary>Solution</summary>\n\n```python\n"
    "def mean(values):\n    return sum(values) / len(values)\n```\n\n</details>",
    "<details><summary>Solution</summary>\n\n```python\ndef distance(one, other):\n"
    "    first, second = sum(one) / len(one), sum(other) / len(other)\n"
    "    return abs(first - second)\n```\n\n</details>",
)
TAGS = {"parameters-2": "parameters", "stub": "exercise", "check": "check", "solution": "solution"}  # by id or its end
CELLS = {
    "title-1": "# A tiny paper\n\nOne idea, from GPT-2 (Nobody, 2024), see Fig. 2 and [page 3](https://example.org/3).\n\n"
    "**You will learn**\n\n- to read\n- to run\n- to doubt\n\n"
    "**Prerequisites** none · **Minutes** `1` to read · **Difficulty** introductory · **Techniques** probes\n\n"
    "### What you will see\n\n"
    "- **C1** It can be read in at least 6 of the 8 templates.\n- **C2** Moving it moves the answer.",
    "parameters-1": "## Parameters",
    "parameters-2": 'model_name: str = "toy"  # name of a model; paper toy\n'
    "revision: None | str = None  # commit\n"
    'dtype: str = "float32"  # float32 | bfloat16\n'
    'device: str = "cpu"  # cpu | cuda\n'
    "seed: int = 0  # 0..\n"
    "templates: int = 8  # templates; 1..64; paper 128",
    "setup-1": "## Setup",
    "setup-2": 'import os\n\npreset = os.environ.get("HOOKBOOK_PRESET")\n'
    'print(f"{model_name} ({revision}), {dtype} on {device}, seed {seed}")',
    "data-1": "## Data\n\nThe paper reports [paper: 53.5 % of the words].",
    "data-2": "rows = [seed + template for template in range(templates)]",
    "c1-1": "## C1 It can be read\n\nSince $x_1 > 0$, `2` words are enough at layer 0:\n\n$$ a = 3 $$",
    "c1-2": f'value = 0.95\nsource = "data:image/gif;base64,{PIXEL}"\n'
    f'alt = "{ALT}"\n'
    'display({"text/html": f\'<img alt="{alt}" src="{source}">\'}, raw=True)',
    "c2-1": "## C2 Moving it moves the answer",
    "c2-2": "moved = sum(rows)",
    "controls-1": "## Controls",
    "explore-1": "## Explore",
    "ledger-1": "## The ledger",
    "ledger-2": LEDGER.strip(),
    "exercises-1": "## Exercises\n\n**Exercise 1.** The mean.",
    "exercise-1-stub": STUBS[0],
    "exercise-1-check": CHECKS[0],
    "exercise-1-solution": f"{SOLUTIONS[0]}\n\n**Exercise 2: how could this be fake?** The distance between two means.",
    "exercise-2-stub": STUBS[1],
    "exercise-2-check": CHECKS[1],
    "exercise-2-solution": SOLUTIONS[1],
    "exercises-2": "**To discuss.** No number answers these.\n\n1. Why?\n2. Why not?\n3. What else?\n\n"
    "**What this notebook refutes.**\n\n- *What can be read is used.* C2 moves it.",
    "paper-1": "## At paper size\n\n```bash\nhookbook run tiny-paper -p templates 128\n```",
}


def source() -> NotebookNode:
    """The good notebook as an author would write it, not executed."""
    cells = []
    for id, text in CELLS.items():
        prose = text.startswith(("#", "**", "<details>"))
        cell = new_markdown_cell(text) if prose else new_code_cell(text)
        cell.id = id
        if tag := TAGS.get(id.split("-")[-1]) or TAGS.get(id):
            cell.metadata["tags"] = [tag]
        cells.append(cell)
    return new_notebook(cells=cells)


@contextlib.contextmanager
def tiny_catalogue():
    """The catalogue holds the tiny paper alone."""
    entries = papers.catalogue(FOLDER / "papers.yaml")
    raw = papers.raw_entry(SLUG, FOLDER / "papers.yaml")
    with (
        mock.patch.object(papers, "catalogue", lambda: entries),
        mock.patch.object(papers, "paper", lambda slug: entries[slug]),
        mock.patch.object(papers, "raw_entry", lambda slug: copy.deepcopy(raw)),
    ):
        yield entries[SLUG]


def cell(nb: NotebookNode, id: str) -> NotebookNode:
    return next(cell for cell in nb.cells if cell.id == id)


def edit(nb: NotebookNode, id: str, old: str, new: str) -> None:
    assert old in cell(nb, id).source, f"{old!r} is not in {id}"
    cell(nb, id).source = cell(nb, id).source.replace(old, new)


def ledger_row(nb: NotebookNode, **fields: object) -> None:
    """Change the last claim's row in the outputs."""
    notebooks.ledger(nb)["claims"][-1].update(fields)


def move(nb: NotebookNode, id: str, before: str) -> None:
    moved = cell(nb, id)
    nb.cells.remove(moved)
    nb.cells.insert(nb.cells.index(cell(nb, before)), moved)


def shown(data: dict) -> NotebookNode:
    return new_output("display_data", data)


def picture(alt: str) -> NotebookNode:
    return shown({"text/html": f'<img alt="{alt}" src="data:,">'})


def with_output(nb: NotebookNode, output: NotebookNode) -> None:
    cell(nb, "c2-2").outputs.append(output)


# rule -> the edit that breaks it; a name after `/` tells apart several ways to break one rule
BREAKS = {
    "parameters": lambda nb: edit(nb, "parameters-2", "seed: int = 0", "seed: int = abs(0)"),
    "parameters-explained": lambda nb: edit(nb, "parameters-2", "seed: int = 0  # 0..", "seed: int = 0"),
    "parameters-explained/type": lambda nb: edit(nb, "parameters-2", "seed: int = 0", "seed = 0"),
    "parameters-explained/place": lambda nb: move(nb, "setup-1", "parameters-2"),
    "parameters-complete": lambda nb: (
        edit(nb, "parameters-2", 'device: str = "cpu"  # cpu | cuda\n', ""),
        edit(nb, "setup-2", " on {device}", ""),
    ),
    "parameters-read": lambda nb: edit(nb, "setup-2", " on {device}", ""),
    "presets": lambda nb: edit(nb, "parameters-2", "templates: int = 8", "templates: int = 9"),
    "presets/values": lambda nb: edit(nb, "parameters-2", "1..64; paper 128", "1..16; paper 128"),
    "first-cell": lambda nb: edit(nb, "title-1", "**You will learn**", "You will learn"),
    "first-cell/title": lambda nb: edit(nb, "title-1", "# A tiny paper", "A tiny paper"),
    "section-order": lambda nb: move(nb, "explore-1", "controls-1"),
    "section-order/missing": lambda nb: edit(nb, "explore-1", "## Explore", "Explore"),
    "section-order/unknown": lambda nb: edit(nb, "explore-1", "## Explore", "## Explore\n\n## More"),
    "claim-sections": lambda nb: edit(nb, "c2-1", "## C2", "## C3"),
    "claims-reached": lambda nb: ledger_row(nb, verdict="not tested", reason="never reached"),
    "claims-reached/cleared": lambda nb: cell(nb, "ledger-2").outputs.clear(),
    "ledger-in-sync": lambda nb: ledger_row(nb, statement="Moving it moves nothing."),
    "ledger-in-sync/test": lambda nb: ledger_row(nb, test="≥ 0.10"),
    "ledger-in-sync/preset": lambda nb: notebooks.ledger(nb).update(preset="custom"),
    "executed": lambda nb: cell(nb, "c2-2").update(execution_count=9),
    "executed/never": lambda nb: cell(nb, "c2-2").update(execution_count=None),
    "no-errors": lambda nb: with_output(nb, new_output("error", ename="ValueError", evalue="no", traceback=[])),
    "no-errors/printed": lambda nb: with_output(
        nb, new_output("stream", text="Traceback (most recent call last):\nValueError: no\n", name="stderr")
    ),
    "metadata": lambda nb: nb.metadata.update(execution={"allow_errors": True}),
    "metadata/mocks": lambda nb: nb.metadata.update(nbmake={"mock": {"templates": 1}}),
    "metadata/post": lambda nb: nb.metadata.update(nbmake={"post_cell_execute": ["x = 1"]}),
    "metadata/papermill": lambda nb: nb.metadata.update(papermill={"parameters": {"seed": 1}}),
    "metadata/widgets": lambda nb: nb.metadata.update(widgets={notebooks.WIDGET_STATE: {}}),
    "metadata/kernel": lambda nb: nb.metadata.kernelspec.update(name="my-env"),
    "metadata/cell": lambda nb: cell(nb, "c2-2").metadata.update(papermill={"status": "completed"}),
    "metadata/raises": lambda nb: cell(nb, "c2-2").metadata.update(tags=["raises-exception"]),
    "metadata/output": lambda nb: with_output(nb, new_output("display_data", {"text/plain": "1"}, metadata={"x": 1})),
    "metadata/injected": lambda nb: cell(nb, "c2-1").metadata.update(tags=["injected-parameters"]),
    "no-widget-views": lambda nb: with_output(nb, shown({notebooks.WIDGET_VIEW: {"model_id": "1"}})),
    "stamp": lambda nb: edit(nb, "c2-2", "sum(rows)", "max(rows)"),
    "stamp/missing": lambda nb: nb.metadata.pop("hookbook"),
    "no-numbers-in-prose": lambda nb: edit(nb, "c2-1", "## C2 Moving", "It reaches 71 % of it.\n\n## C2 Moving"),
    "paper-quotes": lambda nb: edit(nb, "data-1", "[paper: 53.5 %", "[paper: 93.5 %"),
    "no-absolute-paths": lambda nb: with_output(nb, new_output("stream", text="read /home/someone/data.csv\n")),
    "no-absolute-paths/source": lambda nb: edit(nb, "c2-1", "## C2", "See /tmp/notes for more.\n\n## C2"),
    "no-absolute-paths/metadata": lambda nb: nb.metadata.hookbook.provenance.update(folder="/scratch/someone/runs"),
    "no-absolute-paths/ledger": lambda nb: notebooks.ledger(nb).update(file="/home/someone/data.csv"),
    "no-absolute-paths/windows": lambda nb: with_output(nb, new_output("stream", text="read C:/Users/someone/a.csv\n")),
    "small-file": lambda nb: with_output(nb, new_output("stream", text="words " * 90_000)),
    "short-cells": lambda nb: edit(nb, "c2-2", "moved", "more = 1\n" * 40 + "moved"),
    "long-cell": lambda nb: edit(nb, "c2-2", "moved", "more = 1\n" * 30 + "moved"),
    "stale-libraries": lambda nb: nb.metadata.hookbook.fingerprint.soft.update(torch="1.0"),
    "alternative-text": lambda nb: with_output(nb, shown({"text/html": '<img alt="a plot" src="data:,">'})),
    "alternative-text/image": lambda nb: with_output(nb, shown({"image/gif": PIXEL})),
    "alternative-text/markdown": lambda nb: edit(nb, "c2-1", "## C2", "![short](figure.png)\n\n## C2"),
    "alternative-text/axes": lambda nb: with_output(nb, picture("An arrow that carries the verdict 0.79 of its way.")),
    "alternative-text/finding": lambda nb: with_output(nb, picture("Recovery against the layer, say at layer 0.")),
    "declared-imports": lambda nb: edit(nb, "c2-2", "moved = sum(rows)", "import flask\n\nmoved = flask.Flask(rows)"),
    "declared-imports/install": lambda nb: edit(nb, "c2-2", "moved = sum(rows)", "!pip install x\nmoved = sum(rows)"),
    "nothing-to-do": lambda nb: edit(nb, "c2-1", "## C2", "TODO say why.\n\n## C2"),
}
BREAKS |= {
    "teaching": lambda nb: edit(nb, "title-1", "**Difficulty** introductory", "**Difficulty**"),
    "teaching/goals": lambda nb: edit(nb, "title-1", "- to doubt\n", ""),
    "teaching/questions": lambda nb: edit(nb, "exercises-2", "\n3. What else?", ""),
    "teaching/refuted": lambda nb: edit(nb, "exercises-2", "- *What can", "*What can"),
    "teaching/misconception": lambda nb: cell(nb, "c2-2").update(id="c2-9"),
    "exercises": lambda nb: (
        edit(nb, "exercise-1-check", "from helpers.checks import within_seconds\n\n\n@within_seconds(5)\n", ""),
    ),
    "exercises/untagged": lambda nb: cell(nb, "exercise-2-check").metadata.pop("tags"),
    "exercises/unfinished": lambda nb: cell(nb, "exercise-2-solution").metadata.pop("tags"),
    "exercises/few": lambda nb: [
        cell(nb, f"exercise-1-{part}").metadata.pop("tags") for part in ("stub", "check", "solution")
    ],
    "exercises/fake": lambda nb: edit(nb, "exercise-1-solution", "how could this be fake?", "another."),
    "exercises/names": lambda nb: edit(nb, "exercise-1-solution", "def mean", "def average"),
    "exercises/unfolded": lambda nb: edit(nb, "exercise-2-solution", "<details><summary>Solution</summary>", ""),
    "exercises/state": lambda nb: edit(nb, "exercise-1-check", "mean([1.0, 2.0, 6.0])", "mean(rows)"),
    "exercises/solved": lambda nb: cell(nb, "exercise-1-check").outputs[0].update(text="ok\n"),
    "exercises/shown": lambda nb: edit(nb, "c2-2", "moved = sum(rows)", "moved = sum(rows)\na = abs(first - second)"),
    "exercises/printed": lambda nb: with_output(nb, new_output("stream", text="    return sum(values)/len(values)\n")),
}
STALE = ("stamp", "stamp/missing", "stale-libraries")  # their stamp is wrong on purpose
AT_TEST_TIME = ("small-file",)  # no file: it would be large


def restamped(nb: NotebookNode, path: Path) -> NotebookNode:
    """Give the notebook the stamp that its source deserves, and write it to the path."""
    notebooks.write(nb, path)
    values = {parameter.name: parameter.default for parameter in notebooks.parameters(nb)}
    print_ = fingerprint(path, values)
    nb.metadata.hookbook.fingerprint = NotebookNode(id=print_.id, hard=print_.hard, soft=print_.soft)
    notebooks.write(nb, path)
    return nb


def broken(name: str, folder: Path) -> Path:
    """The good notebook with one rule broken, written into a folder under the slug's name."""
    path = folder / f"{SLUG}.ipynb"
    nb = notebooks.read(FOLDER / "good.ipynb")
    BREAKS[name](nb)
    if name in STALE or name == "parameters":
        notebooks.write(nb, path)
    else:
        restamped(nb, path)
    return path


def write() -> None:
    """Write all files of tests/bad anew."""
    from helpers.batch.refresh import refresh

    with tiny_catalogue(), tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"{SLUG}.ipynb"
        notebooks.write(source(), path)
        record = refresh(path, Path(name) / "runs", console=Console())
        assert record.status == "done", record.failure
        nb = notebooks.read(path)
        # the same on every machine and day
        nb.metadata.hookbook.provenance = {"date": "2026-01-01T00:00:00+00:00"}
        notebooks.write(nb, FOLDER / "good.ipynb")
        for rule in BREAKS:
            if "/" not in rule and rule not in AT_TEST_TIME:
                notebooks.write(notebooks.read(broken(rule, Path(name))), FOLDER / f"{rule}.ipynb")


if __name__ == "__main__":
    write()
