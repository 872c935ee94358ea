"""What became of calls, and of the file that they are from: counts of a record's accounting, on a point's page.

Nothing that a client left out, guessed or read in an unusual way stays in the record alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.analysis.points import Point
from paceline.families.serving.core.load.log.events import WARNINGS
from paceline.families.serving.core.load.log.outcomes import OUTCOMES
from paceline.families.serving.core.workloads.conversation_choice import DROPPED
from paceline.families.serving.core.workloads.traces import NOTES
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import layout_of

COUNTED_BY = {
    "token_ids": "tokens counted by the ids in events",
    "running_usage": "tokens counted by the server's count in every event",
    "usage": "tokens counted by the server's count of all, dealt over events",
    "limit": "tokens taken to be as many as were asked for: the server told no count, and that it ended at the limit",
    "chunks": "tokens counted as one an event: the server told no count",
}
TOLD = {
    "missing": "left out: the request lacks this field",
    "dropped": "left out",
    "ended_early": "conversations that end before this turn",
    "notes": "",
    "limits": "limit on tokens",
    "tokenizer": "of the tokenizer",
    "scaled": "scaling of lengths",
}
"""Tables of the facts about a file, and what their keys mean where they have no words of their own."""
ALL = "all"
"""In place of a technique: of the calls, which all techniques got alike."""


def call_notes(point: Point) -> Grid:
    """Return what is counted of calls: of each technique over all launches, and of the file that they are from."""
    rows: list[list[str]] = []
    source: Mapping[str, Any] = {}
    for label in point.labels if layout_of(point.family).counts_calls else ():
        kept = list(_accounts(point, label))
        source = source or next((t for a in kept if isinstance(t := a.get("trace"), Mapping)), {})
        for key, words in (("outcomes", OUTCOMES), ("warnings", WARNINGS)):
            total: Counter[str] = Counter()
            for account in kept:
                total.update(_counts(account.get(key)))
            rows += [[label, f"{k}: {n}", words.get(k, "")] for k, n in sorted(total.items())]
        lists = [account.get("counted_by") for account in kept]
        ways = sorted(
            {way for told in lists if isinstance(told, list) for way in told if isinstance(way, str)}
        )
        rows += [[label, way, COUNTED_BY.get(way, "")] for way in ways]
        rows += [[label, "surprise", said] for said in _surprises(kept)]
    rows += [[ALL, told, meaning] for told, meaning in _source(source)]
    return rows_grid("calls, all launches", ("technique", "what was counted", "meaning"), rows)


def _accounts(point: Point, label: str) -> Iterator[Mapping[str, Any]]:
    """Yield the accounting of each launch of a technique once, whatever metrics it has."""
    seen: set[int] = set()
    for (name, _), cell in point.cells.items():
        for m in cell.measurements if name == label else ():
            if m.accounting and m.launch not in seen:
                seen.add(m.launch)
                yield m.accounting


def _surprises(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was unexpected of a server, each sentence once."""
    servers = [account.get("server") for account in kept]
    lists = [server.get("surprises") for server in servers if isinstance(server, Mapping)]
    return list(
        dict.fromkeys(s for told in lists if isinstance(told, list) for s in told if isinstance(s, str))
    )


def _counts(told: object) -> dict[str, int]:
    """Return the numbers of a table; records are of other people, too."""
    items = told.items() if isinstance(told, Mapping) else ()
    return {str(key): value for key, value in items if type(value) is int}


def _source(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is told of a file, its tables by their keys."""
    for key, value in facts.items():
        if not isinstance(value, Mapping):
            yield (
                f"{key.replace('_', ' ')}: {value}",
                "of the file" if key != "instants_times" else _STRETCHED,
            )
            continue
        for name, told in value.items():
            words = DROPPED.get(name) or NOTES.get(name) or ""
            meaning = ": ".join(part for part in (TOLD.get(key, key), words) if part)
            yield f"{name.replace('_', ' ')}: {told}", meaning


_STRETCHED = "factor on the file's instants, which gives the asked rate"
