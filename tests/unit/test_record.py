"""Records: what is legal, what cannot be built, and that a line reads back as it was written."""

from __future__ import annotations

import json
import math
import time
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import record_factory as factory
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paceline.base.files.events import read_events
from paceline.records.format.record import STATUSES, Event, dump_line, parse_line, record_schema
from paceline.records.identity import host_class, new_run_id, record_id, series_key, utc
from paceline.spec.content import shipped_root

RUN = factory.make_run()
SAMPLES = st.lists(st.floats(0, 1e9, allow_subnormal=True), min_size=1, max_size=30)
TEXT = st.text(st.characters(categories=["L", "N", "P", "Z", "Cc", "Cf", "Co", "Cn"]), max_size=30)


@given(SAMPLES, TEXT, st.floats(allow_nan=False, allow_infinity=False))
def test_a_line_reads_back_as_it_was_written(samples: list[float], text: str, predicted: float) -> None:
    line = factory.measurement(RUN, "ring", 0, samples, predicted=predicted, flags=["bimodal"], detail=[text])
    written = dump_line(line)
    assert "\n" not in written
    assert parse_line(written.encode().decode()) == line
    assert dump_line(parse_line(written)) == written


@pytest.mark.parametrize(
    "changes",
    [
        {"value": math.nan},
        {"value": math.inf},
        {"samples": [1.0, math.nan, 2.0]},
        {"samples": [1.0, 2.0, -math.inf]},
        {"samples": [-1.0, 1.0, 2.0]},
        {"predicted": math.nan},
        {"cross_rank": {"max": math.inf}},
        {"n": 4},
        {"value": None},
        {"samples": [], "n": 0},
        {"correctness": None},
        {"correctness": {"passed": False}},
        {"status": "crashed", "reason": "died"},
        {"status": "fast"},
        {"role": "winner"},
        {"surprise": 1},
    ],
)
def test_an_illegal_measurement_cannot_be_built(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        factory.measurement(RUN, "ring", 0, [1.0, 2.0, 3.0], **changes)


@pytest.mark.parametrize("status", [s for s in STATUSES if s != "ok"])
def test_a_failure_holds_a_reason_and_no_number(status: str) -> None:
    line = factory.measurement(RUN, "ring", 0, [], status=status, reason="why")
    assert (line.status, line.value, line.samples) == (status, None, [])
    for wrong in ({"reason": None}, {"reason": ""}, {"value": 1.0}, {"samples": [1.0], "n": 1}):
        with pytest.raises(ValidationError):
            factory.measurement(RUN, "ring", 0, [], **{"status": status, "reason": "why", **wrong})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"line": "rumour"}',
        "not json",
        '{"line": "event", "kind": "seal"}',
        '{"line": "event", "kind": "surprise", "at": "now"}',
        '{"line": "event", "kind": "annotate", "at": "now", "data": {"x": NaN}}',
        '{"line": "event", "kind": "annotate", "at": "now", "data": {"x": -Infinity}}',
    ],
)
def test_what_is_no_line_of_a_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_line(text)


@pytest.mark.parametrize(
    "changes", [{"run_id": "../../x"}, {"run_id": ""}, {"started": "..//../x"}, {"started": ""}]
)
def test_a_run_cannot_name_a_file_outside_its_store(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        factory.make_run(**changes)


def test_text_that_is_no_unicode_does_not_stop_a_run() -> None:
    event = Event(kind="annotate", at=utc(0), data={"text": "a\udc80b\u2028c"})
    read = parse_line(dump_line(event).encode().decode())
    assert isinstance(read, Event)
    assert read.data == {"text": "a\ufffdb\u2028c"}  # what can be printed, hashed and written to a page


def test_written_lines_fit_the_published_json_schema() -> None:
    published = json.loads((shipped_root() / "results" / "record.schema.json").read_text())
    assert published == record_schema(), "paceline schema record > results/record.schema.json"
    validator = jsonschema.Draft202012Validator(published)
    failed = factory.measurement(RUN, "ring", 1, [])
    lines = [RUN, factory.measurement(RUN, "ring", 0, [1.0]), failed, Event(kind="seal", at=utc())]
    for line in lines:
        validator.validate(json.loads(dump_line(line)))
    for wrong in (
        {"status": "fast"},
        {"params": 3},
        {"n": "many"},
        {"surprise": 1},
        {"metric": {"name": "x"}},
    ):
        assert not validator.is_valid(json.loads(dump_line(failed)) | wrong)


def test_run_ids_are_version_7_and_sort_in_the_order_they_were_made() -> None:
    ids = [new_run_id() for _ in range(5000)]
    assert ids == sorted(set(ids))
    for text in ids:
        found = uuid.UUID(text)
        assert (found.version, found.variant) == (7, uuid.RFC_4122)


def test_run_ids_count_on_while_the_clock_stands_or_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_run_id()
    now = (uuid.UUID(before).int >> 80) * 10**6
    monkeypatch.setattr(time, "time_ns", lambda: now)
    stood = [new_run_id() for _ in range(100)]
    monkeypatch.setattr(time, "time_ns", lambda: now - 10**10)
    ids = [before, *stood, new_run_id()]
    assert ids == sorted(set(ids))
    assert abs((uuid.UUID(ids[-1]).int >> 80) - now // 10**6) < 1000


@given(st.lists(st.sampled_from("abcd"), min_size=5, max_size=5), st.integers(0, 4))
def test_an_identity_changes_with_each_of_its_parts(parts: list[str], position: int) -> None:
    def identity(values: list[str]) -> tuple[str, str]:
        run, block, label, launch, metric = values
        numbered = record_id("training", run, block, label, ord(launch), metric)
        return numbered, series_key("training", run, block, label, launch + metric)

    other = list(parts)
    other[position] = "z"
    assert identity(parts) == identity(list(parts))
    assert identity(parts)[0] != identity(other)[0]
    assert identity(parts)[1] != identity(other)[1]


def test_a_host_class_survives_a_reboot_and_tells_machines_apart() -> None:
    host = {
        "cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz",
        "usable_cores": 2,
        "memory_class_gib": 16,
        "kernel": "6.1",
    }
    known = host_class(host, {"kind": "cpu"})
    assert known == "Intel Xeon, 2 cores, 16 GiB"
    rebooted = {**host, "cpu": "Intel(R) Xeon(R) CPU @ 2.60GHz", "kernel": "6.2", "hostname": "b"}
    assert host_class(rebooted, {"kind": "cpu"}) == known
    assert host_class({**host, "usable_cores": 4}, {"kind": "cpu"}) != known
    gpu = {"kind": "cuda", "name": "H200", "count": 1, "driver": "570.86.1"}
    assert host_class(host, gpu) == f"{known}, H200 × 1"
    assert host_class(host, {**gpu, "driver": "580.1"}) == host_class(host, gpu)


@pytest.mark.parametrize("seconds", [0.0, 0.9996, 1763708400.1239])
def test_times_are_utc_with_milliseconds(seconds: float) -> None:
    assert len(utc(seconds)) == len("1970-01-01T00:00:00.000Z")
    assert utc(0.9996) == "1970-01-01T00:00:00.999Z"


def test_a_torn_event_waits_and_a_broken_one_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "events-0.jsonl"
    path.write_bytes(
        b'{"event": "a"}\nrubbish\n{"event": "b", "x": NaN}\n{"event": "c", "x": 1e999}\n{"event": "d"'
    )
    events, offset = read_events(path)
    assert [e["event"] for e in events] == ["a", "unreadable", "unreadable", "unreadable"]
    with path.open("ab") as file:
        file.write(b', "x": 1.5}\n')
    assert read_events(path, offset) == ([{"event": "d", "x": 1.5}], path.stat().st_size)
    assert read_events(tmp_path / "none.jsonl") == ([], 0)


ODD_NUMBERS = [
    "1e999",
    "-1e400",
    "1E+309",
    "1e0999",
    "NaN",
    "-Infinity",
    "9" * 20,
    "9" * 400,
    f"{'9' * 400}.0",
]


@pytest.mark.parametrize("number", ODD_NUMBERS)
def test_numbers_that_are_none_are_refused_wherever_they_stand(number: str) -> None:
    line = json.loads(dump_line(factory.measurement(RUN, "ring", 0, [1.0])))
    text = json.dumps({**line, "detail": {"deep": ["HERE"]}}).replace('"HERE"', number)
    with pytest.raises(ValueError, match="number"):
        parse_line(text)


@given(st.one_of(st.integers(-(2**63), 2**64), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_that_are_some_are_read_as_they_are(number: float) -> None:
    line = factory.measurement(RUN, "ring", 0, [1.0], detail=[number])
    read = parse_line(dump_line(line)).detail[0]  # type: ignore[union-attr]
    assert (read, type(read)) == (number, type(number))
