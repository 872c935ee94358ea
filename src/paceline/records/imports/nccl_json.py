"""The JSON report of nccl-tests (``-J FILE``, file versions 1 to 3).

The file holds the whole environment of the process that wrote it and the names of its hosts. Neither is kept. Version 2
(release 2.19.2) added the time of every iteration (``-I 1``), version 3 (2.19.6) how many its summary skips (``-K``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.records.imports.jsontext import Item, JsonText
from paceline.records.imports.nccl_names import operation
from paceline.records.imports.nccl_side import (
    LABEL,
    TOOL,
    Side,
    failure_of,
    group_note,
    group_params,
    point,
    readings,
    refuse,
    root_of,
    wrong_elements,
)
from paceline.records.imports.reading import MICRO, Foreign, Reading, number

FILE_VERSIONS = (1, 2, 3)
CONFIG_KEYS = (
    "nthreads",
    "ngpus",
    "warmup_iters",
    "iterations",
    "aggregated_iterations",
    "validation",
    "graph",
    "blocking_collectives",
    "parallel_init",
    "per_iter_timing",
    "per_iter_skip",
)
SUMMARY_KEYS = ("min_us", "max_us", "avg_us", "p50_us", "p95_us", "p99_us", "stdev_us", "cv_pct")
SIDES = (("out_of_place", False), ("in_place", True))


def parse(text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse a report.

    Raises:
        UserError: Malformed, or of another version of the layout.
    """
    rest, items = JsonText(text, name).read("results")
    if rest.get("version") not in FILE_VERSIONS:
        raise UserError(
            f"the file's version is {rest.get('version')}",
            where=f"{name}:version",
            expected=f"{FILE_VERSIONS[0]} to {FILE_VERSIONS[-1]}",
        )
    config = rest.get("config")
    config = config if isinstance(config, dict) else {}
    devices = [d for d in config.get("devices") or () if isinstance(d, dict)]
    groups = rank_groups(config, devices)
    section: dict[str, Scalar] = {"op": _operation(rest, name, given), **group_params(groups)}
    if given.get("ranks"):
        section["ranks"] = given["ranks"]
    found = [reading for item in items for reading in _result(item, section)]
    bounds = rest.get("out_of_bounds")
    if isinstance(bounds, dict) and str(bounds.get("okay")).lower() == "false":
        refuse(found, f"out_of_bounds {_plain(bounds)}")
    models = sorted({str(d.get("device_info")) for d in devices if d.get("device_info")})
    return Foreign(
        tool=TOOL,
        tool_version=None,
        measured=rest["start_time"] if isinstance(rest.get("start_time"), str) else None,
        readings=found,
        facts={
            "nccl_version": rest.get("nccl_version"),
            "config": {k: config[k] for k in CONFIG_KEYS if isinstance(config.get(k), int | str)},
            "out_of_bounds": _plain(rest.get("out_of_bounds")),
            "average_bus_bandwidth": _plain(rest.get("average_bus_bandwidth")),
        },
        host_class=f"{', '.join(models)} × {len(groups)}" if models else None,
        device={"kind": "imported", "name": ", ".join(models), "count": len(groups)} if models else None,
        not_kept=(
            "env, hostnames, process ids: private to the machine",
            "args: may hold paths and secrets",
            *_times_of_processes(items),
        ),
        notes=(*group_note(groups), *_guesses(config, devices), *_errors(rest)),
    )


def rank_groups(config: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return each rank's group, rank 0 first.

    The tool lists the first device of every process only; a process has threads × GPUs ranks.

    Args:
        config: The settings of the run.
        devices: Its devices, as the file lists them.
    """
    per_process = _positive(config.get("nthreads")) * _positive(config.get("ngpus"))
    group_of: dict[int, int] = {}
    for position, device in enumerate(devices):
        rank, group = device.get("rank"), device.get("group")
        process = rank // per_process if type(rank) is int and rank >= 0 else position
        group_of.setdefault(process, group if type(group) is int else 0)
    return [group_of[process] for process in sorted(group_of) for _ in range(per_process)]


def _positive(value: Any) -> int:
    return value if type(value) is int and 1 <= value <= 1 << 20 else 1


def _guesses(config: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Say what was taken for settings that the number of ranks hangs on, and that the file does not tell."""
    if not devices:
        return ()
    odd = [k for k in ("nthreads", "ngpus") if _positive(config.get(k)) != config.get(k)]
    told = [f"'{k}' is {json.dumps(config.get(k), default=str)[:40]}: 1 was taken for it" for k in odd]
    ranks = sum(type(d.get("rank")) is not int for d in devices)
    if ranks:
        told.append(
            f"{number_of(ranks, 'device tells', 'devices tell')} no rank: their places in the list were taken for it"
        )
    groups = sum(type(d.get("group")) is not int for d in devices)
    if 0 < groups < len(devices):
        told.append(f"{number_of(groups, 'device tells', 'devices tell')} no group: 0 was taken for it")
    return tuple(told)


def _times_of_processes(items: Sequence[Item]) -> tuple[str, ...]:
    sides = [item.data.get(f"{key}_per_iter") for item in items for key, _ in SIDES]
    if any(isinstance(side, dict) and "per_process_max_times_us" in side for side in sides):
        return ("per_process_max_times_us: of every iteration the slowest process is kept",)
    return ()


def _errors(rest: Mapping[str, Any]) -> tuple[str, ...]:
    errors = rest.get("errors")
    return (
        (f"the tool reports {number_of(len(errors), 'error')} of its own",)
        if isinstance(errors, list) and errors
        else ()
    )


def _operation(rest: Mapping[str, Any], name: str, given: Mapping[str, Scalar]) -> str:
    if given.get("op"):
        return str(given["op"])
    arguments = rest.get("args")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
        return operation(arguments[0])
    raise UserError("the file does not name its program", where=f"{name}:args", fix="--op=all_reduce")


def _result(item: Item, section: Mapping[str, Scalar]) -> list[Reading]:
    root = item.data.get("root")
    root_text = str(root).strip() if isinstance(root, str | int) else "-1"
    params = point(
        section,
        item.count("size"),
        item.count("count"),
        item.text("type"),
        item.text("redop") if item.data.get("redop") is not None else None,
        root_of(root_text, f"{item.where}.root"),
    )
    reported = {
        "iterations": item.data.get("actual_iterations"),
        "experiment": item.data.get("experiment_name"),
    }
    found: list[Reading] = []
    for key, in_place in SIDES:
        if item.data.get(key) is not None:
            side = item.below(key)
            found += readings(_side(side, in_place), params, LABEL, side.where, reported)
            if item.data.get(f"{key}_per_iter") is not None:
                found.append(
                    _iterations(item.below(f"{key}_per_iter"), side, {**params, "in_place": in_place})
                )
    if not found:
        raise UserError("neither out_of_place nor in_place", where=item.where)
    return found


def _iterations(item: Item, side: Item, params: Mapping[str, Scalar]) -> Reading:
    """Return the times of single iterations as samples, without those that the tool was told to skip."""
    times = item.data.get("times_us")
    skipped = item.count("skipped_iterations") if "skipped_iterations" in item.data else 0
    if not isinstance(times, list) or skipped >= len(times):
        raise UserError("not a list of times beyond those skipped", where=f"{item.where}.times_us")
    wrong = wrong_elements(None if side.data.get("nwrong") is None else side.decimal("nwrong"), side.where)
    return Reading(
        label=LABEL,
        params=params,
        metric="iteration_time",
        numbers=[
            number(item.number_text(v, f"times_us[{i}]"), MICRO, "us", f"{item.where}.times_us[{i}]")
            for i, v in enumerate(times)
            if i >= skipped
        ],
        where=item.where,
        failure=failure_of(wrong),
        reported={
            "wrong_elements": wrong,
            "skipped_iterations": skipped,
            "summary": {k: item.decimal(k) for k in SUMMARY_KEYS if k in item.data},
        },
    )


def _side(item: Item, in_place: bool) -> Side:
    cpu_time = "cpu_time" in item.data
    wrong = item.data.get("nwrong")
    return Side(
        in_place=in_place,
        time=item.decimal("cpu_time" if cpu_time else "time"),
        algbw=item.decimal("alg_bw"),
        busbw=item.decimal("bus_bw"),
        wrong=None if wrong is None else item.decimal("nwrong"),
        cpu_time=cpu_time,
    )


def _plain(value: Any) -> Any:
    return {k: str(v) for k, v in value.items()} if isinstance(value, dict) else None
