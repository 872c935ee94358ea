"""Reports of ``paceline doctor --prove``: ``doctor/<host class>.json`` in a store, one for each class of hosts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paceline.base.errors import UserError
from paceline.records.format.record_file import open_plain
from paceline.records.store.storage import storage_errors

FOLDER = "doctor"
MAX_BYTES = 16 << 20
"""A longer report is cut short, and so is none."""


class Proof(BaseModel):
    """One thing that was tried."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What was tried, and on what.")
    status: Literal["ok", "failed", "not run"] = Field(description="How it ended.")
    detail: str = Field(description="What was measured, or why there is nothing.")
    seconds: float | None = Field(None, description="How long it took; null where it was not run.")
    fix: str | None = Field(None, description="What to do, where it failed or was not run.")


class ProofReport(BaseModel):
    """What a machine is, and what was proved of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    made: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T", description="When, in UTC, ISO 8601.")
    host_class: str = Field(description="The class of host that runs on this machine would record.")
    tool_version: str = Field(description="Version of Paceline.")
    seconds: float = Field(description="Of everything.")
    facts: dict[str, str] = Field(description="What the machine is: name and text of each fact.")
    topology: str | None = Field(None, description="How devices are joined, as the vendor's tool prints it.")
    proofs: list[Proof] = Field(description="What was tried, in order.")

    @property
    def failed(self) -> bool:
        """Say whether anything that was run did not work."""
        return any(proof.status == "failed" for proof in self.proofs)


def path_of(store: Path, host_class: str) -> Path:
    """Return where a class's report lies in a store."""
    digest = hashlib.sha256(host_class.encode()).hexdigest()[:10]
    readable = re.sub(r"[^a-z0-9]+", "-", host_class.lower()).strip("-")[:80]
    return store / FOLDER / f"{readable}-{digest}.json"


def write_report(store: Path, report: ProofReport) -> Path:
    """Put a report into a store, in the place of an older one of its class.

    Raises:
        UserError: The store cannot be written.
    """
    path = path_of(store, report.host_class)
    with storage_errors(store):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report.model_dump(), indent=1, ensure_ascii=False) + "\n"
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return path


def read_reports(stores: Iterable[Path]) -> list[ProofReport]:
    """Return the newest report of each class of hosts in some stores; files that are none are left out."""
    newest: dict[str, ProofReport] = {}
    for store in stores:
        for path in sorted((store / FOLDER).glob("*.json")):
            try:
                with open_plain(path) as file:
                    report = ProofReport.model_validate_json(file.read(MAX_BYTES))
            except (OSError, UserError, ValidationError):
                continue
            known = newest.get(report.host_class)
            if known is None or known.made < report.made:
                newest[report.host_class] = report
    return [newest[name] for name in sorted(newest)]
