"""A run is found by its name without reading the others, and it is the run that reading all of them finds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import record_factory as factory

from paceline.base.errors import UserError
from paceline.records.format.record import Event
from paceline.records.format.record_file import content_of, holds, pack, run_id_of
from paceline.records.identity import utc
from paceline.records.store import integrity, lookup
from paceline.records.store.folder import RunRecord, load, read_record, record_paths
from paceline.records.store.lookup import find_measurement, find_run, find_runs, retractions


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for _ in range(3):
        factory.simple(tmp_path)
    withdrawn = factory.simple(tmp_path)
    integrity.retract(tmp_path, run_id_of(withdrawn), "wrong clock")
    note = {"run_id": run_id_of(withdrawn), "text": "a note"}
    integrity.append_event(tmp_path, Event(kind="annotate", at=utc(), run_id=run_id_of(withdrawn), data=note))
    return tmp_path


def answer(find: Callable[[str], RunRecord], name: str) -> str:
    try:
        return find(name).run_id
    except UserError as error:
        return error.what.partition(" '")[0]


def test_every_name_finds_what_reading_all_records_finds(store: Path) -> None:
    paths = record_paths(store)
    names = [
        "latest",
        "none",
        "0",
        *(run_id_of(p) for p in paths),
        *(run_id_of(p)[:-1] for p in paths),
        *map(str, paths),
    ]
    withdrawn = set(retractions([store]))
    for name in names:
        if run_id_of(Path(name)) in withdrawn or (any(w.startswith(name) for w in withdrawn) and name != "0"):
            continue
        assert answer(lambda name: find_run([store], name), name) == answer(load([store]).find, name), name


def test_only_the_file_of_the_run_is_read(store: Path) -> None:
    read: list[Path] = []

    def counted(path: Path) -> RunRecord:
        read.append(path)
        return read_record(path)

    path = record_paths(store)[1]
    assert find_run([store], run_id_of(path), read=counted).run_id == run_id_of(path)
    measured = read_record(path).measurements[-1]
    found = find_measurement([store], measured.record_id, read=counted)
    assert found is not None and found[1] == measured
    assert find_measurement([store], "native", read=counted) is None
    assert read == [path, path]


def test_a_record_of_another_store_is_found_by_its_path(store: Path, tmp_path: Path) -> None:
    """Commands print the path of what they wrote; whoever gives it back names no store."""
    path = record_paths(store)[0]
    assert find_run([tmp_path / "own"], str(path)).path == path
    (withdrawn,) = retractions([store])
    named = next(str(p) for p in record_paths(store) if run_id_of(p) == withdrawn)
    with pytest.raises(UserError, match="was retracted: wrong clock"):
        find_run([tmp_path / "own"], named)
    stray = tmp_path / path.name
    stray.write_bytes(path.read_bytes())  # in no store: whether it was withdrawn is not known
    with pytest.raises(UserError, match="has no run"):
        find_run([tmp_path / "own"], str(stray))


def test_of_several_runs_each_file_is_looked_through_once_for_what_is_withdrawn(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [run_id_of(p) for p in record_paths(store)][:3]
    asked: list[Path] = []
    whole = lookup.lines_with

    def counted(path: Path, text: bytes) -> Iterator[bytes]:
        asked.append(path)
        return whole(path, text)

    monkeypatch.setattr(lookup, "lines_with", counted)
    assert [r.run_id for r in find_runs([store], names)] == names
    assert sorted(asked) == sorted(record_paths(store))
    assert find_runs([store], []) == [] and len(asked) == len(record_paths(store))
    (withdrawn,) = retractions([store])
    with pytest.raises(UserError, match="was retracted: wrong clock"):
        find_runs([store], [names[0], withdrawn])


def test_a_file_that_stands_is_looked_into_once_and_again_when_it_changes(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    whole = lookup.lines_with

    def counted(path: Path, text: bytes) -> Iterator[bytes]:
        asked.append(path)
        return whole(path, text)

    monkeypatch.setattr(lookup, "lines_with", counted)
    paths = list(record_paths(store))
    for path in paths:
        os.utime(path, (1e9, 1e9))
    before = retractions([store])
    assert len(before) == 1 and sorted(asked) == sorted(paths)
    assert retractions([store]) == before and len(asked) == len(paths)
    changed = next(p for p in paths if any(whole(p, b'"retract"')))
    changed.write_bytes(content_of(changed).replace(b'"retract"', b'"another"'))
    assert retractions([store]) == {} and asked[len(paths) :] == [changed]
    os.utime(changed, (1.1e9, 1.1e9))
    assert retractions([store]) == {} and asked[len(paths) :] == [changed, changed]


@pytest.mark.parametrize("at", [0, 7, 65_530, 262_136, 262_140, 262_144, 599_991])
@pytest.mark.parametrize("packed", [False, True])
def test_bytes_are_found_wherever_they_stand_in_a_file(tmp_path: Path, at: int, packed: bool) -> None:
    text, size = b'"retract"', 600_000
    whole = b"x" * at + text + b"x" * (size - at - len(text))
    path = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(pack(whole) if packed else whole)
    assert holds(path, text)
    path.write_bytes(pack(whole.replace(b'"', b"'")) if packed else whole[: at + len(text) - 1])
    assert not holds(path, text)
    assert not holds(tmp_path / "none.jsonl", text)


def test_a_retracted_run_says_why_it_is_not_shown(store: Path) -> None:
    (withdrawn,) = retractions([store])
    with pytest.raises(UserError, match="was retracted: wrong clock"):
        find_run([store], withdrawn)
    path = next(p for p in record_paths(store) if run_id_of(p) == withdrawn)
    with pytest.raises(UserError, match="was retracted"):
        find_measurement([store], read_record(path).measurements[0].record_id)


def test_a_file_under_another_name_is_found_by_its_run_and_one_in_two_stores_counts_once(store: Path) -> None:
    path = record_paths(store)[0]
    other = store / "elsewhere"
    other.mkdir()
    (other / "copy.jsonl.gz").write_bytes(path.read_bytes())
    assert find_run([other / "copy.jsonl.gz"], run_id_of(path)).run_id == run_id_of(path)
    assert find_run([store, store], run_id_of(path)).run_id == run_id_of(path)
    assert find_run([store / "none", store], "latest").run_id == answer(load([store]).find, "latest")
