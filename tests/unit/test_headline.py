"""Headline metrics of a suite stand first and are few; its other metrics are compared all the same, and shown apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import record_factory as factory

from paceline.analysis.compare import compare_points
from paceline.analysis.points import headline, points_of
from paceline.base.errors import UserError, UserErrors
from paceline.base.families.family import MOST_HEADLINE, load_family
from paceline.records.origin.provenance import suite_facts
from paceline.report.boards.page import diagnostic_grid as board_diagnostic_grid
from paceline.report.points.page import diagnostic_grid, headline_grid
from paceline.report.tables.results import diagnostic_table, suite_tables
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.comparing import comparison_facts

METRICS = ("latency", "wire_bytes", "messages")


def record(*diagnostic: str, metrics: tuple[str, ...] = METRICS) -> factory.RunRecord:
    suites = factory.make_run().suites
    facts = {**suites[0], "metrics": dict.fromkeys(metrics, 0.02)}
    run = factory.make_run(suites=[{**facts, **({"diagnostic": list(diagnostic)} if diagnostic else {})}])
    lines = [
        factory.measurement(run, label, launch, [value + launch / 100], metric=metric)
        for launch in range(5)
        for label, value in (("native", 1.0), ("ring", 1.5))
        for metric in metrics
    ]
    return factory.in_memory(run, lines)


def test_diagnostic_metrics_are_compared_and_stand_in_a_table_of_their_own() -> None:
    points = points_of(record("messages"))
    comparisons = compare_points(points)
    assert {c.metric for c in comparisons} == set(METRICS)
    board, diagnostic = suite_tables(points, comparisons)
    assert "wire_bytes" in board.headers and "messages" not in board.headers
    assert diagnostic.headers == ("technique", "messages") and len(diagnostic.rows) == 2
    assert {c.metric: comparison_facts(c)["headline"] for c in comparisons} == {
        "latency": True,
        "wire_bytes": True,
        "messages": False,
    }


def test_a_technique_without_any_diagnostic_metric_has_no_line_of_them() -> None:
    whole = record("messages")
    kept = [m for m in whole.measurements if (m.label, m.metric.name) != ("native", "messages")]
    table = diagnostic_table(points_of(factory.in_memory(whole.run, kept)))
    assert table is not None
    assert [row[0] for row in table.rows] == ["ring"]


def test_verdicts_do_not_depend_on_what_is_called_diagnostic() -> None:
    def found(*diagnostic: str) -> list[tuple[object, ...]]:
        comparisons = compare_points(points_of(record(*diagnostic)))
        return [(c.metric, c.effect.value, c.effect.low, c.q_value, c.verdict) for c in comparisons]

    assert found() == found("messages", "wire_bytes")


def test_without_diagnostic_metrics_there_is_one_table() -> None:
    points = points_of(record())
    assert diagnostic_table(points) is None and board_diagnostic_grid(points) is None
    assert len(suite_tables(points, compare_points(points))) == 1


def test_a_points_page_shows_headline_metrics_first_and_every_other_metric_after() -> None:
    (point,) = points_of(record("messages"))
    first, second = (
        [row[0].text for group in grid(point).groups for row in group]
        for grid in (headline_grid, diagnostic_grid)
    )
    assert list(dict.fromkeys(first)) == ["latency", "wire_bytes"]
    assert second[0] == "messages" and not set(first) & set(second)


def test_of_a_run_from_before_the_first_metrics_are_headline() -> None:
    names = tuple(m.name for m in load_family("collectives").metrics)[: MOST_HEADLINE + 3]
    run = record(metrics=names).run
    assert headline(run, "collectives/example") == list(names[:MOST_HEADLINE])


def suite_with(folder: Path, num_headline: int, num_diagnostic: int) -> Path:
    names = [m.name for m in load_family("collectives").metrics]
    path = folder / "suite.yaml"
    lines = [f"  {name}: {{margin: 0}}" for name in names[:num_headline]]
    lines += [
        f"  {name}: {{margin: 0, diagnostic: true}}"
        for name in names[num_headline : num_headline + num_diagnostic]
    ]
    path.write_text(
        "suite: collectives/own\nversion: 1\nfamily: collectives\ndescription: Its metrics.\n"
        "workload: {op: all_reduce}\nbaseline: native\ntechniques: [native, ring]\n"
        "matrix: {size_bytes: [4KiB], ranks: [2]}\ntiers:\n  quick: {omit: of no use}\nmetrics:\n"
        + "\n".join(lines)
        + "\n"
    )
    return path


def test_a_suite_with_too_many_headline_metrics_is_refused_with_its_line(tmp_path: Path) -> None:
    path = suite_with(tmp_path, MOST_HEADLINE + 1, 0)
    with pytest.raises((UserError, UserErrors)) as caught:
        load_suite(path)
    assert f"{path}:11:metrics: the suite has 9 headline metrics" in str(caught.value)
    assert "1 to 8, and diagnostic: true for the others" in str(caught.value)


def test_the_facts_of_a_run_name_the_diagnostic_metrics_of_its_suite(tmp_path: Path) -> None:
    (facts,) = suite_facts([load_suite(suite_with(tmp_path, 2, 1))])
    assert len(facts["metrics"]) == 3 and facts["diagnostic"] == [list(facts["metrics"])[2]]
    (plain,) = suite_facts([load_suite(suite_with(tmp_path, 2, 0))])
    assert "diagnostic" not in plain
