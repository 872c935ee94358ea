"""What grows with the number of results grows in proportion, and several processes make the same site."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from test_site import record

from paceline.base.errors import InfrastructureError, UserError
from paceline.records.store import Loaded
from paceline.report.forks import Files, Job, at_work
from paceline.report.site import SiteInput, render_site

SIZES = tuple(8 * (i + 1) for i in range(40))


def test_twice_the_rows_take_about_twice_the_time() -> None:
    def seconds(count: int) -> float:
        given = SiteInput(loaded=Loaded(records=[record(1, launches=2, sizes=SIZES[:count])]))
        begin = time.process_time()
        for _ in render_site(given):
            pass
        return time.process_time() - begin

    seconds(2)
    assert min(seconds(40) for _ in range(2)) < 2.6 * max(seconds(20) for _ in range(2))


def test_several_processes_give_the_same_files() -> None:
    given = SiteInput(loaded=Loaded(records=[record(n, launches=2, host_class=f"CPU {n}") for n in range(3)]))
    assert sorted(render_site(given, processes=3)) == sorted(render_site(given))


def done(jobs: Sequence[Job], processes: int = 2) -> list[tuple[str, str | bytes]]:
    with at_work(jobs, processes) as made:
        return list(made)


def test_a_mistake_in_a_process_arrives_and_so_does_its_death() -> None:
    def good() -> Files:
        return [("a", "b")]

    def bad() -> Files:
        raise UserError("no such thing")

    def dead() -> Files:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    assert done([good] * 5) == [("a", "b")] * 5
    with pytest.raises(UserError, match="no such thing"):
        done([good, bad])
    with pytest.raises(InfrastructureError, match="died"):
        done([good, dead])


def test_processes_begin_before_anybody_asks_and_end_when_nobody_does(tmp_path: Path) -> None:
    def job(number: int) -> Files:
        (tmp_path / str(number)).touch()
        return [(str(number), "x" * 100_000)]

    with at_work([partial(job, n) for n in range(200)], 2):
        deadline = time.monotonic() + 20
        while len(list(tmp_path.iterdir())) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(multiprocessing.active_children()) == 2
    assert 20 <= len(list(tmp_path.iterdir())) < 200, "a few ahead, not a whole site"
    assert multiprocessing.active_children() == []
