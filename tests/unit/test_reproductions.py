"""What the verdict of a claim is worth: doctored records and suites change it, each by its own rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import record_factory as factory
from shipped_suites import all_shipped
from test_claims import WOBBLE, claim, facts, paper, record

from paceline.analysis.claims.headlines import LedgerRow, ledger
from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.analysis.claims.verdicts import has_width
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord
from paceline.report.claims.headlines import headline_cells, null_text
from paceline.report.claims.premises import said_text
from paceline.report.html import Cell, rows_grid
from paceline.spec.ledger.papers import Headline, load_papers
from paceline.stats.estimates import Estimate

SLOW = {"ratio_at_most": 1.05}
"""No effect fulfils it: a null arm has to be named."""


def with_arm(ratio: float, null: float | None, *, noise: float = 1.0) -> RunRecord:
    """Return a run in which ring is so many times as slow as the baseline, and tree, without the mechanism, too."""
    made = record(ratio)
    if null is None:
        return made
    lines = factory.launches(made.run, "tree", [null * (1 + (w - 1) * noise) for w in WOBBLE])
    return factory.in_memory(made.run, [*made.measurements, *lines])


def judged(found: RunRecord, expect: dict[str, float], **changes: Any) -> ClaimResult:
    (result,) = evaluate([found], facts({**claim(expect), **changes}))
    return result


TREE = {"technique": "tree"}


@pytest.mark.parametrize(
    ("null", "noise", "verdict", "words"),
    [
        (1.4, 1.0, "reproduced", ""),
        (0.7, 1.0, "says nothing", "tree, which lacks the mechanism, does as well"),
        (1.05, 1.0, "says nothing", "may do as well"),
        (None, 1.0, "says nothing", "is not in the runs that decided"),
    ],
)
def test_an_arm_without_the_mechanism_has_to_fall_short(
    null: float | None, noise: float, verdict: str, words: str
) -> None:
    found = judged(with_arm(0.7, null, noise=noise), SLOW, null_arm=TREE)
    assert found.verdict == verdict
    assert words in (found.reason or "")


@pytest.mark.parametrize(
    "reason", ["missed: it ended at 0.2", "the distance never came down to 0.1; it ended at 0.2"]
)
def test_an_arm_that_never_comes_to_what_is_counted_has_fallen_short(reason: str) -> None:
    """It is infinite; what an arm lacks for other reasons is still as good, since nobody knows it."""

    def found(why: str, **changes: Any) -> ClaimResult:
        made = record(0.7)
        told = {"metric": "wire_bytes", "absent": {"latency": why}}
        lines = [factory.measurement(made.run, "tree", n, [1.0], **told) for n in range(len(WOBBLE))]
        return judged(factory.in_memory(made.run, [*made.measurements, *lines]), SLOW, **changes)

    assert found(reason, null_arm=TREE).verdict == "reproduced"
    assert found("nobody looked", null_arm=TREE).verdict == "says nothing"
    in_the_others_place = found(reason, null_arm={"versus": "tree"})
    assert in_the_others_place.verdict == "says nothing", "beside what is infinite everything is little"


def test_an_arm_that_comes_to_it_at_one_point_alone_is_as_good_there_alone() -> None:
    made = at_two_sizes((0.7, 0.6), (0.7, 0.7))
    kept = [m for m in made.measurements if not (m.label == "tree" and m.params["size_bytes"] == 1024)]
    told: dict[str, Any] = {"metric": "wire_bytes", "params": {"size_bytes": 1024}}
    told["absent"] = {"latency": "missed: it ended at 0.2"}
    lines = [factory.measurement(made.run, "tree", n, [1.0], **told) for n in range(len(WOBBLE))]
    found = judged(factory.in_memory(made.run, [*kept, *lines]), {"ratio_at_most": 1.0}, null_arm=TREE)
    assert found.verdict == "partly" and (found.reason or "").startswith("at 1 of 2 points")


def test_an_expectation_that_no_effect_fulfils_needs_an_arm() -> None:
    assert judged(record(0.7), SLOW).reason == "no arm without the mechanism is held against it (null_arm:)"
    assert judged(record(0.7), {"ratio_at_most": 0.8}).verdict == "reproduced"
    assert judged(record(0.7), {"ratio_at_most": 1.0}).verdict == "reproduced", (
        "no effect is no whole interval below 1"
    )
    assert judged(record(2.0), {"value_at_most": 3.0}).verdict == "says nothing"


def test_an_arm_that_holds_in_part_says_as_much_as_a_technique_that_does() -> None:
    fast = {"ratio_at_most": 0.5}
    assert judged(with_arm(0.7, 1.2), fast, null_arm=TREE).verdict == "partly"
    assert judged(with_arm(0.7, 0.8), fast, null_arm=TREE).verdict == "says nothing"
    assert judged(with_arm(0.4, 0.8), fast, null_arm=TREE).verdict == "reproduced"


def test_an_arm_stands_in_the_place_of_the_side_that_has_the_mechanism() -> None:
    """The baseline loses at most so much against ring: tree in ring's place loses more, or as little."""
    swapped = {"metric": "latency", "technique": "native", "versus": "ring"}
    for null, verdict in ((0.5, "reproduced"), (1.0, "says nothing")):
        found = judged(
            with_arm(1.01, null), {"ratio_at_most": 1.1}, measure=swapped, null_arm={"versus": "tree"}
        )
        assert found.verdict == verdict


def test_the_wrong_side_of_no_effect_is_never_reproduced() -> None:
    found = judged(with_arm(1.03, 1.4), SLOW, null_arm=TREE)
    assert (found.verdict, found.reason) == (
        "partly",
        "the whole interval lies on the other side of no effect, within the slack",
    )
    lost = judged(with_arm(0.95, 0.3), {"ratio_at_least": 0.9}, null_arm=TREE)
    assert lost.verdict == "partly"


def test_a_bound_of_ours_that_is_most_of_what_there_is_to_lose_says_nothing() -> None:
    """Three hundredths are allowed: the arm without the mechanism has to lose fifteen, unless the paper allows them."""
    near, allowed = with_arm(1.01, 1.09), {"ratio_at_most": 1.03}
    found = judged(near, allowed, null_arm=TREE)
    assert found.verdict == "says nothing" and "loses less than 5 times what is allowed" in (
        found.reason or ""
    )
    assert judged(with_arm(1.01, 1.3), allowed, null_arm=TREE).verdict == "partly"
    assert judged(near, allowed, null_arm=TREE, whose="paper").verdict == "partly"


def at_two_sizes(ring: tuple[float, float], tree: tuple[float, float]) -> RunRecord:
    """Return a run of two points, with the times of ring and of tree, without the mechanism, at each."""
    run = factory.make_run()
    noise = [1 + (w - 1) * 0.1 for w in reversed(WOBBLE)]
    lines: list[Measurement] = []
    for label, times in (("native", (1.0, 1.0)), ("ring", ring), ("tree", tree)):
        for time, size in zip(times, (4096, 1024), strict=True):
            own = noise if label != "native" else [1.0] * len(noise)
            values = [time * w * n for w, n in zip(WOBBLE, own, strict=True)]
            lines += factory.launches(run, label, values, params={"size_bytes": size})
    return factory.in_memory(run, lines)


@pytest.mark.parametrize(
    ("tree", "verdict"),
    [((1.4, 1.3), "reproduced"), ((1.4, 0.7), "partly"), ((0.7, 0.7), "says nothing")],
)
def test_an_arm_has_to_fall_short_at_every_point(tree: tuple[float, float], verdict: str) -> None:
    """Where it does not at some, the claim says something of the others alone."""
    found = judged(at_two_sizes((0.7, 0.6), tree), {"ratio_at_most": 1.0}, null_arm=TREE)
    assert found.verdict == verdict
    if verdict == "partly":
        assert found.reason == "at 1 of 2 points tree, which lacks the mechanism, does as well"
        assert found.null is not None and found.null.estimate is not None
        assert found.null.estimate.value == pytest.approx(0.7, rel=0.05), "where it comes closest"


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.5])
def test_fewer_launches_than_are_asked_for_decide_no_reproduction(ratio: float) -> None:
    """Whether it would hold, hold in part or not."""
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0, 1.01, 1.02])
    lines += factory.launches(run, "ring", [ratio, ratio * 1.011, ratio * 1.019])
    few = factory.in_memory(run, lines)
    found = judged(few, {"ratio_at_most": 0.8})
    assert (found.verdict, found.reason) == ("inconclusive", "exploratory: 3 launches, 5 are asked for")
    assert judged(few, {"ratio_at_most": 0.8}, said=None).verdict != "inconclusive", (
        "a conformance says how few"
    )


@pytest.mark.parametrize("scope", ["best", "mean", "range"])
def test_a_papers_number_is_reproduced_by_its_own_bound_alone(scope: str) -> None:
    fast = {"ratio_at_most": 0.8}
    assert judged(record(0.5), fast, scope=scope).verdict == "partly"
    assert judged(record(0.5), fast, scope=scope, whose="paper").verdict == "reproduced"


def test_a_count_is_no_reproduction() -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0] * 5) + factory.launches(run, "ring", [0.5] * 5)
    found = judged(factory.in_memory(run, lines), {"ratio_at_most": 0.8})
    assert found.verdict == "conforms" and "count" in (found.reason or "")
    assert not has_width(Estimate(value=2.0, low=2.0, high=2.0, method="", num_launches=5))
    assert has_width(Estimate(value=2.0, low=1.99, high=2.0, method="", num_launches=5))


def test_what_quotes_nobody_conforms_or_does_not() -> None:
    for ratio, verdict in ((0.5, "conforms"), (0.9, "conforms in part"), (1.5, "does not conform")):
        assert judged(record(ratio), {"ratio_at_most": 0.8}, said=None).verdict == verdict


@pytest.mark.parametrize(
    ("against", "verdict"),
    [
        ({"paper": "the vendor's library", "arm": "native"}, "reproduced"),
        ({"paper": "the vendor's library", "arm": None}, "conforms"),
        ({"paper": "the vendor's library", "arm": "tree"}, "conforms"),
        ({"paper": "another library", "arm": None, "because": "native is quicker than it"}, "reproduced"),
        (None, "reproduced"),  # of a record from before claims named their opponents
    ],
)
def test_an_opponent_of_ours_in_the_place_of_the_papers_reproduces_nothing(
    against: dict[str, Any] | None, verdict: str
) -> None:
    said = {"number": "twice as fast", "place": "abstract", "against": against}
    found = judged(record(0.5), {"ratio_at_most": 0.8}, said=said)
    assert (found.verdict, found.reproduces) == (verdict, verdict == "reproduced")
    row = row_of([found], TESTED)
    if verdict == "reproduced":
        assert row.verdict == "reproduced"
    else:
        assert "its paper's opponent is another, and not here: the vendor's library" in (found.reason or "")
        assert row.verdict == "not run"
        assert "against another than its paper's opponent it conforms" in (row.reason or "")


def test_an_opponent_of_ours_that_an_arm_without_the_mechanism_beats_too_says_nothing() -> None:
    """It makes no verdict of the paper either way, and does not stand there as if it conformed."""
    said = {"number": "fast", "place": "abstract", "against": {"paper": "MPI", "arm": None}}
    found = judged(with_arm(0.5, 0.4), {"ratio_at_most": 0.8}, said=said, null_arm=TREE)
    assert (found.verdict, found.reproduces) == ("says nothing", False)
    row = row_of([found], TESTED)
    assert row.verdict == "not run"
    assert "against another than its paper's opponent it says nothing" in (row.reason or "")
    assert headline_cells(row.headlines[0])[2].startswith("tree: 0.4")
    short = judged(with_arm(0.5, 1.4), {"ratio_at_most": 0.8}, said=said, null_arm=TREE)
    assert short.verdict == "conforms"


def test_beside_the_papers_number_stands_whom_it_beats() -> None:
    said = {"number": "twice as fast", "place": "table 2"}
    bound = {"ratio_at_most": 0.8}
    own = judged(record(0.5), bound, said={**said, "against": {"paper": "MPI", "arm": "native"}})
    assert said_text(own) == "twice as fast (table 2), against MPI"
    other = {"paper": "MPI", "arm": None, "because": "native has MPI below it"}
    assert said_text(judged(record(0.5), bound, said={**said, "against": other})).endswith(
        ", against MPI; here another: native has MPI below it"
    )
    assert said_text(judged(record(0.5), bound, said=said)) == "twice as fast (table 2)"


def test_what_was_assumed_makes_no_more_than_a_model() -> None:
    found = judged(record(0.5), {"ratio_at_most": 0.8}, assumed={"tool_s": "fixed times"})
    assert found.verdict == "consistent with a model"
    assert "assumed: tool_s: fixed times" in (found.reason or "")
    in_part = judged(record(0.9), {"ratio_at_most": 0.8}, assumed={"tool_s": "fixed times"})
    assert (in_part.verdict, in_part.reason) == (
        "consistent with a model",
        "assumed: tool_s: fixed times; the direction alone: less than was asked",
    )
    assert judged(record(1.5), {"ratio_at_most": 0.8}, assumed={"a": "b"}).verdict == "not reproduced"


def row_of(results: list[ClaimResult], *headlines: Headline) -> LedgerRow:
    return ledger({"pccl": paper("pccl", headlines=headlines)}, results).rows[0]


TESTED = Headline(says="faster", claims=("one",))
UNTESTED = Headline(
    says="on a thousand GPUs", untestable="a thousand GPUs", settled_by="gpu", test="a cluster"
)


def test_a_paper_is_reproduced_where_every_headline_is_tested_and_holds() -> None:
    good, bad = judged(record(0.5), {"ratio_at_most": 0.8}), judged(record(1.5), {"ratio_at_most": 0.8})
    assert row_of([good], TESTED).verdict == "reproduced"
    assert row_of([good], TESTED, UNTESTED).verdict == "partly tested"
    assert row_of([good, bad], TESTED).verdict == "not reproduced"
    assert row_of([], UNTESTED).verdict == "not testable here"
    assert row_of([good]).verdict == "partly tested", "a headline that is left out costs the verdict"


def test_what_only_conforms_tests_no_headline() -> None:
    bound = judged(record(0.5), {"ratio_at_most": 0.8}, said=None)
    row = row_of([bound], TESTED)
    assert (row.verdict, row.headlines[0].how) == ("not run", "counted")
    assert row_of([bound], TESTED, UNTESTED).verdict == "not testable here"


def counts(*ratios: float) -> list[ClaimResult]:
    """Return conformances that ask for 0.8 of the other side's time, of what was found."""
    found = [judged(record(ratio), {"ratio_at_most": 0.8}, said=None) for ratio in ratios]
    return [replace(one, claim_id=f"count-{number}") for number, one in enumerate(found)]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.5, 0.6), "conforms"),
        ((0.5, 0.9), "conforms in part"),
        ((0.9, 0.5), "conforms in part"),
        ((0.5, 0.9, 1.5), "does not conform"),
        ((0.5, 0.8), "conforms in part"),
        ((0.8,), "not run"),
    ],
)
def test_of_several_counts_the_worst_is_told_and_an_undecided_one_costs_it(
    ratios: tuple[float, ...], verdict: str
) -> None:
    found = counts(*ratios)
    sheet = Headline(says="so many bytes", claims=tuple(one.claim_id for one in found))
    assert row_of(found, sheet).headlines[0].verdict == verdict


def test_a_count_that_is_undecided_is_told_and_leaves_its_paper_undone() -> None:
    (undecided,) = counts(0.8)
    assert undecided.verdict == "inconclusive"
    sheet = Headline(says="so many bytes", claims=(undecided.claim_id,))
    row = row_of([undecided], sheet, UNTESTED)
    assert row.verdict == "not run"
    assert "so many bytes (what was counted is inconclusive)" in (row.reason or "")
    assert headline_cells(row.headlines[0])[1].startswith("latency of ring / native: 0.79")


@pytest.mark.parametrize(("ratio", "rows"), [(0.5, 0), (0.8, 1), (0.9, 1), (1.5, 1)])
def test_what_is_not_upheld_is_a_row_of_its_paper_though_no_headline_lists_it(
    ratio: float, rows: int
) -> None:
    (own,) = counts(ratio)
    added = row_of([own], UNTESTED).headlines[1:]
    assert len(added) == rows
    assert all((h.headline.says, h.headline.place) == (own.quote, "our words, on no sheet") for h in added)


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((0.9,), "consistent with a model, in direction alone"),
        ((0.5,), "consistent with a model"),
        ((0.5, 0.9), "consistent with a model, in direction alone"),
    ],
)
def test_a_model_that_misses_what_was_asked_says_so_beside_its_verdict(
    ratios: tuple[float, ...], words: str
) -> None:
    """``consistent with a model`` alone would read as if the paper's number had come out."""
    found = [judged(record(r), {"ratio_at_most": 0.8}, assumed={"tool_s": "fixed times"}) for r in ratios]
    found = [replace(one, claim_id=f"model-{number}") for number, one in enumerate(found)]
    sheet = Headline(says="faster", claims=tuple(one.claim_id for one in found))
    assert headline_cells(row_of(found, sheet).headlines[0])[3] == words


def test_a_headline_says_what_was_found_what_the_null_arm_gives_and_what_is_not_tested() -> None:
    found = judged(with_arm(0.7, 1.4), SLOW, null_arm=TREE)
    assert null_text(found).startswith("tree: 1.4")
    says, measured, null, verdict, untested = headline_cells(row_of([found], TESTED).headlines[0])
    assert (says, verdict, untested) == ("faster (abstract)", "reproduced", "")
    assert "latency of ring / native: 0.7" in measured and null == null_text(found)
    *_, verdict, untested = headline_cells(row_of([], UNTESTED).headlines[0])
    assert (verdict, untested) == ("not testable here", "a thousand GPUs; needs GPU; a cluster")
    assert null_text(judged(record(0.5), {"ratio_at_most": 0.8})) == "no effect"


def test_what_could_be_tested_and_is_not_is_not_run() -> None:
    """It is not what a machine of two cores cannot test."""
    left = Headline(says="in less memory", untested="a claim on peak memory")
    row = row_of([], left, UNTESTED)
    assert row.verdict == "not run" and "in less memory (wants a claim on peak memory)" in (row.reason or "")
    *_, verdict, untested = headline_cells(row.headlines[0])
    assert (verdict, untested) == ("not run", "wants a claim on peak memory")
    good = judged(record(0.5), {"ratio_at_most": 0.8})
    assert row_of([good], TESTED, left).verdict == "partly tested"


@pytest.mark.parametrize(
    "given",
    [
        {"says": "a"},
        {"says": "a", "claims": ["one"], "untestable": "b", "settled_by": "gpu"},
        {"says": "a", "untestable": "b"},
        {"says": "a", "claims": ["one"], "settled_by": "gpu"},
        {"says": "a", "untestable": "b", "settled_by": "gpu", "form": "c"},
        {"says": "a", "untested": "b", "claims": ["one"]},
        {"says": "a", "untested": "b", "settled_by": "gpu"},
        {"says": "a", "untestable": "not measured yet", "settled_by": "gpu"},
        {"says": "a", "untestable": "no claim is about it", "settled_by": "gpu"},
        {"says": "a", "untestable": "tokens are not counted", "settled_by": "gpu"},
        {"says": "a", "untestable": "no run has four stages", "settled_by": "gpu"},
        {"says": "a", "untestable": "a cluster; what buckets gain here conforms", "settled_by": "gpu"},
        {"says": "a", "untestable": "the schedule is simulated", "settled_by": "gpu"},
        {"says": "a", "untestable": "a longer run", "settled_by": "time"},
        {"says": "a", "untestable": "a problem has no accuracy", "settled_by": "setting"},
    ],
)
def test_a_headline_is_tested_or_says_why_not(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"headline|form|settled_by|untested|another setting|lacking"):
        Headline.model_validate(given)


def shipped_claims() -> dict[str, dict[str, bool]]:
    """Return for each paper its claims in shipped suites, and whether each quotes it."""
    found: dict[str, dict[str, bool]] = {}
    for suite in all_shipped().values():
        for one in suite.model.claims:
            if one.paper is not None:
                own = found.setdefault(one.paper, {})
                own[one.id] = own.get(one.id, False) or one.said is not None
    return found


def test_every_paper_with_claims_has_a_sheet_and_each_claim_that_quotes_it_is_on_it() -> None:
    papers, claims = load_papers(), shipped_claims()
    assert [slug for slug in claims if not papers[slug].headlines] == []
    listed = {slug: {c for h in papers[slug].headlines for c in h.claims} for slug in claims}
    assert {s: sorted(listed[s] - set(own)) for s, own in claims.items() if listed[s] - set(own)} == {}
    quoting = {slug: {c for c, quotes in own.items() if quotes} for slug, own in claims.items()}
    assert {s: sorted(q - listed[s]) for s, q in quoting.items() if q - listed[s]} == {}


def test_a_heading_stands_where_the_words_below_it_do() -> None:
    grid = rows_grid("t", ("says", "n"), [[Cell(text="90 % of anomalies", kind="text prose"), "3"]])
    assert [header.kind for header in grid.headers] == ["text", "num"]
