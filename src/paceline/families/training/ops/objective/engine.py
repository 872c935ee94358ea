"""Plays nodes in virtual time: one heap of events, one generator for each node. Free of torch.

Everything that a node is answered is kept, with a digest of what it wanted next, so that it can be run again alone.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.families.training.api.objective import (
    Gradient,
    LossAndGradient,
    Message,
    Now,
    PrivateGradient,
    Receive,
    Report,
    Run,
    Send,
    Sleep,
    Value,
    bits_of,
)
from paceline.families.training.core.apart import RefusedError, digest
from paceline.families.training.ops.objective.attacks import false
from paceline.families.training.ops.objective.paces import Paces, travel_s
from paceline.families.training.ops.objective.problems import Problem

MOST_EVENTS = 3_000_000
COMPUTED = (Gradient, LossAndGradient, Value, PrivateGradient)


@dataclass(slots=True)
class Played:
    """What happened, as the judge reads it."""

    computed: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Of each computation its node with data, its kind (place in ``COMPUTED``), begin and end."""
    sent: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    """Of each message sender, receiver, bits, when it was sent and when it arrives."""
    reports: list[tuple[int, float, int, int, Any]] = field(default_factory=list)
    """Node, instant, bits sent and values asked so far by all, and the model."""
    releases: list[tuple[int, float, float]] = field(default_factory=list)
    """Node with data, noise and clip of each release; a plain gradient or value has noise 0."""
    ended: bool = False
    """A node's generator has ended, and the others can do nothing more."""


@dataclass(slots=True)
class _Node:
    run: Run
    mailbox: deque[Message] = field(default_factory=deque)
    waits: Receive | None = None
    turn: int = 0
    """Counts what it waits for, so that an old timeout wakes nobody."""
    free_s: float = 0.0
    """When its link is."""
    alive: bool = True
    answers: list[Any] = field(default_factory=list)
    wanted: list[bytes] = field(default_factory=list)


def fixed(answer: Any) -> Any:
    """Return an answer whose arrays cannot be written: what a node was told is told again when it is run alone."""
    for part in answer if isinstance(answer, tuple) else (answer,):
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return answer


class Engine:
    """One run.

    Args:
        problem: What is optimised.
        params: Of the point.
        runs: Generators of all nodes.
        paces: Durations.
        reachable: Nodes that each may send to.
        first: The first node with data: 1 behind a server.
        seed: Of minibatches and of noise.
        leaving: When each of some nodes stops for ever.
        byzantine: Places of the nodes with data whose gradients are false.
    """

    def __init__(
        self,
        problem: Problem,
        params: Mapping[str, Any],
        runs: list[Run],
        paces: Paces,
        reachable: list[tuple[int, ...]],
        first: int,
        seed: int,
        leaving: Mapping[int, float],
        byzantine: Collection[int] = (),
    ) -> None:
        self.problem, self.params, self.paces, self.reachable = problem, params, paces, reachable
        self.first, self.leaving, self.horizon_s = first, leaving, float(params["horizon"])
        self.nodes = [_Node(run) for run in runs]
        self.rngs = [np.random.default_rng([seed, n]) for n in range(len(runs))]
        # Draws of their own: honest nodes' are the same with and without others' attacks.
        self.attackers = {place: np.random.default_rng([seed, place, 1]) for place in byzantine}
        self.played, self.now_s, self.bits, self.values = Played(), 0.0, 0, 0
        self._heap: list[tuple[float, int, int, str, Any]] = []
        self._count = 0

    def play(self) -> Played:
        """Play until the horizon.

        Raises:
            RefusedError: A node wanted what it may not have.
        """
        for number in range(len(self.nodes)):
            self._resume(number, None, starting=True)
        while self._heap:
            at_s, _, number, kind, what = heapq.heappop(self._heap)
            if at_s > self.horizon_s:
                break
            if self._count > MOST_EVENTS:
                raise RefusedError(
                    f"more than {MOST_EVENTS} events before the horizon: its nodes wait for nothing"
                )
            self.now_s = at_s
            node = self.nodes[number]
            if not node.alive or self.leaving.get(number, np.inf) <= at_s:
                node.alive = False
                continue
            if kind == "message":
                self._arrive(number, what)
            elif kind == "answer":
                self._resume(number, what)
            elif node.waits is not None and node.turn == what:
                node.waits = None
                self._resume(number, None)
        else:
            self.played.ended = True
        return self.played

    def _at(self, at_s: float, number: int, kind: str, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, number, kind, what))

    def _arrive(self, number: int, message: Message) -> None:
        node = self.nodes[number]
        if node.waits is None:
            node.mailbox.append(message)
            return
        node.waits = None
        self._resume(number, message)

    def _resume(self, number: int, answer: Any, *, starting: bool = False) -> None:
        """Give a node its answer, and do what it wants until it waits."""
        node = self.nodes[number]
        while True:
            if not starting:
                node.answers.append(answer)
            try:
                request = next(node.run) if starting else node.run.send(answer)
            except StopIteration:
                node.alive = False
                node.wanted.append(b"end")
                return
            starting = False
            node.wanted.append(digest(request) if hasattr(request, "__slots__") else b"?")
            handler = _HANDLERS.get(type(request))
            if handler is None:
                raise RefusedError(f"node {number} wanted a {type(request).__name__}, which is no request")
            waits, answer = handler(self, number, request)
            if waits:
                return

    def _compute(self, number: int, request: Any) -> tuple[bool, Any]:
        """Answer with what the own data says, once the node has computed it."""
        place = number - self.first
        if place < 0:
            raise RefusedError("the server has no data: it asked for a gradient or a value")
        at = self._model(number, request.at)
        value = isinstance(request, Value)
        took_s = self.paces.duration_s(place, self.now_s, value=value)
        rng, problem = self.rngs[number], self.problem
        answer: Any
        if isinstance(request, PrivateGradient):
            answer = self._private(number, place, request, at)
        elif value:
            self.values += 1
            answer = problem.value(place, at)
        else:
            rows = problem.pick(rng, request.minibatch)
            answer = problem.gradient(place, at, rows)
            if place in self.attackers:
                answer = false(str(self.params["attack"]), answer, self.attackers[place])
            if isinstance(request, LossAndGradient):
                answer = (problem.value(place, at, rows), answer)
        if not isinstance(request, PrivateGradient):
            self.played.releases.append((place, 0.0, 1.0))
        end_s = self.now_s + took_s
        self.played.computed.append((place, COMPUTED.index(type(request)), self.now_s, end_s))
        self._at(end_s, number, "answer", fixed(answer))
        return True, None

    def _private(self, number: int, place: int, request: PrivateGradient, at: Any) -> Any:
        if not (request.clip > 0.0 and request.noise >= 0.0):
            raise RefusedError(
                f"node {number} wanted a clip of {request.clip} and a noise of {request.noise}"
            )
        each = self.problem.each_gradient(place, at)
        if request.before is not None:
            each = each - self.problem.each_gradient(place, self._model(number, request.before))
        norms = np.linalg.norm(each, axis=1, keepdims=True)
        clipped = each * np.minimum(1.0, request.clip / np.maximum(norms, 1e-300))
        deviation = request.noise * request.clip / self.problem.samples
        self.played.releases.append((place, float(request.noise), float(request.clip)))
        return clipped.mean(axis=0) + deviation * self.rngs[number].standard_normal(self.problem.dim)

    def _model(self, number: int, at: Any) -> Any:
        if not isinstance(at, np.ndarray) or at.shape != (self.problem.dim,) or at.dtype != np.float64:
            raise RefusedError(
                f"node {number} asked about what is no model of {self.problem.dim} numbers in float64"
            )
        if not np.isfinite(at).all():
            raise RefusedError(f"node {number} has diverged: its model has numbers that are not finite")
        return at

    def _send(self, number: int, request: Send) -> tuple[bool, Any]:
        if request.to not in self.reachable[number]:
            raise RefusedError(f"node {number} sent to {request.to!r}, which is none of its neighbours")
        parts: Any = request.parts  # of a technique's making: its type is what it says
        if not isinstance(parts, tuple) or not all(
            type(p) is np.ndarray and p.dtype.kind in "fiub" for p in parts
        ):
            raise RefusedError(f"node {number} sent something else than arrays of numbers")
        bits = bits_of(request.parts)
        self.bits += bits
        busy_s, travels_s = travel_s(self.params, bits)
        node = self.nodes[number]
        node.free_s = max(node.free_s, self.now_s) + busy_s
        at_s = node.free_s + travels_s
        copies = tuple(fixed(p.copy()) for p in parts)
        self.played.sent.append((number, request.to, bits, self.now_s, at_s))
        self._at(at_s, request.to, "message", Message(sender=number, parts=copies, at_s=at_s))
        return False, None

    def _receive(self, number: int, request: Receive) -> tuple[bool, Any]:
        node = self.nodes[number]
        if request.until_s is not None and request.until_s < self.now_s:
            raise RefusedError(
                f"node {number} would wait until {request.until_s:g} s, and it is {self.now_s:g} s"
            )
        if node.mailbox:
            return False, node.mailbox.popleft()
        node.waits, node.turn = request, node.turn + 1
        if request.until_s is not None:
            self._at(float(request.until_s), number, "timeout", node.turn)
        return True, None

    def _sleep(self, number: int, request: Sleep) -> tuple[bool, Any]:
        if request.until_s < self.now_s:
            raise RefusedError(
                f"node {number} would sleep until {request.until_s:g} s, and it is {self.now_s:g} s"
            )
        self._at(float(request.until_s), number, "answer", None)
        return True, None

    def _now(self, number: int, request: Now) -> tuple[bool, Any]:
        return False, self.now_s

    def _report(self, number: int, request: Report) -> tuple[bool, Any]:
        model = self._model(number, request.model)
        self.played.reports.append((number, self.now_s, self.bits, self.values, model.copy()))
        return False, None


_HANDLERS: Mapping[type, Callable[[Engine, int, Any], tuple[bool, Any]]] = {
    **dict.fromkeys(COMPUTED, Engine._compute),
    Send: Engine._send,
    Receive: Engine._receive,
    Sleep: Engine._sleep,
    Now: Engine._now,
    Report: Engine._report,
}
