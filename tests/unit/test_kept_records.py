"""Commands that show records read a sealed file once, and then what the user's cache has of it: the outputs are one."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import record_factory as factory
from click.testing import CliRunner
from test_page_cache import HOSTS, write

from paceline.cli import application
from paceline.records.format.record import Measurement
from paceline.records.store import index as store_index
from paceline.records.store.folder import Places, RunRecord, record_paths
from paceline.records.store.index import SUFFIX, RecordIndex
from paceline.workflows import stores

COMMANDS = [
    ["summary", "--json"],
    ["trend"],
    # both load every suite, time and again
    pytest.param(["claims", "--json"], marks=pytest.mark.full),
    pytest.param(["site", "findings"], marks=pytest.mark.full),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    return tmp_path / "results"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, which keeps an index of every file."""
    monkeypatch.setenv(stores.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(stores, "SMALLEST_KEPT", 0)
    return tmp_path / "cache"


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were read as a whole for an index."""
    found: list[Path] = []
    real = store_index.read_placed

    def read_placed(path: Path) -> tuple[RunRecord, Places]:
        found.append(path)
        return real(path)

    monkeypatch.setattr(store_index, "read_placed", read_placed)
    return found


def said(*arguments: str, results: Path) -> tuple[int, str]:
    result = CliRunner().invoke(application, [*arguments, f"--results={results}"])
    return result.exit_code, result.output


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob(f"*{SUFFIX}"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_the_same_of_files_and_of_what_was_kept_of_them(
    store: Path, cache: Path, whole: list[Path], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    first = said(*command, results=store)
    assert whole == record_paths(store)
    assert len(entries(cache)) == len(HOSTS)
    assert said(*command, results=store) == first
    assert len(whole) == len(HOSTS)
    monkeypatch.setenv(stores.CACHE_VARIABLE, "")
    assert said(*command, results=store) == first
    assert len(whole) == len(HOSTS)  # whoever has no cache has no index


def test_the_gate_keeps_nothing_and_believes_nothing_that_was_kept(
    store: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = (path.name.split(".")[0] for path in record_paths(store))
    text = said("gate", last, f"--against={first}", results=store)
    assert entries(cache) == []
    said("summary", results=store)
    assert len(entries(cache)) == len(HOSTS)

    def refuse(self: RecordIndex, path: Path) -> RunRecord:
        raise AssertionError(f"{path} was asked of an index")

    monkeypatch.setattr(RecordIndex, "read", refuse)
    assert said("gate", last, f"--against={first}", results=store) == text


def test_a_file_that_changed_is_read_again_and_its_fault_is_told(store: Path, cache: Path) -> None:
    said("summary", results=store)
    path = record_paths(store)[0]
    factory.rewrite(path, lambda data: data.replace(b'"launch":0', b'"launch":9'))
    assert "the content does not fit the seal" in said("summary", results=store)[1]
    assert len(entries(cache)) == len(HOSTS)


def test_what_checks_merges_and_repairs_reads_the_files(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "results"
    for _ in HOSTS:
        factory.simple(store)
    said("summary", results=store)
    assert len(entries(cache)) == len(HOSTS)

    def refuse(self: RecordIndex, path: Path) -> RunRecord:
        raise AssertionError(f"{path} was asked of an index")

    monkeypatch.setattr(RecordIndex, "read", refuse)
    other = tmp_path / "other"
    other.mkdir()
    for command in (["verify"], ["ls"], ["repair"]):
        assert said("store", *command, results=store)[0] == 0, command
    assert said("store", "merge", str(store), results=other)[0] == 0
    assert len(record_paths(other)) == len(HOSTS)


def test_a_cache_in_which_others_may_write_is_not_believed(
    store: Path, cache: Path, whole: list[Path]
) -> None:
    said("summary", results=store)
    assert cache.stat().st_mode & 0o777 == 0o700
    whole.clear()
    cache.chmod(0o722)
    assert stores.user_index() is None
    said("summary", results=store)
    cache.chmod(0o700)
    assert stores.user_index() is not None
    assert whole == []


def test_a_cache_can_be_deleted_and_may_be_no_folder(store: Path, cache: Path) -> None:
    first = said("summary", results=store)
    for entry in entries(cache):
        entry.unlink()
    assert said("summary", results=store) == first
    for entry in entries(cache):
        entry.unlink()
    cache.rmdir()
    cache.write_text("no folder")
    assert said("summary", results=store) == first


def test_small_files_are_not_kept(store: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "SMALLEST_KEPT", 16 << 10)
    said("summary", results=store)
    assert not cache.exists()


def test_a_cache_beyond_its_bound_loses_what_was_asked_for_longest_ago(store: Path, cache: Path) -> None:
    said("summary", results=store)
    kept = entries(cache)
    for age, entry in enumerate(kept):
        os.utime(entry, (1000 - age, 1000 - age))
    index = stores.user_index()
    assert index is not None
    index.prune_to(sum(entry.stat().st_size for entry in kept[:2]))
    assert entries(cache) == kept[:2]
    loaded = stores.load_kept(store)
    assert all(entry.stat().st_mtime > 10**6 for entry in entries(cache))
    assert sum(isinstance(r.measurements[0], Measurement) for r in loaded.records) == 1


def test_no_home_folder_means_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(stores.CACHE_VARIABLE)
    monkeypatch.setattr(stores, "home_folder", lambda: tmp_path)
    index = stores.user_index()
    assert index is not None
    assert index.folder == tmp_path / ".cache" / "paceline" / "records"
    monkeypatch.setattr(stores, "home_folder", lambda: None)
    assert stores.user_index() is None


def test_what_was_read_is_not_looked_through_for_cycles_again(store: Path, cache: Path) -> None:
    before = gc.get_freeze_count()
    records = stores.load_kept(store).records
    assert gc.isenabled()
    assert gc.get_freeze_count() > before
    assert all(one is not record for one in gc.get_objects() for record in records)
