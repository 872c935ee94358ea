"""Peers are forked from a fork server: what they say arrives with its time, and how they ended is known."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.families.collectives.core.scenarios.peers import ForkServer, PeerProcess

PARTS = """
import os, signal, time

MADE = []


def prepare():
    MADE.append(os.getpid())


def play(config, say, commands):
    say("made", prepared_by=MADE[0], pid=os.getpid(), number=config["number"])
    for line in commands:
        if "raise" in line:
            raise ZeroDivisionError("as told")
        if "die" in line:
            say("struck")
            os.kill(os.getpid(), signal.SIGKILL)
        if "end" in line:
            return 3
    return 0
"""
WAIT_S = 60.0


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    folder = tmp_path_factory.mktemp("peers")
    (folder / "some_parts.py").write_text(PARTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
        yield ForkServer("some_parts", folder / "server.log")


def peer_of(fork_server: ForkServer, folder: Path, number: int = 1) -> tuple[PeerProcess, dict[str, Any]]:
    peer = PeerProcess(fork_server, {"number": number}, folder / "peer.log")
    made = peer.wait_for("made", WAIT_S)
    assert made is not None, (folder / "peer.log").read_text()
    return peer, made


def test_peers_are_forks_of_one_prepared_process(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = (peer_of(fork_server, tmp_path, number) for number in (1, 2))
    assert [made["number"] for _, made in (first, second)] == [1, 2]
    assert first[1]["prepared_by"] == second[1]["prepared_by"] not in (first[1]["pid"], second[1]["pid"])
    for peer, made in (first, second):
        assert made["said_ns"] <= made["seen_ns"] <= time.monotonic_ns()
        peer.end()


@pytest.mark.parametrize(("order", "code"), [("die", -9), ("end", 3), ("raise", 1)])
def test_how_a_peer_ended_is_told(order: str, code: int, fork_server: ForkServer, tmp_path: Path) -> None:
    peer, _ = peer_of(fork_server, tmp_path)
    assert peer.alive
    peer.command({"do": order})
    died = peer.wait_for("died", WAIT_S)
    assert died is not None
    assert died["code"] == code
    assert not peer.alive
    assert ("ZeroDivisionError: as told" in (tmp_path / "peer.log").read_text()) == (order == "raise")
    peer.end()


def test_the_others_live_on_when_one_is_killed(fork_server: ForkServer, tmp_path: Path) -> None:
    victim, other = peer_of(fork_server, tmp_path)[0], peer_of(fork_server, tmp_path)[0]
    victim.end()
    died = victim.wait_for("died", WAIT_S)
    assert died is not None
    assert died["code"] == -9
    assert other.alive
    other.command({"do": "end"})
    ended = other.wait_for("died", WAIT_S)
    assert ended is not None
    assert ended["code"] == 3


def test_parts_that_cannot_be_imported_end_the_wait(tmp_path: Path) -> None:
    peer = PeerProcess(ForkServer("no_such_parts", tmp_path / "server.log"), {}, tmp_path / "peer.log")
    assert peer.wait_for("ready", WAIT_S) is None
    assert not peer.alive
    assert "no_such_parts" in (tmp_path / "server.log").read_text()
