"""``pytest --paceline``: the cases of a suite as items that pytest-benchmark stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from figures import Figures
from measured import record_of
from pytest_runs import SUITE, run_pytest

from paceline.spec.suites.suite_file import load_suite
from paceline.stats.estimates import Launches, median
from paceline.stats.unpaired import compare_unpaired

ROOM = 1.5
"""What the machine's other guests may do to all launches of one of two runs."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("pytest")
    suite = folder / "for-pytest.yaml"
    suite.write_text(SUITE)
    options = ["--benchmark-json=out.json", "--benchmark-max-time=0.5", "--benchmark-min-rounds=7"]
    options += ["--paceline-launches=3"]
    ended = run_pytest(folder, "--paceline", str(suite), *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads((folder / "out.json").read_text()), ended.stdout


def test_each_case_is_an_item_with_its_samples(stored: tuple[dict[str, Any], str]) -> None:
    document, output = stored
    assert "2 passed" in output
    names = {b["name"] for b in document["benchmarks"]}
    assert names == {"kernels/for-pytest[torch-eager]", "kernels/for-pytest[split-k]"}
    for entry in document["benchmarks"]:
        assert entry["stats"]["rounds"] >= 7
        assert entry["extra_info"]["k"] == 256


def agree(left: list[float], right: list[float]) -> bool:
    """Say whether the ratio of two runs' medians may be one, as far as their launches show, or is near it."""
    sides = (Launches(values=dict(enumerate(values))) for values in (left, right))
    ratio = compare_unpaired(*sides)
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low < ROOM and ratio.high > 1 / ROOM


@pytest.mark.measured
def test_medians_are_those_of_the_command_line(
    stored: tuple[dict[str, Any], str], tmp_path: Path, figure: Figures
) -> None:
    path = tmp_path / "for-pytest.yaml"
    path.write_text(SUITE)
    suite = load_suite(path)
    own: dict[str, list[float]] = {}
    for m in record_of([suite], tmp_path).measurements:
        if m.metric.name == "latency" and m.value is not None:
            own.setdefault(m.label, []).append(m.value)
    for entry in stored[0]["benchmarks"]:
        launches = entry["extra_info"]["launches"]
        assert len(launches) == 3
        technique = entry["extra_info"]["technique"]
        ratio = median(launches) / median(own[technique])
        figure(f"{technique} by pytest over the command line", ratio, unit="ratio")
        assert agree(launches, own[technique])
        assert min(launches) <= entry["stats"]["median"] <= max(launches)
    known = [3.1e-4, 3.3e-4, 3.0e-4]
    assert not agree(known, [v * 3 for v in known])
