"""Plays a workload on a deployment in virtual time; requests, memory and steps are the engine's own bookkeeping.

Time jumps from event to event: an arrival, the end of a step, the end of a transfer. A step's work is what the table of
costs says, in seconds of a whole device; it proceeds at the share of the device that its worker has. A link carries
one transfer after another. Nothing here decides anything: who computes what, where and with which share is the
technique's, and what it may not ask for ends the play with ``RefusedStepError``.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.base.counting import number_of
from paceline.families.serving.api.costs import Piece, StepCosts
from paceline.families.serving.api.deploying import Busy, Deployment, Given, Layout, Load
from paceline.families.serving.core.engine.blocks import beginnings
from paceline.families.serving.core.engine.core import Engine, Output, RefusedStepError, Work, facts
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.log import DoneStep, Log, Part, Token, Transfer
from paceline.families.serving.core.simulation.sessions import answer_token

MOST_STEPS = 2_000_000
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What memories exchange keys and values over; one for each pair and direction."""

    bytes_per_s: float
    delay_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Slot:
    """A worker, and the step that it computes."""

    number: int
    memory: int
    device: int
    work: list[Work] = field(default_factory=list)
    left_s: float = 0.0
    """Seconds of a whole device that are missing."""
    share: float = 0.0
    since_s: float = 0.0
    """When its share last changed."""
    ends_s: float = math.inf
    step: DoneStep | None = None


@dataclass(slots=True, kw_only=True)
class _Moving:
    """A request between two memories."""

    call: int
    number: int
    source: int
    target: int
    tokens: int
    size_bytes: int
    begin_s: float
    sent_s: float


class Cluster:
    """A deployment in virtual time.

    Args:
        deployment: The technique.
        given: What there is.
        costs: Of steps.
        link: Between memories.
    """

    def __init__(self, deployment: Deployment, given: Given, costs: StepCosts, link: Link) -> None:
        self._deployment, self._given, self._costs, self._link = deployment, given, costs, link
        self._layout = deployment.layout(given)
        check_layout(self._layout, given)
        self._engines = [self._engine(m) for m in range(len(self._layout.memories))]
        self._slots = [
            _Slot(number=n, memory=w.memory, device=self._layout.memories[w.memory].device)
            for n, w in enumerate(self._layout.workers)
        ]
        self._calls: list[dict[int, int]] = [{} for _ in self._engines]
        self._coming: list[tuple[float, int, Call]] = []
        self._waiting: dict[int, list[Call]] = {}
        self._missing: dict[int, int] = {}
        self._promised: list[Counter[int]] = [Counter() for _ in self._engines]
        self._promises: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._moving: list[_Moving] = []
        self._free_at: dict[tuple[int, int], float] = {}
        self.now_s = 0.0
        self.log = Log(
            memories=[(m.device, m.blocks) for m in self._layout.memories],
            workers=[(w.memory, w.phase) for w in self._layout.workers],
        )

    def _engine(self, memory: int) -> Engine:
        """Return the bookkeeping of one memory, with the steps that its workers may plan."""
        given, layout = self._given, self._layout
        budgets = [w.token_budget or given.token_budget for w in layout.workers if w.memory == memory]
        engine = Engine(
            next(w.scheduler for w in layout.workers if w.memory == memory),
            lambda work: [],
            num_blocks=layout.memories[memory].blocks,
            block_size=given.block_size,
            max_batch=given.max_batch,
            token_budget=max(budgets),
        )
        # The memory decides and not a scheduler: its workers may have several, which must see one cache.
        engine.blocks.sharing = layout.memories[memory].shares_prefixes
        return engine

    def play(self, calls: Sequence[Call]) -> Log:
        """Serve calls until all are served; those that wait for others come when these have ended.

        Raises:
            RefusedStepError: The technique asked for what it may not, or stops with requests unserved.
        """
        self._expect(calls)
        unserved = len(calls)
        # Arrivals, then transfers, then new steps, then shares: each may depend on those before it at the same
        # instant.
        for _ in range(MOST_STEPS):
            while self._coming and self._coming[0][0] <= self.now_s:
                due_s, _, call = heapq.heappop(self._coming)
                self._take_in(call, due_s)
            self._settle()
            for slot in self._slots:
                if not slot.work:
                    self._begin(slot)
            self._divide()
            if not unserved:
                break
            ahead = [s.ends_s for s in self._slots] + [
                m.sent_s for m in self._moving if m.sent_s > self.now_s
            ]
            next_s = min([*ahead, *(due_s for due_s, _, _ in self._coming[:1])])
            # Nothing will ever end, so nobody will ever be asked again: the technique has stopped.
            if math.isinf(next_s):
                raise RefusedStepError(
                    f"the deployment computes nothing though {number_of(unserved, 'request waits', 'requests wait')}"
                )
            self.now_s = next_s
            for slot in self._slots:
                if slot.ends_s <= self.now_s:
                    unserved -= self._end(slot)
        else:
            raise RefusedStepError(
                f"{number_of(unserved, 'request is', 'requests are')} unserved after {MOST_STEPS} events"
            )
        self.log.counters = [dict(facts(e.counters)) for e in self._engines]
        for engine in self._engines:
            engine.check()
        return self.log

    def _expect(self, calls: Sequence[Call]) -> None:
        """Note when calls come, or for whom they wait."""
        for call in calls:
            self._missing[call.number] = len(set(call.after))
            for other in set(call.after):
                self._waiting.setdefault(other, []).append(call)
            if not call.after:
                heapq.heappush(self._coming, (call.at_s or 0.0, call.number, call))

    def _ended(self, number: int) -> None:
        """Let those come that waited for a call."""
        for call in self._waiting.get(number, ()):
            self._missing[call.number] -= 1
            if not self._missing[call.number]:
                heapq.heappush(self._coming, (self.now_s + call.pause_s, call.number, call))
        # From routing to the last token: as long as it runs, its beginning is in that memory or will be.
        memory, chain = self._promises.pop(number)
        self._promised[memory].subtract(chain)

    def _take_in(self, call: Call, due_s: float) -> None:
        """Let the technique say where a request goes."""
        assert isinstance(call.prompt, tuple)
        chain = beginnings(call.prompt, self._given.block_size)
        memory = self._deployment.route(call.tenant, len(call.prompt), self._loads(call.prompt, chain))
        self._known(memory, "route")
        self._promises[call.number] = (memory, chain)
        self._promised[memory].update(chain)
        try:
            number = self._engines[memory].submit(
                call.prompt, call.output_tokens, tenant=call.tenant, now_s=due_s
            )
        except ValueError as error:
            raise RefusedStepError(
                f"call {call.number} cannot be served in memory {memory}: {error}"
            ) from error
        self._calls[memory][number] = call.number

    def _known(self, memory: object, what: str) -> None:
        if type(memory) is not int or not 0 <= memory < len(self._engines):
            raise RefusedStepError(f"{what} names memory {memory!r}; there are {len(self._engines)}")

    def _loads(self, prompt: Sequence[int] = (), chain: Sequence[int] = ()) -> list[Load]:
        loads = []
        for place, engine in enumerate(self._engines):
            coming = sum(m.target == place for m in self._moving)
            found = len(engine.blocks.find(prompt)) * engine.blocks.block_size if prompt else 0
            promised = 0
            if engine.blocks.sharing:
                # Up to the first gap: a block is of use only behind all that come before it.
                while promised < len(chain) and self._promised[place][chain[promised]] > 0:
                    promised += 1
            waiting, running, missing = engine.totals()
            loads.append(
                Load(
                    waiting=waiting + coming,
                    running=running,
                    # A request on its way has its prompt computed and misses one token.
                    missing_tokens=missing + coming,
                    free_blocks=engine.blocks.num_free,
                    cached_tokens=found,
                    coming_tokens=max(found, promised * engine.blocks.block_size),
                )
            )
        return loads

    def _begin(self, slot: _Slot) -> None:
        """Let a worker plan its next step, if it sees anybody; a step that only makes room is planned again."""
        worker, engine = self._layout.workers[slot.number], self._engines[slot.memory]
        budget = worker.token_budget or self._given.token_budget
        # A second look for a step that only preempted: what it has freed can be given out at once, as in the engine's
        # next step.
        for _ in range(2):
            seen = engine.num_seen(worker.phase)
            if not seen:
                return
            before = engine.counters.preemptions
            work = engine.begin(self.now_s, worker.scheduler, worker.phase)
            # The engine checks the largest budget of its workers, this one's own is checked here.
            if sum(p.count for p in work) > budget:
                raise RefusedStepError(
                    f"worker {slot.number} computes more than its {number_of(budget, 'token')}"
                )
            if work:
                break
            if engine.counters.preemptions == before:
                return
        else:
            return
        pieces: list[Piece] = [(p.begin, p.count, p.ends) for p in work]
        called = self._calls[slot.memory]
        parts = [
            Part(call=called[p.sequence.number], begin=p.begin, count=p.count, ends=p.ends) for p in work
        ]
        # In seconds of a whole device; the share that the technique gives stretches it.
        slot.work, slot.left_s = work, self._costs.seconds(pieces, seen)
        slot.share, slot.since_s, slot.ends_s = 0.0, self.now_s, math.inf
        slot.step = DoneStep(worker=slot.number, begin_s=self.now_s, end_s=math.inf, parts=parts, seen=seen)

    def _divide(self) -> None:
        """Let the technique say which share of its device each worker has from now on."""
        for device in sorted({s.device for s in self._slots}):
            slots = [s for s in self._slots if s.device == device]
            busy = [
                Busy(
                    worker=s.number,
                    computing=bool(s.work),
                    wants=self._engines[s.memory].num_seen(self._layout.workers[s.number].phase),
                )
                for s in slots
            ]
            shares = dict(self._deployment.shares(device, busy))
            if any(not 0 <= v <= 1 for v in shares.values()) or sum(shares.values()) > 1 + ROUNDING:
                raise RefusedStepError(f"the shares of device {device} are {shares}: more than there is")
            for slot in slots:
                self._give(slot, shares.get(slot.number, 0.0))

    def _give(self, slot: _Slot, share: float) -> None:
        # An unchanged share keeps the end as it is: working it out anew at each event would add up rounding.
        if not slot.work or share == slot.share:
            return
        # What was computed so far is booked at the old share before the new one holds.
        self._spend(slot)
        slot.share = share
        slot.ends_s = self.now_s + slot.left_s / share if share > 0 else math.inf

    def _spend(self, slot: _Slot) -> None:
        """Book what a worker has computed since its share last changed."""
        assert slot.step is not None
        spent_s = self.now_s - slot.since_s
        if spent_s > 0:
            slot.step.spans.append((spent_s, slot.share))
            slot.left_s = max(0.0, slot.left_s - spent_s * slot.share)
        slot.since_s = self.now_s

    def _end(self, slot: _Slot) -> int:
        """Take in a step that is over; return how many requests it has finished."""
        assert slot.step is not None
        self._spend(slot)
        slot.step.end_s = self.now_s
        self.log.steps.append(slot.step)
        work, slot.work, slot.step, slot.ends_s = slot.work, [], None, math.inf
        worker, engine = self._layout.workers[slot.number], self._engines[slot.memory]
        # No model is computed; tokens are known beforehand, so that beginnings of sessions are found as they would be.
        drawn = [answer_token(len(p.sequence.tokens)) for p in work if p.ends]
        sequences = {p.sequence.number: p.sequence for p in work}
        outputs = engine.end(work, drawn, worker.scheduler)
        for output in outputs:
            sequence = sequences[output.number]
            call = self._calls[slot.memory][output.number]
            self.log.tokens.append(Token(call=call, at_s=self.now_s, preempted=sequence.preempted))
            if output.last:
                self._ended(call)
            # At the first token alone: a request recomputed after a preemption stays where it decodes.
            elif sequence.answered == 1:
                self._move(slot.memory, output)
        return sum(o.last for o in outputs)

    def _move(self, memory: int, output: Output) -> None:
        """Ask where a request that has its first token gets the others, and send it there."""
        engine = self._engines[memory]
        target = self._deployment.go_on(engine.seen(output.number), memory, self._loads())
        self._known(target, "go_on")
        if target == memory:
            return
        sequence = engine.leave(output.number)
        size = sequence.computed * self._costs.kv_bytes_per_token
        # One transfer after another on a link, each with its delay: concurrent ones would share its rate and end no
        # earlier together.
        begin_s = max(self.now_s, self._free_at.get((memory, target), 0.0))
        sent_s = begin_s + self._link.delay_s + size / self._link.bytes_per_s
        self._free_at[memory, target] = sent_s
        self._moving.append(
            _Moving(
                call=self._calls[memory][output.number],
                number=output.number,
                source=memory,
                target=target,
                tokens=sequence.computed,
                size_bytes=size,
                begin_s=begin_s,
                sent_s=sent_s,
            )
        )

    def _settle(self) -> None:
        """Let requests whose bytes have arrived run where there is room for them, in the order of their arrival."""
        full: set[int] = set()
        for moving in [m for m in self._moving if m.sent_s <= self.now_s]:
            source = self._engines[moving.source]
            number = None
            if moving.target not in full:
                number = self._engines[moving.target].arrive(source.leaving(moving.number))
            if number is None:
                # In order of arrival: a smaller request behind one without room does not overtake it for ever.
                full.add(moving.target)
                continue
            self._calls[moving.target][number] = moving.call
            source.left(moving.number)
            self._moving.remove(moving)
            self.log.transfers.append(
                Transfer(
                    call=moving.call,
                    source=moving.source,
                    target=moving.target,
                    tokens=moving.tokens,
                    size_bytes=moving.size_bytes,
                    begin_s=moving.begin_s,
                    sent_s=moving.sent_s,
                    end_s=self.now_s,
                )
            )


def check_layout(layout: Layout, given: Given) -> None:
    """Refuse a layout that is not on the devices, or needs more memory than they have.

    Raises:
        RefusedStepError: It says why.
    """
    for device in sorted({m.device for m in layout.memories}):
        if not 0 <= device < given.devices:
            raise RefusedStepError(f"a memory is on device {device}; there are {given.devices}")
        there = [m.blocks for m in layout.memories if m.device == device]
        # The first copy of the weights is in the device's own account; each further memory brings one more.
        room = given.blocks_per_device - (len(there) - 1) * given.weight_blocks
        if min(there) < 1 or sum(there) > room:
            raise RefusedStepError(
                f"memories of device {device} have {number_of(sum(there), 'block')}; beside "
                f"{number_of(len(there), 'copy')} of the weights "
                f"there is room for {room}"
            )
    served = {w.memory for w in layout.workers}
    if served != set(range(len(layout.memories))):
        raise RefusedStepError(f"workers compute on memories {sorted(served)} of {len(layout.memories)}")
