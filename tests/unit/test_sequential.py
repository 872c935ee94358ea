"""Measuring until decided: what looking several times costs, and the rule that ends a block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtr

from paceline.stats.estimates import Launches, compare_difference, compare_ratio
from paceline.stats.sequential import CORRECTION, NOMINAL, design, level_after
from paceline.stats.verdicts import judge, least_margin
from paceline.worker.launches.schedule import Schedule
from paceline.worker.launches.stopping import Headline, Progress, Rule

ROOT = Path(__file__).parents[2]
TRIALS = 40_000


def false_alarms(looks: Sequence[int], level: float, *, seed: int = 0) -> float:
    """Simulate comparisons of equals; return how many any look calls different."""
    rng = np.random.default_rng(seed)
    total, squares, least = np.zeros(TRIALS), np.zeros(TRIALS), np.ones(TRIALS)
    made = 0
    for look in looks:
        drawn = rng.standard_normal((look - made, TRIALS))
        total, squares, made = total + drawn.sum(0), squares + (drawn**2).sum(0), look
        mean = total / made
        error = np.sqrt((squares / made - mean**2) / (made - 1))
        least = np.minimum(least, 2 * stdtr(made - 1, -abs(mean / error)))
    return float((least < level).mean())


@pytest.mark.parametrize("first", [3, 5, 10])
@pytest.mark.parametrize("most", [8, 20, 60, 200])
def test_all_looks_together_call_equals_different_in_at_most_5_percent(first: int, most: int) -> None:
    most = max(most, first)
    found = design(first, most, budget=False)
    share = false_alarms(found.looks, found.level)
    noise = 3 * math.sqrt(0.05 * 0.95 / TRIALS)
    assert 0.04 - noise <= share <= 0.05 + noise, (found, share)


@pytest.mark.parametrize("ended_after", [6, 9, 15, 25, 35, 50])
def test_a_look_more_where_the_budget_ends_is_paid_for(ended_after: int) -> None:
    found = design(5, 60, budget=True)
    looks = sorted({*found.looks, ended_after})
    assert false_alarms(looks, found.level) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS)


def test_the_nominal_5_percent_at_every_look_would_not_do() -> None:
    assert false_alarms(design(5, 60, budget=False).looks, 0.05) > 0.12


def test_the_looks_grow_by_half_and_end_with_the_most_launches() -> None:
    assert design(5, 60, budget=False).looks == (5, 8, 12, 18, 27, 41, 60)
    assert design(5, 5, budget=False).looks == (5,)
    assert design(5, 20, budget=False).looks == (5, 8, 12, 20)
    assert design(5, 60, budget=False).level == NOMINAL[7]
    with pytest.raises(ValueError, match="needs 3 at least"):
        design(2, 60, budget=False)


def test_an_interval_pays_for_the_looks_that_were_made() -> None:
    looks = design(5, 60, budget=True).looks
    assert [level_after(looks, n) for n in (5, 8, 60)] == [NOMINAL[1], NOMINAL[2], NOMINAL[7]]
    assert level_after(looks, 6) == NOMINAL[2], "the clock ended it between two looks: one look more"
    assert level_after(looks, 4) == NOMINAL[1], "before the first look: the clock's alone"
    assert level_after([3 * k for k in range(1, 21)], 60) == 0.05 / 20, "as many looks as nobody simulated"


def stopped(mean: float, spread: float, margin: float, *, budget: bool, trials: int) -> tuple[float, float]:
    """Simulate whole comparisons of one technique; return the shares of false decisions and of intervals that hold.

    A decision is false that names the wrong side, or a side of equals. Where there is a budget, the clock ends a
    comparison after any number of launches from the first look on, whatever they show.
    """
    rng = np.random.default_rng(3)
    found = design(5, 60, budget=budget)
    rule = Rule(rule_of(margin=margin, budget_s=1.0 if budget else None))
    one = headline(margin=margin)
    false = held = 0
    for _ in range(trials):
        values = mean + spread * rng.standard_normal(60)
        clock = int(rng.integers(5, 61)) if budget else 60
        ends = (n for n in found.looks if n <= clock and rule.launches_needed(values[:n].tolist(), one) <= n)
        launches = next(ends, clock)
        sides = [
            Launches(
                values=dict(enumerate(side)),
                confidence=1 - level_after(found.looks, launches),
                until_decided=True,
            )
            for side in (np.exp(values[:launches]).tolist(), [1.0] * launches)
        ]
        effect = compare_ratio(*sides)
        assert effect.low is not None and effect.high is not None
        held += effect.low <= math.exp(mean) <= effect.high
        right = "slower" if mean > 0 else "equivalent"
        false += judge(effect, margin=margin, better="lower").name not in (
            right,
            "equivalent",
            "inconclusive",
        )
    return false / trials, held / trials


@pytest.mark.parametrize("budget", [False, True], ids=["to the end", "by the clock"])
@pytest.mark.parametrize(
    ("mean", "spread"), [(0.0, 0.01), (0.0, 0.05), (0.0, 0.2), (0.03, 0.03), (0.1, 0.05)]
)
@pytest.mark.one_in(3)
def test_intervals_of_a_stopped_comparison_hold_and_its_decisions_are_right(
    mean: float, spread: float, budget: bool
) -> None:
    trials = 2000
    false, held = stopped(mean, spread, 0.05, budget=budget, trials=trials)
    assert false <= 0.05
    # 98.5 %: stops at the last of many looks keep their stricter levels; 93 % less what 2000 trials leave open.
    assert 0.93 - 3 * math.sqrt(0.05 * 0.95 / trials) <= held <= 0.985, (false, held)


def rule_of(
    kind: str = "ratio",
    margin: float = 0.05,
    better: str = "lower",
    most: int = 60,
    budget_s: float | None = None,
) -> dict[str, Any]:
    found = design(5, most, budget=budget_s is not None)
    return {
        "looks": list(found.looks),
        "budget_s": budget_s,
        "critical": found.critical(found.level),
        "critical_difference": found.critical(found.level / CORRECTION),
        "metrics": [
            {"name": "latency", "kind": kind, "margin": margin, "better": better, "statistic": "median"}
        ],
    }


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=5, max_size=60),
    st.floats(0.5, 2.0),
    st.sampled_from(["ratio", "difference"]),
    st.sampled_from([0.0, 0.05, 0.3]),
)
def test_what_ends_a_block_is_decided_in_the_report_too(
    noise: list[float], effect: float, kind: str, margin: float
) -> None:
    found = design(5, 60, budget=False)
    technique = {i: effect * x for i, x in enumerate(noise)}
    baseline = {i: 1.0 + 0.01 * (i % 3) for i in range(len(noise))}
    headline = Headline(name="latency", kind=kind, margin=margin, better="lower", statistic="median")  # type: ignore[arg-type]
    values = [
        math.log(technique[i]) - math.log(baseline[i]) if kind == "ratio" else technique[i] - baseline[i]
        for i in technique
    ]
    needed = Rule(rule_of(kind, margin)).launches_needed(values, headline)
    sides = [Launches(values=v, confidence=1 - found.level) for v in (technique, baseline)]
    estimate = compare_ratio(*sides) if kind == "ratio" else compare_difference(*sides)
    verdict = judge(estimate, margin=margin, better="lower", kind=kind)  # type: ignore[arg-type]
    if needed <= len(values):
        assert verdict.name in ("faster", "slower", "equivalent"), (needed, estimate)
    elif verdict.name in ("faster", "slower"):  # it goes on only where the correction could undo it
        assert estimate.p_value is not None and estimate.p_value > 0.05 / CORRECTION / 1.01


def headline(**changes: Any) -> Headline:
    return Headline(
        **{
            "name": "latency",
            "kind": "ratio",
            "margin": 0.05,
            "better": "lower",
            "statistic": "median",
            **changes,
        }
    )


def test_launches_needed_of_what_is_known() -> None:
    rule = Rule(rule_of())
    assert rule.launches_needed([0.1], headline()) == 0  # one launch says nothing of the spread
    assert rule.launches_needed([0.2] * 5, headline()) == 5  # constant
    assert rule.launches_needed([0.3, 0.31, 0.29, 0.3, 0.3], headline()) == 5
    assert rule.launches_needed([0.0, 0.001, -0.001, 0.0, 0.0], headline()) == 5  # equivalent
    noisy = [0.1, -0.1, 0.12, 0.3, 0.02]
    assert 5 < rule.launches_needed(noisy, headline()) < 60
    assert rule.launches_needed([0.3, 0.31, 0.29, 0.3, 0.3], headline(better="neither")) == 0
    assert rule.launches_needed([0.1, -0.1, 0.1, -0.1, 0.001], headline(margin=0.0)) > 1000


CASES = [{"label": name, "case_id": name} for name in ("base", "other")]


def plan(num_blocks: int = 2, budget_s: float | None = None, run_s: float | None = None) -> dict[str, Any]:
    names = [f"b{i}" for i in range(num_blocks)]
    return {
        "blocks": [
            {"block": n, "suite": "s", "baseline": "base", "cases": CASES, "protocol": {"launches": 60}}
            for n in names
        ],
        "groups": [{"group": "g", "blocks": names}],
        "stopping": {"budget_s": run_s, "suites": {"s": rule_of(budget_s=budget_s)}},
    }


class World:
    """Runs a schedule on made-up times: block → standard deviation of its log-ratios, and their mean."""

    def __init__(
        self, plan: dict[str, Any], effects: dict[str, tuple[float, float]], seconds: float = 1.0
    ) -> None:
        self.plan, self.effects, self.seconds = plan, effects, seconds
        self.events: list[dict[str, Any]] = []
        self.progress = Progress(plan)
        self.launched: list[tuple[int, frozenset[str]]] = []

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, "rank": -1, "launch": -1, **fields})

    def take(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.events.append(event)
            self.progress.take(event)

    def results(self, launch: int, blocks: frozenset[str]) -> Iterator[dict[str, Any]]:
        for block in sorted(blocks):
            mean, spread = self.effects[block]
            rng = np.random.default_rng([launch, int(block[1:])])
            for label, log in (("base", 0.0), ("other", mean + spread * rng.standard_normal())):
                yield {
                    "event": "result",
                    "status": "ok",
                    "block": block,
                    "label": label,
                    "launch": launch,
                    "metrics": {"latency": {"samples": [math.exp(log)] * 3}},
                }

    def run(self, most_turns: int = 10_000) -> dict[str, tuple[int, str]]:
        for turn, (launch, _, taking) in enumerate(Schedule(self.plan, self.progress, self.emit).turns()):
            if turn == most_turns:
                break
            done = {(e["launch"], e["block"]) for e in self.events if e["event"] == "result"}
            left = frozenset(b for b in taking if (launch, b) not in done)
            if left:
                self.launched.append((launch, left))
                self.take(*self.results(launch, left))
                blocks = [{"block": b, "suite": "s"} for b in left]
                self.take({"event": "launch_end", **self.progress.spent(blocks, self.seconds)})
        return {e["block"]: (e["launches"], e["why"]) for e in self.events if e["event"] == "block_stopped"}


def test_a_clear_block_ends_at_its_first_look_and_a_noisy_one_goes_on() -> None:
    world = World(plan(), {"b0": (0.5, 0.01), "b1": (0.04, 0.1)})
    ended = world.run()
    assert ended["b0"] == (5, "decided")
    assert ended["b1"][1] == "decided" and ended["b1"][0] in design(5, 60, budget=False).looks[1:]
    assert world.launched[4] == (4, frozenset({"b0", "b1"})) and world.launched[5] == (5, frozenset({"b1"}))


def test_a_block_out_of_reach_ends_before_its_most_launches_but_not_at_its_first_look() -> None:
    launches, why = World(plan(1), {"b0": (0.02, 2.0)}).run()["b0"]
    assert why == "out of reach" and 5 < launches < 60


def test_a_block_that_stays_open_ends_with_its_most_launches() -> None:
    ended = World(plan(1), {"b0": (0.055, 0.15)}).run()
    assert ended == {"b0": (60, "launches")}


def test_equals_end_as_equivalent() -> None:
    launches, why = World(plan(1), {"b0": (0.0, 0.03)}).run()["b0"]
    assert why == "decided" and launches < 60


def test_the_block_that_needs_fewest_launches_goes_first_when_time_is_short() -> None:
    world = World(plan(budget_s=16.5), {"b0": (0.02, 0.5), "b1": (0.06, 0.1)})
    ended = world.run()
    assert ended["b1"][1] == "decided" and ended["b1"][0] > 5
    assert ended["b0"][1] == "budget"
    alone = [blocks for launch, blocks in world.launched if launch >= 5]
    assert alone[0] == {"b1"} and alone[-1] == {"b0"}


def test_the_budget_of_a_suite_leaves_its_first_look() -> None:
    ended = World(plan(budget_s=1.5), {"b0": (0.5, 0.01), "b1": (0.06, 0.1)}).run()
    assert ended == {"b0": (5, "decided"), "b1": (5, "budget")}


def test_a_budget_of_the_run_that_is_over_before_a_block_began_gives_its_cases_a_reason() -> None:
    own = plan(1, run_s=3.5)
    own["blocks"].append({**own["blocks"][0], "block": "b1"})
    own["groups"].append({"group": "h", "blocks": ["b1"]})
    world = World(own, {"b0": (0.0, 1.0), "b1": (0.0, 1.0)}, seconds=4.0)
    assert world.run() == {"b0": (1, "budget"), "b1": (1, "budget")}
    skipped = [e for e in world.events if e["event"] == "case_failed"]
    assert {(e["block"], e["label"], e["status"], e["launch"]) for e in skipped} == {
        ("b1", "base", "skipped", 0),
        ("b1", "other", "skipped", 0),
    }


@pytest.mark.parametrize("turns", [1, 6, 9, 20])
def test_an_interrupted_job_ends_as_if_it_had_not_been(turns: int) -> None:
    effects = {"b0": (0.3, 0.05), "b1": (0.1, 0.1)}
    whole = World(plan(), effects)
    ended = whole.run()
    first = World(plan(), effects)
    first.run(turns)
    second = World(plan(), effects)
    second.take(*first.events)
    assert second.run() == ended
    assert [*first.launched, *second.launched] == whole.launched


def test_a_technique_that_failed_keeps_nobody_waiting() -> None:
    world = World(plan(1), {"b0": (0.02, 0.5)})
    world.take({"event": "case_failed", "status": "crashed", "block": "b0", "label": "other", "launch": 0})
    assert world.run() == {"b0": (5, "nothing to decide")}


def test_a_loss_of_the_machine_is_no_failure_of_the_technique() -> None:
    world = World(plan(1), {"b0": (0.5, 0.01)})
    world.take(
        {"event": "case_failed", "status": "infrastructure", "block": "b0", "label": "other", "launch": 0}
    )
    assert world.run() == {"b0": (5, "decided")}


def test_a_suite_with_a_fixed_number_is_left_alone() -> None:
    fixed = {**plan(1), "stopping": None}
    fixed["blocks"] = [{**fixed["blocks"][0], "protocol": {"launches": 7}}]
    world = World(fixed, {"b0": (0.5, 0.01)})
    assert world.run() == {} and len(world.launched) == 7


def rows_of(heading: str) -> list[list[str]]:
    """Return the rows of the table in docs/protocol.md that begins with a heading."""
    lines = (ROOT / "docs" / "protocol.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_example_of_the_protocol_is_what_the_code_says() -> None:
    times = [[float(x) for x in row[1:]] for row in rows_of("launch")]
    found = design(5, 60, budget=False)
    looks = rows_of("look")
    assert [int(row[1]) for row in looks] == list(found.looks[:2])
    for number, (_, launches, ratio, usual, of_look, says) in enumerate(looks):
        sides = [dict(enumerate(side)) for side in zip(*times[: int(launches)], strict=True)]
        for confidence, text in ((0.95, usual), (1 - found.level, of_look)):
            effect = compare_ratio(*(Launches(values=v, confidence=confidence) for v in sides))
            assert f"{effect.value:.3f}" == ratio
            assert f"{effect.low:.3f} to {effect.high:.3f}" == text
        verdict = judge(effect, margin=0.05, better="lower")
        assert says == ("goes on" if verdict.name == "inconclusive" else verdict.name)
        logs = [math.log(a) - math.log(b) for a, b in times[: int(launches)]]
        assert (Rule(rule_of()).launches_needed(logs, headline()) <= len(logs)) == (number == 1)
    text = (ROOT / "docs" / "protocol.md").read_text()
    level = level_after(found.looks, len(times))
    shown = compare_ratio(*(Launches(values=v, confidence=1 - level) for v in sides))
    assert f"that of {100 * (1 - level):.2f} %: {shown.low:.3f} to {shown.high:.3f}." in text
    assert f"one of {100 * (1 - found.level):.2f} %" in text
    errors = np.mean(logs) / (np.std(logs, ddof=1) / math.sqrt(len(logs)))
    assert f"exceed {found.critical(found.level / CORRECTION)[6]:.3f} standard errors" in text
    assert f"it is {errors:.1f} of them" in text
    assert f"{100 * found.level:.2f} % where there are seven" in text and len(found.looks) == 7
    assert abs(false_alarms(found.looks, 0.05) - 0.2) < 0.01  # "about 20 %"


def test_the_least_margin_is_what_an_interval_could_show_of_equals() -> None:
    sides = [Launches(values=dict(enumerate(side))) for side in ([1.0, 1.1, 0.9, 1.05, 0.96], [1.0] * 5)]
    effect = compare_ratio(*sides)
    margin = least_margin(effect, "ratio")
    assert margin is not None and effect.low is not None and effect.high is not None
    assert margin == pytest.approx(math.sqrt(effect.high / effect.low) - 1)
    centred = replace(effect, low=1 / (1 + margin), high=1 + margin)
    assert judge(centred, margin=margin, better="lower").name == "equivalent"
    assert judge(centred, margin=0.99 * margin, better="lower").name == "inconclusive"
    assert least_margin(replace(effect, low=-0.2, high=0.1), "difference") == pytest.approx(0.15)
    assert least_margin(replace(effect, low=None), "ratio") is None
    assert least_margin(replace(effect, low=1.0, high=1.0), "ratio") is None
