"""The engine's loop: shows a scheduler what there is, checks its step, computes it, and keeps all counts.

Whoever drives it calls ``submit``, ``cancel`` and ``step``. A simulator calls ``begin`` and, when a step's virtual time
is over, ``end``: it is the bookkeeping of both, and no line of it is repeated there. Between the two a step's requests
are seen by nobody else, so that several workers can share one memory, each with a scheduler and a phase of its own; a
request may also leave for another engine, and keeps its memory here until it has arrived there.

One class, because every change of a request changes memory, places and counts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.base.counting import number_of
from paceline.families.serving.api.scheduling import Request, Scheduler, Step, View
from paceline.families.serving.core.engine.blocks import ROOT, Blocks, beginnings

Phase = Literal["both", "prefill", "decode"]
"""Which requests a worker sees: who decodes has answered, and has all but its last token computed."""

PATIENCE = 1000
"""Empty steps in a row, with something to do, after which a scheduler is said to do nothing."""


class RefusedStepError(Exception):
    """A scheduler asked for what there is not; the text says what."""


@dataclass(slots=True)
class Held:
    """A request as the engine knows it."""

    number: int
    tenant: str
    arrived_s: float
    prompt_tokens: int
    wanted: int
    """Tokens of its answer."""
    tokens: list[int]
    """Of its prompt and its answer."""
    computed: int = 0
    preempted: int = 0
    table: list[int] = field(default_factory=list)
    """Its blocks."""
    filled: int = 0
    """Of these, full ones that can be found by their tokens."""
    chain: tuple[int, ...] | None = None
    """What ``Cache.beginning`` tells, once somebody has asked."""

    @property
    def answered(self) -> int:
        """Return tokens of its answer so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def decodes(self) -> bool:
        """Return whether its next token needs one token computed, and is not its first."""
        return len(self.tokens) - self.computed == 1 and self.answered > 0

    def seen(self) -> Request:
        """Return what schedulers see."""
        return Request(
            number=self.number,
            tenant=self.tenant,
            arrived_s=self.arrived_s,
            tokens=len(self.tokens),
            computed=self.computed,
            answered=self.answered,
            preempted=self.preempted,
        )


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens of one request that a step computes."""

    sequence: Held
    begin: int
    count: int

    @property
    def ends(self) -> bool:
        """Return whether its next token comes out of this step."""
        return self.begin + self.count == len(self.sequence.tokens)


Compute = Callable[[Sequence[Work]], list[int]]
"""Computes a step; returns the next token of each piece of work that ends, in order."""


@dataclass(slots=True)
class Counters:
    """What the engine has done since it began."""

    steps: int = 0
    empty_steps: int = 0
    prefix_hit_tokens: int = 0
    computed_prompt_tokens: int = 0
    recomputed_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    cancelled: int = 0
    peak_blocks: int = 0
    peak_running: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """A token that a step has brought."""

    number: int
    token: int
    last: bool


class Engine:
    """Requests, their memory, and the technique that plans.

    Args:
        scheduler: The technique.
        compute: Computes steps.
        num_blocks: Of the cache.
        block_size: Tokens of a block.
        max_batch: Most requests of a step.
        token_budget: Most tokens of a step.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        compute: Compute,
        *,
        num_blocks: int,
        block_size: int,
        max_batch: int,
        token_budget: int,
    ) -> None:
        self._scheduler, self._compute = scheduler, compute
        self.blocks = Blocks(num_blocks, block_size, sharing=bool(scheduler.shares_prefixes))
        self._max_batch, self._token_budget = max_batch, token_budget
        self._waiting: dict[int, Held] = {}
        self._running: dict[int, Held] = {}
        self._next = 0
        self._idle_steps = 0
        self._lookups: dict[int, tuple[int, list[int]]] = {}
        self._computing: set[int] = set()
        self._leaving: dict[int, Held] = {}
        self.counters = Counters()

    @property
    def busy(self) -> bool:
        """Return whether a request is there."""
        return bool(self._waiting or self._running)

    @property
    def submitted(self) -> int:
        """Return how many requests have come."""
        return self._next

    def submit(self, prompt: Sequence[int], wanted: int, *, tenant: str = "", now_s: float = 0.0) -> int:
        """Add a request and return its number.

        Raises:
            ValueError: It has no tokens, wants none, or can never have the memory it needs.
        """
        if not prompt or wanted < 1:
            raise ValueError("a request has a prompt and wants at least one token")
        longest = len(prompt) + wanted
        # It could not end even alone; refused here, it cannot hold the engine for ever.
        if longest > self.blocks.num_blocks * self.blocks.block_size:
            raise ValueError(f"{number_of(longest, 'token does', 'tokens do')} not fit into the cache")
        number = self._next
        self._next += 1
        self._waiting[number] = Held(number, tenant, now_s, len(prompt), wanted, list(prompt))
        return number

    def cancel(self, number: int) -> None:
        """Forget a request, wherever it is."""
        sequence = self._waiting.pop(number, None) or self._running.pop(number, None)
        if sequence is not None:
            self._lookups.pop(number, None)
            self.blocks.release(sequence.table)
            self.counters.cancelled += 1

    def cached_tokens(self, number: int) -> int:
        """Return tokens at the begin of a waiting request that are in the cache."""
        return len(self._found(self._waiting[number])) * self.blocks.block_size

    def beginning(self, number: int) -> tuple[int, ...]:
        """Return what a request's full blocks are, one number each; equal numbers mean equal beginnings."""
        sequence = self._waiting.get(number) or self._running[number]
        if sequence.chain is None:
            prompt = sequence.tokens[: sequence.prompt_tokens]
            sequence.chain = beginnings(prompt, self.blocks.block_size)
        return sequence.chain

    def blocks_needed(self, number: int, tokens: int) -> int:
        """Return free blocks that computing so many further tokens of a request uses up."""
        size = self.blocks.block_size
        sequence = self._running.get(number)
        if sequence is not None:
            return max(0, -(-(sequence.computed + tokens) // size) - len(sequence.table))
        found = self._found(self._waiting[number])
        # Cached blocks that nobody uses count as free until somebody does, so using them uses up free ones.
        return -(-tokens // size) + self.blocks.num_unused(found)

    def blocks_freed(self, number: int) -> int:
        """Return blocks that nobody but a running request uses."""
        return self.blocks.num_used_once(self._running[number].table)

    def step(self, now_s: float) -> list[Output]:
        """Let the scheduler plan, compute, and return the tokens that came.

        Raises:
            RefusedStepError: The scheduler asked for what there is not, or does nothing though there is work.
        """
        work = self.begin(now_s)
        return self.end(work, self._compute(work)) if work else []

    def totals(self) -> tuple[int, int, int]:
        """Return requests that wait, requests that run, and tokens to be computed before all have their next one."""
        everybody = (*self._waiting.values(), *self._running.values())
        missing = sum(len(s.tokens) - s.computed for s in everybody)
        return len(self._waiting), len(self._running), missing

    def seen(self, number: int) -> Request:
        """Return what schedulers see of a running request."""
        return self._running[number].seen()

    def num_seen(self, phase: Phase = "both") -> int:
        """Return how many requests a worker of a phase would see."""
        return len(self._visible(phase)) + (len(self._waiting) if phase != "decode" else 0)

    def begin(self, now_s: float, scheduler: Scheduler | None = None, phase: Phase = "both") -> list[Work]:
        """Let a scheduler plan a step and give it its memory; whoever computes it calls ``end``.

        Args:
            now_s: On the engine's clock.
            scheduler: Of one of several workers; the engine's own where it has one worker.
            phase: What that worker sees.

        Raises:
            RefusedStepError: The scheduler asked for what there is not, or does nothing though there is work.
        """
        visible = self._visible(phase)
        waiting = {} if phase == "decode" else self._waiting
        plan = (scheduler or self._scheduler).plan(self._view(now_s, visible, waiting))
        self._check(plan, visible, waiting)
        for number in plan.preempt:
            self._preempt(number)
        for number in plan.tokens:  # before any block is taken, lest what one has found goes to another
            self._admit(number)
        work = [self._prepare(number, count) for number, count in plan.tokens.items()]
        counters = self.counters
        counters.steps += 1
        counters.evictions = self.blocks.evictions
        # At its highest: memory is taken for this step, and nothing of it is released yet.
        counters.peak_blocks = max(counters.peak_blocks, self.blocks.num_blocks - self.blocks.num_free)
        counters.peak_running = max(counters.peak_running, len(self._running))
        if not work:
            self._rest(plan, phase)
            return []
        self._idle_steps = 0
        self._computing.update(plan.tokens)
        return work

    def end(
        self, work: Sequence[Work], drawn: Sequence[int], scheduler: Scheduler | None = None
    ) -> list[Output]:
        """Take in what a step has computed; return the tokens that came."""
        tokens = iter(drawn)
        # No more under way: from here on every worker of this memory may plan these requests again.
        self._computing.difference_update(piece.sequence.number for piece in work)
        planner = scheduler or self._scheduler
        return [o for piece in work if (o := self._advance(piece, tokens, planner)) is not None]

    def _visible(self, phase: Phase) -> dict[int, Held]:
        """Return the running requests that a worker of a phase sees: none that is being computed."""
        if phase == "both" and not self._computing:
            return self._running
        return {
            number: sequence
            for number, sequence in self._running.items()
            if number not in self._computing and (phase == "both" or sequence.decodes == (phase == "decode"))
        }

    def leave(self, number: int) -> Held:
        """Take a running request out; its blocks stay taken until ``left``."""
        sequence = self._running.pop(number)
        self._leaving[number] = sequence
        return sequence

    def leaving(self, number: int) -> Held:
        """Return a request that is on its way."""
        return self._leaving[number]

    def left(self, number: int) -> None:
        """Give up the blocks of a request that is elsewhere by now."""
        self.blocks.release(self._leaving.pop(number).table)

    def arrive(self, came: Held) -> int | None:
        """Let a request of another engine run with a copy of its computed tokens; None while there is no room."""
        # Only what was computed elsewhere; blocks for further tokens are taken step by step, as for anybody who runs.
        needed = -(-came.computed // self.blocks.block_size)
        if needed > self.blocks.num_free or len(self._running) >= self._max_batch:
            return None
        number = self._next
        self._next += 1
        table = [self.blocks.take() for _ in range(needed)]
        # Filled 0: these blocks are found by nobody yet in this cache, and are made findable again below.
        sequence = replace(came, number=number, tokens=list(came.tokens), table=table, filled=0)
        self._running[number] = sequence
        self._fill(sequence)
        return number

    def _rest(self, plan: Step, phase: Phase) -> None:
        self.counters.empty_steps += 1
        # Somebody else's step or transfer is under way and will change what there is: waiting is no failure.
        if phase != "both" or self._computing or self._leaving:
            return
        self._idle_steps += 1
        # With nobody running nothing can change any more, so an empty step would be followed by the same one for ever.
        if self.busy and (self._idle_steps > PATIENCE or (not self._running and not plan.preempt)):
            raise RefusedStepError(
                "the scheduler computes nothing though "
                f"{number_of(len(self._waiting), 'request waits', 'requests wait')} and "
                f"{self.blocks.num_free} of {number_of(self.blocks.num_blocks, 'block')} are free"
            )

    def _view(self, now_s: float, visible: Mapping[int, Held], waiting: Mapping[int, Held]) -> View:
        return View(
            now_s=now_s,
            waiting=tuple(s.seen() for s in sorted(waiting.values(), key=lambda s: s.number)),
            running=tuple(s.seen() for s in visible.values()),
            cache=self,
            free_blocks=self.blocks.num_free,
            num_blocks=self.blocks.num_blocks,
            block_size=self.blocks.block_size,
            token_budget=self._token_budget,
            # Requests that this worker does not see hold places all the same.
            max_batch=self._max_batch - (len(self._running) - len(visible)),
        )

    def _check(self, plan: Step, visible: Mapping[int, Held], waiting: Mapping[int, Held]) -> None:
        """Refuse a step that names what there is not, or is too large; memory is checked as it is taken."""
        if len(set(plan.preempt)) != len(plan.preempt) or not set(plan.preempt) <= set(visible):
            raise RefusedStepError(f"the step preempts {plan.preempt}, of which not all run")
        total = 0
        for number, count in plan.tokens.items():
            if type(count) is not int or count < 1:
                raise RefusedStepError(f"the step computes {count!r} tokens of request {number}")
            if number in plan.preempt:
                raise RefusedStepError(f"the step preempts request {number} and computes it")
            total += count
            self._check_one(number, count, visible, waiting)
        if total > self._token_budget:
            raise RefusedStepError(
                f"the step has {number_of(total, 'token')}; {self._token_budget} are allowed"
            )
        # A difference binds tighter than a union: those who run and stay, and those who are admitted.
        num_running = len(set(self._running) - set(plan.preempt) | set(plan.tokens))
        if num_running > self._max_batch:
            raise RefusedStepError(
                f"{number_of(num_running, 'request')} would run; {self._max_batch} are allowed"
            )

    def _check_one(
        self, number: int, count: int, visible: Mapping[int, Held], waiting: Mapping[int, Held]
    ) -> None:
        running = visible.get(number)
        if running is not None:
            missing = len(running.tokens) - running.computed
        elif number in waiting:
            missing = len(self._waiting[number].tokens) - self.cached_tokens(number)
        else:
            raise RefusedStepError(f"the step computes request {number}, which is not there")
        if count > missing:
            raise RefusedStepError(
                f"the step computes {number_of(count, 'token')} of request {number}; {missing} are missing"
            )

    def _preempt(self, number: int) -> None:
        sequence = self._running.pop(number)
        self.blocks.release(sequence.table)
        # Recomputation: what it has answered stays in `tokens`, and is read again like a prompt.
        sequence.table, sequence.filled, sequence.computed = [], 0, 0
        sequence.preempted += 1
        self.counters.preemptions += 1
        self._waiting[number] = sequence

    def _admit(self, number: int) -> None:
        """Let a waiting request run, with the blocks that hold its beginning."""
        if number in self._running:
            return
        sequence = self._waiting.pop(number)
        found = self._found(sequence)
        self.blocks.use(found)
        sequence.table, sequence.filled = list(found), len(found)
        sequence.computed = len(found) * self.blocks.block_size
        # A preempted request finds its own blocks again, which would look like a hit that somebody else had made.
        if sequence.preempted == 0:
            self.counters.prefix_hit_tokens += sequence.computed
        self._running[number] = sequence

    def _found(self, sequence: Held) -> list[int]:
        """Return the blocks that hold a waiting request's beginning, looked up once between changes of the cache."""
        version, found = self._lookups.get(sequence.number, (-1, []))
        if version != self.blocks.version:
            found = self.blocks.find(sequence.tokens)
            self._lookups[sequence.number] = (self.blocks.version, found)
        return found

    def _prepare(self, number: int, count: int) -> Work:
        """Give a request the memory that its tokens need.

        Raises:
            RefusedStepError: There is not as much.
        """
        size = self.blocks.block_size
        sequence = self._running[number]
        needed = -(-(sequence.computed + count) // size) - len(sequence.table)
        if needed > self.blocks.num_free:
            raise RefusedStepError(f"the step needs more blocks than are free: {needed} for request {number}")
        sequence.table.extend(self.blocks.take() for _ in range(needed))
        return Work(sequence, sequence.computed, count)

    def _advance(self, piece: Work, tokens: Iterator[int], scheduler: Scheduler) -> Output | None:
        """Take in what a step has computed of one request; return its next token if that came."""
        sequence, counters = piece.sequence, self.counters
        # Read now: once its token is appended, the piece would no longer reach the last one.
        ends = piece.ends
        sequence.computed += piece.count
        self._fill(sequence)
        prompt = max(0, min(sequence.computed, sequence.prompt_tokens) - piece.begin)
        if sequence.preempted:
            # Less its last token, so that decodes after a preemption, pieces of one token, count as no recomputation.
            counters.recomputed_tokens += max(piece.count - 1, 0)
        counters.computed_prompt_tokens += prompt
        if not ends:
            scheduler.served(sequence.tenant, prompt, 0)
            return None
        token = next(tokens)
        sequence.tokens.append(token)
        counters.output_tokens += 1
        scheduler.served(sequence.tenant, prompt, 1)
        last = sequence.answered == sequence.wanted
        if last:
            del self._running[sequence.number]
            self._lookups.pop(sequence.number, None)
            # After it was filled: the blocks stay findable for whoever begins alike.
            self.blocks.release(sequence.table)
            counters.finished += 1
        return Output(sequence.number, token, last)

    def _fill(self, sequence: Held) -> None:
        """Make blocks findable that are full by now."""
        size = self.blocks.block_size
        while (sequence.filled + 1) * size <= sequence.computed:
            place = sequence.filled
            before = sequence.table[place - 1] if place else ROOT
            self.blocks.fill(
                sequence.table[place], before, tuple(sequence.tokens[place * size : (place + 1) * size])
            )
            sequence.filled += 1

    def check(self) -> None:
        """Assert that no block is lost or miscounted."""
        self.blocks.check([s.table for s in (*self._running.values(), *self._leaving.values())])


def facts(counters: Counters) -> Mapping[str, float]:
    """Return counters by name."""
    return {name: float(getattr(counters, name)) for name in Counters.__dataclass_fields__}
