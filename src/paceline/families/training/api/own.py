"""A module of the user's own and its batches, as techniques train them.

Techniques hand batches on to ``loss_and_gradients`` as they get them, whatever is in them. The wrapper around the
module calls it as its batches say and returns the loss, so that what a technique wraps, hooks or shards is one module
whose forward gives one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map  # public as torch.utils.pytree in later versions

Loss = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """Samples of one step: a tensor, or tensors in a tuple or a mapping, whose first axis are samples."""

    content: Any
    seeds: Tensor
    """What each sample's random numbers are drawn from, (samples,), on the host."""

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, rows: slice | Sequence[int]) -> OwnBatch:
        """Return some samples, copied."""
        where = torch.arange(len(self))[rows] if isinstance(rows, slice) else torch.tensor(rows)
        return OwnBatch(
            content=tree_map(lambda t: t[where.to(t.device)], self.content), seeds=self.seeds[where]
        )

    def to(self, device: torch.device) -> OwnBatch:
        """Return it on a device."""
        return OwnBatch(content=tree_map(lambda t: t.to(device), self.content), seeds=self.seeds)

    def split(self, count: int) -> Iterator[OwnBatch]:
        """Yield it in parts of so many samples, the last with what is left."""
        for start in range(0, len(self), count):
            yield self[slice(start, start + count)]

    @property
    def shapes(self) -> str:
        """What one sample is, in words that are equal for batches that can follow one another."""
        leaves = tree_leaves(self.content)
        return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape[1:])}" for t in leaves)


Batch = Tensor | OwnBatch
"""What a step reads: sequences of symbols, (B, S), or a batch of the user's."""


def handed_on(own: Any) -> Tensor:
    """Return a batch of the user's, or a list of them, typed as sequences: techniques hand it on as it is."""
    return cast("Tensor", own)


def on_device(batch: Batch, device: torch.device) -> Tensor:
    """Return a batch as a step reads it there: sequences as int64; of the user's as it is, which techniques hand on."""
    return handed_on(batch.to(device)) if isinstance(batch, OwnBatch) else batch.to(device).long()


class OwnModel(nn.Module):
    """Calls a user's module on batches of theirs, and returns the loss; on the family's sequences, its logits.

    A batch that is a tuple is ``(*inputs, target)`` where there is a loss function, else it is all inputs; a mapping is
    given by keyword. Without a loss function the module returns the loss: a number, or ``loss`` of what it returns.

    Args:
        inner: The module.
        loss: Called with the module's output and the target, or with the whole batch where that is no tuple.
        draws: Whether the module draws random numbers: they are then each batch's own.
    """

    def __init__(self, inner: nn.Module, loss: Loss | None, *, draws: bool) -> None:
        super().__init__()
        self.inner = inner
        self.loss = loss
        self.draws = draws
        self.narrow: torch.dtype | None = None
        """What products are computed in where that is not float32."""
        self.compiled: Callable[..., Any] | None = None
        """The module, compiled; hooks on it stay outside."""

    def forward(self, batch: Batch) -> Tensor:
        """Return the mean loss of a batch; of sequences of symbols, (B, T), the logits, (B, T, V)."""
        if not isinstance(batch, OwnBatch):
            with self._rounding(batch.device):
                logits: Tensor = self._call(batch)
            return logits.float()
        with self._drawing(batch), self._rounding(first_tensor(batch).device):
            return scalar(self._called(batch.content)).float()

    def compile_layers(self) -> None:
        """Compile the module as a whole, for the shapes that it meets."""
        self.compiled = torch.compile(self.inner.forward, dynamic=False)

    def _called(self, content: Any) -> Any:
        call = self._call
        if isinstance(content, Mapping):
            output = call(**content)
            return output if self.loss is None else self.loss(output, content)
        if not isinstance(content, tuple):
            output = call(content)
            return output if self.loss is None else self.loss(output, content)
        if self.loss is None:
            return call(*content)
        return self.loss(call(*content[:-1]), content[-1])

    @property
    def _call(self) -> Callable[..., Any]:
        return self.inner if self.compiled is None else self.compiled

    def _rounding(self, device: torch.device) -> AbstractContextManager[Any]:
        return torch.autocast(device.type, dtype=self.narrow, enabled=self.narrow is not None)

    def _drawing(self, batch: OwnBatch) -> AbstractContextManager[Any]:
        if not self.draws or not self.training:
            return nullcontext()
        # The batch's own numbers: one process that works through all ranks' batches then draws what each rank drew.
        return _Drawing(int(batch.seeds[0]), first_tensor(batch).device)


class _Drawing:
    """Draws from a seed inside, and leaves the generators as they were."""

    def __init__(self, seed: int, device: torch.device) -> None:
        kind = device.type
        self._fork = torch.random.fork_rng(
            [] if kind == "cpu" else [device], device_type="cuda" if kind == "cpu" else kind
        )
        self._seed = seed

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *error: Any) -> None:
        self._fork.__exit__(*error)


def first_tensor(batch: OwnBatch) -> Tensor:
    """Return the first tensor of a batch."""
    found = tree_leaves(batch.content)[0]
    assert isinstance(found, Tensor)
    return found


class LossError(TypeError):
    """What should be a loss is none."""


def scalar(found: Any) -> Tensor:
    """Return the loss in what a module or loss function returned.

    Raises:
        LossError: There is none, or it is no single number.
    """
    loss = found
    if isinstance(found, Mapping):
        loss = found.get("loss")
    elif not isinstance(found, Tensor):
        loss = getattr(found, "loss", None)
    if not isinstance(loss, Tensor):
        raise LossError(f"an object of type {type(found).__name__} without a tensor 'loss'")
    if loss.numel() != 1:
        raise LossError(f"a tensor of shape {list(loss.shape)}")
    return loss.reshape(())


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the parts that techniques gather and free one by one; what is in none of them is the rest.

    Of the family's model these are its layers. Of a user's module they are the children, with parameters, of the list
    or sequence of modules that holds most parameters; none where parts share some.
    """
    if not isinstance(model, OwnModel):
        return list(model.get_submodule("layers").children())
    lists = [m for m in model.inner.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    if not lists:
        return []
    largest = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
    parts = [part for part in largest.children() if any(True for _ in part.parameters())]
    if sum(p.numel() for p in largest.parameters()) == sum(p.numel() for p in model.parameters()):
        parts = parts[:-1]  # the last is the rest: closed forms count on one
    held = [id(p) for part in parts for p in part.parameters()]
    elsewhere = {
        id(p)
        for m in model.inner.modules()
        if m not in set(largest.modules())
        for p in m.parameters(recurse=False)
    }
    return parts if len(held) == len(set(held)) and elsewhere.isdisjoint(held) else []
