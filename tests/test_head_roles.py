"""Head roles: a network whose heads were written by hand, other families, and the default model."""

import numpy as np
import pytest
import tiny_networks
import torch
import transformers
from tiny_networks import tiny_bridge, tokens
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformer_lens.tools.analysis.direct_logit_attribution import direct_logit_attribution

from helpers.errors import HookbookError
from helpers.head_roles import (
    ROLES,
    attention_roles,
    direct_logits,
    head_roles,
    repeated_tokens,
    table,
    uniform_attention,
)
from helpers.ioi import ioi
from helpers.models import load_model

FOLDED = ("gpt2", "neox", "llama", "mistral", "qwen2", "phi")
WORDS, PLACES, HEAD = 24, 17, 33


@pytest.fixture(scope="module")
def written():
    """Two layers of two heads; the stream has a slot for the token, one for the place and one for the token before.

    L0H0 attends to the place before and writes its token into the third slot, L0H1 attends to the same token and writes
    nothing; both heads of layer 1 attend to what came after the same token, L1H0 copies it, L1H1 suppresses it.
    """
    width = 2 * HEAD
    token, place, before = slice(0, WORDS), slice(WORDS, WORDS + PLACES), slice(WORDS + PLACES, 2 * WORDS + PLACES)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=width, n_positions=PLACES, vocab_size=WORDS, tie_word_embeddings=False,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float(".ln_" in name and name.endswith("weight")))
        model.transformer.wte.weight[:, token] = model.lm_head.weight[:, token] = torch.eye(WORDS)
        model.transformer.wpe.weight[:, place] = torch.eye(PLACES)
        back = torch.roll(torch.eye(PLACES), -1, 1)
        look = {(0, 0): (place, back, place), (0, 1): (token, None, token), (1, 0): (token, None, before)}
        look[1, 1] = look[1, 0]
        writes = {(0, 0): (before, 1.0), (1, 0): (token, 1.0), (1, 1): (token, -1.0)}
        for (layer, head), (query, turn, key) in look.items():
            attention = model.transformer.h[layer].attn
            size, at = query.stop - query.start, head * HEAD
            attention.c_attn.weight[query, at : at + size] = 4 * (torch.eye(size) if turn is None else turn)
            attention.c_attn.weight[key, width + at : width + at + size] = torch.eye(size)
            attention.c_attn.weight[token, 2 * width + at : 2 * width + at + WORDS] = torch.eye(WORDS)
            if (layer, head) in writes:
                slot, factor = writes[layer, head]
                attention.c_proj.weight[at : at + WORDS, slot] = 0.2 * factor * torch.eye(WORDS)
    bridge = build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=config, tokenizer=None)
    bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


def test_heads_written_by_hand_are_found_in_their_roles(written):
    scores = attention_roles(written, n_prompts=5, length=8, prepend_bos=False)
    assert {role: values.shape for role, values in scores.items()} == dict.fromkeys(scores, (2, 2, 5))
    assert (scores["previous token"][0, 0] > 0.99).all() and scores["previous token"][0, 1].max() < 0.2
    # the same token stands at the query too, and gets as much
    np.testing.assert_allclose(scores["duplicate token"][0, 1], 0.5, atol=0.01)
    assert scores["duplicate token"][[0, 1, 1], [0, 0, 1]].max() < 0.02
    # of the eight the first has two places that follow it: without BOS nothing else is before place 0
    np.testing.assert_allclose(scores["induction"][1], (7 + 1 / 2) / 8, atol=0.01)
    assert scores["induction"][0].max() < 0.2
    best = table(scores, 1).set_index("role")[["layer", "head"]]
    assert tuple(best.loc["previous token"]) == (0, 0) and tuple(best.loc["duplicate token"]) == (0, 1)


def test_copying_and_suppressing_are_told_apart(written):
    prompts = repeated_tokens(written, n_prompts=5, length=8, prepend_bos=False)
    query = torch.full((5,), 11)
    direct = direct_logits(written, prompts, query=query, source=query - 7)
    assert (direct.attention[1] > 0.99).all() and direct.attention[0].max() < 0.02
    assert (direct.logit[1, 0] > 0.5).all() and abs(direct.logit[0]).max() < 1e-3
    np.testing.assert_allclose(direct.logit[1, 1], -direct.logit[1, 0], rtol=1e-4)
    everywhere = direct_logits(written, prompts)
    assert (everywhere.logit[1, 0] > 0.2).all() and (everywhere.logit[1, 1] < -0.2).all()
    assert everywhere.attention.max() <= 1


@pytest.mark.parametrize("bos", [True, False])
def test_scores_are_what_the_definitions_say_position_by_position(bos):
    model = tiny_bridge("neox")
    scores = attention_roles(model, n_prompts=3, length=5, prepend_bos=bos, batch_size=2)
    prompts = repeated_tokens(model, n_prompts=3, length=5, prepend_bos=bos)
    _, cache = model.run_with_cache(prompts)
    for i, ids in enumerate(prompts.tolist()):
        for layer, head in ((0, 1), (2, 3)):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][i, head]
            seen = {role: [] for role in scores}
            for query in range(1, len(ids)):
                if query > 1:
                    seen["previous token"].append(pattern[query, query - 1])
                first = ids.index(ids[query])
                if first < query:
                    seen["duplicate token"] += [pattern[query, first]] * (first > 0)
                    seen["induction"].append(pattern[query, first + 1])
            for role, values in seen.items():
                assert scores[role][layer, head, i] == pytest.approx(float(sum(values)) / len(values), abs=1e-5), role
    chance = uniform_attention(5, bos)
    model.blocks[0].attn.hook_pattern.add_hook(lambda p, hook: (p > 0) / (p > 0).sum(-1, keepdim=True))
    for role, values in attention_roles(model, n_prompts=2, length=5, prepend_bos=bos).items():
        np.testing.assert_allclose(values[0], chance[role], rtol=1e-5)


def test_random_tokens_come_twice_and_none_is_special():
    model = tiny_networks.shared_bridge("llama")
    prompts = repeated_tokens(model, n_prompts=40, length=20, seed=3)
    assert prompts.shape == (40, 41) and (prompts[:, 0] == model.tokenizer.bos_token_id).all()
    assert torch.equal(prompts[:, 1:21], prompts[:, 21:])
    assert all(len(set(row)) == 21 for row in prompts.tolist())
    assert not set(prompts[:, 1:].unique().tolist()) & set(model.tokenizer.all_special_ids)
    assert torch.equal(prompts, repeated_tokens(model, n_prompts=40, length=20, seed=3))
    assert not torch.equal(prompts, repeated_tokens(model, n_prompts=40, length=20, seed=4))


@pytest.mark.parametrize("architecture", FOLDED)
def test_over_all_sources_it_is_the_direct_logit_attribution_of_the_head(architecture):
    """With grouped keys, either norm, biases and attention beside the MLP: TransformerLens says the same."""
    model, prompts = tiny_bridge(architecture, folded=True), tokens(3, 6)
    everything = torch.ones(3, 6, dtype=torch.bool)
    direct = direct_logits(model, prompts, query=torch.full((3,), 5), source=everything, token=prompts[:, 2])
    whole = direct_logit_attribution(model, prompts, answer_tokens=prompts[:, 2], unit="head").attribution
    expected = whole[: direct.logit[..., 0].size].reshape(direct.logit.shape)
    np.testing.assert_allclose(direct.logit, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(direct.attention, 1, atol=1e-5)
    parts = [direct_logits(model, prompts, query=torch.full((3,), 5), source=torch.full((3,), s), token=prompts[:, 2])
             for s in range(6)]  # fmt: skip
    np.testing.assert_allclose(sum(part.logit for part in parts), direct.logit, atol=1e-5)


def test_logits_are_less_their_mean_over_the_vocabulary_however_the_model_was_folded():
    other, prompts = tiny_bridge("llama"), tokens(2, 5)
    other.enable_compatibility_mode(center_unembed=False, disable_warnings=True)
    expected = direct_logits(tiny_networks.shared_bridge("llama", folded=True), prompts)
    np.testing.assert_allclose(direct_logits(other, prompts).logit, expected.logit, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_padding_changes_nothing(architecture, side):
    model, prompts = tiny_networks.shared_bridge(architecture, folded=True), tokens(4, 7)
    lengths = (7, 5, 6, 4)
    padded, mask = prompts.clone(), torch.zeros(4, 7, dtype=torch.bool)
    for i, n in enumerate(lengths):
        own = slice(7 - n, 7) if side == "left" else slice(0, n)
        padded[i], mask[i, own] = model.tokenizer.pad_token_id, True
        padded[i, own] = prompts[i, :n]
    start = mask.int().argmax(1)
    together = direct_logits(model, padded, query=start + 3, source=start + 1, mask=mask, batch_size=3)
    on_average = direct_logits(model, padded, mask=mask)
    for i, n in enumerate(lengths):
        alone = direct_logits(model, prompts[i : i + 1, :n], query=torch.tensor([3]), source=torch.tensor([1]))
        np.testing.assert_allclose(together.logit[..., i], alone.logit[..., 0], atol=1e-4)
        np.testing.assert_allclose(together.attention[..., i], alone.attention[..., 0], atol=1e-4)
        np.testing.assert_allclose(
            on_average.logit[..., i], direct_logits(model, prompts[i : i + 1, :n]).logit[..., 0], atol=1e-4
        )


def test_by_default_every_source_counts_but_the_first_token_and_the_query_itself():
    model, prompts = tiny_networks.shared_bridge("gpt2", folded=True), tokens(2, 5)
    both = {"attention": 0.0, "logit": 0.0}
    for query in range(2, 5):
        for source in range(1, query):
            one = direct_logits(model, prompts, query=torch.full((2,), query), source=torch.full((2,), source))
            both = {name: total + getattr(one, name) / 3 for name, total in both.items()}
    direct = direct_logits(model, prompts)
    np.testing.assert_allclose(direct.attention, both["attention"], atol=1e-5)
    np.testing.assert_allclose(direct.logit, both["logit"], atol=1e-5)
    last = direct_logits(model, prompts, query=torch.tensor([4, 4]))
    several = torch.tensor([[False, True, True, True, False]] * 2)
    np.testing.assert_allclose(
        last.logit, direct_logits(model, prompts, query=torch.tensor([4, 4]), source=several).logit
    )


def test_what_cannot_be_measured_is_a_sentence():
    raw, folded, prompts = tiny_bridge("gpt2"), tiny_networks.shared_bridge("gpt2", folded=True), tokens(2, 5)
    with pytest.raises(HookbookError, match='processing="folded"'):
        direct_logits(raw, prompts)
    half_folded = tiny_bridge("llama")
    half_folded.enable_compatibility_mode(fold_ln=False, disable_warnings=True)
    with pytest.raises(HookbookError, match='processing="folded"'):
        direct_logits(half_folded, prompts)
    with pytest.raises(HookbookError, match="normalises what attention adds"):
        direct_logits(tiny_networks.shared_bridge("gemma2", folded=True), prompts)
    with pytest.raises(HookbookError, match="In prompt 1 no source comes before the query"):
        direct_logits(folded, prompts, query=torch.tensor([4, 2]), source=torch.tensor([3, 3]))
    with pytest.raises(HookbookError, match="source: columns are 0 to 4"):
        direct_logits(folded, prompts, query=torch.tensor([4, 4]), source=torch.tensor([3, -1]))
    with pytest.raises(HookbookError, match="query: give one column for each of the 2 prompts"):
        direct_logits(folded, prompts, query=torch.tensor([4]))
    with pytest.raises(HookbookError, match="pass `mask`"):
        direct_logits(folded, torch.cat([prompts, torch.full((2, 1), folded.tokenizer.pad_token_id)], 1))
    with pytest.raises(HookbookError, match="of 4 to 31 tokens"):
        attention_roles(raw, length=32)
    with pytest.raises(HookbookError, match="of 4 to 31 tokens"):
        attention_roles(raw, length=3)


def test_without_a_bos_token_there_is_none_in_front(written):
    with pytest.raises(HookbookError, match="prepend_bos=False"):
        repeated_tokens(written, length=8)


def test_hooks_come_off_whatever_happens():
    model = tiny_bridge("gpt2", folded=True)

    def stop(value, hook):
        raise KeyboardInterrupt

    model.blocks[1].attn.hook_pattern.add_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        direct_logits(model, tokens(2, 5))
    assert [name for name, point in model.hook_dict.items() if point.fwd_hooks] == ["blocks.1.attn.hook_pattern"]


def test_the_table_names_the_best_first():
    scores = np.zeros((2, 3, 4))
    scores[1, 2], scores[0, 1] = [1, 3, 1, 3], 1
    found = table({"mover": scores, "suppression": -scores}, 2)
    assert found.to_dict("records")[:2] == [
        {"role": "mover", "rank": 1, "layer": 1, "head": 2, "score": 2.0, "spread": 1.0},
        {"role": "mover", "rank": 2, "layer": 0, "head": 1, "score": 1.0, "spread": 0.0},
    ]
    assert found.role.tolist() == ["mover"] * 2 + ["suppression"] * 2


# the default model


@pytest.fixture(scope="module")
def smollm():
    return load_model()


def best(scores, n=1):
    return list(table({"role": scores}, n)[["layer", "head"]].itertuples(index=False, name=None))


@pytest.mark.model
def test_the_default_model_has_heads_for_attention_roles_whatever_the_tokens(smollm):
    drawn = [attention_roles(smollm, n_prompts=8, seed=seed, prepend_bos=bos) for seed, bos in ((0, True), (1, False))]
    for role, high in {"previous token": 0.8, "duplicate token": 0.5, "induction": 0.7}.items():
        first, second = (scores[role] for scores in drawn)
        assert best(first) == best(second) == best(first[..., :4]) == best(first[..., 4:]), role
        assert first.mean(-1).max() > high
        assert np.corrcoef(first.mean(-1).ravel(), second.mean(-1).ravel())[0, 1] > 0.95


@pytest.mark.model
def test_names_are_moved_by_some_heads_and_suppressed_by_another(smollm):
    prompts = ioi(smollm, n_pairs=16)
    roles = head_roles(smollm, prompts, n_random=2)
    assert tuple(roles) == ROLES and roles["mover"].shape == roles["suppression"].shape == (30, 9, 16)
    even, odd = np.arange(0, 16, 2), np.arange(1, 16, 2)
    for role in ("mover", "suppression"):
        (chosen,) = best(roles[role][..., even])
        assert (chosen,) == tuple(best(roles[role][..., odd]))
        assert roles[role][chosen][odd].mean() > 0.5
    of_the_subject = head_roles(smollm, prompts, source="s2", n_random=2)["suppression"]
    assert best(of_the_subject) != best(roles["suppression"]) and of_the_subject.mean(-1).max() > 1
    with pytest.raises(HookbookError, match="no role 'colour'; they have io, s1"):
        head_roles(smollm, prompts, source="colour")


@pytest.mark.model
def test_untrained_heads_stay_near_chance():
    untrained = load_model("random:smollm2-135m")
    for role, scores in attention_roles(untrained, n_prompts=8).items():
        assert scores.mean(-1).max() < 1.5 * uniform_attention(24)[role], role
