import json
import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import make_gguf
from transformers import AutoModelForCausalLM

from helpers import loading, models
from helpers.dequantise import convert
from helpers.errors import HookbookError
from helpers.models import load_model

GIFT = "When Mary and John went to the store, John gave a drink to"
CAPITAL = "The capital of France is"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder that holds a small grouped-query Llama with random weights."""
    folder = tmp_path_factory.mktemp("tiny")
    make_gguf(folder / "tiny.gguf", padding=0)
    convert(folder / "tiny.gguf", folder)
    return folder


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of the small model's folder, for a test that damages it."""
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture(scope="module")
def raw():
    return load_model(processing="raw")


@pytest.fixture(scope="module")
def folded():
    return load_model()


@torch.no_grad()
def logits(model, text):
    return model(model.to_tokens(text))[0]


def following(model, text):
    """The probability of every next token."""
    return logits(model, text)[-1].softmax(-1)


# The default model is the real thing


@pytest.mark.model
def test_mary_receives_the_drink(folded):
    (mary,) = folded.to_tokens(" Mary", prepend_bos=False)[0]
    assert folded.to_tokens(GIFT)[0, 0] == folded.tokenizer.bos_token_id == 1
    assert following(folded, GIFT)[mary] > 0.8
    assert following(folded, GIFT).argmax() == mary


@pytest.mark.model
def test_paris_comes_first(raw):
    assert raw.tokenizer.decode(following(raw, CAPITAL).argmax()) == " Paris"


@pytest.mark.model
def test_raw_logits_are_those_of_plain_transformers(raw):
    plain = AutoModelForCausalLM.from_pretrained(models.fetch("smollm2-135m"))
    for text in (GIFT, CAPITAL):
        with torch.no_grad():
            expected = plain(raw.to_tokens(text)).logits[0]
        torch.testing.assert_close(logits(raw, text), expected, atol=1e-3, rtol=0)


@pytest.mark.model
def test_folding_keeps_log_probabilities_and_the_residual_stream(raw, folded):
    plain, shifted = logits(raw, GIFT), logits(folded, GIFT)
    torch.testing.assert_close(shifted.log_softmax(-1), plain.log_softmax(-1), atol=1e-3, rtol=0)
    assert (shifted - plain).abs().max() > 1  # it was done: the unembedding is centred
    assert shifted.mean(-1).abs().max() < 1e-3
    name = "blocks.20.hook_resid_pre"
    stream = [m.run_with_cache(m.to_tokens(GIFT), names_filter=name)[1][name] for m in (raw, folded)]
    torch.testing.assert_close(stream[0], stream[1], atol=1e-2, rtol=1e-4)


@pytest.mark.model
def test_the_usual_hook_names_and_shapes_are_there_in_both_processings(raw, folded):
    pos, width, heads, groups, head, mlp = 6, 576, 9, 3, 64, 1536
    shapes = {
        "hook_embed": (pos, width),
        "blocks.7.hook_resid_pre": (pos, width),
        "blocks.7.hook_resid_mid": (pos, width),
        "blocks.7.hook_resid_post": (pos, width),
        "blocks.7.hook_attn_out": (pos, width),
        "blocks.7.hook_mlp_out": (pos, width),
        "blocks.7.attn.hook_q": (pos, heads, head),
        "blocks.7.attn.hook_k": (pos, groups, head),
        "blocks.7.attn.hook_v": (pos, groups, head),
        "blocks.7.attn.hook_z": (pos, heads, head),
        "blocks.7.attn.hook_pattern": (heads, pos, pos),
        "blocks.7.attn.hook_attn_scores": (heads, pos, pos),
        "blocks.7.mlp.hook_pre": (pos, mlp),
        "blocks.7.mlp.hook_post": (pos, mlp),
        "ln_final.hook_normalized": (pos, width),
    }
    for model in (raw, folded):
        with torch.no_grad():
            cache = model.run_with_cache(model.to_tokens(CAPITAL))[1]
        assert {name: tuple(cache[name].shape) for name in shapes} == {n: (1, *s) for n, s in shapes.items()}
        edited = model.run_with_hooks(
            model.to_tokens(CAPITAL), fwd_hooks=[("blocks.7.hook_resid_pre", lambda value, hook: value * 0)]
        )
        assert (edited[0] - logits(model, CAPITAL)).abs().max() > 1


@pytest.mark.model
def test_no_model_is_shared(raw):
    before = logits(raw, CAPITAL)
    other = load_model(processing="raw")
    with torch.no_grad():
        other.embed.weight.mul_(2)
    other.enable_compatibility_mode(disable_warnings=True)
    torch.testing.assert_close(logits(raw, CAPITAL), before, atol=0, rtol=0)
    assert torch.equal(load_model(processing="raw").embed.weight, raw.embed.weight)
    assert (logits(other, CAPITAL) - before).abs().max() > 1


@pytest.mark.model
def test_expanded_heads_compute_the_same_function(raw):
    wide = load_model(processing="raw", expand_kv_heads=True)
    torch.testing.assert_close(logits(wide, GIFT), logits(raw, GIFT), atol=1e-4, rtol=0)
    cache = wide.run_with_cache(wide.to_tokens(CAPITAL))[1]
    narrow = raw.run_with_cache(raw.to_tokens(CAPITAL))[1]
    for name in ("k", "v"):
        keys = cache[f"blocks.3.attn.hook_{name}"]
        torch.testing.assert_close(
            keys, narrow[f"blocks.3.attn.hook_{name}"].repeat_interleave(3, 2), atol=1e-3, rtol=0
        )
    assert wide.W_K.shape == wide.W_Q.shape == (30, 9, 576, 64)


@pytest.mark.model
def test_bos_and_chat_template_survive(folded):
    messages = [{"role": "user", "content": "Hi"}]
    text = folded.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>system\n") and text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    tokens = folded.to_tokens(text, prepend_bos=False)  # the template brings its own first token
    assert tokens[0, 0] == 1 and (tokens == 1).sum() == 3
    assert folded.tokenizer.decode(folded.generate(tokens, max_new_tokens=3, do_sample=False, verbose=False)[0, -3:])
    assert folded.to_str_tokens("In 1987 , room  12") == [
        *["<|im_start|>", "In", " ", "1", "9", "8", "7", " ,", " room", "  ", "1", "2"]
    ]


@pytest.mark.model
def test_the_untrained_model_is_of_the_same_make_and_knows_nothing(raw):
    untrained = load_model("random:smollm2-135m", processing="raw")
    assert [p.shape for p in untrained.parameters()] == [p.shape for p in raw.parameters()]
    assert (untrained.embed.weight - raw.embed.weight).abs().max() > 0.1
    assert following(untrained, GIFT).max() < 0.01
    assert torch.equal(untrained.to_tokens(GIFT), raw.to_tokens(GIFT))


ALONE = """
import gc, re, socket, sys
def refuse(*arguments, **_):
    print("NETWORK", arguments[-1], flush=True)
    raise OSError("no network in this test")
socket.socket.connect = socket.getaddrinfo = refuse
from helpers.models import load_model
for processing in ("raw", "folded"):
    model = load_model(processing=processing)
    model.to_tokens("a")
    del model
    gc.collect()  # a bridge refers to itself
if sys.platform == "linux":  # not getrusage: its peak counts the parent's memory at the fork
    print("PEAK", re.search("VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.model
def test_loading_asks_no_network_prints_nothing_and_stays_below_the_memory_it_promises():
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines() or ["PEAK 0"]
    assert int(line.removeprefix("PEAK ")) * 1024 < 2.8e9  # bytes; 2.6e9 measured


@pytest.mark.model
def test_gradients_reach_activations(raw):
    from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient

    names = ["blocks.5.hook_resid_pre", "blocks.9.attn.hook_z"]
    found = cache_activation_and_gradient(
        raw, raw.to_tokens(CAPITAL), lambda out: out[0, -1, 100], names_filter=lambda name: name in names
    )
    assert all(found.gradients[name].abs().max() > 0 for name in names)
    assert all(parameter.grad is None for parameter in raw.parameters())


# What can go wrong, on a small model


def test_a_local_folder_loads_and_its_path_stays_out_of_the_model(tiny):
    model = load_model(str(tiny))
    assert model.cfg.model_name == tiny.name
    plain = AutoModelForCausalLM.from_pretrained(tiny)
    tokens = model.to_tokens("the cat")
    with torch.no_grad():
        expected = plain(tokens).logits.log_softmax(-1)
        torch.testing.assert_close(model(tokens).log_softmax(-1), expected, atol=1e-4, rtol=0)
    assert not model.training


SIZES = {"vocab_size": 300, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
WIDE = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6}


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("GPT2", {"n_embd": 48, "n_layer": 2, "n_head": 6}),
        ("GPTNeoX", WIDE),
        ("Llama", WIDE | {"num_key_value_heads": 2}),
        ("Qwen2", WIDE | {"num_key_value_heads": 2}),
        ("Gemma2", WIDE | {"num_key_value_heads": 2, "head_dim": 16}),
    ],
)
def test_the_architectures_of_the_registry_keep_their_function(copy, kind, sizes):
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**SIZES, **sizes)).eval()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)  # norms and biases too, which start at one and zero
    plain.save_pretrained(copy)
    tokens = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = plain(tokens).logits
        raw, folded = (load_model(str(copy), processing=processing)(tokens) for processing in ("raw", "folded"))
    assert expected.std() > 0.5
    torch.testing.assert_close(raw, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(folded.log_softmax(-1), raw.log_softmax(-1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("processing", ["raw", "folded"])
def test_narrow_types(tiny, dtype, processing):
    model = load_model(str(tiny), dtype=dtype, processing=processing)
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    reference = load_model(str(tiny), processing=processing)
    difference = (logits(model, "the cat").float() - logits(reference, "the cat")).abs().max()
    assert 0 < difference < 0.5


def test_untrained_weights_are_seeded_alike_in_every_dtype_and_leave_the_generators_alone(tiny):
    def weights(**arguments):
        return [p.float() for p in load_model(f"random:{tiny}", processing="raw", **arguments).parameters()]

    state = torch.random.get_rng_state()
    first = weights(seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(1)
    assert all(torch.equal(a, b) for a, b in zip(first, weights(seed=1), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, weights(seed=2), strict=True))
    assert all(
        torch.equal(a.bfloat16(), b.bfloat16()) for a, b in zip(first, weights(seed=1, dtype="bfloat16"), strict=True)
    )
    assert not load_model(f"random:{tiny}").training


@pytest.mark.parametrize(
    ("kind", "extra"),
    [("Qwen2", {}), ("Gemma2", {"head_dim": 16}), ("Qwen3", {"head_dim": 32}), ("Mistral", {"sliding_window": 4})],
)
def test_expanding_heads_in_other_architectures(kind, extra):
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        vocab_size=100,
        num_attention_heads=6,
        num_key_value_heads=2,
        **extra,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
        tokens = torch.arange(20)[None]
        before = model(tokens).logits
        loading.expand(model, kind)
        torch.testing.assert_close(model(tokens).logits, before, atol=1e-4, rtol=1e-4)
    assert model.config.num_key_value_heads == 6


def test_expanding_heads_kept_in_another_layout_is_refused_not_skipped():
    config = transformers.Phi3Config(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=40, pad_token_id=0
    )
    with pytest.raises(HookbookError, match="does not know how phi3"):
        loading.expand(AutoModelForCausalLM.from_config(config), "phi3")


def test_expanding_plain_multi_head_attention_changes_nothing():
    model = AutoModelForCausalLM.from_config(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=10))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loading.expand(model, "gpt2")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device": "gpu"}, "device 'gpu' is not one of cpu, cuda, mps, auto"),
        ({"dtype": "float64"}, "dtype 'float64' is not one of"),
        ({"processing": "fold"}, "processing 'fold' is not one of folded, raw"),
        ({"revision": "main"}, "has no revisions"),
        ({"name": "./no/such/folder"}, "There is no folder"),
    ],
)
def test_mistakes_in_the_arguments(tiny, arguments, sentence):
    with pytest.raises(HookbookError, match=sentence):
        load_model(**({"name": str(tiny)} | arguments))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(tiny):
    with pytest.raises(HookbookError, match='use device="cpu"'):
        load_model(str(tiny), device="cuda")
    assert load_model(str(tiny), device="auto").cfg.device == "cpu"


def test_too_little_memory_is_said_before_loading(tiny, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    with pytest.raises(HookbookError, match=r'GB are free: use processing="raw" or a smaller model'):
        load_model(str(tiny))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000))
    with pytest.raises(HookbookError, match=r'use dtype="bfloat16" or a smaller model'):
        load_model(str(tiny), processing="raw")


def test_a_checkpoint_with_a_gap_is_refused_and_not_filled_with_noise(copy):
    tensors = load_file(copy / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HookbookError, match="incomplete.*up_proj"):
        load_model(str(copy))


def test_damaged_safetensors(copy):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(HookbookError, match="cannot be read"):
        load_model(str(copy))


def test_code_in_the_folder_is_never_run(copy):
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "homemade", "architectures": ["HomemadeLM"], "auto_map": {"AutoConfig": "code.Config"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "code.py").write_text(f"open({str(copy / 'ran')!r}, 'w')\n")
    with pytest.raises(HookbookError, match="without running code"):
        load_model(str(copy))
    assert not (copy / "ran").exists()


def test_pickles_are_refused(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(HookbookError, match="only as pickles"):
        load_model(str(copy))


def test_a_model_that_is_no_language_model_is_refused(copy):
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    transformers.ViTForImageClassification(config).save_pretrained(copy)
    with pytest.raises(HookbookError, match="not a language model"):
        load_model(str(copy))


# The registry and provenance


def test_identities(tiny, copy, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path_factory.mktemp("empty")))
    pin = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert models.model_sha256("smollm2-135m") == pin
    assert models.model_sha256("random:smollm2-135m") == f"random:{pin}"
    assert models.model_sha256(str(tiny)) == models.model_sha256(str(copy))
    tensors = load_file(copy / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, copy / "model.safetensors")
    assert models.model_sha256(str(tiny)) != models.model_sha256(str(copy))
    monkeypatch.setattr("helpers.hub.hf.try_to_load_from_cache", lambda *_, **__: None)
    with pytest.raises(HookbookError, match="hookbook models fetch gpt2"):
        models.model_sha256("gpt2")


def test_the_registry(monkeypatch, tmp_path):
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path))
    known = {model.name: model for model in models.MODELS}
    assert len(known) == len(models.MODELS)
    assert known["smollm2-135m"].source == "wheel" and not known["smollm2-135m"].cached
    assert known["google/gemma-2-2b"].gated and not known["gpt2"].gated
    assert all(model.licence and model.size_mb > 0 and model.cached in (True, False) for model in models.MODELS)
    assert all(
        name == "smollm2-135m" or not model.cached or known[name].source == "hub" for name, model in known.items()
    )


def test_a_look_at_the_registry_imports_no_torch():
    code = "import sys, helpers.models; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
