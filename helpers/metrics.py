"""What a run is measured by: a number per prompt from the logits, and which positions and tokens it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.errors import HookbookError

Index = int | list[int] | Int[Tensor, "unit"] | Int[Tensor, "unit read"]
Tokens = int | list[int] | Int[Tensor, "unit"] | Int[Tensor, "unit token"]


@dataclass(frozen=True, eq=False)
class Metric:
    """One number per prompt from the logits; it says what it reads, so that nothing else need be computed.

    Made by one of the functions below, e.g. `Metric.logit_difference(mary, john)`. A token or position is one number
    for all prompts or one per prompt. Positions are columns of the token tensor; negative ones count from the end of
    each prompt's own tokens, wherever the padding stands.

    Attributes:
        name: what figures and tables call it.
        reduce: logits that are read [copy, unit, read, token] -> [copy, unit]; its second argument are the indices of
            the units, for what differs between prompts.
        position: which positions are read; None for all of them.
        tokens: which tokens are read, [unit, token] or [1, token]; None for the whole vocabulary.
    """

    name: str
    reduce: Callable[[Float[Tensor, "copy unit read token"], Int[Tensor, "unit"]], Float[Tensor, "copy unit"]]
    position: Index | None = -1
    tokens: Int[Tensor, "unit token"] | None = None

    @staticmethod
    def logit(token: Tokens, position: Index = -1) -> Metric:
        """The logit of a token (the mean over several), summed over the positions."""
        return Metric("logit", lambda logits, _: logits.mean(-1).sum(-1), position, _columns(token))

    @staticmethod
    def logit_difference(correct: Tokens, wrong: Tokens, position: Index = -1) -> Metric:
        """The logit of the correct token minus that of the wrong one; of several tokens, their mean.

        It stays the same when all logits of a position shift by a constant, as folding shifts them.
        """
        right, other = _columns(correct), _columns(wrong)
        n_units = max(len(right), len(other))
        both = torch.cat([_stretch(right, n_units), _stretch(other, n_units)], dim=1)
        n_right = right.shape[1]

        def reduce(logits: Tensor, _: Tensor) -> Tensor:
            return (logits[..., :n_right].mean(-1) - logits[..., n_right:].mean(-1)).sum(-1)

        return Metric("logit difference", reduce, position, both)

    @staticmethod
    def log_prob(token: Int[Tensor, "unit read"] | Tokens, position: Index = -1) -> Metric:
        """The log-probability (nats) of a token; of an answer of several tokens [unit, read], one at each position."""
        answer = _columns(token)

        def reduce(logits: Tensor, units: Tensor) -> Tensor:
            wanted = _of(answer, units)[None, :, :, None].to(logits.device)
            if wanted.shape[2] != logits.shape[2]:
                raise HookbookError(
                    f"log_prob has {wanted.shape[2]} tokens and {logits.shape[2]} positions: give one token each."
                )
            chosen = logits.gather(-1, wanted.expand(len(logits), -1, -1, 1))[..., 0]
            return (chosen - logits.logsumexp(-1)).sum(-1)

        return Metric("log-probability", reduce, position)

    @staticmethod
    def kl(reference: Float[Tensor, "unit token"], position: int | Int[Tensor, "unit"] = -1) -> Metric:
        """How far (nats) the next-token distribution is from a reference: KL(reference || run).

        Args:
            reference: the reference's logits at the position read, one row a prompt.
            position: where the run is read.
        """
        expected = reference.log_softmax(-1)

        def reduce(logits: Tensor, units: Tensor) -> Tensor:
            wanted = _of(expected, units)[:, None].to(logits.device)
            return (wanted.exp() * (wanted - logits.log_softmax(-1))).sum(-1).sum(-1)

        return Metric("KL divergence", reduce, position)

    @staticmethod
    def several(metrics: Sequence[Metric]) -> Metric:
        """Several metrics of one read: `reduce` returns them along a last axis [copy, unit, metric].

        Raises:
            HookbookError: none, or metrics that read different positions.
        """
        if not metrics:
            raise HookbookError("metric=[]: name at least one.")
        rows = [one._rows() for one in metrics]
        if any((row is None) != (rows[0] is None) or row is not None and not row.equal(rows[0]) for row in rows):
            raise HookbookError("Metrics that are measured together must read the same positions: sweep for each.")

        def reduce(logits: Tensor, units: Tensor) -> Tensor:
            return torch.stack([one.reduce(one._chosen(logits, units), units) for one in metrics], dim=-1)

        return Metric(" and ".join(one.name for one in metrics), reduce, metrics[0].position)

    @staticmethod
    def of(metric: Metric | Callable[[Float[Tensor, "unit pos token"]], Float[Tensor, "unit"]]) -> Metric:
        """The metric itself, or a function of the full logits of all prompts, which then must all be computed.

        Raises:
            HookbookError: the function does not return one number per prompt.
        """
        if isinstance(metric, Metric):
            return metric

        def reduce(logits: Tensor, units: Tensor) -> Tensor:
            results = [torch.as_tensor(metric(one)) for one in logits]
            for result in results:
                if result.numel() != len(units):
                    raise HookbookError(
                        f"The metric returned {result.numel()} numbers for {len(units)} prompts: "
                        "return one per prompt, not their mean."
                    )
            return torch.stack([result.reshape(-1) for result in results])

        return Metric(getattr(metric, "__name__", "metric"), reduce, None)

    def reads(self, mask: Bool[Tensor, "unit pos"]) -> Int[Tensor, "unit read"]:
        """The columns that are read in prompts whose tokens are where `mask` is true.

        Raises:
            HookbookError: a position outside a prompt, or positions or tokens for another number of prompts.
        """
        n_units, n_pos = mask.shape
        for what, given in (("tokens", self.tokens), ("positions", self._rows())):
            if given is not None and len(given) not in (1, n_units):
                raise HookbookError(f"The metric names {what} of {len(given)} prompts, but there are {n_units}.")
        if self.position is None:
            return torch.arange(n_pos).expand(n_units, n_pos)
        rows = _stretch(self._rows(), n_units)
        columns = torch.where(rows < 0, last(mask)[:, None] + 1 + rows, rows)
        inside = (columns >= 0) & (columns < n_pos)
        inside &= mask.cpu().gather(1, columns.clamp(0, n_pos - 1))
        if not inside.all():
            unit, read = (~inside).nonzero()[0].tolist()
            raise HookbookError(
                f"The metric reads position {int(rows[unit, read])}, where prompt {unit} has no token: "
                "name a position inside every prompt."
            )
        return columns

    def token_ids(self, units: Int[Tensor, "unit"]) -> Int[Tensor, "unit token"] | None:
        """The tokens that are read in these prompts; None for the whole vocabulary."""
        return None if self.tokens is None else _of(self.tokens, units)

    def _chosen(self, logits: Float[Tensor, "copy unit read token"], units: Int[Tensor, "unit"]) -> Tensor:
        """Of the logits of a whole vocabulary those that the metric reads."""
        tokens = self.token_ids(units)
        if tokens is None:
            return logits
        index = tokens.to(logits.device)[None, :, None]
        return logits.gather(-1, index.expand(len(logits), -1, logits.shape[2], -1))

    def _rows(self) -> Int[Tensor, "unit read"] | None:
        return None if self.position is None else _columns(self.position)


def last(mask: Bool[Tensor, "unit pos"]) -> Int[Tensor, "unit"]:
    """The column of each prompt's last token."""
    n_pos = mask.shape[1]
    return (mask.cpu() * torch.arange(n_pos)).amax(1)


def _columns(given: Index | Tokens) -> Int[Tensor, "unit token"]:
    values = torch.as_tensor(given).cpu()
    if values.is_floating_point() or values.ndim > 2:
        raise HookbookError("Tokens and positions of a metric are whole numbers: one, one per prompt, or rows of them.")
    return values.reshape(-1, 1) if values.ndim < 2 else values


def _stretch(rows: Tensor, n_units: int) -> Tensor:
    return rows if len(rows) == n_units else rows.expand(n_units, -1)


def _of(rows: Tensor, units: Int[Tensor, "unit"]) -> Tensor:
    """The rows of these units, where one row stands for all of them."""
    return rows.expand(len(units), -1) if len(rows) == 1 else rows[units.cpu()]
