"""A new notebook: the fixed sections in order, filled from the catalogue, with TODO where a person must write."""

import json
import textwrap
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import notebooks
from helpers.badges import badges
from helpers.errors import HookbookError
from helpers.papers import ROOT, Claim, Paper, paper

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_UNSTATED = "TODO: state the claim in data/papers.yaml, in a commit before its value is known"


def new(slug: str, root: Path = ROOT) -> Path:
    """Write the skeleton of a paper's notebook and return its path; an existing file is never touched.

    Every place where a person still has to write holds the word TODO. The skeleton has one section for each claim in
    the catalogue; that of a planned paper, whose claims are not stated yet, has one as an example.

    Raises:
        HookbookError: there is no such paper, or its notebook exists already.
    """
    entry = paper(slug)
    path = root / entry.notebook.relative_to(ROOT)
    if path.exists():
        raise HookbookError(f"{path} exists already: edit it, or move it away first.")
    nb = skeleton(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    notebooks.write(nb, path)
    return path


def skeleton(entry: Paper) -> NotebookNode:
    """The notebook itself; the ids of its cells derive from section, kind and order, as in `c2-code-1`."""
    sections = {
        "title": [_text(title_markdown(entry))],
        "parameters": [
            _text("## Parameters\n\nA comment gives the unit, the values allowed and, after `paper`, the paper's own."),
            _code(_parameters(entry), "parameters"),
        ],
        "setup": [_text("## Setup\n\nOne line at the end says what runs."), _code(_setup(entry))],
        "data": [_text("## Data\n\nTODO: where it comes from, its licence, what a row is."), _code(_data(entry))],
        **({claim.id.lower(): _claim(claim) for claim in entry.claims} or {"c1": _example_claim()}),
        "controls": _controls(entry),
        "explore": [
            _text("## Explore\n\nTODO: what to try. The picture stands for the widget where no kernel runs."),
            _code("# TODO: the static picture"),
            _code("# TODO: the same figure under sliders"),
        ],
        "ledger": _ledger(entry),
        "exercises": _exercises(entry),
        "paper-size": [
            _text(
                f"## At paper size\n\n```bash\nhookbook run {entry.slug} --preset paper\n```\n\n"
                "TODO: the model, data and hardware that this needs."
            )
        ],
    }
    for section, cells in sections.items():
        count = {"markdown": 0, "code": 0}
        for cell in cells:
            count[cell.cell_type] += 1
            cell.id = f"{section}-{'text' if cell.cell_type == 'markdown' else 'code'}-{count[cell.cell_type]}"
    nb = new_notebook(cells=[cell for cells in sections.values() for cell in cells], metadata=_METADATA)
    nbformat.validate(nb)
    return nb


def title_markdown(entry: Paper) -> str:
    """The first cell: who and where, the idea, what one learns and needs, and the claims; all from the catalogue."""
    authors = ", ".join(entry.authors) or "authors not known"
    unsure = f" (not confirmed: {', '.join(entry.unsure)})" if entry.unsure else ""
    about = [f"{authors}. *{entry.venue}*{unsure}"]
    about += [f"[arXiv {entry.arxiv}](https://arxiv.org/abs/{entry.arxiv})"] if entry.arxiv else []
    about += [f"[code](https://github.com/{entry.code})"] if entry.code else []
    about += [links] if (links := badges(entry)) else []
    promises = "\n".join(f"- **{claim.id}** {claim.statement.strip()}" for claim in entry.claims) or f"- {_UNSTATED}"
    parts = [f"# {entry.title}", " · ".join(about), *_teaching(entry), "**What you will see**", promises]
    return "\n\n".join(parts)


def _text(source: str, *tags: str) -> NotebookNode:
    return new_markdown_cell(source, metadata={"tags": list(tags)} if tags else {})


def _code(source: str, *tags: str) -> NotebookNode:
    return new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def _bullets(texts: list[str], otherwise: str) -> str:
    return "\n".join(f"- {text.strip()}" for text in texts) or f"- {otherwise}"


def _teaching(entry: Paper) -> list[str]:
    teaching = entry.teaching
    if teaching is None:
        goals = "\n".join(["- TODO: a learning goal"] * 3)
        facts = "**Prerequisites** TODO · **Minutes** TODO · **Difficulty** TODO · **Techniques** TODO"
        return ["TODO: the idea in one paragraph that a student understands.", "**You will learn**", goals, facts]
    minutes = teaching.minutes
    facts = [
        f"**Prerequisites** {', '.join(teaching.prerequisites) or 'none'}",
        f"**Minutes** `{minutes.read}` to read, `{minutes.run:g}` to run, `{minutes.exercise}` for the exercises",
        f"**Difficulty** {teaching.difficulty}",
        f"**Techniques** {', '.join(teaching.tags)}",
    ]
    return [teaching.idea.strip(), "**You will learn**", _bullets(teaching.goals, ""), " · ".join(facts)]


def _parameters(entry: Paper) -> str:
    model = f"paper {entry.model[0]}" if entry.model else "paper TODO"
    common = [
        "revision: str | None = None  # commit or tag of a model from the hub; paper TODO",
        'dtype: str = "float32"  # float32 | bfloat16; paper TODO',
        'device: str = "cpu"  # cpu, cuda or mps; paper TODO',
        "seed: int = 0  # 0..1_000_000; paper TODO",
    ]
    if entry.tier != "A":
        return "\n".join([f'model_name: str = "trained-here"  # what this notebook trains; {model}', *common])
    return "\n".join(
        [
            f'model_name: str = "smollm2-135m"  # any that `hookbook models` knows; {model}',
            *common,
            "prepend_bos: bool = True  # whether a text starts with the BOS token; paper TODO",
            "chat_template: bool = False  # whether a text is wrapped as a user's turn; paper TODO",
        ]
    )


def _setup(entry: Paper) -> str:
    if entry.tier == "A":
        loader = ["from helpers.models import load_model"]
        model = "model = load_model(model_name, device=device, dtype=dtype, revision=revision, seed=seed)"
    else:
        loader = []
        model = "# TODO: the network, with HookPoints or by TransformerBridge.boot_native, in dtype on device"
    return "\n".join(
        [
            "from importlib.metadata import version",
            "",
            "import pandas as pd",
            "import torch",
            "",
            "from helpers.claims import Ledger",
            *loader,
            "",
            "torch.manual_seed(seed)",
            model,
            f'ledger = Ledger("{entry.slug}", model=model_name)',
            'names = ("torch", "transformers", "transformer-lens")',
            'libraries = ", ".join(f"{name} {version(name)}" for name in names)',
            "print(f\"{model_name} ({revision or 'newest'}), {dtype} on {device}, seed {seed}; {libraries}\")",
        ]
    )


def _data(entry: Paper) -> str:
    if entry.tier != "A":
        return 'examples = pd.DataFrame({"TODO": [0.0]})\nexamples.head()'
    return "\n".join(
        [
            'texts = ["TODO: a prompt"]',
            "if chat_template:",
            "    wrap = model.tokenizer.apply_chat_template",
            '    turns = [[{"role": "user", "content": text}] for text in texts]',
            "    texts = [wrap(turn, tokenize=False, add_generation_prompt=True) for turn in turns]",
            "# a chat template brings its own BOS",
            "tokens = model.to_tokens(texts, prepend_bos=prepend_bos and not chat_template)",
            'pd.DataFrame({"text": texts, "tokens": [len(row) for row in tokens]}).head()',
        ]
    )


def _claim(claim: Claim) -> list[NotebookNode]:
    rows = f"rows_{claim.id.lower()}"
    columns = [*(unit.replace(" ", "_") for unit in claim.units), "value", *claim.controls]
    lines = [
        textwrap.fill(f"TODO: {claim.statistic.strip()}", 118, initial_indent="# ", subsequent_indent="# "),
        f"# one row per {' and '.join(claim.units)}{', the controls on the same units' if claim.controls else ''}",
        f"{rows} = pd.DataFrame(",
        "    {",
        *(f"        {json.dumps(column, ensure_ascii=False)}: []," for column in columns),
        "    }",
        ")",
    ]
    return _claim_cells(
        f"## {claim.id}. {claim.statement.strip().rstrip('.')}\n\nTODO: why anyone would believe it.",
        "\n".join(lines),
        f'ledger.check("{claim.id}", {rows})',
    )


def _example_claim() -> list[NotebookNode]:
    return _claim_cells(
        f"## C1. TODO\n\n{_UNSTATED}. Then: why anyone would believe it.",
        "# TODO: one row per unit, the control on the same unit\n"
        'rows_c1 = pd.DataFrame({"unit": [], "value": [], "control": []})',
        '# TODO: ledger.check("C1", rows_c1)',
    )


def _claim_cells(heading: str, measurement: str, check: str) -> list[NotebookNode]:
    return [
        _text(heading),
        _code(measurement),
        _text("TODO: how the figure is drawn, and from what."),
        _code("# TODO: the figure, its axes named with their units"),
        _text("TODO: one or two sentences that read the figure."),
        _code(check),
    ]


def _controls(entry: Paper) -> list[NotebookNode]:
    named = [f"{claim.id}, `{name}`: {what}" for claim in entry.claims for name, what in claim.controls.items()]
    listed = _bullets(named, "TODO: a control for each claim")
    return [
        _text(f"## Controls\n\nWhat would make the results trivial, measured the same way:\n\n{listed}"),
        _code("# TODO: the controls beside the values, in one figure"),
        _text("TODO: one or two sentences that read the figure."),
    ]


def _ledger(entry: Paper) -> list[NotebookNode]:
    silent = _bullets(entry.silent, "TODO, or: nowhere that mattered here")
    not_claimed = _bullets(entry.not_claimed, "TODO: what a reader might think was shown")
    return [
        _text("## The ledger\n\nThe paper beside this run."),
        _code("ledger.table()"),
        _text(
            "What differs from the paper: TODO (model, size, data).\n\n"
            f"Where the paper is silent or inconsistent:\n\n{silent}\n\nNot claimed here:\n\n{not_claimed}"
        ),
    ]


def _exercises(entry: Paper) -> list[NotebookNode]:
    refuted = entry.teaching.misconceptions if entry.teaching else []
    links = _bullets([f"[{belief.name}](#{belief.cell})" for belief in refuted], "TODO: each tied to its cell")
    return [
        _text("## Exercises\n\n### Exercise 1\n\nTODO: the task."),
        *_exercise("compute"),
        _text("### Exercise 2: how could this be fake?\n\nTODO: the task."),
        *_exercise("fair_control"),
        _text("### To discuss\n\n" + "\n".join(["- TODO: a question without a number for an answer"] * 3)),
        _text(f"### What this notebook refutes\n\n{links}"),
    ]


def _exercise(name: str) -> list[NotebookNode]:
    """Stub, check and folded solution; the check imports what it needs, so that it can run by itself."""
    check = [
        "import torch",
        "",
        "from helpers.checks import within_seconds",
        "",
        "",
        "@within_seconds(10)",
        f"def check_{name}({name}):",
        """    \"\"\"'ok', or what is wrong; an answer that raises or never ends is told as such.\"\"\"""",
        "    # TODO: small tensors, and a sentence for each mistake that one would make",
        f"    found = {name}(torch.tensor([1.0, 2.0]))",
        '    return "not yet: nothing came back" if found is None else "ok"',
        "",
        "",
        f"print(check_{name}({name}))",
    ]
    solution = f"def {name}(values):\n    return values  # TODO"
    return [
        _code(f'def {name}(values):\n    """values [unit] -> TODO."""\n    ...  # your code', "exercise"),
        _code("\n".join(check), "check"),
        _text(f"<details><summary>Solution</summary>\n\n```python\n{solution}\n```\n\n</details>", "solution"),
    ]
