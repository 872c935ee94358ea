"""The store: what was written survives crashes, neighbours and full disks, and what was changed is noticed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from warm import warm

from paceline.base.errors import InfrastructureError, UserError
from paceline.cli import application
from paceline.records.format.record_file import content_of, lines_of, pack, plain_form, run_id_of
from paceline.records.store.folder import load, read_record, record_paths
from paceline.records.store.integrity import verify
from paceline.records.store.manifest import Entry, read_manifest
from paceline.records.store.record_writer import RecordWriter
from paceline.records.store.storage import check_writable

FOLDER = str(Path(__file__).parents[1])
WRITES_RUNS = f"""
import sys; sys.path.insert(0, {FOLDER!r})
from pathlib import Path
import record_factory as factory
for _ in range(int(sys.argv[2])):
    factory.simple(Path(sys.argv[1]))
"""
DIES_WHILE_WRITING = f"""
import os, signal, sys; sys.path.insert(0, {FOLDER!r})
from pathlib import Path
import record_factory as factory
from paceline.records.store.record_writer import RecordWriter
run = factory.make_run()
writer = RecordWriter(Path(sys.argv[1]), run)
writer.write(*factory.launches(run, "native", [1.0, 1.1]))
os.write(writer._file, b'{{"line": "measurem')
os.kill(os.getpid(), signal.SIGKILL)
"""


def python(code: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stderr=subprocess.PIPE)


@given(values=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=5))
def test_a_sealed_record_reads_back_whole(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    root = tmp_path_factory.mktemp("store")
    run = factory.make_run()
    lines = factory.launches(run, "native", values)
    path = factory.write(root, run, lines)
    record = read_record(path)
    assert record.sealed
    assert (record.run, list(record.measurements)) == (run, lines)
    assert path == root / "2026" / "11" / f"{run.run_id}.jsonl.gz"
    content = content_of(path)
    assert content == gzip.decompress(path.read_bytes())
    assert read_manifest(root).entries == {
        f"2026/11/{run.run_id}.jsonl": Entry(
            path=f"2026/11/{run.run_id}.jsonl",
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
        )
    }
    assert verify(root) == []


def test_a_measurement_is_written_once(tmp_path: Path) -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0])
    assert len(read_record(factory.write(tmp_path, run, lines + lines)).measurements) == 1


def test_a_run_in_progress_is_partial_and_shown_only_when_asked_for(tmp_path: Path) -> None:
    run = factory.make_run()
    writer = RecordWriter(tmp_path, run)
    writer.write(*factory.launches(run, "native", [1.0]))
    assert load([tmp_path]).records == []
    (found,) = load([tmp_path], partial=True).records
    assert (found.run_id, found.sealed, len(found.measurements)) == (run.run_id, False, 1)
    writer.seal()
    assert not list(tmp_path.rglob("*.partial"))
    assert load([tmp_path]).find(run.run_id).sealed


def test_a_killed_writer_leaves_a_readable_partial_that_can_be_resumed(tmp_path: Path) -> None:
    process = python(DIES_WHILE_WRITING, tmp_path)
    assert process.wait(timeout=60) == -signal.SIGKILL
    (partial,) = tmp_path.rglob("*.partial")
    assert partial.read_bytes().endswith(b'"measurem')
    record = read_record(partial)
    assert [m.launch for m in record.measurements] == [0, 1]
    writer = RecordWriter(tmp_path, record.run, resume=True)
    writer.write(*factory.launches(record.run, "native", [1.0, 1.1, 1.2]))
    assert [m.launch for m in read_record(writer.seal()).measurements] == [0, 1, 2]
    assert verify(tmp_path) == []


def test_resuming_reads_text_with_unusual_line_separators(tmp_path: Path) -> None:
    run = factory.make_run(argv=["a\u2028b\x85c\x0bd"])
    writer = RecordWriter(tmp_path, run)
    writer.abandon()
    path = RecordWriter(tmp_path, run, resume=True).seal()
    assert read_record(path).run == run


def test_a_run_has_one_writer_and_is_never_overwritten(tmp_path: Path) -> None:
    run = factory.make_run()
    writer = RecordWriter(tmp_path, run)
    with pytest.raises(UserError, match="another process is writing this run"):
        RecordWriter(tmp_path, run, resume=True)
    with pytest.raises(UserError, match="never overwritten"):
        RecordWriter(tmp_path, run)
    path = writer.seal()
    before = path.read_bytes()
    again = RecordWriter(tmp_path, run)
    with pytest.raises(UserError, match="never overwritten"):
        again.seal()
    assert path.read_bytes() == before


def test_eight_processes_write_into_one_store_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, program = tmp_path / "store", tmp_path / "writes.py"
    program.write_text(WRITES_RUNS)
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH"))))
    with (
        warm("record_factory", env={"PYTHONPATH": path}) as imported,
        (tmp_path / "errors").open("w+") as errors,
    ):
        command = [sys.executable, "-m", program.stem, str(store), "4"]
        processes = [imported.Popen(command, stderr=errors) for _ in range(8)]
        codes = [process.wait(120) for process in processes]
        assert codes == [0] * 8, (tmp_path / "errors").read_text()
    assert len(load([store]).records) == len(read_manifest(store).lines) == 32
    assert verify(store) == []


CHANGES = {
    "a flipped bit": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "a changed sample": lambda data: data.replace(b"1.01", b"1.02", 1),
    "a line taken out": lambda data: b"".join(data.splitlines(keepends=True)[i] for i in (0, 1, 3, 4, 5)),
    "a line after the seal": lambda data: data + data.splitlines(keepends=True)[1],
    "a cut end": lambda data: data[:-30],
    "nothing left": lambda data: b"",
}


@pytest.mark.parametrize("form", ["compressed", "plain"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_by_the_file_alone_and_by_the_manifest(
    tmp_path: Path, change: str, form: str
) -> None:
    path, other = factory.simple(tmp_path), factory.simple(tmp_path)
    if form == "plain":
        path = factory.unpack(path)
    before = content_of(path)
    factory.rewrite(path, CHANGES[change])
    assert content_of(path) != before
    with pytest.raises(UserError) as caught:
        read_record(path)
    assert caught.value.where and caught.value.where.startswith(str(path))
    loaded = load([tmp_path])
    assert [r.path for r in loaded.records] == [other]
    assert [p.path for p in loaded.problems] == [str(path)]
    said = [p.what for p in verify(tmp_path)]
    assert "changed since it was sealed (digest differs)" in said


def test_each_illegal_arrangement_of_legal_lines_is_named(tmp_path: Path) -> None:
    data, foreign = list(lines_of(factory.simple(tmp_path))), list(lines_of(factory.simple(tmp_path)))
    for lines, said in (
        ([*data, data[1]], "a line follows the seal"),
        ([data[0], data[0]], "a second run line"),
        ([data[1], data[0]], "does not begin with its run line"),
        ([data[0], foreign[1]], "a measurement of another run"),
        ([data[0], data[1], data[1]], "occurs twice"),
        ([data[0], data[2], data[5]], "does not fit the seal"),
    ):
        for name, data_of_it in (("a.jsonl", b"".join(lines)), ("a.jsonl.gz", pack(b"".join(lines)))):
            path = tmp_path / name
            path.write_bytes(data_of_it)
            with pytest.raises(UserError, match=said):
                read_record(path)


def test_missing_and_unknown_files_are_found(tmp_path: Path) -> None:
    gone, kept = factory.simple(tmp_path), factory.simple(tmp_path)
    gone.unlink()
    stranger = kept.with_name("stranger.jsonl.gz")
    shutil.copyfile(kept, stranger)
    found = [(p.path.rsplit("/", 1)[-1], p.what) for p in verify(tmp_path)]
    assert found == [
        (plain_form(gone).name, "missing: the manifest lists it, the folder lacks it"),
        ("stranger.jsonl.gz", "not in the manifest"),
        ("stranger.jsonl.gz", f"the file name does not fit its run id {run_id_of(kept)}"),
    ]
    assert [r.path for r in load([tmp_path]).records] == [kept]


def test_runs_are_found_by_id_prefix_or_latest(tmp_path: Path) -> None:
    paths = [factory.simple(tmp_path) for _ in range(3)]
    loaded = load([tmp_path])
    assert loaded.find("latest").path == paths[-1]
    for name in (run_id_of(paths[0]), str(paths[0]), str(plain_form(paths[0]))):
        assert loaded.find(name).path == paths[0]
    with pytest.raises(UserError, match="fits 3 runs"):
        loaded.find("0")
    with pytest.raises(UserError, match="has no run 'nothing'"):
        loaded.find("nothing")
    assert record_paths(tmp_path) == sorted(paths)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_keeps_what_was_measured_and_says_how_to_go_on(mounted: Any, tmp_path: Path) -> None:
    run = factory.make_run()
    with mounted(tmp_path / "small", "size=64k") as root:
        writer = RecordWriter(root, run)
        written = 0
        with pytest.raises(InfrastructureError, match=rf"disk is full.*\n.*run --resume {run.run_id}"):
            for launch in range(100):
                writer.write(factory.measurement(run, "native", launch, [1.0 / 3] * 300))
                written += 1
        writer.abandon()
        (partial,) = root.rglob("*.partial")
        assert 3 <= written < 100
        assert partial.read_bytes().endswith(b"}\n")
        assert len(read_record(partial).measurements) == written
        subprocess.run(["mount", "-o", "remount,size=1m", str(root)], check=True)
        resumed = RecordWriter(root, run, resume=True)
        resumed.write(factory.measurement(run, "native", 100, [1.0]))
        assert len(read_record(resumed.seal()).measurements) == written + 1
        assert verify(root) == []


def test_a_run_whose_first_line_found_no_room_begins_with_it_when_resumed(tmp_path: Path) -> None:
    run = factory.make_run()
    RecordWriter(tmp_path, run).abandon()
    (partial,) = tmp_path.rglob("*.partial")
    partial.write_bytes(b"")
    resumed = RecordWriter(tmp_path, run, resume=True)
    resumed.write(factory.measurement(run, "native", 0, [1.0]))
    assert len(read_record(resumed.seal()).measurements) == 1
    assert verify(tmp_path) == []


def test_a_limit_on_file_sizes_tears_no_line(tmp_path: Path) -> None:
    run = factory.make_run()
    writer = RecordWriter(tmp_path, run)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(InfrastructureError, match="File too large"):
            for launch in range(100):
                writer.write(factory.measurement(run, "native", launch, [1.0 / 3] * 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.abandon()
    (partial,) = tmp_path.rglob("*.partial")
    assert read_record(partial).measurements
    assert partial.read_bytes().endswith(b"}\n")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_file_system_is_named_before_anything_is_measured(mounted: Any, tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "closed", "size=64k,ro") as root,
        pytest.raises(UserError, match="read-only file system") as caught,
    ):
        check_writable(root)
    assert caught.value.fix == "--results=DIR"


def test_a_folder_without_permission_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    root = tmp_path / "closed"
    root.mkdir()
    root.chmod(0o555)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(UserError, match="cannot be written") as caught:
            check_writable(root)
    finally:
        os.seteuid(before)
    assert caught.value.fix and "--results=DIR" in caught.value.fix
    check_writable(tmp_path / "new" / "store")
    assert list((tmp_path / "new" / "store").iterdir()) == []


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(UserError, match=str(path)):
        check_writable(path)


def test_a_run_whose_sealing_failed_can_be_resumed_and_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = factory.make_run()
    writer = RecordWriter(tmp_path, run)
    writer.write(*factory.launches(run, "native", [1.0, 1.1]))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("paceline.records.format.record_file.os.link", refuse)
        with pytest.raises(InfrastructureError):
            writer.seal()
    writer.abandon()
    again = RecordWriter(tmp_path, run, resume=True)
    again.write(*factory.launches(run, "native", [1.0, 1.1]))
    record = read_record(again.seal())
    assert len(record.measurements) == 2 and record.sealed


def test_folders_of_jobs_hold_no_records(tmp_path: Path) -> None:
    factory.simple(tmp_path)
    job = tmp_path / "jobs" / "one"
    job.mkdir(parents=True)
    (job / "events-0.jsonl").write_text("{}\n")
    loaded = load([tmp_path])
    assert len(loaded.records) == 1 and loaded.problems == []


def test_a_list_of_runs_counts_as_the_runs_do_and_not_their_metrics(tmp_path: Path) -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0, 1.1])
    lines += factory.launches(run, "native", [8.0, 8.0], metric="wire_bytes")
    lines.append(factory.measurement(run, "ring", 0, [], status="timeout", reason="it hung"))
    factory.write(tmp_path, run, lines)
    told = CliRunner().invoke(application, ["store", "ls", "--results", str(tmp_path)]).stdout
    assert "2 ok, 1 timeout" in told
    (row,) = json.loads(
        CliRunner().invoke(application, ["store", "ls", "--results", str(tmp_path), "--json"]).stdout
    )
    assert row["statuses"] == {"ok": 2, "timeout": 1}
    assert row["measurements"] == {"ok": 4, "timeout": 1}
