"""Small random networks with hooks for tests: bridges of three architectures, and one that is no transformer."""

import torch
from torch import nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from helpers.loading import expand

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS = 50, 32, 4, 2, 2


def _transformer(architecture: str) -> PreTrainedModel:
    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH, "vocab_size": VOCABULARY}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 32, "initializer_range": 0.2}
    if architecture == "gpt2":
        config = GPT2Config(
            n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=32, vocab_size=VOCABULARY, initializer_range=0.2
        )
        return GPT2LMHeadModel(config)
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=KV_HEADS))
    return GPTNeoXForCausalLM(GPTNeoXConfig(**sizes))


def tiny_bridge(architecture: str, *, folded: bool = False, expanded: bool = False, seed: int = 0) -> TransformerBridge:
    """A bridge of `gpt2`, `llama` (grouped-query) or `neox` (parallel attention) with two layers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _transformer(architecture).eval()
    if expanded:
        expand(model, architecture)
    bridge = build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    if folded:
        bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


def tokens(prompts: int = 3, positions: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (prompts, positions), generator=generator)


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
