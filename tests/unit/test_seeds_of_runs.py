"""``paceline run --seed``: runs with one seed draw the same and say so; without one every run draws anew."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import record_factory as factory
from click.testing import CliRunner

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.cli import application
from paceline.records.store.folder import RunRecord, read_record, record_paths
from paceline.report.tables.results import FLAGS, suite_tables
from paceline.worker.ranks.session import Session

SUITE = ("calibration/same-work", "--tier", "quick", "--filter", "trial=0", "--launches", "2")


def measured(folder: Path, *options: str) -> RunRecord:
    command = ["run", *SUITE, "--runner", "fake", "--results", str(folder), "--quiet", *options]
    ended = CliRunner().invoke(application, command)
    assert ended.exit_code == 0, ended.output
    (path,) = record_paths(folder)
    return read_record(path)


def samples(record: RunRecord) -> list[tuple[str, int, tuple[float, ...]]]:
    """Return what the device's noise gave, which is drawn, and in which order techniques were asked."""
    return [(m.label, m.launch, tuple(m.samples)) for m in record.measurements if m.metric.name == "latency"]


def test_two_runs_with_one_seed_draw_the_same_and_another_seed_draws_otherwise(tmp_path: Path) -> None:
    first, again, other = (
        measured(tmp_path / name, "--seed", seed) for name, seed in (("a", "7"), ("b", "7"), ("c", "8"))
    )
    assert samples(first) == samples(again) != samples(other)
    assert first.run.seeds == again.run.seeds == {"seed": 7, "fixed": True}
    assert first.run.fixed_seed == 7


def test_without_a_seed_every_run_draws_anew(tmp_path: Path) -> None:
    first, again = (measured(tmp_path / name) for name in ("a", "b"))
    assert samples(first) != samples(again)
    assert first.run.seeds == again.run.seeds, (
        "the plan's seed is the same, and is not all that draws come from"
    )
    assert first.run.fixed_seed is None


@pytest.mark.parametrize(("fixed", "num_different"), [(False, 8), (True, 1)])
def test_ranks_agree_on_what_the_system_draws_unless_the_seed_is_fixed(
    fixed: bool, num_different: int
) -> None:
    control = SimpleNamespace(agree=lambda number: number)
    rank = SimpleNamespace(seed=7, launch=0, fixed_seed=fixed, control=control)
    assert len({Session.draw_seed(rank, "inputs") for _ in range(8)}) == num_different


@pytest.mark.parametrize(
    ("seeds", "grade"), [({"seed": 7, "fixed": True}, "C"), ({"seed": 7, "fixed": False}, "B")]
)
def test_numbers_whose_draws_were_known_are_of_grade_c_and_say_so(
    seeds: dict[str, object], grade: str
) -> None:
    run = factory.make_run(seeds=seeds)
    values = {"native": [1.0, 1.1, 1.2, 1.3, 1.4], "ring": [2.0, 2.1, 2.2, 2.3, 2.4]}
    lines = [m for label, own in values.items() for m in factory.launches(run, label, own)]
    points = points_of(factory.in_memory(run, lines))
    assert {c.grade for c in compare_points(points)} == {grade}
    shown = "".join(table.render("markdown") for table in suite_tables(points, compare_points(points)))
    assert (FLAGS["fixed-seed"] in shown) == (grade == "C")
