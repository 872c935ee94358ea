"""How long a plan takes: ranges in order, what they rest on, and that the published runs lie within them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
import suite_text
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from shipped_suites import shipped

from paceline.cli import application
from paceline.cli.measuring.estimates import estimate_text
from paceline.drivers.progress import TimeLeft
from paceline.records import earlier_runs as earlierruns
from paceline.records.earlier_runs import RunTimes, here, known_times, plan_estimate, read_times
from paceline.records.format.record import Event, Run
from paceline.records.store.record_writer import RecordWriter
from paceline.spec import content
from paceline.spec.plans.duration import ACCELERATORS, Known, Span, estimate
from paceline.spec.plans.plan import Plan, Selection, make_plan, observations, part_of
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.grammar import TIERS, TierName
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
SUITES = sorted(content.suite_files())
RUNNERS = sorted(content.runner_files())
TIMES = ("low_s", "likely_s", "high_s", "most_s")


@cache
def suite(name: str) -> Suite:
    return shipped(name)


@cache
def planned(name: str, tier: TierName, runner: str, launches: int | None = None) -> Plan:
    selection = Selection(tier=tier, launches=launches)
    return make_plan([suite(name)], load_runner(content.find_runner(runner)), selection)


@example(name="kernels/lm-head", tier="full", runner="local-cpu", known=[])
@example(name="training/precision", tier="full", runner="local-cpu", known=[])
@example(name="training/pipelines", tier="full", runner="netns-cpu", known=[1.0, 1e5])
@given(
    name=st.sampled_from(SUITES),
    tier=st.sampled_from(TIERS),
    runner=st.sampled_from(RUNNERS),
    known=st.lists(st.floats(1e-3, 1e6), max_size=4),
)
def test_no_time_is_likelier_than_the_most_it_can_be(
    name: str, tier: TierName, runner: str, known: list[float]
) -> None:
    plan = planned(name, tier, runner)
    cases = {
        b["block"]: Span(low_s=s / 2, likely_s=s, high_s=2 * s)
        for b, s in zip(plan.blocks, known, strict=False)
    }
    found = estimate(plan.data, observations(plan.data), Known(cases=cases, num_runs=1))
    stated = [found[key] for key in TIMES if found[key] is not None]
    assert stated == sorted(stated), found
    assert found["most_s"] is not None
    measured = bool(cases)
    if plan.blocks and plan.data["runner"]["device"] in ACCELERATORS and not measured:
        assert found["likely_s"] is None
        assert found["basis"] == "none"
    if measured:
        assert len(stated) == len(TIMES), "whoever was measured in part has a pace for the rest"
        assert found["basis"].startswith("earlier runs")


REASONING = """
suite: reasoning/mine
version: 1
family: reasoning
description: A model of somebody's own.
workload: {op: solve, model: MODEL, problems: "gsm8k:openai/gsm8k@main", questions: 500, samples: 16}
baseline: self-consistency
techniques: [self-consistency]
protocol: {launches: 1, timeout: 30min}
metrics: {accuracy: {margin: 0.02}}
"""


@pytest.mark.parametrize("model", ["transformers:some/model@main", "openai:http://127.0.0.1:9/v1#m"])
def test_a_model_that_somebody_brings_along_has_no_estimate_until_it_has_run(
    tmp_path: Path, model: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(REASONING.replace("MODEL", json.dumps(model)))
    plan = make_plan([load_suite(path)], load_runner(content.find_runner("local-cpu")), Selection())
    assert plan.num_cases == 1
    assert plan.data["estimate"]["likely_s"] is None
    text = estimate_text(plan, plan.data["estimate"], wide=True)
    assert text.startswith("no estimate yet: nothing of it has run here")
    assert text.endswith("at most 32 min by its time-outs")
    assert "at most" not in estimate_text(plan, plan.data["estimate"])
    block = plan.blocks[0]["block"]
    known = Known(cases={block: Span(low_s=90, likely_s=100, high_s=110)}, num_runs=2)
    found = estimate(plan.data, observations(plan.data), known)
    assert found["basis"] == "earlier runs"
    assert "from 2 earlier runs on such a host" in estimate_text(plan, found)


def test_points_beside_measured_ones_are_estimated_by_them_and_not_by_the_bare_formula(
    tmp_path: Path,
) -> None:
    plan = make_plan([suite_text.load(tmp_path)], load_runner(content.find_runner("local-cuda")), Selection())
    first, *rest = plan.blocks
    cases = {first["block"]: Span(low_s=9, likely_s=10, high_s=11)}
    found = estimate(plan.data, observations(plan.data), Known(cases=cases, num_runs=1))
    assert found["basis"] == "earlier runs and formula"
    assert found["num_blocks_known"] == 1
    assert found["likely_s"] > 10 * len(first["cases"]) * first["protocol"]["launches"]
    text = estimate_text(plan, found)
    assert f"from 1 earlier run on such a host for 1 of {len(rest) + 1} points" in text


def totals(times: RunTimes, plan: Plan) -> float:
    seconds = 0.0
    for block in plan.blocks:
        found = times.blocks[block["block"]]
        each = sum(found.seconds) / len(found.seconds) / found.num_cases
        seconds += each * len(block["cases"]) * block["protocol"]["launches"]
    return seconds


def published(times: list[RunTimes]) -> Iterator[tuple[int, RunTimes, Plan]]:
    """Yield every suite of every run with its number, as far as it is planned today as it was then."""
    for number, run in enumerate(times):
        for name in sorted(set(run.suites) & set(SUITES)):
            # a fixed number: how many it takes until all is decided, no formula knows
            plan = planned(name, run.tier, run.runner, 5)  # type: ignore[arg-type]
            blocks = [
                b["block"]
                for b in plan.blocks
                if (t := run.blocks.get(b["block"])) and t.seconds and t.num_cases
            ]
            if blocks:
                part = part_of(plan, blocks)
                yield number, run, Plan(data={**part.data, "groups": []})


def test_published_runs_lie_within_what_the_formula_and_what_earlier_runs_said(tmp_path: Path) -> None:
    times = read_times([PUBLISHED], tmp_path)
    by_formula, by_runs = [], []
    for number, run, plan in published(times):
        took = totals(run, plan)
        formulas = observations(plan.data)
        known = known_times(times[:number], plan.data, host=run.host_class)
        for found, hits in (
            (estimate(plan.data, formulas), by_formula),
            (estimate(plan.data, formulas, known), by_runs if known.num_runs else []),
        ):
            if found["low_s"] is not None:  # how long a program takes, no formula says
                hits.append(found["low_s"] <= took <= found["high_s"])
    assert len(by_formula) > 100
    assert sum(by_formula) > 0.9 * len(by_formula)
    assert len(by_runs) > 40
    assert sum(by_runs) > 0.85 * len(by_runs)


def write_run(
    root: Path, seconds: dict[str, list[float]], *, suite: str = "collectives/example", **changes: Any
) -> Run:
    """Write a record of which each block took some seconds, launch by launch."""
    run = factory.make_run(
        **{"host_class": here(), "runner": {"name": "local-cpu"}, "tier": "standard", **changes}
    )
    writer = RecordWriter(root, run)
    for launch in range(max(map(len, seconds.values()), default=0)):
        event(writer, run, "launch_begin", group="collectives-2-loopback", launch=launch)
        for block, each in seconds.items():
            if launch < len(each):
                event(writer, run, "block_end", block=block, launch=launch, elapsed_s=each[launch])
        inside = sum(each[launch] for each in seconds.values() if launch < len(each))
        event(
            writer, run, "launch_end", group="collectives-2-loopback", launch=launch, elapsed_s=inside + 7.0
        )
    for block in seconds:
        writer.write(
            *(
                factory.measurement(
                    run, label, 0, [1.0, 1.0], suite=suite, block=block, record_id=f"{block}-{label}"
                )
                for label in ("native", "ring")
            )
        )
    writer.seal()
    return run


def event(writer: RecordWriter, run: Run, kind: Any, **data: Any) -> None:
    writer.write(Event(kind=kind, at="2026-11-21T07:00:00.000Z", run_id=run.run_id, data=data))


def test_what_earlier_runs_took_is_read_once_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, kept = tmp_path / "store", tmp_path / "cache"
    write_run(root, {"a": [3.0, 5.0], "b": [1.0]})
    (first,) = read_times([root], kept)
    assert first.blocks["a"].seconds == [3.0, 5.0]
    assert first.blocks["a"].num_cases == 2
    assert first.starts == {"collectives-2-loopback": [7.0, 7.0]}
    opened: list[Path] = []
    lines = earlierruns._lines
    monkeypatch.setattr(earlierruns, "_lines", lambda path: opened.append(path) or lines(path))
    assert read_times([root], kept) == [first]
    assert opened == []
    write_run(root, {"a": [4.0]})
    assert len(read_times([root], kept)) == 2
    assert len(opened) == 1, "only the new file is read"
    (entry,) = kept.iterdir()
    whole = entry.read_text()
    damages = {"": 2, "{}": 2, "[]": 2, whole[:-9]: 1, whole.replace('"blocks"', '"b"'): 2, whole: 0}
    for damage, num_read in damages.items():
        entry.write_text(damage)
        for expected in (num_read, 0):
            earlierruns._remembered.clear()
            opened.clear()
            assert len(read_times([root], kept)) == 2
            assert len(opened) == expected, damage


def test_a_store_is_kept_alike_from_wherever_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, kept = tmp_path / "store", tmp_path / "cache"
    write_run(root, {"a": [3.0]})
    monkeypatch.chdir(root)
    for place in (Path(), root, Path("../store")):
        earlierruns._remembered.clear()
        assert len(read_times([place], kept)) == 1
        (entry,) = kept.iterdir()
        names = [json.loads(line)["name"] for line in entry.read_text().splitlines()[1:] if line]
        assert names == [str(p.relative_to(root)) for p in earlierruns.record_paths(root)], place


def test_a_file_that_is_gone_or_another_now_is_none_that_was_kept(tmp_path: Path) -> None:
    root, kept = tmp_path / "store", tmp_path / "cache"
    for seconds in (3.0, 4.0, 5.0):
        write_run(root, {"a": [seconds]})
    assert [t.blocks["a"].seconds for t in read_times([root], kept)] == [[3.0], [4.0], [5.0]]
    first, second, _ = earlierruns.record_paths(root)
    first.unlink()
    changed = gzip.decompress(second.read_bytes()).replace(b'"elapsed_s":4.0', b'"elapsed_s":16.0')
    second.write_bytes(gzip.compress(changed))
    for _ in range(2):
        earlierruns._remembered.clear()
        assert [t.blocks["a"].seconds for t in read_times([root], kept)] == [[16.0], [5.0]]


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    write_run(tmp_path / "store", {"a": [3.0]})
    (tmp_path / "file").write_text("")
    assert len(read_times([tmp_path / "store"], tmp_path / "file" / "cache")) == 1


def test_lines_that_are_not_legal_say_nothing_and_break_nothing() -> None:
    run = factory.make_run().model_dump_json().encode()
    assert earlierruns.scan([b'{"line":"run"}\n', b"\xff\n"]) is None
    found = earlierruns.scan(
        [run, b'{"line":"event","kind":"block_end"}', b'{"line":"event"', b'{"line":"event","data":[]}', b""]
    )
    assert found is not None
    assert found.blocks == {}


def test_only_runs_of_the_same_runner_tier_and_class_of_host_count(tmp_path: Path) -> None:
    root = tmp_path / "store"
    plan = make_plan([suite_text.load(tmp_path)], load_runner(content.find_runner("local-cpu")), Selection())
    block = plan.blocks[0]["block"]
    for changes in (
        {"host_class": "another CPU, 64 cores, 512 GiB"},
        {"runner": {"name": "netns-cpu"}},
        {"tier": "quick"},
    ):
        write_run(root, {block: [1000.0]}, **changes)
    assert plan_estimate(plan, read_times([root], tmp_path))["basis"] == "formula"
    write_run(root, {block: [10.0, 30.0]})
    taken_back = write_run(root, {block: [5000.0]})
    correction = factory.make_run(reason="correction")
    writer = RecordWriter(root, correction)
    event(writer, correction, "retract", run_id=taken_back.run_id, reason="wrong machine")
    writer.seal()
    known = known_times(read_times([root], tmp_path), plan.data)
    assert known.num_runs == 1
    assert known.cases[block].likely_s == 10.0, "20 s a launch for two cases"
    assert known.starts["collectives-2-loopback"].likely_s == 7.0


def test_an_accelerator_that_was_measured_last_is_the_one_that_counts(tmp_path: Path) -> None:
    root = tmp_path / "store"
    plan = make_plan([suite_text.load(tmp_path)], load_runner(content.find_runner("local-cuda")), Selection())
    seconds = {b["block"]: [4.0] for b in plan.blocks}
    for card in ("old card", "new card"):
        write_run(
            root, seconds, runner={"name": "local-cuda"}, host_class=f"{here()}, {card} × 1, driver 570"
        )
    assert known_times(read_times([root], tmp_path), plan.data).num_runs == 1


def test_a_plan_says_in_text_and_json_that_it_rests_on_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "store"

    def invoke(*arguments: str) -> str:
        ended = CliRunner().invoke(application, [*arguments, "--results", str(root)])
        assert ended.exit_code == 0, ended.output
        return ended.stdout if "--json" in arguments else " ".join(ended.stdout.split())

    asked = ("collectives/send-recv",)
    before = json.loads(invoke("plan", *asked, "--json"))
    assert before["estimate"]["basis"] == "formula"
    assert "by a formula: no earlier run of it on such a host" in invoke("plan", *asked)
    write_run(root, {b["block"]: [2.0] for b in before["blocks"]}, suite=asked[0])
    after = json.loads(invoke("plan", *asked, "--json"))
    assert after["estimate"]["basis"] == "earlier runs"
    assert after["estimate"]["num_runs"] == 1
    assert "from 1 earlier run on such a host" in invoke("run", *asked, "--dry-run")
    assert {**before, "estimate": None} == {**after, "estimate": None}


def left(likely_s: float | None, blocks: dict[str, float], launches: int = 1) -> TimeLeft:
    return TimeLeft(likely_s, blocks, dict.fromkeys(blocks, (1, launches)))


@given(
    blocks=st.lists(st.floats(1.0, 1000.0), min_size=8, max_size=20),
    wrong=st.floats(0.05, 20.0),
)
def test_the_time_left_corrects_itself_as_blocks_end_however_unequal_they_are(
    blocks: list[float], wrong: float
) -> None:
    """An estimate that is wrong by a factor is believed less and less, whichever block comes first."""
    names = {f"b{n}": seconds for n, seconds in enumerate(blocks)}
    time_left, elapsed, whole = left(sum(blocks), names), 0.0, sum(blocks) * wrong
    for name, seconds in names.items():
        elapsed += seconds * wrong
        time_left.ended(name, elapsed)
        if elapsed > whole / 2:
            said, true = time_left.seconds(elapsed), whole - elapsed
            assert said is not None
            assert abs(said - true) <= 0.5 * whole * max(1.0, 1 / wrong) * 0.2 + 1e-6
    assert time_left.seconds(elapsed) == pytest.approx(0.0, abs=1e-6 * whole)


def test_a_run_that_takes_longer_than_anything_says_does_not_claim_to_be_nearly_done() -> None:
    time_left = left(60.0, {"a": 1.0, "b": 1.0})
    assert time_left.text(0.0) == "about 60 s"
    later = time_left.seconds(300.0)
    assert later is not None
    assert later >= 300.0, "after five minutes in the first of two blocks of half a minute"
    alone = left(60.0, {"a": 1.0})
    assert alone.text(300.0).startswith("longer than expected")


@pytest.mark.parametrize("elapsed", [60.1, 77.7, 123.4, 301.3, 999.9])
def test_the_time_left_is_no_rounding_error(elapsed: float) -> None:
    """It said ``about 3.55e-06 ns``."""
    assert left(60.0, {"a": 0.7}).text(elapsed).startswith("longer than expected")
    soon = left(60.0, {"a": 60.0})
    soon.ended("a", 59.5)
    assert soon.text(59.5).startswith(("longer", "less than a second"))
    assert left(0.4, {"a": 1.0}).text(0.0) == "less than a second"


def test_without_an_estimate_nothing_is_said_until_something_was_measured() -> None:
    time_left = left(None, {"a": 1.0, "b": 3.0})
    assert time_left.text(50.0) == "nobody knows how much"
    time_left.ended("a", 100.0)
    assert time_left.seconds(100.0) == pytest.approx(300.0)


def test_results_of_an_interrupted_run_do_not_make_the_rest_look_fast() -> None:
    time_left = left(100.0, {"a": 1.0}, launches=10)
    for _ in range(5):
        time_left.ended("a", 0.1, before=True)
    assert time_left.seconds(0.1) == pytest.approx(50.0, rel=0.05)


def test_asking_for_a_plan_reads_no_record_twice_and_takes_little_time(tmp_path: Path) -> None:
    read_times([PUBLISHED], tmp_path)
    begin = os.times().user
    for _ in range(10):
        times = read_times([PUBLISHED], tmp_path)
    plan = planned("training/experts", "standard", "local-cpu")
    plan_estimate(plan, times)
    assert os.times().user - begin < 2.0, "ten times what a plan does"
