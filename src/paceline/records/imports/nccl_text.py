"""The table that nccl-tests prints, several of them in one file too, and the same layout from `paceline export`.

Every line of the tool is a comment (``#``) or a result. A header line names the columns; what stands in them is read by
position. Lines of NCCL and of launchers between them are left out and counted (``launchers``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.records.imports.launchers import own_lines
from paceline.records.imports.nccl_names import operation
from paceline.records.imports.nccl_side import (
    LABEL,
    PER_ITERATION,
    TOOL,
    Side,
    group_note,
    group_params,
    point,
    readings,
    refuse,
    root_of,
)
from paceline.records.imports.reading import Foreign, Reading, whole

OWN_LINE = "# paceline "
"""Begins a line that `paceline export` adds: technique and parameters as JSON."""
_VERSION = re.compile(r"# nccl-tests version (\S+)")
_RCCL = re.compile(r"rccl-tests: Version (\S+)")
_JUDGED = re.compile(r"#\s*(Out of bounds values\s*:\s*\d+\s+(\w+))")
"""Below a table: how many values were out of bounds, and whether the run passed."""
_START = re.compile(r"# Collective test starting: (\S+)")
_RANK = re.compile(r"#\s+Rank\s+(\d+) (?:\s*Group\s+(-?\d+) )?.*?device\s+\d+ \[[^\]]*\] (.+?)\s*$")
_SETTINGS = re.compile(r"# (nThread \d+ .*)$")
_SIDE = (("time", "cputime"), ("algbw",), ("busbw",), ("#wrong", "error"))
_POINT = ("size", "count", "type", "redop", "root")


@dataclass(slots=True, kw_only=True)
class _Section:
    """What the comments above a table said."""

    op: str | None = None
    label: str = LABEL
    params: dict[str, Scalar] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    """Rank → group."""
    columns: tuple[str, ...] = ()
    """Names before the two halves; empty until a header was seen."""
    per_iteration: tuple[str, ...] = ()
    """Names behind each half that ``-I 1`` adds."""
    cpu_time: bool = False
    counts_wrong: bool = True
    timestamp: bool = False


@dataclass(slots=True, kw_only=True)
class _Facts:
    version: str | None = None
    settings: list[str] = field(default_factory=list)
    models: set[str] = field(default_factory=set)
    most_ranks: int = 0
    notes: dict[str, None] = field(default_factory=dict)


def parse(text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse tables.

    Raises:
        UserError: A line that is neither a comment nor a result with the header's columns.
    """
    section, facts = _Section(), _Facts()
    found: list[Reading] = []
    judged = 0  # of the readings those before the last line that judges a run
    own = own_lines(text, name)
    for line_number, line in own.lines:
        where = f"{name}:{line_number}"
        if match := _RCCL.match(line):
            facts.version = f"rccl-tests {match.group(1)}"
        elif match := _JUDGED.match(line):
            if match.group(2) == "FAILED":
                refuse(found[judged:], match.group(1))
            judged = len(found)
        elif line.startswith("#"):
            section = _comment(line, section, facts, where)
        else:
            found += _result(line, section, where, given)
            facts.notes.update(dict.fromkeys(group_note(_groups(section))))
    models = sorted(facts.models)
    return Foreign(
        tool=TOOL,
        tool_version=facts.version,
        measured=None,
        readings=found,
        facts={"settings": facts.settings},
        host_class=f"{', '.join(models)} × {facts.most_ranks}" if models else None,
        device={"kind": "imported", "name": ", ".join(models), "count": facts.most_ranks} if models else None,
        not_kept=("hostnames, process ids: private to the machine",),
        skipped=dict(own.skipped),
        notes=(*own.notes(), *facts.notes),
    )


def _comment(line: str, section: _Section, facts: _Facts, where: str) -> _Section:
    if line.startswith(OWN_LINE):
        return _own(line.removeprefix(OWN_LINE), where)
    if match := _VERSION.match(line):
        facts.version = match.group(1)
        return _Section()
    if match := _START.match(line):
        return _Section(op=operation(match.group(1)))
    if match := _SETTINGS.match(line):
        facts.settings.append(match.group(1))
        section.groups.clear()
    elif match := _RANK.match(line):
        _rank(int(match.group(1)), int(match.group(2) or 0), section, where)
        facts.most_ranks = max(facts.most_ranks, len(section.groups))
        facts.models.add(match.group(3))
    else:
        words = line.removeprefix("#").split()
        if words[:3] == list(_POINT[:3]):
            _header(words, section, where)
    return section


def _rank(rank: int, group: int, section: _Section, where: str) -> None:
    if rank in section.groups:
        raise UserError(
            f"rank {rank} is listed twice: outputs of several runs are mixed, or of a program built without MPI",
            where=where,
            expected="the output of one run",
            fix="make MPI=1 in nccl-tests, or one file for each process",
        )
    section.groups[rank] = group


def _groups(section: _Section) -> list[int]:
    return [section.groups[rank] for rank in sorted(section.groups)]


def _own(text: str, where: str) -> _Section:
    try:
        data = json.loads(text)
        params = dict(data["params"])
        label, op = str(data["technique"]), str(params["op"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError("unreadable line of `paceline export`", where=where) from error
    if not all(v is None or isinstance(v, str | int | float) for v in params.values()):
        raise UserError("a parameter is not a plain value", where=where)
    return _Section(op=op, label=label, params=params)


def _header(words: list[str], section: _Section, where: str) -> None:
    before = [w for w in words if w in _POINT]
    halves = words[len(before) :]
    section.timestamp = halves[-1:] == ["timestamp"]
    halves = halves[:-1] if section.timestamp else halves
    width = len(halves) // 2
    per_iteration = tuple(halves[4:width])
    fits = (
        len(halves) == 2 * width
        and width >= len(_SIDE)
        and per_iteration == tuple(halves[width + 4 :])
        and per_iteration in ((), tuple(PER_ITERATION))
        and all(halves[start + i] in _SIDE[i] for start in (0, width) for i in range(4))
    )
    if not fits or tuple(before) != tuple(p for p in _POINT if p in before):
        raise UserError(
            "unknown columns",
            where=where,
            expected=f"size count type redop root, and twice time algbw busbw #wrong [{' '.join(PER_ITERATION)}]",
        )
    section.per_iteration = per_iteration
    section.columns = tuple(before)
    section.cpu_time = halves[0] == "cputime"
    section.counts_wrong = halves[3] == "#wrong"


def _result(line: str, section: _Section, where: str, given: Mapping[str, Scalar]) -> list[Reading]:
    if not section.columns:
        raise UserError(
            f"'{line.strip()[:40]}' stands before any header of nccl-tests",
            where=where,
            expected="comment lines that begin with '#', then results",
        )
    words = line.split()
    base = len(section.columns)
    extra = 2 if section.timestamp else 0
    width = 4 + len(section.per_iteration)
    if len(words) not in (base + width + extra, base + 2 * width + extra):
        raise UserError(
            number_of(len(words), "column"),
            where=where,
            expected=f"{base + 2 * width + extra}, as the header names them",
            fix="keep NCCL's log out of the table: NCCL_DEBUG_FILE=nccl.log" if "NCCL" in line else None,
        )
    named = dict(zip(section.columns, words, strict=False))
    halves = words[base : len(words) - extra]
    params = point(
        _section_params(section, given, where),
        whole(named["size"], where, "size"),
        whole(named["count"], where, "count"),
        named["type"],
        named.get("redop"),
        root_of(named["root"], where) if "root" in named else None,
    )
    both = len(halves) == 2 * width
    sides = [(False, halves[:width]), (True, halves[width:])] if both else [(True, halves)]
    found: list[Reading] = []
    for in_place, cells in sides:
        if cells[:4] == ["N/A"] * 4:
            continue
        side = Side(
            in_place=in_place,
            time=cells[0],
            algbw=cells[1],
            busbw=cells[2],
            wrong=cells[3] if section.counts_wrong else None,
            cpu_time=section.cpu_time,
            per_iteration=dict(zip(section.per_iteration, cells[4:], strict=True)),
        )
        reported: dict[str, Any] = {} if section.counts_wrong else {"error": cells[3]}
        found += readings(side, params, section.label, where, reported)
    if not found:
        raise UserError("neither half of the line holds a result", where=where)
    return found


def _section_params(section: _Section, given: Mapping[str, Scalar], where: str) -> dict[str, Scalar]:
    op = given.get("op") or section.op
    if not op:
        raise UserError(
            "the file does not say which operation it measured", where=where, fix="--op=all_reduce"
        )
    params: dict[str, Scalar] = {**group_params(_groups(section)), **section.params, "op": op}
    if given.get("ranks"):
        params["ranks"] = given["ranks"]
    return params
