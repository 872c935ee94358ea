"""`make setup` and `make bench` end by saying how the shell finds `paceline`, and README's first use says it too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(environment: Path, *targets: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Call make with an environment that counts as set up, whose `paceline` ends with a code where it measures."""
    (environment / "bin").mkdir(parents=True)
    program = environment / "bin" / "paceline"
    program.write_text(f'#!/bin/sh\necho "called: $*"\n[ "$1" != run ] || exit {code}\n')
    program.chmod(0o755)
    (environment / ".ready-cpu").touch()
    command = ["make", "--no-print-directory", "-C", str(ROOT), *targets, f"VENV={environment}", "TORCH=cpu"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("targets", "code"), [(["setup"], 0), (["bench"], 0), (["bench"], 3)])
def test_the_last_line_says_how_paceline_is_called(targets: list[str], code: int, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    ended = make(environment, *targets, code=code)
    lines = ended.stdout.splitlines()
    assert lines[-1] == f"To call paceline in this shell:  . {environment}/bin/activate"
    assert sum("To call paceline" in line for line in lines) == 1
    assert (ended.returncode != 0) is (code != 0), "what measuring ended with is kept"
    assert any("called: summary" in line for line in lines) is (targets == ["bench"])


@pytest.mark.parametrize("page", ["README.md", "docs/installing.md"])
def test_the_first_use_activates_before_it_calls(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert 0 < text.index("$ make ") < text.index("$ . .venv/bin/activate") < text.index("$ paceline ")
