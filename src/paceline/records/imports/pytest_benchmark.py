"""The JSON of pytest-benchmark: its own runs, and what `paceline export` writes in the same layout.

With raw rounds every round is a sample. Without them the file's summary is kept as such, in metrics of its own. A
benchmark is known by its full name, since two modules may have tests of one name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.records.imports.jsontext import Item, JsonText, refuse_repeated
from paceline.records.imports.reading import ONE, Foreign, Number, Reading, number

TOOL = "pytest-benchmark"
OWN_KEY = "paceline"
"""Key in ``extra_info`` where `paceline export` says what its pooled samples are."""
SUMMARY = (
    ("mean", "reported_mean"),
    ("median", "reported_median"),
    ("min", "reported_min"),
    ("max", "reported_max"),
)
SUMMARY_ONLY = "summary-only"
LONGEST_TEXT = 300
"""Characters of a name or parameter that are kept as they are; longer ones, often data, are kept by their digest."""

GROUP = "group"
"""Parameter that holds a benchmark's group."""


def parse(text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse a file.

    Raises:
        UserError: Malformed, with the line at which the benchmark begins.
    """
    rest, items = JsonText(text, name).read("benchmarks")
    machine = rest.get("machine_info")
    machine = machine if isinstance(machine, dict) else {}
    cpu = machine.get("cpu") if isinstance(machine.get("cpu"), dict) else {}
    assert isinstance(cpu, dict)
    commit = rest.get("commit_info")
    commit = commit if isinstance(commit, dict) else {}
    model = cpu.get("brand_raw") or cpu.get("brand")
    shortened: list[str] = []
    found = [reading for item in items for reading in _benchmark(item, given, shortened)]
    return Foreign(
        tool=TOOL,
        tool_version=str(rest["version"]) if "version" in rest else None,
        measured=str(rest["datetime"]) if "datetime" in rest else None,
        readings=found,
        facts={
            "python": machine.get("python_version"),
            "system": machine.get("system"),
            "machine": machine.get("machine"),
            "commit": {k: commit.get(k) for k in ("id", "dirty")},
        },
        host_class=f"{model}, {cpu.get('count')} cores" if model else None,
        not_kept=(
            "machine_info beside processor and Python, branch, author: private to the machine",
            "options, cprofile: not part of a result",
            "extra_info but for what paceline export wrote",
        ),
        notes=_shortened(shortened),
    )


def _shortened(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    which = ", ".join(dict.fromkeys(names))
    return (
        f"{number_of(len(names), 'text')} of more than {LONGEST_TEXT} characters are kept by their digest: {which}",
    )


def _benchmark(item: Item, given: Mapping[str, Scalar], shortened: list[str]) -> list[Reading]:
    stats = item.below("stats")
    extra = item.data.get("extra_info")
    own = extra.get(OWN_KEY) if isinstance(extra, dict) else None
    name = _kept(item.text("name"), "name", shortened)
    full = item.data.get("fullname")
    label = _kept(full, "fullname", shortened) if isinstance(full, str) and full else name
    params = {**_params(item, shortened), **given}
    if isinstance(own, dict):
        refuse_repeated(own, f"{item.where}.extra_info.{OWN_KEY}")
        label = name = str(own.get("technique", label))
        params["metric"] = str(own.get("metric"))
        params["suite"] = str(own.get("suite"))
    params.setdefault("op", name)
    reported = {
        "iterations": _whole(stats.data.get("iterations")),
        "fullname": _kept(full, "fullname", []) if isinstance(full, str) else None,
    }
    data = stats.data.get("data")
    if data is None:
        return [
            Reading(
                label=label,
                params=params,
                metric=metric,
                numbers=[number(stats.decimal(key), ONE, "s", f"{stats.where}.{key}")],
                where=stats.where,
                reported={**reported, "rounds": _whole(stats.data.get("rounds"))},
                flags=(SUMMARY_ONLY,),
            )
            for key, metric in SUMMARY
        ]
    numbers = _rounds(stats, data)
    return [
        Reading(
            label=label,
            params=params,
            metric="round_time",
            numbers=part,
            where=stats.where,
            launch=launch,
            reported=dict(reported),
        )
        for launch, part in _launches(numbers, own, stats.where)
    ]


def _rounds(stats: Item, data: Any) -> list[Number]:
    if not isinstance(data, list) or not data:
        raise UserError("not a list of rounds", where=f"{stats.where}.data")
    rounds = stats.data.get("rounds")
    if rounds is not None and rounds != len(data):
        raise UserError(
            f"{number_of(len(data), 'round')}, but 'rounds' says {rounds}", where=f"{stats.where}.data"
        )
    return [
        number(stats.number_text(v, f"data[{i}]"), ONE, "s", f"{stats.where}.data[{i}]")
        for i, v in enumerate(data)
    ]


def _launches(numbers: list[Number], own: Any, where: str) -> list[tuple[int, list[Number]]]:
    """Split pooled samples into launches where the file says how; otherwise everything is one launch."""
    counts = own.get("launch_samples") if isinstance(own, dict) else None
    if counts is None:
        return [(0, numbers)]
    place = f"{where}:extra_info.{OWN_KEY}.launch_samples"
    if not isinstance(counts, dict) or not all(
        k.isascii() and k.isdigit() and type(v) is int and v > 0 for k, v in counts.items()
    ):
        raise UserError("not launches with their numbers of samples", where=place)
    if sum(counts.values()) != len(numbers):
        raise UserError(
            f"adds up to {sum(counts.values())}, not to {number_of(len(numbers), 'sample')}", where=place
        )
    parts, begin = [], 0
    for launch, count in counts.items():
        parts.append((int(launch), numbers[begin : begin + count]))
        begin += count
    return parts


def _kept(text: str, what: str, shortened: list[str]) -> str:
    """Return a text as it is, or its beginning and its digest where it is long."""
    if len(text) <= LONGEST_TEXT:
        return text
    shortened.append(what)
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[:60]}… (sha256 {digest}, {number_of(len(text), 'character')})"


def _params(item: Item, shortened: list[str]) -> dict[str, Scalar]:
    given = item.data.get("params")
    params: dict[str, Scalar] = {}
    if isinstance(given, dict):
        refuse_repeated(given, f"{item.where}.params")
    for written, value in (given if isinstance(given, dict) else {}).items():
        key = _kept(written, "a parameter's name", shortened)
        if isinstance(value, str):
            params[key] = _kept(value, written[:40], shortened)
        elif value is None or isinstance(value, int):
            params[key] = value
        elif isinstance(value, Decimal):
            params[key] = float(value)
        else:
            text = json.dumps(value, sort_keys=True, default=str)
            params[key] = _kept(text, written[:40], shortened)
    group = item.data.get("group")
    if isinstance(group, str):
        # Both stay where a parameter has the same name: two groups are two points.
        key = GROUP if GROUP not in params else f"{GROUP} of the benchmark"
        params[key] = _kept(group, "group", shortened)
    return params


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
