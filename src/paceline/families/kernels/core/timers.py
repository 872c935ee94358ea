"""Times calls again by other timers once the timed passes are over: the host's clock, a replayed graph, the profiler.

Each has a metric of its own, and with it a contract of its own: what one timer says is never held against what another
does. Outputs are judged by the same oracle, and a timer that fails takes nothing from the timed passes: its metric is
absent, with the reason. A call that was wrong, or left its contract, under such a timer ends its case as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.families.kernels.core.accounting import CLOCK_SHARE, unaccounted_ns
from paceline.families.kernels.core.candidate import Candidate
from paceline.families.kernels.core.ceilings import Floor
from paceline.families.kernels.core.point import Places
from paceline.worker.machine.device import Device
from paceline.worker.ranks.session import CaseError
from paceline.worker.timing.interleaved import median

METRICS: Mapping[str, str] = {
    "host-clock": "host_latency",
    "graph-replay": "graph_latency",
    "profiler": "profiled_time",
}
"""The metric of each timer, in the order in which they run: the profiler leaves a thread behind."""
HOST_CALLS = 20
GRAPH_SAMPLES = 20
GRAPH_S = 0.002
"""Replays of one sample should last about this long."""
REPLAYS = (10, 1000)
PROFILED_CALLS = 5
ENDED = frozenset({"crashed", "timeout", "out_of_memory", "unsupported"})
"""Ends of a call that say nothing against the timed passes before it."""


class CannotTimeError(Exception):
    """A timer has no number for a technique; its text is the reason in the record."""


def time_again(
    candidate: Candidate, device: Device, wanted: str, *, floor: Floor | None, allowed_ns: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Time calls of a technique by the timers that a protocol asks for.

    Args:
        candidate: A technique whose timed passes are over.
        device: What this process knows of the device.
        wanted: One of the timers, ``all`` or ``none``.
        floor: Gives the seconds that no honest call can undercut; None: any time is believed.
        allowed_ns: Time that a pass's clock need not account for.

    Returns:
        Metrics, and the reasons of those that are absent.

    Raises:
        CaseError: A call was wrong or left its contract, or a time is below the floor.
    """
    metrics: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for timer, metric in METRICS.items():
        if wanted not in (timer, "all"):
            continue
        try:
            samples = _TIMES[timer](candidate, device, allowed_ns)
        except CannotTimeError as error:
            absent[metric] = str(error)
            continue
        except CaseError as error:
            # A wrong result or a breach is no matter of the timer, and ends the case.
            if error.status not in ENDED:
                raise
            absent[metric] = f"{error.status}: {error.reason}"
            continue
        least = min(samples)
        # The profiler leaves gaps out, so that its sums may well lie below what a whole call needs.
        if floor and timer != "profiler" and least < (floor_s := floor(least)):
            reason = f"{metric} of {least:.3g} s is below the {floor_s:.3g} s that this device allows"
            raise CaseError("invalid", reason)
        metrics[metric] = {"samples": samples}
    return metrics, absent


def _host_clock(candidate: Candidate, device: Device, allowed_ns: float) -> list[float]:
    if device.torch_type == "cpu":
        raise CannotTimeError("on a CPU latency itself is timed by the host's clock")
    places = candidate.point.make(candidate.process, candidate.draws[:1], 1)
    try:
        return _judged(
            candidate,
            places,
            HOST_CALLS,
            lambda: candidate.process.run(1, timed=True, timeout_s=candidate.point.timeout_s, clock="host"),
            allowed_ns,
        )
    finally:
        places.region.close()


def _graph_replay(candidate: Candidate, device: Device, allowed_ns: float) -> list[float]:
    if device.no_graphs is not None:
        raise CannotTimeError(device.no_graphs)
    limit = candidate.point.timeout_s
    # Long enough that events resolve it, whatever the size of a call.
    count = min(max(int(GRAPH_S / max(candidate.trial_s, 1e-9)), REPLAYS[0]), REPLAYS[1])
    places = candidate.point.make(candidate.process, candidate.draws[:1], 1)
    try:
        change, _ = candidate.point.change(0, 0)
        candidate.process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=limit)
        # Captured on one draw and replayed on others: addresses are the graph's, contents are not.
        impossible = candidate.process.ask({"do": "capture"}, timeout_s=limit)["impossible"]
        if impossible is not None:
            raise CannotTimeError(str(impossible))
        try:
            return _judged(
                candidate,
                places,
                GRAPH_SAMPLES,
                lambda: candidate.process.ask({"do": "replay", "count": count}, timeout_s=limit),
                allowed_ns,
                calls=count,
            )
        except CaseError as error:
            if error.status == "incorrect":  # decisions on the host were captured with the call: no cheat
                raise CannotTimeError(f"a replay computes something else: {error.reason}") from error
            raise
    finally:
        places.region.close()


def _profiler(candidate: Candidate, device: Device, allowed_ns: float) -> list[float]:
    if device.no_profiler is not None:
        raise CannotTimeError(device.no_profiler)
    places = candidate.point.make(candidate.process, candidate.draws[:1], 1)
    samples = []
    try:
        for _ in range(PROFILED_CALLS):
            # Each call is judged by itself: the profiler slows calls, and what it slowed must still be right.
            reply = _one(
                candidate,
                places,
                lambda: candidate.process.ask({"do": "profile"}, timeout_s=candidate.point.timeout_s),
            )
            if reply["seconds"] <= 0:
                raise CannotTimeError("the profiler saw nothing of a call")
            samples.append(float(reply["seconds"]))
    finally:
        places.region.close()
    return samples


_TIMES: Mapping[str, Callable[[Candidate, Device, float], list[float]]] = {
    "host-clock": _host_clock,
    "graph-replay": _graph_replay,
    "profiler": _profiler,
}


def _one(candidate: Candidate, places: Places, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Have one varied working set computed and judge it.

    Raises:
        CaseError: It was wrong.
    """
    index = candidate.rng.randrange(candidate.point.num_variations)
    reply, reason = candidate.point.judged_call(
        candidate.process, places, candidate.draws[0], (0, index), call
    )
    if reason is not None:
        raise CaseError("incorrect", f"call under another timer: {reason}")
    return reply


def _judged(
    candidate: Candidate,
    places: Places,
    num_samples: int,
    call: Callable[[], dict[str, Any]],
    allowed_ns: float,
    *,
    calls: int = 1,
) -> list[float]:
    """Return the seconds of a call from several judged samples.

    Raises:
        CannotTimeError: Its clock leaves out time that passed here.
    """
    elapsed, unaccounted = [], []
    for _ in range(num_samples):
        reply = _one(candidate, places, call)
        elapsed.append(int(reply["elapsed_ns"]))
        # Wake-up calls have passed here too, and are in no clock's time.
        unaccounted.append(int(reply["wall_ns"]) - int(reply["elapsed_ns"]) - int(reply.get("wake_ns", 0)))
    if min(elapsed) <= 0:
        raise CannotTimeError(f"its clock says {min(elapsed)} ns")
    missing = unaccounted_ns(elapsed, unaccounted)
    allowed = allowed_ns + CLOCK_SHARE * median([float(ns) for ns in elapsed])
    if missing > allowed:
        raise CannotTimeError(
            f"clocks disagree: the judge waited {missing * 1e-6:.3g} ms longer, allowed are {allowed * 1e-6:.3g} ms"
        )
    return [ns * 1e-9 / calls for ns in elapsed]
