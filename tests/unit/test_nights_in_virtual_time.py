"""Many nights of shipped suites, the longest among them, in virtual time: only what blocks are said to take passes."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from test_estimates import event

from paceline.base.errors import InfrastructureError
from paceline.drivers.execute import Outcome
from paceline.records.earlier_runs import here
from paceline.records.store.folder import Loaded, read_record
from paceline.records.store.record_writer import RecordWriter
from paceline.spec import content
from paceline.spec.plans.duration import Known, block_times, budget_of, launches_of
from paceline.spec.plans.plan import Plan, Selection, make_plan, observations
from paceline.spec.profiles.profile import RunnerProfile, load_runner
from paceline.spec.suites.launches import parse_launches
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.nightly import agenda, night
from paceline.workflows.nightly.agenda import due_blocks, plan_units
from paceline.workflows.nightly.config import Nightly, load_nightly
from paceline.workflows.nightly.night import Night
from paceline.workflows.nightly.outcomes import NightReport
from paceline.workflows.nightly.schedule import Place, cost_s

HOUR = 3600.0
Key = tuple[Place, str]


@cache
def _plan(suite: str, runner: str, selection: Selection) -> Plan:
    return make_plan([_suites[suite]], _runners[runner], selection)


_suites: dict[str, Suite] = {}
_runners: dict[str, RunnerProfile] = {}


def plan_once(suites: Sequence[Suite], runner: RunnerProfile, selection: Selection) -> Plan:
    """Plan each suite once: a night plans all of them anew."""
    _suites[suites[0].name], _runners[runner.name] = suites[0], runner
    return _plan(suites[0].name, runner.name, selection)


class World:
    """A host whose blocks take what this says, and a clock that only measuring moves.

    Args:
        folder: Of store and caches.
        nightly: What is asked for.
        pace: Unit → how many times as long it takes as estimated.
        broken: Units whose every run fails, and after how many seconds.
    """

    def __init__(
        self,
        folder: Path,
        nightly: Nightly,
        pace: Mapping[str, float],
        broken: Mapping[str, float],
    ) -> None:
        self.folder, self.nightly, self.broken = folder, nightly, broken
        self.clock_s = 0.0
        self.measured: dict[Key, list[int]] = defaultdict(list)
        self.nights: list[NightReport] = []
        self.spent_s: list[float] = []
        units, _ = plan_units(nightly.units, folder)
        self.seconds: dict[Key, float] = {}
        self.needed_s = 0.0
        for place, one in units.items():
            blocks = due_blocks(one.plan, (), here())
            factor = pace.get(place[0], 1.0)
            self.seconds |= {(place, b.block): factor * b.likely_s for b in blocks}
            self.needed_s += broken.get(place[0], factor * cost_s(blocks))
        self.keys = {key for key in self.seconds if key[0][0] not in broken}

    def now(self) -> str:
        moment = datetime(2026, 11, 21, 22, tzinfo=UTC) + timedelta(seconds=self.clock_s)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.000Z"

    def measure(self, plan: Plan, suites: Sequence[Suite], store: Path, *, reason: str, **_: Any) -> Outcome:
        """Let the time pass that a plan takes, and write a record that says so."""
        place = (suites[0].name, str(plan.data["runner"]["name"]), str(plan.data["tier"]))
        if place[0] in self.broken:
            self.clock_s += self.broken[place[0]]
            raise InfrastructureError("the machine has no more memory")
        run = factory.make_run(
            reason=reason,
            started=self.now(),
            suites=[{"suite": place[0]}],
            runner=plan.data["runner"],
            tier=place[2],
            host_class=here(),
        )
        writer = RecordWriter(store, run)
        for block in plan.blocks:
            took = self.seconds[place, block["block"]]
            self.clock_s += took
            self.measured[place, block["block"]].append(len(self.nights))
            made = launches_of(block["protocol"]).likely
            for launch in range(made):
                each = took / made
                event(writer, run, "block_end", block=block["block"], launch=launch, elapsed_s=each)
            for case in block["cases"]:
                writer.write(
                    factory.measurement(
                        run,
                        case["label"],
                        0,
                        [],
                        block=block["block"],
                        suite=place[0],
                        case_id=case["case_id"],
                        record_id=f"{block['block']}-{case['label']}",
                    )
                )
        return Outcome(run_id=run.run_id, path=writer.seal(), statuses={}, num_missing=0)

    def run(self) -> NightReport:
        """Let a night pass, and the day after it."""
        began = self.clock_s
        report = Night(
            nightly=self.nightly,
            store=self.folder / "store",
            load=Loaded,
            say=lambda text: None,
            state=self.folder,
            clock=lambda: self.clock_s,
            now=self.now,
        ).run()
        self.spent_s.append(self.clock_s - began)
        self.nights.append(report)
        self.clock_s = began + 24 * HOUR
        return report


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(agenda, "make_plan", plan_once)
    monkeypatch.setattr(night, "look_around", lambda runner, **_: {})


def world(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    *,
    pace: Mapping[str, float] | None = None,
    broken: Mapping[str, float] | None = None,
) -> World:
    path = folder / "nightly-test.yaml"
    path.write_text(f"nightly: test\nwait: 0\nidle: warn\nretries: 0\nquarantine: 99\nsite: false\n{text}")
    made = World(folder, load_nightly(path), pace or {}, broken or {})
    monkeypatch.setattr(night, "measure", made.measure)
    return made


FULL = """
measure:
  - {suites: [training, reasoning], runners: [local-cpu], tier: full}
  - {suites: [kernels/lm-head, kernels/low-bit, kernels/gemm], runners: [local-cpu], tier: full}
  - {suites: [collectives/compressed, serving/kv-cache-compression, serving/fairness], runners: [local-cpu], tier: full}
budget: 8h
"""


@pytest.mark.full
def test_nights_measure_every_block_of_every_suite_in_as_many_nights_as_the_work_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suites that are longer than any night were skipped for ever; so was whatever came behind a suite that fails."""
    # each by its own name, so that another suite changes nobody else's
    paces = (0.3, 0.6, 1.0, 1.5)
    pace = {name: random.Random(f"4/{name}").choice(paces) for name in content.suite_files()}
    pace |= {
        "training/pipelines": 0.05,
        "kernels/lm-head": 1.5,
        "training/experts": 0.6,
        "training/precision": 0.3,
    }
    tried = world(tmp_path, monkeypatch, FULL, pace=pace, broken={"collectives/compressed": 2 * HOUR})
    longer = {
        place[0]
        for place in {key[0] for key in tried.keys}
        if sum(s for key, s in tried.seconds.items() if key[0] == place) > 8 * HOUR
    }
    assert len(longer) >= 3, "there are suites longer than a night"
    unused = max(*tried.seconds.values(), 0.8 * HOUR)  # docs/nightly.md
    predicted = math.ceil(tried.needed_s / (8 * HOUR - unused)) + 1
    for _ in range(predicted):
        tried.run()
    missing = {key[0][0] for key in tried.keys - set(tried.measured)}
    assert not missing, f"after {predicted} nights"
    failures = [u for report in tried.nights for u in report.units if u.outcome == "failed"]
    assert 1 <= len(failures) <= predicted / 2, (
        "what fails takes its turn like the others, and not every night"
    )
    # First times rest on the formula, and this host is slower; nothing foretells that a suite breaks after two hours.
    assert max(tried.spent_s) <= max(paces) * 8 * HOUR + 2 * HOUR


LAB = """
measure:
  - {suites: [collectives/all-reduce, kernels/gemm, training/experts], runners: [local-cpu]}
budget: BUDGET
"""


def test_a_suite_in_shares_has_a_record_of_each_that_says_so_and_a_report_that_names_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = world(tmp_path, monkeypatch, LAB.replace("BUDGET", "12min"))
    first = tried.run()
    whole = {u.name: u for u in first.units}
    shares = [u for u in first.units if "of 10 points" in u.name]
    assert [u.outcome for u in shares] == ["measured", "skipped"], whole
    assert "expected tomorrow night" in shares[1].why
    record = read_record(next((tmp_path / "store").rglob(f"{shares[0].run_id}.jsonl*")))
    assert len({m.block for m in record.measurements}) < 10


def test_an_estimate_that_was_far_off_is_the_measured_one_in_the_same_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = world(tmp_path, monkeypatch, LAB.replace("BUDGET", "2h"), pace={"training/experts": 0.01})
    report = slow.run()
    assert {u.outcome for u in report.units} == {"measured"}
    (later,) = [d for d in slow_due(slow) if d.place[0] == "training/experts"]
    assert later.likely_s < 120


def slow_due(tried: World) -> list[Any]:
    one = Night(
        nightly=tried.nightly,
        store=tried.folder / "store",
        load=Loaded,
        say=lambda text: None,
        state=tried.folder,
        clock=lambda: tried.clock_s,
        now=tried.now,
    )
    units, _ = plan_units(tried.nightly.units, tried.folder)
    return one._due(units, ())


def test_a_unit_that_fails_every_time_comes_after_all_others_in_the_next_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"kernels/gemm": 3 * HOUR}
    tried = world(tmp_path, monkeypatch, LAB.replace("BUDGET", "40min"), broken=broken)
    for _ in range(4):
        tried.run()
    assert {key[0][0] for key in tried.measured} == {"collectives/all-reduce", "training/experts"}
    assert tried.keys <= set(tried.measured)
    (tmp_path / "store" / "nights" / "attempts.json").write_text("damaged")
    assert tried.run().units


def test_units_are_shared_by_their_blocks_and_no_block_is_measured_twice_in_a_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = world(tmp_path, monkeypatch, LAB.replace("BUDGET", "10min"))
    for _ in range(8):
        tried.run()
    for nights in tried.measured.values():
        assert len(nights) == len(set(nights))


def test_what_is_measured_until_decided_takes_its_likely_launches_and_no_more_than_its_budget() -> None:
    suite = load_suite(content.find_suite("kernels/lm-head"))
    plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection(tier="full"))
    seconds = block_times(plan.data, observations(plan.data), Known())
    first_look_s = sum(launches_of(b["protocol"]).low * seconds[b["block"]].planned_s for b in plan.blocks)
    likely_s = sum(launches_of(b["protocol"]).likely * seconds[b["block"]].planned_s for b in plan.blocks)
    found = sum(b.likely_s for b in due_blocks(plan, (), here()))
    assert budget_of(plan.data) < first_look_s < likely_s
    assert found == pytest.approx(first_look_s)
    fixed = make_plan(
        [suite],
        load_runner(content.find_runner("local-cpu")),
        Selection(tier="full", launches=parse_launches(7)),
    )
    assert sum(b.likely_s for b in due_blocks(fixed, (), here())) == pytest.approx(
        7 * sum(t.planned_s for t in block_times(fixed.data, observations(fixed.data), Known()).values())
    )
