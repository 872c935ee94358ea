"""The how-to page on evaluating a model: its commands run, and print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.cli.measuring.evaluate import evaluate
from paceline.cli.results.samples import samples
from paceline.spec.content import shipped_root

DOCS = shipped_root() / "docs"
COMMANDS = {"evaluate": evaluate, "samples": samples}
BLOCK = re.compile(r"```console\n\$ paceline (\S+) (.*)\n((?:.*\n)*?)```")
TOOK = re.compile(r"this run took [0-9.]+ m?s")
"""The one figure that is another one each time."""


def test_the_page_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    shutil.copy(DOCS / "examples" / "questions.csv", tmp_path)
    blocks = BLOCK.findall((DOCS / "howto" / "evaluate-a-model.md").read_text())
    assert [name for name, _, _ in blocks] == ["evaluate", "evaluate", "samples"]
    for name, arguments, shown in blocks:
        done = CliRunner().invoke(COMMANDS[name], shlex.split(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert TOOK.sub("", done.stdout).rstrip() == TOOK.sub("", shown).rstrip(), arguments
