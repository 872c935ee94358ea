"""What the two outputs of nccl-tests share: one result with its in-place or out-of-place half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.base.errors import UserError
from paceline.base.family import Scalar
from paceline.records.imports.nccl_names import TYPES
from paceline.records.imports.reading import GIGA, MICRO, Reading, number, whole

TOOL = "nccl-tests"
LABEL = "nccl-tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Half of a line: the texts of its columns."""

    in_place: bool
    time: str
    algbw: str
    busbw: str
    wrong: str | None
    """Wrong elements as the tool counted them; None when it did not check."""
    cpu_time: bool = False


def point(
    section: Mapping[str, Scalar], size: int, count: int, type_name: str, redop: str | None, root: int | None
) -> dict[str, Scalar]:
    """Return the parameters of a line, in our words where we have them."""
    params: dict[str, Scalar] = {
        **section,
        "size_bytes": size,
        "count": count,
        "dtype": TYPES.get(type_name, type_name),
    }
    if redop not in (None, "none", ""):
        params["redop"] = redop
    if root is not None and root >= 0:
        params["root"] = root
    return params


def readings(
    side: Side, params: Mapping[str, Scalar], label: str, where: str, reported: Mapping[str, object]
) -> list[Reading]:
    """Return the readings of one half of a line."""
    wrong = _wrong(side.wrong, where)
    failure = None
    if wrong:
        failure = ("incorrect", f"nccl-tests counted {wrong} wrong elements")
    columns = (
        ("cpu_time" if side.cpu_time else "time", side.time, MICRO, "us"),
        ("algbw", side.algbw, GIGA, "GB/s"),
        ("busbw", side.busbw, GIGA, "GB/s"),
    )
    return [
        Reading(
            label=label,
            params={**params, "in_place": side.in_place},
            metric=name,
            numbers=[number(text, power, unit, f"{where}:{name}")],
            where=where,
            failure=failure,
            reported={"wrong_elements": wrong, **reported},
        )
        for name, text, power, unit in columns
    ]


def _wrong(text: str | None, where: str) -> int | None:
    if text is None or text in ("N/A", "nan"):
        return None
    value = number(text, 0, "elements", f"{where}:#wrong").base
    if value is None or value < 0 or value != int(value):
        raise UserError(f"'{text}' is not a number of elements", where=f"{where}:#wrong")
    return int(value)


def root_of(text: str, where: str) -> int:
    """Read the root column; −1 stands for an operation without a root."""
    return whole(text, where, "root", least=-1)
