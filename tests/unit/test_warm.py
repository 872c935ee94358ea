"""Processes that have their imports already behave as those that make them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import Warm, warm

PROGRAM = """
import fractions, os, sys
print(sys.argv[1:], os.environ.get("OWN"), os.getcwd(), sys.stdin.readline().strip(), __name__, flush=True)
print("and errors", file=sys.stderr)
sys.exit({"ends": 3, "stops": None, "says": "a word"}.get(sys.argv[1]) if sys.argv[1] != "fails" else 1 / 0)
"""


@pytest.fixture(scope="module")
def process() -> Iterator[Warm]:
    with warm("fractions") as one:
        yield one


@pytest.mark.parametrize(("ending", "code"), [("ends", 3), ("stops", 0), ("says", 1), ("fails", 1)])
def test_a_call_is_what_a_plain_one_is(
    ending: str, code: int, process: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OWN", "value")
    command = [sys.executable, "-m", "program", ending]
    ended = process.run(command, text=True, timeout=60)
    plain = subprocess.run(command, capture_output=True, text=True, input="", check=False, timeout=60)
    assert ended.returncode == plain.returncode == code
    assert ended.stdout == plain.stdout
    assert "and errors" in ended.stderr
    assert ("ZeroDivisionError" in ended.stderr) == (ending == "fails")


def test_pipes_carry_text_both_ways_and_what_hangs_is_killed(
    process: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "echo.py").write_text(
        "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    pipe = subprocess.PIPE
    one = process.Popen([sys.executable, "-m", "echo"], stdin=pipe, stdout=pipe, text=True)
    assert one.stdin is not None and one.stdout is not None
    with one.stdin, one.stdout:
        one.stdin.write("a word\n")
        one.stdin.flush()
        assert one.stdout.readline() == "a word\n"
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0)
        one.kill()
        assert one.wait(60) == -9


def test_what_has_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError, match="could not import"), warm("threaded"):
        pass
