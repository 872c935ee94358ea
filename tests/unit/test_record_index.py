"""A build of the site reads a record file once; what it needs later comes from an index of its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
import record_factory as factory
from test_page_cache import HOSTS, write

from paceline.base.errors import UserError
from paceline.records.format.record import Measurement
from paceline.records.format.record_file import Member
from paceline.records.store import index as store_index
from paceline.records.store.folder import Place, Places, RunRecord, load, read_record, record_paths
from paceline.records.store.index import SUFFIX, Lines, RecordIndex
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.indexing import make_indexes, writing_jobs
from paceline.report.site.page_cache import PageCache


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    return tmp_path / "results"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the lines that were read one by one."""
    found: list[str] = []
    real = Lines.read

    def read(self: Lines, place: Place) -> object:
        line = real(self, place)
        found.append(line.line)
        return line

    monkeypatch.setattr(Lines, "read", read)
    return found


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were read as a whole."""
    found: list[Path] = []
    real = store_index.read_placed

    def read_placed(path: Path) -> tuple[RunRecord, Places]:
        found.append(path)
        return real(path)

    monkeypatch.setattr(store_index, "read_placed", read_placed)
    return found


def indexed(store: Path) -> tuple[RecordIndex, list[RunRecord]]:
    index = RecordIndex(folder=store.parent / "cache")
    records = load([store], read=index.read).records
    index.write()
    return index, records


def site(store: Path, *, index: bool) -> dict[str, str | bytes]:
    if not index:
        return dict(render_site(SiteInput(loaded=load([store]))))
    folder = store.parent / "cache"
    lines, pages = RecordIndex(folder=folder), PageCache(folder=folder)
    given = SiteInput(loaded=load([store], read=lines.read))
    files = dict(render_site(given, cache=pages, more_jobs=writing_jobs(lines)))
    pages.prune()
    lines.prune()
    return files


def test_an_index_stands_for_every_field_of_every_line(store: Path) -> None:
    indexed(store)
    _, again = indexed(store)
    for found in again:
        real = read_record(found.path)
        assert (found.run, found.events, found.sealed, found.sha256) == (
            real.run,
            real.events,
            True,
            real.sha256,
        )
        assert len(found.measurements) == len(real.measurements) > 0
        for one, other in zip(found.measurements, real.measurements, strict=True):
            assert not isinstance(one, Measurement)
            for name in Measurement.model_fields:
                assert getattr(one, name) == getattr(other, name), name


def test_a_build_after_one_more_night_reads_no_measurement_of_the_nights_before(
    store: Path, asked: list[str], whole: list[Path]
) -> None:
    first = site(store, index=True)
    whole.clear()
    assert site(store, index=True) == first == site(store, index=False)
    assert not asked
    assert not whole
    new = write(store, 7, "another CPU")
    assert site(store, index=True) == site(store, index=False)
    assert not asked
    assert whole == [new]


def test_several_processes_make_the_indexes_that_are_missing(store: Path, whole: list[Path]) -> None:
    index = RecordIndex(folder=store.parent / "cache")
    paths = record_paths(store)
    assert sorted(index.without(paths)) == paths
    assert sorted(make_indexes(index, index.without(paths), 2)) == sorted(map(str, paths))
    assert index.without(paths) == []
    assert [r.sha256 for r in load([store], read=index.read).records] == [
        r.sha256 for r in load([store]).records
    ]
    assert not whole  # in this process
    assert index.unwritten == []


def test_where_no_index_can_be_kept_none_is_made(store: Path) -> None:
    (store.parent / "cache").write_text("no folder")
    index = RecordIndex(folder=store.parent / "cache")
    assert index.without(record_paths(store)) == []
    assert len(load([store], read=index.read).records) == len(HOSTS)


def test_what_cannot_be_read_is_told_by_who_reads_it(store: Path) -> None:
    paths = record_paths(store)
    paths[0].write_bytes(paths[0].read_bytes()[:-40])
    index = RecordIndex(folder=store.parent / "cache")
    assert sorted(make_indexes(index, paths, 2)) == sorted(map(str, paths))
    assert index.without(paths) == paths[:1]
    found = load([store], read=index.read)
    assert [Path(problem.path) for problem in found.problems] == paths[:1]
    assert "ends too early" in found.problems[0].what


def test_a_metric_that_its_family_tells_otherwise_by_now_is_looked_into(
    store: Path, whole: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(store)
    monkeypatch.setattr(store_index, "mistold", lambda family, metric: "another direction")
    whole.clear()
    indexed(store)
    assert len(whole) == len(HOSTS)


def test_a_long_line_is_read_when_its_fields_are_asked_for(
    store: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_index, "MOST_BYTES", 10)
    indexed(store)
    one = indexed(store)[1][0].measurements[0]
    assert one.value is not None
    assert asked == []
    assert one.samples == read_record(indexed(store)[1][0].path).measurements[0].samples
    assert asked == ["measurement"]


def test_a_file_that_became_another_is_read_again(store: Path, whole: list[Path]) -> None:
    _, records = indexed(store)
    path = records[0].path
    text = path.read_bytes()
    path.write_bytes(text)  # the same bytes at another time
    whole.clear()
    _, again = indexed(store)
    assert whole == [path]
    assert isinstance(again[0].measurements[0], Measurement)
    factory.rewrite(path, lambda data: data.replace(b'"launch":0', b'"launch":9'))
    index = RecordIndex(folder=store.parent / "cache")
    with pytest.raises(UserError, match="does not fit the seal"):
        index.read(path)


@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied", "another's"])
def test_a_damaged_index_is_made_anew(store: Path, asked: list[str], harm: str) -> None:
    index, _ = indexed(store)
    entries = sorted(index.folder.glob(f"*{SUFFIX}"))
    assert len(entries) == len(HOSTS)
    data = entries[0].read_bytes()
    entries[0].write_bytes(
        {
            "cut": data[:-5],
            "flipped": data[:40] + bytes([data[40] ^ 1]) + data[41:],
            "emptied": b"",
            "another's": entries[1].read_bytes(),
        }[harm]
    )
    _, again = indexed(store)
    assert sum(isinstance(r.measurements[0], Measurement) for r in again) == 1
    assert {r.run_id for r in again} == {r.run_id for r in load([store]).records}
    assert entries[0].read_bytes() == data


def test_a_line_of_a_file_that_changed_meanwhile_is_not_believed(store: Path) -> None:
    indexed(store)
    _, again = indexed(store)
    fresh = Lines(again[0].path, [0, 0, 0, 0, 0])
    with pytest.raises(UserError, match="was changed while it was read"):
        fresh.read((0, 10))
    with pytest.raises(UserError, match="not a legal record line"):
        Lines(again[0].path, _stamp(again[0].path)).read((1, 10))


def test_runs_that_go_on_have_no_index_and_unasked_ones_are_removed(store: Path) -> None:
    index, records = indexed(store)
    plain = factory.unpack(records[0].path)
    partial = plain.rename(plain.with_name(plain.name + ".partial"))
    index.wanted.clear()
    record = index.read(partial)
    assert isinstance(record.measurements[0], Measurement)
    index.prune()
    assert not list(index.folder.glob(f"*{SUFFIX}"))


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino]


def test_no_file_stays_open(store: Path) -> None:
    indexed(store)
    before = len(list(Path("/proc/self/fd").iterdir()))
    _, again = indexed(store)
    assert all(m.samples for r in again for m in r.measurements if m.status == "ok")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_long_lines_that_lie_together_are_inflated_together(
    store: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated: list[Place] = []
    real = store_index.read_around

    def around(file: BinaryIO, path: Path, members: Sequence[Member], place: Place) -> tuple[int, bytes]:
        inflated.append(place)
        return real(file, path, members, place)

    monkeypatch.setattr(store_index, "MOST_BYTES", 10)
    monkeypatch.setattr(store_index, "read_around", around)
    indexed(store)
    one = indexed(store)[1][0]
    assert [m.samples for m in one.measurements] == [m.samples for m in read_record(one.path).measurements]
    assert len(asked) > 1
    assert len(inflated) == 1
    monkeypatch.setattr(store_index, "MOST_HELD", 0)
    other = indexed(store)[1][1]
    assert [m.samples for m in other.measurements] == [
        m.samples for m in read_record(other.path).measurements
    ]
    assert len(inflated) == len(asked) // 2 + 1


def test_large_fields_of_an_index_are_read_when_somebody_asks_for_one(
    store: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(store)
    unpacked: list[int] = []
    real = store_index.zlib.decompress

    def decompress(data: bytes) -> bytes:
        unpacked.append(len(data))
        return real(data)

    monkeypatch.setattr(store_index.zlib, "decompress", decompress)
    records = indexed(store)[1]
    assert len(unpacked) == len(records)
    assert [m.value for r in records for m in r.measurements if m.status == "ok"]
    assert len(unpacked) == len(records)
    assert all(m.samples and m.correctness for m in records[0].measurements if m.status == "ok")
    assert len(unpacked) == len(records) + 1
    assert asked == []
