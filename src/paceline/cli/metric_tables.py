"""The tables of ``docs/metrics.md``: meanings are written by hand, units and directions come from the metrics.

A contract cannot serve as the text, because its digest is part of every series key: a better word would begin a new
series. A metric's own ``doc`` is one line and lacks the formulas. So the document keeps its column of meanings, and
the columns that a program knows better are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from paceline.base.errors import UserError
from paceline.base.families.family import Metric, family_names, load_family

WRITTEN = "| metric | formula or meaning |"
FILLED = "| metric | unit | better | formula or meaning |"
IMPORTED = "| metric | unit | better | tool | meaning | definition |"


def filled(text: str) -> str:
    """Return the document with units and directions in its tables of metrics, and the table of imported ones.

    A table lies in the section (``## Title``) of its family. It has the columns ``metric`` and ``formula or meaning``,
    with or without the two that are filled in.

    Raises:
        UserError: A row names a metric that its family lacks, or a table of metrics is in no family's section.
    """
    lines: list[str] = []
    metrics: Mapping[str, Metric] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            metrics = _metrics_of(line.removeprefix("## ").lower())
        if not line.startswith("|"):
            table = ""
            lines.append(line)
        elif line in (WRITTEN, FILLED, IMPORTED):
            if not metrics:
                raise UserError(
                    "a table of metrics in no family's section",
                    where=f"docs/metrics.md:{number}",
                    expected="it below '## Collectives' or another family's name",
                )
            table = IMPORTED if line == IMPORTED else FILLED
            lines += [table, re.sub(r"[^|]+", "---", table)]
            lines += _imported(metrics) if table == IMPORTED else ()
        elif not table:
            lines.append(line)
        elif table == FILLED and not line.startswith("|---"):
            lines.append(_row(line, metrics, where=f"docs/metrics.md:{number}"))
    return "\n".join(lines) + "\n"


def _metrics_of(family: str) -> Mapping[str, Metric]:
    return {m.name: m for m in load_family(family).metrics} if family in family_names() else {}


def _row(line: str, metrics: Mapping[str, Metric], *, where: str) -> str:
    """Return a row with its unit and its direction, of each distinct one where it names several metrics."""
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    name, meaning = cells[0].strip(), cells[-1].strip()
    named = re.findall(r"`([^`]+)`", name)
    for metric in named:
        if metric not in metrics:
            raise UserError(
                f"no metric '{metric}' in this section's family",
                where=where,
                expected="a metric of `paceline list metrics`",
            )
    units = _distinct([metrics[m].unit for m in named])
    return f"| {name} | {units} | {_distinct([metrics[m].better for m in named])} | {meaning} |"


def _distinct(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values)) or "–"


def _imported(metrics: Mapping[str, Metric]) -> Iterator[str]:
    for m in metrics.values():
        rules = m.contract
        yield f"| `{m.name}` | {m.unit} | {m.better} | {rules['tool']} | {m.doc.rstrip('.')} | {rules['definition']} |"
