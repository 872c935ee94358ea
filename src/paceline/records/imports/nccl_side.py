"""What the two outputs of nccl-tests share: one half of a result, in place or not, and the ranks of a group.

Since release 2.19 ``-I 1`` reports single iterations too: by CUDA events, the slowest process of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.records.imports.nccl_names import TYPES
from paceline.records.imports.reading import GIGA, MICRO, PERCENT, Number, Reading, number, whole
from paceline.records.imports.resolution import bandwidth

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
    per_iteration: Mapping[str, str] = field(default_factory=dict)
    """Columns of ``-I 1``, by their names in ``PER_ITERATION``."""


PER_ITERATION: Mapping[str, tuple[str, int, str]] = {
    "i_min": ("iteration_min", MICRO, "us"),
    "i_max": ("iteration_max", MICRO, "us"),
    "i_p99": ("iteration_p99", MICRO, "us"),
    "i_cv%": ("iteration_cv", PERCENT, "%"),
}
"""Column → metric, power of ten to base units, unit."""


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
    """Return the readings of one half of a line, the time first; what the line does not tell is absent beside it."""
    wrong = wrong_elements(side.wrong, where)
    time_name = "cpu_time" if side.cpu_time else "time"
    time = number(side.time, MICRO, "us", f"{where}:{time_name}")
    told: dict[str, tuple[Number, tuple[str, ...]]] = {time_name: (time, ())}
    absent: dict[str, str] = {}
    for name, text in (("algbw", side.algbw), ("busbw", side.busbw)):
        found = bandwidth(name, number(text, GIGA, "GB/s", f"{where}:{name}"), time, params)
        if isinstance(found, str):
            absent[name] = found
        else:
            told[name] = found
    for column, text in side.per_iteration.items():
        name, power, unit = PER_ITERATION[column]
        told[name] = number(text, power, unit, f"{where}:{name}"), ()
    return [
        Reading(
            label=label,
            params={**params, "in_place": side.in_place},
            metric=name,
            numbers=[value],
            where=where,
            failure=failure_of(wrong),
            reported={"wrong_elements": wrong, **reported},
            flags=flags,
            absent=absent if name == time_name else {},
        )
        for name, (value, flags) in told.items()
    ]


def failure_of(wrong: int | None) -> tuple[str, str] | None:
    """Return status and reason of a half with wrong elements."""
    return ("incorrect", f"nccl-tests counted {wrong} wrong elements") if wrong else None


def refuse(found: Sequence[Reading], said: str) -> None:
    """Let no number stand of a run that the tool calls wrong, unless it is told which results were.

    Args:
        found: The readings of the run.
        said: The line, or the key, that says so.
    """
    told = any(reading.failure for reading in found)
    for reading in found:
        if reading.failure is None and (not told or reading.reported.get("wrong_elements") is None):
            reading.failure = "incorrect", f"nccl-tests calls the run wrong: {said}"


def group_params(groups: Sequence[int]) -> dict[str, Scalar]:
    """Return the ranks that ran one operation together, and the number of such groups where there are several.

    ``NCCL_TESTS_SPLIT`` divides the ranks into groups that run at the same time; sizes and bandwidths are of a group,
    that of rank 0.

    Args:
        groups: Each rank's group, rank 0 first.
    """
    if not groups:
        return {}
    number = len(set(groups))
    return {"ranks": groups.count(groups[0]), **({"groups": number} if number > 1 else {})}


def group_note(groups: Sequence[int]) -> tuple[str, ...]:
    """Say that groups have different sizes, where they have."""
    sizes = Counter(groups)
    if len(set(sizes.values())) < 2:
        return ()
    return (
        f"groups of {', '.join(map(str, sorted(sizes.values())))} ranks; 'ranks' is that of rank 0's group",
    )


def wrong_elements(text: str | None, where: str) -> int | None:
    """Return the wrong elements that the tool counted, None where it did not check."""
    if text is None or text in ("N/A", "nan"):
        return None
    value = number(text, 0, "elements", f"{where}:#wrong").base
    if value is None or value < 0 or value != int(value):
        raise UserError(f"'{text}' is not a number of elements", where=f"{where}:#wrong")
    return int(value)


def root_of(text: str, where: str) -> int:
    """Read the root column; −1 stands for an operation without a root."""
    return whole(text, where, "root", least=-1)
