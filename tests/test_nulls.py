"""Models that learned nothing, or not quite the same: what each prefix keeps of a model and what it changes."""

from unittest import mock

import pytest
import torch
import transformers
from tiny_models import make_gguf
from transformers import AutoModelForCausalLM

from helpers import loading, models, null_weights, nulls
from helpers.dequantise import convert
from helpers.errors import HookbookError
from helpers.models import describe, load_model, preload_model

PREFIXES = list(nulls.NULLS)
SIZES = {"vocab_size": 300, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
WIDE = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6}
KINDS = {
    "Llama": None,  # tied, grouped queries, as the default model
    "GPT2": {"n_embd": 48, "n_layer": 2, "n_head": 6},  # tied, position embeddings, biases, matrices the other way
    "GPTNeoX": WIDE,  # an unembedding of its own
    "Gemma2": WIDE | {"num_key_value_heads": 2, "head_dim": 16},
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    """A folder that holds a small model with weights that no initialisation draws."""
    folder = tmp_path_factory.mktemp(request.param)
    make_gguf(folder / "tiny.gguf", padding=0)
    convert(folder / "tiny.gguf", folder)
    if sizes := KINDS[request.param]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(getattr(transformers, f"{request.param}Config")(**SIZES, **sizes))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    make_gguf(folder / "tiny.gguf", padding=0)
    convert(folder / "tiny.gguf", folder)
    return folder


def network(name, **arguments):
    """The transformers model, as it is before a bridge divides joint weights of queries, keys and values."""
    with mock.patch.object(loading.TransformerBridge, "boot_transformers", lambda *_, hf_model, **__: hf_model):
        return load_model(str(name), processing="raw", **arguments)


def weights(name, **arguments):
    """Each weight by its name, tied ones once, as float32."""
    return {key: weight.detach().float() for key, weight in network(name, **arguments).named_parameters()}


def in_block(name):
    return any(f".{number}." in f".{name}." for number in range(2))


def equal(one, other):
    return {name: torch.equal(one[name], other[name]) for name in one}


# what each one keeps


def test_shuffled_keeps_the_entries_of_each_tensor_and_no_place(folder):
    trained, shuffled = weights(folder), weights(f"shuffled:{folder}")
    assert trained.keys() == shuffled.keys()
    for name, weight in trained.items():
        assert torch.equal(weight.flatten().sort().values, shuffled[name].flatten().sort().values), name
    assert not any(equal(trained, shuffled).values())


def test_fresh_blocks_keep_what_lies_outside_the_blocks(folder):
    trained, fresh, random = weights(folder), weights(f"fresh-blocks:{folder}"), weights(f"random:{folder}")
    assert equal(trained, fresh) == {name: not in_block(name) for name in trained}
    assert sum(map(in_block, trained)) > len(trained) / 2
    assert all(torch.equal(fresh[name], random[name]) for name in trained if in_block(name))


def test_the_second_gain_triples_the_matrices_of_the_blocks_alone(folder):
    random, large = weights(f"random:{folder}"), weights(f"random-x3:{folder}")
    for name, weight in random.items():
        gain = 3 if in_block(name) and weight.ndim > 1 else 1
        assert torch.equal(large[name], weight * gain), name
    assert any(in_block(name) and weight.ndim > 1 for name, weight in random.items())


def test_jitter_moves_the_entries_of_a_matrix_by_up_to_half_a_step_of_its_32(folder):
    trained, moved = weights(folder), weights(f"jitter:{folder}")
    for name, weight in trained.items():
        if weight.ndim == 1:
            assert torch.equal(weight, moved[name]), name
            continue
        moves = []
        for part, other in zip(weight.split(32, -1), moved[name].split(32, -1), strict=True):
            step = (part.amax(-1, keepdim=True) - part.amin(-1, keepdim=True)) / 15
            step = step if in_block(name) else part.abs().amax(-1, keepdim=True) / 127
            moves.append(((other - part) / step).flatten())
        moves = torch.cat(moves)
        assert moves.abs().max() < 0.501 and abs(moves.mean()) < 0.05, name
        assert 0.2 < moves.square().mean().sqrt() < 0.4, name  # evenly spread: .29


@pytest.mark.parametrize(("kind", "half"), [("Q4_1", null_weights.half_step), ("Q8_0", null_weights.half_fine_step)])
def test_half_a_step_is_the_most_that_quantisation_hides(kind, half):
    import gguf

    before = torch.randn(200, 32, generator=torch.Generator().manual_seed(0))
    kind = gguf.GGMLQuantizationType[kind]
    after = torch.tensor(gguf.dequantize(gguf.quantize(before.numpy(), kind), kind))
    hidden = (before - after).abs().amax(-1, keepdim=True) / half(after)
    assert hidden.max() < 1.15 and hidden.median() > 0.9  # scales are stored in half precision, and so rounded too


@pytest.mark.model
def test_the_default_models_weights_lie_on_the_steps_that_jitter_takes_for_theirs():
    trained = weights("smollm2-135m")
    for name in ("model.layers.7.mlp.up_proj", "model.layers.20.self_attn.o_proj", "model.embed_tokens"):
        part = trained[f"{name}.weight"][:300, 64:96]
        half = null_weights.half_step(part) if "layers" in name else null_weights.half_fine_step(part)
        least = part.amin(-1, keepdim=True) if "layers" in name else 0
        steps = (part - least) / (2 * half)
        assert (steps - steps.round()).abs().max() < 0.02, name


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_is_tied_stays_tied_and_buffers_are_left_alone(folder, prefix):
    plain, altered = network(folder), network(f"{prefix}:{folder}")
    pairs = [(model.get_input_embeddings().weight, model.get_output_embeddings().weight) for model in (plain, altered)]
    assert (pairs[0][0] is pairs[0][1]) == (pairs[1][0] is pairs[1][1])
    buffers = [dict(model.named_buffers()) for model in (plain, altered)]
    assert buffers[0].keys() == buffers[1].keys() and all(equal(*buffers).values())


# what all obey


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_seed_means_one_model_in_every_dtype_and_the_generators_are_left_alone(tiny, prefix):
    name, state = f"{prefix}:{tiny}", torch.random.get_rng_state()
    first = weights(name, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(1)
    assert all(equal(first, weights(name, seed=1)).values())
    assert not all(equal(first, weights(name, seed=2)).values())
    narrow = weights(name, seed=1, dtype="bfloat16")
    assert all(torch.equal(first[key].bfloat16().float(), narrow[key]) for key in first)
    assert network(name, dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("prefix", PREFIXES)
def test_folded_and_expanded_they_compute_the_same(folder, prefix):
    name, tokens = f"{prefix}:{folder}", torch.arange(3, 30)[None]
    with torch.no_grad():
        raw = load_model(name, processing="raw", seed=3)(tokens).log_softmax(-1)
        folded = load_model(name, seed=3)
        wide = load_model(name, processing="raw", expand_kv_heads=True, seed=3)(tokens).log_softmax(-1)
        torch.testing.assert_close(folded(tokens).log_softmax(-1), raw, atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(wide, raw, atol=1e-3, rtol=1e-3)
        assert (raw - load_model(str(folder), processing="raw")(tokens).log_softmax(-1)).abs().max() > 1e-3
    assert not folded.training


def test_names_say_what_it_is_and_no_path(tiny):
    described = {prefix: describe(load_model(f"{prefix}:{tiny}", processing="raw")) for prefix in PREFIXES}
    for prefix, line in described.items():
        assert line.startswith(f"{prefix}:{tiny.name} ({nulls.NULLS[prefix].meaning}): 2 layers") and "\n" not in line
        assert str(tiny) not in line
    assert describe(load_model(str(tiny), processing="raw")).startswith(f"{tiny.name}: 2 layers")


def test_provenance_tells_them_apart_and_needs_no_fetch(tiny, monkeypatch, tmp_path_factory):
    names = [str(tiny), *(f"{prefix}:{tiny}" for prefix in PREFIXES)]
    found = [models.model_sha256(name) for name in names]
    assert len(set(found)) == len(names) and all(one.endswith(found[0]) for one in found)
    assert {models.fetch(name) for name in names} == {tiny}
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path_factory.mktemp("empty")))
    pin = models.model_sha256("smollm2-135m")
    assert [models.model_sha256(f"{prefix}:smollm2-135m") for prefix in PREFIXES] == [f"{p}:{pin}" for p in PREFIXES]


def test_only_those_made_of_trained_weights_need_them(tiny, tmp_path):
    for file in tiny.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    for prefix, null in nulls.NULLS.items():
        if null.trained:
            with pytest.raises(HookbookError, match="no complete safetensors"):
                models.fetch(f"{prefix}:{tmp_path}")
        else:
            assert models.fetch(f"{prefix}:{tmp_path}") == tmp_path
            load_model(f"{prefix}:{tmp_path}", processing="raw")


def test_of_the_hub_trained_weights_are_asked_for_once_and_only_where_needed(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        "helpers.hub.hub_folder", lambda name, revision, **how: (asked.append((name, how["weights"])), tmp_path)[1]
    )
    for prefix in PREFIXES:
        models.fetch(f"{prefix}:owner/model")
    assert asked == [("owner/model", null.trained) for null in nulls.NULLS.values()]


def test_a_warm_process_hands_out_the_one_that_was_asked_for(tiny):
    loading._held.clear()
    for prefix in ("shuffled", "jitter"):
        preload_model(f"{prefix}:{tiny}", processing="raw")
    held = list(loading._held.values())
    assert load_model(f"fresh-blocks:{tiny}", processing="raw") not in held
    assert load_model(str(tiny), processing="raw") not in held
    assert load_model(f"jitter:{tiny}", processing="raw") is held[1]
    assert load_model(f"shuffled:{tiny}", processing="raw", seed=1) is not held[0]
    assert load_model(f"shuffled:{tiny}", processing="raw") is held[0] and not loading._held


def test_prefixes_are_read_off_a_name():
    assert nulls.split("gpt2") == (None, "gpt2") and nulls.split("C:\\models\\x") == (None, "C:\\models\\x")
    assert nulls.split("shuffled:owner/model") == (nulls.NULLS["shuffled"], "owner/model")
    assert nulls.split("random-x3:/a/b")[1] == "/a/b"
    with pytest.raises(HookbookError, match="two prefixes: leave out jitter: or random:"):
        nulls.split("jitter:random:gpt2")
    assert models.shown_name("jitter:/a/b") == "jitter:b" and models.shown_name("random:owner/b") == "random:owner/b"


def test_blocks_that_cannot_be_told_apart_are_a_sentence(tiny):
    model = AutoModelForCausalLM.from_pretrained(tiny)
    model.config.num_hidden_layers = 7
    with pytest.raises(HookbookError, match="type llama keeps its blocks.*use random: or shuffled:"):
        null_weights.blocks(model)
