"""Lines of one file that share what they repeat are what each would be alone, and are refused in the same words."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import record_factory as factory
import seeds
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from paceline.records.format import repeated_lines
from paceline.records.format.limits import said
from paceline.records.format.record import Measurement, dump_line, parse_line
from paceline.records.format.record_file import lines_of
from paceline.records.format.repeated_lines import RepeatedLines
from paceline.records.store.folder import read_record, record_paths
from paceline.spec.content import shipped_root

RUN = factory.make_run()
LINES = [
    dump_line(line).encode() + b"\n"
    for label in ("native", "ring")
    for metric in ("latency", "wire_bytes")
    for line in factory.launches(RUN, label, [1.0, 2.0, 4.0], metric=metric)
]
FAILED = dump_line(factory.measurement(RUN, "ring", 3, [])).encode() + b"\n"
HOSTILE: list[Any] = [
    None, True, -1, 0, 10**7, 2**53 + 1, 2**64 + 1, -(2**64) - 1, 1.5, -0.0, "", "x", "a\u202eb", "\ud800", "n" * 1025,
    [], [1], [0.5, 1], [True], ["0.5"], {}, {"a": 2**70}, {"passed": True}, [[[]]], {"reference_timer": "nothing"},
]  # fmt: skip


def after(lines: list[bytes]) -> RepeatedLines:
    """Return a reader that has read these lines."""
    reader = RepeatedLines()
    for line in lines:
        reader.parse(line)
    return reader


def found(parse: Callable[[bytes], Any], line: bytes) -> Any:
    """Return what reading a line gives: all of a measurement with types and order, or the words of the refusal."""
    try:
        return whole(parse(line))
    except ValueError as error:
        return said(error)


def whole(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return type(value), value.model_fields_set, value.model_extra, whole(value.__dict__)
    if isinstance(value, dict):
        return [(key, whole(part)) for key, part in value.items()]
    if isinstance(value, list):
        return [whole(part) for part in value]
    return type(value), repr(value)


def agree(line: bytes, *, reader: RepeatedLines | None = None) -> None:
    alone = found(parse_line, line)
    readers = (reader,) if reader else (after(LINES), RepeatedLines())
    for one in readers:
        assert found(one.parse, line) == alone
        assert found(one.parse, line) == alone  # now that it has seen the line itself


def test_lines_of_a_run_share_point_and_metric_and_are_what_each_is_alone() -> None:
    reader = RepeatedLines()
    read = [reader.repeated(line) for line in LINES]
    for line, one in zip(LINES, read, strict=True):
        assert isinstance(one, Measurement)
        assert whole(one) == whole(parse_line(line))
        assert dump_line(one).encode() + b"\n" == line
        assert one.model_dump_json() == parse_line(line).model_dump_json()
    assert len({id(one.params) for one in read if one}) == 2
    assert len({id(one.metric) for one in read if one}) == 2
    assert len({id(one.samples) for one in read if one}) == len(LINES)
    agree(FAILED)


def test_a_point_is_checked_once_however_many_lines_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []
    monkeypatch.setattr(repeated_lines, "parse_line", lambda raw: checked.append(raw) or parse_line(raw))
    after(LINES)
    assert len(checked) == 3  # two cases; the second metric comes with the first case again


def test_published_lines_are_what_each_is_alone() -> None:
    draws = random.Random(seeds.current())
    paths = record_paths(shipped_root() / "results" / "published")
    for path in draws.sample(paths, 4):
        reader, num_shared = RepeatedLines(), 0
        for line in list(lines_of(path))[:300]:
            one = reader.repeated(line)
            num_shared += one is not None
            assert one is None or whole(one) == whole(parse_line(line))
            if b'"line":"measurement"' in line:
                assert one is not None, line[:300]
    assert read_record(paths[0]).measurements


@pytest.mark.parametrize("name", [*Measurement.model_fields, "surprise"])
def test_a_hostile_value_of_any_field_reads_as_it_does_alone(name: str) -> None:
    reader = after(LINES)
    for value in HOSTILE:
        data = {key: value if key == name else given for key, given in json.loads(LINES[0]).items()}
        data.setdefault(name, value)
        agree(json.dumps(data, separators=(",", ":")).encode() + b"\n", reader=reader)


@pytest.mark.parametrize("name", Measurement.model_fields)
def test_a_line_without_a_field_reads_as_it_does_alone(name: str) -> None:
    data = {key: given for key, given in json.loads(LINES[0]).items() if key != name}
    agree(json.dumps(data, separators=(",", ":")).encode() + b"\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"n":3', b'"n":4'),
        (b'"n":3', b'"n":true'),
        (b'"n":3', b'"n":3.0'),
        (b'"n":3', b'"n":3,"n":2'),
        (b'"n":3', b'"n":3,"value":null'),
        (b'"n":3', b'"n":3,"samples":[1.0,1.0,1.0]'),
        (b'"n":3', b'"n":3,"launch":7'),
        (b'"n":3', b'"n":3,"family":"kernels"'),
        (b'"n":3', b'"n":3,"warmup":[1e999]'),
        (b'"n":3', b'"n":3,"instances":[1,1]'),
        (b'"samples":[0.99', b'"samples":[1e999'),
        (b'"samples":[0.99', b'"samples":[1' + b"0" * 400 + b".0"),
        (b'"samples":[0.99', b'"samples":[36893488147419103232'),
        (b'"samples":[0.99', b'"samples":[NaN'),
        (b'"samples":[0.99', b'"samples":[1'),
        (b'"samples":[0.99', b'"samples":[-0.99'),
        (b'"samples":[0.99', b'"samples":[01.0'),
        (b'"samples":[0.99', b'"samples":["0.99"'),
        (b'"value":1.0', b'"value":-1e999'),
        (b'"value":1.0', b'"value":1'),
        (b'"passed":true', b'"passed":false'),
        (b'"passed":true', b'"passed":true,"far":36893488147419103232'),
        (b'"passed":true', b'"passed":true,"far":1e999'),
        (b'"passed":true', b'"passed":true,"deep":' + b"[" * 63 + b"]" * 63),
        (b'"passed":true', b'"passed":true,"deep":' + b"[" * 62 + b"]" * 62),
        (b'"passed":true', b'"passed":true,"text":"\\ud800"'),
        (b'"passed":true', b'"passed":true,"text":"\xff"'),
        (b'"status":"ok"', b'"status":"crashed"'),
        (b'"status":"ok"', b'"status":"ok","absent":{"hops":"no count"}'),
        (b'"status":"ok"', b'"status":"ok","accounting":{"votes":{"hops":[1.0]}}'),
        (b'"flags":[]', b'"flags":[],"n":9'),
        (b'"flags":[]', b'"flags":["a"],"flags":[]'),
        (b',"flags":[]', b',,"flags":[]'),
        (b',"flags":[]', b' ,"flags":[]'),
        (b',"flags":[]', b""),
        (b'"launch":0', b'"launch":00'),
        (b'"launch":0', b'"launch":-0'),
        (b'"launch":0', b'"launch":1000000'),
        (b'"launch":0', b'"launch":1000001'),
        (b'"series_key"', b'"launch":4,"series_key"'),
        (b'"series_key"', b'"series_key":"inner","series_key"'),
        (b'"series_key"', b'"attempt":1,"series_key"'),
        (b'"series_key"', b',"series_key"'),
        (b'"series_key"', b'"params":{"series_key":"0","launch":0,"attempt":0,"params":1},"series_key"'),
        (b'"suite":', b'"x":{"suite":'),
        (b'"technique"', b'"metric":{"name":"latency"},"technique"'),
        (b'"technique"', b'"metric":{"samples":[1.0],"value":1.0},"technique"'),
        (b'"ranks":2', b'"ranks":0'),
        (b'"ranks":2', b'"ranks":2,"ranks":1'),
        (b'"ranks":2', b'"ranks":2,"beside":"nothing"'),
        (b'"ranks":2', b'"ranks":[2]'),
        (b'"better":"lower"', b'"better":"higher"'),
        (b'"better":"lower"', b'"better":"faster"'),
        (b'"family":"collectives"', b'"family":"imported"'),
        (b'"family":"collectives"', b'"family":"training"'),
        (b'"label":"native"', b'"label":"alone"'),
        (b'"record_id":"', b'"record_id":"\\u0061'),
        (b'"record_id":"', b'"record_id":"A'),
        (b'"record_id":"', b'"record_id":"\\u202e'),
        (b'"run_id":"', b'"run_id":"-'),
        (b"}\n", b"}"),
        (b"}\n", b"} \n"),
        (b"}\n", b"}}\n"),
        (b"}\n", b"\n"),
        (b"{", b"{ "),
    ],
)
def test_a_line_with_other_bytes_reads_as_it_does_alone(old: bytes, new: bytes) -> None:
    assert old in LINES[0]
    agree(LINES[0].replace(old, new, 1))
    agree(new.join(LINES[0].rsplit(old, 1)))


@given(st.data())
def test_lines_with_random_bytes_changed_read_as_they_do_alone(data: st.DataObject) -> None:
    line = bytearray(data.draw(st.sampled_from([*LINES[:6:2], FAILED])))
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(line) - 1))
        end = min(len(line), begin + data.draw(st.integers(0, 12)))
        other = data.draw(st.sampled_from(LINES))
        at = data.draw(st.integers(0, len(other) - 1))
        line[begin:end] = data.draw(
            st.one_of(
                st.sampled_from(
                    [b'"', b",", b"{", b"}", b"[", b"]", b":", b"0", b"e999", b"\\", b"\xff", b"null"]
                ),
                st.just(other[at : at + data.draw(st.integers(0, 40))]),
            )
        )
    agree(bytes(line), reader=after(LINES))


@given(
    st.lists(st.one_of(st.floats(), st.integers(), st.booleans(), st.none()), max_size=4),
    st.one_of(st.floats(), st.integers(), st.none()),
    st.integers(-1, 4),
    st.sampled_from(["s", "B/s"]),
)
def test_samples_of_any_kind_read_as_they_do_alone(samples: list[Any], value: Any, n: int, unit: str) -> None:
    line = json.loads(LINES[0]) | {"samples": samples, "value": value, "n": n}
    line["metric"]["unit"] = unit
    agree(json.dumps(line, separators=(",", ":")).encode() + b"\n")
