"""What grows with the number of results grows in proportion, and several processes make the same site."""

from __future__ import annotations

import os
import signal
import time

import pytest
from test_site import record

from paceline.errors import InfrastructureError, UserError
from paceline.report.forks import in_order
from paceline.report.site import SiteInput, render_site
from paceline.store import Loaded

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


def test_several_processes_give_the_same_files_in_the_same_order() -> None:
    given = SiteInput(loaded=Loaded(records=[record(n, launches=2, host_class=f"CPU {n}") for n in range(3)]))
    assert list(render_site(given, processes=3)) == list(render_site(given))


def test_a_mistake_in_a_process_arrives_and_so_does_its_death() -> None:
    def good() -> list[tuple[str, str]]:
        return [("a", "b")]

    def bad() -> list[tuple[str, str]]:
        raise UserError("no such thing")

    def dead() -> list[tuple[str, str]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    assert list(in_order([good] * 5, 2)) == [("a", "b")] * 5
    with pytest.raises(UserError, match="no such thing"):
        list(in_order([good, bad], 2))
    with pytest.raises(InfrastructureError, match="died"):
        list(in_order([good, dead], 2))
