"""Which runs an audit of a notebook consists of, and what each is for."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from helpers import nulls
from helpers.batch.planned import Notebook
from helpers.errors import HookbookError
from helpers.papers import Audit, Kind

Part = Literal["default", "null", "seed", "redraw", "jitter", "choice"]

# The nulls of a claim, by its kind and in the order in which they decide: an untrained model that cannot do the task
# says nothing, and the next is asked. Identities and properties of a method hold on any network and have none.
_ALL = ("random", "random-x3", "shuffled", "fresh-blocks")
NULLS_OF: dict[Kind, tuple[str, ...]] = {
    "identity": (),
    "method": (),
    "behaviour": _ALL,
    # what can be read may have come with the embeddings, so that untrained blocks around them are asked early
    "decodable": ("random", "fresh-blocks", "random-x3", "shuffled"),
    "causal": _ALL,
    "localised": _ALL,
    "specific": _ALL,
    "dynamics": _ALL,
}
SEEDS = range(5)
REDRAWN = range(5, 10)  # seeds that stand for other units where the catalogue names no parameter that draws them


@dataclass(frozen=True)
class Role:
    """A run's part in the audit, what to call it, and the parameters that make it."""

    part: Part
    label: str
    given: dict[str, Any]


def roles(notebook: Notebook, kinds: Iterable[Kind], entry: Audit, fixed: dict[str, Any]) -> list[Role]:
    """The runs of an audit, the default first; two of them may turn out to be one run.

    Args:
        notebook: what is audited.
        kinds: of its claims; they say which nulls are needed.
        entry: what the catalogue lets the audit vary.
        fixed: parameters of all runs, the model's name among them if it is not the notebook's own.

    Raises:
        HookbookError: the model is a null itself.
    """
    has = {parameter.name for parameter in notebook.known} - set(notebook.unread)
    fixed = {**({"gates": False} if "gates" in has else {}), **fixed}
    found = [Role("default", "default", {})]
    if notebook.shared.model:
        base = model_name(notebook, fixed)
        wanted = dict.fromkeys(null for kind in kinds for null in NULLS_OF[kind])
        found += [Role("null", null, {"model_name": f"{null}:{base}"}) for null in wanted]
    if "seed" in has:
        found += [Role("seed", f"seed={seed}", {"seed": seed}) for seed in SEEDS]
    redraw = entry.redraw or ({"seed": list(REDRAWN)} if "seed" in has else {})
    redrawn = [{name: value} for name, values in redraw.items() for value in values]
    found += [Role("redraw", _label(point), point) for point in redrawn]
    found += [role for role in _jitter(notebook, fixed) if role.given.keys() <= has]
    found += [Role("choice", _label(point), point) for point in specifications(entry)]
    return [Role(role.part, role.label, {**fixed, **role.given}) for role in found]


def model_name(notebook: Notebook, fixed: dict[str, Any]) -> str:
    """The model that is audited.

    Raises:
        HookbookError: it is a null itself.
    """
    defaults = {parameter.name: parameter.default for parameter in notebook.known}
    name = str({**defaults, **fixed}["model_name"])
    null, base = nulls.split(name)
    if null is not None:
        raise HookbookError(f"{name} is a null already, and an audit makes its own: give {base} as model_name.")
    return name


def specifications(entry: Audit) -> Iterator[dict[str, Any]]:
    """Combinations of the catalogue's choices, all or a sample of them that is always the same, in their order."""
    sizes = [len(values) for values in entry.choices.values()]
    total = prod(sizes) if sizes else 0
    for index in sorted(random.Random(0).sample(range(total), min(entry.sample, total))):
        point = {}
        for name, values in reversed(entry.choices.items()):
            index, position = divmod(index, len(values))
            point[name] = values[position]
        yield {name: point[name] for name in entry.choices}


def _jitter(notebook: Notebook, fixed: dict[str, Any]) -> Iterator[Role]:
    """Changes that should change nothing: precision, what quantisation left uncertain, how the text is begun."""
    if notebook.shared.model:
        yield Role("jitter", "jitter:", {"model_name": f"jitter:{model_name(notebook, fixed)}"})
    for given in ({"dtype": "bfloat16"}, {"prepend_bos": False}, {"chat_template": True}):
        yield Role("jitter", _label(given), given)


def _label(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())
