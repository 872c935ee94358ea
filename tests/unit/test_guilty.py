"""Which of several ranks that wait for each other holds the others up, read from their traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.worker.communication.trace import TraceWriter
from paceline.worker.launches.watchdog import guilty, inspect


def write_rank(folder: Path, rank: int, *, before: int, in_call: int) -> None:
    """Leave the trace of a rank that waits in its last operation."""
    trace = TraceWriter(folder / f"trace-{rank}.bin")
    trace.context("b0|healthy|measure")
    for _ in range(before):
        trace.leave(trace.enter("send", 0, 8))
    trace.context("b0|faulty|gate")
    trace.begin_call()
    for _ in range(in_call):
        trace.leave(trace.enter("send", 0, 8))
    trace.enter("recv", 0, 8)


@pytest.mark.parametrize(
    ("before", "in_call", "held_up_by"),
    [
        ((6, 6, 6), (4, 3, 4), 1),
        # a root sends more than others in the blocks before: that says nothing of this call
        ((2, 6, 6), (4, 3, 4), 1),
        ((6, 6, 2), (3, 4, 4), 0),
    ],
)
def test_the_rank_that_is_behind_in_its_call_holds_the_others_up(
    before: Sequence[int], in_call: Sequence[int], held_up_by: int, tmp_path: Path
) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, before=before[rank], in_call=in_call[rank])
    reports = inspect(tmp_path, range(3), since_ns=0)
    assert {r.state for r in reports} <= {"running", "waiting"}, os.getpid()
    found = guilty(reports)
    assert found is not None
    assert found.rank == held_up_by
    assert found.operations == before[held_up_by] + in_call[held_up_by] + 1
