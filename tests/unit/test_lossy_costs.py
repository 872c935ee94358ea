"""Closed forms of the lossy techniques at counts too small for their times to be measured.

Ranks are threads that pass messages through queues, so that every count and number of ranks takes milliseconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Queue

import pytest
import torch
from thread_ranks import on_ranks_of_threads
from torch import Tensor

from paceline.base.techniques.options import options_of, taken_by
from paceline.families.collectives.api.problem import Cost, Problem

Message = tuple[Tensor, int]
TECHNIQUES = {
    "int8_ring": "Int8Ring",
    "onebit": "OneBit",
    "ternary": "Ternary",
    "topk_sparse": "TopKSparse",
}


class QueueComm:
    """Just enough of a communicator: counts what is sent, as ``Comm`` does."""

    def __init__(self, rank: int, queues: dict[tuple[int, int], Queue[Tensor]]) -> None:
        self.rank, self.queues = rank, queues
        self.sent_bytes = self.messages = 0
        self._receives: Sequence[Message] = ()

    def start(self, *, sends: Sequence[Message] = (), receives: Sequence[Message] = ()) -> QueueComm:
        for tensor, peer in sends:
            if tensor.numel():
                self.sent_bytes += tensor.numel() * tensor.element_size()
                self.messages += 1
                self.queues[self.rank, peer].put(tensor.clone())
        self._receives = [m for m in receives if m[0].numel()]
        return self

    def wait(self) -> None:
        for tensor, peer in self._receives:
            tensor.copy_(self.queues[peer, self.rank].get(timeout=60))

    def exchange(self, send: Tensor, to: int, receive: Tensor, source: int) -> None:
        self.start(sends=[(send, to)], receives=[(receive, source)]).wait()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield


def all_reduce(module: str, count: int, ranks: int) -> tuple[list[Tensor], list[QueueComm], Cost]:
    loaded = importlib.import_module(f"paceline.baselines.collectives.{module}")
    queues: dict[tuple[int, int], Queue[Tensor]] = {
        (a, b): Queue() for a in range(ranks) for b in range(ranks)
    }
    comms = [QueueComm(rank, queues) for rank in range(ranks)]
    buffers = [torch.randn(count, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
    problems = [
        Problem(
            operation="all_reduce",
            rank=rank,
            world_size=ranks,
            dtype=torch.float32,
            device=torch.device("cpu"),
            count=count,
            seed=3,
        )
        for rank in range(ranks)
    ]

    technique = getattr(loaded, TECHNIQUES[module])

    def work(rank: int) -> None:
        technique(problems[rank], comms[rank]).run(buffers[rank])

    on_ranks_of_threads(work, ranks)
    return buffers, comms, loaded.cost(problems[0], **taken_by(loaded.cost, options_of(technique)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("module", TECHNIQUES)
def test_formulas_are_exact_and_ranks_agree_at_small_and_odd_counts(module: str, ranks: int) -> None:
    for count in (1, 2, 3, 7, 9, 17, 257, 4097):
        buffers, comms, cost = all_reduce(module, count, ranks)
        assert max(c.sent_bytes for c in comms) == cost.sent_bytes, count
        assert sum(c.sent_bytes for c in comms) == cost.total_bytes, count
        assert max(c.messages for c in comms) == cost.messages, count
        assert all(torch.equal(buffer, buffers[0]) for buffer in buffers), count
        assert bool(torch.isfinite(buffers[0]).all()), count
