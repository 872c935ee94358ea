"""What grows with the number of results grows in proportion, and several processes make the same site."""

from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import record_factory
from figures import Figures
from own_time import least_seconds, lines_of
from test_site import record

from paceline.base.errors import InfrastructureError, UserError
from paceline.records.format.record import Event
from paceline.records.identity import utc
from paceline.records.store.folder import Loaded, RunRecord, load
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.forks import Files, Job, at_work

SIZES = tuple(8 * (i + 1) for i in range(40))


def rendered(count: int) -> Callable[[], object]:
    given = SiteInput(loaded=Loaded(records=[record(1, launches=2, sizes=SIZES[:count])]))
    return lambda: list(render_site(given))


def test_twice_the_rows_take_about_twice_the_lines() -> None:
    rendered(2)()
    assert lines_of(rendered(40)) < 2.1 * lines_of(rendered(20))


@pytest.mark.measured
def test_twice_the_rows_take_about_twice_the_time(figure: Figures) -> None:
    rendered(2)()
    ratio = least_seconds(rendered(40)) / least_seconds(rendered(20))
    figure("a site of twice the rows", ratio, unit="ratio", most=2.6)


def test_notes_of_all_runs_are_found_by_looking_at_each_run_once() -> None:
    looks = []

    class Watched(tuple[Event, ...]):
        def __iter__(self) -> Iterator[Event]:
            looks.append(self)
            return super().__iter__()

    made = [record(n, launches=1) for n in range(5)]
    told = [
        Event(kind="annotate", at=utc(), data={"run_id": made[n].run_id, "text": text})
        for n, text in ((3, "first"), (1, "other"), (3, "second"))
    ]
    records = [replace(r, events=Watched([*r.events, *(told if n == 4 else ())])) for n, r in enumerate(made)]
    loaded = Loaded(records=records)
    assert [[note.text for note in loaded.notes(r.run_id)] for r in records] == [
        [],
        ["other"],
        [],
        ["first", "second"],
        [],
    ]
    assert len(looks) == len(records)


@pytest.mark.parametrize("looks", [True, False])
def test_no_garbage_is_looked_for_while_a_store_is_read(tmp_path: Path, looks: bool) -> None:
    run = record_factory.make_run()
    record_factory.write(tmp_path, run, record_factory.launches(run, "native", [1.0]))
    seen = []

    def read(path: Path) -> RunRecord:
        seen.append(gc.isenabled())
        raise UserError("nothing to read")

    was = gc.isenabled()
    try:
        (gc.enable if looks else gc.disable)()
        assert [p.what for p in load([tmp_path], read=read).problems] == ["nothing to read"]
        assert seen == [False]
        assert gc.isenabled() is looks, "afterwards it is as it was"
    finally:
        (gc.enable if was else gc.disable)()


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
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(multiprocessing.active_children()) == 2
    assert 20 <= len(list(tmp_path.iterdir())) < 200, "a few ahead, not a whole site"
    assert multiprocessing.active_children() == []


def test_the_store_of_the_benchmark_is_one_that_a_site_shows(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "scale.py"
    spec = importlib.util.spec_from_file_location("scale", path)
    assert spec is not None and spec.loader is not None
    scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scale)
    scale.write_night(tmp_path, "CPU 0", 2, 0)
    files = dict(render_site(SiteInput(loaded=load([tmp_path]))))
    assert len([name for name in files if name.startswith("cases/")]) == 2
