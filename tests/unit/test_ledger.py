"""The order in which a carrier like NCCL would run what ranks have started, and who would wait forever."""

from __future__ import annotations

import random

import pytest

from paceline.worker.communication.ledger import EQUAL_SIZES, RENDEZVOUS, SAME_ORDER, Ledger, Operation


def send(to: int, size: int = 8) -> Operation:
    return Operation(sends=((to, size),))


def receive(source: int, size: int = 8) -> Operation:
    return Operation(receives=((source, size),))


def exchange(to: int, source: int) -> Operation:
    return Operation(sends=((to, 8),), receives=((source, 8),))


SUM, GATHER = (
    Operation(collective="all_reduce of 4 × float32"),
    Operation(collective="all_gather of 4 × float32"),
)
Started = list[list[Operation]]


def settled(started: Started) -> Ledger:
    """Run what ranks have started, one rank's operation after another's, in an order that must not matter."""
    found: list[tuple[list[int], str | None]] = []
    for seed in range(5):
        ledger, draw = Ledger(len(started)), random.Random(seed)
        turns = [rank for rank, operations in enumerate(started) for _ in operations]
        draw.shuffle(turns)
        places = [0] * len(started)
        for rank in turns:
            ledger.add(rank, [started[rank][places[rank]]])
            places[rank] += 1
            ledger.settle()
        found.append((ledger.finished, ledger.breach))
    if all(breach is None for _, breach in found):
        assert all(finished == found[0][0] for finished, _ in found)
    else:
        assert all(breach is not None for _, breach in found)
    return ledger


ENDING: dict[str, Started] = {
    "a send and its receive": [[send(1)], [receive(0)]],
    "a ring of exchanges": [[exchange((r + 1) % 4, (r - 1) % 4)] for r in range(4)],
    "a chain, each sending once it has received": [[send(1)], [receive(0), send(2)], [receive(1)]],
    "one rank first and the other second": [[send(1), receive(1)], [receive(0), send(0)]],
    "messages before a collective": [[send(1), SUM], [receive(0), SUM], [SUM]],
    "two messages of a pair, in order": [[send(1, 8), send(1, 16)], [receive(0, 8), receive(0, 16)]],
    "a batch whose peers come one after the other": [
        [Operation(sends=((1, 8), (2, 8)))],
        [receive(0), send(2)],
        [receive(0), receive(1)],
    ],
    "collectives in one order": [[SUM, GATHER], [SUM, GATHER], [SUM, GATHER]],
}
STUCK: dict[str, tuple[Started, str, str]] = {
    "two ranks that both send first": (
        [[send(1), receive(1)], [send(0), receive(0)]],
        RENDEZVOUS,
        "rank 0, operation 1 (send of 8 bytes to rank 1), waits for rank 1; rank 1, operation 1",
    ),
    "a ring in which all send first": (
        [[send((r + 1) % 4), receive((r - 1) % 4)] for r in range(4)],
        RENDEZVOUS,
        "rank 3, operation 1 (send of 8 bytes to rank 0), waits for rank 0",
    ),
    "a ring in which all receive first": (
        [[receive((r - 1) % 3), send((r + 1) % 3)] for r in range(3)],
        RENDEZVOUS,
        "receive of 8 bytes from rank 2",
    ),
    "collectives in two orders": ([[SUM, GATHER], [GATHER, SUM]], SAME_ORDER, "operation 1 (all_gather"),
    "a collective on one rank where another sends first": (
        [[SUM, receive(1)], [send(0), SUM]],
        SAME_ORDER,
        "rank 1, operation 1 (send of 8 bytes to rank 0), waits for rank 0",
    ),
    "sizes that differ": ([[send(1, 8)], [receive(0, 4)]], EQUAL_SIZES, "receive of 4 bytes from rank 0"),
}


@pytest.mark.parametrize("name", ENDING)
def test_what_ends_on_such_a_carrier_is_no_breach(name: str) -> None:
    ledger = settled(ENDING[name])
    assert ledger.breach is None
    assert ledger.finished == [len(operations) for operations in ENDING[name]]


@pytest.mark.parametrize("name", STUCK)
def test_what_would_wait_forever_is_told_with_rank_operation_and_rule(name: str) -> None:
    started, rule, said = STUCK[name]
    found = settled(started).breach
    assert found is not None
    assert found.endswith(f": {rule}")
    assert said in found


def test_a_rank_that_still_computes_is_waited_for() -> None:
    ledger = Ledger(3)
    ledger.add(0, [send(1)])
    ledger.add(1, [receive(2)])
    ledger.settle()
    assert ledger.breach is None
    assert ledger.finished == [0, 0, 0]
    ledger.add(2, [send(1)])
    ledger.add(1, [receive(0)])
    ledger.settle()
    assert ledger.finished == [1, 2, 1]
