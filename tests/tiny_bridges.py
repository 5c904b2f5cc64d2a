"""Small language models with random weights, one of each architecture that sweeps know and one that they do not."""

import functools
import tempfile
from pathlib import Path

import torch
import transformers
from tiny_models import make_gguf
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from helpers.dequantise import convert

VOCABULARY = 263  # of the tokenizer below
_SIZES = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 48}
_GROUPED = _SIZES | {"num_key_value_heads": 2, "head_dim": 8}
CONFIGS = {
    "gpt2": transformers.GPT2Config(n_layer=3, n_head=4, n_embd=32, n_positions=64, vocab_size=VOCABULARY),
    "neox": transformers.GPTNeoXConfig(**_SIZES, rotary_pct=0.5, vocab_size=VOCABULARY),
    "llama": transformers.LlamaConfig(**_GROUPED, vocab_size=VOCABULARY),
    "mistral": transformers.MistralConfig(**_GROUPED, sliding_window=3, vocab_size=VOCABULARY),
    "gemma2": transformers.Gemma2Config(
        **_GROUPED, sliding_window=3, query_pre_attn_scalar=16, attn_logit_softcapping=0.5, vocab_size=VOCABULARY
    ),
    "qwen2": transformers.Qwen2Config(**_SIZES, num_key_value_heads=2, vocab_size=VOCABULARY),
    "phi": transformers.PhiConfig(**_SIZES, vocab_size=VOCABULARY),  # no shortcut
}


@functools.cache
def _tokenizer() -> transformers.PreTrainedTokenizerBase:
    with tempfile.TemporaryDirectory() as folder:
        make_gguf(Path(folder) / "tiny.gguf", padding=0)
        convert(Path(folder) / "tiny.gguf", Path(folder))
        return transformers.AutoTokenizer.from_pretrained(folder, add_bos_token=True)


@functools.cache
def bridge(architecture: str, folded: bool = False) -> TransformerBridge:
    """A model whose every part matters to its logits; shared between tests, so to be left as it is."""
    config = CONFIGS[architecture]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases too, which start as ones and zeros
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter if parameter.ndim == 1 else 0))
    made = build_bridge_from_module(model, type(model).__name__, hf_config=model.config, tokenizer=_tokenizer())
    made.cfg.model_name = f"tiny-{architecture}"
    if folded:
        made.enable_compatibility_mode(disable_warnings=True)
    return made
