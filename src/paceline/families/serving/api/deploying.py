"""The contract between the simulator and a technique that deploys workers on devices. Free of torch.

A deployment says where memories are and which workers compute on them, to which memory a request goes, to which it goes
on when its prompt is computed, and which share of its device a worker has. Time, memory, tokens and bytes are the
simulator's: it keeps them with the engine's own bookkeeping and refuses what a deployment may not ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.serving.api.scheduling import Request, Scheduler, Step, View, admit, begin_chunked

__all__ = [
    "Busy",
    "Deployment",
    "Given",
    "InParts",
    "Layout",
    "Load",
    "Memory",
    "OnePerDevice",
    "UnsupportedError",
    "Worker",
    "least_loaded",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What there is to deploy on."""

    devices: int
    blocks_per_device: int
    """Of the cache, beside one copy of the model's weights."""
    weight_blocks: int
    """Blocks whose room one more copy of the weights takes."""
    block_size: int
    max_batch: int
    token_budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A cache, with a copy of the weights beside it."""

    device: int
    blocks: int
    shares_prefixes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Computes steps on one memory, on the device where that is."""

    memory: int
    scheduler: Scheduler
    phase: Literal["both", "prefill", "decode"] = "both"
    """Which requests it sees."""
    token_budget: int | None = None
    """Most tokens of its steps; the given one where it is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything is."""

    memories: tuple[Memory, ...]
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a memory holds at one moment."""

    waiting: int
    """Requests that wait; those on their way here too."""
    running: int
    missing_tokens: int
    """Tokens that have to be computed before all of its requests have their next token."""
    free_blocks: int
    cached_tokens: int = 0
    """Of the request that is being routed, tokens at its begin that are in the cache."""
    coming_tokens: int = 0
    """The same, where requests that wait or run there count too: what will be in the cache when they are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What a worker does at one moment."""

    worker: int
    computing: bool
    wants: int
    """Requests that it sees."""


class Deployment(Protocol):
    """A technique of the operation ``simulate``; a scheduler is one too, as ``OnePerDevice`` of it."""

    def layout(self, given: Given) -> Layout:
        """Return memories and workers."""

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Return the memory that a request goes to."""

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Return the memory in which a request that has its first token gets the others; its own, or another one."""

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Return each worker's share of its device until the next change; together at most 1."""


def least_loaded(loads: Sequence[Load], among: Sequence[int]) -> int:
    """Return the memory with the fewest tokens to compute; of equals the one with fewest requests, then the first.

    Args:
        loads: Of all memories.
        among: Those that may be chosen.

    Raises:
        ValueError: None may be.
    """
    return min(
        among,
        # The memory's number breaks ties, so that equal runs route alike.
        key=lambda m: (loads[m].missing_tokens + loads[m].running, loads[m].waiting + loads[m].running, m),
    )


class InParts:
    """The scheduler that deployments share: decodes first, then prompts in parts, in the order of their arrival.

    Args:
        shares_prefixes: Whether requests use what others have computed.
    """

    def __init__(self, *, shares_prefixes: bool = False) -> None:
        self.shares_prefixes = shares_prefixes

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit."""
        room = begin_chunked(view)
        # First come, first served: with one order for all deployments, what they differ by is where and when, not who.
        for request in view.waiting:
            if not admit(room, view, request):
                break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""


class OnePerDevice:
    """A memory and a worker a device; a request goes to the device with the fewest tokens to compute, and stays.

    Args:
        make: Makes the scheduler of a device.
    """

    def __init__(self, make: Callable[[], Scheduler] = InParts) -> None:
        self._make = make

    def layout(self, given: Given) -> Layout:
        """Give each device one memory and one worker."""
        workers = tuple(Worker(memory=d, scheduler=self._make()) for d in range(given.devices))
        return Layout(
            memories=tuple(
                Memory(
                    device=w.memory,
                    blocks=given.blocks_per_device,
                    shares_prefixes=bool(w.scheduler.shares_prefixes),
                )
                for w in workers
            ),
            workers=workers,
        )

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the device with the fewest tokens to compute."""
        return least_loaded(loads, range(len(loads)))

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Stay."""
        return memory

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give the only worker the device."""
        return {w.worker: 1.0 for w in workers}
