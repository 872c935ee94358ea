"""Batches of the user's: those that a loader gives each rank, or samples of a dataset, drawn here.

A factory is called with those of ``rank``, ``world_size``, ``seed``, ``batch_size`` (samples that a rank reads in a
step), ``split`` and ``folder`` that it names. What it returns has a length and items: these are samples, shuffled anew
for each pass, of which every tenth is held out unless the factory takes ``split``. Or it is iterable: these are one
rank's batches; when they end, it is iterated again if it gives others then, as loaders do.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, IterableDataset, default_collate

from paceline.base.counting import number_of
from paceline.families.training.api.own import OwnBatch
from paceline.families.training.core.own.generators import Generators, mixed
from paceline.families.training.core.own.loading import Named
from paceline.worker.ranks.session import CaseError

TRAIN, HELD_OUT = "train", "held_out"
HELD_OUT_SHARE = 10
"""One sample of a dataset in this many is held out."""
ARGUMENTS = ("rank", "world_size", "seed", "batch_size", "split", "folder")
BATCHES = "batches: a tensor, a tuple or a mapping of tensors whose first axis are samples"


@dataclass(slots=True)
class Stream:
    """One rank's batches under one seed, those kept that were drawn."""

    source: Any
    drawn: Generators
    batches: list[OwnBatch] = field(default_factory=list)
    iterator: Iterator[Any] | None = None
    epoch: int = 0


class OwnData:
    """Draws batches.

    Args:
        factory: The user's.
        world_size: Ranks that read.
        batch_size: Samples of a step over all ranks.

    Attributes:
        vocabulary: None is known.
        entropy_rate: As little.
        fingerprint: SHA-256 of the batches of all ranks' first step, once they were drawn.
    """

    vocabulary = 0
    entropy_rate = None

    def __init__(self, factory: Named, *, world_size: int, batch_size: int) -> None:
        self.factory, self.world_size, self.batch_size = factory, world_size, batch_size
        self.fingerprint = ""
        self._streams: OrderedDict[tuple[int, int], Stream] = OrderedDict()
        self._sources: dict[tuple[tuple[str, Any], ...], Any] = {}
        self.shapes: str | None = None

    def rank_batch(self, seed: int, step: int, rank: int) -> OwnBatch:
        """Return what a rank reads in a step.

        Raises:
            CaseError: ``invalid``: there is no such batch, or it is none, or has other samples than it should.
        """
        rows = self.batch_size // self.world_size
        stream = self._stream(seed, rank, rows)
        while len(stream.batches) <= step:
            number = len(stream.batches)
            where = f"batch {number + 1} of rank {rank}"
            if _holds_samples(stream.source):
                content = self._samples(stream.source, seed, number, rank)
            else:
                content = self._next(stream, where)
            found = self._batch(content, where, rows=rows)
            if self.shapes is None:
                self.shapes = found.shapes
            elif found.shapes != self.shapes:
                self.refuse(
                    f"gave samples {found.shapes} in {where}, and {self.shapes} before",
                    "one shape in all batches",
                )
            seeds = torch.arange(rows, dtype=torch.int64) + mixed(seed, number, rank)
            stream.batches.append(OwnBatch(content=found.content, seeds=seeds))
        return stream.batches[step]

    def whole_batch(self, seed: int, step: int) -> OwnBatch:
        """Return what all ranks read in a step: rank r's samples are the rows r, r + n, …"""
        parts = [self.rank_batch(seed, step, rank) for rank in range(self.world_size)]

        def woven(*tensors: Tensor) -> Tensor:
            return torch.stack(tensors, dim=1).flatten(0, 1)

        content = tree_map(woven, parts[0].content, *(p.content for p in parts[1:]))
        return OwnBatch(content=content, seeds=woven(*(p.seeds for p in parts)))

    def held_out(self, seed: int, count: int) -> OwnBatch:
        """Return samples that no step reads.

        Raises:
            CaseError: ``invalid``: there are fewer, or a loader's factory cannot say which.
        """
        splits = "split" in self.factory.taken(self._offered(0, 1, seed, count, HELD_OUT))
        source = self._source(0, 1, seed, count, HELD_OUT)
        if _holds_samples(source):
            kept = range(len(source)) if splits else range(0, len(source), HELD_OUT_SHARE)
            if len(kept) < count:
                self.refuse(
                    f"holds {number_of(len(kept), 'sample')} out",
                    f"eval_batch of them, {count}; or eval_batch: {len(kept)}",
                )
            content = default_collate([source[i] for i in kept[:count]])
            return self._batch(content, "what is held out", rows=count)
        if not splits:
            self.refuse(
                "returns a loader and does not take 'split'",
                f"an argument split, which is '{TRAIN}' or '{HELD_OUT}': what is judged may not be trained on",
            )
        stream, parts, have = Stream(source, Generators(seed)), [], 0
        while have < count:
            part = self._batch(
                self._next(stream, f"held-out sample {have + 1} of {count} (eval_batch)"), "held-out data"
            )
            parts.append(part)
            have += len(part)
        content = tree_map(
            lambda *tensors: torch.cat(tensors)[:count], parts[0].content, *(p.content for p in parts[1:])
        )
        return OwnBatch(content=content, seeds=torch.zeros(count, dtype=torch.int64))

    def refuse(self, what: str, expected: str) -> NoReturn:
        """Say what is wrong with the data.

        Raises:
            CaseError: ``invalid``.
        """
        raise CaseError("invalid", f"data: {self.factory.text} {what}; expected: {expected}")

    def _stream(self, seed: int, rank: int, rows: int) -> Stream:
        key = (seed, rank)
        if key not in self._streams:
            source = self._source(rank, self.world_size, seed, rows, TRAIN)
            self._streams[key] = Stream(source, Generators(mixed(seed, rank)))
        self._streams.move_to_end(key)
        # Those of a run's own steps, and of one proof beside: older ones are drawn again if they are asked for.
        while len(self._streams) > 2 * self.world_size + 1:
            self._streams.popitem(last=False)
        return self._streams[key]

    def _offered(self, rank: int, world_size: int, seed: int, rows: int, split: str) -> dict[str, Any]:
        values = (rank, world_size, seed % (1 << 31), rows, split, self.factory.folder)
        return dict(zip(ARGUMENTS, values, strict=True))

    def _source(self, rank: int, world_size: int, seed: int, rows: int, split: str) -> Any:
        taken = self.factory.taken(self._offered(rank, world_size, seed, rows, split))
        key = tuple(taken.items())
        if key in self._sources:
            return self._sources[key]
        with Generators(seed):
            source = self.factory.called(taken)
        if _holds_samples(source):
            self._sources[key] = source  # samples are drawn here, so that one object serves all seeds
        elif isinstance(source, IterableDataset):
            source = DataLoader(source, batch_size=rows, drop_last=True)
        elif isinstance(source, Tensor | str | bytes | Mapping) or not hasattr(source, "__iter__"):
            self.refuse(
                f"returned an object of type {type(source).__name__}",
                f"an iterable of {BATCHES}; or a dataset of samples",
            )
        return source

    def _samples(self, source: Any, seed: int, number: int, rank: int) -> Any:
        """Return a rank's samples of a step: each pass over the dataset is shuffled by the seed."""
        splits = "split" in self.factory.taken(self._offered(rank, 1, seed, 1, TRAIN))
        share = 1 if splits else HELD_OUT_SHARE
        count = len(source) if splits else len(source) - -(-len(source) // share)
        steps = count // self.batch_size
        if not steps:
            self.refuse(
                f"has {number_of(count, 'sample')} to train on",
                f"a step of them or more, batch {self.batch_size}",
            )
        first = number % steps * self.batch_size
        order = _order(count, seed, number // steps)
        chosen = order[first : first + self.batch_size][rank :: self.world_size]
        if not splits:
            chosen = chosen + chosen // (share - 1) + 1  # every tenth, from the first on, is held out
        try:
            with Generators(mixed(seed, rank, number)):
                return default_collate([source[int(i)] for i in chosen])
        except Exception as error:
            raise self.factory.failure(error, "gave a sample that") from error

    def _next(self, stream: Stream, where: str) -> Any:
        """Return a loader's next batch, of a next pass where this one has ended.

        Raises:
            CaseError: ``invalid``: it ended for good, or raised.
        """
        try:
            with stream.drawn:
                for _ in range(2):
                    if stream.iterator is None:
                        stream.iterator = iter(stream.source)
                    for batch in stream.iterator:
                        return batch
                    if stream.iterator is stream.source:
                        break
                    stream.iterator, stream.epoch = None, stream.epoch + 1
                    # as loaders over ranks' samples want it, so that each pass has an order of its own
                    set_epoch = getattr(getattr(stream.source, "sampler", None), "set_epoch", None)
                    if set_epoch is not None:
                        set_epoch(stream.epoch)
        except Exception as error:
            raise self.factory.failure(error, f"was asked for {where} and") from error
        self.refuse(
            f"ended before {where}",
            "as many batches as steps; or a loader that can be iterated again, which is a next pass",
        )

    def _batch(self, content: Any, where: str, rows: int | None = None) -> OwnBatch:
        content = tree_map(lambda x: torch.from_numpy(x) if isinstance(x, np.ndarray) else x, _plain(content))
        leaves = tree_leaves(content)
        other = next((x for x in leaves if not isinstance(x, Tensor) or not x.dim()), None)
        if not leaves or other is not None:
            shown = "nothing" if not leaves else f"an object of type {type(other).__name__}"
            self.refuse(f"gave {shown} in {where}", BATCHES)
        counts = sorted({len(x) for x in leaves})
        if len(counts) > 1:
            self.refuse(
                f"gave tensors of {' and '.join(map(str, counts))} samples in {where}",
                "as many in each tensor",
            )
        if rows is not None and counts[0] != rows:
            ranks = number_of(self.world_size, "rank")
            text = f"{rows}, which is batch {self.batch_size} over {ranks} (argument batch_size)"
            self.refuse(
                f"gave {number_of(counts[0], 'sample')} in {where}",
                text if rows != self.batch_size else str(rows),
            )
        return OwnBatch(content=content, seeds=torch.zeros(counts[0], dtype=torch.int64))


@lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of a pass over samples."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(count)


def digest_of(batch: OwnBatch) -> str:
    """Return SHA-256 of a batch's tensors."""
    found = hashlib.sha256()
    for tensor in tree_leaves(batch.content):
        found.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _holds_samples(source: Any) -> bool:
    """Tell whether what a factory returned are samples, to be drawn by their numbers, and no batches."""
    loader = isinstance(source, DataLoader | Tensor | str | bytes | Mapping)
    return not loader and hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _plain(content: Any) -> Any:
    """Return lists as tuples, which collating makes of tuples, and mappings of other kinds as plain ones."""
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return tuple(_plain(value) for value in content)
    return content
