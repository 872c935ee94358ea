"""Launches in which others took the machine count for nothing, and a verdict that would rest on them is not given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import record_factory as factory

from paceline.analysis.compare import compare_points
from paceline.analysis.evidence import evidence
from paceline.analysis.points import points_of
from paceline.analysis.reproduction import judge_reproduction
from paceline.analysis.trend import histories
from paceline.base.families.family import load_family
from paceline.records.format.record import Event
from paceline.records.store.folder import RunRecord
from paceline.report.boards.standing import select
from paceline.report.tables.results import suite_tables
from paceline.report.words.estimates import verdict_text
from paceline.stats.sequential import CORRECTION, design
from paceline.worker.launches.schedule import Schedule
from paceline.worker.launches.stopping import Progress

BLOCK = "block-4096-loopback-2"
BUSY = {
    "seconds": 2.0,
    "cores": 2,
    "others_cores": 1.0,
    "stolen": 0.0,
    "waiting": 0.9,
    "processes": [{"name": "stress", "pid": 7, "cores": 1.0}],
    "disturbed": True,
}


def record(
    ring: Sequence[float], beside: Sequence[int], metric: str = "latency", **changes: Any
) -> RunRecord:
    """Return a run of a technique beside a baseline of 1.0 whose launches ``beside`` others had the machine."""
    run = factory.make_run(
        suites=[
            {
                "suite": "collectives/example",
                "version": 1,
                "family": "collectives",
                "baseline": "native",
                "metrics": {metric: 0.02},
                "claims": [],
            }
        ],
        **changes,
    )
    base = [1.0 + 0.001 * (i % 3) for i in range(len(ring))]
    lines = [
        *factory.launches(run, "native", base, metric=metric),
        *factory.launches(run, "ring", ring, metric=metric),
    ]
    events = [
        Event(
            kind="launch_end",
            at=run.started,
            run_id=run.run_id,
            data={"group": "g", "launch": n, "elapsed_s": 2.0, "load": BUSY, "disturbed": [BLOCK]},
        )
        for n in beside
    ]
    return replace(factory.in_memory(run, lines), events=tuple(events))


def test_a_launch_beside_others_weighs_nothing() -> None:
    """It alone says the contrary of the others."""
    ring = [0.80, 0.81, 0.80, 3.0, 0.79]
    (alone,) = compare_points(points_of(record(ring, [])))
    assert alone.verdict.name == "inconclusive", "without a word of the load nobody can know"
    (found,) = compare_points(points_of(record(ring, [3])))
    assert found.verdict.name == "faster" and found.effect.num_launches == 4
    assert found.effect.value == pytest.approx(0.8, rel=0.01)
    assert "beside-others" in found.warnings


def test_what_was_measured_beside_others_alone_has_no_verdict_and_names_them() -> None:
    """The numbers of two runs minutes apart, which decided the opposite of one another."""
    for ring in ([0.59, 0.60, 0.61, 0.60, 0.59], [1.37, 1.35, 1.36, 1.38, 1.36]):
        points = points_of(record(ring, range(5)))
        (found,) = compare_points(points)
        assert found.verdict.name == "inconclusive" and verdict_text(found) == "machine busy"
        assert found.verdict.reason == "machine busy: stress took 1.0 of 2 cores"
        assert (found.effect.low, found.effect.high, found.effect.p_value) == (None, None, None)
        (table,) = suite_tables(points, [found])
        shown = table.render()
        assert "machine busy: stress took 1.0 of 2 cores" in shown and "which count for nothing" in shown


def test_two_launches_without_others_are_too_few() -> None:
    ring = [0.80, 0.81, 0.80, 0.80, 0.79]
    assert compare_points(points_of(record(ring, [0, 1])))[0].verdict.name == "faster"
    assert compare_points(points_of(record(ring, [0, 1, 2])))[0].verdict.machine_busy


def test_what_no_load_changes_keeps_all_its_launches() -> None:
    (found,) = compare_points(points_of(record([800.0, 800.0, 800.0], range(3), metric="wire_bytes")))
    assert found.verdict.name == "slower" and "beside-others" not in found.warnings


def test_only_times_of_the_machine_are_the_loads() -> None:
    timed = {
        f: {m.name for m in load_family(f).metrics if m.timed} for f in ("serving", "training", "collectives")
    }
    assert {"ttft_p50", "goodput", "slo_attainment", "denoise_time"} <= timed["serving"]
    assert not {"decode_time", "virtual_ttft_p90", "iteration_time", "failed", "kv_moved"} & timed["serving"]
    assert {"time_per_token", "mfu"} <= timed["training"]
    assert not {"eval_loss", "virtual_run_time", "virtual_time_to_target", "peak_bytes"} & timed["training"]
    assert {"latency", "overhead"} <= timed["collectives"] and "wire_bytes" not in timed["collectives"]
    assert all(
        m.clock == "virtual"
        for f in timed
        for m in load_family(f).metrics
        if m.name.startswith("virtual_") and m.unit == "s"
    )


def test_a_run_beside_others_confirms_and_refutes_no_other() -> None:
    quiet = record([0.80, 0.81, 0.80, 0.79, 0.80], [])
    assert judge_reproduction(quiet, record([1.4, 1.41, 1.4, 1.39, 1.4], range(5))).answer == "inconclusive"


def test_a_night_beside_others_is_no_night_of_a_trend() -> None:
    nights = [
        record([0.8, 0.81, 0.8], range(3) if n == 4 else [], started=f"2026-11-{n + 1:02}T03:00:00.000Z")
        for n in range(8)
    ]
    found = next(
        h for h in histories([p for r in nights for p in points_of(r)], ["latency"]) if h.label == "ring"
    )
    assert len(found.nights) == 7 and [b.run_id for b in found.busy] == [nights[4].run_id]
    assert [b.why for b in found.left_out] == ["machine busy: stress took 1.0 of 2 cores"]


def test_a_run_beside_others_replaces_no_other() -> None:
    """It is newer, and has as many launches of committed code."""
    quiet = record([0.80, 0.81, 0.80, 0.79, 0.80], [])
    busy = record([1.4, 1.41, 1.4, 1.39, 1.4], range(5))
    (old,), (new,) = points_of(quiet), points_of(busy)
    assert new.run.run_id > old.run.run_id and max([old, new], key=evidence) is old
    (board,) = select([quiet, busy]).boards
    assert [p.run.run_id for p in board.points] == [quiet.run_id]


def rule_of(looks: Sequence[int] = (3, 5, 8, 12), *, timed: bool) -> dict[str, Any]:
    found = design(looks[0], looks[-1], budget=False)
    metric = {"name": "latency", "kind": "ratio", "margin": 0.05, "better": "lower", "statistic": "median"}
    return {
        "looks": looks,
        "budget_s": None,
        "critical": found.critical(found.level),
        "critical_difference": found.critical(found.level / CORRECTION),
        "metrics": [{**metric, "timed": timed}],
    }


def stopped(ratios: Sequence[float], beside: frozenset[int], *, timed: bool = True) -> tuple[int, str]:
    """Run a schedule of one block until it ends: after how many launches, and why."""
    cases = [{"label": name, "case_id": name} for name in ("base", "other")]
    block = {"block": "b", "suite": "s", "baseline": "base", "cases": cases, "protocol": {"launches": 12}}
    plan = {
        "blocks": [block],
        "groups": [{"group": "g", "blocks": ["b"]}],
        "stopping": {"budget_s": None, "suites": {"s": rule_of(timed=timed)}},
    }
    progress, ends = Progress(plan), []

    def emit(event: str, **fields: Any) -> None:
        if event == "block_stopped":
            ends.append((fields["launches"], fields["why"]))

    for launch, _, _ in Schedule(plan, progress, emit).turns():
        for label, value in (("base", 1.0), ("other", ratios[launch])):
            metrics = {"latency": {"samples": [value] * 3}}
            told = {"event": "result", "status": "ok", "block": "b", "label": label, "launch": launch}
            progress.take({**told, "metrics": metrics})
        load = {"load": BUSY, "disturbed": ["b"]} if launch in beside else {}
        progress.take({"event": "launch_end", "launch": launch, **load})
    (end,) = ends
    return end


CLEAR = [0.5 * math.exp(0.01 * (-1) ** n) for n in range(12)]


def test_launches_beside_others_are_made_again() -> None:
    assert stopped(CLEAR, frozenset()) == (3, "decided")
    assert stopped(CLEAR, frozenset({0, 2})) == (5, "decided"), "three without them are enough"
    assert stopped(CLEAR, frozenset({0, 1, 2, 4})) == (8, "decided")


def test_a_machine_that_others_keep_ends_a_block_at_its_third_look() -> None:
    assert stopped(CLEAR, frozenset(range(12))) == (8, "machine busy")
    assert stopped(CLEAR, frozenset(range(12)) - {1, 3}) == (8, "machine busy")


def test_what_no_load_changes_is_decided_beside_others() -> None:
    assert stopped(CLEAR, frozenset(range(12)), timed=False) == (3, "decided")


def test_one_comparison_has_one_verdict_whatever_stands_beside_it() -> None:
    """The summary corrected for all comparisons of a run, a table for those of its suite."""
    ring = [0.9, 0.93, 0.96, 0.88, 0.97]
    own = record(ring, [])
    crowd = [record([1.0, 1.02, 0.98, 1.01, 0.99], []) for _ in range(40)]
    alone = compare_points(points_of(own))
    beside = compare_points([p for r in (own, *crowd) for p in points_of(r)])
    assert beside[0].verdict == alone[0].verdict and beside[0].q_value == alone[0].q_value
    named = compare_points(points_of(own), metrics=["latency"])
    assert named[0].verdict == alone[0].verdict


def test_a_point_alone_has_the_verdict_that_it_has_among_all_of_its_run() -> None:
    run = factory.make_run()
    lines = []
    for n in range(30):
        size = {"size_bytes": 4096 << n}
        ring = [0.9, 0.93, 0.96, 0.88, 0.97] if n == 0 else [1.0, 1.02, 0.98, 1.01, 0.99]
        lines += factory.launches(run, "native", [1.0] * 5, params=size)
        lines += factory.launches(run, "ring", ring, params=size)
    points = points_of(factory.in_memory(run, lines))
    first = next(p for p in points if p.params["size_bytes"] == 4096)
    (alone,) = compare_points([first])
    among = next(c for c in compare_points(points) if c.point is first)
    assert alone.verdict == among.verdict and alone.q_value == among.q_value
    assert among.q_value is not None and among.effect.p_value is not None
    assert among.verdict.name == "inconclusive" and among.effect.p_value < 0.05 < among.q_value
