"""Pipelines on a carrier that runs operations in the order of their start: no table makes ranks wait forever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from paceline.baselines.training import gpipe, interleaved_one_f_one_b, one_f_one_b, zb_h1, zb_h2

from paceline.families.training.api.pipeline.executor import PipelineReplica
from paceline.families.training.api.pipeline.ordered import Message, OrderedMessages, messages
from paceline.families.training.api.pipeline.schedule import Action, Table, times
from paceline.families.training.api.replica import UnsupportedError
from paceline.worker.communication.ledger import RENDEZVOUS, Ledger, Operation

TECHNIQUES: dict[str, tuple[type[PipelineReplica], int]] = {
    "gpipe": (gpipe.GPipe, 1),
    "1f1b": (one_f_one_b.OneFOneB, 1),
    "interleaved": (interleaved_one_f_one_b.InterleavedOneFOneB, 2),
    "zb-h1": (zb_h1.ZbH1, 1),
    "zb-h2": (zb_h2.ZbH2, 1),
}
SIZES = [(ranks, microbatches) for ranks in (1, 2, 3, 4, 8) for microbatches in (1, 2, 3, 4, 8, 16)]
EXCHANGE = "exchange of a pass"


class Noting:
    """A communicator that notes when its carrier would start what."""

    def __init__(self, started: list[Operation]) -> None:
        self._started = started

    def start(self, *, sends: Sequence[Any] = (), receives: Sequence[Any] = ()) -> Noted:
        operation = Operation(
            sends=tuple((peer, t.numel() * 4) for t, peer in sends),
            receives=tuple((peer, t.numel() * 4) for t, peer in receives),
        )
        return Noted(self._started, operation, at_once=bool(sends))


class Noted:
    """Begins at once with a send in it, and otherwise when it is waited for."""

    def __init__(self, started: list[Operation], operation: Operation, *, at_once: bool) -> None:
        self._started, self._operation, self._done = started, operation, False
        if at_once:
            self.wait()

    def wait(self) -> None:
        if not self._done:
            self._started.append(self._operation)
        self._done = True


def table_of(name: str, ranks: int, microbatches: int) -> tuple[Table, int] | None:
    """Return a technique's table and its number of stages; None where it has none of the size."""
    kind, chunks = TECHNIQUES[name]
    replica = object.__new__(kind)
    vars(replica)["chunks"] = chunks
    try:
        return replica.schedule(ranks, microbatches), ranks * chunks
    except UnsupportedError:
        return None


def follow(table: Table, num_stages: int, place: int, *, exchanging: bool) -> list[Operation]:
    """Return what a rank starts in two steps: it goes through its row, and no call waits for another rank."""
    started: list[Operation] = []
    comm: Any = Noting(started)
    line = range(len(table))
    ordered = OrderedMessages(comm, line, place, table, num_stages)
    sent = dict(messages(table[place], num_stages))
    coming = {m for row in table if row is not table[place] for _, m in messages(row, num_stages)}
    for _ in range(2):
        ordered.begin((2,), torch.device("cpu"))
        for action in table[place]:
            ordered.come_to(action)
            kind = "F" if action.kind == "F" else "B"
            needed = Message(kind, action.stage, action.microbatch)
            if action.kind != "W" and needed in coming and needed.stage % len(line) == place:
                assert ordered.take(needed).numel() == 2
            if exchanging:
                started.append(Operation(collective=f"{EXCHANGE} {action.kind}"))
            message = sent.get(action)
            if message is not None and message.stage % len(line) != place:
                ordered.send(message, torch.zeros(2))
        ordered.finish()
    return started


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_table_ends_where_operations_run_in_the_order_of_their_start(
    name: str, ranks: int, microbatches: int
) -> None:
    found = table_of(name, ranks, microbatches)
    if found is None:
        return
    table, num_stages = found
    rows = [follow(table, num_stages, place, exchanging=False) for place in range(ranks)]
    ledger = Ledger(ranks)
    for rank, operations in enumerate(rows):
        ledger.add(rank, operations)
    ledger.settle()
    assert ledger.breach is None
    assert ledger.finished == [len(operations) for operations in rows]


def test_every_technique_has_tables_of_several_sizes() -> None:
    for name in TECHNIQUES:
        assert sum(table_of(name, *size) is not None for size in SIZES) >= 8


@pytest.mark.parametrize("name", TECHNIQUES)
def test_ranks_that_share_a_stage_s_layers_exchange_inside_its_passes(name: str) -> None:
    found = table_of(name, 2, 4)
    assert found is not None
    table, num_stages = found
    # Two pipelines beside each other, ranks 2·place and 2·place + 1: a pass exchanges between them.
    rows: list[list[Operation]] = [[] for _ in range(4)]
    for place in range(2):
        for operation in follow(table, num_stages, place, exchanging=True):
            for twin in range(2):
                if operation.collective:
                    other = ((2 * place + 1 - twin, 8),)
                    rows[2 * place + twin].append(Operation(sends=other, receives=other))
                else:
                    sends = tuple((2 * peer + twin, size) for peer, size in operation.sends)
                    receives = tuple((2 * peer + twin, size) for peer, size in operation.receives)
                    rows[2 * place + twin].append(Operation(sends=sends, receives=receives))
    ledger = Ledger(4)
    for rank, operations in enumerate(rows):
        ledger.add(rank, operations)
    ledger.settle()
    assert ledger.breach is None
    assert ledger.finished == list(map(len, rows))


def test_what_the_executor_does_over_gloo_would_wait_forever_there() -> None:
    found = table_of("1f1b", 2, 4)
    assert found is not None
    table, _ = found
    ledger = Ledger(2)
    for place, row in enumerate(table):
        operations = []
        for action in row:
            needs = (action.kind == "F" and place == 1) or (action.kind == "B" and place == 0)
            if needs:
                operations.append(Operation(receives=((1 - place, 8),)))
            if (action.kind == "F") == (place == 0):
                operations.append(Operation(sends=((1 - place, 8),)))
        ledger.add(place, operations)
    ledger.settle()
    assert ledger.breach is not None
    assert ledger.breach.endswith(RENDEZVOUS)


def test_times_are_those_of_passes_one_unit_long() -> None:
    found = table_of("gpipe", 2, 2)
    assert found is not None
    spans = times(*found)
    assert spans[Action("F", 0, 0)] == (0, 1)
    assert spans[Action("F", 1, 0)] == (1, 2)
    assert max(end for _, end in spans.values()) == 6
