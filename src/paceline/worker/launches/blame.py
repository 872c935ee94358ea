"""Who is to blame for an attempt that failed, and why, from what its ranks said and how they ended.

The first cause is told: ranks that only lost a peer, or were ended with it, are consequences.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.root_cause import how_ended, kind_of, last_words, lost_peer, ranks_text, with_fix
from paceline.worker.events import START
from paceline.worker.launches.attempt import Ending
from paceline.worker.launches.watchdog import RankReport, describe, guilty

KILLED = -signal.SIGKILL
QUIET = (signal.SIGKILL, signal.SIGTERM)
"""Signals that say nothing of the process that they end, nor does its log."""
MOST_CAUSES = 3
NO_RESULT = "the ranks ended well without giving a result"
NO_START = "the process group could not be started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Why an attempt failed."""

    reason: str
    status: str = "infrastructure"
    context: str = START
    """Block, technique and stage that are to blame; the start where none had begun."""
    detail: Any = None
    lasting: bool = False
    """Whether trying again can change nothing."""


def blame(events: Iterable[Mapping[str, Any]], ending: Ending) -> Blame:
    """Find the cause of a failed attempt.

    Args:
        events: What ranks have said in it.
        ending: How they ended.
    """
    raised = [e for e in events if e["event"] == "raised"]
    starting = all(report.context == START for report in ending.reports)
    causes = [e for e in raised if not lost_peer(e["reason"])]
    spoke = {e["rank"] for e in raised}
    died = killed_by_signal(ending.dead, spoke, echoed=bool(causes if starting else raised))
    silent = {r: c for r, c in ending.dead.items() if c > 0 and r not in spoke}
    troubled = ending.trouble is not None and not raised and not died and not silent
    if troubled and (starting or ending.hang_limit_s is None):
        return Blame(reason=ending.trouble or NO_START, detail=ending.traceback)
    hung = ending.hang_limit_s is not None and not died.keys() - _aborted(ending.dead)
    if hung and not (starting and causes):
        return _hung(ending)
    if raised and not died and (causes or not silent):
        return _raised(causes or raised, ending)
    unasked = {r: c for r, c in ending.dead.items() if c != -signal.SIGTERM}
    return _died(died or silent or unasked or ending.dead, ending)


def _hung(ending: Ending) -> Blame:
    culprit = guilty(ending.reports)
    context = culprit.context if culprit else START
    stage = context.rpartition("|")[2]
    what = culprit.sentence() if culprit else "no rank answered"
    said = f"a call in stage '{stage}' did not end within {ending.hang_limit_s:g} s: {what}"
    if culprit and not culprit.operations:
        said += _log_end(ending, culprit.rank)
    return Blame(status="timeout", context=context, reason=said, detail=_detail(ending))


def _raised(raised: Sequence[Mapping[str, Any]], ending: Ending) -> Blame:
    """Blame what was raised first; at the start, where nobody waits for others yet, name every cause with its ranks."""
    first = min(raised, key=lambda e: e["time_s"])
    doing = next((r.doing for r in ending.reports if r.rank == first["rank"] and r.operations), "")
    reason = f"rank {first['rank']}: {first['reason']}{doing}"
    if first["context"].startswith("-|"):
        kinds: dict[str, list[Mapping[str, Any]]] = {}
        for event in sorted(raised, key=lambda e: e["time_s"]):
            kinds.setdefault(kind_of(event["reason"]), []).append(event)
        told = [f"{ranks_text(e['rank'] for e in same)}: {same[0]['reason']}" for same in kinds.values()]
        more = [f"{len(told) - MOST_CAUSES} more causes"] if len(told) > MOST_CAUSES else []
        reason = "; then ".join([*told[:MOST_CAUSES], *more])
    return Blame(
        status=first["status"],
        context=first["context"],
        reason=reason,
        detail=first["detail"],
        lasting=all(e.get("lasting") for e in raised),
    )


def _died(own: Mapping[int, int], ending: Ending) -> Blame:
    culprit = guilty(ending.reports, dict(own))
    if culprit is None:
        return Blame(status="crashed", reason=ending.trouble or NO_START, detail=ending.traceback)
    code = own.get(culprit.rank, 0)
    how, status = how_ended(code), "crashed"
    if ending.killed_for_memory and code == KILLED:
        how, status = f"{how} for lack of memory", "out_of_memory"
    end = "" if culprit.operations and -code in QUIET else _log_end(ending, culprit.rank)
    if culprit.operations or not own:
        reason = f"rank {culprit.rank} {how}{culprit.doing}{end}"
    else:
        idle = {r.rank for r in ending.reports if not r.operations}
        same = [rank for rank, other in own.items() if other == code and rank in idle]
        reason = f"{ranks_text(same)}: {how} before the first operation{end}"
    return Blame(status=status, context=culprit.context, reason=with_fix(reason), detail=_detail(ending))


def _log_end(ending: Ending, rank: int) -> str:
    """Quote the last lines that a rank has printed."""
    words = last_words(ending.logs.get(rank, ""))
    return f"; its log ends: {words}" if words else ""


def _detail(ending: Ending) -> list[dict[str, Any]]:
    """Return what each rank was doing, with the end of its log."""
    reports: Sequence[RankReport] = ending.reports
    logs = ({"log": ending.logs[r.rank]} if r.rank in ending.logs else {} for r in reports)
    return [{**report, **log} for report, log in zip(describe(list(reports)), logs, strict=True)]


def killed_by_signal(dead: Mapping[int, int], raised: set[int], *, echoed: bool) -> dict[int, int]:
    """Return the ranks that a signal ended before anybody asked them to end, with their exit codes.

    What other ranks raise is then the echo of their lost connections.

    Args:
        dead: Exit codes by rank.
        raised: Ranks that said why they end.
        echoed: Whether a rank that aborts may be an echo of what others raised.
    """
    echoes = {-signal.SIGTERM, -signal.SIGABRT} if echoed else {-signal.SIGTERM}
    return {r: c for r, c in dead.items() if c < 0 and c not in echoes and r not in raised}


def _aborted(dead: Mapping[int, int]) -> set[int]:
    """Return ranks that ended themselves: where others hung, or were ended for it, that is an echo."""
    return {r for r, code in dead.items() if code == -signal.SIGABRT}
