"""Judges a group that trained, from what its peers said and when this was seen: who went on, how soon, and rightly?

Everything here is a function of messages. Those about weights come from the family's own code in the peers, beside the
technique: ``round`` after a meeting, ``step`` after a local step, ``exchange`` before and ``done`` after an exchange,
with the steps done, a digest and a sketch of the weights; ``done`` names the members as the technique does. ``struck``
is said in the instant before the kill. What ends is timed by the rank's clock, when the message arrives; what had been
done at the kill is told by when it was said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.families.training.api.rounds import ends_round
from paceline.families.training.ops.churn.script import Script
from paceline.worker.ranks.session import CaseError
from paceline.worker.timing.interleaved import median

SIGKILL = -9
OUTER_TOLERANCE = 1e-5
"""Distance of an exchange's result from the outer step in float64, over the norm of the weights, in their sketches.
Float32 gives 4·10⁻⁸; a member whose work is left out, 7·10⁻² in a first round."""

Messages = Sequence[Mapping[str, Any]]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a run was to be."""

    num_peers: int
    """Those that begin; the newcomer's number."""
    steps: int
    sync_every: int
    outer_rate: float
    outer_momentum: float
    script: Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange, with the steps that had been done."""

    step: int
    members: tuple[int, ...]
    digest: str
    done_ns: Mapping[int, int]
    """When each peer had its result."""


class CheckedRun:
    """What a group did, checked.

    Args:
        rules: What it was to do.
        peers: Messages by peer, on one clock.

    Raises:
        CaseError: ``refused`` or ``crashed``: a peer broke the contract, or failed where nobody was killed.
            ``invalid``: the fault did not strike. ``incorrect``: what the technique did or said is wrong.
    """

    def __init__(self, rules: Rules, peers: Mapping[int, Messages]) -> None:
        self.rules, self.peers = rules, peers
        script = rules.script
        self.survivors = [n for n in range(rules.num_peers) if n != script.victim]
        self.failures = {n: str(m["reason"]) for n, ms in peers.items() for m in ms if m["kind"] == "failed"}
        self._refuse_failures()
        check_steps(rules, peers)
        self.killed_ns = self._killed_ns()
        self.exchanges = [self._exchange(step) for step in self._ends()]
        check_rounds(self.exchanges, peers)
        self.error = check_outer_steps(rules, self.exchanges, peers)
        """Largest distance of an exchange's result from the outer step, over the norm of the weights."""
        last = [e for e in self.exchanges if e.step == rules.steps]
        self.survived = bool(last) and set(self.survivors) <= set(last[0].done_ns)
        """Whether all survivors, with the processes that they had, did every step and exchange."""

    def _refuse_failures(self) -> None:
        for messages in self.peers.values():
            for m in messages:
                if m["kind"] == "failed" and m.get("status", "crashed") != "crashed":
                    raise CaseError(m["status"], str(m["reason"]))
        early = [n for n in range(self.rules.num_peers) if not of_kind(self.peers[n], "done")]
        if early:
            reason = self.failures.get(early[0], "it did not say why")
            raise CaseError("crashed", f"peer {early[0]} came to no exchange: {reason}")
        if self.rules.script.victim < 0 and self.failures:
            peer = min(self.failures)
            raise CaseError("crashed", f"peer {peer}, with nobody killed: {self.failures[peer]}")

    def _killed_ns(self) -> int | None:
        if self.rules.script.victim < 0:
            return None
        messages = self.peers[self.rules.script.victim]
        deaths = [int(m["seen_ns"]) for m in messages if m["kind"] == "died" and m["code"] == SIGKILL]
        if not deaths or of_kind(messages, "end") or of_kind(messages, "failed"):
            raise CaseError("invalid", "the victim was not killed: the fault did not strike")
        struck = of_kind(messages, "struck")
        return int(struck[0]["said_ns"]) if struck else deaths[0]

    def _ends(self) -> list[int]:
        return sorted({m["step"] for ms in self.peers.values() for m in of_kind(ms, "done")})

    def _exchange(self, step: int) -> Exchange:
        told = {n: m for n, ms in self.peers.items() for m in of_kind(ms, "done") if m["step"] == step}
        came = {n for n, ms in self.peers.items() for m in of_kind(ms, "exchange") if m["step"] == step}
        named = {tuple(sorted(m["members"])) for m in told.values()}
        if len(named) > 1:
            raise CaseError("incorrect", f"peers name different members of the exchange after step {step}")
        members = named.pop()
        for peer in (*members, *told):
            if peer not in came:
                raise CaseError("incorrect", f"peer {peer} took no part in the exchange after step {step}")
            if peer not in members:
                raise CaseError("incorrect", f"the exchange after step {step} leaves out peer {peer}")
        digests = {m["digest"] for m in told.values()}
        if len(digests) > 1:
            raise CaseError("incorrect", f"peers hold different weights after step {step}")
        done = {n: int(m["seen_ns"]) for n, m in told.items()}
        return Exchange(step=step, members=members, digest=digests.pop(), done_ns=done)

    @property
    def recovered(self) -> Exchange | None:
        """The first exchange without the victim that was complete on all survivors."""
        victim = self.rules.script.victim
        found = (
            e for e in self.exchanges if victim not in e.members and set(self.survivors) <= set(e.done_ns)
        )
        return next(found, None) if victim >= 0 else None

    def recovery(self) -> tuple[int, float] | None:
        """Return the steps and seconds from the kill to that exchange, on the survivor that needed most.

        The step that a survivor was in at the kill counts; one that ends a round is in it until its exchange is done.
        """
        found, killed = self.recovered, self.killed_ns
        if found is None or killed is None:
            return None
        steps = max(found.step - self._completed(n, killed) for n in self.survivors)
        return steps, max(found.done_ns[n] - killed for n in self.survivors) * 1e-9

    def _completed(self, peer: int, at_ns: int) -> int:
        """Return the steps that a peer had completed at a time."""
        rules = self.rules
        counts = [
            m["step"]
            for m in self.peers[peer]
            if m.get("said_ns", m["seen_ns"]) <= at_ns
            and (m["kind"] == "done" or (m["kind"] == "step" and not ends(rules, m["step"])))
        ]
        return max(counts, default=0)

    def join_s(self) -> float | None:
        """Return the seconds from the newcomer's call to the first exchange that its weights are in."""
        messages = self.peers.get(self.rules.num_peers, ())
        called = [int(m["seen_ns"]) for m in of_kind(messages, "signed")]
        done = [e.done_ns[self.rules.num_peers] for e in self.exchanges if self.rules.num_peers in e.done_ns]
        return (min(done) - called[0]) * 1e-9 if called and done and self.survived else None

    @property
    def parity(self) -> bool:
        """Whether survivors and newcomer ended with the same weights."""
        last = self.exchanges[-1]
        wanted = {*self.survivors, *((self.rules.num_peers,) if self.rules.script.victim >= 0 else ())}
        return self.survived and wanted <= set(last.done_ns)

    def round_s(self) -> float | None:
        """Return the median seconds of a round of peer 0 before anybody was killed, the first left out."""
        until = math.inf if self.killed_ns is None else self.killed_ns
        times = [e.done_ns[0] for e in self.exchanges if e.done_ns.get(0, math.inf) <= until]
        spans = [(b - a) * 1e-9 for a, b in pairwise(times)]
        return median(spans) if spans else None


def of_kind(messages: Messages, kind: str) -> list[Mapping[str, Any]]:
    """Return the messages of a kind."""
    return [m for m in messages if m["kind"] == kind]


def ends(rules: Rules, done: int) -> bool:
    """Tell whether a round ends when so many steps are done."""
    return ends_round(done - 1, rules.sync_every, rules.steps)


def check_steps(rules: Rules, peers: Mapping[int, Messages]) -> None:
    """Hold the steps that peers were told at meetings against those that they had done."""
    for peer, messages in peers.items():
        begun = peer == rules.num_peers
        had = 0
        for m in messages:
            if m["kind"] == "done":
                had = m["step"]
            if m["kind"] != "round":
                continue
            first_of_newcomer, begun = begun, False
            if m["step"] != had and not first_of_newcomer:
                text = f"peer {peer} was told that {m['step']} steps are done when it had done {had}"
                raise CaseError("incorrect", text)


def check_rounds(exchanges: Sequence[Exchange], peers: Mapping[int, Messages]) -> None:
    """Hold the weights with which peers begin a round against those of the exchange before it."""
    known = {0: of_kind(peers[0], "round")[0]["digest"]} | {e.step: e.digest for e in exchanges}
    for peer, messages in peers.items():
        for m in of_kind(messages, "round"):
            if m["step"] not in known:
                text = f"peer {peer} begins a round after step {m['step']}, where the group had none"
                raise CaseError("incorrect", text)
            if m["digest"] != known[m["step"]]:
                text = f"peer {peer} begins the round after step {m['step']} with weights that are not the group's"
                raise CaseError("incorrect", text)


def check_outer_steps(rules: Rules, exchanges: Sequence[Exchange], peers: Mapping[int, Messages]) -> float:
    """Hold every exchange against the outer step on the mean of its members' weights, in sketches.

    Returns:
        The largest distance over the norm.
    """
    error = 0.0
    local = {
        (n, m["step"]): np.array(m["sketch"]) for n, ms in peers.items() for m in of_kind(ms, "exchange")
    }
    after = {m["step"]: np.array(m["sketch"]) for ms in peers.values() for m in of_kind(ms, "done")}
    weights: Vector = np.array(of_kind(peers[0], "round")[0]["sketch"])
    momentum = np.zeros_like(weights)
    for e in exchanges:
        mean = np.mean([local[peer, e.step] for peer in e.members], axis=0)
        momentum = rules.outer_momentum * momentum + (weights - mean)
        due = weights - rules.outer_rate * (weights - mean + rules.outer_momentum * momentum)
        off = float(np.linalg.norm(after[e.step] - due) / np.linalg.norm(due))
        if not off <= OUTER_TOLERANCE:
            names = ", ".join(map(str, e.members))
            text = f"after step {e.step} the weights are {off:.1e} from the outer step on the mean of peers {names}"
            raise CaseError("incorrect", text)
        weights, error = after[e.step], max(error, off)
    return error
