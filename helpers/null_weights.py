"""The weights of the models that `helpers.nulls` names, made on the CPU before anything is folded or expanded.

All are drawn in float32 or by position, so that a seed means one model in every dtype; buffers (rotary frequencies) are
left alone, and what is tied is one tensor and stays so. The global generators are left alone too.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from helpers.errors import HookbookError

GAIN = 3
BLOCK = 32  # neighbours in a row that share a scale, in the formats that the default model's file has
_LEVELS = 16  # of Q4_1: values between the least and the greatest of a block
_LARGEST = 127  # of Q8_0: what the entry of the largest size is stored as

_Trained = Callable[[torch.dtype], PreTrainedModel]


def make(
    null: str, config: PretrainedConfig, model_class: type, trained: _Trained, *, dtype: torch.dtype, seed: int
) -> PreTrainedModel:
    """The model that a null's name means, in evaluation mode.

    Args:
        null: a name of `helpers.nulls.NULLS`.
        config: of the model that it is made from.
        model_class: the transformers class that makes it from a config.
        trained: reads the trained model in a dtype; called only where its weights are needed.
        dtype: of the weights.
        seed: of whatever is drawn.

    Raises:
        HookbookError: the model keeps its blocks in a way that is not known.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if null == "shuffled":
            model = trained(dtype)
            _shuffle(model, generator)
        elif null == "jitter":
            model = trained(torch.float32)
            _jitter(model, generator)
        elif null == "fresh-blocks":
            model = trained(dtype)
            fresh = blocks(_untrained(config, model_class, seed))
            for ours, drawn in zip(blocks(model).parameters(), fresh.parameters(), strict=True):
                ours.copy_(drawn)
        else:
            model = _untrained(config, model_class, seed)
            if null == "random-x3":
                _enlarge(model)
    return model.to(dtype).eval()


def bytes_per_parameter(null: str, dtype: torch.dtype) -> int:
    """What making the weights takes at its peak, before any folding."""
    drawn = torch.float32.itemsize
    return {"shuffled": dtype.itemsize, "fresh-blocks": dtype.itemsize + drawn}.get(null, drawn)


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """The list of a language model's blocks: the outermost list that has as many modules as the config has layers.

    Raises:
        HookbookError: there is none.
    """
    count = getattr(model.config, "num_hidden_layers", None)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise HookbookError(
        f"It is not known where a model of the type {model.config.model_type} keeps its blocks, which random-x3:, "
        "fresh-blocks: and jitter: have to tell from its embeddings: use random: or shuffled: instead."
    )


def _untrained(config: PretrainedConfig, model_class: type, seed: int) -> PreTrainedModel:
    """The architecture's own random initialisation, in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return model_class.from_config(config, dtype=torch.float32, attn_implementation="eager")


def _enlarge(model: PreTrainedModel) -> None:
    """Triple the weight matrices of the blocks; norms, biases and everything outside the blocks stay as initialised.

    At the usual small initialisation blocks add so little to the stream that the whole model is nearly its embeddings;
    with this gain attention is no longer uniform and blocks matter.
    """
    for weight in _matrices(blocks(model)):
        weight.mul_(GAIN)


def _shuffle(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Permute the entries of every tensor, embeddings and norms too: every distribution stays, all structure goes."""
    for weight in model.parameters():
        order = torch.randperm(weight.numel(), generator=generator)
        weight.copy_(weight.flatten()[order].view_as(weight))


def _jitter(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Move every entry of every matrix by up to half a quantisation step of its 32, as rounding may have done.

    The step is that of the default model's file: Q4_1 in the matrices of its blocks, Q8_0 in the embeddings, which it
    keeps at eight bits. Moves are drawn evenly below half a step, as rounding errors spread: half a step for each entry
    would be 1.7 times as much in the root mean square, more than the file can have lost. What is left at the end of a
    row that 32 does not divide has a step of its own. Vectors (norms and biases) are not quantised there, and not moved
    here.
    """
    coarse = {id(weight) for weight in _matrices(blocks(model))}
    for weight in _matrices(model):
        half = half_step if id(weight) in coarse else half_fine_step
        moved = [part + half(part) * _even(part, generator) for part in weight.flatten(0, -2).split(BLOCK, -1)]
        weight.copy_(torch.cat(moved, -1).view_as(weight))


def half_step(part: Float[torch.Tensor, "row entry"]) -> Float[torch.Tensor, "row 1"]:
    """Of Q4_1: half the distance between neighbours of the 16 values that span the entries from least to greatest."""
    return (part.amax(-1, keepdim=True) - part.amin(-1, keepdim=True)) / (_LEVELS - 1) / 2


def half_fine_step(part: Float[torch.Tensor, "row entry"]) -> Float[torch.Tensor, "row 1"]:
    """Of Q8_0: half of the 127th part of the entry of the largest size."""
    return part.abs().amax(-1, keepdim=True) / _LARGEST / 2


def _even(part: Float[torch.Tensor, "row entry"], generator: torch.Generator) -> Float[torch.Tensor, "row entry"]:
    """Numbers drawn evenly between -1 and 1."""
    return torch.rand(part.shape, generator=generator) * 2 - 1


def _matrices(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.ndim > 1]
