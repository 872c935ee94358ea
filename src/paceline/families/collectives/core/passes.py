"""Figures of a candidate after its timed calls: bytes, errors, the split of time, the kernel's counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from paceline.families.collectives.core import ceilings
from paceline.families.collectives.core.candidate import LOOPBACK, Candidate
from paceline.worker.network.namespace import read_counters, unaccounted
from paceline.worker.ranks.session import CaseError, Session

SPLIT_CALLS = 5
KERNEL_REPEATS = 3
CARRIED_SHARE = 0.98
"""Of the bytes that the communicator counted, what the kernel must have carried: others and headers only add."""
LEAST_GAINS = 5
"""Calls without which their spread says little."""
HEADERS_CALL_BYTES = 8192
"""Headers and acknowledgements of a call on a rank, whatever its size."""
SPAN_METRICS = {
    "compress": "compress_s",
    "decompress": "decompress_s",
    "pack": "pack_s",
    "unpack": "unpack_s",
}


def bytes_and_messages(session: Session, candidate: Candidate) -> dict[str, list[float]]:
    """Gather every rank's counts of the timed calls and return the byte metrics of one call.

    Raises:
        CaseError: Results of other ranks arrived although the communicator did not carry them.
    """
    too_little = _too_little(session, candidate) or _carried_elsewhere(session, candidate)
    if too_little is not None:
        raise CaseError("refused", f"timed call: {too_little}")
    used_backend = any(candidate.backend_calls)
    # All ranks decide alike: the gathers below wait for every rank.
    everyone = session.control.gather_text("1" if used_backend else "0")
    if "1" in everyone:
        reason = "the backend's own collective moves them; only the kernel's counters can tell"
        for name in (
            "wire_bytes",
            "wire_bytes_total",
            "link_bytes",
            "messages",
            "inter_group_bytes",
        ):
            candidate.absent[name] = reason
        return {}
    sent = _matrices(session, candidate.sent)
    messages = _matrices(session, candidate.messages)
    figures = {
        "wire_bytes": [float(max(sum(row) for row in m)) for m in sent],
        "wire_bytes_total": [float(sum(sum(row) for row in m)) for m in sent],
        "link_bytes": [float(max(max(row) for row in m)) for m in sent],
        "messages": [float(max(sum(row) for row in m)) for m in messages],
    }
    group = candidate.problem.group_ranks
    if group:
        # Ranks of a group are neighbours in rank order, as launchers place them on nodes.
        figures["inter_group_bytes"] = [
            float(sum(b for i, row in enumerate(m) for j, b in enumerate(row) if i // group != j // group))
            for m in sent
        ]
    return {name: _collapse(values) for name, values in figures.items()}


def _too_little(session: Session, candidate: Candidate) -> str | None:
    """Say which call moved less than its result needs, so that the rest came another way; None when none did.

    An exact result of random numbers needs ``least_bytes`` in every call; half of that is left to lossless compression.
    Anything else needs one byte in some call. Calls of the backend's collectives carry bytes that only it knows.
    """
    if session.world_size == 1:
        return None
    exact, needed = candidate.exact, _needed(candidate)
    own = [[float(sum(s)) for s in candidate.sent], [float(b) for b in candidate.backend_calls]]
    everyone = session.control.gather(own)
    busiest = [max(r[0][i] for r in everyone) for i in range(len(candidate.sent))]
    known = [b for i, b in enumerate(busiest) if not any(r[1][i] for r in everyone)]
    if not known or (len(known) < len(busiest) and not exact):
        return None
    found = min(known) if exact else max(known)
    if found >= needed:
        return None
    return f"{found:.0f} bytes passed through the communicator on the busiest rank, the result needs {needed}"


def _needed(candidate: Candidate) -> int:
    """Return the bytes that the busiest rank must send in a call at the least."""
    if candidate.exact and candidate.block.params.get("payload") == "gaussian":
        return max(ceilings.least_bytes(candidate.operation, candidate.problem) // 2, 1)
    return 1


def _carried_elsewhere(session: Session, candidate: Candidate) -> str | None:
    """Say that the timed calls' bytes did not pass the ranks' interface, which the kernel counts; None where they did.

    The communicator's counts are in a technique's reach, the kernel's are not. Whoever else sends there only adds.
    """
    own = [list(map(float, candidate.carried)), [float(sum(s)) for s in candidate.sent]]
    everyone = session.control.gather(own)
    if session.world_size == 1 or not all(rank[0] for rank in everyone):
        return None
    counted = sum(sum(rank[1]) for rank in everyone)
    sums = [sum(rank[0]) for rank in everyone]
    # On a loopback each rank sees what all have sent.
    carried = max(sums) if session.interface_shared else sum(sums)
    needed = max(CARRIED_SHARE * counted, float(_needed(candidate) * len(candidate.carried)))
    if carried >= needed:
        return None
    num_calls = len(candidate.carried)
    return (
        f"{carried / num_calls:.0f} bytes a call left on the ranks' interface, the communicator counted "
        f"{counted / num_calls:.0f} and the result needs {_needed(candidate)}"
    )


def _matrices(session: Session, calls: list[tuple[int, ...]]) -> list[list[list[float]]]:
    """Return, for each distinct pattern of calls, the matrix (from rank, to rank); equal calls are sent once."""
    # Counts hardly ever differ from call to call; then one row stands for all of them.
    distinct = sorted(set(calls)) if len(set(calls)) == 1 else calls
    count = int(max(r[0][0] for r in session.control.gather([[float(len(distinct))]])))
    rows = [list(map(float, call)) for call in (distinct if len(distinct) == count else calls)]
    if len(rows) < count:
        rows = rows * count
    everyone = session.control.gather(rows[:count])
    return [[rank_rows[i] for rank_rows in everyone] for i in range(count)]


def _collapse(values: list[float]) -> list[float]:
    """Keep one sample when every call gave the same."""
    return values[:1] if len(set(values)) == 1 else values


def errors(session: Session, candidate: Candidate, num_timed: int) -> dict[str, Any]:
    """Return the error metrics of the last ``num_timed`` calls, the worst rank for each call.

    Raises:
        CaseError: Ranks ended timed calls of a lossy technique with different results.
    """
    if candidate.passed.lossy is None:
        return {}
    checks = candidate.checks[-num_timed:]
    everyone = session.control.gather(
        [
            [c.relative_l2 for c in checks],
            [c.max_error for c in checks],
            [c.bias for c in checks],
            [c.gain for c in checks],
            candidate.checksums,
        ]
    )
    # Exactly equal: ranks decode the same messages in the same order. A sum for each call is cheaper than its buffer.
    if any(rank_rows[4] != everyone[0][4] for rank_rows in everyone):
        raise CaseError("incorrect", "ranks ended timed calls with different results")

    def worst(row: int) -> list[float]:
        return [max((r[row][i] for r in everyone), key=abs) for i in range(len(checks))]

    # The rank whose gain is farthest from 1 stands for a call, so that one biased rank is not averaged away.
    gains = [max((r[3][i] for r in everyone), key=lambda g: abs(g - 1)) for i in range(len(checks))]
    score = bias_z(gains)
    return {
        "relative_l2_error": {"samples": worst(0)},
        "max_error": {"samples": worst(1)},
        "bias": {"samples": worst(2)},
        "gain": {"samples": gains},
        **({} if score is None else {"bias_z": {"samples": [score]}}),
    }


def bias_z(gains: Sequence[float]) -> float | None:
    """Return how many standard errors the mean of some calls' gains lies from 1; None where they have no spread.

    What an unbiased codec gives is the truth on average (TernGrad, section 3.1), so that its projection on the truth is
    1, whatever the scale of a draw.
    """
    if len(gains) < LEAST_GAINS or max(gains) == min(gains):
        return None
    return (fmean(gains) - 1) / (stdev(gains) / math.sqrt(len(gains)))


def split(session: Session, candidate: Candidate) -> dict[str, Any]:
    """Return where a call's time goes, from separate profiled calls: communication and the technique's spans."""
    rows: dict[str, list[float]] = {}
    # Ranks begin together, so that waiting for a late one is not booked as communication.
    session.control.barrier()
    candidate.comm.splitting(True)
    for _ in range(SPLIT_CALLS):
        # Empties the clocks of what earlier calls left there.
        candidate.comm.take_split()
        candidate.run_untimed()
        taken = candidate.comm.take_split()
        for name in ("communicate", *SPAN_METRICS):
            rows.setdefault(name, []).append(taken.get(name, 0.0))
    candidate.comm.splitting(False)
    everyone = session.control.gather(list(rows.values()))
    metrics: dict[str, Any] = {}
    for index, name in enumerate(rows):
        values = [max(rank_rows[index][i] for rank_rows in everyone) for i in range(SPLIT_CALLS)]
        if name == "communicate":
            metrics["communicate_s"] = {"samples": values}
        elif any(values):
            metrics[SPAN_METRICS[name]] = {"samples": values}
    return metrics


def kernel_bytes(session: Session, candidate: Candidate, figures: dict[str, list[float]]) -> dict[str, Any]:
    """Return bytes per call from the kernel's interface counters, headers included.

    Raises:
        CaseError: The kernel carried more than the communicator counted.
    """
    if session.interface is None or session.world_size == 1:
        candidate.absent["kernel_bytes"] = "no network interface carries the ranks' traffic"
        return {}
    if session.interface_shared and session.interface != LOOPBACK:
        candidate.absent["kernel_bytes"] = (
            f"{session.interface} carries everything of its host, not the ranks' traffic only"
        )
        return {}
    num_calls = int(candidate.block.protocol["kernel_calls"])
    if num_calls == 0:
        candidate.absent["kernel_bytes"] = "the protocol leaves the kernel's counters out"
        return {}
    watched = [session.interface]
    if not session.interface_shared and session.control_interface:
        # A result could also travel over the harness's own network; its bytes count in ``_unaccounted``.
        watched.append(session.control_interface)
    rows: list[list[list[float]]] = []
    for _ in range(KERNEL_REPEATS):
        session.control.barrier()
        # Between barriers: nobody sends before all have read, and nobody reads before all have sent.
        before = [read_counters(name).tx_bytes for name in watched]
        session.control.barrier()
        for _ in range(num_calls):
            candidate.run_untimed()
        session.control.barrier()
        after = [read_counters(name).tx_bytes for name in watched]
        session.control.barrier()
        sent = [[(b - a) / num_calls for a, b in zip(before, after, strict=True)]]
        rows.append([rank_rows[0] for rank_rows in session.control.gather(sent)])
    own = [max(rank[0] for rank in row) for row in rows]
    if session.interface_shared:
        candidate.absent["kernel_bytes"] = (
            "the ranks share the loopback; a network namespace a rank tells them apart"
        )
        return {"kernel_bytes_total": {"samples": own, "source": session.interface}}
    # The least of the repeats: whatever else uses these interfaces only adds.
    around = _unaccounted(min(sum(map(sum, row)) for row in rows), figures, session.world_size)
    if around is not None:
        raise CaseError("refused", around)
    total = [sum(rank[0] for rank in row) for row in rows]
    return {
        "kernel_bytes": {"samples": own, "source": session.interface},
        "kernel_bytes_total": {"samples": total, "source": session.interface},
    }


def _unaccounted(carried: float, figures: dict[str, list[float]], world_size: int) -> str | None:
    """Say how many bytes a call moved that the communicator did not count; None when it is not known to."""
    if "wire_bytes_total" not in figures:
        return None
    # As if every rank sent as many messages as the busiest, and each was answered by an acknowledgement.
    messages = 2 * world_size * max(figures["messages"])
    fixed = world_size * HEADERS_CALL_BYTES
    return unaccounted(carried, max(figures["wire_bytes_total"]), messages=messages, fixed=fixed)
