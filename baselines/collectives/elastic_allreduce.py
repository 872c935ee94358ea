"""All-reduce in a group whose peers come and go.

Keiblinger et al., "Prime Collective Communications Library: Technical Report" (PCCL), arXiv 2505.14065, 2025, sections
on the master's state machine, on aborted operations, and on shared-state synchronisation.

Algorithm:
1. Every peer keeps one TCP connection to a master, which knows the members and lets everyone begin together.
2. Before an operation the peers send a hash of their state; whoever differs from the majority (a newcomer) fetches the
   state from a peer that has it. Newcomers are admitted only here, between operations.
3. The master hands out a ring; peers reduce a copy of their buffer around it over direct TCP connections.
4. A peer that loses a neighbour closes its own ring connections, so the failure runs around the ring, and reports.
5. If anyone died or failed, the master re-forms the ring from the survivors and all of them start again from the
   untouched buffer; else it commits, and only then the result is visible.

Cost of an undisturbed operation on S bytes: 2(n−1)/n · S sent by each peer, as any ring; one message to and from the
master at each of two meetings. Memory: one copy of the buffer.

Limits: two simultaneous deaths cost two retries; the master is a single point of failure.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem
from paceline.families.collectives.api.wire import Address, Connection, PeerLostError, Wire

WAIT_S = 20.0
"""Longest wait for the master: it covers the slowest peer's step."""
# Below WAIT_S: a silent ring is given up and reported before peers that wait for the master give up on it.
RING_S = 10.0


@technique(
    name="elastic-allreduce",
    family="collectives",
    implements=("churn",),
    summary="ring all-reduce that survives peers that die and admits peers that come",
    paper="pccl",
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections by the header, not read for this card",
            "code": (
                "github.com/PrimeIntellect-ai/pccl: README.md, docs/md/01_Introduction.md, parts of "
                "ccoip/src/cpp/reduce.cpp"
            ),
        },
        "deviations": (
            "One connection leads to each neighbour, where the authors have a pool (16 in their example).",
            "One operation runs at a time, and any mismatch fetches the whole state.",
            "A failure runs around the ring by closed connections; the authors' master sends an abort.",
            "The order of the ring is the master's list, and no bandwidth is measured for it.",
        ),
        "constants": {
            "WAIT_S": {"here": 20.0, "authors": "not found"},
            "RING_S": {"here": 10.0, "authors": "not found"},
        },
        "checked_by": (
            "tests/distributed/test_killed_peers.py::test_all_reduces_outlast_a_peer_too",
            "tests/conformance/test_conformance.py::test_a_technique_conforms",
        ),
    },
)
class ElasticAllReduce:
    """One peer of an elastic group."""

    def __init__(
        self,
        problem: Problem,
        wire: Wire,
        master: Address,
        peer: int,
        fixed_group: Callable[[], Comm],
    ) -> None:
        self.wire = wire
        self.peer = peer
        self.master_address = master
        self.ring = _Ring(wire, peer)

    def join(self) -> None:
        """Introduce this peer to the master; it is admitted at the next meeting between operations."""
        self.master = self.wire.connect((self.master_address[0], self.master_address[1]))
        self.master.send({"kind": "hello", "peer": self.peer, "address": list(self.wire.address)})

    def synchronise(self, state: Tensor, step: int) -> int:
        """Meet the others; fetch the state if this peer's differs, serve it to those whose differ."""
        digest = hashlib.sha256(state.numpy().tobytes()).hexdigest()
        self.master.send({"kind": "meet", "step": step, "hash": digest})
        order = self.master.receive(WAIT_S)
        while order["kind"] != "begin":
            if order["kind"] == "fetch":
                source = self.wire.connect((order["address"][0], order["address"][1]))
                source.send({"peer": self.peer, "epoch": "state"})
                source.receive_tensor(state, RING_S)
                source.close()
                self.master.send({"kind": "fetched"})
            elif order["kind"] == "serve":
                for _ in range(order["count"]):
                    target = self.ring.accept("state")
                    target.send_tensor(state)
                    target.close()
            order = self.master.receive(WAIT_S)
        return int(order["step"])

    def all_reduce(self, tensor: Tensor) -> tuple[int, ...]:
        """Reduce in place; on a failure start again with whoever is left, until the master commits."""
        self.master.send({"kind": "reduce"})
        order = self.master.receive(WAIT_S)
        while True:
            # Anew for each attempt: a broken one leaves partial sums, and a retry needs the input.
            work = tensor.clone()
            try:
                self.ring.form(order["epoch"], order["members"])
                self.ring.reduce(work)
                self.master.send({"kind": "done", "epoch": order["epoch"]})
            except PeerLostError:
                # Before the report: neighbours that wait in this ring fail at once instead of after RING_S.
                self.ring.break_up()
                self.master.send({"kind": "failed", "epoch": order["epoch"]})
            answer = self.master.receive(WAIT_S)
            if answer["kind"] == "commit":
                tensor.copy_(work)
                return tuple(member[0] for member in order["members"])
            order = answer


class _Ring:
    """Connections to the next and the previous member; re-formed whenever the membership changes."""

    def __init__(self, wire: Wire, peer: int) -> None:
        self.wire = wire
        self.peer = peer
        self.epoch: int | None = None
        self.next: Connection | None = None
        self.previous: Connection | None = None

    def form(self, epoch: int, members: list[list[Any]]) -> None:
        """Connect to the next member and accept the previous one, unless this epoch's ring stands already."""
        self.size = len(members)
        self.position = [m[0] for m in members].index(self.peer)
        # The same members as before: their connections still stand.
        if epoch == self.epoch or self.size == 1:
            return
        self.break_up()
        host, port = members[(self.position + 1) % self.size][1]
        # Everyone connects first: the listener's backlog takes it before anyone accepts, so the circle cannot deadlock.
        self.next = self.wire.connect((host, port))
        self.next.send({"peer": self.peer, "epoch": epoch})
        self.previous = self.accept(epoch)
        self.epoch = epoch

    def accept(self, epoch: int | str) -> Connection:
        """Take the next connection that belongs to this epoch; late ones of earlier epochs are turned away."""
        while True:
            connection = self.wire.accept(RING_S)
            try:
                if connection.receive(RING_S)["epoch"] == epoch:
                    return connection
            except PeerLostError:
                pass
            connection.close()

    def reduce(self, buffer: Tensor) -> None:
        """Reduce-scatter, then all-gather, around the ring."""
        n, rank = self.size, self.position
        if n == 1:
            return
        assert self.next is not None and self.previous is not None
        chunks = list(buffer.tensor_split(n))
        incoming = chunks[0].clone()
        for phase in range(2):
            for step in range(n - 1):
                outgoing, arriving = (rank - step + phase) % n, (rank - step - 1 + phase) % n
                target = incoming[: chunks[arriving].numel()] if phase == 0 else chunks[arriving]
                self.next.exchange(chunks[outgoing], self.previous, target, RING_S)
                if phase == 0:
                    chunks[arriving].add_(target)

    def break_up(self) -> None:
        """Close both connections: neighbours that still wait on them learn of the failure at once."""
        for connection in (self.next, self.previous):
            if connection is not None:
                connection.close()
        self.next = self.previous = None
        self.epoch = None


def master(wire: Wire, num_peers: int) -> None:
    """Run the group until every peer has gone; the first meeting waits for ``num_peers`` peers."""
    _Master(wire, num_peers).run()


class _Master:
    """The master's state machine: meeting, synchronisation, operation, and over again."""

    def __init__(self, wire: Wire, num_peers: int) -> None:
        self.wire = wire
        self.first = num_peers
        self.members: dict[int, Connection] = {}
        self.addresses: dict[int, list[Any]] = {}
        self.newcomers: dict[int, Connection] = {}
        self.unnamed: list[Connection] = []
        self.meeting: dict[int, dict[str, Any]] = {}
        self.epoch = 0

    def run(self) -> None:
        """Alternate between meetings and operations."""
        while self.first or self.members:
            self.meet()
            self.operate()

    def meet(self) -> None:
        """Wait until all members (at first: all expected peers) have come, admit newcomers, level their states."""
        while self.first or not all(p in self.meeting for p in self.members):
            self._listen()
            if self.first and len(self.newcomers) >= self.first and len(self.meeting) >= self.first:
                self.first = 0
                self._admit()
        self._admit()
        step = max((m["step"] for m in self.meeting.values()), default=0)
        # Only the furthest step votes: peers that lag must not outvote it, however many agree with each other.
        votes = Counter(m["hash"] for m in self.meeting.values() if m["step"] == step)
        majority = max(votes, key=lambda h: votes[h], default="")
        holders = [p for p, m in self.meeting.items() if m["hash"] == majority and m["step"] == step]
        others = [p for p in self.meeting if p not in holders]
        if others and holders:
            self._tell(holders[0], {"kind": "serve", "count": len(others)})
            for peer in others:
                self._tell(peer, {"kind": "fetch", "address": self.addresses[holders[0]]})
            self._collect({"fetched"}, set(others))
        self.meeting = {}
        for peer in list(self.members):
            self._tell(peer, {"kind": "begin", "step": step})

    def operate(self) -> None:
        """Let the members reduce until an attempt ends without a loss; commit it."""
        self._collect({"reduce"}, set(self.members))
        while self.members:
            attempt = set(self.members)
            ring = [[p, self.addresses[p]] for p in sorted(attempt)]
            for peer in sorted(attempt):
                self._tell(peer, {"kind": "ring", "epoch": self.epoch, "members": ring})
            answers = self._collect({"done", "failed"}, attempt)
            # Nobody commits alone: a peer may have finished its part of a ring that broke elsewhere.
            if set(self.members) == attempt and all(a == "done" for a in answers.values()):
                break
            self.epoch += 1
        for peer in list(self.members):
            self._tell(peer, {"kind": "commit"})

    def _admit(self) -> None:
        """Turn newcomers that are at the meeting into members; a new membership is a new epoch."""
        arrived = [p for p in self.newcomers if p in self.meeting]
        for peer in arrived:
            self.members[peer] = self.newcomers.pop(peer)
        if arrived:
            self.epoch += 1

    def _collect(self, kinds: set[str], peers: set[int]) -> dict[int, str]:
        """Wait for one message of the given kinds from each peer that stays alive."""
        answers: dict[int, str] = {}
        while any(p in self.members and p not in answers for p in peers):
            for peer, message in self._listen():
                if message["kind"] in kinds:
                    answers[peer] = message["kind"]
        return answers

    def _listen(self) -> list[tuple[int, dict[str, Any]]]:
        """Read whatever has arrived: introductions, arrivals at the meeting, answers, deaths."""
        known = {c: p for p, c in (*self.members.items(), *self.newcomers.items())}
        readable, knocking = self.wire.ready([*known, *self.unnamed], WAIT_S, listen=True)
        if knocking:
            self.unnamed.append(self.wire.accept(RING_S))
        heard: list[tuple[int, dict[str, Any]]] = []
        for connection in readable:
            try:
                message = connection.receive(RING_S)
            except PeerLostError:
                self._forget(connection)
                continue
            if message["kind"] == "hello":
                self.unnamed.remove(connection)
                self.newcomers[message["peer"]] = connection
                self.addresses[message["peer"]] = message["address"]
            elif message["kind"] == "meet":
                self.meeting[known[connection]] = message
            else:
                heard.append((known[connection], message))
        return heard

    def _forget(self, connection: Connection) -> None:
        """Remove a peer that died."""
        connection.close()
        if connection in self.unnamed:
            self.unnamed.remove(connection)
        for group in (self.members, self.newcomers):
            for peer in [p for p, c in group.items() if c is connection]:
                del group[peer]
                self.meeting.pop(peer, None)

    def _tell(self, peer: int, message: dict[str, Any]) -> None:
        connection = self.members.get(peer)
        if connection is None:
            return
        try:
            connection.send(message)
        except PeerLostError:
            self._forget(connection)


def cost(problem: Problem) -> None:
    """Return nothing: the bytes depend on who dies when; the scenario measures them."""
    return
