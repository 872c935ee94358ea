"""Several nodes that execute one job: who is there, what the head calls for, and how each node's share ended.

Nodes share the job folder and talk through small files in ``nodes/SESSION``; every file is written once, whole, by one
node. Node 0 is the head: it keeps the books, and for every attempt it names the address at which torch's elastic agents
meet. The others follow: each starts its ranks and says how they ended.

    here-N.json           node N has come: the name by which others reach it
    network.json          the head's address
    CALL.json             an attempt: group, launch, attempt, address and port
    CALL.N.json           how node N's ranks ended in it
    end                   the head has finished
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.base.root_cause import with_fix

POLL_S = 0.1
BEAT_S = 2.0
LOST_HEAD_S = 120.0
"""Silence after which a node takes the head for dead; shared folders may show files late."""
STOP_FILE = "stop"
"""In a job folder: every launcher that still runs there ends."""
STOPPED_EXIT_CODE = 3
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which node of how many this one is."""

    node: int = 0
    num_nodes: int = 1
    session: str = ""
    """Names one submission of the job, so that what an earlier one left is not taken for this one's."""
    host: str = ""
    """The name by which other nodes reach this one; empty where that is the host's own name."""

    def ranks(self, num_ranks: int) -> range:
        """Return the ranks that live here: spread evenly, in order of nodes."""
        used = min(num_ranks, self.num_nodes)
        if self.node >= used:
            return range(0)
        share, more = divmod(num_ranks, used)
        first = self.node * share + min(self.node, more)
        return range(first, first + share + (self.node < more))


def place_from_environment(environment: Mapping[str, str]) -> Place:
    """Return this launcher's place; one that was started alone is the only node."""
    return Place(
        node=int(environment.get("PACELINE_NODE") or 0),
        num_nodes=int(environment.get("PACELINE_NODES") or 1),
        session=environment.get("PACELINE_SESSION", ""),
        host=environment.get("PACELINE_HOST", ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt, and where its agents meet."""

    group: str
    launch: int
    attempt: int
    num_nodes: int
    """The nodes that have ranks in it."""
    node: int
    address: str
    port: int

    @property
    def name(self) -> str:
        """The stem of its files."""
        return f"{self.group}-{self.launch}-{self.attempt}"


class Meeting:
    """The files through which the nodes of one session talk."""

    def __init__(self, job: Path, place: Place) -> None:
        self.job = job
        self.place = place
        self.folder = job / "nodes" / (place.session or "alone")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._host = place.host or socket.gethostname()
        self.address = ""

    def gather(self, limit_s: float, interface: str | None) -> None:
        """As the head, wait for all nodes and agree on an address.

        Args:
            limit_s: Longest wait.
            interface: The interface of the harness's messages where the profile names one.

        Raises:
            InfrastructureError: Nodes did not come.
        """
        self._write("here-0.json", {"host": self._host})
        hosts = {0: self._host}
        deadline = time.monotonic() + limit_s
        while missing := [n for n in range(self.place.num_nodes) if n not in hosts]:
            for node in missing:
                found = self._read(f"here-{node}.json")
                if found is not None:
                    hosts[node] = found["host"]
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"node {missing[0]} did not come within {limit_s:g} s; here are {sorted(hosts.items())}\n"
                    f"  expected: the same job folder on all nodes, at {self.job}"
                )
            time.sleep(POLL_S)
        others = [host for host in hosts.values() if host != hosts[0]]
        try:
            self.address = interface_address(interface) if interface else _address_by(deadline, others)
        except OSError as error:
            said = f"no address of interface '{interface}' on {socket.gethostname()}: {error}"
            raise InfrastructureError(with_fix(said)) from error
        self._write("network.json", {"address": self.address})

    def join(self) -> None:
        """As another node, say that this one is here, and wait for the head's address."""
        self._write(f"here-{self.place.node}.json", {"host": self._host})
        while (found := self._read("network.json")) is None:
            time.sleep(POLL_S)
        self.address = found["address"]

    def call(self, group: str, num_ranks: int, launch: int, attempt: int) -> Call:
        """As the head, ask all nodes that get ranks to start an attempt."""
        call = Call(
            group=group,
            launch=launch,
            attempt=attempt,
            num_nodes=min(num_ranks, self.place.num_nodes),
            node=0,
            address=self.address,
            port=_free_port(self.address),
        )
        self._write(f"{call.name}.json", {"num_nodes": call.num_nodes, "port": call.port})
        return call

    def next_call(self, known: set[str]) -> Call | None:
        """As another node, wait for a call that is not known yet; None when the head has finished."""
        while True:
            for path in sorted((self.job / "attempts").glob("*-*-*.json")):
                found = None if path.stem in known else self._read(path.name)
                if found is not None:
                    group, launch, attempt = path.stem.rsplit("-", 2)
                    return Call(
                        group=group,
                        launch=int(launch),
                        attempt=int(attempt),
                        num_nodes=found["num_nodes"],
                        node=self.place.node,
                        address=self.address,
                        port=found["port"],
                    )
            if (self.folder / "end").exists():
                return None
            time.sleep(POLL_S)

    def tell(self, call: Call, ending: Mapping[str, Any]) -> None:
        """Say how this node's ranks ended."""
        self._write(f"{call.name}.{call.node}.json", ending)

    def told(self, call: Call) -> dict[int, dict[str, Any]]:
        """Return what other nodes have said about a call."""
        others = (n for n in range(call.num_nodes) if n != call.node)
        said = {n: self._read(f"{call.name}.{n}.json") for n in others}
        return {n: text for n, text in said.items() if text is not None}

    def wait_for_all(self, call: Call, limit_s: float) -> dict[int, dict[str, Any]]:
        """Return how the other nodes' ranks ended; a node that says nothing in time is missing."""
        deadline = time.monotonic() + limit_s
        while len(said := self.told(call)) < call.num_nodes - 1 and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return said

    def end(self) -> None:
        """As the head, send the other nodes home."""
        (self.folder / "end").touch()

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        temporary = self.folder / f".{name}.{self.place.node}"
        temporary.write_text(json.dumps(data))
        temporary.replace(self.folder / name)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return None
        return dict(found)


class Lifeline(threading.Thread):
    """Ends this launcher, and so its ranks, when it is told to stop or when the head is gone."""

    def __init__(self, meeting: Meeting) -> None:
        super().__init__(name="lifeline", daemon=True)
        self._meeting = meeting
        self._beat = meeting.folder / "alive"

    def run(self) -> None:
        """Beat as the head, listen as another node."""
        count, heard, heard_at = 0, "", time.monotonic()
        while True:
            if (self._meeting.job / STOP_FILE).exists():
                os._exit(STOPPED_EXIT_CODE)
            with contextlib.suppress(OSError):
                if self._meeting.place.node == 0:
                    count += 1
                    self._beat.write_text(str(count))
                elif (text := self._beat.read_text()) != heard:
                    heard, heard_at = text, time.monotonic()
            if self._meeting.place.node and time.monotonic() - heard_at > LOST_HEAD_S:
                os._exit(STOPPED_EXIT_CODE)
            time.sleep(BEAT_S)


def address_towards(hosts: list[str]) -> str:
    """Return the address from which this host reaches the first of others; the loopback's when there are none."""
    if not hosts:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((hosts[0], 9))
        except OSError as error:
            raise InfrastructureError(f"no way from {socket.gethostname()} to {hosts[0]}: {error}") from error
        return str(probe.getsockname()[0])


def _address_by(deadline: float, hosts: list[str]) -> str:
    """Return the address towards other hosts, whose names may be known a little later than they are there.

    Kubernetes publishes the names of pods once it has told its name servers, some of which first remember that a name
    was not there.
    """
    while True:
        try:
            return address_towards(hosts)
        except InfrastructureError as error:
            if not isinstance(error.__cause__, socket.gaierror) or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def interface_towards(address: str) -> str | None:
    """Return the interface over which this host reaches an address; None when it has no name here."""
    own = address_towards([address])
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            if interface_address(name) == own:
                return name
    return None


def interface_address(name: str) -> str:
    """Return the IPv4 address of an interface.

    Raises:
        OSError: There is no such interface, or it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])


def _free_port(address: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
