"""Calls ``paceline load`` as a person does, and reads what it recorded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paceline_commands

from paceline.records.format.record import Measurement
from paceline.records.store.folder import read_record, sealed_paths


def load(results: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = paceline_commands.command("load", *arguments, "--results", results)
    return subprocess.run(
        [*command, "--allow-concurrent"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=results.parent,
        env={**os.environ, **environment},
    )


def measured(results: Path) -> list[Measurement]:
    (path,) = sealed_paths(results)
    return read_record(path).measurements


def values(results: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for m in measured(results):
        if m.value is not None:
            found.setdefault(m.metric.name, []).append(m.value)
    return found


def accounting(measurement: Measurement) -> Mapping[str, Any]:
    assert measurement.accounting is not None
    return dict(measurement.accounting)
