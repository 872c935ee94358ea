"""CI fails where a test was skipped that it must run, and where a module was that holds such tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TEST = "import pytest\n\n{mark}\ndef test_it():\n    {body}\n"
ITSELF = TEST.format(mark="", body="pytest.skip('not here')")
HARDWARE = TEST.format(mark="@pytest.mark.hardware", body="pytest.skip('no accelerator')")
MODULE = "import pytest\n\npytest.importorskip('nothing_here')\n\ndef test_it():\n    pass\n"
GOOD = "def test_it():\n    pass\n"


@pytest.mark.parametrize("workers", [[], ["--numprocesses", "2"]])
@pytest.mark.parametrize(
    ("text", "must_run", "code"),
    [(ITSELF, "all", 1), (MODULE, "all", 1), (HARDWARE, "all", 0), (ITSELF, "", 0), (MODULE, "", 0)],
)
@pytest.mark.one_in(3)
def test_a_skip_fails_where_ci_must_run_the_test(
    text: str, must_run: str, code: int, workers: list[str], tmp_path: Path
) -> None:
    for name in (
        *("audit_hooks.py", "conftest.py", "figures.py", "paceline_commands.py", "seeds.py"),
        *("three_suites.py", "under_way.py"),
    ):
        shutil.copy(TESTS / name, tmp_path)
    (tmp_path / "test_first.py").write_text(GOOD)
    (tmp_path / "test_second.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PACELINE_MUST_RUN": must_run},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == (code != 0), done.stdout
    assert ("CI must run it" in done.stdout) == (code != 0), done.stdout
