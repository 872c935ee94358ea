"""Passes inside a timing process: a core and its caches are brought up, calls timed by the host or by device events.

The clocks are local names inside each function: global ones could be replaced and put back within a pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process.pauses import Pause
from paceline.families.kernels.core.timing_process.working_set import plain

_perf_ns, _busy_ns = time.perf_counter_ns, time.thread_time_ns
_amax = torch.amax
WAKE_NS = 300_000
"""Untimed calls before a timed pass last about this long."""
BLOCKING_NS = (1_000_000, 100_000_000)
"""How long an accelerator waits, at the least and at the most, while a pass's calls are queued up."""
BLOCKING_SHARE = 1.5
"""How much longer it waits than the calls are expected to take to be queued up."""
CYCLES_PER_NS = 2.0
"""Of an accelerator that does not tell its clock."""


def wake(run: Callable[..., None], arguments: tuple[Tensor, ...], device: torch.device) -> tuple[int, int]:
    """Call a technique on inputs of their own until a core that had waited for a message is at speed again.

    Returns:
        The nanoseconds that it took, and those that the host needed for the quickest of the calls, without waiting for
        the device.
    """
    start, quickest = _perf_ns(), 1 << 62
    # A core that slept for a message has lowered its clock; the first calls after it would be slow for everybody.
    while (begun := _perf_ns()) - start < WAKE_NS:
        run(*arguments)
        quickest = min(quickest, _perf_ns() - begun)
        if device.type != "cpu":
            torch.accelerator.synchronize()
    return _perf_ns() - start, quickest


def touch(arguments: Sequence[tuple[Tensor, ...]]) -> int:
    """Read every tensor of a pass, so that the caches hold what they can of it; return the nanoseconds."""
    start = _perf_ns()
    for tensors in arguments:
        for tensor in tensors:
            # A reduction reads everything and writes next to nothing, so that nothing is evicted for it.
            _amax(plain(tensor))
    return _perf_ns() - start


def host_pass(
    run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]], pause: Pause | None = None
) -> tuple[int, int]:
    """Time a pass, in which no clock runs during a pause; return its nanoseconds, and those with a core."""
    clock, busy = _perf_ns, _busy_ns
    first = arguments if pause is None else arguments[: pause.after]
    rest = arguments[len(first) :]
    elapsed = busied = 0
    before = busy()
    start = clock()
    for tensors in first:
        run(*tensors)
    if pause is not None:
        # The clock first: reading the second one is not in the pass.
        elapsed, busied = clock() - start, busy() - before
        pause.look()
        before = busy()
        start = clock()
        for tensors in rest:
            run(*tensors)
    return elapsed + clock() - start, busied + busy() - before


def synchronous_pass(run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]]) -> tuple[int, int]:
    """Time a pass by the host's clock, from the first launch until an idle accelerator has finished it.

    Returns:
        Its nanoseconds, and those after which its calls were queued up.
    """
    clock, wait = _perf_ns, torch.accelerator.synchronize
    # An idle device at the start: what was queued before is no part of the pass.
    wait()
    start = clock()
    for tensors in arguments:
        run(*tensors)
    queued = clock()
    wait()
    return clock() - start, queued - start


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPass:
    """What device events say of a pass, in nanoseconds."""

    elapsed_ns: int
    blocked_ns: int
    """How long the device waited for the calls to be queued up; no part of the pass."""
    queued_ns: int
    """How long the host queued them up, by its own clock."""
    cycles_seen: float
    """Of the device's clock in a nanosecond, as its wait has shown."""


def cycles_per_ns(device: torch.device) -> float:
    """Return the cycles of a device's clock in a nanosecond, or a guess where it has none or does not tell.

    Ask before a technique is imported: the first question opens the vendor's library, which the fences refuse.
    """
    if device.type == "cpu":
        return CYCLES_PER_NS
    properties = getattr(torch, device.type).get_device_properties(torch.accelerator.current_device_index())
    kilohertz = getattr(properties, "clock_rate", None)
    return kilohertz * 1e-6 if kilohertz else CYCLES_PER_NS


def event_pass(
    run: Callable[..., None],
    arguments: Sequence[tuple[Tensor, ...]],
    device: torch.device,
    *,
    launch_ns: int,
    cycles: float,
    cycles_seen: float,
    pause: Pause | None = None,
) -> EventPass:
    """Time a pass with device events, the device kept waiting while the calls are queued.

    Args:
        run: The technique's.
        arguments: Of each call.
        device: What it runs on.
        launch_ns: What the host is expected to need for a call.
        cycles: Of the device's clock in a nanosecond, as it says or as was guessed where it does not.
        cycles_seen: What an earlier wait has shown of them: clocks run slower than told, and no device waits for
            longer than its judge allows. A wait that is too long is otherwise nobody's fault; one that is too short
            would time launches, so that it is not shortened for anything else.
        pause: In which outputs are copied between two events, whose time is none of the pass.
    """
    clock, wait = _perf_ns, torch.accelerator.synchronize
    module = getattr(torch, device.type)
    before, begin, paused, resumed, end = (module.Event(enable_timing=True) for _ in range(5))
    first = arguments if pause is None else arguments[: pause.after]
    sleep = getattr(module, "_sleep", None)
    least, most = BLOCKING_NS
    blocking_ns = min(max(int(BLOCKING_SHARE * launch_ns * len(arguments)), least), most)
    waited_cycles = int(min(blocking_ns * cycles, most * cycles_seen))
    before.record()
    if sleep is not None:
        # The device waits until launches have queued up; else short kernels would be
        # timed at the rate of their launches.
        sleep(waited_cycles)
    begin.record()
    start = clock()
    for tensors in first:
        run(*tensors)
    if pause is not None:
        paused.record()
        pause.look()
        resumed.record()
        for tensors in arguments[pause.after :]:
            run(*tensors)
    queued = clock()
    end.record()
    wait()
    elapsed_ms = float(begin.elapsed_time(end))
    if pause is not None:
        elapsed_ms -= float(paused.elapsed_time(resumed))
    blocked_ns = round(float(before.elapsed_time(begin)) * 1e6)
    if sleep is not None and blocked_ns > 0:
        cycles_seen = waited_cycles / blocked_ns
    return EventPass(
        elapsed_ns=round(elapsed_ms * 1e6),
        blocked_ns=blocked_ns,
        queued_ns=queued - start,
        cycles_seen=cycles_seen,
    )
