"""What the links of this launch can do, measured in the launch itself, and how close a technique comes.

Round trip and bandwidth are taken between ranks 0 and 1 on the same carrier that techniques use. They bound what any
technique can reach: a sample below the bound is invalid, whatever the oracle says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paceline.families.collectives.api.problem import Cost, Problem
from paceline.families.collectives.core.timed_operation import TimedOperation
from paceline.worker.network.shaping import burst_bytes
from paceline.worker.ranks.session import Session
from paceline.worker.timing.interleaved import median

_perf_ns = time.perf_counter_ns

PING_ROUNDS = 40
BANDWIDTH_BYTES = (256 << 10, 4 << 20)
MAX_SECONDS = 0.6
LATENCY_SAFETY = 0.5
BANDWIDTH_SAFETY = 4.0
"""Short messages that fit into socket buffers look faster than the link; the bound leaves room for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCeiling:
    """The point-to-point link between ranks 0 and 1."""

    round_trip_s: float
    """Median of small ping-pongs."""
    least_round_trip_s: float
    bandwidth_bytes_per_s: float
    """One way, from the larger message that fitted into the time limit."""
    burst_bytes: int
    """Bytes that a shaped link lets through at memory speed after a rest; 0 when it is not shaped."""


def calibrate(session: Session, rate_bytes_per_s: float | None) -> LinkCeiling | None:
    """Measure the link, whose declared rate is given; None for a single rank, where no byte has to move."""
    if session.world_size == 1:
        return None
    trips = _ping_pong(session, 8, PING_ROUNDS)
    bandwidth = 0.0
    for size in BANDWIDTH_BYTES:
        times = _ping_pong(session, size, 3)
        # A round trip carries the message twice; the fastest counts, since disturbances only ever slow one down.
        bandwidth = 2 * size / min(times) if session.rank == 0 else 0.0
        # All ranks go by rank 0's time: were each to stop by its own, the next ping-pong would wait for nobody.
        spent = session.control.gather([[sum(times)]])[0][0][0]
        if spent > MAX_SECONDS / 4:
            break
    rows = session.control.gather([[median(trips), min(trips), bandwidth]])
    round_trip, least, rate = rows[0][0]
    return LinkCeiling(
        round_trip_s=round_trip,
        least_round_trip_s=least,
        bandwidth_bytes_per_s=rate,
        burst_bytes=burst_bytes(rate_bytes_per_s) if rate_bytes_per_s else 0,
    )


def calibrate_again(session: Session, link: LinkCeiling, rate_bytes_per_s: float | None) -> LinkCeiling:
    """Measure the link once more, on all ranks, and return the best of both.

    Whatever else computes on the machine only slows messages down: the better figure is nearer to what the link allows.
    """
    fresh = calibrate(session, rate_bytes_per_s)
    assert fresh is not None
    return LinkCeiling(
        round_trip_s=min(link.round_trip_s, fresh.round_trip_s),
        least_round_trip_s=min(link.least_round_trip_s, fresh.least_round_trip_s),
        bandwidth_bytes_per_s=max(link.bandwidth_bytes_per_s, fresh.bandwidth_bytes_per_s),
        burst_bytes=link.burst_bytes,
    )


def _ping_pong(session: Session, size_bytes: int, rounds: int) -> list[float]:
    """Return round-trip times on rank 0; other ranks than 0 and 1 only wait."""
    session.control.barrier()
    tensor = torch.ones(size_bytes, dtype=torch.uint8)
    if session.device.torch_type != "cpu":
        tensor = tensor.to(session.device.torch_type)
    times: list[float] = []
    if session.rank in (0, 1):
        peer = 1 - session.rank
        for _ in range(rounds + 1):
            begin = _perf_ns()
            # Rank 0 sends first and rank 1 receives first: one after the other, which is what a round trip is.
            for sending in (True, False) if session.rank == 0 else (False, True):
                message = [(tensor, peer)]
                works = session.transport.post(message if sending else [], [] if sending else message)
                for work in works:
                    work.wait()
            session.device.synchronize()
            times.append((_perf_ns() - begin) * 1e-9)
    session.control.barrier()
    # The first round may open the connection.
    return times[1:] or [0.0]


def least_bytes(operation: TimedOperation, problem: Problem) -> int:
    """Return the payload bytes that the busiest rank must send at the least for a lossless result."""
    return operation.least_sent(problem) * problem.item_bytes if problem.world_size > 1 else 0


def floor_s(
    link: LinkCeiling | None, operation: TimedOperation, problem: Problem, wire_bytes: int | None
) -> float:
    """Return the time that no honest call can undercut."""
    if link is None:
        return 0.0
    # The counted bytes where they are known: a lossy technique may send less than an exact result needs.
    moved = wire_bytes if wire_bytes is not None else least_bytes(operation, problem)
    latency = LATENCY_SAFETY * link.least_round_trip_s / 2
    # A shaped link passes a burst at memory speed, so only the rest is bound to its rate.
    paced = max(moved - link.burst_bytes, 0)
    return max(latency, paced / (BANDWIDTH_SAFETY * link.bandwidth_bytes_per_s))


def describe(
    link: LinkCeiling | None, cost: Cost | None, wire_bytes: int | None, latency_s: float
) -> dict[str, Any]:
    """Return the ceilings of a measurement: the calibrated link, the model time, the binding term, the fraction."""
    if link is None:
        return {"calibrated": None, "reason": "one rank: no link is used"}
    calibrated = {
        "round_trip_s": link.round_trip_s,
        "least_round_trip_s": link.least_round_trip_s,
        "link_bytes_per_s": link.bandwidth_bytes_per_s,
        "burst_bytes": link.burst_bytes,
    }
    if cost is None or wire_bytes is None:
        return {
            "calibrated": calibrated,
            "reason": "the technique's bytes and steps are the backend's secret",
        }
    # Half a round trip for each of the messages that depend on each other.
    latency_term = cost.steps * link.round_trip_s / 2
    bandwidth_term = wire_bytes / link.bandwidth_bytes_per_s
    model = latency_term + bandwidth_term
    return {
        "calibrated": calibrated,
        "model_s": model,
        "model": "steps · round trip / 2 + sent bytes / link bandwidth",
        "binding": "latency" if latency_term >= bandwidth_term else "bandwidth",
        "fraction_of_calibrated": model / latency_s if latency_s > 0 else None,
        "datasheet": None,
        "datasheet_reason": "the link between these ranks has no datasheet",
    }


def held_against(held: Mapping[str, Any], latency_s: float) -> dict[str, Any]:
    """Return what ``describe`` gave, with the fraction that another time is of it."""
    if "model_s" not in held:
        return dict(held)
    return {**held, "fraction_of_calibrated": held["model_s"] / latency_s if latency_s > 0 else None}
