"""Who builds a site is told how far it is, often on a terminal and seldom in a file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from paceline.cli.publishing import site_progress
from paceline.cli.publishing.site_progress import SiteProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time_s = [0.0]
    monkeypatch.setattr(site_progress, "_now_s", lambda: time_s[0])
    return time_s


def made(progress: SiteProgress, clock: list[float], seconds: float, files: int) -> None:
    """Make so many files, each in so many seconds."""

    def working() -> object:
        for number in range(files):
            clock[0] += seconds
            yield number

    assert list(progress.making(working())) == list(range(files))  # type: ignore[arg-type]  # a generator


def test_a_file_gets_a_line_now_and_then(clock: list[float]) -> None:
    to = io.StringIO()
    made(SiteProgress(to=to), clock, 0.5, 60)
    assert to.getvalue() == "2 files made\n22 files made\n42 files made\n"


def test_a_terminal_has_one_line_which_goes_at_the_end(clock: list[float]) -> None:
    to = Terminal()
    progress = SiteProgress(to=to)
    made(progress, clock, 0.5, 4)
    progress.done()
    assert to.getvalue() == "".join(
        f"\r\x1b[K{text}" for text in ("2 files made", "3 files made", "4 files made", "")
    )


def test_what_is_done_at_once_tells_nothing(clock: list[float]) -> None:
    to = Terminal()
    progress = SiteProgress(to=to)
    made(progress, clock, 0.01, 50)
    progress.done()
    assert to.getvalue() == ""


def test_records_that_are_read_are_counted(clock: list[float]) -> None:
    to = io.StringIO()

    def slow(path: Path) -> str:
        clock[0] += 2.0
        return path.name

    read = SiteProgress(to=to).reading(slow)
    assert [read(Path(f"{n}.jsonl")) for n in range(6)] == [f"{n}.jsonl" for n in range(6)]
    assert to.getvalue() == "1 record read\n6 records read\n"
