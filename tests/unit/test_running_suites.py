"""What runs a suite ends what hangs, whatever it started, and its last lines say what was red and why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import closing
import psutil
import pytest
import run
import under_way
from closing import Machine, closing_lines

QUIET = Machine(load=0.0, ticks=())
LONG_S = 500.0
"""Longer than any machine takes to start a Python."""

HANGS = """
import os, subprocess, sys, time
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({pids!r}, "w").write(f"{{os.getpid()}} {{daemon.pid}}")
path = os.path.join(os.environ["PACELINE_TESTS_UNDER_WAY"], str(os.getpid()))
with open(path + ".new", "w") as file:
    file.write("tests/unit/test_it.py::test_that_hangs")
os.utime(path + ".new", (1, 1))  # it began an age ago
os.rename(path + ".new", path)
{then}
"""
ENDINGS = {
    "a test in an endless loop": "while True: pass",
    "a rank that never answers": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.accept()",
    "a process that ignores being asked to end": "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
}


def in_a_process(part: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a part in a process of its own, which adopts what loses its parent; its tests are Python with arguments."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(run.__file__).parent)!r}); import run\n"
        "run.adopt_orphans()\n"
        f"part = run.Part(name='units', arguments=(), {part})\n"
        f"sys.exit(run.run_part(part, [sys.executable, *{arguments!r}]))\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_hangs_is_named_with_its_stack_and_ended_with_all_that_it_started(
    ending: str, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    done = in_a_process(
        f"limit_s={LONG_S}, still_s={LONG_S}", "-c", HANGS.format(pids=str(pids), then=ENDINGS[ending])
    )
    assert done.returncode == closing.TIMED_OUT, done.stderr
    itself, daemon = map(int, pids.read_text().split())
    assert "units: no test began or ended for" in done.stdout
    assert f"under way in process {itself}: tests/unit/test_it.py::test_that_hangs" in done.stdout
    assert f"process {itself} (" in done.stdout
    assert f"process {daemon} (" in done.stdout
    assert "<module>" in done.stdout or "no stack: " in done.stdout
    assert not psutil.pid_exists(itself)
    assert not psutil.pid_exists(daemon)


def test_a_part_that_outlasts_its_limit_is_ended_though_its_tests_go_on() -> None:
    done = in_a_process("limit_s=0.0", "-c", "import time; time.sleep(600)")
    assert done.returncode == closing.TIMED_OUT
    assert "units: it took more than 0 s" in done.stdout


def test_what_was_red_before_a_part_was_ended_is_told_and_in_its_report(tmp_path: Path) -> None:
    tests, report = tmp_path / "test_it.py", tmp_path / "units.xml"
    tests.write_text(
        "import os, time\n"
        "def test_red():\n    assert 3 == 4\n"
        "def test_that_hangs():\n"
        "    path = os.path.join(os.environ['PACELINE_TESTS_UNDER_WAY'], '0')\n"
        "    open(path, 'w').close()\n"
        "    os.utime(path, (1, 1))  # an age ago\n"
        "    time.sleep(600)\n"
    )
    command = ("-m", "pytest", str(tests), f"--rootdir={tmp_path}", f"--junitxml={report}")
    done = in_a_process(f"limit_s={LONG_S}, still_s={LONG_S}", *command, "-o", "junit_family=xunit1")
    assert done.returncode == closing.TIMED_OUT, done.stderr
    assert "assert 3 == 4" in done.stdout
    lines = closing_lines({"units": done.returncode}, tmp_path, before=QUIET, now=QUIET)
    assert any(line.startswith("FAILED") and line.endswith("test_red") for line in lines)
    assert any(line.startswith("units: ended at its limit") for line in lines)
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_daemon_that_a_green_part_left_is_ended_and_told(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys\n"
        "daemon = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(daemon.pid))"
    )
    done = in_a_process(f"limit_s={LONG_S}", "-c", code)
    assert done.returncode == 0, done.stderr
    assert "units: ended what tests left running: " in done.stdout
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_suite_that_is_asked_to_end_leaves_nothing(tmp_path: Path, asked: signal.Signals) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    code = (
        "import os, subprocess, sys, time\n"
        "daemon = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{daemon.pid}}')\n"
        "time.sleep(600)"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(Path(run.__file__).parent)!r}); import run\n"
        f"run.PARTS['gate'] = (run.Part(name='units', arguments=(), limit_s={LONG_S}),)\n"
        f"run.pytest_command = lambda *_: (sys.executable, '-c', {code!r})\n"
        "sys.exit(run.main(['gate']))\n"
    )
    suite = subprocess.Popen([sys.executable, "-c", script])
    itself, daemon = map(int, pids.read_text().split())
    suite.send_signal(asked)
    assert suite.wait() != 0
    assert not psutil.pid_exists(itself)
    assert not psutil.pid_exists(daemon)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_a_part_is_that_of_its_tests(code: int) -> None:
    assert in_a_process(f"limit_s={LONG_S}", "-c", f"raise SystemExit({code})").returncode == code


def test_torch_has_one_thread_where_tests_share_the_cores_and_all_where_they_measure() -> None:
    threads = {part.name: part.threads for parts in run.PARTS.values() for part in parts}
    assert threads == {"units": 1, "engines": 1, "alone": 1, "measured": None}


def test_a_process_notes_the_test_that_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(under_way.FOLDER_VARIABLE, str(tmp_path))
    assert under_way.latest_s(tmp_path) is None
    under_way.begin("tests/unit/test_it.py::test_it")
    assert under_way.named(tmp_path) == {os.getpid(): "tests/unit/test_it.py::test_it"}
    under_way.end()
    assert under_way.named(tmp_path) == {}
    assert under_way.latest_s(tmp_path) is not None


RED = """<testsuites><testsuite>
<testcase file="tests/unit/test_a.py" classname="tests.unit.test_a" name="test_right[1]"/>
<testcase file="tests/unit/test_a.py" classname="tests.unit.test_a.TestB" name="test_wrong[2-x]">
<failure message="AssertionError: assert 3 == 4">def test():
&gt;   assert f() == 4
E   AssertionError: assert 3 == 4
E    +  where 3 = f()
---- seed of this module's runs ----
--seed 77
</failure></testcase>
<testcase file="tests/unit/test_a.py" classname="tests.unit.test_a" name="test_absent"><skipped/></testcase>
</testsuite></testsuites>"""


def test_the_last_lines_name_what_was_red_its_values_its_seed_and_what_runs_it_again(tmp_path: Path) -> None:
    (tmp_path / "units.xml").write_text(RED)
    before = Machine(load=0.5, ticks=(0, 0, 0, 0, 0, 0, 0, 0))
    after = Machine(load=3.25, ticks=(40, 0, 10, 25, 5, 0, 0, 20))
    lines = closing_lines({"units": 1}, tmp_path, before=before, now=after)
    text = "\n".join(lines)
    assert "FAILED tests/unit/test_a.py::TestB::test_wrong[2-x]" in lines
    assert "AssertionError: assert 3 == 4" in text
    assert "+  where 3 = f()" in text
    assert "--seed 77" in text
    assert "again: make test TESTS='tests/unit/test_a.py::TestB::test_wrong[2-x]'" in lines
    assert (
        "load 0.5 before, 3.2 after; 30% of the cores' time was idle, 20.0% was stolen by other guests"
        in text
    )
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"


def test_the_last_lines_fit_forty_however_much_is_red(tmp_path: Path) -> None:
    case = RED.splitlines()[2:10]
    many = ["<testsuites><testsuite>", *case * 30, "</testsuite></testsuites>"]
    (tmp_path / "units.xml").write_text("\n".join(many))
    lines = closing_lines({"units": 1, "engines": 124}, tmp_path, before=QUIET, now=QUIET)
    assert len(lines) <= 40
    assert lines.count("FAILED tests/unit/test_a.py::TestB::test_wrong[2-x]") == closing.MOST_NAMES
    assert "and 16 more" in lines
    assert "engines: ended without a report, exit code 124; what hung is told above" in lines


def test_a_part_that_failed_without_a_failed_test_is_told(tmp_path: Path) -> None:
    (tmp_path / "units.xml").write_text("<testsuites><testsuite/></testsuites>")
    lines = closing_lines({"units": 5}, tmp_path, before=QUIET, now=QUIET)
    assert "units: no test failed, but its exit code is 5; see its output above" in lines
