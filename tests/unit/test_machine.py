"""One timed run a host: lease, idleness, quarantine and leftovers, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner, Result

from paceline.base.errors import EXIT_INFRASTRUCTURE, InfrastructureError, UserError
from paceline.cli import application
from paceline.drivers.machine import idleness, lease, leftovers, quarantine
from paceline.drivers.machine.idleness import look
from paceline.drivers.machine.occupation import measures_here, occupied
from paceline.drivers.machine.state import STATE_VARIABLE, open_shared, state_folder
from paceline.spec.profiles.profile import load_runner

LOCAL = {"name": "local-cpu", "driver": "local", "device": "cpu"}
HOLD = """
import time
from paceline.drivers.machine.lease import take
take("other run", wait_s=0)
print("held", flush=True)
time.sleep(600)
"""


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return state_folder()


@pytest.fixture
def other(state: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_run_is_told_who_has_the_machine(other: subprocess.Popen[str]) -> None:
    with pytest.raises(InfrastructureError, match=rf"'other run' of .*pid {other.pid}, since 20") as refused:
        lease.take("mine", wait_s=0)
    assert "--wait" in str(refused.value)
    assert refused.value.exit_code == EXIT_INFRASTRUCTURE


def test_a_holder_that_was_killed_holds_nothing(other: subprocess.Popen[str]) -> None:
    assert lease.holder() is not None
    other.kill()
    other.wait()
    assert lease.holder() is None
    lease.take("mine", wait_s=0).release()


def test_a_waiting_run_begins_when_the_other_ends(other: subprocess.Popen[str]) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        other.terminate()

    held = lease.take("mine", wait_s=60, say=say)
    assert len(said) == 1
    assert "waiting" in said[0]
    held.release()


def test_a_lease_names_the_run_and_is_empty_afterwards(state: Path) -> None:
    held = lease.take("mine", wait_s=0)
    held.announce("run-1")
    assert json.loads((state / lease.LEASE).read_text())["run"] == "run-1"
    held.release()
    assert lease.holder() is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": "x"}'])
def test_a_note_that_makes_no_sense_still_refuses(
    text: str, other: subprocess.Popen[str], state: Path
) -> None:
    (state / lease.LEASE).write_text(text)
    with pytest.raises(InfrastructureError, match="unknown"):
        lease.take("mine", wait_s=0)


def test_a_link_in_the_place_of_the_lease_is_not_followed(state: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    (state / lease.LEASE).symlink_to(target)
    with pytest.raises(InfrastructureError):
        lease.take("mine", wait_s=0)
    assert target.read_text() == "kept"
    with pytest.raises(InfrastructureError):
        open_shared(tmp_path)


def test_a_state_folder_that_cannot_be_made_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "file" / "state"))
    with pytest.raises(UserError, match=STATE_VARIABLE):
        state_folder()


def test_sharing_goes_on_and_is_recorded(other: subprocess.Popen[str]) -> None:
    with occupied(LOCAL, allow_concurrent=True) as place:
        assert "shared with 'other run'" in place.facts["lease"]


def test_virtual_time_and_schedulers_need_no_lease(other: subprocess.Popen[str]) -> None:
    for runner in (
        {**LOCAL, "device": "fake"},
        {**LOCAL, "driver": "debug"},
        {**LOCAL, "driver": "slurm"},
    ):
        assert not measures_here(runner)
        with occupied(runner) as place:
            assert place.facts == {}


@pytest.fixture
def spinner() -> Iterator[None]:
    """Start a process that computes and is nobody's child, so that it is foreign."""
    started = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "while True: pass" >/dev/null 2>&1 & echo $!', sys.executable],
        capture_output=True,
        text=True,
        check=True,
    )
    pid = int(started.stdout)
    until(lambda: psutil.Process(pid).cpu_times().user > 0.05)
    yield
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine's processes be one that is not ours and computes on a whole core, on a clock of its own."""
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(idleness, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    monkeypatch.setattr(idleness, "_times", lambda ours: {4711: (7.0 + now_s, "spinner")})


def test_foreign_work_is_noted_or_refused_where_idleness_is_demanded(state: Path, computing: None) -> None:
    refuses(named="spinner (pid 4711) computes on 1.0 cores")


@pytest.mark.measured
def test_a_process_that_computes_is_noted_or_refused(state: Path, spinner: None) -> None:
    refuses(named="computes on")


def refuses(named: str) -> None:
    """Find a machine that is not idle, noted where that is allowed and refused where it is not."""
    said: list[str] = []
    with occupied(LOCAL, say=said.append) as place:
        assert "not idle" in said[0]
        assert any(named in one for one in place.facts["disturbances"])
        assert place.facts["idle_demanded"] is False
    with occupied(LOCAL, elsewhere=True, say=said.append):
        assert "what of it is not the server" in said[-1] and named in said[-1]
    with (
        pytest.raises(InfrastructureError, match="an idle one is demanded"),
        occupied(LOCAL, demand_idle=True),
    ):
        pass
    with pytest.raises(InfrastructureError, match="not idle"), occupied({**LOCAL, "idle": "demand"}):
        pass
    assert lease.holder() is None


def test_own_work_is_not_foreign() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        until(lambda: psutil.Process(child.pid).cpu_times().user > 0.05)
        found = look()
        child.kill()
    assert child.pid not in {p.pid for p in found.processes}


def test_a_profile_that_demands_idleness_says_so_in_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "quiet.yaml"
    path.write_text("runner: quiet\ndescription: x\ndriver: local\nidle: demand\n")
    assert load_runner(path).resolved()["idle"] == "demand"


def test_failures_in_a_row_put_a_runner_into_quarantine_until_it_is_lifted(state: Path) -> None:
    assert not quarantine.failed("a", "rank lost\nmore", limit=2).quarantined
    quarantine.succeeded("a")
    assert not quarantine.failed("a", "rank lost", limit=2).quarantined
    assert quarantine.failed("a", "rank lost", limit=2).quarantined
    assert quarantine.quarantined("b") is None
    quarantine.succeeded("a")
    standing = quarantine.quarantined("a")
    assert standing is not None
    assert "paceline doctor --unquarantine a" in standing.text()
    quarantine.end_quarantine("a")
    assert quarantine.quarantined("a") is None
    with pytest.raises(UserError, match="not in quarantine"):
        quarantine.end_quarantine("a")


def test_a_torn_quarantine_file_counts_as_none(state: Path) -> None:
    (state / quarantine.QUARANTINE).write_text('{"a": ')
    assert quarantine.standings() == {}
    assert quarantine.failed("a", "", limit=3).failures == 1


@pytest.fixture
def orphan() -> Iterator[int]:
    """Start what looks like a launcher of the local driver, whose controller is gone."""
    script = f'(exec -a "python -m {leftovers.WORKER}.launch job" sleep 600) >/dev/null 2>&1 & echo $!'
    controller = subprocess.Popen(["true"])
    controller.wait()
    environment = {**os.environ, leftovers.MARK: str(controller.pid)}
    started = subprocess.run(
        ["setsid", "bash", "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    pid = int(started.stdout)
    until(lambda: "sleep" in psutil.Process(pid).name())
    yield pid
    if psutil.pid_exists(pid):
        os.kill(pid, signal.SIGKILL)


def test_orphans_and_only_orphans_are_removed(orphan: int, state: Path) -> None:
    script = f'exec -a "python -m {leftovers.WORKER}.launch job" sleep 600'
    kept = subprocess.Popen(["bash", "-c", script], env={**os.environ, leftovers.MARK: str(os.getpid())})
    tree = state / leftovers.WORKTREES / "c0ffee-999999999"
    tree.mkdir(parents=True)
    (state / leftovers.WORKTREES / f"c0ffee-{os.getpid()}").mkdir()
    try:
        until(lambda: psutil.Process(kept.pid).name() == "sleep")
        mine = [x for x in leftovers.find_leftovers() if str(orphan) in x.name or x.kind == "worktree"]
        assert not any(str(kept.pid) in x.name for x in leftovers.find_leftovers())
        assert [x.kind for x in mine] == ["process", "worktree"]
        for leftover in mine:
            leftover.remove()
        until(
            lambda: not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE
        )
        assert not tree.exists()
    finally:
        kept.kill()
        kept.wait()


def test_a_process_that_began_later_is_no_controller_though_it_has_its_number() -> None:
    own = psutil.Process()
    assert leftovers._lives(str(own.pid), before=own.create_time() + 1)
    assert not leftovers._lives(str(own.pid), before=own.create_time() - 1)
    assert not leftovers._lives("none", before=own.create_time() + 1)


def test_doctor_lifts_and_cleans(state: Path) -> None:
    def doctor(*arguments: str) -> Result:
        return CliRunner().invoke(application, ["doctor", *arguments])

    quarantine.failed("local-cpu", "lost", limit=1)
    (state / leftovers.WORKTREES / "c0ffee-999999999").mkdir(parents=True)
    assert "would remove worktree" in doctor("--clean", "--dry-run").stdout
    assert "removed worktree" in doctor("--clean").stdout
    assert "is used again" in doctor("--unquarantine", "local-cpu").stdout
    assert isinstance(doctor("--unquarantine", "local-cpu").exception, UserError)


def test_checkpoints_of_a_killed_rank_are_left_over_and_those_of_a_living_one_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers.tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead = tmp_path / f"paceline-checkpoints-{ended.pid}-x1_y"
    others = [
        tmp_path / f"paceline-checkpoints-{os.getpid()}-x1_y",
        tmp_path / "paceline-checkpoints-of-mine",
    ]
    for folder in (dead, *others):
        (folder / "1" / "step-00000001").mkdir(parents=True)
    found = leftovers.orphaned_checkpoints()
    assert [x.name for x in found] == [str(dead)]
    found[0].remove()
    assert not dead.exists()
    assert all(folder.is_dir() for folder in others)
