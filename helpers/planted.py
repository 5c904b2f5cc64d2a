"""Small transformers whose circuit is known, because their weights were written by hand: a truth for circuit methods.

A `Design` says which parts a task needs and what each part reads and writes, in named slots of the residual stream.
`plant` compiles it: distractor heads and MLPs fill the remaining places, the stream is turned by a random rotation, so
that no coordinate betrays a slot, and every weight matrix gets noise, so that every edge carries a little. Which edges
are the circuit follows from the design alone: no patching, no gradient and no run of the network is asked.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from helpers.errors import HookbookError

LETTERS, PLACES, HEADS, NEURONS, WIDTH = 6, 8, 4, 16, 8
GAIN = 2.0  # of the unembedding: clear answers, none of them certain
FREE = ("out", "other")  # slots whose size does not come from a part that writes them
ALTERED = ("random", "random-x3", "shuffled", "fresh-blocks")

Matrices = Mapping[str, Float[Tensor, "slot inner"]]
Draw = Callable[[np.random.Generator, int], tuple[Int[np.ndarray, "prompt letter"], Int[np.ndarray, "prompt"]]]


class Part(NamedTuple):
    """A head or an MLP of a design: what each of its inputs reads, and what it writes.

    Attributes:
        layer: where it stands.
        reads: for a head `q`, `k` and `v`, for an MLP `m`; each a matrix per slot that is read.
        writes: per slot a factor (head: its values are copied there) or a matrix [neuron, slot] (MLP).
        bias: of the MLP's neurons.
    """

    layer: int
    reads: dict[str, Matrices]
    writes: dict[str, float | Float[Tensor, "neuron slot"]]
    bias: Float[Tensor, "neuron"] | None = None


class Design(NamedTuple):
    """A task and the parts that solve it.

    Attributes:
        name: of the circuit.
        task: what the answer is, in a few words.
        parts: the circuit.
        draw: prompts of letters and their answers.
        n_answers: how many answers there are.
        constant: what the answers' logits start from.
        one_way: clean prompts all have the answer 1, as where a pattern is there or not.
    """

    name: str
    task: str
    parts: list[Part]
    draw: Draw
    n_answers: int
    constant: tuple[float, ...] = ()
    one_way: bool = False


class Block(nn.Module):
    """A transformer block without norms; heads read the stream through hooks of their own for q, k and v."""

    def __init__(self, width: int):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (_zeros(HEADS, width, WIDTH) for _ in range(3))
        self.W_O = _zeros(HEADS, WIDTH, width)
        self.W_in, self.b_in, self.W_out = _zeros(width, NEURONS), _zeros(NEURONS), _zeros(NEURONS, width)
        self.hook_q_input, self.hook_k_input, self.hook_v_input = HookPoint(), HookPoint(), HookPoint()
        self.hook_pattern, self.hook_result = HookPoint(), HookPoint()
        self.hook_mlp_in, self.hook_mlp_out = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "prompt pos d"]) -> Float[Tensor, "prompt pos d"]:
        """The stream after the block."""
        each = x[:, :, None].expand(-1, -1, HEADS, -1)
        inputs = (self.hook_q_input, self.W_Q), (self.hook_k_input, self.W_K), (self.hook_v_input, self.W_V)
        q, k, v = (torch.einsum("nphd,hde->nhpe", hook(each), weight) for hook, weight in inputs)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        pattern = self.hook_pattern((q @ k.mT).masked_fill(future, -torch.inf).softmax(-1))
        x = x + self.hook_result(torch.einsum("nhpe,hed->nphd", pattern @ v, self.W_O)).sum(2)
        return x + self.hook_mlp_out((self.hook_mlp_in(x) @ self.W_in + self.b_in).relu() @ self.W_out)


class PlantedTransformer(HookedRootModule):
    """A transformer without norms whose weights were written by hand.

    Hooks, with shapes as in TransformerLens: hook_embed, hook_pos_embed [prompt, pos, d]; in each block hook_q_input,
    hook_k_input, hook_v_input, hook_result [prompt, pos, head, d], hook_pattern [prompt, head, query, key],
    hook_mlp_in, hook_mlp_out [prompt, pos, d]; hook_out [prompt, pos, d], what the unembedding reads.
    """

    def __init__(self, width: int, n_layers: int, n_answers: int):
        super().__init__()
        self.W_E, self.W_pos, self.W_U = _zeros(LETTERS + 1, width), _zeros(PLACES, width), _zeros(width, n_answers)
        self.blocks = nn.ModuleList(Block(width) for _ in range(n_layers))
        self.hook_embed, self.hook_pos_embed, self.hook_out = HookPoint(), HookPoint(), HookPoint()
        self.setup()

    def forward(self, tokens: Int[Tensor, "prompt pos"]) -> Float[Tensor, "prompt answer"]:
        """Logits at the last token; token 0 is the beginning of the prompt, letters follow."""
        x = self.hook_embed(self.W_E[tokens]) + self.hook_pos_embed(self.W_pos.expand(len(tokens), -1, -1))
        for block in self.blocks:
            x = block(x)
        return self.hook_out(x)[:, -1] @ self.W_U


@dataclass(frozen=True, eq=False)
class Planted:
    """A compiled design.

    Attributes:
        design: what it was compiled from.
        network: the transformer.
        writers: names of what writes into the stream, in order: embed, then by layer the heads and the MLP.
        readers: names of what reads it, in order: by layer q, k and v of every head and the MLP; last the output.
        possible: which writers stand before which readers.
        circuit: the edges that the design uses.
    """

    design: Design
    network: PlantedTransformer
    writers: list[str]
    readers: list[str]
    possible: Bool[Tensor, "writer reader"]
    circuit: Bool[Tensor, "writer reader"]

    def pairs(self, n: int, seed: int = 0) -> tuple[Int[Tensor, "prompt pos"], ...]:
        """Clean prompts, as many unrelated ones with another answer, and the answers of both [prompt]."""
        rng = np.random.default_rng([_own_seed(self.design, seed), 5])
        (clean, answer), (corrupted, other) = self.design.draw(rng, 60 * n), self.design.draw(rng, 60 * n)
        fits = np.flatnonzero((answer != other) & ((answer == 1) | (not self.design.one_way)))[:n]
        start = np.zeros((n, 1), int)
        tokens = (np.hstack([start, 1 + letters[fits]]) for letters in (clean, corrupted))
        return *map(torch.tensor, tokens), torch.tensor(answer[fits]), torch.tensor(other[fits])


def plant(design: Design, *, seed: int = 0, noise: float = 0.1, null: str | None = None) -> Planted:
    """Compile a design: distractors, a rotation, noise.

    The distractors are heads that attend somewhere, read what other parts write and write where nobody reads, MLPs of
    the same kind, and one head that moves a letter to logits of no answer: it changes what the network says, but not
    which answer it prefers. The position embedding is no writer: it is the same in all prompts.

    Args:
        design: what to compile.
        seed: of distractors, order of heads, rotation and noise.
        noise: length of the noise of each weight matrix, as a share of the matrix's own.
        null: `shuffled` permutes the entries of every matrix, `random` draws them anew with the same spread,
            `random-x3` three times as large, `fresh-blocks` those of the blocks only; any other leaves the weights.

    Raises:
        HookbookError: the design does not fit into the network.
    """
    own = _own_seed(design, seed)
    rng, generator = np.random.default_rng([own, 77]), torch.Generator().manual_seed(own)
    n_layers = max(2, 1 + max(part.layer for part in design.parts))
    sizes = _sizes(design)
    parts = [*design.parts, *_distractors(design, n_layers, sizes, rng)]
    ends = np.cumsum(list(sizes.values()))
    at = {slot: slice(end - size, end) for (slot, size), end in zip(sizes.items(), ends, strict=True)}
    network = PlantedTransformer(int(ends[-1]), n_layers, design.n_answers + LETTERS)
    network.W_E[1:, at["tok"]] = torch.eye(LETTERS)
    network.W_pos[:, at["pos"]] = torch.eye(PLACES)
    if design.constant:
        network.W_pos[:, at["out"]] = torch.tensor(design.constant)
    network.W_U[at["out"], : design.n_answers] = GAIN * torch.eye(design.n_answers)
    network.W_U[at["other"], design.n_answers :] = GAIN * torch.eye(LETTERS)
    where = _write(network, parts, at, rng)
    _hide(network, noise, generator)
    if null in ALTERED:
        _alter(network, null, generator)
    writers, readers = _names(n_layers)
    possible = torch.tensor([[_before(writer, reader) for reader in readers] for writer in writers])
    circuit = _circuit(design, parts, where, writers, readers)
    if (circuit & ~possible).any():
        raise HookbookError(f"The design {design.name!r} reads what is written later: move its parts to other layers.")
    shown = ["embed", *map(_shown, writers[1:])], [*map(_shown, readers[:-1]), "output"]
    return Planted(design, network, *shown, possible, circuit)


def _own_seed(design: Design, seed: int) -> int:
    """Designs are the units of the claims: no two may share noise, distractors or prompts under one seed."""
    return zlib.crc32(f"{design.name}/{seed}".encode())


def _zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)


def _is_head(part: Part) -> bool:
    return "q" in part.reads


def _sizes(design: Design) -> dict[str, int]:
    """Dimensions of every slot of the design; those of distractors are added later."""
    sizes = {"tok": LETTERS, "pos": PLACES, "out": design.n_answers, "other": LETTERS}
    for part in design.parts:
        for slot, written in part.writes.items():
            if slot not in FREE:
                sizes[slot] = next(iter(part.reads["v"].values())).shape[1] if _is_head(part) else written.shape[1]
    return sizes


def _distractors(design: Design, n_layers: int, sizes: dict[str, int], rng: np.random.Generator) -> list[Part]:
    """Heads and MLPs for the places that the design leaves empty; enters their slots into the sizes."""
    found, known = [], ["tok"]

    def mix(slot: str, width: int) -> Tensor:
        return torch.tensor(rng.normal(size=(sizes[slot], width)) / sizes[slot] ** 0.5, dtype=torch.float32)

    for layer in range(n_layers):
        here = [part for part in design.parts if part.layer == layer]
        new = []
        for i in range(HEADS - sum(map(_is_head, here))):
            slot, own = str(rng.choice(known)), f"unread {layer}.{i}"
            q, k = _somewhere(rng)
            if layer == n_layers - 1 and i == 0:
                new.append(Part(layer, {"q": q, "k": k, "v": {"tok": torch.eye(LETTERS)}}, {"other": 1.0}))
                continue
            new.append(Part(layer, {"q": q, "k": k, "v": {slot: mix(slot, LETTERS)}}, {own: 1.0}))
            sizes[own] = LETTERS
        known += [slot for part in [*here, *new] if _is_head(part) for slot in part.writes if slot not in FREE]
        if all(map(_is_head, here)):
            own, slots = f"unread {layer}.m", [str(slot) for slot in rng.choice(known, 2)]
            out = torch.tensor(rng.normal(size=(WIDTH, LETTERS)) / WIDTH**0.5, dtype=torch.float32)
            new.append(Part(layer, {"m": {slot: mix(slot, WIDTH) for slot in slots}}, {own: out}, torch.zeros(WIDTH)))
            sizes[own] = LETTERS
        known += [slot for part in [*here, *new] if not _is_head(part) for slot in part.writes if slot not in FREE]
        found += new
    return found


def _somewhere(rng: np.random.Generator) -> tuple[Matrices, Matrices]:
    """Query and key matrices of a head that attends to a place, to the token before, to its like, or everywhere."""
    from helpers import planted_designs as designs  # it builds on this module

    kinds = (designs.to_place(int(rng.integers(1, PLACES))), designs.PREVIOUS, designs.SAME_LETTER, ({}, {}))
    return kinds[rng.integers(len(kinds))]


def _write(
    network: PlantedTransformer, parts: Sequence[Part], at: dict[str, slice], rng: np.random.Generator
) -> dict[int, tuple]:
    """Write all parts into the weights, heads in random order; returns the place of each part by its id."""
    where = {}
    for layer, block in enumerate(network.blocks):
        here = [part for part in parts if part.layer == layer]
        heads = [part for part in here if _is_head(part)]
        if len(heads) != HEADS or len(here) - len(heads) != 1:
            raise HookbookError(f"Layer {layer} of the design has more than {HEADS} heads or one MLP.")
        for head, i in enumerate(rng.permutation(HEADS)):
            part = heads[i]
            where[id(part)] = (layer, head)
            for port, weight in (("q", block.W_Q), ("k", block.W_K), ("v", block.W_V)):
                for slot, matrix in part.reads[port].items():
                    weight[head, at[slot], : matrix.shape[1]] += matrix
            for slot, factor in part.writes.items():
                size = at[slot].stop - at[slot].start
                block.W_O[head, :size, at[slot]] += factor * torch.eye(size)
        (part,) = (part for part in here if not _is_head(part))
        where[id(part)] = (layer, None)
        block.b_in[: len(part.bias)] = part.bias
        for slot, matrix in part.reads["m"].items():
            block.W_in[at[slot], : matrix.shape[1]] += matrix
        for slot, matrix in part.writes.items():
            block.W_out[: len(matrix), at[slot]] += matrix
    return where


def _matrices(network: PlantedTransformer) -> list[tuple[str, nn.Parameter]]:
    return [(name, weight) for name, weight in network.named_parameters() if not name.endswith("b_in")]


def _hide(network: PlantedTransformer, noise: float, generator: torch.Generator) -> None:
    """Turn the stream, so that slots are no coordinates, and add noise to every matrix."""
    width = network.W_E.shape[1]
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    for name, weight in _matrices(network):
        writes = name.split(".")[-1] in ("W_E", "W_pos", "W_O", "W_out")
        weight.copy_(weight @ turn if writes else turn.T @ weight)
        weight.add_(noise * weight.pow(2).mean().sqrt() * torch.randn(weight.shape, generator=generator))


def _alter(network: PlantedTransformer, null: str, generator: torch.Generator) -> None:
    """Take the circuit out of the weights and leave their spread."""
    for name, weight in _matrices(network):
        if null == "fresh-blocks" and not name.startswith("blocks"):
            continue
        if null == "shuffled":
            weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=generator)].view_as(weight))
        else:
            size = (3 if null == "random-x3" and name.startswith("blocks") else 1) * weight.pow(2).mean().sqrt()
            weight.copy_(size * torch.randn(weight.shape, generator=generator))


def _names(n_layers: int) -> tuple[list[tuple], list[tuple]]:
    """Writers (layer, head or None) and readers (layer, port, head or None); the embedding and the output are ()."""
    writers, readers = [()], []
    for layer in range(n_layers):
        writers += [*((layer, head) for head in range(HEADS)), (layer, None)]
        readers += [*((layer, port, head) for port in "qkv" for head in range(HEADS)), (layer, "m", None)]
    return writers, [*readers, ()]


def _before(writer: tuple, reader: tuple) -> bool:
    if not writer or not reader:
        return True
    return writer[0] < reader[0] or (writer[0] == reader[0] and writer[1] is not None and reader[1] == "m")


def _shown(node: tuple) -> str:
    """As figures call it: L0H3, L1M, L1H2.k."""
    layer, *port, head = node
    name = f"L{layer}M" if head is None else f"L{layer}H{head}"
    return name + (f".{port[0]}" if port and head is not None else "")


def _circuit(
    design: Design, parts: Sequence[Part], where: dict[int, tuple], writers: list[tuple], readers: list[tuple]
) -> Bool[Tensor, "writer reader"]:
    """The edges along which a letter can reach an answer, by the design: who writes what is read by whom."""
    edges = torch.zeros(len(writers), len(readers), dtype=torch.bool)
    sources = {"tok": [()]}
    for part in design.parts:
        for slot in part.writes:
            sources.setdefault(slot, []).append(where[id(part)])
    wanted, done = ["out"], set()
    into = {"out": [()]}
    for part in design.parts:
        layer, head = where[id(part)]
        for port, reads in part.reads.items():
            for slot in reads:
                into.setdefault(slot, []).append((layer, port, head))
    while wanted:
        slot = wanted.pop()
        if slot in done or slot not in sources:
            continue  # a place, the same in every prompt
        done.add(slot)
        for writer in sources[slot]:
            for reader in into[slot]:
                edges[writers.index(writer), readers.index(reader)] = True
        for part in design.parts:
            wanted += [read for reads in part.reads.values() for read in reads if slot in part.writes]
    return edges
