"""Claims: the table of verdicts, which points and which run decide, and what the ledger says of a paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import record_factory as factory

from paceline.analysis.claims.headlines import NO_SHEET, ledger
from paceline.analysis.claims.results import LOCAL_RANKS, ClaimResult, evaluate, with_own_suites
from paceline.analysis.claims.verdicts import CONFORMANCE, ClaimVerdictName, expectation_text
from paceline.records.format.record import Event
from paceline.records.store.folder import RunRecord
from paceline.report.claims.page import claims_page
from paceline.spec import content
from paceline.spec.ledger.papers import Paper, load_papers
from paceline.spec.profiles.profile import load_runner

WOBBLE = [1.0, 1.004, 0.996, 1.002, 0.998]


def claim(expect: dict[str, float], **measure: Any) -> dict[str, Any]:
    return {
        "id": "one",
        "paper": "pccl",
        "quote": "a statement",
        "scope": "qualitative",
        "said": {"number": "a statement of the paper", "place": "abstract"},
        "measure": {"metric": "latency", "technique": "ring", "versus": "native", **measure},
        "expect": expect,
    }


def facts(*claims: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"suite": "collectives/example", "family": "collectives", "claims": list(claims)}]


def record(ratio: float, *, launches: int = 5, noise: float = 1.0, **params: Any) -> RunRecord:
    run = factory.make_run()
    values = [1 + (w - 1) * noise for w in WOBBLE][:launches]
    lines = factory.launches(run, "native", [1.0] * launches, params=params)
    return factory.in_memory(
        run, lines + factory.launches(run, "ring", [ratio * v for v in values], params=params)
    )


def verdict(expect: dict[str, float], found: RunRecord, **measure: Any) -> ClaimResult:
    (result,) = evaluate([found], facts(claim(expect, **measure)))
    return result


@pytest.mark.parametrize(
    ("expect", "ratio", "noise", "name"),
    [
        ({"ratio_at_most": 0.8}, 0.7, 1, "reproduced"),
        ({"ratio_at_most": 0.8}, 0.9, 1, "partly"),  # faster, but not by as much
        ({"ratio_at_most": 0.8}, 1.2, 1, "not reproduced"),
        ({"ratio_at_most": 0.8}, 0.8, 1, "inconclusive"),
        ({"ratio_at_most": 0.8}, 0.7, 90, "inconclusive"),
        ({"ratio_at_most": 1.5}, 1.6, 1, "not reproduced"),
        ({"ratio_at_least": 1.5}, 1.6, 1, "reproduced"),
        ({"ratio_at_least": 1.5}, 1.2, 1, "partly"),
        ({"ratio_at_least": 1.5}, 0.9, 1, "not reproduced"),
        ({"ratio_at_least": 0.5}, 0.4, 1, "not reproduced"),
        ({"equal_within": 0.05}, 1.0, 1, "reproduced"),
        ({"equal_within": 0.05}, 1.2, 1, "not reproduced"),
        ({"equal_within": 0.05}, 0.8, 1, "not reproduced"),
        ({"equal_within": 0.05}, 1.05, 1, "inconclusive"),
        ({"difference_at_most": 0.3}, 1.2, 1, "reproduced"),
        ({"difference_at_most": 0.3}, 1.5, 1, "not reproduced"),
        ({"value_at_most": 1.3}, 1.2, 1, "reproduced"),
        ({"value_at_most": 1.3}, 1.4, 1, "not reproduced"),
        ({"value_at_least": 1.3}, 1.4, 1, "reproduced"),
        ({"value_at_least": 1.3}, 1.2, 1, "not reproduced"),
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, 0.62, 1, "reproduced"),
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, 0.8, 1, "partly"),
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, 0.5, 1, "not reproduced"),
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, 0.59, 1, "inconclusive"),
        ({"value_at_most": 1.3, "value_at_least": 1.1}, 1.2, 1, "reproduced"),
        ({"value_at_most": 1.3, "value_at_least": 1.1}, 1.0, 1, "not reproduced"),
    ],
)
def test_the_whole_interval_decides(
    expect: dict[str, float], ratio: float, noise: float, name: ClaimVerdictName
) -> None:
    bound = {key: value for key, value in claim(expect).items() if key != "said"}
    (result,) = evaluate([record(ratio, noise=noise)], facts(bound))
    assert result.verdict == CONFORMANCE.get(name, name)
    assert not result.reproduces


def test_a_claim_about_a_device_is_decided_by_runs_on_it_alone() -> None:
    wanted = {**claim({"ratio_at_most": 0.8}), "needs": "cuda"}
    here = record(0.5)
    (result,) = evaluate([here], facts(wanted))
    assert (result.verdict, (result.reason or "").split(":")[0]) == ("not run", "needs cuda")
    there = factory.make_run(runner={"name": "local-cuda", "device": "cuda"})
    lines = factory.launches(there, "native", [1.0] * 5) + factory.launches(
        there, "ring", [0.5, 0.51] * 2 + [0.5]
    )
    (result,) = evaluate([here, factory.in_memory(there, lines)], facts(wanted))
    assert (result.verdict, result.run_id) == ("reproduced", there.run_id)


def test_claims_of_a_suite_that_only_a_run_knows_are_evaluated() -> None:
    own = {
        "suite": "collectives/example",
        "version": 1,
        "family": "collectives",
        "baseline": "native",
        "metrics": {"latency": 0.02},
        "claims": [claim({"value_at_most": 3.0}), {"id": "cannot be read"}],
    }
    run = factory.make_run(suites=[own])
    record = factory.in_memory(run, factory.launches(run, "ring", [2.0, 2.1, 1.9, 2.0, 2.05]))
    (result,) = evaluate([record], with_own_suites([], [record]))
    assert (result.suite, result.verdict) == ("collectives/example", "says nothing")
    shipped = [{**own, "claims": [claim({"value_at_most": 1.0})]}]
    assert with_own_suites(shipped, [record]) == shipped, "the shipped claims of one version hold"
    later = factory.in_memory(factory.make_run(suites=[{**own, "version": 2}]), record.measurements)
    (taken,) = with_own_suites(shipped, [later])
    assert taken["version"] == 2
    foreign = factory.in_memory(factory.make_run(suites=[{**own, "family": "nobody's"}]), [])
    assert with_own_suites([], [foreign]) == []


def beside_others(found: RunRecord) -> RunRecord:
    """Return a record in all of whose launches another process took one of two cores."""
    load = {"cores": 2, "others_cores": 1.0, "stolen": 0.0, "processes": [{"name": "stress"}]}
    blocks = sorted({m.block for m in found.measurements})
    events = tuple(
        Event(
            kind="launch_end",
            at=found.run.started,
            run_id=found.run_id,
            data={"group": "g", "launch": n, "load": load, "disturbed": blocks},
        )
        for n in range(5)
    )
    return replace(found, events=events)


def test_a_run_in_which_others_took_the_machine_decides_no_claim() -> None:
    told = verdict({"ratio_at_most": 0.8}, beside_others(record(0.5)))
    assert (told.verdict, told.reason) == ("inconclusive", "machine busy: stress took 1.0 of 2 cores")


@pytest.mark.parametrize(("metric", "newer_decides"), [("latency", False), ("wire_bytes", True)])
def test_a_machine_that_others_took_says_less_of_times_and_no_less_of_counts(
    metric: str, newer_decides: bool
) -> None:
    def measured(ratio: float, launches: int) -> RunRecord:
        run = factory.make_run()
        timed = [m for label in ("native", "ring") for m in factory.launches(run, label, WOBBLE[:launches])]
        return factory.in_memory(
            run,
            [
                *timed,
                *factory.launches(run, "native", WOBBLE[:launches], metric="wire_bytes"),
                *factory.launches(run, "ring", [ratio * w for w in WOBBLE[:launches]], metric="wire_bytes"),
            ],
        )

    quiet, busy = measured(0.5, 3), beside_others(measured(0.6, 5))
    sides = {"metric": metric, "technique": "ring", "versus": "native"}
    (found,) = evaluate([quiet, busy], facts(claim({"ratio_at_most": 1.2}) | {"measure": sides}))
    assert found.run_id == (busy if newer_decides else quiet).run_id


def test_one_launch_reproduces_nothing() -> None:
    found = verdict({"ratio_at_most": 0.8}, record(0.5, launches=1))
    assert (found.verdict, found.reason) == ("inconclusive", "one launch gives no interval")


def test_the_worst_point_decides() -> None:
    good, bad = record(0.5), record(1.5, size_bytes=8)
    both = factory.in_memory(
        good.run,
        [*good.measurements, *(m.model_copy(update={"run_id": good.run_id}) for m in bad.measurements)],
    )
    found = verdict({"ratio_at_most": 0.8}, both)
    assert found.verdict == "not reproduced"
    assert len(found.points) == 2
    assert verdict({"ratio_at_most": 0.8}, both, where={"size_bytes": "4KiB"}).verdict == "reproduced"


def test_the_other_side_may_be_another_point_of_the_same_run() -> None:
    near, far = record(1.0), record(3.0, noise=2, link="delay-5ms")
    both = factory.in_memory(near.run, [*near.measurements, *far.measurements])
    found = verdict(
        {"ratio_at_least": 2.5}, both, where={"link": "delay-5ms"}, versus={"where": {"link": "loopback"}}
    )
    assert (found.verdict, found.versus) == ("reproduced", "ring at link = loopback")


def test_the_latest_run_that_measured_it_decides() -> None:
    older, newer, unrelated = record(1.5), record(0.5), record(0.5, size_bytes=8)
    (found,) = evaluate(
        [unrelated, newer, older], facts(claim({"ratio_at_most": 0.8}, where={"size_bytes": 4096}))
    )
    assert (found.verdict, found.run_id) == ("reproduced", newer.run_id)


def test_a_suite_measured_in_parts_is_decided_by_all_of_them() -> None:
    first, second = record(1.5), record(0.5, size_bytes=8)
    for order in ((first, second), (second, first)):
        (found,) = evaluate(order, facts(claim({"ratio_at_most": 0.8})))
        assert (found.verdict, found.run_id) == ("not reproduced", first.run_id)
        assert len(found.points) == 2
    again = record(0.5)
    (found,) = evaluate([first, second, again], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, len(found.points)) == ("reproduced", 2)


def test_parts_from_another_place_or_version_are_no_parts() -> None:
    here, there = record(1.5), record(0.5, size_bytes=8)
    elsewhere = factory.in_memory(
        there.run.model_copy(update={"host_class": "Another, 2 cores, 8 GiB"}), there.measurements
    )
    later = factory.in_memory(
        there.run, [m.model_copy(update={"suite_version": 2}) for m in there.measurements]
    )
    for other in (elsewhere, later):
        (found,) = evaluate([here, other], facts(claim({"ratio_at_most": 0.8})))
        assert (found.verdict, found.run_id, len(found.points)) == ("reproduced", there.run_id, 1)


def test_a_part_that_failed_later_is_not_hidden_by_an_earlier_number() -> None:
    number, run = record(0.5), factory.make_run()
    lines = factory.launches(run, "native", [1.0] * 5)
    failures = [factory.measurement(run, "ring", n, [], reason="it broke") for n in range(5)]
    other = record(0.5, size_bytes=8)
    (found,) = evaluate(
        [number, factory.in_memory(run, [*lines, *failures]), other], facts(claim({"ratio_at_most": 0.8}))
    )
    assert found.verdict == "inconclusive"
    assert found.reason is not None and "failed at 1 of 2 points" in found.reason


def test_a_quick_look_at_another_size_overturns_nothing() -> None:
    whole, quick = record(0.5), record(1.5, launches=1, size_bytes=8)
    (found,) = evaluate([whole, quick], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.grade) == ("reproduced", "B")
    assert found.reason == "points left out for fewer launches: 1"
    again = record(1.5, launches=2)
    (found,) = evaluate([whole, again], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.run_id) == ("reproduced", whole.run_id), "more launches are better evidence"


def test_a_later_run_without_the_other_side_takes_nothing_away() -> None:
    whole, run = record(0.5), factory.make_run()
    alone = factory.in_memory(run, factory.launches(run, "ring", [9.0] * 5))
    (found,) = evaluate([whole, alone], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.run_id) == ("reproduced", whole.run_id)


@pytest.mark.parametrize("side", ["ring", "native"])
def test_where_a_side_failed_everywhere_older_numbers_do_not_decide(side: str) -> None:
    older, run = record(0.5), factory.make_run()
    other = "native" if side == "ring" else "ring"
    lines = factory.launches(run, other, [1.0] * 5, suite_version=2)
    lines += [factory.measurement(run, side, n, [], suite_version=2, reason="it broke") for n in range(5)]
    (found,) = evaluate([older, factory.in_memory(run, lines)], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.worst) == ("inconclusive", None)
    assert found.reason == f"{side} failed at 1 of 1 point: crashed: it broke"


def test_a_place_that_cannot_run_a_technique_decides_nothing() -> None:
    able, run = record(0.5), factory.make_run(host_class="Another, 2 cores, 8 GiB")
    lines = factory.launches(run, "native", [1.0] * 5)
    lines += [
        factory.measurement(run, "ring", n, [], status="unsupported", reason="no such device")
        for n in range(5)
    ]
    (found,) = evaluate([able, factory.in_memory(run, lines)], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.run_id) == ("reproduced", able.run_id)


def test_an_older_version_of_a_suite_decides_nothing_beside_a_newer_one() -> None:
    older, run = record(0.5), factory.make_run()
    lines = factory.launches(run, "native", [1.0] * 5, suite_version=2)
    lines += factory.launches(run, "ring", [1.5, 1.51, 1.52, 1.5, 1.51], suite_version=2)
    newer = factory.in_memory(run, lines)
    (found,) = evaluate([older, newer], facts(claim({"ratio_at_most": 0.8})))
    assert (found.verdict, found.run_id) == ("not reproduced", newer.run_id)


def test_numbers_under_two_contracts_are_never_sides_of_one_claim() -> None:
    run, later = factory.make_run(), factory.make_run()
    near = {"link": "loopback"}
    old = factory.launches(run, "ring", [1.0] * 5, params=near, contract_id="0ld")
    new = factory.launches(later, "ring", [3.0] * 5, params={"link": "delay-5ms"})
    given = claim(
        {"ratio_at_least": 2.5}, where={"link": "delay-5ms"}, versus={"where": {"link": "loopback"}}
    )
    (found,) = evaluate([factory.in_memory(run, old), factory.in_memory(later, new)], facts(given))
    assert found.verdict == "not run"
    both = [factory.in_memory(run, old), record(0.5, size_bytes=8)]
    (found,) = evaluate(both, facts(claim({"value_at_most": 2.0})))
    assert len(found.points) == 1, "a point under an older contract stands beside none under the newer"


def test_differences_over_two_runs_are_unpaired() -> None:
    near, far = record(1.0), record(1.2, link="delay-5ms")
    given = claim(
        {"difference_at_most": 0.3}, where={"link": "delay-5ms"}, versus={"where": {"link": "loopback"}}
    )
    (found,) = evaluate([near, far], facts({k: v for k, v in given.items() if k != "said"}))
    assert found.verdict == "conforms"
    assert found.worst is not None and "Welch" in found.worst.method


def test_runs_about_the_harness_decide_nothing() -> None:
    run = factory.make_run(reason="calibrate")
    lines = factory.launches(run, "native", [1.0] * 5) + factory.launches(run, "ring", [0.5] * 5)
    (found,) = evaluate([factory.in_memory(run, lines)], facts(claim({"ratio_at_most": 0.8})))
    assert found.verdict == "not run"


def test_a_suite_of_no_family_has_no_claims() -> None:
    (given,) = facts(claim({"ratio_at_most": 0.8}))
    del given["family"]
    assert evaluate([record(0.5)], [given]) == []


def test_sides_from_two_runs_share_no_launches() -> None:
    near, far = record(1.0), record(3.0, link="delay-5ms")
    expect = {"ratio_at_least": 2.5}
    (found,) = evaluate(
        [near, far],
        facts(claim(expect, where={"link": "delay-5ms"}, versus={"where": {"link": "loopback"}})),
    )
    assert found.verdict == "reproduced"
    assert found.worst is not None and "Welch" in found.worst.method


def test_a_claim_that_nobody_measured_says_what_it_needs() -> None:
    for where, runner in (({}, "local-cpu"), ({"link": "delay-1ms"}, "netns-cpu")):
        (found,) = evaluate([], facts(claim({"ratio_at_most": 0.8}, where=where)))
        assert (found.verdict, found.reason) == (
            "not run",
            f"needs: paceline run collectives/example --runner {runner}",
        )
    (found,) = evaluate([], facts(claim({"ratio_at_most": 0.8}, where={"ranks": LOCAL_RANKS * 2})))
    assert found.reason == "needs: paceline run collectives/example --tier full --runner netns-cpu"
    assert load_runner(content.find_runner("local-cpu")).model.max_ranks == LOCAL_RANKS


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        ({"ratio_at_most": 0.5}, "ratio ≤ 0.5"),
        ({"equal_within": 0}, "equal"),
        ({"value_at_least": 2}, "value ≥ 2"),
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, "0.59 ≤ ratio ≤ 0.66"),
    ],
)
def test_an_expectation_is_said_in_words(expect: dict[str, float], text: str) -> None:
    assert expectation_text(expect) == text


def test_the_page_of_claims_holds_what_was_measured_and_counts_the_rest() -> None:
    odd = claim({"ratio_at_most": 0.8}, where={"ranks": 2}) | {"quote": "fast | faster\n# and fast"}
    given = facts(odd, claim({"ratio_at_most": 0.8}, metric="wire_bytes") | {"id": "two"})
    results = evaluate([record(1.5)], given)
    page = claims_page(results, ledger(load_papers(), results).rows, command="this")
    (row,) = [line for line in page.splitlines() if line.startswith("| Prime") and "# and fast" in line]
    assert "fast \\| faster # and fast" in row and "**not reproduced**" in row
    assert "latency of ring / native where ranks = 2 (collectives/example)" in row
    assert row.split("|")[-2].strip().startswith("B; ")
    assert "the 1 claim that a run measured; 1 more wait" in page
    assert "wire_bytes" not in page


def paper(slug: str, **changes: Any) -> Paper:
    given = {
        "slug": slug, "title": slug, "family": "collectives", "group": "g", "tier": 1,
        "method": "m", "claim": "c", "testable_claim": "t",
    }  # fmt: skip
    return Paper(**(given | changes))


def test_every_paper_gets_its_worst_verdict_or_the_reason_why_it_has_none() -> None:
    papers = {
        p.slug: p
        for p in (
            paper("pccl"),
            paper("later", needs=("2 GPUs",)),
            paper("nothing", testable_claim="none: no number is given"),
            paper("outside", family="outside", outside_reason="another field"),
        )
    }
    good = verdict({"ratio_at_most": 0.8}, record(0.5))
    bad = verdict({"ratio_at_most": 0.8}, record(1.5))
    (missing,) = evaluate([], facts(claim({"ratio_at_most": 0.8})))
    built = ledger(papers, [good, bad, missing])
    waiting = (
        "not tested: a statement of the paper (needs: paceline run collectives/example --runner local-cpu)"
    )
    assert {r.paper.slug: (r.verdict, r.reason) for r in built.rows} == {
        "pccl": ("not reproduced", f"{waiting}; {NO_SHEET}"),
        "later": ("not run", "no claim declared yet; needs 2 GPUs"),
        "nothing": ("not run", "no number is given"),
        "outside": ("outside", "another field"),
    }
    assert built.counts() == {"not reproduced": 1, "not run": 2, "outside": 1}
    assert ledger(papers, [good]).rows[0].verdict == "partly tested", "its other headlines are not listed"


def _selected_everywhere() -> dict[str, Any]:
    return {
        "id": "faster",
        "paper": "pccl",
        "quote": "faster",
        "scope": "qualitative",
        "said": {"number": "faster", "place": "abstract"},
        "measure": {"metric": "latency", "technique": "ring", "versus": "native"},
        "expect": {"ratio_at_most": 0.9},
    }


def _two_points(second: list[float] | None, **failure: Any) -> RunRecord:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0] * 5) + factory.launches(run, "ring", [0.5] * 5)
    other = {"size_bytes": 8}
    lines += factory.launches(run, "native", [1.0] * 5, params=other)
    if second is None:
        lines.append(factory.measurement(run, "ring", 0, [], params=other, **failure))
    else:
        lines += factory.launches(run, "ring", second, params=other)
    return factory.in_memory(run, lines)


def _evaluated(record: RunRecord) -> Any:
    facts = {"suite": "collectives/example", "family": "collectives", "claims": [_selected_everywhere()]}
    return evaluate([record], [facts])[0]


def test_the_point_with_the_least_room_is_what_is_shown() -> None:
    result = _evaluated(_two_points([0.8, 0.8, 0.801, 0.8, 0.799]))
    assert result.verdict == "reproduced"
    assert result.worst.value == pytest.approx(0.8, rel=1e-2)
    assert result.grade == "B"


@pytest.mark.parametrize("status", ["incorrect", "timeout"])
def test_a_technique_that_failed_at_a_point_reproduces_nothing(status: str) -> None:
    result = _evaluated(_two_points(None, status=status, reason="it broke"))
    assert result.verdict == "inconclusive"
    assert "failed at 1 of 2 points" in result.reason


def test_few_launches_are_called_exploratory() -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0] * 2) + factory.launches(run, "ring", [0.5, 0.51])
    result = _evaluated(factory.in_memory(run, lines))
    assert result.grade == "C" and "exploratory: 2 launches" in result.reason


def test_a_bound_of_the_suites_own_colours_no_paper() -> None:
    own = claim({"ratio_at_most": 0.9}) | {"paper": None}
    (found,) = evaluate([record(1.5)], facts(own))
    assert found.verdict == "does not conform"
    assert found.paper is None
    rows = ledger(load_papers(), [found]).rows
    assert not [row for row in rows if row.results]
