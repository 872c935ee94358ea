"""A user id that no password file knows, without ``HOME``, as containers give it: everything works all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.base.account import home_folder, user_name
from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.records.store.folder import load
from paceline.spec import content

UID = "12345"


def as_nobody(*command: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without name and home; the checkout's files stay readable, as an image's would be."""
    if os.getuid() == 0 and shutil.which("setpriv"):
        reads = "+dac_override,+dac_read_search"
        become = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups"]
        become += [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    else:
        become = ["unshare", "--user", f"--map-user={UID}", f"--map-group={UID}"]
    return subprocess.run(
        [*become, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", STATE_VARIABLE: str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_user_without_name_and_home_measures_and_is_told_about(state: Path, tmp_path: Path) -> None:
    who = as_nobody(sys.executable, "-c", "import getpass; getpass.getuser()", state=state)
    assert "uid not found" in who.stderr, "this test has to become such a user"
    arguments = (
        "calibration/same-work",
        "--runner",
        "fake",
        "--launches",
        "1",
        "--filter",
        "trial=0",
        "--quiet",
    )
    ran = as_nobody(
        sys.executable,
        "-m",
        "paceline.cli",
        "run",
        *arguments,
        "--results",
        str(tmp_path / "store"),
        state=state,
    )
    assert ran.returncode == 0, ran.stderr
    (record,) = load([tmp_path / "store"]).records
    assert all(m.status == "ok" for m in record.measurements)
    code = record.run.code
    assert code["commit"] or "git refuses" in code["reason"], "and not that there is no commit"


@pytest.mark.parametrize("command", [("store", "ls"), ("list", "suites"), ("doctor",), ("plan", "kernels")])
@pytest.mark.one_in(4)
def test_commands_do_not_ask_who_the_user_is(command: tuple[str, ...], state: Path) -> None:
    ended = as_nobody(sys.executable, "-m", "paceline.cli", *command, state=state)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_a_held_machine_names_a_user_without_a_name_by_number(state: Path) -> None:
    code = "from paceline.drivers.machine import lease; lease.take('x', wait_s=0); print(lease.holder().user)"
    ended = as_nobody(sys.executable, "-c", code, state=state)
    assert ended.stdout.strip() == f"uid-{UID}", ended.stderr


def test_a_rank_of_a_user_without_a_name_has_one(state: Path) -> None:
    """Torch asks the standard library where it compiles."""
    code = (
        "from paceline.worker.processes.process import scrub_environment as s; s(); "
        "import getpass; print(getpass.getuser())"
    )
    ended = as_nobody(sys.executable, "-c", code, state=state)
    assert ended.stdout.strip() == f"uid-{UID}", ended.stderr


@pytest.mark.full
def test_ranks_of_a_user_without_a_name_can_compile(state: Path) -> None:
    code = "from paceline.worker.processes.process import scrub_environment as s; s(); import torch._dynamo.config"
    ended = as_nobody(sys.executable, "-c", code, state=state)
    assert ended.returncode == 0, ended.stderr


def test_nothing_but_the_account_asks_the_standard_library_who_the_user_is() -> None:
    asks = ("import getpass", "import pwd", "Path.home()", "expanduser(", "os.getlogin")
    package = content.shipped_root() / "src" / "paceline"
    found = [
        path.name
        for path in (*package.rglob("*.py"), *(content.shipped_root() / "baselines").rglob("*.py"))
        if any(text in path.read_text(encoding="utf-8") for text in asks)
    ]
    assert found == ["account.py"]
    assert user_name()
    assert home_folder() is None or home_folder().is_absolute()
