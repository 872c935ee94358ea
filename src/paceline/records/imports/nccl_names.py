"""Names of nccl-tests and ours: operations and element types."""

from __future__ import annotations

from collections.abc import Mapping

OPERATIONS: Mapping[str, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
}
"""Program name without ``_perf`` → operation. Other programs keep their own name."""

TYPES: Mapping[str, str] = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "double": "float64",
    "int32": "int32",
    "int64": "int64",
}
"""Element type of nccl-tests → dtype. Other types keep their own name."""

PROGRAMS: Mapping[str, str] = {ours: theirs for theirs, ours in OPERATIONS.items()}
TYPE_NAMES: Mapping[str, str] = {ours: theirs for theirs, ours in TYPES.items()}
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce")


def operation(program: str) -> str:
    """Return the operation that a program measures, such as ``…/all_reduce_perf`` or ``all_reduce_perf_mpi``."""
    name = program.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    name = name.removesuffix("_mpi").removesuffix("_perf")
    return OPERATIONS.get(name, name)
