"""Cache-aware routing: to the server that has computed most of a request's beginning, unless loads are too uneven.

The router of SGLang, now Shepherd Model Gateway ("Cache-Aware Routing" in its documentation; thresholds are its
defaults): the negative control of fair routers, since it looks at no tenant.

Algorithm: where the busiest server has more than an absolute and a relative threshold of requests over the least busy,
a request goes to the least busy. Otherwise it goes to the server that will hold most of its beginning, if that is at
least a share of the prompt, and else to the one with most room in its cache. Each queue is one of longest prefix match.
Cost: a lookup of a prompt's beginning in every server's cache.
Differences: what a server will hold is known to the router at once, where the original mirrors caches in a tree of its
own; room is free blocks where the original's is the smallest of these trees.
Limits: it looks at no tenant: whoever sends most has most, and its beginnings stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.baselines.serving.lpm import LongestPrefixMatch

from paceline import technique
from paceline.families.serving.api.deploying import Busy, Given, Layout, Load, Memory, Worker
from paceline.families.serving.api.scheduling import Request


@technique(
    name="cache-aware-router",
    family="serving",
    implements=("simulate",),
    summary="the server with most of a request's beginning, while loads are even",
)
class CacheAwareRouter:
    """Routes by what servers will hold.

    Args:
        cache_threshold: Least share of a prompt for which a server is chosen by what it will hold.
        balance_absolute: Requests that the busiest server may have more than the least busy.
        balance_relative: How many times its requests.
    """

    def __init__(
        self, *, cache_threshold: float = 0.3, balance_absolute: int = 64, balance_relative: float = 1.5
    ) -> None:
        self._threshold = cache_threshold
        self._absolute, self._relative = balance_absolute, balance_relative

    def layout(self, given: Given) -> Layout:
        """Give each device one memory and one queue."""
        devices = range(given.devices)
        return Layout(
            memories=tuple(
                Memory(device=d, blocks=given.blocks_per_device, shares_prefixes=True) for d in devices
            ),
            workers=tuple(Worker(memory=d, scheduler=LongestPrefixMatch()) for d in devices),
        )

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the least busy where loads are uneven, and else the one that will hold most."""
        requests = [load.waiting + load.running for load in loads]
        least, most = min(requests), max(requests)
        # Both: under heavy load an even spread passes the absolute threshold, and with few requests the relative one.
        if most - least > self._absolute and most > self._relative * least:
            return requests.index(least)
        # What is queued counts as cached: otherwise a burst with one prefix would be scattered before its first
        # request is computed.
        held = [load.coming_tokens for load in loads]
        if max(held) >= self._threshold * prompt_tokens:
            return held.index(max(held))
        room = [load.free_blocks for load in loads]
        return room.index(max(room))

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Stay."""
        return memory

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give the only worker the device."""
        return {w.worker: 1.0 for w in workers}
