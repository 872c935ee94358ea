"""Trends: how often unchanged series alarm, how soon changed ones do, and what the pages and the command say."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_site import EVIL, Page, record, render

from paceline.analysis import trend
from paceline.analysis.trend import Change, History, Night, alerts, change_points
from paceline.cli import application
from paceline.records.format.record import Event
from paceline.records.store.folder import RunRecord
from paceline.records.store.record_writer import RecordWriter
from paceline.report.boards.standing import select
from paceline.report.runs import trends

NIGHTS, NOISE = 100, 0.01
HISTORIES = 250


def plain(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=NIGHTS) * NOISE


def weather(rng: np.random.Generator) -> np.ndarray:
    """AR(1) with φ = 0.5, begun in its stationary distribution."""
    drawn = rng.normal(size=NIGHTS) * NOISE
    drawn[0] /= math.sqrt(0.75)
    for i in range(1, NIGHTS):
        drawn[i] += 0.5 * drawn[i - 1]
    return drawn


def spiked(rng: np.random.Generator) -> np.ndarray:
    drawn = plain(rng)
    drawn[rng.integers(NIGHTS)] += math.log(1.1)
    return drawn


@pytest.mark.parametrize(("make", "limit"), [(plain, 0.02), (weather, 0.05), (spiked, 0.02)])
@pytest.mark.one_in(3)
def test_unchanged_series_seldom_alarm_in_a_hundred_nights(
    make: Callable[[np.random.Generator], np.ndarray], limit: float
) -> None:
    rng = np.random.default_rng(12)
    alarms = sum(bool(change_points(np.exp(make(rng)).tolist())) for _ in range(HISTORIES))
    assert alarms / HISTORIES <= limit


@pytest.mark.parametrize("size", [1.03, 1 / 1.03])
def test_a_step_of_three_percent_is_found_within_five_nights(size: float) -> None:
    rng = np.random.default_rng(7)
    waited, places = [], []
    for _ in range(100):
        levels = rng.normal(size=70) * NOISE
        levels[40:] += math.log(size)
        found = [c for c in change_points(np.exp(levels).tolist()) if c.found >= 40]
        waited.append(found[0].found - 39 if found else math.inf)
        places += [c.at for c in found[:1]]
    assert np.median(waited) <= 5
    assert np.mean(np.isfinite(waited)) >= 0.98
    assert abs(np.median(places) - 40) <= 1


def test_what_was_found_does_not_move_when_nights_are_added() -> None:
    rng = np.random.default_rng(3)
    values = np.exp(rng.normal(size=80) * NOISE + np.where(np.arange(80) >= 50, 0.1, 0.0)).tolist()
    (whole,) = change_points(values)
    (early,) = change_points(values[: whole.found + 1])
    assert (early.at, early.found, early.p_value) == (whole.at, whole.found, whole.p_value)
    assert change_points(values[: whole.found]) == []
    assert whole.after / whole.before == pytest.approx(math.exp(0.1), rel=0.02)


@pytest.mark.parametrize(("nightly", "passes"), [(0.005, 10), (0.01, 5), (0.02, 3)])
@pytest.mark.parametrize("before", [60, 120])
@pytest.mark.one_in(3)
def test_a_slow_drift_is_found_about_when_its_sum_passes_the_margin(
    nightly: float, passes: int, before: int
) -> None:
    rng = np.random.default_rng(21)
    waited = []
    for _ in range(40):
        values = np.exp(rng.normal(size=before + 30) * NOISE)
        values[before:] *= (1 + nightly) ** np.arange(1, 31)
        found = [c for c in change_points(values.tolist(), margin=0.05) if c.found >= before]
        waited.append(found[0].found - before + 1 if found else math.inf)
    assert np.median(waited) <= passes + 1


@pytest.mark.parametrize("nightly", [0.005, 0.01, 0.02])
def test_a_drift_from_the_first_night_on_is_found_again_and_again(nightly: float) -> None:
    rng = np.random.default_rng(22)
    for _ in range(20):
        values = (1 + nightly) ** np.arange(90) * np.exp(rng.normal(size=90) * NOISE)
        changes = change_points(values.tolist(), margin=0.05)
        assert changes
        assert changes[0].found <= 30
        assert changes[0].kind == "drift"
        assert all(c.after > c.before for c in changes)
        assert (len(changes) >= 2) or nightly < 0.01


@pytest.mark.parametrize("clean", [8, 9, 10, 11, 12, 16, 24])
@pytest.mark.parametrize("size", [1.5, 1 / 1.5])
def test_a_large_step_in_a_young_series_is_found(clean: int, size: float) -> None:
    rng = np.random.default_rng(23)
    waited = []
    for _ in range(20):
        values = np.exp(rng.normal(size=clean + 20) * NOISE)
        values[clean:] *= size
        change, *_ = change_points(values.tolist())
        waited.append(change.found - clean + 1)
        assert change.at == clean
        assert change.after / change.before == pytest.approx(size, rel=0.03)
    assert np.median(waited) <= 4


def test_a_change_that_is_mended_ten_nights_later_is_seen_to_be_mended() -> None:
    rng = np.random.default_rng(24)
    seen = 0
    for _ in range(40):
        values = np.exp(rng.normal(size=60) * NOISE)
        values[30:40] *= 1.2
        seen += [c.at for c in change_points(values.tolist())][:2] == [30, 40]
    assert seen >= 36


def weekly(rng: np.random.Generator) -> np.ndarray:
    return plain(rng) + np.where(np.arange(NIGHTS) % 7 >= 5, math.log(0.9), 0.0)


def bimodal(rng: np.random.Generator) -> np.ndarray:
    return plain(rng) + np.where(rng.random(NIGHTS) < 0.5, math.log(1.1), 0.0)


@pytest.mark.parametrize("make", [plain, weekly, bimodal])
@pytest.mark.one_in(3)
def test_weekends_and_two_kinds_of_hosts_are_no_drift(
    make: Callable[[np.random.Generator], np.ndarray],
) -> None:
    rng = np.random.default_rng(25)
    found = [change_points(np.exp(make(rng)).tolist(), margin=0.02) for _ in range(HISTORIES)]
    assert sum(any(c.kind == "drift" for c in changes) for changes in found) <= 0.02 * HISTORIES


def test_blind_nights_are_counted_from_the_newest_change() -> None:
    change = Change(at=55, found=58, before=1.0, after=1.1, p_value=1e-4)
    assert history("long", []).blind_nights == 0
    assert history("young", [], count=4).blind_nights == 7
    assert history("changed", [change]).blind_nights == 6


def test_counts_that_never_vary_change_when_they_change_and_only_then() -> None:
    assert change_points([4096.0] * 60) == []
    assert change_points([4096.0] * 30 + [8192.0] + [4096.0] * 29) == []
    (change,) = change_points([4096.0] * 30 + [4097.0] * 6)
    assert (change.at, change.before, change.after) == (30, 4096.0, 4097.0)
    (change,) = change_points([0.0] * 30 + [1.0] * 6, kind="difference")
    assert (change.at, change.after) == (30, 1.0)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [math.nan] * 40, [0.0] * 40, [-1.0] * 40])
def test_short_absent_and_odd_series_have_no_change(values: Sequence[float]) -> None:
    assert change_points(values) == []


def history(label: str, changes: Sequence[Change], count: int = 60, **facts: object) -> History:
    nights = [
        Night(run_id=f"r{i}", started=f"2026-01-{i:03d}", value=1.0, low=None, high=None, launches=5)
        for i in range(count)
    ]
    known = {"metric": "latency", "unit": "s", "better": "lower", "kind": "ratio", "margin": 0.02}
    return History(label=label, nights=tuple(nights), changes=tuple(changes), **{**known, **facts})  # type: ignore[arg-type]


def test_alerts_are_recent_matter_and_are_adjusted_for_all_series() -> None:
    def step(found: int = 58, after: float = 1.1, p_value: float = 1e-4) -> Change:
        return Change(at=found - 3, found=found, before=1.0, after=after, p_value=p_value)

    given = [
        history("faster", [step(after=0.8)]),
        history("slower", [step()]),
        history("old", [step(found=20)]),
        history("small", [step(after=1.01)]),
        history("doubtful", [step(p_value=0.04)]),
        *(history(f"quiet-{i}", []) for i in range(20)),
    ]
    found = alerts(given)
    assert [a.history.label for a in found] == ["slower", "faster"]
    assert found[0].q_value == pytest.approx(25 * 1e-4 / 4)
    assert alerts([]) == []


def nights(count: int, step_at: int | None, **changes: object) -> list[RunRecord]:
    """Return a run for each night; ring's latency is 1.5 times itself from a night on."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        made = record(
            number,
            launches=2,
            sizes=(4096,),
            started=f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T01:00:00.000Z",
            **changes,
        )
        factor = math.exp(rng.normal() * NOISE)
        lines = []
        for m in made.measurements:
            if m.metric.name == "latency" and m.value is not None:
                own = factor * (
                    1.5 if step_at is not None and number >= step_at and m.label == "ring" else 1.0
                )
                changed = {"samples": [s * own for s in m.samples], "value": m.value * own}
                lines.append(m.model_copy(update=changed))
            else:
                lines.append(m)
        found.append(dataclasses.replace(made, measurements=tuple(lines)))
    return found


def test_pages_show_a_change_where_it_began_with_all_nights() -> None:
    files = render(*nights(40, 34))
    (name,) = [n for n in files if n.startswith("trends/")]
    page = Page(files[name])
    rows = [r for r in page.rows if r[:2] == ["ring", "latency"]]
    assert len(rows) == 40
    assert [r[2][:10] for r in rows if r[5].startswith("slower +")] == ["2026-02-07"]
    assert files[name].count("<svg") == 6  # three techniques, two metrics
    overview = Page(files["trends.html"])
    alerted = [r for r in overview.rows if r[2:4] == ["ring", "latency"]]
    assert len(alerted) == 2  # an alert, and a change
    assert all(r[5] == "slower" and r[6].startswith(("+4", "+5")) for r in alerted)
    assert name in overview.links


def test_unchanged_nights_and_single_runs_have_no_alert() -> None:
    assert "No series changed." in render(*nights(20, None))["trends.html"]
    files = render(record(1))
    assert [n for n in files if n.startswith("trends/")] == []
    assert "No point was measured in two runs yet." in files["trends.html"]


def test_checks_of_other_runs_are_no_nights() -> None:
    checks = [
        r
        for reason in sorted(trend.OFF_TREND_REASONS - {"calibrate", "correction"})
        for r in nights(2, None, reason=reason)
    ]
    boards = select(checks).boards
    assert [t for b in boards for t in trends.trends_of(b)] == []


def test_a_note_is_drawn_and_told_without_harm() -> None:
    runs = nights(3, None)
    told = Event(kind="annotate", at="2026-02-01T00:00:00Z", data={"run_id": runs[1].run_id, "text": EVIL})
    runs[0] = dataclasses.replace(runs[0], events=(told,))
    files = render(*runs)
    (text,) = [t for n, t in files.items() if n.startswith("trends/")]
    assert "✎" in text
    assert EVIL not in text
    assert "&lt;script&gt;" in text


def test_another_driver_goes_on_with_the_history_and_is_told(tmp_path: Path) -> None:
    runs = nights(40, 34)
    for number, made in enumerate(runs):
        device = {"kind": "cuda", "driver": "570.86.1" if number < 34 else "580.95"}
        runs[number] = dataclasses.replace(made, run=made.run.model_copy(update={"device": device}))
        writer = RecordWriter(tmp_path, runs[number].run)
        writer.write(*made.measurements)
        writer.seal()
    (text,) = [t for n, t in render(*runs).items() if n.startswith("trends/")]
    said = [r[5] for r in Page(text).rows if r[:2] == ["ring", "latency"] and "driver" in r[5]]
    assert len(said) == 1
    assert said[0].startswith("slower +") and said[0].endswith("; driver 570.86.1 → 580.95")
    assert "✎" in text
    options = ["trend", "collectives/all-reduce", "--results", str(tmp_path)]
    shown = CliRunner().invoke(application, options, catch_exceptions=False).output
    assert shown.count("driver 570.86.1 → 580.95") == 1, "once for all series of a night"
    found = json.loads(CliRunner().invoke(application, [*options, "--json"]).output)
    assert len(found["drivers"]) == 1


def test_the_command_says_the_same(tmp_path: Path) -> None:
    for made in nights(40, 34):
        writer = RecordWriter(tmp_path, made.run)
        writer.write(*made.measurements)
        writer.seal()
    options = ["trend", "collectives/all-reduce", "--technique", "ring", "--results", str(tmp_path)]
    shown = CliRunner().invoke(application, options, catch_exceptions=False)
    assert "1 change, 1 alert" in shown.output
    assert "series no change can be found yet" in shown.output
    found = json.loads(CliRunner().invoke(application, [*options, "--json"]).output)
    (latency,) = [s for s in found["series"] if s["metric"] == "latency"]
    assert latency["changes"][0]["since"].startswith("2026-02-07")
    assert len(latency["nights"]) == 40
    assert CliRunner().invoke(application, ["trend", "nothing", "--results", str(tmp_path)]).exception
