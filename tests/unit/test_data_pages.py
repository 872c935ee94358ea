"""Tables as files: the numbers of the boards, readable by other programs, inert in spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from test_site import Page, measurement, record, render, run_line

from paceline.claims import ClaimResult
from paceline.compare import compare_points, points_of
from paceline.report import datapages
from paceline.report.exports import FORMULA, Choice, csv_table
from paceline.store import RunRecord

HOSTILE = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1"]


def tables(files: dict[str, str], end: str) -> list[str]:
    return [text for name, text in files.items() if name.startswith("data/") and name.endswith(end)]


def test_rows_hold_the_comparisons_numbers() -> None:
    given = record(1)
    (text,) = tables(render(given), ".csv")
    frame = pandas.read_csv(io.StringIO(text))
    comparisons = compare_points(points_of(given))
    for c in comparisons:
        (row,) = frame[
            (frame.label == c.label)
            & (frame.metric == c.metric)
            & (frame["param.size_bytes"] == c.point.params["size_bytes"])
        ].itertuples()
        assert (row.value, row.effect, row.effect_low) == pytest.approx(
            (c.value.value, c.effect.value, c.effect.low)
        )
        assert row.verdict == c.verdict.name
    # two sizes, three techniques with numbers, two metrics; the baseline has no effect
    assert len(frame) == 12
    assert frame[frame.role == "baseline"].effect.isna().all()


def test_csv_and_json_hold_the_same_rows() -> None:
    files = render(record(1))
    (table,), (document,) = tables(files, ".csv"), tables(files, ".json")
    rows = json.loads(document)["rows"]
    assert len(rows) == 12
    for flat, row in zip(csv.DictReader(io.StringIO(table)), rows, strict=True):
        assert flat == {k: "" if v is None else str(v) for k, v in row.items()}


@pytest.mark.parametrize("evil", HOSTILE)
def test_no_cell_of_a_csv_begins_like_a_formula(evil: str) -> None:
    run = run_line(1, host_class=evil)
    lines = [
        measurement(run, label, 8, launch, params={"op": "all_reduce", "size_bytes": 8, evil: evil})
        for label in ("native", evil)
        for launch in range(2)
    ]
    given = RunRecord(path=Path("x.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True)
    files = render(given)
    (text,) = tables(files, ".csv")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert f"'{evil}" in cells
    assert not [c for c in cells if c.startswith(FORMULA) and not _number(c)]
    long = [cell for row in csv.reader(io.StringIO(csv_table([given], Choice()), newline="")) for cell in row]
    assert f"'{evil}" in long
    assert not [c for c in long if c.startswith(FORMULA) and not _number(c)]
    assert evil in {row["label"] for row in json.loads(tables(files, ".json")[0])["rows"]}


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_json_cannot_hold_becomes_null(value: float | None) -> None:
    assert datapages.finite(value) is None
    assert json.loads(datapages.json_text([{"value": datapages.finite(value)}]))["rows"] == [{"value": None}]


def test_a_number_that_slips_through_as_nan_is_an_error_and_no_broken_file() -> None:
    with pytest.raises(ValueError, match="JSON"):
        datapages.json_text([{"value": float("nan")}])


def test_claims_are_a_table_of_their_own() -> None:
    facts: dict[str, Any] = {"paper": None, "suite": "collectives/all-reduce", "claim_id": "c", "quote": "=x"}
    facts |= {"scope": "bound", "expectation": "ratio ≤ 1", "metric": "latency", "technique": "ring"}
    files = render(record(1), bounds=[ClaimResult(**facts, versus="native", verdict="not run")])
    (row,) = csv.DictReader(io.StringIO(files["data/claims.csv"]))
    assert row["verdict"] == "not run"
    assert row["quote"] == "'=x"


def test_the_page_leads_to_every_file() -> None:
    files = render(record(1), record(2, host_class="Another CPU"))
    links = set(Page(files["data.html"]).links)
    written = {name for name in files if name.startswith("data/")}
    assert len(written) == 4
    assert written <= links
