"""What the pages of runs, claims and calibration show."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.analysis.claims.headlines import PAPER_VERDICTS, LedgerRow
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.evidence import PointKey
from paceline.base.counting import number_of
from paceline.records.format.record import STATUSES, Run
from paceline.records.store.folder import RunRecord
from paceline.records.store.launches import status_counts
from paceline.report.boards.standing import slug
from paceline.report.claims.headlines import HEADLINE_HEADERS, headline_cells
from paceline.report.claims.partly import verdict_with_part
from paceline.report.claims.premises import (
    SETTLES,
    WHOSE,
    premises_text,
    remarks_text,
    said_text,
    scale_text,
    settled_text,
)
from paceline.report.claims.text import PAPERS_NUMBER, STATEMENT, found_at_a_cost, matrix_text, sides
from paceline.report.html import Cell, Grid, rows_grid, verdict_class
from paceline.report.tables.results import format_counts, format_param
from paceline.report.words.estimates import ABSENT
from paceline.report.words.names import metric_label
from paceline.report.words.stops import WORDS, stops_of

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Code", ("code",)),
    ("Runner", ("runner",)),
    ("Container", ("container",)),
    ("Host", ("host",)),
    ("Device", ("device",)),
    ("Load when it began", ("telemetry",)),
    ("Environment", ("environment",)),
    ("Settings and seeds", ("flags", "seeds")),
)
"""Provenance by heading; suites, techniques, packages and the request have places of their own."""
ELSEWHERE = frozenset({"diff", "freeze"})
MAX_TEXT = 2000


def run_slug(run_id: str) -> str:
    """Return the file name of a run's page: its id when that is safe."""
    return run_id if re.fullmatch(r"[0-9a-f-]{8,64}", run_id) else slug("run", run_id)


def reproduce_command(run: Run) -> str | None:
    """Return the one command that measures a run again; None for imported ones."""
    if run.imported_from is not None:
        return None
    return f"paceline reproduce {shlex.quote(run.run_id)}"


def provenance(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return headings with flat name and value pairs; a heading without facts has none."""
    data = run.model_dump(mode="json")
    found = []
    for heading, keys in SECTIONS:
        facts = [item for key in keys for item in (data[key] or {}).items() if item[0] not in ELSEWHERE]
        rows = [pair for name, part in facts for pair in flat(name, part)]
        found.append((heading, rows))
    if run.imported_from is not None:
        found.append(
            ("Imported from", [p for name, part in run.imported_from.items() for p in flat(name, part)])
        )
    return found


def source_grids(run: Run) -> list[Grid]:
    """Return the suites and technique files of a run with their digests."""
    suites: list[list[Cell | str]] = [
        [str(s.get("suite")), str(s.get("version")), str(s.get("baseline")), str(s.get("file")), _digest(s)]
        for s in run.suites
    ]
    techniques: list[list[Cell | str]] = [
        [
            name,
            str(facts.get("paper") or ABSENT),
            str(facts.get("module") or facts.get("file")),
            _digest(facts),
        ]
        for name, facts in sorted(run.techniques.items())
    ]
    return [
        rows_grid("suites", ("suite", "version", "baseline", "file", "sha256"), suites),
        rows_grid("techniques", ("technique", "paper", "source", "sha256"), techniques),
    ]


def _digest(facts: Mapping[str, Any]) -> Cell:
    return Cell(text=str(facts.get("sha256") or ABSENT)[:16], kind="text mono")


def flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Flatten nested data to dotted names, for tables."""
    if isinstance(value, Mapping):
        if not value:
            return [(name, ABSENT)]
        return [
            pair
            for key, part in value.items()
            if key not in ELSEWHERE
            for pair in flat(f"{name}.{key}", part)
        ]
    if isinstance(value, list):
        if value and all(isinstance(v, Mapping) for v in value):
            return [pair for i, part in enumerate(value) for pair in flat(f"{name}.{i}", part)]
        return [(name, ", ".join(map(str, value))[:MAX_TEXT] or ABSENT)]
    if value is None:
        return [(name, ABSENT)]
    if isinstance(value, bool):
        return [(name, "yes" if value else "no")]
    key = name.rpartition(".")[2]
    return [(name, format_param(key, value) if key.endswith("_bytes") else str(value)[:MAX_TEXT])]


def packages(run: Run) -> list[str]:
    """Return the frozen packages of the ranks."""
    freeze = (run.packages or {}).get("freeze")
    return [str(line) for line in freeze] if isinstance(freeze, list) else []


def counts_text(counts: Mapping[str, int]) -> str:
    """Write counts by status, ``ok`` first."""
    ordered = sorted(counts, key=lambda s: list(STATUSES).index(s))
    return format_counts((s, counts[s]) for s in ordered) if ordered else "nothing measured"


def run_list(records: Sequence[RunRecord]) -> Grid:
    """List runs, newest first."""
    rows: list[list[Cell | str]] = []
    for record in sorted(records, key=lambda r: r.run_id, reverse=True):
        run = record.run
        rows.append(
            [
                Cell(
                    text=run.started[:16].replace("T", " "),
                    href=f"runs/{run_slug(run.run_id)}.html",
                    kind="text",
                ),
                Cell(text=run.run_id[:13], kind="text mono"),
                run.reason,
                ", ".join(str(s.get("suite")) for s in run.suites) or ABSENT,
                str(run.runner.get("name") or ABSENT),
                run.host_class or ABSENT,
                counts_text(status_counts(record)),
                "yes" if record.sealed else "no",
            ]
        )
    headers = ("run", "id", "why", "suite", "runner", "hardware", "results", "sealed")
    return rows_grid("all runs, newest first", headers, rows)


def skipped_grid(run: Run) -> Grid:
    """Return the cases that the plan left out, each with its reason."""
    rows = [
        [
            str(s.get("suite")),
            ", ".join(f"{k} {format_param(k, v)}" for k, v in (s.get("params") or {}).items()) or ABSENT,
            str(s.get("label") or ABSENT),
            str(s.get("reason")),
        ]
        for s in (run.plan or {}).get("skipped", ())
    ]
    return rows_grid("not planned", ("suite", "point", "technique", "reason"), rows)


def stops_grid(record: RunRecord) -> Grid:
    """Return how each point of a run that was measured until decided has ended; no row where launches were fixed."""
    params = {m.block: m.params for m in record.measurements}
    rows: list[list[Cell | str]] = [
        [
            stop.suite,
            ", ".join(f"{k} {format_param(k, v)}" for k, v in params[stop.block].items()) or ABSENT,
            str(stop.launches),
            WORDS.get(stop.why, stop.why),
        ]
        for stop in stops_of(record)
    ]
    return rows_grid("measured until decided", ("suite", "point", "launches", "ended"), rows)


def claim_grid(
    results: Sequence[ClaimResult], run_hrefs: Mapping[str, str], point_hrefs: Mapping[PointKey, str]
) -> Grid:
    """Return claims: what is expected, what was found, by which run; a verdict leads to the point that decided it."""
    rows: list[list[Cell | str]] = []
    for c in results:
        link = run_hrefs.get(c.run_id or "")
        rows.append(
            [
                Cell(text=f"{c.suite} · {c.claim_id}", kind="text broken"),
                Cell(text=f"{c.quote} ({WHOSE[c.whose]}; {c.scope})", kind="text prose"),
                Cell(text=said_text(c), kind="text prose"),
                Cell(text=f"{metric_label(c.metric)} of {sides(c)}: {c.expectation}", kind="text broken"),
                Cell(
                    text=found_at_a_cost(c, scale_text(c)),
                    href=link if c.worst is not None else None,
                    kind="text broken",
                ),
                Cell(text=matrix_text(c), kind="text prose"),
                Cell(
                    text=verdict_with_part(c),
                    href=point_hrefs.get(c.point) if c.point else None,
                    kind=f"text verdict {verdict_class(c.verdict)}",
                ),
                Cell(text=premises_text(c), kind="text prose"),
                Cell(text=settled_text(c), kind="text prose"),
                Cell(text=remarks_text(c), kind="text prose"),
            ]
        )
    headers = (
        *("claim", STATEMENT, PAPERS_NUMBER, "measure, and what is expected", "found, and our scale"),
        *("points of the suite", "verdict", "premises", "what would settle it", "why"),
    )
    return rows_grid("claims", headers, rows)


def headline_grid(row: LedgerRow) -> Grid:
    """Return a paper's headlines: what it says, what was found, what the null arm gives, and what is not tested."""
    rows: list[list[Cell | str]] = []
    for headline in row.headlines:
        says, found, null, verdict, untested = headline_cells(headline)
        rows.append(
            [
                Cell(text=says, kind="text prose"),
                Cell(text=found, kind="text broken"),
                Cell(text=null, kind="text broken"),
                Cell(text=verdict, kind=f"text verdict {verdict_class(headline.verdict)}"),
                Cell(text=untested, kind="text prose"),
            ]
        )
    return rows_grid("headlines", HEADLINE_HEADERS, rows)


def ledger_families(rows: Sequence[LedgerRow]) -> list[tuple[str, list[LedgerRow]]]:
    """Group papers by family: those inside first, in the order of the ledger."""
    found: dict[str, list[LedgerRow]] = {}
    for row in rows:
        found.setdefault(row.paper.family, []).append(row)
    return sorted(found.items(), key=lambda item: item[0] == "outside")


VERDICTS_BEST_FIRST = ("reproduced", "partly tested", "partly", *PAPER_VERDICTS)


def best_first(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Return papers by their verdicts, and in the order of the ledger where these are equal."""
    return sorted(rows, key=lambda row: VERDICTS_BEST_FIRST.index(row.verdict))


def gist(row: LedgerRow) -> str:
    """Say in a line what a paper says: its first headline, and how many more there are."""
    if not row.headlines:
        return row.paper.claim
    more = len(row.headlines) - 1
    return row.headlines[0].headline.says + (f"; {number_of(more, 'more headline')}" if more else "")


def verdict_counts(rows: Sequence[LedgerRow], always: Sequence[str] = ()) -> list[tuple[str, int, str]]:
    """Return (verdict, number, class) of some papers; some verdicts also where no paper has them."""
    counts = Counter(dict.fromkeys(always, 0))
    counts.update(row.verdict for row in rows)
    names = sorted(counts, key=VERDICTS_BEST_FIRST.index)
    return [(name, counts[name], verdict_class(name)) for name in names]


def facets(row: LedgerRow) -> dict[str, str]:
    """Return by what else than its verdict a paper can be chosen: several values are joined by ``|``."""
    return {
        "premise": "|".join(row.premise),
        "settled": "|".join(SETTLES[kind] for kind in row.settled_by),
    }


def calibration_grids(name: str, document: Any) -> tuple[list[tuple[str, str]], list[Grid]]:
    """Return the facts and tables of one calibration file, whatever its shape."""
    if isinstance(document, list):
        return [], [_any_grid(name, document)]
    if not isinstance(document, Mapping):
        return [("value", str(document))], []
    facts, grids = [], []
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            grids.append(_any_grid(key, value))
        elif key == "code" and isinstance(value, Mapping):
            facts.append(("code", _code_text(value)))
        elif value not in (None, [], {}):
            facts += [(in_words(found), text) for found, text in flat(key, value)]
    return facts, grids


CALLED = {
    "host_class": "machine",
    "made": "measured at",
    "tool_version": "Paceline",
    "not_reached": "bounds not reached",
}
"""What the keys of a calibration file are called on its page."""


def in_words(key: str) -> str:
    """Return what a key is called on a page: without dots and underscores."""
    return CALLED.get(key, key.replace("_", " ").replace(".", ", "))


def _code_text(code: Mapping[str, Any]) -> str:
    commit = code.get("commit")
    if not commit:
        return f"no commit: {code.get('reason') or 'none is named'}"
    return f"commit {commit}{', with uncommitted changes' if code.get('dirty') else ''}"


FIGURE_COLUMNS = ("name", "what", "value", "rate", "low", "high", "interval", "hits", "alarms", "trials")
HIDDEN_COLUMNS = frozenset({"details", "unit"})


def _any_grid(title: str, items: Sequence[Any]) -> Grid:
    plain = [item if isinstance(item, Mapping) else {"value": item} for item in items]
    present = dict.fromkeys(str(k) for item in plain for k in item if k not in HIDDEN_COLUMNS)
    keys = sorted(present, key=lambda k: FIGURE_COLUMNS.index(k) if k in FIGURE_COLUMNS else 99)
    rows = [[figure_text(item.get(k), item) for k in keys] for item in plain]
    return rows_grid(title, keys, rows)


def figure_text(value: Any, item: Mapping[str, Any]) -> str:
    """Write one value of a calibration figure: shares as percentages, times with their unit."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, list):
        return f"[{', '.join(figure_text(v, item) for v in value)}]"
    if isinstance(value, float):
        share = any(item.get(k) is not None for k in ("hits", "alarms"))
        if item.get("unit") == "s":
            return f"{value * 1e3:.3g} ms"
        return f"{value:.2%}" if share and 0 <= value <= 1 else f"{value:.4g}"
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else str(value)
