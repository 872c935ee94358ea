"""Who follows the tutorial or a quickstart command by command gets what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from walkthrough import Command, File, steps

from paceline.spec.content import shipped_root

ROOT = shipped_root()
QUICKSTARTS = sorted((ROOT / "docs" / "quickstarts").glob("*.md"))

pytestmark = pytest.mark.timeout(900)


def follow(page: Path, folder: Path, *, brief: bool = False) -> int:
    """Take every step of a page in a folder; return the number of commands that were called.

    Where ``brief``, runs have one launch: the same techniques and columns in less time.
    """
    num_called = 0
    for step in steps(page.read_text(encoding="utf-8")):
        if isinstance(step, File):
            step.write(folder)
        elif step.line.startswith("make "):
            target = step.line.split()[1]
            assert f"\n{target}: " in (ROOT / "Makefile").read_text(encoding="utf-8")  # tests/setup calls it
        else:
            shorter = brief and step.line.startswith("paceline run ")
            (replace(step, line=f"{step.line} --launches 1") if shorter else step).call(folder)
            num_called += 1
    return num_called


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    assert follow(ROOT / "docs" / "tutorial.md", tmp_path) == 8
    assert (tmp_path / "site" / "docs" / "tutorial.html").is_file()


@pytest.mark.parametrize(
    "page",
    [p for p in (ROOT / "docs" / "howto").glob("*.md") if "```console" in p.read_text(encoding="utf-8")],
    ids=lambda p: p.stem,
)
def test_a_guide_does_what_it_says(page: Path, tmp_path: Path) -> None:
    examples = ROOT / "docs" / "examples"
    for example in (
        examples / "nightly-cpu.yaml",
        examples / "questions.csv",
        *(examples / "programs").glob("*.*"),
        *(examples / "training").glob("*.*"),
    ):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    assert follow(page, tmp_path) >= 1


@pytest.mark.parametrize("page", QUICKSTARTS, ids=lambda p: p.stem)
def test_a_quickstart_does_what_it_says(page: Path, tmp_path: Path) -> None:
    assert follow(page, tmp_path, brief=True) == 3


def test_a_command_that_ends_or_prints_otherwise_is_found(tmp_path: Path) -> None:
    first, second = steps(
        "```console\n$ python --version\nParrot 3\n$ python --nothing  # exits with 0\n```\n"
    )
    assert isinstance(first, Command) and isinstance(second, Command)
    with pytest.raises(AssertionError, match="Parrot"):
        first.call(tmp_path)
    with pytest.raises(AssertionError, match="--nothing"):
        second.call(tmp_path)
