"""``pytest --paceline``: the cases of a suite as items that pytest-benchmark stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from measured import record_of

from paceline.spec.suite_file import load_suite
from paceline.stats.estimates import Launches
from paceline.stats.unpaired import compare_unpaired

SUITE = """
suite: kernels/for-pytest
version: 1
family: kernels
description: Somebody lives in pytest.
workload: {op: gemm, m: 256, n: 256, k: 256}
baseline: torch-eager
techniques: [torch-eager, split-k]
protocol: {launches: 3, max_seconds: 0.5, warmup_seconds: 0.2}
"""
ROOM = 1.5
"""What the machine's other guests may do to all launches of one of two runs."""


def run_pytest(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(folder),
    ]
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


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


def test_medians_are_those_of_the_command_line(stored: tuple[dict[str, Any], str], tmp_path: Path) -> None:
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
        assert agree(launches, own[entry["extra_info"]["technique"]])
        assert min(launches) <= entry["stats"]["median"] <= max(launches)
    known = [3.1e-4, 3.3e-4, 3.0e-4]
    assert not agree(known, [v * 3 for v in known])


WRONG = '''
"""Writes zeros."""
from paceline import technique

@technique(name="zeros", family="kernels", implements=("gemm",), summary="writes zeros")
class Zeros:
    def __init__(self, problem):
        pass

    def run(self, a, b, c):
        c.zero_()
'''


def test_a_wrong_kernel_fails_its_item_and_no_other(tmp_path: Path) -> None:
    suite, kernel = tmp_path / "wrong.yaml", tmp_path / "zeros.py"
    suite.write_text(SUITE)
    kernel.write_text(WRONG)
    ended = run_pytest(
        tmp_path, "--paceline", str(suite), "--paceline-technique", str(kernel), "--benchmark-disable"
    )
    assert "1 failed, 2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "elements of c are outside the bound" in ended.stdout


def test_a_machine_without_a_device_is_told_by_the_first_item_and_the_others_point_at_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "starts.yaml").write_text(SUITE)
    options = ["--paceline-runner", "local-cuda", "--junitxml", "out.xml", "--benchmark-disable"]
    ended = run_pytest(tmp_path, "--paceline", "starts.yaml", *options, CUDA_VISIBLE_DEVICES="")
    assert "2 failed" in ended.stdout, ended.stdout + ended.stderr
    first, second = ElementTree.parse(tmp_path / "out.xml").getroot().iter("failure")
    said = "infrastructure: 2 cases, rank 0: PrerequisiteError: no cuda device is visible to torch; fix: "
    assert said in first.attrib["message"]
    assert "infrastructure: as kernels/for-pytest[torch-eager]" in second.attrib["message"]


def test_the_plugin_leaves_other_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert True\n")
    (tmp_path / "other.yaml").write_text(SUITE)
    ended = run_pytest(tmp_path)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("x = 1\n", "the file declares no technique"),
        (WRONG.replace('("gemm",)', '("gem",)'), "did you mean 'gemm'?"),
        (WRONG.replace('("gemm",)', '("add_rmsnorm",)'), "which none of the suites measures"),
    ],
    ids=["empty", "misspelt", "stranger"],
)
def test_a_technique_file_that_adds_nothing_is_an_error(kernel: str, said: str, tmp_path: Path) -> None:
    suite, path = tmp_path / "one.yaml", tmp_path / "mine.py"
    suite.write_text(SUITE)
    path.write_text(kernel)
    ended = run_pytest(
        tmp_path, "--collect-only", "--paceline", str(suite), "--paceline-technique", str(path)
    )
    assert ended.returncode != 0
    assert said in ended.stdout, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout


def test_a_tier_that_omits_the_suite_is_an_error_with_its_reason(tmp_path: Path) -> None:
    suite = tmp_path / "one.yaml"
    suite.write_text(SUITE + "tiers:\n  quick: {omit: it takes an hour}\n")
    ended = run_pytest(tmp_path, "--collect-only", "--paceline", str(suite), "--paceline-tier", "quick")
    assert ended.returncode != 0
    assert "kernels/for-pytest: the quick tier leaves it out: it takes an hour" in ended.stdout


def test_an_option_without_a_suite_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert True\n")
    ended = run_pytest(tmp_path, "--paceline-tier=quick")
    assert ended.returncode != 0
    assert "--paceline-tier is about the suites of --paceline" in ended.stderr
