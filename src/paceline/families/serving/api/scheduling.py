"""The contract between an engine and the technique that schedules it. Free of torch.

An engine computes in steps. Before each it shows the scheduler what is there (``View``) and gets back what the step
shall compute (``Step``). A scheduler sees lengths and times, tenants and what is in the cache; how long an answer will
be it does not see. The engine checks every step and keeps all counts itself; a step that asks for memory that is not
there, or for a request that is not, ends the technique's run as refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as schedulers see it, at the moment of a step."""

    number: int
    tenant: str
    arrived_s: float
    """On the engine's clock."""
    tokens: int
    """Of its prompt and of what it has answered: all of which keys and values are needed for its next token."""
    computed: int
    """Of these, tokens whose keys and values are there; 0 while it waits."""
    answered: int
    """Tokens of its answer so far."""
    preempted: int
    """How often its memory was taken away."""

    @property
    def missing(self) -> int:
        """Return tokens to be computed before its next token comes; 1 when it decodes."""
        return self.tokens - self.computed


class Cache(Protocol):
    """What schedulers may ask of the engine's memory."""

    def cached_tokens(self, number: int) -> int:
        """Return tokens at the begin of a waiting request that are in the cache; 0 where prefixes are not shared."""

    def beginning(self, number: int) -> tuple[int, ...]:
        """Return what the full blocks of a request's prompt hold, a number each: equal ones mean equal beginnings."""

    def blocks_needed(self, number: int, tokens: int) -> int:
        """Return free blocks that are used up when so many further tokens of a request are computed.

        For a waiting request, those behind its cached tokens; cached blocks that nobody uses count too, since they
        are free as long as nobody does.
        """

    def blocks_freed(self, number: int) -> int:
        """Return blocks that are free when a running request is preempted: those that nobody else uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What there is before a step."""

    now_s: float
    waiting: Sequence[Request]
    """Without memory, in order of their arrival; those that were preempted among them."""
    running: Sequence[Request]
    """With memory, in order of their admission."""
    cache: Cache
    free_blocks: int
    """Including cached blocks that nobody uses."""
    num_blocks: int
    block_size: int
    token_budget: int
    """Most tokens of a step."""
    max_batch: int
    """Most requests of a step, and most with memory."""


@dataclass(slots=True, kw_only=True)
class Step:
    """What a step shall compute."""

    tokens: dict[int, int] = field(default_factory=dict)
    """How many further tokens of which request. A waiting one is admitted by it, behind what is cached of it."""
    preempt: list[int] = field(default_factory=list)
    """Running requests that lose their memory first; they wait again, and are computed anew."""


class Scheduler(Protocol):
    """A technique."""

    shares_prefixes: bool
    """Whether requests use blocks that others have computed."""

    def plan(self, view: View) -> Step:
        """Return what is computed next; an empty step where nothing can be."""

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Hear what a tenant got by a step: computed tokens of its prompts, and tokens of its answers."""


class Room:
    """What is left of a step's budget while it is composed; schedulers use it so that they need not count twice.

    Args:
        view: What there is.
    """

    def __init__(self, view: View) -> None:
        self.step = Step()
        self.tokens = view.token_budget
        self.blocks = view.free_blocks
        self.places = view.max_batch - len(view.running)
        """Requests that can still be admitted."""
        self._view = view
        self._preempted: set[int] = set()

    def fits(self, request: Request, tokens: int) -> bool:
        """Tell whether so many further tokens of a request fit; for waiting ones a place has to be free."""
        if tokens < 1 or tokens > self.tokens or request.number in self._preempted:
            return False
        if request.computed == 0 and (self.places < 1 or self._preempted):
            return False  # what a step has just freed may be the very blocks that a new request has found
        return self._view.cache.blocks_needed(request.number, tokens) <= self.blocks

    def take(self, request: Request, tokens: int) -> bool:
        """Put tokens of a request into the step if they fit; return whether they did.

        Args:
            request: One that runs, or one that waits and is admitted by it; once a step.
            tokens: How many further ones; below 1 nothing fits.
        """
        if not self.fits(request, tokens):
            return False
        self.tokens -= tokens
        self.blocks -= self._view.cache.blocks_needed(request.number, tokens)
        if request.computed == 0:
            self.places -= 1
        self.step.tokens[request.number] = tokens
        return True

    def preempt(self, request: Request) -> None:
        """Take a running request's memory away."""
        self.step.preempt.append(request.number)
        self._preempted.add(request.number)
        self.blocks += self._view.cache.blocks_freed(request.number)
        self.places += 1

    def decode(self, running: Sequence[Request]) -> None:
        """Give every running request that decodes its next token; where memory ends, the latest admitted make room."""
        decoding = [r for r in running if r.missing == 1]
        # Popped from its end, the latest admitted: the oldest request always gets on, so preemption cannot go round in
        # circles.
        victims = list(running)
        for request in decoding:
            while request.number not in self._preempted and not self.take(request, 1):
                if self.tokens < 1 or not victims:
                    return
                victim = victims.pop()
                # Whoever has its token of this step keeps its memory: the engine refuses a step that does both.
                if victim.number in self.step.tokens or victim.number in self._preempted:
                    continue
                self.preempt(victim)
                # It was the latest itself: nobody younger could give way.
                if victim.number == request.number:
                    break


def begin_chunked(view: View) -> Room:
    """Return a step's room in which what runs has had its turn: decodes first, then parts of prompts.

    That nobody who decodes waits for a prompt, and that a prompt takes what decodes leave of a step's budget, is
    Sarathi-Serve's rule (Agrawal et al., OSDI 2024, section 4.1).
    """
    room = Room(view)
    room.decode(view.running)
    for request in view.running:
        if request.missing > 1:
            room.take(request, min(request.missing, room.tokens))
    return room


def admit(room: Room, view: View, request: Request) -> int:
    """Admit a waiting request with as much of its prompt as the budget allows; return its tokens, 0 if it waits.

    Args:
        room: Of the step.
        view: What the step is planned on.
        request: One of ``view.waiting``.
    """
    # Cached tokens cost no budget, as they are not computed; one token at least is, since its logits are what is
    # wanted.
    tokens = min(request.tokens - view.cache.cached_tokens(request.number), room.tokens)
    return tokens if room.take(request, tokens) else 0
