"""Files of techniques are read once a process and not once a suite, and again when they changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paceline.base.techniques.technique import TechniqueSource, read_source
from paceline.spec import content

FILE = '''
from paceline.families.collectives.api import technique


@technique(name="{name}", summary="a ring", family="collectives", implements=("all_reduce",))
class Ring:
    """A ring."""
'''


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []

    def reading(path: Path, *, module: str) -> list[TechniqueSource]:
        found.append(path)
        return read_source(path, module=module)

    content._declared_at.cache_clear()
    monkeypatch.setattr(content, "read_source", reading)
    return found


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour later: nobody changed a file just now."""
    now = time.time_ns()
    monkeypatch.setattr(content.time, "time_ns", lambda: now + 3_600_000_000_000)


def write(path: Path, name: str) -> Path:
    path.write_text(FILE.format(name=name))
    return path


@pytest.mark.usefixtures("later")
def test_suites_of_a_family_read_its_techniques_once(read: list[Path]) -> None:
    first = content.techniques("collectives")
    assert len(read) == len(set(read)) >= len({source.path for source in first.values()})
    read.clear()
    assert content.techniques("collectives") == first
    assert read == []


@pytest.mark.usefixtures("later")
def test_a_file_of_another_content_is_read_again_though_size_and_time_are_the_same(
    tmp_path: Path, read: list[Path]
) -> None:
    path = write(tmp_path / "mine.py", "own-ring-a")
    status = path.stat()
    assert "own-ring-a" in content.techniques("collectives", extra=[path])
    read.clear()
    assert "own-ring-a" in content.techniques("collectives", extra=[path])
    assert read == []
    write(path, "own-ring-b")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert "own-ring-b" in content.techniques("collectives", extra=[path])
    assert read == [path.resolve()]


def test_a_file_that_was_changed_just_now_is_read_each_time(tmp_path: Path, read: list[Path]) -> None:
    path = write(tmp_path / "mine.py", "own-ring-a")
    os.utime(path, ns=(time.time_ns() + 10**12, time.time_ns() + 10**12))
    for _ in range(2):
        content.techniques("collectives", extra=[path])
    assert read.count(path.resolve()) == 2
