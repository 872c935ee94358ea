"""``pytest --paceline``: what fails, what is told, and what is left alone, whatever the time."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from pytest_runs import SUITE, run_pytest

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
