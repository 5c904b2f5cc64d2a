"""Sixteen tasks with the circuits that solve them, half of them reserved; `helpers.planted` turns them into weights.

They are this collection's own. Mechanisms that the literature knows: induction (Olsson et al. 2022, 2209.11895), names
that are moved unless inhibited (Wang et al. 2023, 2211.00593), a head that suppresses a copy (McDougall et al. 2023,
2310.04625), modular sums by lookup, redundant parts, gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from helpers.planted import LETTERS, PLACES, Design, Draw, Matrices, Part

SHARP = 12.0  # what a full match adds to an attention score
A = (torch.arange(LETTERS) < LETTERS // 2).float()[:, None]  # is it one of the first letters?
_LETTER, _PLACE = torch.eye(LETTERS), torch.eye(PLACES)
_ONE = torch.ones(PLACES, 1)  # the same at every place
_SIDES = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])

Looks = tuple[Matrices, Matrices]


def to_place(place: int) -> Looks:
    """Every query looks at one place."""
    return {"pos": SHARP * _ONE}, {"pos": _PLACE[:, place : place + 1]}


PREVIOUS: Looks = {"pos": SHARP * _PLACE}, {"pos": torch.roll(_PLACE, 1, 1)}
SAME_LETTER: Looks = {"tok": SHARP * _LETTER}, {"tok": _LETTER}


def designs(half: Literal["explore", "confirm"] = "explore") -> list[Design]:
    """The designs of a half, eight each; `confirm` is reserved: no threshold is set and no method tuned with it."""
    return [make() for make in (_EXPLORE if half == "explore" else _CONFIRM)]


def _head(layer: int, looks: Looks, reads: Matrices, into: str, factor: float = 1.0) -> Part:
    return Part(layer, {"q": looks[0], "k": looks[1], "v": reads}, {into: factor})


def _fetch(layer: int, place: int, into: str, what: Tensor = _LETTER, factor: float = 1.0) -> Part:
    return _head(layer, to_place(place), {"tok": what}, into, factor)


def _mlp(layer: int, reads: Matrices, bias: list[float], **writes: Tensor) -> Part:
    return Part(layer, {"m": reads}, writes, torch.tensor(bias))


def _beside(left: Matrices, right: Matrices) -> Matrices:
    """Two ways of scoring side by side, so that their scores add up."""
    rows = {slot: matrix.shape[0] for slot, matrix in (*left.items(), *right.items())}
    widths = [next(iter(each.values())).shape[1] for each in (left, right)]
    none = lambda slot, i: torch.zeros(rows[slot], widths[i])  # noqa: E731
    return {slot: torch.cat([left.get(slot, none(slot, 0)), right.get(slot, none(slot, 1))], 1) for slot in rows}


def _both_scores(one: Looks, other: Looks) -> Looks:
    return _beside(one[0], other[0]), _beside(one[1], other[1])


def _favour(weights: Float[Tensor, "place"]) -> Looks:
    """Every query likes some places more than others."""
    return {"pos": SHARP * _ONE}, {"pos": weights[:, None]}


def _letters(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(LETTERS, size=(n, PLACES - 1))  # the beginning of the prompt stands before them


def _is_a(letters: np.ndarray) -> np.ndarray:
    return letters < LETTERS // 2


def _answered(answer: Callable[[np.ndarray], np.ndarray]) -> Draw:
    """Prompts of random letters and the answer to each."""

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = _letters(rng, n)
        return x, answer(x).astype(int)

    return draw


def _spare() -> Design:
    clip = _mlp(1, {"one": -_LETTER, "two": -_LETTER}, [1.0] * LETTERS, out=-2 * _LETTER)
    parts = [_fetch(0, 4, "one"), _fetch(1, 4, "two"), clip]
    return Design("spare", "the fourth letter, fetched twice", parts, _answered(lambda x: x[:, 3]), LETTERS, (2.0,) * 6)


def _induction() -> Design:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.permuted(np.tile(np.arange(LETTERS), (n, 1)), axis=1)
        row, i = np.arange(n), rng.integers(LETTERS - 1, size=n)
        return np.c_[x, x[row, i]], x[row, i + 1]

    match = {"tok": SHARP * _LETTER}, {"prev": _LETTER}
    parts = [_head(0, PREVIOUS, {"tok": _LETTER}, "prev"), _head(1, match, {"tok": _LETTER}, "out", 2.0)]
    return Design("induction", "what came after the last letter before", parts, draw, LETTERS)


def _seen_before(last: int) -> Looks:
    """A place looks for its letter at other places, and at the beginning of the prompt if it is new."""
    return _both_scores(SAME_LETTER, _favour(0.5 * _PLACE[0] - 2 * _PLACE[last]))


def _duplicate() -> Design:
    seen = torch.tensor([[1.0, -1.0]] + [[-1.0, 1.0]] * (PLACES - 1))
    parts = [_head(0, _seen_before(PLACES - 1), {"pos": seen}, "out")]
    answer = _answered(lambda x: (x[:, :-1] == x[:, -1:]).any(1))
    return Design("duplicate", "has the last letter been there before?", parts, answer, 2, one_way=True)


def _majority() -> Design:
    vote = _mlp(0, {"sum": torch.tensor([[8.0, -8.0]])}, [0.0, 0.0], out=-_SIDES)
    parts = [_head(0, ({}, {}), {"tok": 2 * A - 1}, "sum"), vote]
    answer = _answered(lambda x: _is_a(x).sum(1) > (PLACES - 1) / 2)
    return Design("majority", "is most of it from the first three letters?", parts, answer, 2)


def _two_flags(
    name: str, task: str, weights: list, bias: list, writes: list, constant: tuple, rule: Callable
) -> Design:
    """Two heads ask whether the third and the fifth letter are of the first kind, and an MLP combines the answers."""
    flags = {"one": torch.tensor([weights[0]]), "two": torch.tensor([weights[1]])}
    parts = [_fetch(0, 3, "one", A), _fetch(0, 5, "two", A), _mlp(1, flags, bias, out=torch.tensor(writes))]
    answer = _answered(lambda x: rule(_is_a(x[:, 2]), _is_a(x[:, 4])))
    return Design(name, task, parts, answer, 2, constant, one_way=True)


def _and() -> Design:
    rule = [[1.0], [1.0]], [-1.0], [[-2.0, 2.0]], (1.0, -1.0), np.logical_and
    return _two_flags("and", "are both letters of the first kind?", *rule)


def _or() -> Design:
    rule = [[-1.0], [-1.0]], [1.0], [[2.0, -2.0]], (-1.0, 1.0), np.logical_or
    return _two_flags("or", "is one of two letters of the first kind?", *rule)


def _pointer() -> Design:
    def answer(x: np.ndarray) -> np.ndarray:
        row = np.arange(len(x))
        return x[row, x[row, x[:, -1]]]

    names = torch.cat([torch.zeros(LETTERS, 1), _LETTER, torch.zeros(LETTERS, PLACES - LETTERS - 1)], 1)
    first, second = (({slot: SHARP * names}, {"pos": _PLACE}) for slot in ("tok", "hop"))
    parts = [_head(0, first, {"tok": _LETTER}, "hop"), _head(1, second, {"tok": _LETTER}, "out", 2.0)]
    return Design("pointer", "the letter at the place named at the place named last", parts, _answered(answer), LETTERS)


def _suppression() -> Design:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = _letters(rng, n)
        x[:, 4] = (x[:, 2] + rng.integers(1, LETTERS, n)) % LETTERS
        x[:, -1] = np.where(rng.random(n) < 0.5, x[:, 2], x[:, -1])
        return x, np.where(x[:, 2] == x[:, -1], x[:, 4], x[:, 2])

    parts = [_fetch(0, 3, "out", factor=2.0), _fetch(0, 5, "out"), _fetch(1, 7, "out", factor=-3.0)]
    return Design("suppression", "the third letter, or the fifth if the last forbids it", parts, draw, LETTERS)


def _relay() -> Design:
    parts = [_fetch(0, 2, "mid"), _head(1, to_place(4), {"mid": _LETTER}, "out", 2.0)]
    return Design("relay", "the second letter, handed on", parts, _answered(lambda x: x[:, 1]), LETTERS)


def _two_names() -> Design:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.permuted(np.tile(np.arange(LETTERS), (n, 1)), axis=1)
        row, again = np.arange(n), rng.integers(2, size=n)
        x = np.c_[x, x[:, 0]]
        x[:, 4] = x[row, 1 + 2 * again]
        return x, x[row, 3 - 2 * again]

    not_inhibited = {"inh": -SHARP * _LETTER}, {"tok": _LETTER}
    mover = _both_scores(not_inhibited, _favour(2 * (_PLACE[2] + _PLACE[4])))
    parts = [
        _head(0, _seen_before(5), {"tok": _LETTER}, "dup"),
        _head(1, to_place(5), {"dup": _LETTER}, "inh"),
        _head(2, mover, {"tok": _LETTER}, "out", 2.0),
    ]
    return Design("two names", "the one of two names that did not come back", parts, draw, LETTERS)


def _different() -> Design:
    rule = [[1.0, -1.0], [-1.0, 1.0]], [0.0, 0.0], [[-2.0, 2.0], [-2.0, 2.0]], (1.0, -1.0), np.logical_xor
    return _two_flags("different", "are two letters of different kinds?", *rule)


def _backup() -> Design:
    spare = _mlp(1, {"one": -torch.ones(1, 1), "two": -torch.ones(1, 1)}, [1.0], out=torch.tensor([[2.0, -2.0]]))
    parts = [_fetch(0, 3, "one", A), _fetch(1, 3, "two", A), spare]
    answer = _answered(lambda x: _is_a(x[:, 2]))
    return Design("backup", "is the third letter of the first kind? asked twice", parts, answer, 2, (-1.0, 1.0), True)


def _modular() -> Design:
    n = 4
    one = torch.eye(n)
    first, second = one.repeat_interleave(n, 1), one.repeat(1, n)
    total = torch.stack([one[(i + j) % n] for i in range(n) for j in range(n)])

    def draw(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(n, size=(size, PLACES - 1))
        return x, (x[:, 1] + x[:, 4]) % n

    parts = [
        _fetch(0, 2, "one", _LETTER[:, :n]),
        _fetch(0, 5, "two", _LETTER[:, :n]),
        _mlp(0, {"one": 2 * first, "two": 2 * second}, [-3.0] * n**2, out=2 * total),
    ]
    return Design("modular sum", "the sum of two letters, modulo four", parts, draw, n)


def _gate() -> Design:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = _letters(rng, n)
        x[:, 1] = rng.integers(1, LETTERS, n)
        return x, np.where(_is_a(x[:, 5]), x[:, 1], 0)

    open_ = _mlp(1, {"one": _LETTER, "two": torch.ones(1, LETTERS)}, [-1.0] * LETTERS, out=2 * _LETTER)
    parts = [_fetch(0, 2, "one"), _fetch(0, 6, "two", A), open_]
    return Design("gate", "the second letter, if the sixth lets it pass", parts, draw, LETTERS, (1.0, 0, 0, 0, 0, 0))


def _latest() -> Design:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = _letters(rng, n)
        x[:, 0] = rng.integers(LETTERS // 2, size=n)
        return x, x[np.arange(n), PLACES - 2 - _is_a(x)[:, ::-1].argmax(1)]

    kind = {"pos": 3 * SHARP * _ONE}, {"tok": A}
    looks = _both_scores(kind, _favour(torch.arange(PLACES) * 0.5))
    parts = [_head(0, looks, {"tok": _LETTER}, "out")]
    return Design("latest", "the latest letter of the first kind", parts, draw, LETTERS)


def _halves() -> Design:
    def window(low: int, high: int) -> Looks:
        return _favour(((torch.arange(PLACES) >= low) & (torch.arange(PLACES) < high)).float())

    up, none = [[6.0, 6.0]], [[0.0, 0.0]]
    step, flat = torch.tensor([[0.5], [-0.5]]), torch.zeros(2, 1)
    reads = {"one": torch.tensor([up[0] + none[0]]), "two": torch.tensor([none[0] + up[0]])}
    sharpen = _mlp(0, reads, [1.0, -1.0] * 2, first=torch.cat([step, flat]), second=torch.cat([flat, step]))
    differ = {"first": torch.tensor([[2.0, -2.0]]), "second": torch.tensor([[-2.0, 2.0]])}
    parts = [
        _head(0, window(1, 4), {"tok": 2 * A - 1}, "one"),
        _head(0, window(4, 7), {"tok": 2 * A - 1}, "two"),
        sharpen,
        _mlp(1, differ, [0.0, 0.0], out=torch.tensor([[1.0, -1.0], [1.0, -1.0]])),
    ]
    answer = _answered(lambda x: (_is_a(x[:, :3]).sum(1) > 1) == (_is_a(x[:, 3:6]).sum(1) > 1))
    return Design("halves", "do the first and the next three letters agree in kind?", parts, answer, 2, (-1.0, 1.0))


_EXPLORE = (_spare, _induction, _duplicate, _majority, _and, _or, _pointer, _suppression)
_CONFIRM = (_relay, _two_names, _different, _backup, _modular, _gate, _latest, _halves)
