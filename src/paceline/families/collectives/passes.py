"""Untimed passes over an arm after its timed calls: bytes, errors, time split, kernel counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import torch

from paceline.families.collectives import ceilings
from paceline.families.collectives.arm import Arm
from paceline.families.collectives.gate import mixing_matrix
from paceline.families.collectives.oracle import check_mixing, gram
from paceline.worker.memory import find_malloc_trim, peak_bytes, reset_peak
from paceline.worker.namespace import read_counters, unaccounted
from paceline.worker.session import CaseError, Session

SPLIT_CALLS = 5
KERNEL_REPEATS = 3
LOOPBACK = "lo"
_malloc_trim = find_malloc_trim()
HELD_CALLS = 3
MIX_CALLS = 16
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


def bytes_and_messages(session: Session, arm: Arm) -> dict[str, list[float]]:
    """Gather every rank's counts of the timed calls and return the byte metrics of one call.

    Raises:
        CaseError: Results of other ranks arrived although the communicator did not carry them.
    """
    too_little = _too_little(session, arm)
    if too_little is not None:
        raise CaseError("refused", f"timed call: {too_little}")
    used_backend = any(arm.backend_calls)
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
            arm.absent[name] = reason
        return {}
    sent = _matrices(session, arm.sent)
    messages = _matrices(session, arm.messages)
    figures = {
        "wire_bytes": [float(max(sum(row) for row in m)) for m in sent],
        "wire_bytes_total": [float(sum(sum(row) for row in m)) for m in sent],
        "link_bytes": [float(max(max(row) for row in m)) for m in sent],
        "messages": [float(max(sum(row) for row in m)) for m in messages],
    }
    group = arm.problem.group_ranks
    if group:
        figures["inter_group_bytes"] = [
            float(sum(b for i, row in enumerate(m) for j, b in enumerate(row) if i // group != j // group))
            for m in sent
        ]
    return {name: _collapse(values) for name, values in figures.items()}


def _too_little(session: Session, arm: Arm) -> str | None:
    """Say which call moved less than its result needs, so that the rest came another way; None when none did.

    An exact result of random numbers needs ``least_bytes`` in every call; half of that is left to lossless compression.
    Anything else needs one byte in some call. Calls of the backend's collectives carry bytes that only it knows.
    """
    if session.world_size == 1:
        return None
    exact = bool(arm.exact and arm.problem.operation != "mix")
    dense = exact and arm.block.params.get("payload") == "gaussian"
    needed = max(ceilings.least_bytes(arm.problem) // 2 if dense else 1, 1)
    own = [[float(sum(s)) for s in arm.sent], [float(b) for b in arm.backend_calls]]
    everyone = session.control.gather(own)
    busiest = [max(r[0][i] for r in everyone) for i in range(len(arm.sent))]
    known = [b for i, b in enumerate(busiest) if not any(r[1][i] for r in everyone)]
    if not known or (len(known) < len(busiest) and not exact):
        return None
    found = min(known) if exact else max(known)
    if found >= needed:
        return None
    return f"{found:.0f} bytes passed through the communicator on the busiest rank, the result needs {needed}"


def _matrices(session: Session, calls: list[tuple[int, ...]]) -> list[list[list[float]]]:
    """Return, for each distinct pattern of calls, the matrix (from rank, to rank); equal calls are sent once."""
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


def errors(session: Session, arm: Arm, num_timed: int) -> dict[str, Any]:
    """Return the error metrics of the last ``num_timed`` calls, the worst rank for each call.

    Raises:
        CaseError: Ranks ended timed calls of a lossy technique with different results.
    """
    if arm.passed.lossy is None:
        return {}
    checks = arm.checks[-num_timed:]
    everyone = session.control.gather(
        [
            [c.relative_l2 for c in checks],
            [c.max_error for c in checks],
            [c.bias for c in checks],
            [c.gain for c in checks],
            arm.checksums,
        ]
    )
    if any(rank_rows[4] != everyone[0][4] for rank_rows in everyone):
        raise CaseError("incorrect", "ranks ended timed calls with different results")

    def worst(row: int) -> list[float]:
        return [max((r[row][i] for r in everyone), key=abs) for i in range(len(checks))]

    gains = [max((r[3][i] for r in everyone), key=lambda g: abs(g - 1)) for i in range(len(checks))]
    score = gain_score(gains)
    return {
        "relative_l2_error": {"samples": worst(0)},
        "max_error": {"samples": worst(1)},
        "bias": {"samples": worst(2)},
        "gain": {"samples": gains},
        **({} if score is None else {"gain_score": {"samples": [score]}}),
    }


def gain_score(gains: Sequence[float]) -> float | None:
    """Return how many standard errors the mean of some calls' gains lies from 1; None where they have no spread.

    What an unbiased codec gives is the truth on average (TernGrad, section 3.1), so that its projection on the truth is
    1, whatever the scale of a draw.
    """
    if len(gains) < LEAST_GAINS or max(gains) == min(gains):
        return None
    return (fmean(gains) - 1) / (stdev(gains) / math.sqrt(len(gains)))


def split(session: Session, arm: Arm) -> dict[str, Any]:
    """Return where a call's time goes, from separate profiled calls: communication and the technique's spans."""
    rows: dict[str, list[float]] = {}
    session.control.barrier()
    for _ in range(SPLIT_CALLS):
        arm.comm.take_split()
        arm.run_untimed()
        taken = arm.comm.take_split()
        for name in ("communicate", *SPAN_METRICS):
            rows.setdefault(name, []).append(taken.get(name, 0.0))
    everyone = session.control.gather(list(rows.values()))
    metrics: dict[str, Any] = {}
    for index, name in enumerate(rows):
        values = [max(rank_rows[index][i] for rank_rows in everyone) for i in range(SPLIT_CALLS)]
        if name == "communicate":
            metrics["communicate_s"] = {"samples": values}
        elif any(values):
            metrics[SPAN_METRICS[name]] = {"samples": values}
    return metrics


def kernel_bytes(session: Session, arm: Arm, figures: dict[str, list[float]]) -> dict[str, Any]:
    """Return bytes per call from the kernel's interface counters, headers included.

    Raises:
        CaseError: The kernel carried more than the communicator counted.
    """
    if session.interface is None or session.world_size == 1:
        arm.absent["kernel_bytes"] = "no network interface carries the ranks' traffic"
        return {}
    if session.interface_shared and session.interface != LOOPBACK:
        arm.absent["kernel_bytes"] = (
            f"{session.interface} carries everything of its host, not the ranks' traffic only"
        )
        return {}
    num_calls = int(arm.block.protocol["kernel_calls"])
    if num_calls == 0:
        arm.absent["kernel_bytes"] = "the protocol leaves the kernel's counters out"
        return {}
    watched = [session.interface]
    if not session.interface_shared and session.control_interface:
        watched.append(session.control_interface)
    rows: list[list[list[float]]] = []
    for _ in range(KERNEL_REPEATS):
        session.control.barrier()
        before = [read_counters(name).tx_bytes for name in watched]
        session.control.barrier()
        for _ in range(num_calls):
            arm.run_untimed()
        session.control.barrier()
        after = [read_counters(name).tx_bytes for name in watched]
        session.control.barrier()
        sent = [[(b - a) / num_calls for a, b in zip(before, after, strict=True)]]
        rows.append([rank_rows[0] for rank_rows in session.control.gather(sent)])
    own = [max(rank[0] for rank in row) for row in rows]
    if session.interface_shared:
        arm.absent["kernel_bytes"] = (
            "the ranks share the loopback; a network namespace a rank tells them apart"
        )
        return {"kernel_bytes_total": {"samples": own, "source": session.interface}}
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
    messages = 2 * world_size * max(figures["messages"])
    fixed = world_size * HEADERS_CALL_BYTES
    return unaccounted(carried, max(figures["wire_bytes_total"]), messages=messages, fixed=fixed)


def special(session: Session, arm: Arm) -> dict[str, Any]:
    """Return metrics that only one operation has."""
    metrics: dict[str, Any] = {}
    if arm.problem.operation == "norm_layer":
        arm.problem.norm_rows[0] = 0
        arm.run_untimed()
        rows = session.control.gather([[float(arm.problem.norm_rows[0])]])
        metrics["norm_rows"] = {"samples": [max(r[0][0] for r in rows)]}
    if arm.problem.operation == "mix":
        metrics["spread_ratio"] = {"samples": _spreads(session, arm)}
    if arm.problem.operation == "matrix_product":
        held = _held(session, arm)
        if held is None:
            arm.absent["held_bytes"] = "the kernel does not show the peak resident set"
        else:
            metrics["held_bytes"] = {"samples": [held]}
    return metrics


def _held(session: Session, arm: Arm) -> float | None:
    """Return the bytes of a call's buffers and of what it needs beside them, on the rank that needs most.

    What a rank needs is the least growth of its peak resident set over a few calls, the heap trimmed before each: the
    buffers were touched before, so that only further memory shows.
    """
    grown: list[float] = []
    for _ in range(HELD_CALLS):
        session.control.barrier()
        _malloc_trim(0)
        if not reset_peak():
            break
        before = peak_bytes()
        arm.run_untimed()
        after = peak_bytes()
        if before is not None and after is not None:
            grown.append(float(after - before))
    everyone = session.control.gather([[min(grown) if grown else -1.0]])
    if min(r[0][0] for r in everyone) < 0:
        return None
    own = sum(b.numel() * b.element_size() for b in arm.workspaces[0].buffers)
    return own + max(r[0][0] for r in everyone)


def _spreads(session: Session, arm: Arm) -> list[float]:
    """Mix several times; return how much of the replicas' spread each exchange leaves.

    With mixing weights W and centred inputs x, the spread after is Σᵢ‖Σⱼ Wᵢⱼ xⱼ‖² over Σⱼ‖xⱼ‖² before.

    Raises:
        CaseError: An exchange was not a doubly stochastic mixture.
    """
    ratios: list[float] = []
    for _ in range(MIX_CALLS):
        workspace = arm.run_untimed()
        rows, residual = mixing_matrix(session, workspace)
        check = check_mixing(rows, residual, arm.problem.dtype)
        if not check.passed:
            raise CaseError("incorrect", f"mixing: {check.reason}")
        expected = workspace.variants[workspace.current].expected[0]
        assert expected is not None
        products = gram([c.double().view(-1) for c in expected.contributions])
        centred = products - products.mean(dim=0) - products.mean(dim=1, keepdim=True) + products.mean()
        weights = torch.tensor(rows, dtype=torch.float64)
        ratios.append(float((weights @ centred @ weights.T).trace() / centred.trace()))
    return ratios
