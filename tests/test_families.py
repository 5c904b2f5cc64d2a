"""Every notebook of tier A runs on other families too: each cell on untrained checkpoints in a folder, gates off."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from helpers import models, notebooks, papers
from helpers.batch.planned import Plan, planned
from helpers.batch.record import RunRecord
from helpers.batch.single import carry_out, new_folder
from helpers.warm.client import ADDRESS, Warm, impossible

AT_A_TIME = 2
LAYERS, HEADS, WIDTH, CONTEXT = 6, 4, 32, 512
FAMILIES: dict[str, Callable[..., transformers.PretrainedConfig]] = {
    "gpt2": lambda **ids: transformers.GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=CONTEXT, **ids
    ),
    "neox": lambda **ids: transformers.GPTNeoXConfig(
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=CONTEXT,
        **ids,
    ),
}
# values are free here: there are about as few prompts as the notebook allows, and what it leaves out by default is in
QUICK: dict[str, dict[str, Any]] = {
    "activation-patching-practices": {"n_pairs": 7, "n_countries": 7},
    "additive-facts": {"n_countries": 12, "n_random": 1},
    "attribution-patching": {"n_thresholds": 4, "n_prompts": 4, "ig_steps": 1, "n_pairs": 12, "every_inside": 6},
    "circuit-component-reuse": {"n_items": 6, "n_pairs": 6, "n_facts": 6, "n_verify": 4, "n_draws": 1},
    "copy-suppression": {"n_docs": 12, "n_tokens": 16, "n_words": 40, "n_pairs": 12},
    "sentiment-direction": {"n_templates": 6, "n_pairs": 7, "n_films": 32, "n_negated": 12, "das_epochs": 1},
    "subspace-illusion": {"n_templates": 6, "n_pairs": 6, "n_facts": 6, "n_fact_layers": 1, "das_steps": 2},
}


def test_no_notebook_of_tier_a_is_forgotten():
    standing = {slug for slug, paper in papers.catalogue().items() if (paper.tier, paper.status) == ("A", "stands")}
    assert set(QUICK) == standing, "say in QUICK with which parameters it runs here"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A checkpoint of each family with the default model's vocabulary, so that words are as many tokens as there."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(models.fetch("smollm2-135m"))
    ids = {"vocab_size": len(tokenizer), "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    made = {family: tmp_path_factory.mktemp("families") / family for family in FAMILIES}
    for family, folder in made.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            transformers.AutoModelForCausalLM.from_config(FAMILIES[family](**ids)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def runs(request, folders, tmp_path_factory) -> Iterator[dict[tuple[str, str], Future]]:
    """The runs that were asked for, two at a time with a thread each, forked from one process that paid the imports."""
    here = [item for item in request.session.items if item.path == request.path]
    asked = [item.callspec.params for item in here if hasattr(item, "callspec")]
    runs_dir = tmp_path_factory.mktemp("runs")

    def plan(slug: str, family: str) -> Plan:
        return planned(slug, {**QUICK[slug], "model_name": str(folders[family]), "gates": False}, "quick")

    def one(plan: Plan) -> RunRecord:
        folder = new_folder(runs_dir / plan.slug, plan.fingerprint.id)
        return carry_out(plan, folder, pages=False, environment={"OMP_NUM_THREADS": "1", "HOOKBOOK_CACHE_GB": "0"})

    with ExitStack() as stack:
        if not impossible():
            environment = stack.enter_context(pytest.MonkeyPatch.context())
            environment.setenv("OMP_NUM_THREADS", "1")
            environment.setenv(ADDRESS, stack.enter_context(Warm.start()).address)
        pool = stack.enter_context(ThreadPoolExecutor(AT_A_TIME))
        stack.callback(pool.shutdown, cancel_futures=True)  # when the tests were stopped
        # planned one after another: Python 3.11 cannot parse in two threads at once
        yield {(each["slug"], each["family"]): pool.submit(one, plan(**each)) for each in asked}


@pytest.mark.model
@pytest.mark.parametrize(
    ("slug", "family"),
    [(slug, family) for slug in QUICK for family in FAMILIES],
)
def test_every_cell_runs(slug, family, runs):
    record = runs[slug, family].result()
    assert record.status == "done", f"{record.failure}\n{record.failure and record.failure.traceback}"
    cells = notebooks.code_cells(notebooks.read(record.notebook))
    assert all(cell.execution_count for cell in cells if cell.source.strip())
    assert Path(record.ledger["model"]).name == family
    claims = {row["id"]: row for row in record.ledger["claims"]}
    assert set(claims) == {claim.id for claim in papers.paper(slug).claims}
    assert not [name for name, row in claims.items() if row["verdict"] == "not tested"], "gates are off"
