"""What the machines of a site are, and what was measured of them beside the techniques: calibrated ceilings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.evidence import OFF_BOARD_REASONS
from paceline.base.units import format_quantity
from paceline.records.format.record import Measurement, Run
from paceline.records.store.folder import RunRecord
from paceline.records.store.proofs import ProofReport
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.runs.page import flat, run_slug
from paceline.report.tables.results import format_param
from paceline.report.words.estimates import ABSENT

APART = ("dtype", "ranks", "link")
"""Parameters of a point on which a ceiling depends."""
UNITS = (("flops_per_s", "FLOP/s"), ("bytes_per_s", "B/s"), ("_bytes", "B"), ("_s", "s"))
"""Ends of a ceiling's name, and its unit."""

Key = tuple[str, str, tuple[str, ...], str]
"""Family, runner, what sets the points apart, name of the ceiling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One class of hosts: the newest run on it, how many there are, and its ceilings by launch."""

    host_class: str
    newest: Run
    num_runs: int
    ceilings: Mapping[Key, Sequence[float]]
    datasheets: Mapping[Key, float]


def machines(records: Iterable[RunRecord]) -> list[Machine]:
    """Group runs by their class of hosts; calibrations and corrections are left out."""
    runs: dict[str, list[Run]] = {}
    ceilings: dict[str, dict[Key, list[float]]] = {}
    datasheets: dict[str, dict[Key, float]] = {}
    for record in records:
        run = record.run
        if run.reason in OFF_BOARD_REASONS:
            continue
        host = run.host_class or ABSENT
        runs.setdefault(host, []).append(run)
        own, sheets = ceilings.setdefault(host, {}), datasheets.setdefault(host, {})
        runner = str(run.runner.get("name") or ABSENT)
        calibrated = {
            (m.block, m.launch): m for m in record.measurements if (m.ceilings or {}).get("calibrated")
        }
        for m in calibrated.values():
            for key, value in _figures(m, runner, "calibrated"):
                own.setdefault(key, []).append(value)
            sheets.update(_figures(m, runner, "datasheet"))
    return [
        Machine(
            host_class=host,
            newest=max(found, key=lambda r: r.run_id),
            num_runs=len(found),
            ceilings=ceilings[host],
            datasheets=datasheets[host],
        )
        for host, found in sorted(runs.items())
    ]


def _figures(m: Measurement, runner: str, which: str) -> list[tuple[Key, float]]:
    given: Any = (m.ceilings or {}).get(which)
    if not isinstance(given, Mapping):
        return []
    apart = tuple(f"{name} {format_param(name, m.params[name])}" for name in APART if name in m.params)
    return [
        ((m.family, runner, apart, str(name)), float(value))
        for name, value in given.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ]


def ceiling_grid(machine: Machine) -> Grid:
    """Return each calibrated ceiling that is not always zero: median and range of all launches, datasheet's value."""
    rows: list[Sequence[Cell | str]] = []
    for key, values in sorted(machine.ceilings.items()):
        if not any(values):
            continue
        family, runner, apart, name = key
        unit = next((unit for end, unit in UNITS if name.endswith(end)), "1")
        middle, sheet = statistics.median(values), machine.datasheets.get(key)
        ends = f"{format_quantity(min(values), unit)} to {format_quantity(max(values), unit)}"
        stated = (ABSENT, ABSENT) if not sheet else (format_quantity(sheet, unit), f"{middle / sheet:.1%}")
        where = Cell(text=", ".join(apart) or ABSENT, kind="text")
        count = str(len(values))
        rows.append([family, runner, where, name, format_quantity(middle, unit), ends, count, *stated])
    headers = (
        "family",
        "runner",
        "at",
        "ceiling",
        "median",
        "range",
        "launches",
        "datasheet",
        "of datasheet",
    )
    return rows_grid(f"ceilings of {machine.host_class}", headers, rows)


def proof_grid(report: ProofReport) -> Grid:
    """Return what was proved of a machine, in the order in which it was tried."""
    colours = {"ok": "good", "failed": "bad", "not run": "quiet"}
    rows: list[Sequence[Cell | str]] = [
        [
            Cell(text=proof.name, kind="text"),
            Cell(text=proof.status, kind=f"text verdict {colours[proof.status]}"),
            ABSENT if proof.seconds is None else format_quantity(proof.seconds, "s"),
            Cell(text="; ".join(t for t in (proof.detail, proof.fix) if t), kind="text prose"),
        ]
        for proof in report.proofs
    ]
    headers = ("proof", "result", "took", "what was measured, or what to do")
    return rows_grid(f"proofs of {report.host_class}", headers, rows)


def host_facts(machine: Machine) -> list[tuple[str, str]]:
    """Return what the newest run on a machine says of host and device."""
    run = machine.newest
    return [
        pair
        for part in (run.host, run.device)
        for name, value in (part or {}).items()
        for pair in flat(name, value)
    ]


def newest_href(machine: Machine) -> str:
    """Return the path of that run's page."""
    return f"runs/{run_slug(machine.newest.run_id)}.html"
