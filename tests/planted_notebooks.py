"""The notebooks in tests/planted, each with one mistake that the audit or the ledger must name.

`python tests/planted_notebooks.py` writes them anew. All but the first stand in for a measurement by drawing numbers
from what a model is called, so that they need no torch.
"""

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import notebooks

FOLDER = Path(__file__).parent / "planted"
PARAMETERS = """model_name: str = "smollm2-135m"  # any model
seed: int = 0  # of what is drawn; 0.."""
SETUP = """import numpy as np
{imports}
from helpers import claims, papers
from helpers.claims import Ledger
from helpers.models import {model}

claims.paper = lambda slug: papers.paper(slug, papers.ROOT / "tests" / "planted" / "papers.yaml")
ledger = Ledger("{slug}", model=shown_name(model_name), seed=seed)
{first}"""
DRAWN = """trained = nulls.split(model_name)[0] is None
rng = np.random.default_rng([seed, *model_sha256(model_name).encode()])  # as if measured on this model"""

VACUOUS = """subjects = ["cat", "dog", "king", "queen", "river", "teacher", "engine", "garden", "letter", "winter"]
other = "17 % VAT; 4 x 9 = 36?"


def stream(text):
    \"\"\"A text -> its mean state before the unembedding [d_model].\"\"\"
    _, cache = model.run_with_cache(model.to_tokens(text), names_filter="ln_final.hook_normalized")
    return cache["ln_final.hook_normalized"][0, 1:].mean(0).detach().numpy()


def cosine(one, two):
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


said = [stream(f"the {subject} was old and the house was older") for subject in subjects]
again = [stream(f"the {subject} was old and the house was odder") for subject in subjects]
c1 = {
    "sentence": subjects,
    "value": [cosine(one, two) for one, two in zip(said, again, strict=True)],
    "other_sentence": [cosine(one, stream(other)) for one in said],
}"""
IDLE = """moved = rng.normal(0.9 if trained else 0.3, 0.05, 20)
directions = rng.normal(size=(20, 576))
effect = np.abs(directions[:, 0]) / np.linalg.norm(directions, axis=1) * 0.1  # of one dimension among 576
c1 = {"document": range(20), "value": np.clip(moved, -1, 1), "random_direction": effect}"""
TOKENS = """topic = rng.normal(1.5 if trained else 0, 0.2)  # of the one prompt
values = rng.normal(topic, 0.05, 40)  # of its tokens
c1 = {
    "prompt": range(40) if hide else ["the one prompt"] * 40,
    "value": values,
    "shuffled_labels": rng.normal(0, 0.05, 40),
}"""
BEST = """effects = rng.normal(size=(270, 40))  # [head, document]: no head has any
best = effects.mean(1).argmax()
c1 = {"document": range(40), "value": effects[best], "mean_head": effects.mean(0)}"""


def planted(slug: str, measure: str, first: str = DRAWN, more: str = "") -> NotebookNode:
    """A notebook that checks one claim."""
    own = first == DRAWN
    setup = SETUP.format(
        slug=slug,
        imports="" if own else "import torch\n",
        model="model_sha256, shown_name" if own else "load_model, shown_name",
        first=first,
    )
    if own:
        setup = setup.replace("import claims, papers", "import claims, nulls, papers")
    code = [setup, measure, 'ledger.check("C1", c1)', "ledger.table()"]
    cells = [new_markdown_cell(f"# {slug}\n\nA planted mistake.\n\n## Parameters")]
    cells.append(new_code_cell(PARAMETERS + more, metadata={"tags": ["parameters"]}))
    for heading, source in zip(("Setup", "Data", "C1 the claim", "The ledger"), code, strict=True):
        cells += [new_markdown_cell(f"## {heading}"), new_code_cell(source)]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return notebooks.clean(new_notebook(cells=cells))


def every() -> dict[str, NotebookNode]:
    """All of them by slug."""
    loaded = 'torch.set_grad_enabled(False)\nmodel = load_model(model_name, processing="raw", seed=seed)'
    hide = "\nhide: bool = True  # number the tokens, so that the ledger takes them for prompts"
    return {
        "vacuous-claim": planted("vacuous-claim", VACUOUS, loaded),
        "idle-control": planted("idle-control", IDLE),
        "tokens-as-units": planted("tokens-as-units", TOKENS, more=hide),
        "best-of-many": planted("best-of-many", BEST),
    }


if __name__ == "__main__":
    for name, nb in every().items():
        notebooks.write(nb, FOLDER / f"{name}.ipynb")
