"""Nightly files, what is due, what alarms, and where the site goes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import record_factory as factory
from hypothesis import given
from hypothesis import strategies as st

from paceline.analysis.gate import Waiver
from paceline.base.errors import InfrastructureError, UserError
from paceline.cli.measuring.nightly import agenda, agenda_facts
from paceline.records.store.folder import Loaded, RunRecord
from paceline.spec.plans.plan import Plan
from paceline.workflows.nightly import report as reports
from paceline.workflows.nightly.alarms import (
    confirmed,
    leaves_spread,
    nights_before,
    points_to_repeat,
    suspects,
)
from paceline.workflows.nightly.config import load_nightly
from paceline.workflows.nightly.night import Night
from paceline.workflows.nightly.outcomes import NightReport, UnitReport, summary
from paceline.workflows.nightly.publish import to_branch, to_folder
from paceline.workflows.nightly.schedule import Due, age_s, order
from paceline.workflows.nightly.tally import Tally, tally

GOOD = """
nightly: n
measure:
  - {suites: [collectives/all-reduce], runners: [local-cpu], tier: quick}
"""
MISTAKES = {
    "measures: []": "n.yaml:3:measures",
    "budget: soon": "n.yaml:3:budget",
    "wait: 5 parsecs": "n.yaml:3:wait",
    "measure: []": "n.yaml:3:measure",
    "measure:\n - {suites: [collectives/all-reduse], runners: [local-cpu]}": "measure.0.suites.0",
    "measure:\n - {suites: [kernels], runners: [local-cup]}": "measure.0.runners.0",
    "measure:\n - {suites: [kernels], runners: [fake]}\n - {suites: [kernels], runners: [fake]}": "measure.1",
    "publish: {}": "n.yaml:3:publish",
    "publish: {folder: a, git: {repository: b}}": "n.yaml:3:publish",
    "alarm: {margin: -1}": "alarm.margin",
    "idle: maybe": "n.yaml:3:idle",
    "retries: 99": "n.yaml:3:retries",
}


@pytest.mark.parametrize(("text", "where"), MISTAKES.items())
def test_every_mistake_is_named_with_its_place(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "n.yaml"
    rest = "" if text.startswith("measure:") else "\nmeasure: [{suites: [kernels], runners: [fake]}]"
    path.write_text(f"nightly: n\ndescription: x\n{text}{rest}\n")
    with pytest.raises(UserError) as found:
        load_nightly(path)
    assert where in str(found.value)


def test_suites_times_runners_are_units_and_omitted_tiers_are_none(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(GOOD)
    found = load_nightly(path)
    assert [u.name for u in found.units] == ["collectives/all-reduce on local-cpu (quick)"]
    assert (found.budget_s, found.wait_s) == (8 * 3600, 1800)
    assert found.beside("x") == tmp_path / "x"


def test_suites_that_leave_the_tier_out_are_kept_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(GOOD.replace("collectives/all-reduce", "collectives/reduce, collectives/all-reduce"))
    nightly = load_nightly(path)
    nightly = replace(nightly, units=())
    night = Night(nightly=nightly, store=tmp_path, load=Loaded, say=lambda text: None, state=tmp_path)
    report = night.run()
    (unit,) = report.units
    assert (unit.outcome, unit.why) == (
        "skipped",
        "the suite leaves the tier quick out: "
        "the quick tier keeps to all-reduce; the standard tier has every operation",
    )
    assert f"- {unit.name}: the suite leaves the tier quick out: the quick tier keeps" in reports.markdown(
        report
    )
    assert "keeps to all-reduce" in reports.page(report)
    assert "keeps to all-reduce" in reports.junit(report)
    assert "keeps to all-reduce" in agenda(agenda_facts(night))


def due(name: str, *, age: float, priority: float = 1.0, likely: float = 1.0) -> Due:
    return Due(place=(name, "r", "quick"), priority=priority, age_s=age, likely_s=likely)


def test_the_oldest_and_most_important_come_first_and_what_is_new_before_all() -> None:
    units = [
        due("young", age=86400),
        due("old", age=3 * 86400),
        due("important", age=2 * 86400, priority=2),
        due("new and long", age=float("inf"), likely=9),
        due("new and short", age=float("inf")),
        due("new and important", age=float("inf"), priority=5, likely=99),
    ]
    names = [u.place[0] for u in order(units)]
    assert names == ["new and important", "new and short", "new and long", "important", "old", "young"]


@given(st.permutations(range(5)))
def test_the_order_does_not_depend_on_the_file(positions: Sequence[int]) -> None:
    units = [due(str(i), age=86400.0 * (i % 3)) for i in range(5)]
    assert order([units[i] for i in positions]) == order(units)


def test_an_age_is_infinite_where_there_was_no_night() -> None:
    assert age_s("2026-11-20T00:00:00.000Z", "2026-11-21T00:00:00.000Z") == 86400
    assert age_s(None, "2026-11-21T00:00:00.000Z") == float("inf")


STEADY = [1.00, 1.01, 0.99, 1.02, 1.00]


def night(ring: float = 1.0, native: float = 1.0, failed: str = "", **changes: Any) -> RunRecord:
    run = factory.make_run(reason="nightly", **changes)
    run = run.model_copy(update={"suites": [run.suites[0] | {"metrics": {"latency": 0.05}}]})
    lines = factory.launches(run, "native", [native * v for v in STEADY])
    if failed:
        lines += [factory.measurement(run, "ring", 0, [], status=failed, reason="why")]
    else:
        lines += factory.launches(run, "ring", [ring * v for v in STEADY])
    return factory.in_memory(run, lines)


def labels(record: RunRecord, base: RunRecord, **options: Any) -> list[str]:
    return [s.series[2] for s in suspects(record, base, **options)[0]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"ring": 1.1}, ["ring"]),
        ({"ring": 0.8}, []),
        ({"ring": 1.04}, []),
        ({"ring": 1.1, "native": 1.1}, ["native", "ring"]),
        ({"failed": "crashed"}, ["ring"]),
        ({"failed": "incorrect"}, ["ring"]),
        ({"failed": "infrastructure"}, []),
    ],
)
def test_only_what_got_worse_beyond_the_margin_is_suspect(
    changes: dict[str, Any], expected: list[str]
) -> None:
    assert labels(night(**changes), night()) == expected


def counted(record: RunRecord, base: RunRecord | None, skipped: int = 0) -> Tally:
    plan = Plan(data={"skipped": [{"reason": "x"}] * skipped})
    return tally(record, plan, [(record, base, suspects(record, base)[1])] if base else [])


def test_every_comparison_is_counted_once_and_what_is_open_beside_what_was_decided() -> None:
    assert counted(night(), night(), skipped=3) == Tally(equivalent=2, skipped=3)
    assert counted(night(ring=1.1), night()) == Tally(slower=1, equivalent=1)
    assert counted(night(ring=0.8), night()) == Tally(faster=1, equivalent=1)
    assert counted(night(), None) == Tally(incomparable=2), "a first night has nothing to compare with"
    assert counted(night(failed="incorrect"), night()) == Tally(equivalent=1, invalid=1)
    assert counted(night(failed="crashed"), night()) == Tally(equivalent=1, failed=1)
    assert counted(night(failed="unsupported"), night()) == Tally(equivalent=1, skipped=1)
    assert counted(night(), night(failed="crashed")) == Tally(equivalent=1, incomparable=1)
    scattered = factory.make_run(reason="nightly")
    scattered = scattered.model_copy(
        update={"suites": [scattered.suites[0] | {"metrics": {"latency": 0.05}}]}
    )
    lines = factory.launches(scattered, "native", [0.5, 1.5, 1.0, 2.0, 0.7])
    assert counted(factory.in_memory(scattered, lines), night()) == Tally(inconclusive=1)


def test_a_night_says_how_much_it_decided_and_what_it_did_not_measure() -> None:
    open_ = UnitReport(
        name="a", outcome="measured", run_id="1", tally=Tally(inconclusive=7, incomparable=2, skipped=4)
    )
    fine = UnitReport(
        name="b", outcome="measured", run_id="2", tally=Tally(faster=1, equivalent=5, invalid=3)
    )
    short = UnitReport(
        name="c", outcome="skipped", why="the rest of the budget is too short; it is older tomorrow"
    )
    report = NightReport(nightly="n", started="2026-11-21T07:00:00.000Z", units=[open_, fine, short])
    text = reports.markdown(report)
    told = "Of 15 comparisons 6 decided (1 faster, 0 slower, 5 equivalent), 7 inconclusive, 2 incomparable, 3"
    assert told in text
    assert "Not measured, 1 of 3:\n\n- c: the rest of the budget" in text
    row = next(line for line in text.splitlines() if line.startswith("| a "))
    assert [cell.strip() for cell in row.split("|")[2:10]] == ["0", "0", "0", "7", "2", "0", "0", "4"]
    assert "run 1; nothing was decided" in row, "and not that nothing got worse"
    assert "7 inconclusive" in summary(open_), "the terminal says it too"
    page = reports.page(report)
    assert told in page and "the rest of the budget" in page
    cases = {c.get("name"): c for c in ElementTree.fromstring(reports.junit(report)).iter("testcase")}
    assert {p.get("name"): p.get("value") for p in cases["a"].iter("property")}["inconclusive"] == "7"
    assert "7 inconclusive" in str(cases["a"].findtext("system-out"))
    assert report.facts()["tally"]["inconclusive"] == 7


def test_a_point_whose_baseline_moved_too_says_so() -> None:
    found, _ = suspects(night(ring=1.1, native=1.1), night())
    assert {s.series[2]: s.point_moved for s in found} == {"native": False, "ring": True}


def test_a_wider_margin_and_a_waiver_silence() -> None:
    waiver = Waiver(
        suite="collectives/example",
        technique="ring",
        metric=None,
        claim=None,
        reason="known",
        until="2099-01-01",
    )
    assert labels(night(ring=1.1), night(), margin=0.2) == []
    assert labels(night(ring=1.1), night(), waivers=[waiver]) == []
    assert labels(night(failed="crashed"), night(), waivers=[waiver]) == []
    assert labels(night(failed="incorrect"), night(), waivers=[waiver]) == ["ring"], (
        "nothing waives a wrong result"
    )


def test_nights_that_scatter_as_widely_explain_a_slow_one() -> None:
    scattered = [night(ring=v) for v in (0.9, 1.1, 1.0, 1.12, 0.88, 1.05)]
    steady = [night(ring=v) for v in (1.0, 1.01, 0.99, 1.0, 1.005, 1.0)]
    assert labels(night(ring=1.1), night(), earlier=scattered) == []
    assert labels(night(ring=1.1), night(), earlier=steady) == ["ring"]
    assert labels(night(ring=1.1), night(), earlier=scattered[:4]) == ["ring"], "four nights say nothing"


@given(st.floats(0.5, 2.0), st.lists(st.floats(0.9, 1.1), min_size=5, max_size=12))
def test_a_night_leaves_the_spread_in_one_direction_only(value: float, earlier: list[float]) -> None:
    slow = leaves_spread(value, earlier, better="lower", kind="ratio")
    fast = leaves_spread(value, earlier, better="higher", kind="ratio")
    assert not (slow and fast)


def test_only_what_both_runs_found_is_confirmed() -> None:
    first, _ = suspects(night(ring=1.1, native=1.2), night())
    second, _ = suspects(night(ring=1.1), night())
    alarms, open_ = confirmed(first, second)
    assert [s.series[2] for s in alarms] == ["ring"]
    assert [s.series[2] for s in open_] == ["native"]
    repeated = points_to_repeat(night(ring=1.1), alarms)
    assert {m.label for m in repeated} == {"ring", "native"}, "with all that shared its launches"


def test_earlier_nights_are_those_of_the_same_place() -> None:
    before = [
        night(),
        night(runner={"name": "other"}),
        night(tier="full"),
        night(host_class="other"),
    ]
    manual = replace(night(), run=factory.make_run())
    tonight = night()
    found = nights_before(Loaded(records=[*before, manual, tonight]), tonight)
    assert [r.run_id for r in found] == [before[0].run_id]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "runs").mkdir(parents=True)
    (folder / "index.html").write_text("new")
    (folder / "runs" / "a.html").write_text("a")
    return folder


def test_a_folder_is_replaced_as_a_whole_if_it_is_a_site(site: Path, tmp_path: Path) -> None:
    target = tmp_path / "public"
    to_folder(site, target)
    (target / "stale.html").write_text("old")
    to_folder(site, target)
    assert sorted(p.name for p in target.rglob("*.html")) == ["a.html", "index.html"]
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="something else than a site"):
        to_folder(site, home)
    assert (home / "thesis.tex").exists()


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_branch_holds_the_site_as_its_only_commit_and_the_checkout_is_untouched(
    site: Path, tmp_path: Path
) -> None:
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    subprocess.run(["git", "init", "-q", "--bare", str(origin)], check=True)
    subprocess.run(["git", "clone", "-q", str(origin), str(clone)], check=True, capture_output=True)
    git(clone, "checkout", "-q", "-b", "main")
    (clone / "kept.txt").write_text("kept")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "first")
    (clone / ".gitignore").write_text("*.html")
    for _ in range(2):
        to_branch(site, clone, "pages", message="site", push=True)
    assert git(clone, "rev-list", "--count", "pages") == "1"
    assert git(origin, "ls-tree", "-r", "--name-only", "pages").splitlines() == ["index.html", "runs/a.html"]
    assert git(clone, "status", "--porcelain") == "?? .gitignore"
    with pytest.raises(UserError, match="checked out"):
        to_branch(site, clone, "main", message="site", push=False)
    with pytest.raises(InfrastructureError, match="check-ref-format"):
        to_branch(site, clone, "a..b", message="site", push=False)
    with pytest.raises(UserError, match="no such repository"):
        to_branch(site, tmp_path / "nowhere", "pages", message="site", push=False)
