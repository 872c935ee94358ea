"""Passes inside a timing process: a core and its caches are brought up, calls timed by the host or by device events.

The clocks are local names inside each function: global ones could be replaced and put back within a pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process.working_set import plain

_perf_ns, _busy_ns = time.perf_counter_ns, time.thread_time_ns
_amax = torch.amax
WAKE_NS = 300_000
"""Untimed calls before a timed pass last about this long."""
BLOCKING_CYCLES = 2_000_000
"""Cycles for which an accelerator waits while a pass's calls are queued up."""


def wake(run: Callable[..., None], arguments: tuple[Tensor, ...], device: torch.device) -> int:
    """Call a technique on inputs of their own until a core that had waited for a message is at speed again.

    Returns:
        The nanoseconds that it took.
    """
    start = _perf_ns()
    # A core that slept for a message has lowered its clock; the first calls after it would be slow for everybody.
    while _perf_ns() - start < WAKE_NS:
        run(*arguments)
        if device.type != "cpu":
            torch.accelerator.synchronize()
    return _perf_ns() - start


def touch(arguments: Sequence[tuple[Tensor, ...]]) -> int:
    """Read every tensor of a pass, so that the caches hold what they can of it; return the nanoseconds."""
    start = _perf_ns()
    for tensors in arguments:
        for tensor in tensors:
            # A reduction reads everything and writes next to nothing, so that nothing is evicted for it.
            _amax(plain(tensor))
    return _perf_ns() - start


def host_pass(run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]]) -> tuple[int, int]:
    """Time a pass; return its nanoseconds, and those in which this thread had a core."""
    clock, busy = _perf_ns, _busy_ns
    before = busy()
    start = clock()
    for tensors in arguments:
        run(*tensors)
    # The clock first: reading the second one is not in the pass.
    return clock() - start, busy() - before


def synchronous_pass(run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]]) -> int:
    """Time a pass by the host's clock, from the first launch until an idle accelerator has finished it."""
    clock, wait = _perf_ns, torch.accelerator.synchronize
    # An idle device at the start: what was queued before is no part of the pass.
    wait()
    start = clock()
    for tensors in arguments:
        run(*tensors)
    wait()
    return clock() - start


def event_pass(
    run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]], device: torch.device
) -> int:
    """Time a pass with device events, the device kept busy while the calls are queued."""
    module = getattr(torch, device.type)
    begin, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    sleep = getattr(module, "_sleep", None)
    if sleep is not None:
        # The device waits until launches have queued up; else short kernels would be
        # timed at the rate of their launches.
        sleep(BLOCKING_CYCLES)
    begin.record()
    for tensors in arguments:
        run(*tensors)
    end.record()
    torch.accelerator.synchronize()
    return round(float(begin.elapsed_time(end)) * 1e6)
