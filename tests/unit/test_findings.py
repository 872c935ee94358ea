"""Findings: sentences whose figures are those of the raw samples, and which go when their verdict does."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_site import EVIL, SUITE, measurement, run_line

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.claims.verdicts import NullFound
from paceline.analysis.compare import Comparison, compare_points, ranks
from paceline.base.families.family import family_names, load_family
from paceline.records.store.folder import RunRecord
from paceline.report.boards.standing import Board, select
from paceline.report.charts.small import standalone
from paceline.report.claims.partly import part_text
from paceline.report.findings.rules import Finding, Known, findings
from paceline.report.findings.sentences import gain_sentence
from paceline.report.tables.quality import losses, quality_ranks
from paceline.report.tables.results import board_table
from paceline.report.words.names import metric_label
from paceline.stats.estimates import Estimate

KB, MB = 1024, 1024 * 1024
QUICK = {"native": 1.0, "tree": 0.5}
WITH_ERROR = {**SUITE, "metrics": {"latency": 0.02, "relative_l2_error": 0.0}}


def shaken(base: float, launch: int, label: str) -> list[float]:
    """Return seven samples of a launch whose median is the fourth: a little off the base, by launch and technique."""
    off = 1 + 0.004 * ((launch * 7 + len(label) * 3) % 5 - 2)
    return [base * off * (1 + 0.001 * (i - 3)) for i in range(7)]


def measured(
    number: int,
    times: Mapping[int, Mapping[str, float]],
    *,
    errors: Mapping[str, float] | None = None,
    launches: int = 6,
    host_class: str = "Test CPU, 2 cores",
    **facts: object,
) -> RunRecord:
    """Return a run of times in seconds by size and technique, and of errors by technique; ``facts`` are its suite's."""
    suite = {**(WITH_ERROR if errors else SUITE), **facts}
    run = run_line(number, suites=[suite], host_class=host_class)
    lines = []
    for size, by_label in times.items():
        for launch in range(launches):
            for label, base in by_label.items():
                for metric, drawn in (
                    ("latency", shaken(base, launch, label)),
                    (
                        "relative_l2_error",
                        shaken(errors[label], launch, label) if errors and label in errors else [],
                    ),
                ):
                    if drawn:
                        value = sorted(drawn)[3]
                        lines.append(
                            measurement(run, label, size, launch, metric, samples=drawn, value=value, n=7)
                        )
    path = Path(f"{run.run_id}.jsonl")
    return RunRecord(path=path, run=run, measurements=tuple(lines), events=(), sealed=True)


def known(*records: RunRecord, claims: tuple[ClaimResult, ...] = ()) -> Known:
    boards = select(records).boards
    compared = compare_points([p for b in boards for p in b.points])

    def of(board: Board) -> list[Comparison]:
        own = {id(p) for p in board.points}
        return [c for c in compared if id(c.point) in own]

    return Known(boards=boards, of=of, claims=claims)


def ratio_of_samples(record: RunRecord, label: str, size: int, metric: str = "latency") -> float:
    """Return a technique's ratio to native from raw samples alone: geometric mean over launches of medians."""
    middle = {
        (m.label, m.launch): sorted(m.samples)[len(m.samples) // 2]
        for m in record.measurements
        if m.params["size_bytes"] == size and m.metric.name == metric
    }
    launches = sorted({launch for _, launch in middle})
    logs = [math.log(middle[(label, n)] / middle[("native", n)]) for n in launches]
    return math.exp(sum(logs) / len(logs))


def only(found: list[Finding], rule: str) -> Finding:
    (one,) = [f for f in found if f.rule == rule]
    return one


def test_the_largest_gain_is_a_sentence_with_the_figures_of_the_samples() -> None:
    given = measured(1, {KB: {"native": 1e-3, "tree": 0.5e-3}, MB: {"native": 4e-3, "tree": 3.6e-3}})
    finding = only(findings(known(given)), "largest")
    ratio = ratio_of_samples(given, "tree", KB)
    assert finding.sentence.startswith(f"tree is {1 / ratio:.3g} times as fast as native: latency ")
    assert f" against 1 ms, {ratio:.3g} × [" in finding.sentence
    assert (
        "collectives/all-reduce, 1 KiB; local-cpu, Test CPU, 2 cores; grade B, 6 launches" in finding.sentence
    )
    assert finding.href.startswith("cases/")


def test_a_count_is_a_share_of_the_baseline_s_and_its_label_says_of_what() -> None:
    seen = known(measured(1, {KB: QUICK}))
    (board,) = seen.boards
    (faster,) = (c for c in seen.of(board) if c.label == "tree" and c.metric == "latency")
    counts = {
        "metric": "tokens_reordered",
        "unit": "token",
        "effect": replace(faster.effect, value=0.6972),
        "value": replace(faster.value, value=957.4),
        "baseline_value": replace(faster.baseline_value, value=1373.2),
    }
    said = gain_sentence(replace(faster, **counts), board)
    assert said.startswith(
        "tree needs 69.7 % of the order-averaged tokens of native: 957 order-averaged tokens against 1,373, 0.697 × ["
    )


def test_a_label_that_ends_in_the_letters_of_its_unit_is_no_count() -> None:
    seen = known(measured(1, {KB: QUICK}))
    (board,) = seen.boards
    (faster,) = (c for c in seen.of(board) if c.label == "tree" and c.metric == "latency")
    assert metric_label("time_to_target") == "time to the target loss"
    times = {
        "value": replace(faster.value, value=1.5),
        "baseline_value": replace(faster.baseline_value, value=3.0),
    }
    said = gain_sentence(replace(faster, metric="time_to_target", **times), board)
    assert ": time to the target loss 1.5 s against 3 s, " in said


def test_a_finding_goes_when_its_verdict_does() -> None:
    assert findings(known(measured(1, {KB: QUICK})))
    assert not findings(known(measured(1, {KB: {"native": 1.0, "tree": 1.0}})))
    slower = findings(known(measured(1, {KB: {"native": 1.0, "tree": 2.0}})))
    assert not slower, "a loss is no gain"


def test_few_launches_are_no_finding() -> None:
    assert not findings(known(measured(1, {KB: QUICK}, launches=3)))


def test_what_several_processors_measured_counts_once_by_the_newest() -> None:
    older = measured(1, {KB: QUICK}, host_class="One CPU")
    newer = measured(2, {KB: {"native": 1.0, "tree": 1.0}}, host_class="Another CPU")
    assert not findings(known(older, newer)), "the newest measurement shows no gain"
    newest = measured(3, {KB: QUICK}, host_class="One CPU")
    assert "One CPU" in only(findings(known(newer, newest)), "largest").sentence


def test_a_gain_that_quality_was_paid_for_is_told_with_its_price_and_is_no_largest_gain() -> None:
    errors = {"native": 1e-7, "tree": 1e-7, "lossy": 0.2}
    given = measured(1, {KB: {"native": 1.0, "tree": 0.8, "lossy": 0.1}}, errors=errors)
    found = findings(known(given))
    assert only(found, "largest").sentence.startswith("tree ")
    price = only(found, "but worse").sentence
    ratio = ratio_of_samples(given, "lossy", KB)
    assert price.startswith(f"lossy is {1 / ratio:.3g} times as fast as native, but worse: ")
    assert "and relative error 0.2 against 1e-07, difference 0.2" in price


def test_a_quality_that_its_suite_does_not_ask_after_is_no_finding() -> None:
    errors = {"native": 1e-7, "tree": 1e-7, "lossy": 0.2}
    times = {KB: {"native": 1.0, "tree": 0.8, "lossy": 0.1}}
    given = measured(1, times, errors=errors, diagnostic=["relative_l2_error"])
    found = findings(known(given))
    assert [f.rule for f in found] == ["largest"]
    assert found[0].sentence.startswith("tree "), "what it lost still keeps it from being the largest gain"


@pytest.mark.parametrize(
    ("verdict", "told"), [("says nothing", False), ("consistent with a model", False), ("partly", True)]
)
def test_a_gain_that_an_arm_without_the_mechanism_has_too_is_no_largest_gain(
    verdict: str, told: bool
) -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 0.1, "ring": 0.5}})
    found = findings(known(given, claims=(claim(verdict),)))
    assert [f.sentence.partition(" ")[0] for f in found if f.rule == "largest"] == ["tree"] * told


def test_what_an_arm_without_the_mechanism_gains_is_no_finding() -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 0.1, "ring": 0.5}})
    told = replace(claim("partly"), null=NullFound(technique="tree"))
    assert only(findings(known(given, claims=(told,))), "largest").sentence.startswith("ring ")


def test_a_crossing_says_on_which_side_which_technique_is_faster() -> None:
    given = measured(1, {KB: {"native": 1e-3, "tree": 0.5e-3}, MB: {"native": 4e-3, "tree": 8e-3}})
    finding = only(findings(known(given)), "crossing")
    below, above = (ratio_of_samples(given, "tree", size) for size in (KB, MB))
    assert finding.sentence.startswith("tree is faster than native below about 32")
    assert f"{below:.3g} × [" in finding.sentence and " at 1 KiB, " in finding.sentence
    assert f"{above:.3g} × [" in finding.sentence and " at 1 MiB (" in finding.sentence


def claim(verdict: str, **changes: object) -> ClaimResult:
    facts: dict[str, object] = {
        "paper": "a-paper",
        "suite": "collectives/all-reduce",
        "claim_id": "twice",
        "quote": "twice as fast",
        "scope": "here",
        "expectation": "ratio ≤ 0.5",
        "metric": "latency",
        "technique": "tree",
        "versus": "native",
        "verdict": verdict,
        "expect": {"ratio_at_most": 0.5},
        "worst": Estimate(value=0.9, low=0.88, high=0.92, method="t", num_launches=6),
        "host_class": "Test CPU, 2 cores",
        "grade": "B",
    }
    return ClaimResult(**(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", ["reproduced", "inconclusive", "not testable here", "not run"])
def test_only_claims_that_did_not_hold_are_findings(verdict: str) -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 1.0}})
    assert not findings(known(given, claims=(claim(verdict),)))


def test_a_claim_that_held_in_part_says_what_part() -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 1.0}})
    finding = only(findings(known(given, claims=(claim("partly"),))), "claim")
    assert finding.sentence == (
        "“twice as fast” (paper: a-paper) held in part (20 % of the gain): latency of tree against native "
        "is 0.9 × [0.88, 0.92], asked ratio ≤ 0.5 (collectives/all-reduce; Test CPU, 2 cores)."
    )
    assert finding.href == "claims.html#a-paper"


def test_a_claim_whose_bound_is_met_or_whose_paper_has_another_verdict_is_no_finding() -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 1.0}})
    short = claim("partly")
    met = replace(short, points=(({"ranks": 2}, replace(short.worst, value=0.4, low=0.38, high=0.42)),))  # type: ignore[type-var]
    assert not findings(known(given, claims=(met,)))
    told = known(given, claims=(short,))
    assert only(findings(replace(told, papers={"a-paper": "partly"})), "claim")
    assert not findings(replace(told, papers={"a-paper": "inconclusive"}))


def test_claims_of_nobody_and_of_few_launches_are_no_findings() -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 1.0}})
    for wrong in ({"paper": None}, {"grade": "C"}, {"worst": None}):
        assert not findings(known(given, claims=(claim("not reproduced", **wrong),)))


def test_what_part_of_a_claim_held() -> None:
    def at(*values: float) -> ClaimResult:
        points = tuple(({"ranks": i}, replace(claim("partly").worst, value=v)) for i, v in enumerate(values))  # type: ignore[type-var]
        return claim("partly", points=points, worst=points[-1][1])

    assert part_text(at(0.4, 0.5, 0.9)) == "2 of 3 points"
    assert part_text(at(0.9)) == "20 % of the gain"
    assert part_text(at(0.98)) == "direction only"
    assert part_text(claim("partly", expect={"equal_within": 0.1}, expectation="")) == "direction only"
    assert part_text(claim("reproduced")) == ""
    own = replace(claim("partly").worst, value=0.4, low=0.38, high=0.42)  # type: ignore[type-var]
    met = claim("partly", points=(({"ranks": 2}, own),), worst=own)
    assert part_text(met) == "our bound met, looser than the paper's number"
    slower = replace(own, value=1.01, low=1.005, high=1.015)
    within = {"points": (({"ranks": 2}, slower),), "worst": slower, "expect": {"ratio_at_most": 1.02}}
    assert part_text(claim("partly", **within)) == "no gain, within the slack"
    more = claim("partly", expect={"ratio_at_least": 1.5}, worst=replace(claim("partly").worst, value=1.25))  # type: ignore[type-var]
    assert part_text(more) == "50 % of the gain"


def test_quality_that_is_lost_stands_in_the_verdict_and_ranks_behind() -> None:
    errors = {"native": 1e-7, "tree": 1e-7, "lossy": 0.2}
    given = known(measured(1, {KB: {"native": 1.0, "tree": 2.0, "lossy": 0.1}}, errors=errors))
    (board,) = given.boards
    table = board_table(board.points, given.of(board))
    verdicts = {row[0]: row[table.headers.index("verdict")] for row in table.rows}
    assert verdicts == {
        "native": "",
        "tree": "slower",
        "lossy": "faster, but worse (by 0.2 in relative error)",
    }
    lost = losses(given.of(board))
    assert quality_ranks(board.points[0], "latency", lost) == {
        "native": (1, 1),
        "tree": (2, 2),
        "lossy": (3, 3),
    }
    assert ranks(board.points[0], "latency")["lossy"] == (1, 1), "by time alone it is the first"


def test_an_error_too_small_to_matter_is_no_loss() -> None:
    errors = {"native": 1e-7, "tree": 9e-5}
    given = known(measured(1, {KB: QUICK}, errors=errors))
    assert not losses(given.of(given.boards[0]))


def test_no_more_findings_than_asked_for_and_the_same_ones_again() -> None:
    given = measured(1, {KB: {"native": 1e-3, "tree": 0.5e-3}, MB: {"native": 4e-3, "tree": 8e-3}})
    again = [findings(known(given)) for _ in range(2)]
    assert [f.sentence for f in again[0]] == [f.sentence for f in again[1]]
    assert [str(f.chart) for f in again[0]] == [str(f.chart) for f in again[1]]
    assert len(findings(known(given), most=1)) == 1


def test_charts_are_files_that_need_no_page_and_escape_their_texts() -> None:
    given = measured(1, {KB: {"native": 1e-3, EVIL: 0.5e-3}, MB: {"native": 4e-3, EVIL: 8e-3}})
    found = findings(known(given, claims=(claim("partly", technique=EVIL),)))
    assert {f.rule for f in found} == {"largest", "crossing", "claim"}
    for finding in found:
        root = ElementTree.fromstring(standalone(finding.chart))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"<script", str(finding.chart))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("latency", "latency"),
        ("ttft_p90", "TTFT p90"),
        ("pack_s", "pack time"),
        ("virtual_slo_attainment", "simulated SLO attainment"),
        ("requests_per_s", "requests per second"),
        ("virtual_tokens_per_s", "simulated tokens per second"),
    ],
)
def test_metrics_have_names_as_people_write_them(name: str, label: str) -> None:
    assert metric_label(name) == label


@pytest.mark.parametrize("family", family_names())
def test_no_two_metrics_of_a_family_are_called_alike(family: str) -> None:
    names = [metric.name for metric in load_family(family).metrics]
    assert len({metric_label(name) for name in names}) == len(names)


def test_a_gain_whose_quality_is_not_known_to_be_kept_is_no_largest_gain() -> None:
    given = measured(1, {KB: {"native": 1.0, "tree": 0.5}}, errors={"native": 0.1, "tree": 0.1})
    lines = [
        m.model_copy(update={"samples": [m.samples[3] + off] * 7, "value": m.samples[3] + off})
        if m.label == "tree" and m.metric.name == "relative_l2_error" and (off := 0.02 * (m.launch % 3 - 1))
        else m
        for m in given.measurements
    ]
    shaky = replace(given, measurements=tuple(lines))
    assert "tree is 2 times" in only(findings(known(given)), "largest").sentence
    assert not findings(known(shaky)), "its error may be larger by more than counts"
