"""Published runs are of other machines: they are read where they are asked for, named as such, behind one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner
from test_site import Page, record, render

import paceline
from paceline.analysis.points import points_of
from paceline.base.errors import UserError
from paceline.cli import application
from paceline.records.store.folder import load
from paceline.report.summaries.decided import summarise, summary_lines
from paceline.workflows import stores

OTHER_HOST = "Other CPU, 64 cores, 256 GiB"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return one's own store, still empty, and the published one with a run of another machine."""
    own, published = tmp_path / "own", tmp_path / "published"
    own.mkdir()
    write(published, host_class=OTHER_HOST, ring=4.0)
    monkeypatch.setenv(stores.RESULTS_VARIABLE, str(own))
    monkeypatch.setattr(stores, "published_results", lambda: published)
    return own, published


def write(root: Path, *, ring: float = 2.0, **changes: Any) -> str:
    run = factory.make_run(**changes)
    lines = factory.launches(run, "native", [1.0, 1.01, 0.99, 1.0, 1.0])
    lines += factory.launches(run, "ring", [ring * v for v in (1.0, 1.01, 0.99, 1.0, 1.0)])
    factory.write(root, run, lines)
    return run.run_id


def call(*arguments: object) -> str:
    result = CliRunner().invoke(application, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_summary_is_of_ones_own_runs_unless_more_is_asked_for(places: tuple[Path, Path]) -> None:
    own, published = places
    assert "No run here compares anything yet" in call("summary")
    write(own)
    assert json.loads(call("summary", "--json"))["num_comparisons"] == 1
    assert "published" not in call("summary")
    both = json.loads(call("summary", "--published", "--all-hosts", "--json"))
    assert (both["num_comparisons"], both["num_published"]) == (2, 1)
    assert json.loads(call("summary", "--results", published, "--json"))["num_comparisons"] == 1


def test_published_effects_are_named_and_come_last_although_they_are_larger(
    places: tuple[Path, Path],
) -> None:
    own, published = places
    write(own)
    theirs, mine = (points_of(load([root]).records[0]) for root in (published, own))
    for point in mine:
        point.suite = "collectives/mine"
    for facts in mine[0].run.suites:
        facts["suite"] = "collectives/mine"
    found = summarise([*theirs, *mine], published=frozenset({theirs[0].run.run_id}))
    assert [found.of_others(c) for c in found.decided] == [False, True]
    lines = summary_lines(found)
    assert "  1 of them are of published runs, of other machines; they come last" in lines
    effects = lines[lines.index("The largest effects:") + 1 :][:2]
    assert "published" not in effects[0] and "; published): slower" in effects[1]


def test_the_newest_run_is_ones_own_and_a_published_one_has_an_id(places: tuple[Path, Path]) -> None:
    own, published = places
    for ask in (["compare"], ["show", "latest"], ["export", "csv"]):
        refused = CliRunner().invoke(application, ask)
        assert isinstance(refused.exception, UserError), ask
        assert "has no run 'latest': nothing is recorded in it yet" in str(refused.exception)
    with pytest.raises(UserError, match="nothing is recorded"):
        paceline.compare()
    theirs = load([published]).records[0].run_id
    assert "native" in call("compare", theirs)
    mine = write(own)
    assert mine in call("show", "latest")
    assert theirs in call("show", theirs)


@pytest.mark.full  # two whole sites; their order is in the next test
def test_a_site_shows_ones_own_boards_and_published_ones_behind_them_marked_where_asked(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    own, _ = places
    write(own)
    made = json.loads(call("site", "build", "--output", tmp_path / "own-site", "--json"))
    assert made["runs"] == 1
    both = json.loads(call("site", "build", "--output", tmp_path / "site", "--published", "--json"))
    assert both["runs"] == 2
    pages = [(tmp_path / name / "boards.html").read_text(encoding="utf-8") for name in ("own-site", "site")]
    assert OTHER_HOST not in pages[0]
    assert f"{OTHER_HOST}, published" in pages[1]


def test_boards_of_published_runs_stand_behind_ones_own_in_every_order() -> None:
    mine = record(1, host_class="Z CPU, 2 cores, 8 GiB")
    theirs = record(2, host_class="A CPU, 64 cores, 256 GiB")
    for published, last in ((frozenset({theirs.run_id}), "A CPU"), (frozenset({mine.run_id}), "Z CPU")):
        files = render(mine, theirs, published=published)
        places = [cell for row in Page(files["boards.html"]).rows for cell in row if " CPU, " in cell][:2]
        marked = [cell for cell in places if cell.endswith(", published")]
        assert len(marked) == 1 and last in marked[0]
        assert places[1] == marked[0]
    assert "published" not in str(Page(render(mine, theirs)["boards.html"]).rows)
