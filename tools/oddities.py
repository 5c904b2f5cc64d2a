"""Measure the habits of the default model that notebooks have to know, for the book: writes data/oddities.json.

`python tools/oddities.py` takes a minute on two cores. Texts are critics' reviews of the half `explore`, cut to equal
length, so that no padding is needed; a layer's numbers are of the residual stream after it, and of the attention in it.
"""

import json
from importlib.metadata import version

import torch
from torch import Tensor

from helpers import datasets, models
from helpers.papers import ROOT

MODEL = "smollm2-135m"
TEXTS, TOKENS, BATCH = 64, 24, 8
FROM = 4  # the first queries have little else than the first token to look at
OUT = ROOT / "data" / "oddities.json"
DIMENSIONS = 6  # how many are named
RESTING = 0.9  # a head that gives the first token more than this share of its attention rests


def measured(model, tokens: Tensor) -> dict[str, Tensor]:
    """Attention to the first token [layer, head], norms [layer, pos], squares [layer, pos, dim]: means over texts."""
    n_layers = model.cfg.n_layers
    names = [f"blocks.{i}.{hook}" for i in range(n_layers) for hook in ("attn.hook_pattern", "hook_resid_post")]
    sums: dict[str, Tensor] = {}
    for batch in tokens.split(BATCH):
        _, cache = model.run_with_cache(batch, names_filter=names)
        patterns = torch.stack([cache[f"blocks.{i}.attn.hook_pattern"] for i in range(n_layers)])
        stream = torch.stack([cache[f"blocks.{i}.hook_resid_post"] for i in range(n_layers)]).float()
        found = {
            "attention": patterns[:, :, :, FROM:, 0].float().mean(3).sum(1),
            "norm": stream.norm(dim=-1).sum(1),
            "squares": stream.square().sum(1),
        }
        sums = {name: sums.get(name, 0) + value for name, value in found.items()}
    return {name: value / len(tokens) for name, value in sums.items()}


def main() -> None:
    """Measure with and without BOS, and write what was found."""
    torch.set_grad_enabled(False)
    model = models.load_model(MODEL, processing="raw")
    table = datasets.rotten_tomatoes()
    rows = [model.to_tokens(text)[0] for text in table[table.half == "explore"].text]
    tokens = torch.stack([row[:TOKENS] for row in rows if len(row) >= TOKENS + 1][:TEXTS])
    bare = torch.stack([row[1 : TOKENS + 1] for row in rows if len(row) >= TOKENS + 1][:TEXTS])
    with_bos, without = measured(model, tokens), measured(model, bare)
    squares = with_bos["squares"]
    at_words, at_first = squares[:, 1:].mean(1), squares[:, 0]  # [layer, dim]
    ratio = (at_words / at_words.median(dim=1, keepdim=True).values).sqrt()
    chosen = ratio.mean(0).topk(DIMENSIONS).indices.tolist()
    share_words, share_first = at_words / at_words.sum(1, keepdim=True), at_first / at_first.sum(1, keepdim=True)
    found = {
        "model": MODEL,
        "sha256": models.model_sha256(MODEL),
        "texts": len(tokens),
        "tokens": TOKENS,
        "versions": {name: version(name).split("+")[0] for name in ("torch", "transformers", "transformer-lens")},
        "attention_to_first": rounded(with_bos["attention"].mean(1)),
        "attention_to_first_without_bos": rounded(without["attention"].mean(1)),
        "heads": with_bos["attention"].numel(),
        "resting_heads": int((with_bos["attention"] > RESTING).sum()),
        "resting_share": RESTING,
        "norm_of_first_to_others": rounded(with_bos["norm"][:, 0] / with_bos["norm"][:, 1:].mean(1)),
        "norm_of_first_to_others_without_bos": rounded(without["norm"][:, 0] / without["norm"][:, 1:].mean(1)),
        "dimensions": [
            {
                "dimension": dim,
                "times_the_median": round(float(ratio[:, dim].mean()), 2),
                "share_at_words": round(float(share_words[:, dim].mean()), 4),
                "share_at_first": round(float(share_first[:, dim].mean()), 4),
            }
            for dim in chosen
        ],
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def rounded(values: Tensor) -> list[float]:
    """Three digits after the point."""
    return [round(float(value), 3) for value in values]


if __name__ == "__main__":
    main()
