"""Premises of claims: a verdict needs all of them met in the same run; broken, they make a claim not testable there."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import record_factory as factory
import suite_text
from click.testing import CliRunner
from pydantic import ValidationError
from shipped_suites import all_shipped
from test_claims import claim, facts, paper, record

from paceline.analysis.claims.headlines import ledger
from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.base.errors import UserErrors
from paceline.base.families.family import family_names, load_family
from paceline.base.families.quantities import Witness
from paceline.cli import application
from paceline.records.format.earlier_names import named_today
from paceline.records.origin.provenance import suite_facts
from paceline.records.store.folder import RunRecord
from paceline.report.claims.premises import premises_text, said_text, scale_text, settled_text
from paceline.spec import content
from paceline.spec.ledger.papers import Headline, load_papers
from paceline.spec.ledger.premises import MORE, Premise
from paceline.spec.suites.grammar import Claim
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.claiming import claim_counts, claim_facts

SLOW = {"ratio_at_most": 0.8}


def premise(**changes: Any) -> dict[str, Any]:
    """Return a premise that asks for a message of at least 1 KiB."""
    given = {
        "says": "messages are long",
        "of": {"parameter": "size_bytes"},
        "at_least": 1024,
        "settled_by": "setting",
    }
    return {**given, **changes}


def with_premises(*premises: dict[str, Any], expect: dict[str, float] | None = None, **measure: Any) -> Any:
    return facts({**claim(expect or SLOW, **measure), "premises": list(premises)})


def result(found: RunRecord, *premises: dict[str, Any], **options: Any) -> ClaimResult:
    (one,) = evaluate([found], with_premises(*premises, **options))
    return one


def test_a_broken_premise_turns_a_refutation_into_not_testable_here() -> None:
    held, broken = record(1.5, size_bytes=4096), record(1.5, size_bytes=8)
    met = result(held, premise())
    assert (met.verdict, met.premise, met.settled_by) == ("not reproduced", "met", ())
    assert premises_text(met) == "met: messages are long: size_bytes ≥ 1024, found 4096"
    unmet = result(broken, premise(command="paceline run it", machine="four cores"))
    assert (unmet.verdict, unmet.premise, unmet.settled_by) == ("not testable here", "not met", ("setting",))
    assert unmet.worst is not None and unmet.worst.value > 1, "what was found is told all the same"
    assert premises_text(unmet).endswith("size_bytes ≥ 1024, found 8, 1016 below")
    assert settled_text(unmet) == "needs another setting; `paceline run it` (four cores)"
    assert unmet.reason == "premise not met: messages are long"


@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.9, 1.5])
def test_a_premise_that_is_not_met_makes_nothing_reproduced_either(ratio: float) -> None:
    assert result(record(ratio, size_bytes=8), premise()).verdict == "not testable here"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"settled_by": "time"}, "not run"),
        ({"settled_by": "time", "machine": "a core for each rank"}, "not run"),
        ({"machine": "two cores; longer messages"}, "not run"),
        ({"machine": "nothing but two cores"}, "not run"),
        ({"machine": "four cores"}, "not testable here"),
        ({"machine": "a core for each rank, and two cores for the harness"}, "not testable here"),
        ({}, "not testable here"),
        ({"settled_by": "gpu", "machine": "a GPU"}, "not testable here"),
        ({"settled_by": "parameters"}, "not testable here"),
    ],
)
def test_what_two_cores_could_meet_is_not_out_of_their_reach(changes: dict[str, str], verdict: str) -> None:
    found = result(record(1.5, size_bytes=8), premise(**changes))
    assert (found.verdict, found.premise, found.reason) == (
        verdict,
        "not met",
        "premise not met: messages are long",
    )
    assert found.worst is not None and premises_text(found).startswith("not met: "), (
        "and is told all the same"
    )
    row = ledger({"pccl": paper("pccl")}, [found]).rows[0]
    assert row.verdict == verdict


def test_one_premise_out_of_reach_is_enough_and_met_ones_do_not_count() -> None:
    longer, gpu = premise(settled_by="time"), premise(says="a GPU", settled_by="gpu")
    assert result(record(1.5, size_bytes=8), longer, gpu).verdict == "not testable here"
    short = premise(says="messages are short", at_least=None, at_most=64, settled_by="gpu")
    assert result(record(1.5, size_bytes=8), longer, short).verdict == "not run"


def test_a_paper_is_out_of_reach_only_where_all_of_its_headlines_are() -> None:
    """A headline that this machine could test, and did not, is left undone whatever the others need."""
    beyond = Headline(says="on 64 GPUs", untestable="64 GPUs", settled_by="gpu")
    own = Headline(says="a statement of the paper", claims=("one",))
    papers = {"pccl": paper("pccl", headlines=(own, beyond))}
    for settled_by, verdict in (("time", "not run"), ("gpu", "not testable here")):
        found = result(record(1.5, size_bytes=8), premise(settled_by=settled_by))
        assert ledger(papers, [found]).rows[0].verdict == verdict
    wanted = Headline(says="in less memory", untested="a claim on peak memory")
    beside = {"pccl": paper("pccl", headlines=(own, beyond, wanted))}
    far = result(record(1.5, size_bytes=8), premise(settled_by="gpu", machine="a GPU"))
    assert ledger(beside, [far]).rows[0].verdict == "not run", "whatever a premise kept from a verdict"
    (waiting,) = evaluate([], with_premises())
    assert ledger(papers, [waiting]).rows[0].verdict == "not run"
    (device,) = evaluate([], facts({**claim(SLOW), "needs": "cuda"}))
    assert ledger(papers, [device]).rows[0].verdict == "not testable here"


def test_all_premises_have_to_be_met() -> None:
    short = premise(says="messages are short", at_least=None, at_most=64)
    found = result(record(1.5), premise(), short)
    assert (found.verdict, [p.met for p in found.premises]) == ("not testable here", [True, False])
    assert premises_text(found).startswith("not met: messages are short"), "what fails comes first"


def test_a_ratio_of_two_arms_is_a_premise_with_an_interval() -> None:
    slower = premise(
        says="the ring is slower", of={"metric": "latency"}, over={"technique": "native"}, at_least=1.2
    )
    assert result(record(1.5), slower).verdict == "not reproduced"
    assert result(record(1.1), slower).verdict == "not testable here"
    straddling = result(record(1.3, noise=30), slower)
    assert straddling.verdict == "not testable here", "an interval that holds the bound shows nothing"
    (told,) = result(record(1.5), slower).premises
    assert told.asked == "latency of ring / latency of native ≥ 1.2"


def test_a_premise_may_look_at_another_point_of_the_same_run_alone() -> None:
    near, far = record(1.5), record(1.5, link="delay-5ms")
    elsewhere = premise(of={"metric": "latency", "where": {"link": "delay-5ms"}}, at_least=1)
    (apart,) = evaluate([near, far], with_premises(elsewhere, where={"link": "loopback"}))
    assert apart.verdict == "not testable here"
    assert premises_text(apart).endswith("at link = delay-5ms ≥ 1; the run does not tell it")
    one_run = factory.in_memory(near.run, [*near.measurements, *far.measurements])
    (together,) = evaluate([one_run], with_premises(elsewhere, where={"link": "loopback"}))
    assert together.verdict == "not reproduced"


def test_points_at_which_a_premise_is_not_met_do_not_decide_beside_others() -> None:
    good, bad = record(0.5), record(1.5, size_bytes=8)
    both = factory.in_memory(good.run, [*good.measurements, *bad.measurements])
    assert result(both).verdict == "not reproduced"
    found = result(both, premise())
    assert (found.verdict, found.premise) == ("reproduced", "met")
    assert found.reason == "points left out where a premise is not met: 1 (messages are long)"


def test_where_another_place_meets_the_premises_it_decides() -> None:
    other = {"host_class": "Another, 2 cores, 8 GiB"}
    run = factory.make_run(**other)
    lines = factory.launches(run, "native", [1.0] * 5, params={"size_bytes": 8})
    lines += factory.launches(run, "ring", [1.5, 1.51, 1.5, 1.52, 1.5], params={"size_bytes": 8})
    later, earlier = factory.in_memory(run, lines), record(1.5)
    (found,) = evaluate([later, earlier], with_premises(premise()))
    assert (found.verdict, found.run_id) == ("not reproduced", earlier.run.run_id)


def with_arm(ratio: float) -> RunRecord:
    """Return a run in which the technique takes 1.5 of the baseline's time, and a third arm a given share."""
    given = record(1.5)
    lines = factory.launches(given.run, "ideal", [ratio * v for v in (1.0, 1.004, 0.996, 1.002, 0.998)])
    return factory.in_memory(given.run, [*given.measurements, *lines])


def test_what_an_ideal_arm_does_not_reach_is_out_of_reach() -> None:
    reachable = {"says": "the ideal reaches it", "reached_by": "ideal", "settled_by": "gpu"}
    assert result(with_arm(0.5), reachable).verdict == "not reproduced"
    beyond = result(with_arm(0.83), reachable)
    assert (beyond.verdict, beyond.settled_by) == ("not testable here", ("gpu",))
    assert premises_text(beyond).startswith(
        "not met: the ideal reaches it: latency of ideal / native: ratio ≤ 0.8, found 0.83"
    )
    assert result(record(1.5), reachable).verdict == "not testable here", "an arm that was not measured"


def test_an_arm_replaces_both_sides_where_they_are_one_technique_at_two_points() -> None:
    near, far = with_arm(1.0), record(1.5, link="delay-5ms")
    moved = factory.launches(near.run, "ideal", [2.0] * 5, params={"link": "delay-5ms"})
    one_run = factory.in_memory(near.run, [*near.measurements, *far.measurements, *moved])
    versus = {"where": {"link": "loopback"}}
    arm = {"says": "the ideal stays", "reached_by": "ideal", "settled_by": "setting"}
    given = with_premises(arm, expect={"equal_within": 0.5}, where={"link": "delay-5ms"}, versus=versus)
    (found,) = evaluate([one_run], given)
    assert found.verdict == "not testable here"
    assert "latency of ideal / ideal at link = loopback" in premises_text(found)


def test_a_paper_whose_claim_could_not_be_tested_is_not_reproduced_by_its_others() -> None:
    good = result(record(0.5))
    untested = result(record(1.5, size_bytes=8), premise())
    row = next(r for r in ledger({"pccl": paper("pccl")}, [good, untested]).rows if r.results)
    assert (row.verdict, row.settled_by) == ("partly tested", ("setting",))
    assert (row.reason or "").startswith(
        "not tested: a statement of the paper (premise not met: messages are long)"
    )
    alone = ledger({"pccl": paper("pccl")}, [untested]).rows[0]
    assert alone.verdict == "not testable here"
    refuted = result(record(1.5))
    assert ledger({"pccl": paper("pccl")}, [untested, refuted]).rows[0].verdict == "not reproduced"


def test_claims_are_counted_by_verdict_by_premises_and_by_what_would_settle_them() -> None:
    found = [
        result(record(0.5)),
        result(record(1.5), premise()),
        result(record(1.5, size_bytes=8), premise()),
    ]
    (waiting,) = evaluate([], with_premises())
    assert claim_counts([*found, waiting]) == {
        "verdict": {"not reproduced": 1, "not run": 1, "not testable here": 1, "reproduced": 1},
        "premises": {"met": 1, "none": 2, "not met": 1},
        "settled_by": {"setting": 1, "time": 1},
    }
    told = claim_facts(found[2])["premises"]
    assert [(p["met"], p["value"], p["bound"]) for p in told] == [(False, 8, 1024)]


def test_the_papers_number_stands_beside_ours_and_both_scales() -> None:
    said = {"number": "29 % lower", "place": "table 2", "scale": "8 GPUs"}
    (found,) = evaluate([record(0.5)], facts({**claim(SLOW), "said": said, "whose": "paper"}))
    assert (found.whose, said_text(found)) == ("paper", "29 % lower (table 2; 8 GPUs)")
    assert scale_text(found) == "ranks 2, link loopback"
    (own,) = evaluate([record(0.5)], facts({**claim(SLOW), "paper": None, "said": None}))
    assert (own.whose, said_text(own)) == ("suite", "–")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"whose": "paper", "said": None}, "needs 'said'"),
        ({"said": None, "null_arm": {"technique": "tree"}}, "about a reproduction"),
        ({"null_arm": {}}, "one side"),
        ({"null_arm": {"technique": "tree", "versus": "native"}}, "one side"),
        ({"paper": None, "said": {"number": "1", "place": "abstract"}}, "leave out 'said'"),
        ({"premises": [premise(at_most=3)]}, "one bound"),
        ({"premises": [premise(of=None)]}, "either 'of'"),
        ({"premises": [premise(reached_by="ring")]}, "either 'of'"),
        ({"premises": [{"says": "a", "reached_by": "x", "at_most": 1, "settled_by": "gpu"}]}, "expectation"),
        ({"premises": [premise(of={"metric": "latency", "parameter": "ranks"})]}, "names one of"),
        ({"premises": [premise(over={"metric": "latency", "parameter": "ranks"})]}, "at most one of"),
    ],
)
def test_a_premise_has_one_condition_and_a_papers_number_its_place(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        Claim.model_validate({**claim(SLOW), **changes})


PREMISES = """\
    premises:
      - long
      - {says: other, of: {metric: latency, technique: ring}, at_most: 1, settled_by: time}
premises:
  long: {says: messages are long, of: {parameter: size_bytes}, at_least: 1024, settled_by: setting, machine: two cores}
"""


@pytest.mark.parametrize(
    ("old", "new", "key", "what"),
    [
        ("      - long", "      - lang", "claims.0.premises.0", "the suite has no premise 'lang'"),
        ("of: {metric: latency", "of: {metric: latncy", "1.of.metric", "no metric 'latncy'"),
        ("technique: ring}, at_most", "technique: rnig}, at_most", "1.of.technique", "no technique 'rnig'"),
        (
            "{parameter: size_bytes}",
            "{parameter: payload}",
            "long.of.parameter",
            "numeric parameter 'payload'",
        ),
        ("{parameter: size_bytes}", "{quantity: latency}", "long.of.quantity", "no quantity 'latency'"),
        ("      - long\n", "", "premises.long", "no claim has the premise 'long'"),
        ("settled_by: setting", "settled_by: luck", "premises.long.settled_by", "'luck' is not valid"),
        ("settled_by: setting", "settled_by: gpu", "long.settled_by", "two cores meet"),
        (
            "settled_by: setting, machine: two cores",
            "settled_by: parameters, machine: nothing but two cores",
            "long.settled_by",
            "meet",
        ),
        (
            "settled_by: setting, machine: two cores",
            "settled_by: gpu, machine: nothing reads it yet",
            "long.machine",
            "'yet' is said",
        ),
        ("says: messages are long", "says: sizes are not counted", "long.says", "nobody has done"),
        (", machine: two cores}", "}", "long.machine", "neither two cores nor what they lack"),
        ("machine: two cores", "machine: a slower link in the workload", "long.machine", "neither two cores"),
        ("machine: two cores", "machine: a checkpoint of 12 layers", "long.machine", "neither two cores"),
        (
            "settled_by: setting, machine: two cores",
            "settled_by: gpu",
            "long.machine",
            "is settled by gpu",
        ),
    ],
)
def test_mistakes_in_premises_are_found_where_they_stand(
    tmp_path: Any, old: str, new: str, key: str, what: str
) -> None:
    text = suite_text.LEGAL + PREMISES
    load_suite(suite_text.write(tmp_path, text=text))
    with pytest.raises(UserErrors) as raised:
        load_suite(suite_text.write(tmp_path, (old, new), text=text))
    assert any(key in (e.where or "") and what in e.what for e in raised.value.errors)


@pytest.mark.parametrize(
    "machine",
    [
        "one GPU; another model",
        "four cores",
        "12 cores",
        "a core for each rank",
        "8 cores, and a device each",
    ],
)
def test_a_premise_out_of_reach_names_what_two_cores_lack(tmp_path: Any, machine: str) -> None:
    text = suite_text.LEGAL + PREMISES.replace("machine: two cores", f"machine: '{machine}'")
    load_suite(suite_text.write(tmp_path, text=text))


@pytest.mark.parametrize("machine", ["2 cores", "1 cores", "another device", "two devices", "a fast core"])
def test_what_two_cores_have_is_not_what_they_lack(machine: str) -> None:
    assert MORE.search(machine) is None


def test_a_run_keeps_claims_with_their_premises_written_out(tmp_path: Any) -> None:
    suite = load_suite(suite_text.write(tmp_path, text=suite_text.LEGAL + PREMISES))
    (told,) = suite_facts([suite])[0]["claims"]
    assert [p["says"] for p in told["premises"]] == ["messages are long", "other"]
    assert all(Premise.model_validate(p) for p in told["premises"])


def test_premises_of_earlier_runs_are_read_by_the_names_of_today() -> None:
    old = {"says": "a", "of": {"metric": "token_s", "technique": "alone"}, "reached_by": "alone"}
    suite = {"suite": "training/x", "family": "training", "claims": [{**claim(SLOW), "premises": [old]}]}
    (facts_today,) = named_today({"line": "run", "suites": [suite]})["suites"]
    (told,) = facts_today["claims"][0]["premises"]
    assert (told["of"], told["reached_by"]) == (
        {"metric": "time_per_token", "technique": "no-communication"},
        "no-communication",
    )


QUANTITIES = {q.name: q for name in family_names() for q in load_family(name).quantities}
PASSES = [["F", 0, 0, 0.0, 2.0], ["I", 0, 0, 2.0, 4.0], ["W", 0, 0, 4.0, 5.0]]
TRAINED = {
    "params": {"steps": 400, "batch": 16, "context": 64, "ranks": 4},
    "ceilings": {"parameters": 313040},
}


@pytest.mark.parametrize(
    ("name", "seen", "value"),
    [
        ("outer_rounds", {**TRAINED, "options": {"sync_every": 20}}, 20),
        ("outer_rounds", TRAINED, 400),
        ("tokens_per_parameter", TRAINED, 1.308),
        ("ranks_per_core", {**TRAINED, "host": {"usable_cores": 2}}, 2),
        ("ranks_per_core", TRAINED, None),
        (
            "virtual_work_s",
            {"params": {}, "values": {"virtual_s": 2.0, "virtual_bubble_fraction": 0.25}},
            1.5,
        ),
        ("virtual_work_s", {"params": {}, "values": {"virtual_s": 2.0}}, None),
        (
            "weight_pass_share",
            {"params": {}, "accounting": {"timeline": [{"title": "simulated", "ranks": [PASSES]}]}},
            0.5,
        ),
        (
            "glimpse_and_judge_tokens",
            {"params": {"samples": 16}, "options": {"glimpse": 24}, "values": {"judge_tokens": 323.0}},
            707,
        ),
        ("link_bytes_per_s", {"params": {}, "ceilings": {"calibrated": {"link_bytes_per_s": 1.2e8}}}, 1.2e8),
        ("perplexity", {"params": {}, "accounting": {"perplexity": {"whole": 1.07}}}, 1.07),
        ("layers", {"params": {"checkpoint": "strong"}}, 4),
        ("layers", {"params": {"model": "8b"}}, 32),
        ("measured_shares", {"params": {}, "accounting": {"costs": {"coefficients": {}}}}, 1),
        (
            "measured_shares",
            {"params": {}, "accounting": {"costs": {"shares": {"0.2": 1, "0.5": 1, "1": 1}}}},
            3,
        ),
        ("measured_shares", {"params": {}}, None),
        (
            "queued_share",
            {"params": {}, "accounting": {"requested": 8, "engine": {"queued_at_start": 2}}},
            0.25,
        ),
        ("queued_share", {"params": {}, "accounting": {"requested": 8, "engine": {}}}, None),
    ],
)
def test_quantities_are_what_their_formulas_say(name: str, seen: dict[str, Any], value: float | None) -> None:
    found = QUANTITIES[name].of(Witness(**seen))
    assert found == (value if value is None else pytest.approx(value, rel=1e-3))


def test_sizes_of_embedded_models_are_read_from_their_files_and_of_others_nothing_is_known() -> None:
    known = load_family("reasoning").quantity("model_parameters")
    assert known is not None
    sizes = [known.of(Witness(params={"model": name})) for name in ("weak", "strong")]
    assert sizes[0] is not None and sizes[1] is not None and sizes[0] < sizes[1] < 1e6
    assert known.of(Witness(params={"model": "transformers:../weak"})) is None
    judge = load_family("reasoning").quantity("judge_parameters")
    assert judge is not None and 100 < (judge.of(Witness(params={})) or 0) < 10_000


def test_no_published_claim_is_refuted_without_a_premise_that_was_met() -> None:
    lines = (content.shipped_root() / "docs" / "claims.md").read_text(encoding="utf-8").splitlines()
    of_papers = ": **not reproduced**"  # rows of headlines begin with the paper's own verdict
    refuted = [line for line in lines if "**not reproduced**" in line and of_papers not in line]
    refuted = [line for line in refuted if line.startswith("|")]
    assert all("**not reproduced** (premises met)" in line and "| met: " in line for line in refuted)
    assert all("not met:" not in line for line in refuted)
    untested = [line for line in lines if "| **not testable here** |" in line]
    left = [line for line in lines if "| **not run** |" in line and "| not met: " in line]
    assert len(untested) > 10 and len(left) > 5
    assert all("| not met: " in line and "| needs " in line for line in (*untested, *left))


TESTS = {
    h.test: paper.slug
    for paper in load_papers().values()
    for h in paper.headlines
    if h.test.startswith("paceline") and " on a machine" not in h.test
}
"""Commands of sheets, with whose they are; others name a machine, and no command alone."""
COMMANDS = sorted(
    {
        given.command
        for suite in (one.model for one in all_shipped().values())
        for given in (*suite.premises.values(), *(p for c in suite.claims for p in c.premises))
        if isinstance(given, Premise) and given.command
    }
    | set(TESTS)
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_that_would_settle_a_claim_is_one_that_plans_something(command: str) -> None:
    program, *arguments = shlex.split(command)
    told = CliRunner().invoke(application, [*arguments, "--dry-run", "--allow-concurrent"])
    assert (program, told.exit_code) == ("paceline", 0), told.output
    assert re.search(r"\b[1-9]\d* cases", told.output), told.output


def left_to_the_full_tier(command: str, paper: str) -> list[str]:
    """Return the paper's claims that wait for points of the suite's largest tier alone, which a command leaves out."""
    wanting = [
        claim.id
        for name, suite in all_shipped().items()
        for claim in suite.model.claims
        if name in command.split() and claim.paper == paper and claim.needs is not None
    ]
    return [] if "--tier full" in command else wanting


def test_a_command_of_a_sheet_has_the_points_of_the_claims_that_wait_for_it() -> None:
    assert {
        command: left for command, paper in TESTS.items() if (left := left_to_the_full_tier(command, paper))
    } == {}
    # what lean-attention's sheet once named: its contexts of 65 536 tokens are in the tier full alone
    named = "paceline run kernels/attention-decode --runner local-cuda"
    assert len(left_to_the_full_tier(named, "lean-attention")) > 0
    assert left_to_the_full_tier(f"{named} --tier full", "lean-attention") == []
