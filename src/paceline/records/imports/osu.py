"""The tables of the OSU micro-benchmarks: point-to-point, collective, non-blocking and message-rate programs.

A title line begins a table and a header line names its columns. The number of ranks is not printed; the person who
imports gives it. OMB-Py, the same programs in Python, has columns of its own names. Lines of launchers are left out and
counted, and rows before a failed validation are kept (``launchers``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.records.imports.launchers import own_lines
from paceline.records.imports.reading import MEGA, MICRO, ONE, PERCENT, Foreign, Reading, number, whole

TOOL = "OSU micro-benchmarks"
LABEL = "osu"
COLUMNS: Mapping[str, tuple[str, int, str]] = {
    "Avg Latency(us)": ("avg_latency", MICRO, "us"),
    "Avg Lat(us)": ("avg_latency", MICRO, "us"),
    "Latency (us)": ("avg_latency", MICRO, "us"),
    "Latency(us)": ("avg_latency", MICRO, "us"),
    "Min Latency(us)": ("min_latency", MICRO, "us"),
    "Min Lat(us)": ("min_latency", MICRO, "us"),
    "Max Latency(us)": ("max_latency", MICRO, "us"),
    "Max Lat(us)": ("max_latency", MICRO, "us"),
    "P50 Tail Lat(us)": ("latency_p50", MICRO, "us"),
    "P90 Tail Lat(us)": ("latency_p90", MICRO, "us"),
    "P99 Tail Lat(us)": ("latency_p99", MICRO, "us"),
    "Bandwidth (MB/s)": ("bandwidth", MEGA, "MB/s"),
    "MB/s": ("bandwidth", MEGA, "MB/s"),
    "Messages/s": ("message_rate", ONE, "messages/s"),
    "Overall(us)": ("overall", MICRO, "us"),
    "Compute(us)": ("compute", MICRO, "us"),
    "Coll. Init(us)": ("coll_init", MICRO, "us"),
    "MPI_Test(us)": ("mpi_test", MICRO, "us"),
    "MPI_Wait(us)": ("mpi_wait", MICRO, "us"),
    "Init avg(us)": ("coll_init", MICRO, "us"),
    "Wait avg(us)": ("mpi_wait", MICRO, "us"),
    "Pure Comm.(us)": ("pure_comm", MICRO, "us"),
    "Overlap(%)": ("overlap", PERCENT, "%"),
}
"""Header → metric, power of ten to base units, unit. ``Size``, ``Iterations`` and ``Validation`` are not metrics."""
SIZE, ITERATIONS, VALIDATION = "Size", "Iterations", "Validation"
_SIZE_PYTHON = "Size (B)"
_TITLE = re.compile(r"#\s*(?:OSU|OMB(?= Python)) (.+?)(?: v([0-9][\w.]*))?\s*$")
_NAMES = sorted([*COLUMNS, SIZE, _SIZE_PYTHON, ITERATIONS, VALIDATION], key=len, reverse=True)
_HEADER = re.compile("|".join(re.escape(name) for name in _NAMES))
_DATATYPE = re.compile(r"#\s*Datatype:\s*(\S+?)\.?\s*$")
_PAIRS = re.compile(r"#\s*\[ pairs: (\d+) \] \[ window size: (\d+) \]\s*$")
_KNOWN: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce scatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "all-to-all personalized exchange": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
}


@dataclass(slots=True, kw_only=True)
class _Table:
    title: str
    params: dict[str, Scalar]
    columns: tuple[str, ...] = ()


def parse(text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse tables.

    Raises:
        UserError: A line that is neither a comment nor a row with the header's columns.
    """
    table: _Table | None = None
    versions: list[str] = []
    found: list[Reading] = []
    own = own_lines(text, name)
    for line_number, line in own.lines:
        where = f"{name}:{line_number}"
        if match := _TITLE.match(line):
            table = _Table(title=match.group(1), params={"op": operation(match.group(1)), **given})
            table.params["test"] = match.group(1)
            versions += [match.group(2)] if match.group(2) else []
        elif line.startswith("#"):
            if table is not None:
                _comment(line, table, where)
        elif table is None:
            raise UserError(
                f"'{line.strip()[:40]}' stands before any title of an OSU benchmark",
                where=where,
                expected="a line such as '# OSU MPI Allreduce Latency Test v7.5'",
            )
        else:
            found += _row(line, table, where)
    return Foreign(
        tool=TOOL,
        tool_version=", ".join(dict.fromkeys(versions)) or None,
        measured=None,
        readings=found,
        not_kept=("other comment lines",),
        skipped=dict(own.skipped),
        notes=own.notes(),
    )


def operation(title: str) -> str:
    """Return our name of the operation, where the title of a test names one of ours; else the title."""
    match = re.fullmatch(r"(?:MPI|xCCL|NCCL|RCCL)[-\w ]*? (.+?) Latency Test", title)
    match = match or re.fullmatch(r"Python MPI (.+?)(?: Latency)? Test", title)
    name = match.group(1) if match else title
    return _KNOWN.get(name.lower(), title if title.startswith("Python") else name)


def _comment(line: str, table: _Table, where: str) -> None:
    if match := _DATATYPE.match(line):
        table.params["datatype"] = match.group(1)
    elif match := _PAIRS.match(line):
        table.params["pairs"] = int(match.group(1))
        table.params["window"] = int(match.group(2))
    elif _HEADER.search(line) and not table.columns:
        words = line.removeprefix("#")
        rest = _HEADER.sub("", words).strip()
        if rest:
            raise UserError(f"unknown column '{rest[:40]}'", where=where, expected=", ".join(_NAMES))
        table.columns = tuple(SIZE if n == _SIZE_PYTHON else n for n in _HEADER.findall(words))


def _row(line: str, table: _Table, where: str) -> list[Reading]:
    if not table.columns:
        raise UserError("a result before the header of its table", where=where)
    words = line.split()
    if len(words) != len(table.columns):
        raise UserError(
            number_of(len(words), "column"),
            where=where,
            expected=f"{len(table.columns)}: {', '.join(table.columns)}",
        )
    cells = dict(zip(table.columns, words, strict=True))
    params = dict(table.params)
    if SIZE in cells:
        params["size_bytes"] = whole(cells[SIZE], where, "size")
    reported: dict[str, object] = {}
    if ITERATIONS in cells:
        reported["iterations"] = whole(cells[ITERATIONS], where, "iterations", least=1)
    failure = _validation(cells.get(VALIDATION), reported, where)
    found: list[Reading] = []
    for column, text in cells.items():
        if column in COLUMNS:
            metric, power, unit = COLUMNS[column]
            found.append(
                Reading(
                    label=LABEL,
                    params=params,
                    metric=metric,
                    numbers=[number(text, power, unit, f"{where}:{column}")],
                    where=where,
                    failure=failure,
                    reported=dict(reported),
                )
            )
    return found


def _validation(word: str | None, reported: dict[str, object], where: str) -> tuple[str, str] | None:
    if word is None:
        return None
    reported["validation"] = word
    if word in ("Fail", "Failed", "FAIL"):
        return "incorrect", "the benchmark's own validation failed"
    if word not in ("Pass", "Passed", "PASS", "-"):
        raise UserError(f"unknown validation '{word[:20]}'", where=where, expected="Pass or Fail")
    return None
