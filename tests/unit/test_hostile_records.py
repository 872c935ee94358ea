"""Records that other people wrote: what a report reads of them is refused, or harmless."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import record_factory
from click.testing import CliRunner

from paceline.cli import application
from paceline.records.format.record import dump_line, parse_line
from paceline.records.format.record_file import run_id_of
from paceline.records.store.folder import Loaded, RunRecord, load
from paceline.records.store.merging import merge
from paceline.report.site.build import SiteInput, render_site

SCRIPT = "<script>alert(1)</script>"
HOSTILE: tuple[Any, ...] = (
    SCRIPT,
    10**400,
    -1,
    0,
    1e308,
    None,
    [],
    {},
    [["a"]],
)
SOLVE = {
    "op": "solve",
    "model": "weak",
    "partner": "none",
    "questions": 2,
    "samples": 2,
    "levels": "1-6",
    "size_bytes": 1,
    "link": "loopback",
    "ranks": 1,
}
ACCOUNTINGS: dict[str, dict[str, Any]] = {
    "reasoning": {
        "examples": [
            {
                "question": "1 + 1",
                "level": 1,
                "answer": "2",
                "given": None,
                "traces": [["answers 2", "1 + 1 = 2"]],
            }
        ],
        "right_by_level": {"1": [1, 2]},
        "right_traces": [[2, 0], 2],
        "votes": {"accuracy_reordered": [0.1, 0.2], "tokens_reordered": [10.0, 20.0]},
    },
    "training": {
        "curve": {
            "tokens": [1.0, 2.0],
            "excess_loss": [2.0, 1.0],
            "seconds": [0.1, 0.2],
            "bytes_from": "kernel",
        },
        "timeline": [{"title": "simulated", "ranks": [[["F", 0, 0, 0.0, 1.0], ["B", 0, 0, 1.0, 2.0]]]}],
    },
}
SHOWN = {"reasoning": "1 + 1 = 2", "training": "One step of ring"}
"""What a point's page has of them."""
POINTS = {
    "reasoning": ("accuracy", SOLVE),
    "training": (
        "time_per_token",
        {
            "op": "data_parallel",
            "size": "nano",
            "batch": 4,
            "context": 32,
            "data": "markov",
            "ranks": 2,
            "link": "x",
        }
        | {"size_bytes": 1, "steps": 4, "microbatches": 1, "dtype": "float32"},
    ),
}


def record_lines(family: str) -> list[dict[str, Any]]:
    """Return a run of one point, as a file holds it: two techniques and a plan that left one out."""
    metric, params = POINTS[family]
    suite = {"suite": f"{family}/example", "version": 1, "family": family, "baseline": "native"}
    run = record_factory.make_run(
        suites=[{**suite, "metrics": {metric: 0.02}, "claims": []}],
        plan={
            "skipped": [{"suite": "a/b", "label": None, "params": {"ranks": 2}, "reason": "too few cores"}]
        },
        runner={"name": "local-cpu", "links": {"x": {"rate_bytes_per_s": 1e9, "delay_s": None}}},
        host={"cpu": "Some CPU", "caches": {"L1": 1}},
        packages={"python": "3.11", "freeze": ["numpy==2.0"]},
        techniques={f"{family}/ring": {"file": "ring.py", "sha256": "11", "paper": None}},
    )
    lines = []
    for label, value in (("native", 1.0), ("ring", 0.5)):
        lines += record_factory.launches(
            run,
            label,
            [value, value],
            metric=metric,
            params=params,
            family=family,
            suite=suite["suite"],
            accounting=ACCOUNTINGS[family],
            ceilings={"calibrated": {"bytes_per_s": 1e9}, "binding": "memory"},
            cross_rank={"arrival_skew_max_s": 0.1},
        )
    return [json.loads(dump_line(line)) for line in (run, *lines)]


def record_of(lines: list[dict[str, Any]]) -> RunRecord:
    """Read lines as a file's; refuse what is not legal."""
    run, *measurements = (parse_line(json.dumps(line)) for line in lines)
    return record_factory.in_memory(run, measurements)


def pages_of(*records: RunRecord) -> Iterator[tuple[str, str]]:
    return render_site(SiteInput(loaded=Loaded(records=list(records))))


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all parts of nested data, of lists to the first."""
    yield before
    parts = (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    )
    for key, part in parts:
        yield from places(part, (*before, key))


def changed(lines: list[dict[str, Any]], place: tuple[Any, ...], value: Any) -> list[dict[str, Any]]:
    found = pickle.loads(pickle.dumps(lines))  # as deepcopy does, in half of its time
    part: Any = found
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return found


OPEN = (
    "suites",
    "plan",
    "runner",
    "host",
    "packages",
    "techniques",
    "params",
    "accounting",
    "ceilings",
    "metric",
)
"""Fields whose parts reports read; names and texts beside them are tested with all pages."""


@pytest.mark.parametrize("family", sorted(ACCOUNTINGS))
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:16])
@pytest.mark.one_in(4)
def test_no_part_of_a_record_breaks_a_page(family: str, value: Any) -> None:
    lines = record_lines(family)
    page = next(text for name, text in pages_of(record_of(lines)) if name.startswith("cases/"))
    assert SHOWN[family] in page
    ways = [(i, *way) for i in (0, 1) for way in places(lines[i]) if len(way) > 1 and way[0] in OPEN]
    assert len(ways) > 60
    before, num_shown = record_of(record_lines(family)), 0
    for way in ways:
        try:
            record = record_of(changed(lines, way, value))
        except ValueError:
            continue
        num_shown += 1
        for name, text in pages_of(before, record):  # which also has a page of the two beside each other
            if not isinstance(text, bytes):  # tables are data, whatever they hold
                assert name.endswith((".csv", ".json")) or SCRIPT not in text, name
    assert num_shown or value == 10**400  # which no part of a record may be


@pytest.mark.parametrize(
    ("way", "value", "reason"),
    [
        (("accounting", "curve", "tokens"), [1.0], "different lengths"),
        (("accounting", "curve", "tokens"), {"a": 1}, "accounting.curve"),
        (("accounting", "timeline", 0, "ranks"), [], "at least 1 item"),
        (("accounting", "timeline", 0, "ranks", 0, 0, 0), "Z", "'F', 'B', 'I', 'W' or 'C'"),
        (("accounting", "timeline", 0, "title"), 1, "valid string"),
        (("samples", 0), float("nan"), "NaN is not a number"),
        (("samples", 0), 10**400, "too large a number"),
        (("params", "steps"), 10**30, "too large a number"),
    ],
)
def test_what_reports_cannot_read_is_refused_with_its_place(
    way: tuple[Any, ...], value: Any, reason: str
) -> None:
    lines = changed(record_lines("training"), (1, *way), value)
    with pytest.raises(ValueError, match=re.escape(reason)):
        record_of(lines)


@pytest.mark.parametrize(
    ("way", "value", "reason"),
    [
        (("right_by_level", "1"), [3, 2], "3 of 2"),
        (("right_by_level", "1"), [0, 0], "greater than or equal to 1"),
        (("right_by_level",), {"high": [1, 2]}, "pattern"),
        (("right_traces", 0), [3], "3 of 2"),
        (("examples", 0, "traces"), [["only its end"]], "Field required"),
        (("examples", 0, "question"), None, "valid string"),
        (("votes", "accuracy_reordered"), "rising", "valid list"),
    ],
)
def test_counts_that_cannot_be_are_refused(way: tuple[Any, ...], value: Any, reason: str) -> None:
    lines = changed(record_lines("reasoning"), (1, "accounting", *way), value)
    with pytest.raises(ValueError, match=re.escape(reason)):
        record_of(lines)


@pytest.mark.parametrize("digits", ["1e999", "-1e999"])
def test_a_number_without_end_is_refused_where_no_type_is_stated(digits: str) -> None:
    line = json.dumps(record_lines("training")[0]).replace('"L1": 1', f'"L1": {digits}')
    with pytest.raises(ValueError, match="not a finite number"):
        parse_line(line)


def test_one_metric_under_two_contracts_stands_on_no_board() -> None:
    lines = record_lines("training")
    for line in lines[3:]:
        line["metric"]["contract_id"] = "other"
    pages = dict(pages_of(record_of(lines)))
    assert not [name for name in pages if name.startswith("boards/")]
    assert "under two contracts in one block" in pages["index.html"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"record_id": "0" * 20}, "is not the identity of this measurement"),
        ({"series_key": "0" * 16}, "is not the series of this case"),
        ({"value": 0.5}, "is not the"),
        (
            {
                "metric": {
                    "name": "latency",
                    "unit": "s",
                    "better": "lower",
                    "statistic": "best",
                    "contract_id": "c",
                }
            },
            "this version knows no contract c of it",
        ),
        ({"better": "higher"}, "by its contract it is s, lower, median, and not s, higher, median"),
    ],
)
def test_a_record_that_lies_about_itself_is_not_merged(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    honest = record_factory.simple(tmp_path / "honest")
    run = record_factory.make_run()
    first, *others = record_factory.launches(run, "native", [1.0, 1.1])
    if "better" in changes:
        changes = {"metric": first.metric.model_dump() | changes}
    elif "metric" in changes:  # its series follows the contract, and only the statistic is wrong
        changes["series_key"] = record_factory.series_key(
            "collectives", first.case_id, "native", run.host_class, "c"
        )
    record_factory.write(tmp_path / "lying", run, [type(first)(**(first.model_dump() | changes)), *others])
    added, problems = merge(tmp_path / "mine", [tmp_path / "lying", tmp_path / "honest"])
    assert added == 1
    assert [record.run_id for record in load([tmp_path / "mine"]).records] == [run_id_of(honest)]
    assert len(problems) == 1
    assert reason in problems[0].what
    told = CliRunner().invoke(
        application, ["store", "merge", str(tmp_path / "lying"), "--results", str(tmp_path / "mine")]
    )
    assert told.exit_code != 0
    assert reason in told.output.replace("\n", " ")
