"""Results as pandas tables: one row a fact, a column for each parameter of the points, numbers in base units."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.records.store.folder import RunRecord
from paceline.records.store.rows import MEASUREMENT_COLUMNS, measurement_rows

if TYPE_CHECKING:
    import pandas as pd

PARAMS = "params"
BEHIND = ("record_id", "case_id", "series_key", "block")
"""Columns of identities: what joins tables, and what nobody reads."""
SAMPLES = "samples"
NUM_SAMPLES = "num_samples"
"""A record's ``n``, which is also the name of a parameter of points."""
COMPARISON_COLUMNS = (
    *(
        "suite",
        PARAMS,
        "technique",
        "baseline",
        "metric",
        "headline",
        "unit",
        "value",
        "baseline_value",
        "kind",
        "effect",
    ),
    *("low", "high", "verdict", "launches", "margin", "p", "q", "method", "minimum_detectable"),
    *("launches_needed", "reason", "grade", "warnings", "run_id"),
)
RUN_COMPARISON_COLUMNS = (
    *("suite", PARAMS, "technique", "metric", "unit", "left", "right", "kind", "effect", "low", "high"),
    *("verdict", "launches", "q", "method", "warnings"),
)
CLAIM_COLUMNS = (
    *("paper", "suite", "claim", "metric", "technique", "versus", "where", "expectation", "value", "low"),
    *("high", "verdict", "premise", "reason", "launches", "quote", "scope", "whose", "run_id", "host_class"),
)


def measurement_table(records: Iterable[RunRecord], *, samples: bool = False) -> pd.DataFrame:
    """Return the measurements of runs: a row for each point, technique, metric and launch.

    ``attrs["units"]`` gives the unit of each metric, which also stands in the column ``unit``.
    """
    rows = [
        {**row, PARAMS: json.loads(row[PARAMS]), NUM_SAMPLES: row["n"]}
        for record in records
        for row in measurement_rows(record)
    ]
    names = [NUM_SAMPLES if c == "n" else c for c in MEASUREMENT_COLUMNS]
    front = [c for c in names if c not in (*BEHIND, PARAMS, SAMPLES)]
    split = front.index("label")
    columns = [*front[:split], PARAMS, *front[split:], *([SAMPLES] if samples else []), *BEHIND]
    return _table(rows, columns)


def fact_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return plain facts of comparisons or claims as a table of some of their keys."""
    return _table(rows, columns)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a table; ``params`` becomes a column for each parameter that any of them has.

    A parameter whose name is a column's already is called ``param_<name>``.
    """
    import pandas as pd  # noqa: PLC0415 - takes half a second; tables alone need it

    keys = dict.fromkeys(key for row in rows for key in row.get(PARAMS, ()))
    names = {key: f"param_{key}" if key in columns else key for key in keys}
    data: dict[str, list[Any]] = {}
    for column in columns:
        if column == PARAMS:
            data |= {names[key]: [row[PARAMS].get(key) for row in rows] for key in keys}
        else:
            data[column] = [row[column] for row in rows]
    table = pd.DataFrame(data)
    if "unit" in columns:
        table.attrs["units"] = {row["metric"]: row["unit"] for row in rows}
    return table
