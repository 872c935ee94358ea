"""Runs of old commits that are measured late are no nights: ancestry, alarms that they would raise, what is told."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import record_factory as factory
from click.testing import CliRunner
from test_site import Page, record, render

from paceline.analysis.lateness import late_runs
from paceline.analysis.points import points_of
from paceline.analysis.trend import History, alerts, histories
from paceline.cli import application
from paceline.records.format.record import Run
from paceline.records.origin.ancestry import IsAncestor, ancestry_of, unknown
from paceline.records.store.folder import Loaded, RunRecord
from paceline.records.store.record_writer import RecordWriter
from paceline.spec import content
from paceline.spec.plans.plan import Plan
from paceline.workflows.nightly.alarms import nights_before
from paceline.workflows.nightly.config import load_nightly
from paceline.workflows.nightly.night import Night
from paceline.workflows.nightly.outcomes import UnitReport

PARENTS = {"b": "a", "c": "b", "d": "c", "side": "b", "revert": "d"}
"""a ← b ← c ← d ← revert, and side, which left at b."""


def in_that_tree(commit: str, other: str) -> bool:
    while other in PARENTS:
        other = PARENTS[other]
        if other == commit:
            return True
    return False


def runs(*commits: str, reason: str = "manual", dirty: bool = False, first: int = 1) -> list[Run]:
    return [
        factory.make_run(
            run_id=f"r{number:02d}",
            started=f"2026-11-{number:02d}T01:00:00.000Z",
            reason=reason,
            code={"commit": commit, "dirty": dirty},
        )
        for number, commit in enumerate(commits, start=first)
    ]


@pytest.mark.parametrize(
    ("commits", "late"),
    [
        ("a b c d", []),
        ("a a b b", []),
        ("b c b d", ["r03"]),
        ("a d a b c d", ["r03", "r04", "r05"]),
        ("b side c side c", []),
        ("b side c a", ["r04"]),
        ("c d revert c revert", ["r04"]),
        ("d strange c", ["r03"]),
        ("strange d strange", []),
    ],
    ids=[
        "in order",
        "measured again",
        "one old one",
        "walking up to the newest",
        "branches that diverged",
        "older than both branches",
        "a revert is a new commit",
        "unknown ones between",
        "unknown ones by time",
    ],
)
def test_only_an_ancestor_of_what_an_earlier_night_measured_is_late(commits: str, late: list[str]) -> None:
    given = runs(*commits.split())
    assert list(late_runs(reversed(given), in_that_tree)) == late
    assert late_runs(given, unknown) == {}, "without a repository by time alone"


def test_uncommitted_changes_count_as_their_commit_and_are_told() -> None:
    assert late_runs([*runs("c", dirty=True), *runs("c", first=2)], in_that_tree) == {}
    found = late_runs([*runs("d"), *runs("c", dirty=True, first=2)], in_that_tree)
    assert found["r02"].text == (
        "2026-11-02, run r02: its commit c with uncommitted changes is an ancestor of d, "
        "which was measured before, on 2026-11-01"
    )


def test_somebodys_run_of_a_branch_puts_no_night_of_the_schedule_back() -> None:
    given = [*runs("b", reason="nightly"), *runs("d", first=2), *runs("b", "c", reason="nightly", first=3)]
    assert late_runs(given, in_that_tree) == {}
    back = [*runs("c", reason="nightly"), *runs("b", reason="nightly", first=2)]
    assert list(late_runs(back, in_that_tree)) == ["r02"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, *parents: str) -> str:
    tree = git(folder, "hash-object", "-t", "tree", "-w", "/dev/null")
    given = [word for parent in parents for word in ("-p", parent)]
    made = git(folder, "commit-tree", tree, *given, "-m", f"after {parents}")
    git(folder, "update-ref", f"refs/heads/at-{made}", made)
    return made


def known_to(folder: Path, commits: Sequence[str]) -> IsAncestor:
    return ancestry_of(runs(*commits), folder)


def test_a_repository_is_asked_once_and_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "repository")
    repository = tmp_path / "repository"
    first = commit(repository)
    second = commit(repository, first)
    left, right = commit(repository, second), commit(repository, second, first)
    merged = commit(repository, left, right)
    absent = "f" * 40
    named = [merged, first, absent, left, right, "--all", "c0ffee", "None"]
    asked = []
    real = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda command, **how: asked.append(command) or real(command, **how)
    )
    older = known_to(repository, named)
    pairs = [(a, b) for a in named for b in named if older(a, b)]
    assert sorted(pairs) == sorted(
        [(first, left), (first, right), (first, merged), (left, merged), (right, merged)]
    )
    assert not older(second, merged), "nobody asked about that one"
    assert len(asked) == 1
    monkeypatch.undo()

    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", f"at-{merged}", repository.as_uri(), "shallow")
    shallow = known_to(tmp_path / "shallow", named)
    assert not any(shallow(a, b) for a in named for b in named), "its history ends there"
    nowhere = known_to(tmp_path, named)
    assert not any(nowhere(a, b) for a in named for b in named)
    monkeypatch.setenv("PATH", str(tmp_path))
    without_git = known_to(repository, named)
    assert not any(without_git(a, b) for a in named for b in named)


def nights(commits: Sequence[str], values: Callable[[str], float], **facts: str) -> list[RunRecord]:
    """Return a run a day; a commit's latency is its own, and scatters by a thousandth."""
    found = []
    for number, name in enumerate(commits):
        day = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T01:00:00.000Z"
        made = record(
            number, launches=2, sizes=(4096,), started=day, code={"commit": name, "dirty": False}, **facts
        )
        scale = values(name) * (1 + 1e-3 * (number * 7 % 5))
        lines = tuple(
            m.model_copy(update={"samples": [s * scale for s in m.samples], "value": m.value * scale})
            if m.metric.name == "latency" and m.value is not None
            else m
            for m in made.measurements
        )
        found.append(replace(made, measurements=lines))
    return found


def searched(more: int = 0) -> list[RunRecord]:
    """Return twelve nights of b, twelve of c, which is faster, three of b again, and so many of c."""
    commits = ["b"] * 12 + ["c"] * 12 + ["b"] * 3 + ["c"] * more
    return nights(commits, lambda name: 1.3 if name == "b" else 1.0)


def latency(given: Sequence[RunRecord], older: IsAncestor) -> list[History]:
    points = [p for r in given for p in points_of(r)]
    return [h for h in histories(points, ["latency"], older) if h.label == "ring"]


@pytest.mark.parametrize("more", [0, 4])
def test_an_old_commit_that_is_measured_again_raises_no_alert(more: int) -> None:
    given = searched(more)
    (by_time,) = latency(given, unknown)
    assert [by_time.worse(c) for c in by_time.changes] == [False, True], "what an order by time finds"
    assert len(alerts([by_time])) == (1 if more == 0 else 0)
    (found,) = latency(given, in_that_tree)
    assert [(c.at, found.worse(c)) for c in found.changes] == [(12, False)]
    assert [a.history.worse(a.change) for a in alerts([found])] == [False]
    assert [late.run_id for late in found.late] == [r.run_id for r in given[24:27]]
    assert len(found.nights) == len(given) - 3


def test_a_real_regression_after_the_search_is_found_all_the_same() -> None:
    commits = ["b"] * 12 + ["b"] * 12 + ["a"] * 3 + ["c"] * 6
    given = nights(commits, lambda name: 1.3 if name == "c" else 1.0)
    (found,) = latency(given, in_that_tree)
    assert [(a.change.at, found.worse(a.change)) for a in alerts([found])] == [(24, True)]


def test_pages_name_each_run_that_is_left_out_once_and_its_row_says_why() -> None:
    given = nights("cccbbb", lambda name: 1.0)
    files = render(*given, is_ancestor=in_that_tree)
    text = files["trends.html"]
    for old in given[3:]:
        assert text.count(f"run {old.run_id}: its commit b is an ancestor of c, which was measured") == 1
    (name,) = [n for n in files if n.startswith("trends/")]
    rows = [r for r in Page(files[name]).rows if r[:2] == ["ring", "latency"]]
    assert len(rows) == 6
    assert [r[5].startswith("left out: its commit b is an ancestor of c") for r in rows[:3]] == [True] * 3
    assert not any("left out" in r[5] for r in rows[3:])


def test_a_series_of_one_night_and_an_old_commit_is_shown() -> None:
    given = nights("cb", lambda name: 1.0)
    files = render(*given, is_ancestor=in_that_tree)
    (name,) = [n for n in files if n.startswith("trends/")]
    assert "left out: its commit b" in files[name]
    by_time = render(*given)
    assert not any("eft out" in page for n, page in by_time.items() if n.startswith("trend")), (
        "nothing is known"
    )


def test_the_command_asks_the_repository_of_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "repository")
    repository = tmp_path / "repository"
    (repository / "pyproject.toml").touch()
    old = commit(repository)
    names = {"b": old, "c": commit(repository, old)}
    store = tmp_path / "store"
    for made in searched():
        run = made.run.model_copy(update={"code": {"commit": names[made.run.code["commit"]], "dirty": False}})
        writer = RecordWriter(store, run)
        writer.write(*made.measurements)
        writer.seal()
    options = ["trend", "--technique", "ring", "--metric", "latency", "--results", str(store)]

    def asked() -> str:
        return CliRunner().invoke(application, options, catch_exceptions=False).output

    monkeypatch.setattr(content, "checkout_root", lambda: None)
    assert "slower" in asked()
    assert "left out" not in asked()
    monkeypatch.setattr(content, "checkout_root", lambda: repository)
    said = asked()
    assert "slower" not in said
    assert said.count(f"its commit {old[:10]} is an ancestor of {names['c'][:10]}") == 3
    found = json.loads(CliRunner().invoke(application, [*options, "--json"]).output)
    assert len(found["left_out"]) == len(found["series"][0]["late"]) == 3


def night_of(name: str, day: int, scale: float) -> RunRecord:
    run = factory.make_run(
        reason="nightly", started=f"2026-11-{day:02d}T01:00:00.000Z", code={"commit": name, "dirty": False}
    )
    lines = [
        line
        for label, value in (("native", 1.0), ("ring", scale))
        for line in factory.launches(run, label, [value * (1 + 1e-3 * i) for i in range(5)])
    ]
    return factory.in_memory(run, lines)


def judged(tonight: RunRecord, before: Sequence[RunRecord], folder: Path) -> UnitReport:
    path = folder / "n.yaml"
    path.write_text(
        "nightly: n\nalarm: {confirm: false}\n"
        "measure:\n  - {suites: [collectives/all-reduce], runners: [local-cpu], tier: quick}\n"
    )
    plan = load_nightly(path)
    night = Night(
        nightly=plan,
        store=folder,
        load=lambda: Loaded(records=[*before, tonight]),
        say=lambda text: None,
        ancestry=lambda runs: in_that_tree,
    )
    report = UnitReport(name="u", outcome="measured", run_id=tonight.run_id)
    night._judge(plan.units[0], Plan(data={"skipped": []}), tonight, report, None)  # type: ignore[arg-type]
    return report


def test_a_night_of_an_old_commit_alarms_nothing_and_is_no_reference(tmp_path: Path) -> None:
    before = [night_of("b", 1, 1.3), night_of("c", 2, 1.0)]
    old = night_of("b", 3, 1.3)
    report = judged(old, before, tmp_path)
    assert report.alarms == []
    assert report.why == (
        "not compared: its commit b is an ancestor of c, which was measured before, on 2026-11-02"
    )
    slower = night_of("d", 4, 1.2)
    assert [r.run_id for r in nights_before(Loaded(records=[*before, old]), slower, in_that_tree)] == [
        before[1].run_id,
        before[0].run_id,
    ]
    found = judged(slower, [*before, old], tmp_path)
    assert found.reference == before[1].run_id, "and not the old commit's run, beside which it would be fast"
    assert [a.series[2] for a in found.alarms] == ["ring"]
