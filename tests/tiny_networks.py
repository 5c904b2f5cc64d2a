"""Small random networks with hooks for tests: bridges of seven architectures, and one that is no transformer."""

import copy
import functools
import tempfile
from pathlib import Path

import torch
import transformers
from tiny_models import make_gguf
from torch import nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from helpers.dequantise import convert
from helpers.loading import expand

VOCABULARY = 263  # of the tokenizer below
WIDTH, HEADS, KV_HEADS, LAYERS = 32, 4, 2, 3
_SIZES = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH, "intermediate_size": 48}
_SIZES |= {"vocab_size": VOCABULARY}
_GROUPED = _SIZES | {"num_key_value_heads": KV_HEADS, "head_dim": WIDTH // HEADS}
CONFIGS = {
    "gpt2": transformers.GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=64, vocab_size=VOCABULARY),
    "neox": transformers.GPTNeoXConfig(**_SIZES, rotary_pct=0.5),  # attention and MLP in parallel
    "llama": transformers.LlamaConfig(**_GROUPED),
    "mistral": transformers.MistralConfig(**_GROUPED, sliding_window=3),
    "gemma2": transformers.Gemma2Config(
        **_GROUPED, sliding_window=3, query_pre_attn_scalar=16, attn_logit_softcapping=0.5
    ),
    "qwen2": transformers.Qwen2Config(**_SIZES, num_key_value_heads=KV_HEADS),
    "phi": transformers.PhiConfig(**_SIZES),  # sweeps have no shortcut for it
}


@functools.cache
def _tokenizer() -> transformers.PreTrainedTokenizerBase:
    with tempfile.TemporaryDirectory() as folder:
        make_gguf(Path(folder) / "tiny.gguf", padding=0)
        convert(Path(folder) / "tiny.gguf", Path(folder))
        return transformers.AutoTokenizer.from_pretrained(folder, add_bos_token=True)


def tiny_bridge(architecture: str, *, folded: bool = False, expanded: bool = False, seed: int = 0) -> TransformerBridge:
    """A model whose every part matters to its logits; `expanded` gives each query head its own keys and values."""
    config = copy.deepcopy(CONFIGS[architecture])  # `expand` writes into it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases too, which start as ones and zeros
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter if parameter.ndim == 1 else 0))
    if expanded:
        expand(model, architecture)
    bridge = build_bridge_from_module(model, type(model).__name__, hf_config=model.config, tokenizer=_tokenizer())
    bridge.cfg.model_name = f"tiny-{architecture}"
    if folded:
        bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


@functools.cache
def shared_bridge(architecture: str, folded: bool = False) -> TransformerBridge:
    """One for all tests, to be left as it is."""
    return tiny_bridge(architecture, folded=folded)


def tokens(prompts: int = 3, positions: int = 6, seed: int = 0, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Token ids without BOS, EOS and padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary, (prompts, positions), generator=generator)


class Toy(HookedRootModule):
    """Two linear layers with a hook between them."""

    def __init__(self, width: int = 5, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, 2)
        self.hook_hidden, self.hook_out = HookPoint(), HookPoint()
        self.setup()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hook_out(self.second(self.hook_hidden(self.first(x).relu())))
