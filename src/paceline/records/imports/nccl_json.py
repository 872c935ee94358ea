"""The JSON report of nccl-tests (``-J FILE``, file version 1).

The file holds the whole environment of the process that wrote it and the names of its hosts. Neither is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.errors import UserError
from paceline.base.family import Scalar
from paceline.records.imports.jsontext import Item, JsonText
from paceline.records.imports.nccl_names import operation
from paceline.records.imports.nccl_side import LABEL, TOOL, Side, point, readings, root_of
from paceline.records.imports.reading import Foreign, Reading

FILE_VERSION = 1
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
)
SIDES = (("out_of_place", False), ("in_place", True))


def parse(text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse a report.

    Raises:
        UserError: Malformed, or of another version of the layout.
    """
    rest, items = JsonText(text, name).read("results")
    if rest.get("version") != FILE_VERSION:
        raise UserError(
            f"the file's version is {rest.get('version')}",
            where=f"{name}:version",
            expected=str(FILE_VERSION),
        )
    config = rest.get("config")
    config = config if isinstance(config, dict) else {}
    devices = [d for d in config.get("devices") or () if isinstance(d, dict)]
    section: dict[str, Scalar] = {"op": _operation(rest, name, given)}
    ranks = given.get("ranks") or len(devices) or None
    if ranks:
        section["ranks"] = ranks
    found = [reading for item in items for reading in _result(item, section)]
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
        host_class=f"{', '.join(models)} × {len(devices)}" if models else None,
        device={"kind": "imported", "name": ", ".join(models), "count": len(devices)} if models else None,
        not_kept=("env, hostnames, process ids: private to the machine", "args: may hold paths and secrets"),
    )


def _operation(rest: Mapping[str, Any], name: str, given: Mapping[str, Scalar]) -> str:
    if given.get("op"):
        return str(given["op"])
    arguments = rest.get("args")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
        return operation(arguments[0])
    raise UserError("the file does not name its program", where=f"{name}:args", fix="--op all_reduce")


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
    if not found:
        raise UserError("neither out_of_place nor in_place", where=item.where)
    return found


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
