"""A store that somebody else wrote into: what does not hold is named, once, and what holds is read."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner

from paceline.base.errors import UserError
from paceline.base.families.family import Parameter
from paceline.cli import application
from paceline.records.format.record import Event, dump_line, parse_line
from paceline.records.format.record_file import MAX_LINE_BYTES, content_of, run_id_of
from paceline.records.identity import utc
from paceline.records.store.folder import load, read_record, record_paths
from paceline.records.store.integrity import compact, retract, verify
from paceline.records.store.lookup import find_run, retractions
from paceline.records.store.manifest import MANIFEST, add_to_manifest, read_manifest
from paceline.records.store.merging import merge
from paceline.records.store.repair import repair
from paceline.spec.files import yaml_file

Facts = list[dict[str, Any]]
HERE = str(Path(__file__).parents[1])


def lines_of_two() -> Facts:
    """Return the lines of a legal record: a run and two measurements."""
    run = factory.make_run()
    return factory.facts_of(
        run, factory.launches(run, "native", [1.0]) + factory.launches(run, "ring", [2.0])
    )


def texts(lines: Facts) -> list[bytes]:
    return [json.dumps(line).encode() for line in lines]


def put(lines: Facts, line: int, *way: str, value: Any) -> None:
    part: Any = lines[line]
    for key in way[:-1]:
        part = part[key]
    part[way[-1]] = value


def told_the_other_way(lines: Facts) -> None:
    """Turn a metric's direction round, under a contract that nobody knows and in a series that fits it."""
    m = lines[1]
    m["metric"] |= {"better": "higher", "contract_id": "unheard-of"}
    m["series_key"] = factory.series_key(
        m["family"], m["case_id"], m["technique"], factory.HOST, m["metric"]["contract_id"]
    )


def of_no_time(lines: Facts) -> None:
    lines[1] |= {"samples": [0.0, 0.0, 0.0], "value": 0.0}


LIES: dict[str, tuple[Callable[[Facts], None], str]] = {
    "a later format": (lambda f: put(f, 0, "format", value=999), "format: 999 is of a later version"),
    "a field that no version has": (lambda f: put(f, 1, "extra", value=1), "extra: Extra inputs"),
    "another direction": (told_the_other_way, "by its contract it is s, lower, and not s, higher"),
    "calls that take no time": (of_no_time, "a sample of 0 s"),
    "a launch beyond all": (lambda f: put(f, 1, "launch", value=10**18), "launch: Input should be less than"),
    "ranks below one": (
        lambda f: put(f, 1, "scale", "ranks", value=-3),
        "scale.ranks: Input should be greater",
    ),
    "a point below one rank": (lambda f: put(f, 1, "params", "ranks", value=-3), "a point of -3 ranks"),
    "codes of a terminal": (
        lambda f: put(f, 1, "label", value="\x1b[2J"),
        "label: a name has control characters",
    ),
    "half of a character": (lambda f: put(f, 1, "label", value="\ud800"), "is not the identity"),
    "no such day": (
        lambda f: put(f, 0, "started", value="2026-11-31T00:00:00Z"),
        "started: day is out of range",
    ),
    "no time zone": (lambda f: put(f, 0, "started", value="2026-11-21T00:00:00"), "it has no time zone"),
    "another month": (lambda f: put(f, 0, "started", value="2026-10-21T00:00:00Z"), "belongs into 2026/10"),
    "another run": (lambda f: put(f, 0, "run_id", value="0193-another"), "a measurement of another run"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_record_that_cannot_be_is_one_problem_and_its_neighbours_are_read(tmp_path: Path, lie: str) -> None:
    change, reason = LIES[lie]
    root, mine = tmp_path / "theirs", tmp_path / "mine"
    honest = factory.simple(root)
    lines = lines_of_two()
    name = lines[0]["run_id"]
    change(lines)
    forged = factory.forge(root, texts(lines), name)
    found = verify(root)
    assert {p.path for p in found} == {str(forged.relative_to(root))}
    assert [p.what for p in found if reason in p.what], [p.what for p in found]
    assert honest in [r.path for r in load([root]).records]
    added, problems = merge(mine, [root])
    if lie == "another month":  # the record holds, and only its place was wrong
        assert (added, problems, verify(mine)) == (2, [], [])
        return
    assert (added, [p.path for p in problems]) == (1, [str(forged)])
    assert reason in problems[0].what
    for command in (["ls"], ["verify"], ["repair"], ["compact"]):
        told = CliRunner().invoke(application, ["store", *command, "--results", str(root)])
        assert told.exit_code == (5 if command[0] in ("verify", "repair") else 0), told.output
        assert "\x1b" not in told.output


@pytest.mark.parametrize("depth", [100, 10**5])
@pytest.mark.parametrize("kind", ["list", "table"])
def test_nesting_without_end_is_named_and_stops_nobody(tmp_path: Path, depth: int, kind: str) -> None:
    factory.simple(tmp_path)
    lines = lines_of_two()
    put(lines, 0, "host", value={"deep": "HERE"})
    deep = "[" * depth + "]" * depth if kind == "list" else '{"a":' * depth + "1" + "}" * depth
    first, *others = texts(lines)
    forged = factory.forge(tmp_path, [first.replace(b'"HERE"', deep.encode()), *others], lines[0]["run_id"])
    (problem,) = verify(tmp_path)
    assert problem.path == str(forged.relative_to(tmp_path))
    assert "64" in problem.what
    assert len(load([tmp_path]).records) == 1
    with pytest.raises(UserError, match="64"):
        find_run([tmp_path], lines[0]["run_id"])
    assert retractions([tmp_path]) == {}


def test_what_a_record_may_hold_at_most_can_be_written_and_more_cannot(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    event = Event(kind="annotate", at=utc(), data={"deep": deep})
    assert parse_line(dump_line(event)) == event
    with pytest.raises(ValueError, match="64 levels"):
        Event(kind="annotate", at=utc(), data={"deep": [[[deep]]]})
    with pytest.raises(ValueError, match="integer beyond"):
        Event(kind="annotate", at=utc(), data={"number": 10**30})


MANIFESTS: dict[str, tuple[bytes, str]] = {
    "no digest": (b'{"path":"2026/11/a.jsonl","size_bytes":3}\n', "sha256: Field required"),
    "torn": (b'{"path":"2026/11/a.jsonl","sha2', "not a legal line of a manifest"),
    "no JSON": (b"rubbish\n", "not a legal line of a manifest"),
    "no object": (b"[1]\n", "not a JSON object"),
    "no text": (b"\xff\xfe\n", "codec"),
    "a number as a path": (b'{"path":7,"sha256":"","size_bytes":3}\n', "path"),
    "a way out": (b'{"path":"../../etc/passwd","sha256":"' + b"0" * 64 + b'","size_bytes":3}\n', "path"),
    "nested": (b'{"path":' + b"[" * 10**5 + b"]" * 10**5 + b"}\n", "nested"),
    "one field more": (
        b'{"path":"2026/11/a.jsonl","sha256":"' + b"0" * 64 + b'","size_bytes":3,"x":1}\n',
        "x: Extra inputs",
    ),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_line_that_is_none_of_a_manifest_hides_no_other_and_is_mended(tmp_path: Path, kind: str) -> None:
    line, reason = MANIFESTS[kind]
    first = factory.simple(tmp_path)
    with (tmp_path / MANIFEST).open("ab") as file:
        file.write(line)
    second = factory.simple(tmp_path)  # its line begins behind a torn one
    (problem,) = verify(tmp_path)
    assert problem.path == f"{MANIFEST}:2"
    assert reason in problem.what
    assert [r.path for r in load([tmp_path]).records] == [first, second]
    assert merge(tmp_path / "mine", [tmp_path]) == (2, [])
    before = {path: path.read_bytes() for path in record_paths(tmp_path)}
    done = repair(tmp_path)
    assert (done.added, len(done.dropped), done.left) == ([], 1, [])
    assert verify(tmp_path) == []
    assert {path: path.read_bytes() for path in record_paths(tmp_path)} == before


def test_a_manifest_that_is_gone_is_rebuilt_and_corrections_go_on_counting(tmp_path: Path) -> None:
    bad, good = factory.simple(tmp_path), factory.simple(tmp_path)
    correction = retract(tmp_path, run_id_of(bad), "wrong clock")
    (tmp_path / MANIFEST).unlink()
    assert len(verify(tmp_path)) == 3
    done = repair(tmp_path)
    assert (len(done.added), done.left) == (3, [])
    assert [Path(e.path).stem for e in read_manifest(tmp_path).lines] == [
        run_id_of(path) for path in (bad, good, correction)
    ]
    assert load([tmp_path]).retracted == {run_id_of(bad): "wrong clock"}
    assert repair(tmp_path).added == []


def test_a_record_without_its_line_heals_when_it_is_merged_again_or_repaired(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    factory.simple(theirs), factory.simple(theirs)
    merge(mine, [theirs])
    for heal in (lambda: merge(mine, [theirs]), lambda: repair(mine)):
        manifest = mine / MANIFEST
        manifest.write_bytes(manifest.read_bytes().splitlines(keepends=True)[0])
        (problem,) = verify(mine)
        assert problem.what == "not in the manifest"
        heal()
        assert verify(mine) == []
        assert len(read_manifest(mine).lines) == 2


def test_what_cannot_be_mended_stays_listed_and_is_said(tmp_path: Path) -> None:
    gone, changed, twice = (factory.simple(tmp_path) for _ in range(3))
    gone.unlink()
    lines = (tmp_path / MANIFEST).read_text(encoding="utf-8").splitlines(keepends=True)
    false = lines[2].replace(json.loads(lines[2])["sha256"], "0" * 64)
    (tmp_path / MANIFEST).write_text("".join([false, *lines, lines[0]]), encoding="utf-8")
    factory.rewrite(changed, lambda data: data.replace(b"1.01", b"1.02", 1))
    done = repair(tmp_path)
    assert (done.added, done.repeated, len(done.dropped)) == ([], 1, 1)
    assert "say another digest than its file" in done.dropped[0].what
    said = [(Path(p.path).name.partition(".")[0], p.what) for p in done.left]
    assert said == [
        (run_id_of(gone), "missing: the manifest lists it, the folder lacks it"),
        (run_id_of(changed), "changed since it was sealed (digest differs)"),
        (run_id_of(changed), "the content does not fit the seal"),
    ]
    assert run_id_of(twice) in [r.run_id for r in load([tmp_path]).records]
    told = CliRunner().invoke(application, ["store", "repair", "--results", str(tmp_path)])
    assert told.exit_code == 5
    assert "0 records listed, 0 lines dropped, 0 repeated ones, 3 problems left" in told.output


def test_a_second_file_of_a_run_is_named_and_the_one_that_came_first_is_shown(tmp_path: Path) -> None:
    lines = lines_of_two()
    name = lines[0]["run_id"]
    first = factory.forge(tmp_path, texts(lines), name)
    other = copy.deepcopy(lines)
    put(other, 0, "started", value="2026-10-21T07:00:00.000Z")
    second = factory.forge(tmp_path, texts(other), name, folder="2026/10")
    third = factory.forge(tmp_path, texts(lines), "0193-copy")
    assert {p.path for p in verify(tmp_path)} & {str(third.relative_to(tmp_path))}
    loaded = load([tmp_path])
    assert [r.path for r in loaded.records] == [first]
    assert {p.path for p in loaded.problems} == {str(second), str(third)}
    assert any("of the same run id" in p.what for p in verify(tmp_path))
    assert compact(tmp_path, tmp_path / "all.parquet") == 2


def test_a_pipe_in_a_store_is_named_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    pipe = path.with_name("0193-pipe.jsonl.gz")
    loop = path.with_name("0193-loop.jsonl.gz")
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    path.with_name("0193-folder.jsonl").mkdir()
    added, problems = merge(tmp_path / "mine", [tmp_path])
    assert (added, len(problems)) == (1, 3)
    assert {p.path for p in problems if p.what == "not a plain file"} >= {str(pipe)}
    assert merge(tmp_path / "mine", [pipe])[1][0].what == "not a plain file"
    assert [r.path for r in load([tmp_path]).records] == [path]
    assert len([p for p in verify(tmp_path) if p.what == "not a plain file"]) == 2
    assert find_run([tmp_path], "latest").path == path


def store_of_odd_names(folder: Path) -> None:
    path = factory.simple(folder)
    for name in (
        b"0193-\xff\xfe.jsonl",
        b"0193-\x1b[2J.jsonl",
        "0193-\u202e.jsonl".encode(),
        b"0193-a\nb.jsonl",
    ):
        path.with_name(os.fsdecode(name)).write_bytes(b"{")


def refuse_odd_output(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "paceline.cli", *command], capture_output=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode in (0, 5), printed.decode()
    assert not [p for p in (b"\x1b[2J", b"\xff", b"\xe2\x80\xae", b"Traceback") if p in printed]


def test_a_name_that_is_no_text_is_named_on_the_terminal(tmp_path: Path) -> None:
    store_of_odd_names(tmp_path)
    for command in ("verify", "ls"):
        refuse_odd_output("store", command, "--results", str(tmp_path))


@pytest.mark.full  # a whole site
def test_a_name_that_is_no_text_is_named_on_pages(tmp_path: Path) -> None:
    store_of_odd_names(tmp_path / "store")
    site = tmp_path / "site"
    refuse_odd_output("site", "build", "--output", str(site), "--results", str(tmp_path / "store"))
    page = (site / "index.html").read_text("utf-8")
    assert "0193-\\udcff\\udcfe.jsonl" in page
    assert "0193-\\u001b[2J.jsonl" in page
    assert not re.search("[\x1b\u202e]", page)


def test_a_retraction_is_about_a_run_that_was_there_before_it(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    victim = factory.simple(theirs)
    correction = retract(theirs, run_id_of(victim), "nobody shall see it")
    for corrections in (False, True):
        added, (problem,) = merge(mine, [correction], corrections=corrections)
        assert (added, "which this store does not have" in problem.what) == (0, True)
    # an earlier version took it, and the run came in later
    copied = mine / correction.relative_to(theirs)  # in the month of today, and not in that of the run
    copied.parent.mkdir(parents=True)
    shutil.copy(correction, copied)
    add_to_manifest(mine, copied)
    assert merge(mine, [victim]) == (1, [])
    assert run_id_of(victim) in [r.run_id for r in load([mine]).records]
    assert (load([mine]).retracted, retractions([mine])) == ({}, {})
    assert find_run([mine], run_id_of(victim)).run_id == run_id_of(victim)
    assert retractions([theirs]) == {run_id_of(victim): "nobody shall see it"}


def test_one_source_cannot_withdraw_the_runs_of_another(tmp_path: Path) -> None:
    honest, hostile, mine = (tmp_path / name for name in ("honest", "hostile", "mine"))
    victim = factory.simple(honest)
    shutil.copytree(honest, hostile)
    correction = retract(hostile, run_id_of(victim), "nobody shall see it")
    added, (problem,) = merge(mine, [honest, hostile])
    assert (added, problem.path) == (1, str(correction))
    assert "--corrections takes it" in problem.what


MERGES = f"""
import sys; sys.path.insert(0, {HERE!r})
from pathlib import Path
from paceline.records.store.merging import merge
mine, go, *sources = map(Path, sys.argv[1:])
while not go.exists(): pass
_, problems = merge(mine, sources)
sys.exit(len(problems))
"""


def test_merges_may_run_at_once_and_none_of_them_aborts(tmp_path: Path) -> None:
    theirs, mine, go = tmp_path / "theirs", tmp_path / "mine", tmp_path / "go"
    for _ in range(12):
        factory.simple(theirs)
    mine.mkdir()
    command = [sys.executable, "-c", MERGES, str(mine), str(go), str(theirs)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    go.touch()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert verify(mine) == []
    assert len(record_paths(mine)) == 12
    assert {e.path for e in read_manifest(mine).lines} == {e.path for e in read_manifest(theirs).lines}


def test_a_repair_loses_no_line_that_is_written_meanwhile(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {HERE!r})
from pathlib import Path
import record_factory as factory
for _ in range(15):
    factory.simple(Path(sys.argv[1]))
"""
    factory.simple(tmp_path)
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE)
    while writer.poll() is None:
        with (tmp_path / MANIFEST).open("ab") as file:
            file.write(b"rubbish\n")
        repair(tmp_path)
    assert writer.returncode == 0
    repair(tmp_path)
    assert verify(tmp_path) == []
    assert len(read_manifest(tmp_path).lines) == 16


def test_an_integer_that_no_record_can_hold_is_refused_where_it_is_given() -> None:
    count = Parameter(name="trial", kind="count", doc="Number.", minimum=0)
    assert count.parse(2**64) == 2**64
    with pytest.raises(ValueError, match="too large a number"):
        count.parse(10**30 - 1)
    with pytest.raises(UserError, match=r"suite.yaml:2:workload.trial: .*too large a number"):
        yaml_file.parse(f"workload:\n  trial: {10**30 - 1}\n", Path("suite.yaml"))


def test_a_file_beyond_the_limits_is_not_merged_and_its_line_is_not_read_whole(tmp_path: Path) -> None:
    path = factory.simple(tmp_path / "theirs")
    content = content_of(path)
    long = path.with_name("0193-long.jsonl")
    long.write_bytes(content[:20] + b" " * (MAX_LINE_BYTES + 1) + content[20:])
    added, (problem,) = merge(tmp_path / "mine", [tmp_path / "theirs"])
    assert (added, problem.path) == (1, str(long))
    assert read_record(path).sealed
