"""At how many points of its suite a claim holds, and why it may select some: told, and refused where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import suite_text
from test_claim_costs import record, result

from paceline.base.errors import UserErrors
from paceline.report.claims.text import matrix_text
from paceline.spec import content
from paceline.workflows.claiming import claim_facts

TIMES = {1024: 0.5, 4096: 0.55, 65536: 1.5, 262144: 1.9}
"""By size: ring's time over native's."""
AT_FIRST: dict[str, Any] = {
    "metric": "latency",
    "technique": "ring",
    "versus": "native",
    "where": {"size_bytes": 1024},
}
HALF: dict[str, Any] = {"measure": AT_FIRST, "expect": {"ratio_at_most": 0.6}}
REASON = '    points_reason: {premise: "ranks that have a core each"}\n'
WHERE = ", where: {ranks: 2}"


def test_a_claim_tells_of_all_points_and_not_of_the_one_that_it_selects() -> None:
    claim = result(record(TIMES), {**HALF, "points_reason": {"paper": "messages of 1 KiB (Section 5)"}})
    assert claim.matrix is not None and claim.verdict == "conforms"
    assert (claim.matrix.num_holding, len(claim.matrix.points), claim.matrix.num_selected) == (2, 4, 1)
    told = "holds at 2 of 4 points of the suite; selected: 1 (the paper's: messages of 1 KiB (Section 5))"
    assert matrix_text(claim) == told
    facts = claim_facts(claim)
    assert [facts["matrix"][key] for key in ("holds", "of", "selected", "premise_not_met")] == [2, 4, 1, 0]
    assert [(p["params"]["size_bytes"], p["holds"], p["selected"]) for p in facts["matrix"]["points"]] == [
        (1024, True, True), (4096, True, False), (65536, False, False), (262144, False, False),
    ]  # fmt: skip
    assert facts["points_reason"] == {"paper": "messages of 1 KiB (Section 5)"}


def test_a_doctored_selection_changes_the_verdict_and_not_the_share() -> None:
    found = record(TIMES)
    everywhere = {key: value for key, value in AT_FIRST.items() if key != "where"}
    whole = result(found, {**HALF, "measure": everywhere})
    assert (whole.verdict, matrix_text(whole)) == ("does not conform", "holds at 2 of 4 points of the suite")
    chosen = result(found, HALF)
    assert chosen.verdict == "conforms" and chosen.matrix is not None
    assert chosen.matrix.num_holding == whole.matrix.num_holding == 2  # type: ignore[union-attr]


def test_a_point_that_would_be_compared_with_itself_is_none() -> None:
    own = {"metric": "latency", "technique": "ring", "versus": {"where": {"size_bytes": 1024}}}
    claim = result(
        record(dict.fromkeys(TIMES, 1.0)),
        {"measure": {**own, "where": {"size_bytes": 4096}}, "expect": {"equal_within": 0.01}},
    )
    assert claim.matrix is not None
    assert [p.params["size_bytes"] for p in claim.matrix.points] == [4096, 65536, 262144]


def test_points_at_which_a_premise_is_not_met_are_counted() -> None:
    large = {
        "says": "messages are large",
        "of": {"parameter": "size_bytes"},
        "at_least": 2048,
        "settled_by": "setting",
    }
    claim = result(record(TIMES), {**HALF, "premises": [large]})
    assert claim.verdict == "not testable here"
    assert matrix_text(claim).startswith(
        "holds at 2 of 4 points of the suite; a premise is not met at 1; selected: 1"
    )


def mistakes(folder: Path, *changes: tuple[str, str]) -> list[str]:
    with pytest.raises(UserErrors) as caught:
        suite_text.load(folder, *changes)
    return [str(error) for error in caught.value.errors]


def test_a_claim_that_selects_points_says_why(tmp_path: Path) -> None:
    suite_text.load(tmp_path)
    suite_text.load(tmp_path, (REASON, ""), (WHERE, ""))
    (said,) = mistakes(tmp_path, (REASON, ""))
    assert "the claim 'one' selects points by ranks and does not say why" in said
    assert "claims.0.measure.where.ranks" in said and "points_reason" in said


def test_a_reason_for_nothing_is_refused(tmp_path: Path) -> None:
    (said,) = mistakes(tmp_path, (WHERE, ""))
    assert "gives a reason for its points and selects none" in said


def test_a_parameter_with_one_value_selects_nothing(tmp_path: Path) -> None:
    suite_text.load(tmp_path, ("ranks: [2, 4]", "ranks: [2]"), (REASON, ""))


def test_a_papers_place_cannot_fix_the_points_of_a_bound_of_ours(tmp_path: Path) -> None:
    (said,) = mistakes(tmp_path, ("    paper: pccl\n", ""), ('premise: "ranks', 'paper: "ranks'))
    assert "no paper fixes its points" in said


def test_the_other_point_of_a_comparison_needs_no_reason(tmp_path: Path) -> None:
    suite_text.load(tmp_path, ("versus: native", "versus: {where: {ranks: 4}}"), (REASON, ""))


OTHER = suite_text.LEGAL[suite_text.LEGAL.index("  - id: one") :].replace("id: one", "id: other")


def test_claims_that_ask_the_same_and_leave_out_no_point_together_are_one(tmp_path: Path) -> None:
    """Judged apart, one of them could hold where the whole does not."""
    parts = suite_text.LEGAL + OTHER.replace("ranks: 2", "ranks: 4")
    with pytest.raises(UserErrors) as caught:
        suite_text.load(tmp_path, text=parts)
    told = [str(error) for error in caught.value.errors]
    assert len(told) == 2 and "asks the same as 'other', and together they leave out no point" in told[0]
    whole = suite_text.LEGAL + OTHER.replace(WHERE, "").replace(REASON, "")
    with pytest.raises(UserErrors, match="the claim 'one' asks the same as 'other'"):
        suite_text.load(tmp_path, text=whole)


def test_claims_that_ask_something_else_or_leave_out_points_stand(tmp_path: Path) -> None:
    another = OTHER.replace("ranks: 2", "ranks: 4").replace("most: 1.5", "most: 1.4")
    suite_text.load(tmp_path, text=suite_text.LEGAL + another)
    part = OTHER.replace("ranks: 2", "ranks: 4")
    suite_text.load(tmp_path, ("ranks: [2, 4]", "ranks: [2, 4, 8]"), text=suite_text.LEGAL + part)


LINKS = ("ranks: [2, 4]", "link: [loopback, 20mbit]")
AGAINST = "against: {paper: a ring of a library, arm: native}"
SAID = f"    said: {{number: up to 2x faster, place: abstract, {AGAINST}}}\n"


def of_a_link(link: str, more: str = "") -> tuple[tuple[str, str], ...]:
    return LINKS, (WHERE, f", where: {{link: {link}}}"), (REASON, f"{REASON}{more}")


def test_a_reproduction_at_a_link_that_we_shaped_says_that_it_is_assumed(tmp_path: Path) -> None:
    """So slow a link can be chosen that any code gains as much as it has fewer bytes."""
    (said,) = mistakes(tmp_path, *of_a_link("20mbit", SAID))
    assert "selects points by link, which we chose" in said and "'assumed: {link: …}'" in said
    suite_text.load(tmp_path, *of_a_link("20mbit", SAID + '    assumed: {link: "20 Mbit/s"}\n'))
    suite_text.load(tmp_path, *of_a_link("20mbit"))
    suite_text.load(tmp_path, *of_a_link("loopback", SAID))


def test_one_reason_is_given(tmp_path: Path) -> None:
    assert any(
        "give one of: paper, premise" in m
        for m in mistakes(tmp_path, ('{premise: "ranks that have a core each"}', "{}"))
    )


def test_a_reproduction_by_a_models_clock_says_what_is_assumed(tmp_path: Path) -> None:
    """Of steps whose costs are stated: what they were chosen to be may be the whole effect."""
    text = content.find_suite("training/slow-clients").read_text(encoding="utf-8")
    suite_text.load(tmp_path, text=text)
    begin = text.index("    assumed:")
    silent = text[:begin] + text[text.index("\n", begin) + 1 :]
    with pytest.raises(UserErrors, match=r"virtual_time_to_target is the time of a model") as caught:
        suite_text.load(tmp_path, text=silent)
    assert len(caught.value.errors) == 1
    quotes_nobody = silent.replace(silent[silent.index("    said:") :].partition("\n")[0] + "\n", "", 1)
    suite_text.load(tmp_path, text=quotes_nobody)


LOCAL = of_a_link("loopback", SAID)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (f", {AGAINST}", "", "quotes its paper, and does not say whom that beats"),
        ("arm: native", "arm: tree", "'tree' is not among the techniques"),
        ("arm: native", "arm: native, because: it is quicker", "and gives a reason for another"),
        ("ratio_at_most: 1.5", "value_at_most: 1.5", "is about a value, and beats nobody"),
    ],
)
def test_a_claim_that_quotes_its_paper_says_whom_that_beats(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    suite_text.load(tmp_path, *LOCAL)
    (said,) = mistakes(tmp_path, *LOCAL, (old, new))
    assert words in said


def test_an_opponent_of_a_paper_is_none_of_its_own_techniques(tmp_path: Path) -> None:
    """FedDIP pruned at once is FedDIP's file with its mechanism off, and not a method that its paper beats."""
    text = content.find_suite("training/pruned-averages").read_text(encoding="utf-8")
    suite_text.load(tmp_path, text=text)
    own = text.replace("which prune too}", "which prune too, arm: pruned-at-once}")
    own = own.replace('which prune too"}', 'which prune too", arm: pruned-at-once}')
    assert own != text
    with pytest.raises(UserErrors, match="'pruned-at-once' is a technique of the paper itself"):
        suite_text.load(tmp_path, text=own)
