"""Patched copies of prompts: which of them go through the layers together, and which rows of them are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from helpers.interventions.sites import hook_name

if TYPE_CHECKING:
    from helpers.interventions.batch import Batch

# Tokens of all copies that go through a projection together: fast here from about 500 on, small enough for the cache
_ROWS = 1024


@dataclass(eq=False)
class Copies:
    """Patched copies of one prompt that differ from it from the same position on, by layer of the patch.

    Attributes:
        unit: index of the prompt in the batch.
        rows: the positions that are computed.
        keep: those among them that are read in the end.
        sites: layer, place and set of heads, as indices of the grid.
        joined: how many copies are patched in layers below each.
        stream: their residual stream.
    """

    unit: int
    rows: slice
    keep: Int[Tensor, "read"]
    sites: Int[Tensor, "copy 3"]
    joined: list[int]
    stream: Float[Tensor, "copy pos d_model"] = field(repr=False)


# Some of the copies
Piece = tuple[Copies, slice]


def kept(reads: Int[Tensor, "read"], rows: slice) -> Int[Tensor, "row"]:
    """Which of these rows are read."""
    reads = reads.unique()
    return reads[reads >= rows.start] - rows.start


def waves(batch: Batch, max_rows: int) -> Iterator[Int[Tensor, "column 2"]]:
    """Columns of the grid (place, set of heads) in all layers at once, as many at a time as there may be rows."""
    ends = batch.reads.amax(1) + 1
    n_rows = (ends - batch.starts).clamp(min=0).sum((0, 3))
    wave, used = [], 0
    for place, heads in n_rows.nonzero().tolist():
        more = int(n_rows[place, heads])
        if wave and used + more > max_rows:
            yield torch.tensor(wave)
            wave, used = [], 0
        wave.append((place, heads))
        used += more
    if wave:
        yield torch.tensor(wave)


def plan(batch: Batch, columns: Int[Tensor, "column 2"], n_layers: int, width: int) -> list[Copies]:
    """The copies of these columns; their streams are still empty."""
    layers, order = torch.tensor(batch.grid.layers).sort()
    starts = batch.starts[order][:, columns[:, 0], columns[:, 1]]
    like = batch.base[hook_name("resid_pre", 0)]
    copies = []
    for unit, end in enumerate((batch.reads.amax(1) + 1).tolist()):
        for start in starts[..., unit].unique().tolist():
            if start >= end:
                continue
            layer, column = (starts[..., unit] == start).nonzero().T
            sites = torch.cat([order[layer, None], columns[column]], dim=1)
            joined = torch.searchsorted(layers[layer], torch.arange(n_layers + 1)).tolist()
            rows = slice(start, end)
            stream = like.new_empty(len(sites), end - start, width)
            copies.append(Copies(unit, rows, kept(batch.reads[unit], rows), sites, joined, stream))
    return copies


def bundles(pieces: list[tuple[Copies, int]]) -> Iterator[list[Piece]]:
    """The first so many of each copies, cut and put together to about the same number of rows."""
    bundle, used = [], 0
    for one, stop in pieces:
        start, n_rows = 0, one.stream.shape[1]
        while start < stop:
            count = min(stop - start, max(1, (_ROWS - used) // n_rows))
            bundle.append((one, slice(start, start + count)))
            start, used = start + count, used + count * n_rows
            if used + n_rows > _ROWS:
                yield bundle
                bundle, used = [], 0
    if bundle:
        yield bundle
