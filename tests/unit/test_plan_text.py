"""What a plan says before a run: no line is wider than the terminal."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from paceline.cli import application


def planned(*arguments: str) -> str:
    ended = CliRunner().invoke(application, ["plan", *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.parametrize("width", [60, 100])
def test_a_plan_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = planned("tour/all-reduce", "kernels/add-rmsnorm")
    assert max(map(len, said.splitlines())) <= width
    assert "fused-add-rmsnorm, torch-compile" in " ".join(said.split())
    assert max(map(len, planned("kernels/add-rmsnorm", "--wide").splitlines())) > 100
