"""The Python API: what it returns is what the command line prints, and mistakes are exceptions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import record_factory as factory
from click.testing import CliRunner

import paceline
from paceline.base.errors import IncorrectError, InfrastructureError, UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.spec.content import shipped_root
from paceline.workflows import api
from paceline.workflows.dataframes import CLAIM_COLUMNS, COMPARISON_COLUMNS

DOCS = shipped_root() / "docs"
NOTEBOOK = DOCS / "examples" / "notebook.py"
HEAVY = (
    "torch",
    "numpy",
    "pandas",
    "scipy",
    "pyarrow",
    "pydantic",
    "yaml",
    "rich",
    "jinja2",
    "psutil",
    "click",
)


def plain_json(*arguments: object) -> object:
    result = CliRunner().invoke(application, [*map(str, arguments), "--json"])
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> paceline.Run:
    """A run of the fake device, which takes no real time."""
    folder = tmp_path_factory.mktemp("store")
    return paceline.run("calibration/same-work", runner="fake", launches=3, seed=7, results=folder)


def store_of(run: paceline.Run) -> Path:
    return run.path.parents[2]


def test_importing_it_imports_nothing_heavy() -> None:
    code = f"import sys, paceline; print(*[n for n in {HEAVY!r} if n in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "\n"
    )


def test_a_name_that_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = paceline.nothing_such
    assert set(paceline.__all__) <= set(dir(paceline))


def test_a_run_says_where_its_record_is_and_how_it_went(measured: paceline.Run) -> None:
    assert measured.path.is_file() and measured.id in measured.path.name
    assert set(measured.statuses) == {"ok"} and measured.failures == () and measured.check() is measured


def test_the_record_says_that_python_asked_for_it(measured: paceline.Run) -> None:
    told = plain_json("show", measured.id, "--results", store_of(measured))
    assert isinstance(told, dict)
    assert told["argv"] == ["paceline.run('calibration/same-work', runner='fake', tier='standard', …)"]


def test_load_has_one_row_for_each_measurement_of_a_launch(measured: paceline.Run) -> None:
    rows = measured.load()
    keys = ["suite", "block", "label", "metric", "launch"]
    assert not rows.duplicated(keys).any()
    assert len(rows) == sum(1 for line in open_record(measured) if line["line"] == "measurement")
    assert sorted(rows.launch.unique()) == [0, 1, 2]
    assert rows.attrs["units"]["latency"] == "s"
    assert dict(zip(rows.metric, rows.unit, strict=True)) == rows.attrs["units"]
    assert rows.value.dtype == float and "samples" not in rows


def open_record(run: paceline.Run) -> list[dict[str, object]]:
    import gzip

    return [json.loads(line) for line in gzip.open(run.path, "rt", encoding="utf-8")]


def test_raw_samples_come_when_they_are_asked_for(measured: paceline.Run) -> None:
    rows = measured.load(samples=True)
    assert (rows.samples.map(len) == rows.num_samples).all() and rows.num_samples.sum() > len(rows)


def test_a_run_is_loaded_by_handle_id_beginning_record_and_store(measured: paceline.Run) -> None:
    whole = measured.load()
    store = store_of(measured)
    for name in (measured.id, measured.id[:20], None, measured.path):
        pd.testing.assert_frame_equal(paceline.load(name, results=store), whole)
    pd.testing.assert_frame_equal(paceline.load(store), whole)


def test_every_parameter_of_a_point_is_a_column_of_its_own() -> None:
    taken = set(COMPARISON_COLUMNS) | set(CLAIM_COLUMNS) | {*api.measurement_table([]).columns}
    names = {p.name for family in family_names() for p in load_family(family).parameters}
    assert names & taken == set()


def test_compare_gives_what_the_command_prints(measured: paceline.Run) -> None:
    told = plain_json("compare", measured.id, "--results", store_of(measured))
    assert isinstance(told, list) and told
    table = measured.compare()
    assert len(table) == len(told)
    for row, facts in zip(table.to_dict("records"), told, strict=True):
        for key in ("suite", "technique", "baseline", "metric", "unit", "verdict", "launches", "run_id"):
            assert row[key] == facts[key]
        for key in ("effect", "low", "high"):
            assert row[key] == pytest.approx(facts[key], rel=1e-12)
        assert {k: row[k] for k in facts["params"]} == facts["params"]


def test_another_baseline_turns_the_effect_round(measured: paceline.Run) -> None:
    by_suite = measured.compare(metrics=["latency"])
    first = by_suite.iloc[0]
    turned = measured.compare(baseline=first.technique, technique=first.baseline, metrics=["latency"])
    assert turned.iloc[0].effect == pytest.approx(1 / first.effect, rel=1e-9)


def test_two_runs_are_compared_series_by_series(measured: paceline.Run) -> None:
    table = paceline.compare(measured, measured, metrics=["latency"])
    assert len(table) and (table.effect == 1.0).all() and (table.left == table.right).all()
    with pytest.raises(UserError, match="two runs are compared series by series"):
        paceline.compare(measured, measured, baseline="same-a")


def test_show_claims_gives_what_the_command_prints(measured: paceline.Run) -> None:
    store = store_of(measured)
    told = plain_json("claims", "check", "--results", store)
    assert isinstance(told, list)
    table = paceline.show_claims(results=store)
    assert list(table.claim) == [c["claim"] for c in told]
    assert list(table.verdict) == [c["verdict"] for c in told]
    one = paceline.show_claims(family="kernels", verdict="not run", results=store)
    assert len(one) == sum(c["verdict"] == "not run" and c["suite"].startswith("kernels/") for c in told) > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"suite": "collectives/all-reduse"}, "did you mean 'collectives/all-reduce'"),
        ({"suite": "calibration/same-work", "runner": "fakir"}, "fakir"),
        ({"suite": "calibration/same-work", "tier": "quik"}, "did you mean 'quick'"),
        ({"suite": "calibration/same-work", "launches": 0}, "launches 0: must be greater than or equal to 1"),
        ({"suite": "calibration/same-work", "filters": {"nonsense": 1}}, "cannot filter by 'nonsense'"),
        (
            {"suite": "calibration/same-work", "one_by_one": True, "budget": "1min"},
            "leave out one of budget and one_by_one",
        ),
        ({"suite": []}, "no suite given"),
    ],
)
def test_a_mistake_is_a_user_error_and_measures_nothing(
    given: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        paceline.run(**{"runner": "fake", **given}, results=tmp_path)  # type: ignore[arg-type]
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [paceline.load, paceline.compare])
def test_an_unknown_run_is_a_user_error(call: object, tmp_path: Path) -> None:
    factory.simple(tmp_path)
    with pytest.raises(UserError, match="the store has no run 'nothing'"):
        call("nothing", results=tmp_path)  # type: ignore[operator]
    with pytest.raises(UserError, match="no such store"):
        call(results=tmp_path / "none")  # type: ignore[operator]


def test_an_unknown_choice_of_claims_is_a_user_error(measured: paceline.Run) -> None:
    with pytest.raises(UserError, match="did you mean 'collectives'"):
        paceline.show_claims(family="colectives", results=store_of(measured))


@pytest.mark.parametrize(("code", "error"), [(5, IncorrectError), (3, InfrastructureError)])
def test_check_raises_what_the_exit_code_says(
    measured: paceline.Run, code: int, error: type[Exception]
) -> None:
    from dataclasses import replace

    with pytest.raises(error, match="it was wrong"):
        replace(measured, exit_code=code, failures=("it was wrong",)).check()


def test_an_old_name_of_a_metric_is_a_warning(measured: paceline.Run) -> None:
    from paceline.base.aliases import METRICS

    old = next(name for name, new in METRICS.table.items() if new == "latency" or METRICS.today(name) != name)
    with pytest.warns(UserWarning, match=f"the metric '{old}' is called"), pytest.raises(UserError):
        measured.compare(metrics=[old])


@pytest.mark.full
def test_the_notebook_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PACELINE_STATE": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(NOTEBOOK)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "{'ok': 9}" in done.stdout and "verdict" in done.stdout


def test_the_page_shows_the_notebooks_cells() -> None:
    source = NOTEBOOK.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python-api.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 4
    assert [block for block in blocks if block not in source] == []
