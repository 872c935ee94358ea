"""Servers that a command of the shell starts: each is the one that was asked for, and is gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.base.errors import EXIT_USAGE, UserError
from paceline.cli import application
from paceline.families.serving.ops.endpoint.served import (
    NoServerError,
    TakenError,
    served,
    shell_line,
    variables_of_commands,
)
from paceline.families.serving.ops.endpoint.target import Side, side_of
from paceline.workflows.load import DEFAULTS

STUB = Path(__file__).parent.parent / "openai_stub.py"
LONG_S = 30.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def comes_to(port: int, *, answered: bool) -> bool:
    end = time.monotonic() + LONG_S
    while answers(port) != answered and time.monotonic() < end:
        time.sleep(0.05)
    return answers(port) == answered


def side(port: int, start: str, **options: object) -> Side:
    told = {"url": f"http://127.0.0.1:{port}/v1", "model": "", "api": "completions", "tokens_per_word": 1.0}
    return side_of({**DEFAULTS, **told, "start": start, **options})


def stub(port: int) -> str:
    return f"{sys.executable} {STUB} {port} 0"


@pytest.mark.parametrize("line", ["{}", "A=1 {}", "cd / && {}", "{} & wait", "exec {}", "true; ( {} )"])
def test_a_line_of_the_shell_starts_a_server_and_all_of_it_is_ended(tmp_path: Path, line: str) -> None:
    port = free_port()
    with served(side(port, line.format(stub(port))), tmp_path / "log"):
        assert answers(port)
    assert not answers(port)


@pytest.mark.parametrize(
    ("command", "whole"),
    [
        ("vllm serve m --port 8000", True),
        ("""vllm serve m --config '{"a": "b & c"}'""", True),
        ("docker run -p 80:80 'x;y'", True),
        ("A=1 vllm serve m", False),
        ("cd /m && vllm serve m", False),
        ("vllm serve m & wait", False),
        ("( vllm serve m )", False),
        ("vllm serve m; true", False),
        ("vllm serve m | tee log", False),
        ("vllm serve 'm", False),
        ("a\nb", False),
        ("", False),
    ],
)
def test_the_shell_hands_its_process_to_a_single_program_alone(command: str, whole: bool) -> None:
    assert shell_line(command) == (f"exec {command}" if whole else command)


def test_a_server_that_answers_there_already_is_not_taken_for_the_one_that_is_started(tmp_path: Path) -> None:
    port, other = free_port(), tmp_path / "started"
    with served(side(port, stub(port)), tmp_path / "log"):
        with (
            pytest.raises(TakenError, match="somebody answers"),
            served(side(port, f"touch {other}"), tmp_path / "second"),
        ):
            raise AssertionError("another server was given")
        told = CliRunner().invoke(application, ["load", f"http://127.0.0.1:{port}", "--start", "sleep 9"])
        assert isinstance(told.exception, UserError) and told.exception.exit_code == EXIT_USAGE
        assert "somebody answers" in str(told.exception) and "--stop=COMMAND" in str(told.exception)
    assert not other.exists()


def test_what_leaves_its_group_is_ended_by_its_own_command(tmp_path: Path) -> None:
    port, number = free_port(), tmp_path / "number"
    start = f"setsid {stub(port)} & echo $! > number; wait"
    with served(side(port, start, stop="kill $(cat number)", folder=str(tmp_path)), tmp_path / "log"):
        assert answers(port) and number.exists()
    assert not answers(port)


@pytest.mark.parametrize(
    ("start", "says", "words"),
    [
        ("echo no memory; exit 7", "ended with 7", "no memory"),
        ("no-such-program serve", "ended with 127", "no-such-program"),
        ("vllm 'serve", "ended with", ""),
        ("sleep 60", "gave no server", ""),
    ],
)
def test_a_command_that_gives_no_server_is_told_with_its_last_words(
    tmp_path: Path, start: str, says: str, words: str
) -> None:
    asked = side(free_port(), start, ready="1s")
    with pytest.raises(NoServerError, match=says) as told, served(asked, tmp_path / "log"):
        raise AssertionError("a server was given")
    assert words in (told.value.last_words or "")


def test_the_command_line_shows_what_a_command_wrote_that_gave_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_SOMETHING", "1")
    command = ["load", f"http://127.0.0.1:{free_port()}", "--start", "echo no memory; exit 7"]
    told = CliRunner().invoke(application, command)
    assert isinstance(told.exception, UserError)
    assert "no memory" in str(told.exception) and "paceline-load-start.log" in str(told.exception)
    assert "starting 'echo no memory; exit 7'; it has 10min" in told.output
    assert "does not get VLLM_SOMETHING of this shell" in told.output


def test_too_few_launches_are_refused_before_a_server_is_started(tmp_path: Path) -> None:
    started, port = tmp_path / "started", free_port()
    address = f"http://127.0.0.1:{port}"
    command = ["load", address, address, "--start", f"touch {started}", "--launches", "3"]
    told = CliRunner().invoke(application, command)
    assert isinstance(told.exception, UserError) and "3 launches tell no two servers apart" in str(
        told.exception
    )
    assert not started.exists()


def test_commands_get_the_same_variables_in_the_first_look_and_in_a_rank() -> None:
    shell = {"PATH": "/bin", "VLLM_X": "1", "HF_TOKEN": "secret", "CUDA_VISIBLE_DEVICES": "0"}
    rank = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/job/src"}
    rank |= {"PYTHON": "/bin/python", "USER": "root", "PACELINE_ISOLATION": "auto"}
    assert variables_of_commands(shell) == variables_of_commands(rank)
    assert variables_of_commands(shell) == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"}


STARTER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_started_servers import served, side
with served(side({port}, {start!r}, stop={stop!r}, folder={folder!r}), Path({folder!r}, "log")):
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("start", "stop", "number"),
    [
        ("{} & wait", "", signal.SIGKILL),
        ("{} & wait", "", signal.SIGHUP),
        ("setsid {} & echo $! > number; wait", "kill $(cat number)", signal.SIGKILL),
    ],
)
def test_a_server_ends_with_whoever_had_it_started_however_that_ends(
    tmp_path: Path, start: str, stop: str, number: signal.Signals
) -> None:
    port = free_port()
    tests = str(Path(__file__).parent)
    text = STARTER.format(
        tests=tests, port=port, start=start.format(stub(port)), stop=stop, folder=str(tmp_path)
    )
    starter = subprocess.Popen([sys.executable, "-c", text])
    try:
        assert comes_to(port, answered=True)
        os.kill(starter.pid, number)
        starter.wait()
        assert comes_to(port, answered=False)
    finally:
        starter.kill()
        starter.wait()
