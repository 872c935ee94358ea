"""Claims about a device that may not be at hand: each says what it needs, and the full tier there can decide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from shipped_suites import all_shipped

from paceline.analysis.claims.results import evaluate
from paceline.records.origin.provenance import suite_facts
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.grammar import Claim, Versus
from paceline.spec.suites.suite import Suite

SUITES = all_shipped()
CLAIMS = {
    (name, claim.id): claim for name, suite in SUITES.items() for claim in suite.model.claims if claim.needs
}
EXPECTED = {
    ("kernels/hopper-probe", "dense-bf16-rate"),
    ("kernels/hopper-probe", "dense-fp8-rate"),
    ("kernels/hopper-probe", "copy-bandwidth"),
    ("kernels/attention-decode", "long-contexts-beat-unsplit"),
    ("kernels/attention-decode", "long-contexts-beat-a-tuned-split"),
    ("kernels/attention-decode", "long-contexts-beat-the-usual-split"),
    ("kernels/low-bit", "four-bits-beat-dense"),
    ("kernels/low-bit", "every-width-beats-dense"),
    ("kernels/add-rmsnorm", "fused-norm-near-copy-bandwidth"),
    ("kernels/gemm", "stream-k-near-the-library"),
    ("kernels/gemm", "persistent-near-the-library"),
    ("training/checkpoints", "lazy-blocks-a-48th-of-a-device"),
    ("training/experts", "tutel-sparse-encode-on-a-device"),
    ("training/pipelines", "recomputation-on-a-device"),
}
MULTIPROCESSORS = 132
"""Of an H100 or H200."""


def plan_of(suite: Suite, tier: Any, runner: str) -> Plan:
    return make_plan([suite], load_runner(content.find_runner(runner)), Selection(tier=tier))


def selected(suite: Suite, plan: Plan, where: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the blocks of a plan that a claim's ``where`` selects."""
    wanted = {}
    for key, value in where.items():
        parameter = suite.family.parameter(key)
        assert parameter is not None
        wanted[key] = parameter.parse(value)
    return [b for b in plan.blocks if all(b["params"].get(k) == v for k, v in wanted.items())]


def undecidable(suite: Suite, claim: Claim, plan: Plan) -> list[str]:
    """Say why a complete run of a plan could not decide a claim."""
    measure, problems = claim.measure, []
    blocks = selected(suite, plan, measure.where)
    if not blocks:
        problems.append("no point is selected")
    versus = Versus(technique=measure.versus) if isinstance(measure.versus, str) else measure.versus
    for block in blocks:
        if measure.technique not in {c["label"] for c in block["cases"]}:
            problems.append(f"{measure.technique} is not at {block['params']}")
        if versus is not None:
            other = {**block["params"], **versus.where}
            found = [b for b in plan.blocks if b["params"] == other]
            label = versus.technique or measure.technique
            if not found or label not in {c["label"] for c in found[0]["cases"]}:
                problems.append(f"{label} is not at {other}")
    return problems


def test_the_claims_that_need_an_accelerator_are_declared() -> None:
    assert set(CLAIMS) == EXPECTED


@pytest.mark.parametrize(("name", "claim_id"), sorted(EXPECTED))
def test_a_claim_without_its_device_says_what_it_needs(name: str, claim_id: str) -> None:
    results = {r.claim_id: r for r in evaluate([], suite_facts([SUITES[name]]))}
    result = results[claim_id]
    assert result.verdict == "not run"
    assert result.reason == f"needs cuda: paceline run {name} --tier full --runner local-cuda"


@pytest.mark.parametrize(("name", "claim_id"), sorted(EXPECTED))
def test_the_full_tier_on_its_device_can_decide_a_claim(name: str, claim_id: str) -> None:
    suite, claim = SUITES[name], CLAIMS[(name, claim_id)]
    assert undecidable(suite, claim, plan_of(suite, "full", f"local-{claim.needs}")) == []


def test_a_claim_that_no_run_could_decide_is_noticed() -> None:
    suite = SUITES["kernels/low-bit"]
    claim = CLAIMS[("kernels/low-bit", "four-bits-beat-dense")]
    plan = plan_of(suite, "full", "local-cuda")
    elsewhere = claim.measure.model_copy(update={"where": {"n": 7}})
    assert undecidable(suite, claim.model_copy(update={"measure": elsewhere}), plan) == [
        "no point is selected"
    ]
    standard = plan_of(suite, "standard", "local-cpu")
    anywhere = claim.measure.model_copy(update={"where": {"bits": 4, "m": 1}})
    (problem,) = undecidable(suite, claim.model_copy(update={"measure": anywhere}), standard)
    assert problem.startswith("dense-weights is not at")


@pytest.mark.parametrize("tier", ["quick", "standard"])
@pytest.mark.parametrize(("name", "claim_id"), sorted(EXPECTED))
def test_a_claim_about_a_device_adds_nothing_to_the_tiers_of_this_machine(
    name: str, claim_id: str, tier: str
) -> None:
    suite = SUITES[name]
    tiers = suite.model.tiers
    if tier in tiers and tiers[tier].omit:  # type: ignore[index]
        return
    plan = plan_of(suite, tier, "local-cpu")
    assert selected(suite, plan, CLAIMS[(name, claim_id)].measure.where) == []
    assert {b["protocol"]["extra_timers"] for b in plan.blocks} == {"none"}


def test_long_contexts_leave_multiprocessors_idle_without_splits() -> None:
    suite = SUITES["kernels/attention-decode"]
    claim = CLAIMS[("kernels/attention-decode", "long-contexts-beat-unsplit")]
    blocks = selected(suite, plan_of(suite, "full", "local-cuda"), claim.measure.where)
    assert len(blocks) == 4
    for block in blocks:
        params = block["params"]
        assert params["batch"] * params["kv_heads"] < MULTIPROCESSORS
        assert params["context"] >= 1 << 16
