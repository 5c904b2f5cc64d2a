import types

import pytest
import torch
from tiny_networks import Toy, tiny_bridge

from helpers.activations import activations
from helpers.errors import HookbookError
from helpers.interventions import patch_sweep
from helpers.metrics import Metric
from helpers.padding import refuse_hidden_padding

ROWS = [[5, 6, 7, 2], [2, 6, 7, 8], [2, 2, 6, 7], [5, 6, 2, 2], [5, 2, 6, 7]]
PLAIN = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
Z = "blocks.0.attn.hook_z"


def recorded(model, tokens, mask=None):
    activations(model, tokens, Z, mask=mask)


def patched(model, tokens, mask=None):
    other = torch.where(tokens == 2, tokens, tokens + 20)
    patch_sweep(model, tokens, other, site="z", over=["layer"], metric=Metric.logit(5), mask=mask)


def patched_from(model, tokens, mask=None):
    other = torch.where(tokens == 2, tokens, tokens + 20)
    if mask is None:
        other = PLAIN + 20
    patch_sweep(model, other, tokens, site="z", over=["layer"], metric=Metric.logit(5), mask=mask)


@pytest.fixture
def llama(monkeypatch, tmp_path):
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path))
    return tiny_bridge("llama")


@pytest.mark.parametrize("use", [recorded, patched, patched_from])
@pytest.mark.parametrize(("bos", "refused"), [(1, {0, 1, 2, 3}), (2, {0, 2, 3})])
def test_padding_that_nobody_named_is_refused(llama, monkeypatch, use, bos, refused):
    monkeypatch.setattr(llama, "_tokenizer", types.SimpleNamespace(pad_token_id=2, bos_token_id=bos))
    for i, row in enumerate(ROWS):
        given = torch.stack([PLAIN[0], torch.tensor(row)])
        if i in refused:
            with pytest.raises(HookbookError, match="Prompt 1 begins or ends with the padding token: pass `mask`"):
                use(llama, given)
        else:
            use(llama, given)
        if i < 4 or use is recorded:  # a sweep takes no mask with a gap
            use(llama, given, mask=given != 2)


def test_what_has_no_padding_token_is_not_padded(llama):
    refuse_hidden_padding(llama, torch.tensor([[2], [5]]))  # the BOS alone
    refuse_hidden_padding(llama, torch.full((1, 4, 3), 2.0))
    refuse_hidden_padding(Toy(), torch.full((2, 5), 2))
    llama.tokenizer = None
    refuse_hidden_padding(llama, torch.tensor(ROWS))
