"""A store's integrity: statistics recomputed byte for byte, merging as a set union, corrections that only hide."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import record_factory as factory
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.errors import UserError
from paceline.records.format import record_file
from paceline.records.format.record import Event, EventKind, dump_line, parse_line
from paceline.records.format.record_file import MAX_LINE_BYTES, content_of, lines_of, run_id_of
from paceline.records.identity import utc
from paceline.records.store.folder import load, read_record
from paceline.records.store.integrity import append_event, compact, recompute, retract, verify
from paceline.records.store.merging import merge
from paceline.stats.estimates import launch_statistic

STATISTICS = ("median", "mean", "max", "sum")


@given(st.lists(st.floats(5e-324, 1e12), min_size=1, max_size=200), st.sampled_from(STATISTICS))
def test_a_statistic_is_recomputed_from_its_text_byte_for_byte(samples: list[float], statistic: str) -> None:
    run = factory.make_run()
    line = factory.measurement(run, "ring", 0, samples, contract_id="another")  # whose statistic is any
    line = line.model_copy(
        update={
            "metric": line.metric.model_copy(update={"statistic": statistic}),
            "value": launch_statistic(samples, statistic),
        }
    )
    read = parse_line(dump_line(line))
    assert recompute(factory.in_memory(run, [read])) == []  # type: ignore[list-item]
    for wrong in (line.value * (1 + 1e-15) + 5e-324, line.value + 1):  # type: ignore[operator]
        changed = line.model_copy(update={"value": wrong})
        assert len(recompute(factory.in_memory(run, [changed]))) == 1


def test_a_number_that_is_not_that_of_its_samples_is_found_and_not_merged(tmp_path: Path) -> None:
    run = factory.make_run()
    line = factory.measurement(run, "ring", 0, [1.0, 2.0, 3.0], value=1.9)
    path = factory.write(tmp_path / "theirs", run, [line])
    said = "ring latency launch 0: 1.9 is not the 2.0 of its samples"
    assert [p.what for p in verify(tmp_path / "theirs")] == [said]
    added, problems = merge(tmp_path / "ours", [path])
    assert (added, [p.what for p in problems]) == (0, [said])


def test_merging_is_a_set_union(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    paths = [factory.simple(a), factory.simple(b), factory.simple(b)]
    shutil.copytree(a, c)
    assert merge(c, [b]) == (2, [])
    assert merge(c, [a, b, paths[0]]) == (0, [])
    assert {r.run_id for r in load([c]).records} == {run_id_of(p) for p in paths}
    assert verify(c) == []
    assert merge(a, [b]) == (2, [])
    assert sorted(p.read_bytes() for p in a.rglob("*-*.jsonl.gz")) == sorted(
        p.read_bytes() for p in c.rglob("*-*.jsonl.gz")
    )


def test_merging_refuses_what_does_not_hold_and_takes_the_rest(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    good, changed, renamed, linked, cut, twin = (factory.simple(theirs) for _ in range(6))
    factory.rewrite(changed, lambda data: data.replace(b"1.01", b"1.02", 1))
    renamed.rename(renamed.with_name("another.jsonl.gz"))
    target = linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(target)
    factory.rewrite(cut, lambda data: b"".join(data.splitlines(keepends=True)[:-1]))
    factory.simple(ours, run_id=run_id_of(twin), argv=["other"])
    long = theirs / "2026" / "11" / "long.jsonl"
    with long.open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 1)
    added, problems = merge(ours, [theirs])
    said = {Path(p.path).name: p.what for p in problems}
    assert added == 1
    assert said == {
        changed.name: "the content does not fit the seal",
        "another.jsonl.gz": f"the file name does not fit its run id {run_id_of(renamed)}",
        linked.name: "a symbolic link",
        cut.name: "not sealed: the run is unfinished",
        twin.name: "another file with the same run id is already in the store",
        "long.jsonl": f"a line is longer than {MAX_LINE_BYTES} bytes",
    }
    assert {r.run_id for r in load([ours]).records} == {run_id_of(good), run_id_of(twin)}
    with pytest.raises(UserError, match="no such store or record"):
        merge(ours, [tmp_path / "nowhere"])


def test_a_foreign_record_cannot_leave_the_store(tmp_path: Path) -> None:
    path = factory.simple(tmp_path / "theirs")
    lines = list(lines_of(path))
    run = json.loads(lines[0]) | {"started": "..//../../x"}
    factory.rewrite(path, lambda _: json.dumps(run).encode() + b"\n" + b"".join(lines[1:]))
    added, problems = merge(tmp_path / "ours" / "deep", [path])
    assert added == 0
    assert "not a legal record line" in problems[0].what


def test_a_retracted_run_stays_in_the_store_and_out_of_every_report(tmp_path: Path) -> None:
    bad, good = factory.simple(tmp_path), factory.simple(tmp_path)
    before = bad.read_bytes()
    correction = retract(tmp_path, run_id_of(bad), "wrong clock")
    loaded = load([tmp_path])
    assert {r.run_id for r in loaded.records} == {run_id_of(good), run_id_of(correction)}
    assert loaded.retracted == {run_id_of(bad): "wrong clock"}
    assert bad.read_bytes() == before
    assert read_record(correction).run.reason == "correction"
    assert verify(tmp_path) == []
    with pytest.raises(UserError, match="has no run"):
        loaded.find(run_id_of(bad))


def test_a_foreign_correction_about_own_runs_is_taken_only_when_asked(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    bad = factory.simple(theirs)
    merge(ours, [theirs])
    retract(theirs, run_id_of(bad), "wrong clock")
    added, problems = merge(ours, [theirs])
    assert added == 0
    assert f"a correction that retracts {run_id_of(bad)} (wrong clock)" in problems[0].what
    assert [r.run_id for r in load([ours]).records] == [run_id_of(bad)]
    assert merge(ours, [theirs], corrections=True) == (1, [])
    assert [r.run.reason for r in load([ours]).records] == ["correction"]


def test_a_store_that_is_taken_in_whole_keeps_its_own_retractions(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    bad = factory.simple(theirs)
    retract(theirs, run_id_of(bad), "wrong clock")
    assert merge(tmp_path / "ours", [theirs]) == (2, [])
    assert load([tmp_path / "ours"]).retracted == {run_id_of(bad): "wrong clock"}


@pytest.mark.parametrize("kind", ["baseline_set", "waiver"])
def test_a_foreign_store_does_not_decide_for_the_gate(tmp_path: Path, kind: EventKind) -> None:
    append_event(tmp_path / "theirs", Event(kind=kind, at=utc(), data={"suite": "collectives/example"}))
    added, problems = merge(tmp_path / "ours", [tmp_path / "theirs"])
    assert (added, len(problems)) == (0, 1)
    assert "--corrections" in problems[0].what


def test_a_note_is_added_to_a_run(tmp_path: Path) -> None:
    path, other = factory.simple(tmp_path), factory.simple(tmp_path)
    data = {"run_id": run_id_of(path), "text": "new kernel"}
    append_event(tmp_path, Event(kind="annotate", at=utc(), run_id=run_id_of(path), data=data))
    loaded = load([tmp_path])
    assert [n.text for n in loaded.notes(run_id_of(path))] == ["new kernel"]
    assert loaded.notes(run_id_of(other)) == []


def test_the_compacted_table_holds_every_measurement_and_can_be_rebuilt(tmp_path: Path) -> None:
    paths = [factory.simple(tmp_path) for _ in range(2)]
    target = tmp_path / "cache" / "all.parquet"
    assert compact(tmp_path, target) == 8
    first = pq.read_table(target).to_pylist()
    measurements = [m for p in paths for m in read_record(p).measurements]
    assert {(r["record_id"], r["value"], tuple(r["samples"])) for r in first} == {
        (m.record_id, m.value, tuple(m.samples)) for m in measurements
    }
    target.unlink()
    compact(tmp_path, target)
    assert pq.read_table(target).to_pylist() == first
    assert verify(tmp_path) == []
    assert compact(tmp_path / "empty", tmp_path / "empty.parquet") == 0


def test_a_compacted_table_leaves_withdrawn_runs_out_whatever_the_order_of_files(tmp_path: Path) -> None:
    paths = [factory.simple(tmp_path) for _ in range(2)]
    retract(tmp_path, run_id_of(paths[0]), "broken machine")
    assert compact(tmp_path, tmp_path / "all.parquet") == 4
    found = {row["run_id"] for row in pq.read_table(tmp_path / "all.parquet").to_pylist()}
    assert found == {run_id_of(paths[1])}


@pytest.mark.parametrize(("limit", "what"), [("MAX_RECORD_LINES", "lines"), ("MAX_RECORD_BYTES", "larger")])
def test_merging_refuses_files_beyond_the_bounds_before_it_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    path = factory.simple(tmp_path / "theirs")
    content = content_of(path)
    size = {"MAX_RECORD_LINES": content.count(b"\n"), "MAX_RECORD_BYTES": len(content)}
    monkeypatch.setattr(record_file, limit, size[limit] - 1)
    added, (problem,) = merge(tmp_path / "ours", [path])
    assert (added, what in problem.what) == (0, True)
    monkeypatch.setattr(record_file, limit, size[limit])
    assert merge(tmp_path / "ours", [path]) == (1, [])
