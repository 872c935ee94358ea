"""Whether the design of a claim's run could tell, by samples of known spread: what it resolves, and what is needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import record_factory as factory
from scipy.stats import nct, t
from test_claim_costs import facts, result

from paceline.analysis.claims.power import Power
from paceline.analysis.claims.results import ClaimResult
from paceline.base.families.family import load_family
from paceline.records.store.folder import RunRecord
from paceline.stats.estimates import Estimate, wilson
from paceline.stats.verdicts import detectable_share, launches_to_find, minimum_detectable
from paceline.workflows.claiming import claim_facts

# Five differences with a mean of 0.001 and a t interval of half width 0.0068, as AsyncDiff's images had beside 0.005.
HALF_WIDTH = 0.0068
PATTERN = (-1.0, -0.5, 0.0, 0.5, 1.0)
AS_CLOSE = {"metric": "relative_l2_error", "technique": "ring", "versus": "native"}


def doctored(half_width: float, mean: float = 0.001) -> RunRecord:
    """Return a run whose paired differences have that mean, and an interval of that half width."""
    deviation = math.sqrt(sum(p * p for p in PATTERN) / 4)
    step = half_width * math.sqrt(5) / (float(t.ppf(0.975, 4)) * deviation)
    run = factory.make_run(suites=[facts()])
    point: dict[str, Any] = {"params": {"size_bytes": 1024}, "metric": "relative_l2_error"}
    lines = factory.launches(run, "native", [0.1] * 5, **point)
    lines += factory.launches(run, "ring", [0.1 + mean + step * p for p in PATTERN], **point)
    return factory.in_memory(run, lines)


def judged(found: RunRecord, **expect: float) -> ClaimResult:
    return result(found, {"measure": AS_CLOSE, "expect": expect})


def test_a_design_that_could_not_tell_says_so_and_how_many_launches_would() -> None:
    claim = judged(doctored(HALF_WIDTH), difference_at_most=0.005)
    assert claim.verdict == "inconclusive" and claim.worst is not None and claim.power is not None
    assert claim.worst.high == pytest.approx(0.001 + HALF_WIDTH)
    assert claim.power.resolves == pytest.approx(HALF_WIDTH * (1 + t.ppf(0.8, 4) / t.ppf(0.975, 4)))
    assert claim.reason is not None
    told = (
        "this design could not tell: it finds 0.0091, the claim needs 0.005; 12 launches would, these are 5"
    )
    assert told in claim.reason
    power = claim_facts(claim)["power"]
    assert (power["tells"], power["needs"], power["launches"], power["launches_needed"]) == (
        False,
        0.005,
        5,
        12,
    )


def test_a_design_with_power_does_not_say_so_whatever_it_found() -> None:
    near = judged(doctored(0.003, mean=0.004), difference_at_most=0.005)
    assert near.verdict == "inconclusive" and near.power is not None and near.power.tells
    assert "could not tell" not in (near.reason or "")
    beyond = judged(doctored(0.003, mean=0.02), difference_at_most=0.005)
    assert beyond.verdict == "does not conform" and "could not tell" not in (beyond.reason or "")


def test_what_holds_is_not_said_to_be_untold() -> None:
    claim = judged(doctored(HALF_WIDTH, mean=-0.01), difference_at_most=0.005)
    assert claim.verdict == "conforms" and claim.power is not None and not claim.power.tells
    assert "could not tell" not in (claim.reason or "")


def test_a_bound_that_is_no_effect_needs_what_the_suite_thinks_worth_telling() -> None:
    run = factory.make_run(suites=[facts()])
    lines = factory.launches(run, "native", [1.0] * 5, params={"size_bytes": 1024})
    lines += factory.launches(run, "ring", [0.9, 1.1, 1.0, 0.95, 1.05], params={"size_bytes": 1024})
    latency = {"metric": "latency", "technique": "ring", "versus": "native"}
    found = factory.in_memory(run, lines)
    claim = result(found, {"measure": latency, "expect": {"ratio_at_most": 1.0}})
    assert claim.power is not None and claim.power.needs == 0.05, "the margin of latency"
    claim = result(found, {"measure": latency, "expect": {"ratio_at_most": 0.8}})
    assert claim.power is not None and claim.power.needs == pytest.approx(0.25), "1 / 0.8"
    assert claim.power.kind == "ratio" and "could not tell" not in claim.power.text


def test_what_is_counted_has_no_power_to_tell() -> None:
    assert judged(doctored(0.0), difference_at_most=0.005).power is None


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_as_many_launches_find_the_effect_in_four_of_five_runs(spread: float) -> None:
    """Held against the noncentral t distribution, which is what a t test of a true effect follows."""
    made = Estimate(value=1.0, low=0.9, high=1.1, method="t", num_launches=5, spread=spread)
    effect = 0.1
    count = launches_to_find(made, effect, "difference")
    assert count is not None

    def power(launches: int) -> float:
        return float(nct.sf(t.ppf(0.975, launches - 1), launches - 1, effect / spread * math.sqrt(launches)))

    assert power(count) >= 0.78 and (count < 4 or power(count - 2) < 0.82)


def test_the_launches_that_resolve_an_effect_are_those_of_its_formula() -> None:
    for count in (3, 5, 12):
        made = Estimate(value=1.0, low=0.9, high=1.1, method="t", num_launches=count, spread=0.1)
        resolved = minimum_detectable(made, "ratio")
        assert resolved is not None
        assert launches_to_find(made, resolved * 1.0001, "ratio") == count
    assert launches_to_find(made, 1e-9, "ratio") is None


def test_ratios_are_told_as_factors_and_many_launches_as_many() -> None:
    power = Power(resolves=1.2, needs=0.05, kind="ratio", launches=5, launches_needed=None)
    assert (
        power.text
        == "finds a factor of 2.2, the claim needs 1.05; more than 1000 launches would, these are 5"
    )
    assert power.remark(decided=False) == f"this design could not tell: it {power.text}"


def test_what_was_refuted_without_power_says_that_it_was_decided_all_the_same() -> None:
    claim = judged(doctored(HALF_WIDTH, mean=0.02), difference_at_most=0.005)
    assert claim.verdict == "does not conform"
    assert claim.reason is not None and "could not tell" not in claim.reason
    assert claim.reason.endswith(
        "this design finds 0.0091, the claim needs 0.005; 12 launches would, these are 5; "
        "the whole interval lies beyond what was asked all the same"
    )


@pytest.mark.parametrize("count", [5, 20])
def test_a_band_of_that_width_holds_the_whole_interval_in_four_of_five_runs(count: int) -> None:
    made = Estimate(value=0.0, low=-1.0, high=1.0, method="t", num_launches=count, spread=1.0)
    half, effect = (minimum_detectable(made, "difference", band=band) for band in (True, False))
    assert half is not None and effect is not None
    draws = np.random.default_rng(7).standard_normal((20_000, count))
    middle = draws.mean(1)
    reach = t.ppf(0.975, count - 1) * draws.std(1, ddof=1) / math.sqrt(count)

    def inside(width: float) -> float:
        return float(np.mean((middle - reach >= -width) & (middle + reach <= width)))

    assert 0.78 < inside(half) < 0.86
    assert inside(effect) < 0.7, "the width of a bound on one side"
    wanted = launches_to_find(made, half * 1.0001, "difference", band=True)
    assert wanted == count


def test_a_claim_between_two_bounds_is_held_to_the_band() -> None:
    run = factory.make_run(suites=[facts()])
    lines = factory.launches(run, "native", [1.0] * 5, params={"size_bytes": 1024})
    lines += factory.launches(run, "ring", [0.9, 1.1, 1.0, 0.95, 1.05], params={"size_bytes": 1024})
    latency = {"metric": "latency", "technique": "ring", "versus": "native"}
    found = factory.in_memory(run, lines)
    one, band, both = (
        result(found, {"measure": latency, "expect": expect}).power
        for expect in (
            {"ratio_at_most": 1.2},
            {"equal_within": 0.2},
            {"ratio_at_least": 0.8, "ratio_at_most": 1.25},
        )
    )
    assert one is not None and band is not None and both is not None
    assert band.resolves == both.resolves > one.resolves
    assert (band.needs, both.needs) == (0.2, pytest.approx(0.25))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_so_many_trials_decide_a_share_at_that_distance_in_four_of_five_runs(share: float) -> None:
    """Held against Wilson's interval of binomial draws, by which a claim is decided."""
    trials = 400
    apart = detectable_share(share, trials, 0.95)
    assert apart is not None and detectable_share(1.0, trials, 0.95) is None
    drawn = np.random.default_rng(7).binomial(trials, share - apart, 20_000)
    below = [wilson(int(successes), trials)[1] < share for successes in drawn]
    assert 0.75 < float(np.mean(below)) < 0.85


def of_trials(launches: int, null: float | None = None) -> ClaimResult:
    """Return a claim on a share of one trial a launch, of which three quarters succeeded."""
    run = factory.make_run(suites=[facts()])
    point: dict[str, Any] = {"params": {"size_bytes": 1024}, "metric": "survived"}
    lines = []
    for label, share in (("ring", 0.75), ("tree", null)):
        for i in range(launches if share is not None else 0):
            lines.append(factory.measurement(run, label, i, [float(i < launches * (share or 0))], **point))
    claim = {
        "measure": {"metric": "survived", "technique": "ring"},
        "expect": {"value_at_least": 0.6},
        "null_arm": None if null is None else {"technique": "tree"},
        "paper": "pccl",
        "said": {"number": "60 %", "place": "abstract"},
    }
    return result(factory.in_memory(run, lines), claim)


def test_a_shares_design_is_its_trials_beside_the_arm_without_the_mechanism_or_the_margin() -> None:
    beside, alone = of_trials(40, 0.2), of_trials(40)
    assert beside.power is not None and beside.power.needs == pytest.approx(0.4)
    assert beside.power.tells and beside.power.kind == "difference"
    assert beside.power.resolves == pytest.approx((1.96 + 0.8416) * math.sqrt(0.6 * 0.4 / 40), rel=1e-3)
    few = of_trials(8, 0.2).power
    assert few is not None and not few.tells
    assert few.launches_needed == math.ceil(8 * (few.resolves / few.needs) ** 2)
    assert alone.power is None or alone.power.needs == load_family("collectives").metric("survived").margin


def test_a_value_beside_no_arm_needs_what_the_suite_thinks_worth_telling() -> None:
    run = factory.make_run(suites=[facts()])
    lines = factory.launches(run, "ring", [0.9, 1.1, 1.0, 0.95, 1.05], params={"size_bytes": 1024})
    latency = {"metric": "latency", "technique": "ring"}
    found = result(factory.in_memory(run, lines), {"measure": latency, "expect": {"value_at_most": 1.05}})
    assert found.power is not None and (found.power.needs, found.power.kind) == (0.05, "ratio")
    assert not found.power.tells and "could not tell" in (found.reason or "")
