"""Patch sweeps against their oracle: a full forward pass for each site, with a hook written here."""

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_networks import VOCABULARY
from tiny_networks import shared_bridge as bridge
from transformer_lens import patching

from helpers.errors import HookbookError
from helpers.interventions import patch_sweep
from helpers.interventions.blocks import SUPPORTED, Blocks
from helpers.metrics import Metric
from helpers.models import load_model

ARCHITECTURES = ["gpt2", "neox", "llama", "mistral", "gemma2", "qwen2"]
STREAMS = ["resid_pre", "resid_mid", "attn_out", "mlp_out"]
HEADS = ["z", "q", "k", "v"]
N_UNITS, N_POS, N_LAYERS = 3, 7, 3
METRIC = Metric.logit_difference([5, 6, 7], [8, 9, 10])


def ids(seed, n_units=N_UNITS, n_pos=N_POS, vocabulary=VOCABULARY):
    return torch.randint(3, vocabulary, (n_units, n_pos), generator=torch.Generator().manual_seed(seed))


CORRUPTED, CLEAN = ids(1), ids(2)
CLEAN[:, 0] = CORRUPTED[:, 0]  # as a BOS would be


def name_of(site, layer):
    return f"blocks.{layer}.{'attn.' if site in HEADS else ''}hook_{site}"


@torch.no_grad()
def activations(model, tokens, mask=None):
    return model.run_with_cache(tokens, attention_mask=None if mask is None else mask.long())[1]


@torch.no_grad()
def oracle(model, tokens, new, site, layer, positions, heads, mask=None):
    """Logits of the full forward pass with these positions (of these heads) replaced by the rows of `new`."""

    def write(activation, hook):
        activation = activation.clone()
        if heads is None:
            activation[:, positions] = new[:, positions]
        else:
            for head in heads:
                activation[:, positions, head] = new[:, positions, head]
        return activation

    hooks = [(name_of(site, layer), write)]
    if site == "resid_mid":  # its hook feeds the MLP alone: the residual stream itself changes by as much
        old = activations(model, tokens, mask)[name_of(site, layer)]

        def add(activation, hook):
            activation = activation.clone()
            activation[:, positions] += (new - old)[:, positions]
            return activation

        hooks.append((f"blocks.{layer}.hook_resid_post", add))
    return model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=None if mask is None else mask.long())


def difference(logits):
    """METRIC, written out."""
    rows = torch.arange(len(logits))
    return logits[rows, -1, torch.tensor([5, 6, 7])] - logits[rows, -1, torch.tensor([8, 9, 10])]


def close(values, expected, tolerance=1e-4):
    expected = torch.as_tensor(expected)
    error = (torch.as_tensor(values) - expected).abs().max()
    assert error < tolerance * expected.abs().max() + 1e-6


def has(architecture, site):
    return not (architecture == "neox" and site == "resid_mid")


def expected_grid(model, tokens, new, site, heads, mask=None):
    """The metric at every layer and position (and head, or set of heads) -> [layer, position, head, unit]."""
    sets = [None] if site in STREAMS else heads
    everywhere = [
        [
            [difference(oracle(model, tokens, new(site, layer), site, layer, [pos], one, mask)) for one in sets]
            for pos in range(tokens.shape[1])
        ]
        for layer in range(N_LAYERS)
    ]
    return torch.stack([torch.stack([torch.stack(row) for row in rows]) for rows in everywhere])


# The matrix: architectures x sites x modes


@pytest.mark.parametrize("mode", ["denoising", "noising"])
@pytest.mark.parametrize("site", STREAMS + HEADS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_site_is_what_the_full_forward_pass_gives(architecture, site, mode):
    if not has(architecture, site):
        pytest.skip("parallel attention has no resid_mid")
    model = bridge(architecture, folded=mode == "noising")
    tokens, other = (CORRUPTED, CLEAN) if mode == "denoising" else (CLEAN, CORRUPTED)
    cache = activations(model, other)
    n_heads = cache[name_of(site, 0)].shape[2]
    heads = [[i] for i in range(n_heads)]
    expected = expected_grid(model, tokens, lambda s, layer: cache[name_of(s, layer)], site, heads)
    over = ("layer", "position") if site in STREAMS else ("layer", "position", "head")
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site=site, over=over, metric=METRIC, mode=mode)
    assert sweep.how.startswith("shortcut")
    close(sweep.values, expected if site in HEADS else expected[:, :, 0])
    assert abs(sweep.effect).max() > 0.05  # of logits of the order of one
    assert sweep.unchanged[:, 0].all() and not sweep.unchanged[:, 1:].any() or site in ("attn_out", "mlp_out", "z")
    close(sweep.base, difference(oracle(model, tokens, cache[name_of(site, 0)], site, 0, [], None)))
    close(sweep.source, difference(oracle(model, other, cache[name_of(site, 0)], site, 0, [], None)))


@pytest.mark.parametrize("site", STREAMS + HEADS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_positions_or_all_heads_at_once(architecture, site):
    if not has(architecture, site):
        pytest.skip("parallel attention has no resid_mid")
    model = bridge(architecture, folded=True)
    cache = activations(model, CLEAN)
    everywhere = list(range(N_POS))
    whole = [
        difference(oracle(model, CORRUPTED, cache[name_of(site, i)], site, i, everywhere, None))
        for i in range(N_LAYERS)
    ]
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site=site, over=["layer"], metric=METRIC)
    close(sweep.values, torch.stack(whole))
    if site in HEADS:
        n_heads = cache[name_of(site, 0)].shape[2]
        by_head = [
            torch.stack([
                difference(oracle(model, CORRUPTED, cache[name_of(site, i)], site, i, everywhere, [head]))
                for head in range(n_heads)
            ])
            for i in range(N_LAYERS)
        ]  # fmt: skip
        close(
            patch_sweep(model, CORRUPTED, CLEAN, site=site, over=("layer", "head"), metric=METRIC).values,
            torch.stack(by_head),
        )
        some = expected_grid(model, CORRUPTED, lambda s, i: cache[name_of(s, i)], site, [[0, n_heads - 1]])
        sweep = patch_sweep(model, CORRUPTED, CLEAN, site=site, heads=[0, n_heads - 1], metric=METRIC)
        close(sweep.values, some[:, :, 0])


@pytest.mark.parametrize("patch", ["mean", "zero", "resample"])
@pytest.mark.parametrize("site", ["resid_pre", "mlp_out", "z", "v"])
@pytest.mark.parametrize("architecture", ["gpt2", "neox", "llama", "mistral"])
def test_ablations(architecture, site, patch):
    model = bridge(architecture)
    cache = activations(model, CLEAN)
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site=site, over=["layer"], metric=METRIC, patch=patch, seed=3)

    def new(layer):
        value = cache[name_of(site, layer)]
        if patch == "zero":
            return torch.zeros_like(value)
        return value.mean(0, keepdim=True).expand_as(value) if patch == "mean" else value

    for layer in range(N_LAYERS):
        if patch != "resample":
            expected = difference(oracle(model, CORRUPTED, new(layer), site, layer, list(range(N_POS)), None))
            close(sweep.values[layer], expected)
            continue
        found = []  # one of the two ways in which three prompts swap without one staying
        for order in ([1, 2, 0], [2, 0, 1]):
            logits = oracle(model, CORRUPTED, new(layer)[order], site, layer, list(range(N_POS)), None)
            found.append(abs(difference(logits) - torch.from_numpy(sweep.values[layer])).max() < 1e-4)
        assert sum(found) == 1


@pytest.mark.parametrize("patch", ["mean", "zero", "resample"])
def test_ablation_needs_no_second_run(patch):
    model = bridge("llama")
    alone = patch_sweep(model, CLEAN, site="z", over=("layer", "head"), metric=METRIC, patch=patch)
    itself = patch_sweep(model, CLEAN, CLEAN, site="z", over=("layer", "head"), metric=METRIC, patch=patch)
    close(alone.values, itself.values, 1e-6)
    assert alone.source is None
    with pytest.raises(HookbookError, match="no difference between two runs"):
        _ = alone.recovered


def test_keys_and_values_of_grouped_queries_have_their_own_number_of_heads():
    for site in HEADS:
        sweep = patch_sweep(bridge("llama"), CORRUPTED, CLEAN, site=site, over=("head", "layer"), metric=METRIC)
        assert sweep.values.shape == (2 if site in "kv" else 4, N_LAYERS, N_UNITS)
        assert list(sweep.axes) == ["head", "layer"]


# Against TransformerLens's own sweeps, where they work (its heads fail under grouped-query attention)


@pytest.mark.parametrize("architecture", ["gpt2", "neox"])
def test_transformer_lens_agrees(architecture):
    model = bridge(architecture)
    cache = activations(model, CLEAN)
    peers = {
        "resid_pre": (patching.get_act_patch_resid_pre, ("layer", "position")),
        "attn_out": (patching.get_act_patch_attn_out, ("layer", "position")),
        "mlp_out": (patching.get_act_patch_mlp_out, ("layer", "position")),
        "z": (patching.get_act_patch_attn_head_out_by_pos, ("layer", "position", "head")),
        "q": (patching.get_act_patch_attn_head_q_all_pos, ("layer", "head")),
        "k": (patching.get_act_patch_attn_head_k_all_pos, ("layer", "head")),
        "v": (patching.get_act_patch_attn_head_v_by_pos, ("layer", "position", "head")),
    }
    for site, (peer, over) in peers.items():
        with torch.no_grad():
            expected = peer(model, CORRUPTED, cache, lambda logits: difference(logits).mean())
        close(patch_sweep(model, CORRUPTED, CLEAN, site=site, over=over, metric=METRIC).values.mean(-1), expected)


# Properties

ANY_SITE = st.tuples(st.sampled_from(ARCHITECTURES), st.sampled_from(STREAMS + HEADS), st.integers(0, 999)).filter(
    lambda drawn: has(*drawn[:2])
)
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def over_all(site):
    return ("layer", "position") if site in STREAMS else ("layer", "position", "head")


@few
@given(ANY_SITE)
def test_a_run_patched_from_itself_is_refused_as_a_sweep_that_changes_nothing(drawn):
    architecture, site, seed = drawn
    tokens = ids(seed)
    with pytest.raises(HookbookError, match="changes nothing anywhere"):
        patch_sweep(bridge(architecture), tokens, tokens, site=site, over=over_all(site), metric=METRIC)


@few
@given(ANY_SITE)
def test_prompts_that_are_the_same_keep_their_value_beside_others_that_differ(drawn):
    architecture, site, seed = drawn
    tokens = ids(seed)
    other = 3 + (tokens + 4) % (VOCABULARY - 3)  # another token everywhere
    other[1] = tokens[1]
    sweep = patch_sweep(bridge(architecture), tokens, other, site=site, over=over_all(site), metric=METRIC)
    assert sweep.unchanged[..., 1].all()
    assert not sweep.unchanged[..., [0, 2]].any()
    assert (sweep.effect[..., 1] == 0).all()
    assert (sweep.values[..., 1] == sweep.base[1]).all()


@few
@given(st.sampled_from(ARCHITECTURES), st.integers(0, 999))
def test_patching_everything_gives_the_clean_run(architecture, seed):
    tokens, other = ids(seed), ids(seed + 1)
    sweep = patch_sweep(bridge(architecture), tokens, other, site="resid_pre", over=["layer"], metric=METRIC)
    close(sweep.values, sweep.source[None].repeat(N_LAYERS, 0))
    assert (abs(sweep.recovered - 1) < 1e-3).all()


@few
@given(ANY_SITE, st.randoms(use_true_random=False))
def test_batched_is_one_by_one_in_any_order(drawn, random):
    architecture, site, seed = drawn
    model, tokens, other = bridge(architecture), ids(seed), ids(seed + 1)
    whole = patch_sweep(model, tokens, other, site=site, over=over_all(site), metric=METRIC)
    small = patch_sweep(model, tokens, other, site=site, over=over_all(site), metric=METRIC, memory_mb=0)
    close(small.values, whole.values, 1e-5)
    layers, positions = random.sample(range(N_LAYERS), N_LAYERS), random.sample(range(N_POS), N_POS)
    turned = ("position", *[axis for axis in over_all(site) if axis != "position"])
    mixed = patch_sweep(model, tokens, other, site=site, over=turned, metric=METRIC, layers=layers, positions=positions)
    assert mixed.axes["position"] == positions and mixed.axes["layer"] == layers
    close(mixed.values.swapaxes(0, 1), whole.values[layers][:, positions], 1e-5)
    unit, layer, pos = random.randrange(N_UNITS), layers[0], positions[0]
    one = patch_sweep(
        model,
        tokens[[unit]],
        other[[unit]],
        site=site,
        over=over_all(site),
        metric=Metric.logit_difference(5 + unit, 8 + unit),
        layers=[layer],
        positions=[pos],
    )
    close(one.values[0, 0, ..., 0], whole.values[layer, pos, ..., unit], 1e-4)


# Lengths, padding, BOS


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("site", ["resid_pre", "mlp_out", "z", "k"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padded_prompts_are_as_they_are_alone(architecture, site, side):
    model, lengths = bridge(architecture), [7, 4, 5]
    mask = torch.arange(N_POS) < torch.tensor(lengths)[:, None]
    mask = mask.flip(1) if side == "left" else mask
    tokens, other = CORRUPTED.masked_fill(~mask, 2), CLEAN.masked_fill(~mask, 2)
    over = over_all(site)
    sweep = patch_sweep(model, tokens, other, site=site, over=over, metric=METRIC, mask=mask)
    assert sweep.how.startswith("shortcut")
    plain = patch_sweep(model, tokens, other, site=site, over=over, metric=METRIC, mask=mask, shortcut=False)
    close(sweep.values, plain.values)
    assert (sweep.unchanged == plain.unchanged).all()
    for unit, own in enumerate(mask):
        metric = Metric.logit_difference(5 + unit, 8 + unit)
        alone = patch_sweep(model, tokens[unit, own], other[unit, own], site=site, over=over, metric=metric)
        close(sweep.values[..., unit][:, own.numpy()], alone.values[..., 0])
        assert sweep.unchanged[..., unit][:, ~own.numpy()].all()
    mean = patch_sweep(model, tokens, other, site=site, over=over, metric=METRIC, mask=mask, patch="mean")
    count = mask.sum(0).clamp(min=1)
    cache = activations(model, other, mask)

    def average(s, layer):
        value = cache[name_of(s, layer)]
        weights = mask.view(*mask.shape, *[1] * (value.ndim - 2))
        return ((value * weights).sum(0) / count.view(-1, *[1] * (value.ndim - 2))).expand_as(value)

    if side == "left":  # `difference` reads the last column
        heads = [[i] for i in range(cache[name_of(site, 0)].shape[2])]
        expected = expected_grid(model, tokens, average, site, heads, mask)
        real = ~mean.unchanged
        close(mean.values[real], (expected if site in HEADS else expected[:, :, 0]).numpy()[real])


def test_positions_that_are_named_do_not_reach_into_the_padding():
    mask = torch.arange(N_POS) < torch.tensor([[7], [4], [5]])
    for own in (mask, mask.flip(1)):
        tokens = [given.masked_fill(~own, 2) for given in (CORRUPTED, CLEAN)]
        arguments = {"site": "resid_pre", "metric": METRIC, "mask": own, "patch": "zero"}
        named = patch_sweep(bridge("llama"), *tokens, positions=[0, -1, torch.ones_like(own)], **arguments)
        assert (named.unchanged[:, :2] == ~own.T.numpy()[[0, -1]]).all() and not named.unchanged[:, 2].any()


@pytest.mark.parametrize("prepend_bos", [True, False])
def test_texts_of_unequal_lengths_are_padded_and_read_at_their_own_ends(prepend_bos):
    model = bridge("llama")
    corrupted, clean = ["abcd", "the cat", "x"], ["abce", "the hat", "y"]
    sweep = patch_sweep(model, corrupted, clean, site="resid_pre", metric=METRIC, prepend_bos=prepend_bos)
    for unit, texts in enumerate(zip(corrupted, clean, strict=True)):
        pair = [model.to_tokens(text, prepend_bos=prepend_bos) for text in texts]
        assert (pair[0][0, 0] == model.tokenizer.bos_token_id) == prepend_bos
        metric = Metric.logit_difference(5 + unit, 8 + unit)
        alone = patch_sweep(model, *pair, site="resid_pre", metric=metric)
        close(sweep.values[:, : pair[0].shape[1], unit], alone.values[..., 0])


def test_pairs_of_unequal_lengths_are_refused():
    model = bridge("llama")
    with pytest.raises(HookbookError, match="pair 1 have 3 and 4 tokens"):
        patch_sweep(model, ["abc", "abc"], ["abd", "abcd"], site="z", metric=METRIC, prepend_bos=False)
    with pytest.raises(HookbookError, match="3 prompts to patch and 2 to patch from"):
        patch_sweep(model, CORRUPTED, CLEAN[:2], site="z", metric=METRIC)
    with pytest.raises(HookbookError, match="no prompts"):
        patch_sweep(model, [], [], site="z", metric=METRIC)


def test_masks_that_do_not_fit_are_refused():
    model = bridge("llama")
    gaps = torch.ones(CORRUPTED.shape, dtype=torch.bool)
    gaps[0, 2] = False
    with pytest.raises(HookbookError, match="one unbroken run"):
        patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=METRIC, mask=gaps)
    with pytest.raises(HookbookError, match="shape"):
        patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=METRIC, mask=gaps[:2])


@pytest.mark.parametrize("architecture", ["gpt2", "mistral"])
def test_places_may_differ_between_prompts(architecture):
    model, own = bridge(architecture), torch.tensor([2, 5, 3])
    several = torch.zeros(CORRUPTED.shape, dtype=torch.bool)
    several[0, [1, 4]] = several[1, 3] = True  # none in the third
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site="mlp_out", metric=METRIC, positions=[own, several, -1])
    assert sweep.axes["position"] == [0, 1, 2]
    grid = patch_sweep(model, CORRUPTED, CLEAN, site="mlp_out", metric=METRIC)
    for unit, pos in enumerate(own):
        close(sweep.values[:, 0, unit], grid.values[:, pos, unit])
    close(sweep.values[:, 2], grid.values[:, -1])
    assert sweep.unchanged[:, 1, 2].all()
    cache = activations(model, CLEAN)
    for layer in range(N_LAYERS):
        logits = oracle(model, CORRUPTED, cache[name_of("mlp_out", layer)], "mlp_out", layer, [1, 4], None)
        close(sweep.values[layer, 1, 0], difference(logits)[0])
    union = patch_sweep(
        model, CORRUPTED, CLEAN, site="mlp_out", over=["layer"], metric=METRIC, positions=[own, several]
    )
    joint = several.clone()
    joint[torch.arange(N_UNITS), own] = True
    again = patch_sweep(model, CORRUPTED, CLEAN, site="mlp_out", metric=METRIC, positions=[joint])
    close(union.values, again.values[:, 0])


# Metrics


@pytest.mark.parametrize("site", ["resid_pre", "z"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_metrics_that_read_more_than_two_logits(architecture, site):
    model = bridge(architecture)
    with torch.no_grad():
        reference = model(CLEAN)[:, -1]
    answer, places = torch.tensor([[5, 8], [6, 9], [7, 10]]), torch.tensor([[2, 6]])
    for metric in (
        Metric.log_prob([5, 6, 7]),
        Metric.kl(reference),
        Metric.log_prob(answer, places),
        Metric.logit(5, position=3),
        lambda logits: logits[:, 2:].logsumexp(-1).std(1),
    ):
        fast = patch_sweep(model, CORRUPTED, CLEAN, site=site, metric=metric)
        plain = patch_sweep(model, CORRUPTED, CLEAN, site=site, metric=metric, shortcut=False)
        assert fast.how.startswith("shortcut") and plain.how == "plain: as asked"
        close(fast.values, plain.values)
        assert abs(fast.effect).max() > 0.01


@pytest.mark.parametrize("shortcut", [True, False])
def test_several_metrics_read_the_same_runs(shortcut):
    model = bridge("llama")
    reference = model(CLEAN)[:, -1]
    metrics = [METRIC, Metric.log_prob([5, 6, 7]), Metric.kl(reference)]
    ways = {"site": "z", "over": ("layer", "head"), "shortcut": shortcut}
    together = patch_sweep(model, CORRUPTED, CLEAN, metric=metrics, **ways)
    assert len(together) == 3
    for sweep, metric in zip(together, metrics, strict=True):
        alone = patch_sweep(model, CORRUPTED, CLEAN, metric=metric, **ways)
        close(sweep.values, torch.tensor(alone.values))
        close(sweep.base, torch.tensor(alone.base))
        close(sweep.source, torch.tensor(alone.source))
        assert sweep.axes == alone.axes and sweep.how == alone.how
    zeroed = patch_sweep(model, CORRUPTED, patch="zero", metric=metrics[:2], **ways)
    assert [sweep.source for sweep in zeroed] == [None, None]


def test_metrics_that_cannot_be_measured_together_are_refused():
    model = bridge("llama")
    for metrics, message in (
        ([], "name at least one"),
        ([METRIC, Metric.logit(5, position=0)], "same positions"),
        ([METRIC, Metric.of(difference)], "same positions"),
    ):
        with pytest.raises(HookbookError, match=message):
            patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=metrics)


def test_a_patch_behind_the_last_position_that_is_read_has_no_effect():
    sweep = patch_sweep(bridge("llama"), CORRUPTED, CLEAN, site="resid_pre", metric=Metric.logit(5, position=3))
    assert (sweep.effect[:, 4:] == 0).all() and not sweep.unchanged[:, 4:].any()
    assert (sweep.effect[:, 1:4] != 0).any()


def test_a_callable_that_averages_over_prompts_is_refused():
    with pytest.raises(HookbookError, match="one per prompt"):
        patch_sweep(bridge("llama"), CORRUPTED, CLEAN, site="z", metric=lambda logits: difference(logits).mean())


# The plain way, and saying so


def test_an_architecture_without_a_shortcut_goes_the_plain_way_and_says_so():
    model = bridge("phi")
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site="resid_pre", metric=METRIC)
    assert sweep.how == "plain: the blocks of PhiForCausalLM are not known"
    cache = activations(model, CLEAN)
    close(
        sweep.values,
        expected_grid(model, CORRUPTED, lambda s, i: cache[name_of(s, i)], "resid_pre", None)[:, :, 0],
    )


def test_the_users_own_hooks_are_kept_and_honoured():
    model = bridge("llama")
    before = patch_sweep(model, CORRUPTED, CLEAN, site="resid_pre", metric=METRIC)
    seen = []

    def halve(activation, hook):
        seen.append(1)
        return activation * 0.5

    with model.hooks(fwd_hooks=[("blocks.1.hook_mlp_out", halve)]):
        sweep = patch_sweep(model, CORRUPTED, CLEAN, site="resid_pre", metric=METRIC)
        with torch.no_grad():
            close(sweep.base, difference(model(CORRUPTED)))
        cache = activations(model, CLEAN)
        expected = expected_grid(model, CORRUPTED, lambda s, i: cache[name_of(s, i)], "resid_pre", None)
    assert sweep.how.startswith("plain: there are hooks on the model, the first at blocks.1")
    close(sweep.values, expected[:, :, 0])
    assert seen and abs(sweep.values - before.values).max() > 0.01
    handle = model.blocks[0].mlp.register_forward_hook(lambda *_: None)
    assert patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=METRIC).how.startswith("plain: there are hooks")
    handle.remove()
    assert patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=METRIC).how.startswith("shortcut")


def test_a_shortcut_that_does_not_reproduce_the_model_is_not_taken(monkeypatch):
    model = bridge("llama")
    right = patch_sweep(model, CORRUPTED, CLEAN, site="q", metric=METRIC)
    monkeypatch.setattr(Blocks, "_scale", lambda *_: 0.3)
    sweep = patch_sweep(model, CORRUPTED, CLEAN, site="q", metric=METRIC)
    assert sweep.how.startswith("plain: its logits came out differently by")
    close(sweep.values, right.values)


def test_a_sweep_leaves_the_model_as_it_was():
    model = bridge("llama")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    for metric in (METRIC, lambda logits: logits.mean()):
        with torch.enable_grad():
            if metric is METRIC:
                patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=metric)
            else:
                with pytest.raises(HookbookError):
                    patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=metric)
            assert torch.is_grad_enabled()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert {name: len(module._forward_hooks) for name, module in model.named_modules()} == hooks
    assert all(p.requires_grad for p in model.parameters())


def test_every_supported_architecture_is_in_the_matrix():
    assert {bridge(name).cfg.architecture for name in ARCHITECTURES} == set(SUPPORTED)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"site": "hook_z"}, "no site 'hook_z'"),
        ({"over": ("position",)}, "must name 'layer'"),
        ({"over": ("layer", "layer")}, "each once"),
        ({"over": ("layer", "pos")}, "must name 'layer'"),
        ({"site": "resid_pre", "over": ("layer", "head")}, "resid_pre has no heads"),
        ({"site": "resid_pre", "heads": [0]}, "resid_pre has no heads"),
        ({"mode": "both"}, "mode='both'"),
        ({"patch": "clean"}, "patch='clean'"),
        ({"layers": [3]}, "below 3"),
        ({"layers": []}, "at least one"),
        ({"heads": [4]}, "below 4"),
        ({"site": "k", "heads": [2]}, "below 2"),
        ({"heads": [1, 1]}, "each once"),
        ({"positions": [7]}, "outside the 7 columns"),
        ({"positions": [torch.tensor([1, 2])]}, "one index per prompt"),
        ({"positions": []}, "at least one"),
        ({"clean": None}, "no clean run"),
        ({"clean": None, "patch": "zero", "mode": "noising"}, "no clean run"),
        ({"corrupted": CORRUPTED[:1], "clean": CLEAN[:1], "patch": "resample"}, "at least two"),
        ({"corrupted": CORRUPTED.float()}, "token ids"),
        ({"metric": Metric.logit([1, 2])}, "tokens of 2 prompts"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message):
    given = {"corrupted": CORRUPTED, "clean": CLEAN, "site": "z", "metric": Metric.logit(5)} | arguments
    with pytest.raises(HookbookError, match=message):
        patch_sweep(bridge("llama"), given.pop("corrupted"), given.pop("clean"), **given)


def test_parallel_attention_has_no_resid_mid():
    with pytest.raises(HookbookError, match="nothing lies between"):
        patch_sweep(bridge("neox"), CORRUPTED, CLEAN, site="resid_mid", metric=METRIC)


def test_a_model_in_training_is_refused():
    model = bridge("gpt2")
    model.train()
    try:
        with pytest.raises(HookbookError, match="training mode"):
            patch_sweep(model, CORRUPTED, CLEAN, site="z", metric=METRIC)
    finally:
        model.eval()


# The default model


@pytest.fixture(scope="module")
def embedded():
    return load_model()


@pytest.mark.model
@pytest.mark.parametrize("site", STREAMS + HEADS)
def test_the_default_model_against_the_full_forward_pass(embedded, site):
    clean = ["When Mary and John went to the store, John gave a drink to", "The capital of France is"]
    corrupted = ["When Mary and John went to the store, Mary gave a drink to", "The capital of Spain is"]
    (mary, john), (paris, madrid) = (
        [embedded.to_single_token(word) for word in words] for words in ((" Mary", " John"), (" Paris", " Madrid"))
    )
    metric = Metric.logit_difference([mary, paris], [john, madrid])
    over = over_all(site)[-2:] if site in STREAMS else ("layer", "head")
    arguments = {"site": site, "over": over, "metric": metric, "layers": [0, 13, 29], "prepend_bos": True}
    if site in STREAMS:
        arguments["positions"] = [4, 10]
    fast = patch_sweep(embedded, corrupted, clean, **arguments)
    plain = patch_sweep(embedded, corrupted, clean, shortcut=False, **arguments)
    assert fast.how.startswith("shortcut")
    close(fast.values, plain.values)
    assert (fast.unchanged == plain.unchanged).all()
    # the corrupted prompt differs in one name and one country, so what is before stays
    assert (fast.source > fast.base).all()


@pytest.mark.model
def test_the_default_model_against_transformer_lens(embedded):
    tokens, other = ids(5, 2, 8, 40000), ids(6, 2, 8, 40000)
    cache = activations(embedded, other)
    metric = Metric.logit_difference([5, 6], [8, 9])

    def mean(logits):
        return (logits[[0, 1], -1, [5, 6]] - logits[[0, 1], -1, [8, 9]]).mean()

    layers = torch.tensor([[3, 2], [17, 6], [29, 7]])
    for site, name in (("resid_pre", "resid_pre"), ("mlp_out", "mlp_out")):
        with torch.no_grad():
            expected = patching.generic_activation_patch(
                embedded,
                tokens,
                cache,
                mean,
                patching.layer_pos_patch_setter,
                name,
                index_df=pd.DataFrame(layers.numpy(), columns=["layer", "pos"]),
            )
        ours = patch_sweep(embedded, tokens, other, site=site, metric=metric, layers=[3, 17, 29], positions=[2, 6, 7])
        close(ours.values.mean(-1)[[0, 1, 2], [0, 1, 2]], expected)
