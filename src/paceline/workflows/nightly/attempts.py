"""What nights began, ended or not: a suite that fails has had its turn, and the others come before its next one.

The newest attempt at each block stands in ``nights/attempts.json`` of the store, written before a run begins: a night
that is killed has tried, too. What succeeded has a record as well; the file may be deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from paceline.base.aliases import SUITES
from paceline.records.store.storage import storage_errors
from paceline.workflows.nightly.schedule import Place

ATTEMPTS = Path("nights", "attempts.json")
Attempts = Mapping[tuple[Place, str], str]
"""Place and block → when a night last began to measure it, ISO 8601."""


def read_attempts(store: Path) -> dict[tuple[Place, str], str]:
    """Return the newest attempts; none where the file is missing or damaged."""
    try:
        rows = json.loads((store / ATTEMPTS).read_text(encoding="utf-8"))
        return {
            ((SUITES.today(row["suite"]), row["runner"], row["tier"]), block): str(at)
            for row in rows
            for block, at in row["blocks"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def note_attempt(store: Path, place: Place, blocks: Iterable[str], at: str) -> None:
    """Write down that a night begins to measure some blocks of a place.

    Raises:
        UserError: The store cannot be written.
    """
    known = {**read_attempts(store), **{(place, block): at for block in blocks}}
    rows: dict[Place, dict[str, str]] = {}
    for (where, block), last in known.items():
        rows.setdefault(where, {})[block] = last
    data = [
        {"suite": suite, "runner": runner, "tier": tier, "blocks": found}
        for (suite, runner, tier), found in sorted(rows.items())
    ]
    path = store / ATTEMPTS
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(data), encoding="utf-8")
        temporary.replace(path)
