"""Layers whose matrices lie on several ranks.

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism" (2019), section
3: of a pair of matrices the first is cut by its outputs and the second by its inputs, so that what lies between needs
no exchange. The stream is copied to all ranks before a pair, where backward adds up, and added up after it, where
backward copies: two sums over ranks a layer forward, and two backward.

Shape suffixes: B sequences, T positions, D width of the stream, F a rank's features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from paceline.base.counting import number_of
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.model import Layer
from paceline.families.training.api.replica import Comm, Share, UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that share matrices, seen from one of them."""

    comm: Comm
    ranks: Sequence[int]
    place: int

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over ranks, in the shape and dtype of ``x``, with equal bits on all of them, by a ring."""
        # A copy: the ring sums in place, and x may be saved by autograd.
        total = x.contiguous().clone()
        if len(self.ranks) > 1:
            bounds = chunk_bounds(total.numel(), len(self.ranks))
            chunks = [total.view(-1)[a:b] for a, b in bounds]
            scratch = total.new_empty(2 * max(b - a for a, b in bounds))
            rings.finish(rings.reduce_scatter(self.comm, chunks, self.ranks, self.place, scratch))
            # Each element is summed on one rank and handed round: equal bits, on which norms' gradients rely.
            rings.finish(rings.all_gather(self.comm, chunks, self.ranks, self.place))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Which part of a matrix, (out, in), a rank holds: some of its rows, or some of its columns."""

    rows: tuple[tuple[int, int], ...]
    """(start, stop), one range after another."""
    columns: tuple[int, int]

    def of(self, whole: Tensor) -> Tensor:
        """Return a copy of the part."""
        return torch.cat([whole[a:b, slice(*self.columns)] for a, b in self.rows])

    def shares(self, number: int, part: Tensor, width: int) -> list[Share]:
        """Return where in the whole matrix the part belongs.

        Args:
            number: Of the parameter in the model's order.
            part: What ``of`` gave, or what has become of it.
            width: Columns of the whole.
        """
        start, stop = self.columns
        found: list[Share] = []
        pieces = torch.split(part, [b - a for a, b in self.rows])
        for (first, last), rows in zip(self.rows, pieces, strict=True):
            if stop - start == width:
                found.append((number, first * width, rows.reshape(-1)))
            else:
                begins = range(first * width + start, last * width, width)
                found += [(number, begin, row) for begin, row in zip(begins, rows, strict=True)]
        return found


class ByOutputs(nn.Module):
    """A linear layer of which this rank computes some outputs, (B, T, D) → (B, T, F)."""

    def __init__(self, group: Group, whole: nn.Linear, cut: Cut) -> None:
        super().__init__()
        self.group = group
        self.linear = _linear(cut.of(whole.weight.detach()))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return this rank's outputs."""
        # The stream is whole everywhere: no exchange forward; its gradient is a sum of all ranks' parts.
        y_BTF: Tensor = self.linear(_apply(_Copied, self.group, x_BTD))
        return y_BTF


class ByInputs(nn.Module):
    """A linear layer of which this rank has some inputs, (B, T, F) → (B, T, D): what ranks find is added up."""

    def __init__(self, group: Group, whole: nn.Linear, cut: Cut) -> None:
        super().__init__()
        self.group = group
        self.linear = _linear(cut.of(whole.weight.detach()))

    def forward(self, x_BTF: Tensor) -> Tensor:
        """Return all outputs."""
        return _apply(_Summed, self.group, self.linear(x_BTF))


def cuts(layer: Layer, ranks: int, place: int) -> dict[str, Cut]:
    """Return which part of each matrix of a layer lies at a place among ranks: whole heads, and equal features.

    Args:
        layer: The layer.
        ranks: t.
        place: Of the rank.

    Raises:
        UnsupportedError: The heads cannot be dealt out evenly.
    """
    size = layer.size
    for heads, what in ((size.heads, "heads"), (size.num_kv_heads, "heads of keys")):
        if heads % ranks:
            raise UnsupportedError(f"{heads} {what} cannot be dealt out evenly to {number_of(ranks, 'rank')}")

    def part(start: int, length: int) -> tuple[int, int]:
        share = length // ranks
        return start + place * share, start + (place + 1) * share

    width, keys = size.width, size.num_kv_heads * size.head_width
    whole = (0, width)
    # Queries, keys and values are cut apart: a plain cut of the fused matrix would give one rank queries only.
    projected = (part(0, width), part(width, keys), part(width + keys, keys))
    return {
        "qkv": Cut(rows=projected, columns=whole),
        # By inputs, at the same places as qkv's heads: what attention leaves is then already where it is needed.
        "mix": Cut(rows=(whole,), columns=part(0, width)),
        "up": Cut(rows=(part(0, 4 * width),), columns=whole),
        "down": Cut(rows=(whole,), columns=part(0, 4 * width)),
    }


def laid_out(layer: Layer, group: Group, parts: dict[str, Cut]) -> Layer:
    """Return a layer that computes what another does together with other ranks; they share its norms.

    Args:
        layer: The whole layer.
        group: The ranks.
        parts: See ``cuts``.
    """
    ranks, size = len(group.ranks), layer.size
    # No memory: its matrices are replaced below by parts.
    with torch.device("meta"):
        found = Layer(size)
    # The layer cuts features into heads by its size, so it must have the number that lies on this rank.
    found.size = replace(
        size, width=size.width // ranks, heads=size.heads // ranks, kv_heads=size.num_kv_heads // ranks
    )
    # Norms are replicated, not cut; their gradients have equal bits on all ranks (see replica).
    found.attention_norm, found.mlp_norm = layer.attention_norm, layer.mlp_norm
    kinds = {"qkv": ByOutputs, "mix": ByInputs, "up": ByOutputs, "down": ByInputs}
    for name, kind in kinds.items():
        whole = layer.get_submodule(name)
        assert isinstance(whole, nn.Linear)
        setattr(found, name, kind(group, whole, parts[name]))
    return found


def _linear(weight: Tensor) -> nn.Linear:
    """Return a linear layer with a weight, (out, in), and no bias."""
    outputs, inputs = weight.shape
    found = nn.Linear(inputs, outputs, bias=False, device="meta")
    found.weight = nn.Parameter(weight)
    return found


def _apply(function: Any, group: Group, x: Tensor) -> Tensor:
    found: Tensor = function.apply(group, x)
    return found


class _Copied(torch.autograd.Function):
    """The stream as it is; backward adds up what ranks found for it."""

    @staticmethod
    def forward(ctx: Any, group: Group, x: Tensor) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.group.sum(gradients[0])


class _Summed(torch.autograd.Function):
    """The sum over ranks; backward is the gradient as it is."""

    @staticmethod
    def forward(ctx: Any, group: Group, x: Tensor) -> Tensor:
        return group.sum(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        # After a sum the gradient of every summand is that of the sum, which all ranks have: nothing to exchange.
        return None, gradients[0]
