"""Tables as files: the numbers of the boards, readable by other programs, inert in spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas
import pytest
from pyarrow import parquet
from test_site import Page, measurement, record, render, run_line

from paceline.analysis.claims.headlines import ledger
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.records.store.folder import Loaded, RunRecord
from paceline.report.charts import badges
from paceline.report.exports.choice import Choice
from paceline.report.exports.formats import FORMULA, csv_table
from paceline.report.site import downloads
from paceline.report.site.build import SiteInput, render_site
from paceline.spec.ledger.papers import load_papers

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


def test_parquet_holds_the_rows_of_json_in_the_same_bytes_each_time() -> None:
    given = SiteInput(loaded=Loaded(records=[record(1)]))
    first, second = (dict(render_site(given)) for _ in range(2))
    assert first == second
    (name,) = [name for name in first if name.endswith(".parquet")]
    data, document = first[name], first[name.replace(".parquet", ".json")]
    assert isinstance(data, bytes)
    assert isinstance(document, str)
    table = parquet.read_table(io.BytesIO(data))
    assert table.to_pylist() == json.loads(document)["rows"]
    assert str(table.schema.field("value").type) == "double"
    assert str(table.schema.field("launches").type) == "int64"


def test_a_column_of_parquet_whose_values_have_several_types_is_text() -> None:
    rows: list[downloads.Row] = [
        {"a": 1, "b": 1, "c": True, "d": None},
        {"a": "x", "b": 0.5, "e": [1, {"z": 2}]},
    ]
    table = parquet.read_table(io.BytesIO(downloads.parquet_bytes(rows)))
    assert table.to_pydict() == {
        "a": ["1", "x"],
        "b": [1.0, 0.5],
        "c": [True, None],
        "d": [None, None],
        "e": [None, '[1, {"z": 2}]'],
    }
    hostile: list[downloads.Row] = [{"a": 1 << 63, "b": "\ud800"}]
    table = parquet.read_table(io.BytesIO(downloads.parquet_bytes(hostile)))
    assert table.to_pylist() == [{"a": str(1 << 63), "b": "\\ud800"}]


def test_a_board_has_a_badge_that_says_how_its_comparisons_ended_and_a_paper_its_verdict() -> None:
    papers = load_papers()
    slug = next(p.slug for p in papers.values() if p.family == "collectives")
    facts: dict[str, Any] = dict.fromkeys(("claim_id", "quote", "scope", "expectation"), "x")
    found = ClaimResult(
        **facts,
        paper=slug,
        suite="s",
        metric="latency",
        technique="ring",
        versus=None,
        verdict="not reproduced",
        reproduces=True,
        said={"number": "x", "place": "abstract"},
    )
    files = render(record(1), ledger=ledger(papers, [found]).rows)
    names = sorted(name for name in files if name.startswith("badges/"))
    said = ["".join(ElementTree.fromstring(files[name]).itertext()) for name in names]
    assert len(said) == 2
    assert any("collectives/all-reduce" in text and "1 faster" in text.replace("2", "1") for text in said)
    assert any(slug in text and "not reproduced" in text for text in said)
    assert set(names) <= set(Page(files["data.html"]).links)


@pytest.mark.parametrize("kind", badges.COLOURS)
def test_badges_can_be_read_and_carry_hostile_texts_as_texts(kind: str) -> None:
    root = ElementTree.fromstring(badges.badge("<script>" * 100, "\"&'", kind))
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert int(root.attrib["width"]) < 800
    red, green, blue = (int(badges.COLOURS[kind][i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue)]
    assert 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) >= 4.5


@pytest.mark.parametrize("evil", HOSTILE)
def test_no_cell_of_a_csv_begins_like_a_formula(evil: str) -> None:
    # past the record's own checks, which let no control characters in
    run = run_line(1).model_copy(update={"host_class": evil})
    params = {"op": "all_reduce", "size_bytes": 8, evil: evil}
    lines = [
        measurement(run, "native", 8, launch).model_copy(update={"label": label, "params": params})
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
    assert downloads.finite(value) is None
    assert json.loads(downloads.json_text([{"value": downloads.finite(value)}]))["rows"] == [{"value": None}]


def test_a_number_that_slips_through_as_nan_is_an_error_and_no_broken_file() -> None:
    with pytest.raises(ValueError, match="JSON"):
        downloads.json_text([{"value": float("nan")}])


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
    assert len(written) == 6
    assert written <= links
