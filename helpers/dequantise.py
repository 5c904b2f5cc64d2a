"""A Llama-type GGUF file becomes float32 safetensors with config and tokenizer, without any code from its package.

float32 holds every dequantised value (a half-precision scale times a small integer, plus a half-precision offset);
the narrower types would round them.
"""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert(gguf_file: Path, folder: Path) -> None:
    """Write model.safetensors (float32), config.json and the tokenizer's files into `folder`."""
    reader = gguf.GGUFReader(gguf_file)
    config = _config(reader)
    save_file(dict(_weights(reader, config)), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes for the owner only; a class may share a cache
    config.save_pretrained(folder)
    _tokenizer(reader).save_pretrained(folder)


def _field(reader: gguf.GGUFReader, key: str):
    return reader.fields[key].contents()


def _config(reader: gguf.GGUFReader) -> LlamaConfig:
    def llama(key: str):
        return _field(reader, f"llama.{key}")

    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    special = {
        f"{ours}_token_id": _field(reader, f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in names.items()
    }
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=llama("vocab_size"),
        hidden_size=llama("embedding_length"),
        intermediate_size=llama("feed_forward_length"),
        num_hidden_layers=llama("block_count"),
        num_attention_heads=llama("attention.head_count"),
        num_key_value_heads=llama("attention.head_count_kv"),
        max_position_embeddings=llama("context_length"),
        rms_norm_eps=round(llama("attention.layer_norm_rms_epsilon"), 10),  # 1e-5, kept in float32 as 9.9999997e-06
        rope_parameters={"rope_type": "default", "rope_theta": llama("rope.freq_base")},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        dtype="float32",
        **special,
    )


def _weights(reader: gguf.GGUFReader, config: LlamaConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor under the name that transformers gives it."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for tensor in reader.tensors:
        stem = tensor.name.removesuffix(".weight")
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        if stem in _OUTER:
            name = _OUTER[stem]
        else:
            _, layer, part = stem.split(".")
            name = f"model.layers.{layer}.{_PARTS[part]}"
            if part in heads:
                weight = _halves(weight, heads[part])
        yield f"{name}.weight", torch.from_numpy(np.array(weight))  # a copy: unquantised tensors view the file


def _halves(weight: Float[np.ndarray, "rows columns"], n_heads: int) -> Float[np.ndarray, "rows columns"]:
    """Reorder each head's rows: GGUF rotates neighbours (0, 1), (2, 3) ..., transformers rows i and i + d_head/2."""
    rows, columns = weight.shape
    return weight.reshape(n_heads, rows // n_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(reader: gguf.GGUFReader) -> PreTrainedTokenizerFast:
    """The byte-level BPE that reads numbers digit by digit (GGUF's `smollm`), its special tokens and chat template.

    transformers' own GGUF reader leaves the digit rule out, and so cuts the white space before numbers differently.
    """
    tokens, kinds = _field(reader, "tokenizer.ggml.tokens"), _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {
        f"{ours}_token": tokens[_field(reader, f"tokenizer.ggml.{theirs}_token_id")] for ours, theirs in names.items()
    }
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.CONTROL]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        additional_special_tokens=control,
        model_max_length=_field(reader, "llama.context_length"),
        clean_up_tokenization_spaces=False,
        **special,
    )
    tokenizer.chat_template = _field(reader, "tokenizer.chat_template")
    return tokenizer
