"""Models that learned nothing, or not quite the same: a prefix before a model's name, such as `shuffled:gpt2`.

A claim that a null passes says nothing about what training brought. The prefixes alone stand here, so that a look at
them imports no torch; `helpers.null_weights` makes the weights.
"""

from dataclasses import dataclass

from helpers.errors import HookbookError


@dataclass(frozen=True)
class Null:
    """A way to alter a model.

    Attributes:
        name: what stands before the colon.
        meaning: what the weights are, in a few words.
        trained: whether they are made from the trained weights, which then have to be on this machine.
    """

    name: str
    meaning: str
    trained: bool


NULLS: dict[str, Null] = {
    null.name: null
    for null in (
        Null("random", "untrained, the architecture's own initialisation", trained=False),
        Null("random-x3", "untrained, each weight matrix of the blocks three times as large", trained=False),
        Null("shuffled", "trained weights, permuted within each tensor", trained=True),
        Null("fresh-blocks", "trained embeddings, unembedding and final norm around untrained blocks", trained=True),
        Null("jitter", "trained weights, moved by up to half a step of their quantisation", trained=True),
    )
}


def split(name: str) -> tuple[Null | None, str]:
    """A model's name as its null, if a prefix says one, and the name of the model that it is made from.

    Raises:
        HookbookError: a prefix after a prefix.
    """
    prefix, colon, base = name.partition(":")
    if not colon or prefix not in NULLS:
        return None, name
    second, colon, _ = base.partition(":")
    if colon and second in NULLS:
        raise HookbookError(f"{name} has two prefixes: leave out {prefix}: or {second}:, one at a time is altered.")
    return NULLS[prefix], base
