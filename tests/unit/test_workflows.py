"""Workflows and examples are legal, and the commands in them exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from paceline.cli import application
from paceline.spec.content import shipped_root
from paceline.workflows.nightly.config import load_nightly

ROOT = shipped_root()
EXAMPLES = ROOT / "docs" / "examples"
SCHEMAS = {
    "vendor.github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "vendor.gitlab-ci": [EXAMPLES / "gitlab-ci.yml"],
}
SCRIPTS = [ROOT / ".ci" / "run", ROOT / ".ci" / "against-base", EXAMPLES / "nightly.sbatch"]
TEXTS = [
    *SCRIPTS,
    *SCHEMAS["vendor.github-workflows"],
    *(p for p in EXAMPLES.iterdir() if p.is_file() and p.suffix != ".yaml"),
]


def lint(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_workflows_are_legal(schema: str) -> None:
    found = lint(schema, *SCHEMAS[schema])
    assert found.returncode == 0, found.stdout


def test_the_linter_refuses_a_key_that_does_not_exist(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    text = SCHEMAS["vendor.github-workflows"][0].read_text()
    wrong.write_text(text.replace("runs-on:", "run-on:"))
    assert lint("vendor.github-workflows", wrong).returncode == 1


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_are_legal(path: Path) -> None:
    shell = path.read_text().splitlines()[0].rpartition("/")[2].split()[-1]
    assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("nightly-*.yaml")), ids=lambda p: p.stem)
def test_nightly_examples_are_legal(path: Path) -> None:
    assert load_nightly(path).units


def commands(text: str) -> list[list[str]]:
    """Find what is called of the command line, one list of words a call."""
    joined = re.sub(r"\\\n|\n\s+(?=--)", " ", text)
    found = re.findall(r"(?:\.venv/bin/|-m )paceline ([^\n|&>)']*)", joined)
    return [[word.strip("\"'") for word in call.split()] for call in found]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_every_command_in_them_exists_with_its_options(path: Path) -> None:
    for words in commands(path.read_text()):
        command = application.get_command(click.Context(application), words[0])
        assert command is not None, words
        known = {name for parameter in command.params for name in parameter.opts}
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known, words


def test_commands_are_found_over_lines() -> None:
    assert commands("x: >\n  .venv/bin/paceline nightly\n  --config a\n") == [["nightly", "--config", "a"]]
    assert {words[0] for path in TEXTS for words in commands(path.read_text())} == {"run", "gate", "nightly"}


def test_workflows_name_profiles_that_have_a_nightly_file() -> None:
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    (profiles,) = re.findall(r"profile: \[([^\]]*)\]", text)
    assert {f"nightly-{p.strip()}" for p in profiles.split(",")} == {
        p.stem for p in EXAMPLES.glob("nightly-*.yaml")
    }


ALL_BUT_CPU_KEEP = {
    True: "profile == 'cpu' && 'cpu' || 'keep'",
    False: '"$PROFILE" = cpu ] && echo cpu || echo keep',
}
"""In a workflow of GitHub's, and in a shell."""
NIGHTS = [ROOT / ".github" / "workflows" / "nightly.yml", EXAMPLES / "gitlab-ci.yml"]


@pytest.mark.parametrize("path", NIGHTS, ids=lambda p: p.name)
def test_nights_on_accelerators_keep_their_vendors_torch(path: Path) -> None:
    (choice,) = re.findall(r"make setup TORCH=(.*)", path.read_text())
    assert ALL_BUT_CPU_KEEP[path.parent.name == "workflows"] in choice


@pytest.mark.parametrize("name", ["nightly.crontab", "nightly.sbatch"])
def test_an_example_for_one_machine_says_how_to_keep_a_torch(name: str) -> None:
    assert "TORCH=keep" in (EXAMPLES / name).read_text()
