"""A scenario as its ranks see it: each starts its peer, rank 0 a newcomer too, and all that peers say is kept.

Peers meet through addresses that rank 0 chooses. A technique that needs a master gets one, in a process of its own.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.families.collectives.core.scenarios.peers import PeerProcess, fork_server_of, interface_address
from paceline.worker.ranks.session import CaseError, Session

_monotonic = time.monotonic
_monotonic_ns = time.monotonic_ns

READY_S = 60.0
POLL_S = 0.002
ENDS = ("end", "failed", "died")
CLOCKED = ("seen_ns", "said_ns")
"""Times of a message by the host's clock, which a rank shares with its peers: when it arrived, and when it was said."""

Message = Mapping[str, Any]
Timeline = dict[int, list[dict[str, Any]]]
"""What peers said, by their numbers; the newcomer's is the number of ranks."""


class Group:
    """This rank's peers of one scenario; call ``end`` whatever happens.

    Args:
        session: The rank.
        config: What all peers are told.
        parts: The module whose ``play`` plays their parts.
    """

    def __init__(self, session: Session, config: Mapping[str, Any], *, parts: str) -> None:
        self.session, self._fork_server = session, fork_server_of(session, parts)
        self.config: dict[str, Any] = {
            **config,
            "job": str(Path.cwd()),
            "num_peers": session.world_size,
            "interface": session.interface,
            "host": interface_address(session.interface),
        }
        self._started: list[PeerProcess] = []
        self._hosted: dict[int, PeerProcess] = {}
        self._newcomer: PeerProcess | None = None

    def meet(self, *, needs_master: bool) -> None:
        """Start the master where there is one, choose the fixed group's store, and tell all ranks.

        Raises:
            CaseError: ``crashed``: the master did not start.
        """
        shared: dict[str, Any] = {}
        # One rank chooses: addresses must be the same for all peers.
        if self.session.rank == 0:
            with socket.socket() as probe:
                # The kernel names a free port. It is free again afterwards, so another process
                # could take it before the store does.
                probe.bind((self.config["host"], 0))
                shared["store"] = [self.config["host"], probe.getsockname()[1]]
            if needs_master:
                master = self._start({**self.config, "part": "master", "peer": -1}, "master")
                found = master.wait_for("listening", READY_S)
                shared["master"] = found["address"] if found else None
        # Every rank waits for rank 0 here, and all fail together where the master has not started.
        told: dict[str, Any] = json.loads(self.session.control.gather_text(json.dumps(shared))[0])
        if needs_master and told.get("master") is None:
            raise CaseError("crashed", "the technique's master did not start")
        self.config |= told

    def start(self, own: Mapping[str, Any], late: Mapping[str, Any] | None) -> None:
        """Start this rank's peer, and on rank 0 the newcomer; wait until all are ready.

        Args:
            own: What this rank's peer is told beside the rest.
            late: What the newcomer is told; None where nobody joins.

        Raises:
            CaseError: A peer failed, or did not become ready.
        """
        rank, size = self.session.rank, self.session.world_size
        self._hosted[rank] = self._start({**self.config, **own, "peer": rank}, "peer")
        if rank == 0 and late is not None:
            self._newcomer = self._start({**self.config, **late, "peer": size}, "newcomer")
        # A peer that is missing on one rank ends the scenario on all, before anybody waits for it.
        self.session.on_all_ranks(self._await_ready)

    def _await_ready(self) -> None:
        for peer in filter(None, (*self._hosted.values(), self._newcomer)):
            said = peer.wait_for(("ready", "failed"), READY_S)
            if said is None:
                raise CaseError("crashed", "a peer did not start")
            if said["kind"] == "failed":
                raise CaseError(said["status"], f"a peer did not start: {said['reason']}")

    def follow(self, joins: Callable[[Sequence[Message]], bool], *, limit_s: float) -> Timeline:
        """Give the signs, read messages until everyone has ended, and return what this rank's peers said.

        Args:
            joins: Tells from what this rank's peer has said whether the newcomer's time has come. It comes also when
                that peer has ended. The sign is kept among the newcomer's messages, as ``signed``.
            limit_s: A group that hangs is left after so long.
        """
        rank, size = self.session.rank, self.session.world_size
        # All peers get their sign together: importing takes each of them a different time.
        self.session.control.barrier()
        self._hosted[rank].command({"go": True})
        timeline: Timeline = {number: [] for number in (rank, *((size,) if self._newcomer else ()))}
        deadline = _monotonic() + limit_s
        while _monotonic() < deadline:
            for number, peer in self._hosted.items():
                timeline[number] += peer.drain()
            waits = self._newcomer is not None and size not in self._hosted
            if waits and (joins(timeline[rank]) or over(timeline[rank])):
                assert self._newcomer is not None
                timeline[size].append({"kind": "signed", "seen_ns": _monotonic_ns()})
                self._newcomer.command({"go": True})
                self._hosted[size] = self._newcomer
            if all(over(timeline[number]) for number in self._hosted):
                break
            time.sleep(POLL_S)
        return timeline

    def gather(self, own: Timeline) -> Timeline:
        """Put together what the peers of all ranks said, on rank 0's clock."""
        # Ranks on other hosts have other clocks; differences across peers need one.
        offset = self.session.control.clock_offset_ns
        mine = {
            str(n): [m | {key: m[key] + offset for key in CLOCKED if key in m} for m in messages]
            for n, messages in own.items()
        }
        found: Timeline = {}
        for text in self.session.control.gather_text(json.dumps(mine)):
            found.update({int(n): messages for n, messages in json.loads(text).items()})
        return found

    def end(self) -> None:
        """Kill every process that is left."""
        for peer in self._started:
            peer.end()

    def _start(self, config: Mapping[str, Any], name: str) -> PeerProcess:
        log = Path("logs") / f"peer-{self.session.launch}-{self.session.rank}-{name}.log"
        self._started.append(PeerProcess(self._fork_server, config, log))
        return self._started[-1]


def over(messages: Sequence[Message]) -> bool:
    """Tell whether a peer has ended, one way or another."""
    return any(m["kind"] in ENDS for m in messages)
