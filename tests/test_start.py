"""Forward passes from a layer on, against their oracle: the full forward pass."""

import numpy as np
import pytest
import torch
from tiny_networks import CONFIGS, LAYERS, WIDTH, Toy, shared_bridge, tiny_bridge, tokens
from torch import nn
from transformer_lens.model_bridge.generalized_components.block import BlockBridge

from helpers.errors import HookbookError
from helpers.interventions import ablate, edit, patch_sweep, start, start_at, steer
from helpers.metrics import Metric
from helpers.models import load_model
from helpers.network_digest import indescribable

TOKENS = tokens(3, 7)
RESID, Z = "blocks.1.hook_resid_pre", "blocks.1.attn.hook_z"
DIRECTION = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1))
LEFT = torch.arange(7) >= torch.tensor([0, 3, 2])[:, None]
PADDING = {"none": None, "left": LEFT, "right": LEFT.flip(1)}


@pytest.fixture
def llama():
    """Shared, so that after every test it must be as it was."""
    model = shared_bridge("llama")
    yield model
    assert not placed(model) and not model.list_hooks()


@pytest.fixture(scope="module")
def stream():
    """Before layer 1 of `llama`."""
    return full(shared_bridge("llama"))[1][RESID]


def placed(model):
    """What `start_at` has on a model."""
    modules = [*model.modules(), model.original_model, *model.original_model.modules()]
    found = [vars(module).get("forward") for module in modules]
    found += [hook for module in modules for hook in module._forward_pre_hooks.values()]
    stray = [module for module in modules if module._forward_pre_hooks_with_kwargs.keys() - module._forward_pre_hooks]
    return stray + [one for one in found if isinstance(getattr(one, "__self__", None), start._Start)]


def padded(mask):
    return {} if mask is None else {"attention_mask": mask.long()}


@torch.no_grad()
def full(model, given=TOKENS, mask=None, **options):
    return model.run_with_cache(given, **padded(mask), **options)


@torch.no_grad()
def full_logits(model):
    return model(TOKENS)


def above(names, layer):
    """Those of the hooks that fire from this layer on."""
    below = tuple(f"blocks.{i}." for i in range(layer))
    return [name for name in names if not name.startswith((*below, "embed.", "hook_embed", "pos_embed.", "hook_pos"))]


def close(one, other, tolerance=1e-5):
    assert one.shape == other.shape
    masked = other < -1e30  # scores that the mask takes out
    assert torch.equal(one < -1e30, masked)
    one, other = one.masked_fill(masked, 0), other.masked_fill(masked, 0)
    assert (one - other).abs().max() <= tolerance * other.abs().max()


# The matrix: architectures x padding x layers


@pytest.mark.parametrize("folded", [False, True], ids=["raw", "folded"])
@pytest.mark.parametrize("side", PADDING)
@pytest.mark.parametrize("architecture", CONFIGS)
def test_everything_from_the_layer_on_is_as_in_the_full_forward_pass(architecture, side, folded):
    model, mask = shared_bridge(architecture, folded), PADDING[side]
    logits, cache = full(model, mask=mask)
    for layer in range(LAYERS):
        names = above(cache.keys(), layer)
        with start_at(model, layer, cache[f"blocks.{layer}.hook_resid_pre"]) as same:
            again, kept = full(same, mask=mask, names_filter=names)
        close(again, logits)
        assert kept.keys() == set(names) and f"blocks.{layer}.attn.hook_pattern" in names
        for name in names:
            close(kept[name], cache[name])
    assert not placed(model)


def test_the_matrix_has_every_architecture_that_is_supported():
    assert {shared_bridge(name).cfg.architecture for name in CONFIGS} == set(start.STARTABLE)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_blocks_below_are_not_computed(architecture):
    model = shared_bridge(architecture)
    resid = full(model)[1]["blocks.2.hook_resid_pre"]
    below = {part for block in model.blocks[:2] for part in block.modules() if part is not block}
    called = []
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, given: called.append(module))
    try:
        with torch.no_grad(), start_at(model, 2, resid):
            model(TOKENS)
    finally:
        handle.remove()
    assert not below & set(called)
    assert [called.count(block.original_component) for block in model.blocks] == [0, 0, 1]
    assert called.count(model.blocks[2].mlp) == 1 or architecture == "gpt2"


@pytest.mark.model
@pytest.mark.parametrize("side", PADDING)
def test_the_default_model_against_its_full_forward_pass(side):
    model, given, mask = load_model("smollm2-135m"), tokens(3, 7, vocabulary=40000), PADDING[side]
    names = [
        f"blocks.{i}.{name}" for i in (1, 17, 29) for name in ("hook_resid_pre", "hook_mlp_out", "attn.hook_pattern")
    ]
    logits, cache = full(model, given, mask, names_filter=names)
    for layer in (1, 17, 29):
        with start_at(model, layer, cache[f"blocks.{layer}.hook_resid_pre"]):
            again, kept = full(model, given, mask, names_filter=above(names, layer))
        close(again, logits)
        for name, value in kept.items():
            close(value, cache[name])
    assert not placed(model)


# Hooks and edits


@pytest.mark.parametrize("architecture", CONFIGS)
def test_edits_from_the_layer_on_do_what_they_do_in_the_full_forward_pass(architecture):
    model, mask = shared_bridge(architecture), PADDING["left"]
    base, cache = full(model, mask=mask)
    edits = [
        steer(model, RESID, DIRECTION, 2.0, positions=[3]),
        ablate(model, Z, to="zero", heads=1),
        ablate(model, "blocks.2.hook_mlp_out", to="zero", positions=[-1]),
        edit(model, "blocks.1.attn.hook_pattern", lambda value, hook: value.flip(1)),
    ]
    for one in edits:
        with one:
            expected = full(model, mask=mask, names_filter="ln_final.hook_in")
        with start_at(model, 1, cache[RESID]), one:
            found = full(model, mask=mask, names_filter="ln_final.hook_in")
        with one, start_at(model, 1, cache[RESID]):
            turned = full(model, mask=mask, names_filter="ln_final.hook_in")
        close(found[0], expected[0])
        close(found[1]["ln_final.hook_in"], expected[1]["ln_final.hook_in"])
        assert torch.equal(turned[0], found[0]) and not torch.allclose(found[0], base, atol=1e-3)


def test_hooks_of_the_layer_see_the_given_stream_and_may_write_into_it(llama, stream):
    before, seen = stream.clone(), []

    def half(value, hook):
        seen.append(value.clone())
        value *= 0.5
        return value

    expected = llama.run_with_hooks(TOKENS, fwd_hooks=[(RESID, lambda value, hook: value * 0.5)])
    for grad in (False, True):
        with torch.set_grad_enabled(grad), start_at(llama, 1, stream):
            for _ in range(2):
                close(llama.run_with_hooks(TOKENS, fwd_hooks=[(RESID, half)]), expected)
    assert all(torch.equal(one, before) for one in [*seen, stream]) and len(seen) == 4


def test_a_hook_of_torch_on_the_layer_sees_what_goes_into_it(llama, stream):
    seen = []
    handle = llama.blocks[1].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with start_at(llama, 1, stream):
        full(llama, names_filter=[])
    handle.remove()
    assert torch.equal(seen[0], stream)


def test_stored_activations_serve_as_streams(llama, stream):
    expected = full_logits(llama)
    with start_at(llama, 1, stream.numpy()):
        close(llama(TOKENS), expected)
    half = tiny_bridge("llama").to(torch.bfloat16)
    logits, cache = full(half)
    with start_at(half, 1, cache[RESID].float().numpy()), torch.no_grad():
        assert torch.equal(half(TOKENS), logits)
    with pytest.raises(HookbookError, match="holds NaN"), start_at(llama, 1, np.full(stream.shape, np.nan)):
        pass


def test_a_sweep_within_it_is_that_of_the_full_forward_pass(llama, stream):
    asked = {"site": "z", "over": ("layer", "head"), "layers": [1, 2], "metric": Metric.logit(5), "patch": "zero"}
    expected = patch_sweep(llama, TOKENS, **asked)
    with start_at(llama, 1, stream):
        sweep = patch_sweep(llama, TOKENS, **asked)
        with pytest.raises(HookbookError, match="enter `start_at` once for each"):  # another run's stream
            patch_sweep(llama, TOKENS, tokens(3, 7, seed=1), **asked | {"patch": "other"})
    assert sweep.how.startswith("plain: there are hooks on the model")
    close(torch.from_numpy(sweep.values), torch.from_numpy(expected.values), 1e-4)


# Gradients


def gradients(model, layer):
    weights = [weight for block in model.blocks[layer:] for weight in block.parameters()]
    return [weight.grad.clone() for weight in weights if weight.grad is not None]


@pytest.mark.parametrize("architecture", CONFIGS)
def test_gradients_flow_into_the_given_stream_as_in_the_full_forward_pass(architecture):
    model, seen = tiny_bridge(architecture), []

    def watch(value, hook):
        value.retain_grad()
        seen.append(value)

    model.run_with_hooks(TOKENS, fwd_hooks=[(RESID, watch)])[:, -1, 7].sum().backward()
    expected = gradients(model, 1)
    model.zero_grad()
    given = (seen[0].detach() / 2).requires_grad_()
    with start_at(model, 1, 2 * given):
        model(TOKENS)[:, -1, 7].sum().backward()
    close(given.grad, 2 * seen[0].grad)
    for one, other in zip(gradients(model, 1), expected, strict=True):
        close(one, other)
    assert seen[0].grad.abs().max() > 1e-3 and len(expected) > 10
    assert not any(weight.grad is not None and weight.grad.any() for weight in model.blocks[0].parameters())


def test_a_stream_without_gradients_still_has_them_at_its_hook():
    model, asked = tiny_bridge("llama"), {"names_filter": [RESID, Z], "incl_bwd": True, "return_type": "loss"}
    _, expected = model.run_with_cache(TOKENS, **asked)
    with start_at(model, 1, expected[RESID]):
        _, found = model.run_with_cache(TOKENS, **asked)
    for name in (f"{RESID}_grad", f"{Z}_grad"):
        close(found[name], expected[name])
        assert found[name].any()


# What it leaves behind, and nesting


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_errors_and_interrupts_leave_the_model_as_it_was(llama, stream, error):
    base = full_logits(llama)

    def fail(value, hook):
        raise error("stop")

    with pytest.raises(error, match="stop"):
        with start_at(llama, 1, stream), edit(llama, Z, fail):
            llama(TOKENS)
    with pytest.raises(error, match="outside"):
        with start_at(llama, 2, stream):
            raise error("outside")
    assert not placed(llama) and torch.equal(full_logits(llama), base)


@pytest.mark.parametrize("when", [1, 2])
def test_an_interrupt_while_it_is_entered_leaves_nothing(llama, stream, monkeypatch, when):
    register, calls = nn.Module.register_forward_pre_hook, []

    def interrupted(*args, **kwargs):
        register(*args, **kwargs)  # attached, but nobody has its handle
        calls.append(1)
        if len(calls) == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(nn.Module, "register_forward_pre_hook", interrupted)
    with pytest.raises(KeyboardInterrupt), start_at(llama, 2, stream):
        pass
    assert len(calls) == when and not placed(llama)


def test_an_interrupt_while_it_is_left_leaves_nothing(llama, stream, monkeypatch):
    detach, calls = start._Start.detach, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        detach(self)

    monkeypatch.setattr(start._Start, "detach", interrupted)
    with pytest.raises(KeyboardInterrupt), start_at(llama, 1, stream):
        assert placed(llama)
    assert len(calls) == 2 and not placed(llama)


def test_a_forward_function_that_was_replaced_comes_back(stream):
    model = tiny_bridge("llama")
    own = vars(model.blocks[0])["forward"] = lambda *args, **kwargs: BlockBridge.forward(
        model.blocks[0], *args, **kwargs
    )
    with start_at(model, 1, stream):
        model(TOKENS)
    assert vars(model.blocks[0])["forward"] is own


@pytest.mark.parametrize("layers", [(0, 0), (0, 2), (2, 0), (2, 1), (1, 2)])
def test_it_is_not_entered_twice(llama, stream, layers):
    with start_at(llama, layers[0], stream):
        with pytest.raises(HookbookError, match="is entered on this model already"):
            with start_at(llama, layers[1], stream):
                pass
        with start_at(shared_bridge("qwen2"), 1, stream):  # another model
            pass
        full(llama, names_filter=[])
    with start_at(llama, layers[1], stream):
        full(llama, names_filter=[])


@pytest.mark.parametrize("layer", [0, 1])
def test_the_network_is_not_what_its_digest_says(llama, stream, layer):
    assert indescribable(llama) == ""
    with start_at(llama, layer, stream):
        assert f"blocks.{layer}" in indescribable(llama)
    assert indescribable(llama) == ""


def test_without_a_forward_pass_nothing_happens(llama, stream):
    base = full_logits(llama)
    with start_at(llama, 1, stream):
        pass
    assert torch.equal(full_logits(llama), base)


def test_a_block_alone_is_called_as_ever():
    model = shared_bridge("gpt2")
    with torch.no_grad():
        stream = torch.randn(3, 7, WIDTH)
        expected = [model.blocks[layer](stream)[0] for layer in (1, 2)]
        with start_at(model, 1, torch.zeros_like(stream)):
            for _ in range(2):
                found = [model.blocks[layer](stream)[0] for layer in (1, 2)]
                assert all(map(torch.equal, found, expected))
                with pytest.raises(HookbookError, match="The blocks below 1 are not computed in `start_at`"):
                    model.blocks[0](stream)
                model(TOKENS)


# Where a pass ends


def test_passes_that_stop_early(llama, stream):
    for stop in (1, 2, -1):
        expected = llama(TOKENS, stop_at_layer=stop)
        with start_at(llama, 1, stream):
            close(llama(TOKENS, stop_at_layer=stop), expected)
            cached, cache = full(llama, names_filter=[RESID], stop_at_layer=stop)
            close(cached, expected)
            assert stop == 1 or torch.equal(cache[RESID], stream)
            with pytest.raises(HookbookError, match="stop_at_layer=0 lies below layer 1"):
                llama(TOKENS, stop_at_layer=0)
    assert full_logits(llama).shape == (3, 7, llama.cfg.d_vocab)


# What is refused


def hooked_with(attach):
    """A case of hooks: a function that runs the model with them."""

    def run(model):
        point = model.hook_dict["blocks.0.attn.hook_z"]
        handle = attach(model, point)
        try:
            model(TOKENS)
        finally:
            handle.remove()
            point.remove_hooks("both", including_permanent=True)

    return run


def keep(value, hook):
    return None


BELOW = {
    "blocks.0.attn.hook_z": hooked_with(lambda m, p: p.add_hook(keep).hook),
    "blocks.0.attn.hook_z (permanent)": hooked_with(lambda m, p: p.add_hook(keep, is_permanent=True).hook),
    "blocks.0.attn.hook_z (backward)": hooked_with(lambda m, p: p.add_hook(keep, dir="bwd").hook),
    "blocks.0.mlp": hooked_with(lambda m, p: m.blocks[0].mlp.register_forward_hook(lambda *_: None)),
    "blocks.0": hooked_with(lambda m, p: m.blocks[0].register_forward_pre_hook(lambda *_: None)),
    "blocks.0.hook_resid_post": lambda m: m.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.hook_resid_post", keep)]),
    "blocks.0.hook_out": lambda m: m.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.hook_out", keep)]),
    "hook_embed": lambda m: m.run_with_hooks(TOKENS, fwd_hooks=[("hook_embed", keep)]),
    "blocks.0.hook_mlp_out": lambda m: m.run_with_cache(TOKENS, names_filter=["blocks.0.hook_mlp_out", RESID]),
    "more": lambda m: m.run_with_cache(TOKENS),
}


@pytest.mark.parametrize("name", BELOW)
def test_hooks_below_the_layer_are_refused_by_name(llama, stream, name):
    with start_at(llama, 1, stream):
        with pytest.raises(
            HookbookError, match=f"The hook at .*{name.split()[0]}[ )].*before block 1 and has no effect"
        ):
            BELOW[name](llama)
        full(llama, names_filter=RESID)
    BELOW[name](llama)


def test_edits_below_the_layer_are_refused_wherever_they_are_entered(llama, stream):
    for name in ("blocks.0.hook_mlp_out", "blocks.0.attn.hook_z"):
        with pytest.raises(HookbookError, match=f"The hook at .*{name} "):
            with ablate(llama, name, to="zero"), start_at(llama, 1, stream):
                llama(TOKENS)
        with pytest.raises(HookbookError, match=f"The hook at .*{name} "):
            with start_at(llama, 1, stream), ablate(llama, name, to="zero"):
                llama(TOKENS)


def test_gpt2_has_positions_below_its_first_layer_too():
    model = shared_bridge("gpt2")
    with start_at(model, 0, torch.zeros(3, 7, WIDTH)):
        with pytest.raises(HookbookError, match="The hook at .*hook_pos_embed"):
            model.run_with_hooks(TOKENS, fwd_hooks=[("hook_pos_embed", keep)])


MISTAKES = {
    "layers 0 to 2: layer 3 is out of range": lambda m, s: start_at(m, 3, s),
    "layers 0 to 2: layer -1 is out of range": lambda m, s: start_at(m, -1, s),
    "`resid_pre` has the shape \\(3, 7, 31\\): give \\[batch, pos, 32\\]": lambda m, s: start_at(m, 1, s[..., :-1]),
    "`resid_pre` has the shape \\(7, 32\\): give": lambda m, s: start_at(m, 1, s[0]),
    "`resid_pre` is of torch.int64": lambda m, s: start_at(m, 1, s.long()),
    "`resid_pre` has the shape \\(2, 7, 32\\) and the tokens \\(3, 7\\)": lambda m, s: start_at(m, 1, s[:2]),
    "`resid_pre` has the shape \\(1, 7, 32\\) and the tokens \\(3, 7\\)": lambda m, s: start_at(m, 1, s[:1]),
    "`resid_pre` has the shape \\(3, 6, 32\\) and the tokens \\(3, 7\\)": lambda m, s: start_at(m, 1, s[:, 1:]),
    "knows the blocks of GPT2LMHeadModel, .* and not those of Toy": lambda m, s: start_at(Toy(), 0, s),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_are_sentences(llama, stream, sentence):
    with pytest.raises(HookbookError, match=sentence) as caught:
        with MISTAKES[sentence](llama, stream):
            llama(TOKENS)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_an_architecture_that_is_not_known_is_refused(llama, stream, monkeypatch):
    monkeypatch.setattr(llama.cfg, "architecture", "Gemma3nForCausalLM")  # whose blocks share keys and values
    with pytest.raises(HookbookError, match="not those of Gemma3nForCausalLM: run the full forward pass"):
        with start_at(llama, 1, stream):
            pass


def test_blocks_that_hand_on_something_else_are_refused(llama, stream, monkeypatch):
    call = BlockBridge.__call__
    monkeypatch.setattr(BlockBridge, "__call__", lambda self, *args, **kwargs: call(self, *args, **kwargs)[0])
    for layer in (1, 2):
        with pytest.raises(HookbookError, match="This version of transformers passes something other"):
            with start_at(llama, layer, stream):
                llama(TOKENS)


def test_a_stream_belongs_to_one_run(llama, stream):
    given = TOKENS.clone()
    with start_at(llama, 1, stream), torch.no_grad():
        base = llama(given)
        assert torch.equal(llama(given, attention_mask=torch.ones_like(given)), base)
        for run in (
            lambda: llama(tokens(3, 7, seed=1)),
            lambda: llama(given, attention_mask=LEFT.long()),
            lambda: llama(given.fill_(5)),  # in place
        ):
            with pytest.raises(HookbookError, match="so enter `start_at` once for each"):
                run()
        assert torch.equal(llama(TOKENS), base)
    with start_at(llama, 1, stream), torch.no_grad():
        mask = LEFT.long()
        padded_run = llama(TOKENS, attention_mask=LEFT)
        assert torch.equal(llama(TOKENS, attention_mask=mask), padded_run)
        for other in (None, mask.index_fill_(1, torch.tensor([2]), 1)):  # in place
            with pytest.raises(HookbookError, match="attention mask"):
                llama(TOKENS, attention_mask=other)


def test_caches_of_keys_and_values_are_refused(llama, stream):
    _, cache = llama(TOKENS, return_type="logits_and_cache", use_cache=True)
    with start_at(llama, 1, stream), torch.no_grad():
        for run in (
            lambda: llama(TOKENS, use_cache=True),
            lambda: llama(TOKENS, use_past_kv_cache=True),
            lambda: llama(TOKENS, past_key_values=cache),
            lambda: llama(TOKENS, cache=cache),
            lambda: llama.original_model(TOKENS, past_key_values=cache),
            lambda: llama.generate(TOKENS, max_new_tokens=2, verbose=False),
        ):
            with pytest.raises(HookbookError, match="A key-value cache needs the blocks that `start_at` leaves out"):
                run()
        assert llama(TOKENS, return_type="logits_and_cache")[1] is None  # no cache rather than one with holes
        with pytest.raises(HookbookError, match="pass the tokens, without start_at_layer"):
            llama(stream, start_at_layer=1)
