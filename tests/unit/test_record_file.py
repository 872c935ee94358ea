"""Record files: the same lines in either form, compressed bytes that depend on them alone, and damage that is named."""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import signal
import subprocess
import sys
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import record_factory as factory
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.base.errors import UserError
from paceline.cli import application
from paceline.records.format import record_file
from paceline.records.format.record_file import (
    MEMBER_BYTES,
    Member,
    content_of,
    lines_of,
    pack,
    packed_form,
    plain_form,
    read_around,
    run_id_of,
)
from paceline.records.store import integrity
from paceline.records.store.folder import RunRecord, is_recorded, load, read_record, record_paths
from paceline.records.store.integrity import compact, compress, verify
from paceline.records.store.manifest import MANIFEST, read_manifest
from paceline.records.store.merging import merge
from paceline.records.store.record_writer import RecordWriter


def members_in(path: Path) -> list[Member]:
    found: list[Member] = []
    list(lines_of(path, found))
    return found


LINES = st.lists(st.binary(max_size=400).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=40)


@settings(deadline=None)
@given(lines=LINES, member=st.integers(1, 2000), torn=st.binary(max_size=9).filter(lambda b: b"\n" not in b))
def test_lines_come_back_from_either_form_whole_and_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], member: int, torn: bytes
) -> None:
    folder = tmp_path_factory.mktemp("files")
    whole = [*lines, torn] if torn else lines
    content = b"".join(whole)
    plain, packed = folder / "a.jsonl", folder / "a.jsonl.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_file, "MEMBER_BYTES", member)
        patch.setattr(record_file, "_CHUNK_BYTES", 1 + member % 7)
        patch.setattr(record_file, "_READ_BYTES", 1 + member % 5)
        plain.write_bytes(content)
        packed.write_bytes(pack(content))
        assert gzip.decompress(packed.read_bytes()) == content
        for path in (plain, packed):
            assert list(lines_of(path)) == whole
            members, offset = members_in(path), 0
            with path.open("rb", buffering=0) as file:
                for line in whole:
                    begin, data = read_around(file, path, members, (offset, len(line)))
                    assert data[offset - begin :][: len(line)] == line
                    offset += len(line)


def test_the_same_lines_give_the_same_bytes_without_a_time_or_a_name(tmp_path: Path) -> None:
    line = b'{"value": 1.25}\n'
    content = line * (2 * MEMBER_BYTES // len(line) + 1)
    data = pack(content)
    assert data[:8] == b"\x1f\x8b\x08\x00" + bytes(4)  # no flags (no name), time 0
    fresh = "import sys; from paceline.records.format.record_file import pack"
    fresh += "; sys.stdout.buffer.write(pack(sys.stdin.buffer.read()))"
    told = subprocess.run([sys.executable, "-c", fresh], input=content, capture_output=True, check=True)
    assert told.stdout == data
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data)
    assert [begin for begin, _ in members_in(path)] == [0, MEMBER_BYTES, 2 * MEMBER_BYTES]


def test_zcat_prints_the_lines_of_a_record(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    told = subprocess.run(["zcat", str(path)], capture_output=True, check=True)
    assert told.stdout == content_of(path)


def test_a_record_that_somebody_packed_as_one_member_is_read_and_verified(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    record, content = read_record(path), content_of(path)
    path.write_bytes(gzip.compress(content))
    again = read_record(path)
    assert (again.measurements, again.sha256) == (record.measurements, record.sha256)
    assert verify(tmp_path) == []


def test_a_store_of_an_earlier_version_is_read_verified_and_merged(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    given_record = read_record(factory.simple(old))
    plain = factory.unpack(given_record.path)
    assert verify(old) == []
    (record,) = load([old]).records
    assert (record.path, record.sha256, record.measurements) == (
        plain,
        given_record.sha256,
        given_record.measurements,
    )
    assert merge(new, [old]) == (1, [])
    assert verify(new) == []
    assert [p.name for p in record_paths(new)] == [packed_form(plain).name]
    assert read_manifest(new).entries == read_manifest(old).entries
    assert merge(old, [new]) == merge(new, [old]) == (0, [])


def test_a_run_in_both_forms_is_one_record(tmp_path: Path) -> None:
    packed = factory.simple(tmp_path)
    shutil.copyfile(factory.unpack(packed), tmp_path / "kept")
    plain = plain_form(packed)
    packed.write_bytes(pack(plain.read_bytes()))
    assert verify(tmp_path) == []
    loaded = load([tmp_path])
    assert (len(loaded.records), loaded.problems) == (1, [])
    assert compact(tmp_path, tmp_path / "all.parquet") == 4
    assert merge(tmp_path / "new", [tmp_path]) == (1, [])
    told = CliRunner().invoke(application, ["store", "verify", "--results", str(tmp_path)])
    assert told.output == "1 record, 0 problems\n"


def test_verifying_a_store_keeps_no_more_than_one_record_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        factory.simple(tmp_path)
    gc.freeze()  # what other tests have left is not looked through four times
    alive: list[weakref.ref[object]] = []

    def read(path: Path) -> RunRecord:
        record = read_record(path)
        gc.collect()
        assert sum(one() is not None for one in alive) <= 1
        alive.append(weakref.ref(record.measurements[0]))
        return record

    monkeypatch.setattr(integrity, "read_record", read)
    assert verify(tmp_path) == []
    assert len(alive) == 4


def test_a_run_whose_forms_differ_is_named_and_never_compressed(tmp_path: Path) -> None:
    packed = factory.simple(tmp_path)
    other = factory.simple(tmp_path / "other", run_id=run_id_of(packed), argv=["another"])
    plain = plain_form(packed)
    plain.write_bytes(content_of(other))
    (problem,) = load([tmp_path]).problems
    assert (problem.path, "holds other lines than" in problem.what) == (
        str(plain),
        True,
    )  # not in the manifest
    found = {(p.path.rsplit("/", 1)[1], p.what) for p in verify(tmp_path)}
    assert (plain.name, "changed since it was sealed (digest differs)") in found
    assert any(name == packed.name and "holds other lines than" in what for name, what in found)
    done = compress(tmp_path)
    assert (done.files, [p.what for p in done.problems]) == (0, [f"holds other lines than {packed.name}"])
    assert plain.exists() and packed.exists()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing left": lambda data: b"",
    "a cut end": lambda data: data[:-3],
    "a cut middle": lambda data: data[: len(data) // 2],
    "only the header": lambda data: data[:10],
    "a byte after the end": lambda data: data + b"\x1f",
    "text after the end": lambda data: data + b"trailing",
    "zeros after the end": lambda data: data + bytes(512),
    "a wrong checksum": lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],
    "a wrong length": lambda data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:],
    "plain lines": gzip.decompress,
    "another method": lambda data: data[:2] + b"\x07" + data[3:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_compressed_file_is_named_and_its_neighbours_are_read(tmp_path: Path, damage: str) -> None:
    path, other = factory.simple(tmp_path), factory.simple(tmp_path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(UserError, match="the compressed file is damaged") as caught:
        read_record(path)
    assert caught.value.where == str(path)
    assert caught.value.fix and f"git checkout {path}" in caught.value.fix
    loaded = load([tmp_path])
    assert ([r.path for r in loaded.records], [p.path for p in loaded.problems]) == ([other], [str(path)])
    told = CliRunner().invoke(application, ["store", "verify", "--results", str(tmp_path)])
    assert told.exit_code == 5
    assert str(path.relative_to(tmp_path)) in told.stderr
    assert "Traceback" not in told.output
    assert compact(tmp_path, tmp_path / "all.parquet") == 4
    added, (refused,) = merge(tmp_path / "new", [tmp_path])
    assert (added, refused.path) == (1, str(path))


def test_every_flipped_bit_of_a_compressed_file_is_found_or_changes_no_line(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    data, content = path.read_bytes(), content_of(path)
    silent = []
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        if [p.path for p in verify(tmp_path)] != [str(path.relative_to(tmp_path))]:
            assert (verify(tmp_path), content_of(path)) == ([], content)
            silent.append(place)
    assert len(silent) < 20  # the header's time and system, and bits that a deflated block does not use


@pytest.mark.parametrize(
    ("limit", "value", "piece", "what"),
    [
        ("MAX_RECORD_BYTES", 1 << 20, b'{"a": 1}\n', "the content is larger than 1048576 bytes"),
        ("MAX_RECORD_LINES", 1000, b"\n", "the file has more than 1000 lines"),
        ("MAX_LINE_BYTES", 1 << 20, b"0", "a line is longer than 1048576 bytes"),
    ],
)
def test_a_decompression_bomb_is_refused_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, piece: bytes, what: str
) -> None:
    path = factory.simple(tmp_path)
    monkeypatch.setattr(record_file, limit, value)
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = piece * (1 << 16)
    path.write_bytes(b"".join(compressor.compress(block) for _ in range(256)) + compressor.flush())
    assert path.stat().st_size < len(block)
    inflated = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def inflate(*given_arguments: object) -> object:
            nonlocal inflated
            for chunk in real(*given_arguments):  # type: ignore[attr-defined]
                inflated += len(chunk)
                yield chunk

        return inflate

    monkeypatch.setattr(record_file, "_inflated", counted(record_file._inflated))
    with pytest.raises(UserError, match=what):
        content_of(path)
    assert inflated < value * 2 + (1 << 20)
    assert what in [p.what for p in verify(tmp_path)] or "not a legal record line" in str(verify(tmp_path))


def killed_at(number: int, action: Callable[[], object]) -> bool:
    """Let a process die at the given call of a function that changes files; say whether it came to its end."""
    child = os.fork()
    if child == 0:
        calls = 0

        def dying(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal calls
                calls += 1
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in ("fsync", "link", "write"):
            setattr(os, name, dying(getattr(os, name)))
        for name in ("unlink", "replace"):
            setattr(Path, name, dying(getattr(Path, name)))
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    return ended == 0


def test_a_run_that_is_killed_at_any_step_of_its_sealing_loses_nothing_and_is_sealed_again(
    tmp_path: Path,
) -> None:
    run = factory.make_run(run_id="0193-killed")
    number, finished = 0, False
    while not finished:
        number += 1
        root = tmp_path / str(number)
        writer = RecordWriter(root, run)
        writer.write(*factory.launches(run, "native", [1.0, 1.1]))
        finished = killed_at(number, writer.seal)
        writer.abandon()
        (record,) = load([root], partial=True).records
        assert [m.value for m in record.measurements] == [1.0, 1.1]
        assert is_recorded(root, record.run_id) == (not list(root.rglob("*.partial")))
        if not is_recorded(root, record.run_id):
            writer = RecordWriter(root, run, resume=True)
            writer.write(factory.measurement(run, "native", 2, [1.2]))
            assert len(read_record(writer.seal()).measurements) == 3
        assert verify(root) == []
        assert sorted(p.name for p in root.rglob("*") if p.is_file()) == ["0193-killed.jsonl.gz", MANIFEST]
    assert number > 6


def test_a_store_that_is_killed_at_any_step_of_its_compression_holds_every_record_and_goes_on(
    tmp_path: Path,
) -> None:
    given_root = tmp_path / "given"
    records = [read_record(factory.simple(given_root)) for _ in range(2)]
    for record in records:
        factory.unpack(record.path)
    number, finished = 0, False
    while not finished:
        number += 1
        root = tmp_path / str(number)
        shutil.copytree(given_root, root)
        finished = killed_at(number, lambda root=root: compress(root))  # type: ignore[misc]
        loaded = load([root])
        assert [r.sha256 for r in loaded.records] == [r.sha256 for r in records]
        assert verify(root) == loaded.problems == []
        assert compress(root).problems == []
        assert verify(root) == []
        names = sorted(p.name for p in root.rglob("*") if p.is_file())
        assert names == sorted([*(r.path.name for r in records), MANIFEST])
    assert number > 8


def test_compressing_changes_no_line_no_digest_and_not_the_manifest_and_says_what_it_did(
    tmp_path: Path,
) -> None:
    paths = [factory.unpack(factory.simple(tmp_path)) for _ in range(3)]
    digests = [read_record(p).sha256 for p in paths]
    manifest, size = (tmp_path / MANIFEST).read_bytes(), sum(p.stat().st_size for p in paths)
    told = CliRunner().invoke(application, ["store", "compress", "--results", str(tmp_path)])
    after = sum(p.stat().st_size for p in record_paths(tmp_path))
    assert told.output == f"3 records compressed: {size} -> {after} bytes, 0 left as they are\n"
    assert [read_record(p).sha256 for p in record_paths(tmp_path)] == digests
    assert (tmp_path / MANIFEST).read_bytes() == manifest
    assert after < size / 2
    again = CliRunner().invoke(application, ["store", "compress", "--results", str(tmp_path)])
    assert (again.exit_code, again.output) == (0, "0 records compressed, 0 left as they are\n")


def test_a_plain_record_that_does_not_hold_stays_plain(tmp_path: Path) -> None:
    changed, cut, good = (factory.unpack(factory.simple(tmp_path)) for _ in range(3))
    factory.rewrite(changed, lambda data: data.replace(b"1.01", b"1.02", 1))
    factory.rewrite(cut, lambda data: b"".join(data.splitlines(keepends=True)[:-1]))
    told = CliRunner().invoke(application, ["store", "compress", "--results", str(tmp_path)])
    assert told.exit_code == 5
    assert f"{changed.name}: the content does not fit the seal" in told.stderr
    assert f"{cut.name}: has no seal" in told.stderr
    assert record_paths(tmp_path) == sorted([changed, cut, packed_form(good)])


def test_a_record_that_was_compressed_meanwhile_is_read_where_it_is_now(tmp_path: Path) -> None:
    plain = factory.unpack(factory.simple(tmp_path))
    compress(tmp_path)
    assert read_record(plain).path == packed_form(plain)


def test_copies_that_killed_processes_left_do_no_harm(tmp_path: Path) -> None:
    plain = factory.unpack(factory.simple(tmp_path))
    target = packed_form(plain)
    left = target.with_name(f"{target.name}.{os.getpid()}.copy")
    left.write_bytes(b"half of it")
    compress(tmp_path)
    assert not left.exists()
    # A process that was killed after it gave its copy the final name: its number comes back, and the file must stay.
    os.link(target, left)
    factory.rewrite(target, lambda data: data)
    assert verify(tmp_path) == []
    with pytest.raises(FileExistsError):
        record_file.write_sealed(target, b"other lines\n")
    assert verify(tmp_path) == []


def test_a_store_whose_own_file_is_damaged_says_so_when_the_run_is_merged_again(tmp_path: Path) -> None:
    path = factory.simple(tmp_path / "ours")
    assert merge(tmp_path / "copy", [tmp_path / "ours"]) == (1, [])
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    _, (problem,) = merge(tmp_path / "ours", [tmp_path / "copy"])
    assert problem.what.startswith("the store has this run already, and there the compressed file is damaged")
    path.unlink()
    assert merge(tmp_path / "ours", [tmp_path / "copy"]) == (1, [])
    assert (path.read_bytes(), verify(tmp_path / "ours")) == (whole, [])


def test_the_path_of_a_record_is_not_taken_for_that_of_a_raw_log(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    told = CliRunner().invoke(application, ["show", str(path), "--definitions", "--results", str(tmp_path)])
    assert isinstance(told.exception, UserError)
    assert "has no raw logs of serving" in str(told.exception)
