"""The points at which every technique of the family must conform: odd sizes, all dtypes, one to four ranks."""

from __future__ import annotations

from paceline.base.family import Scalar
from paceline.families.collectives.operation_specs import OPERATIONS

RANKS = (1, 2, 3, 4)
SIZES_BYTES = (8, 52, 4100, 65_548, 1_048_576)
"""Not multiples of the number of ranks, save the last."""

_SPECIAL: dict[str, list[dict[str, Scalar]]] = {
    "norm_layer": [
        {"tokens": 1, "hidden": 48, "layers": 1},
        {"tokens": 5, "hidden": 60, "layers": 2},
        {"tokens": 64, "hidden": 96, "layers": 3},
    ],
    "linear_attention": [
        {"tokens": 1, "heads": 1, "head_dim": 8},
        {"tokens": 17, "heads": 3, "head_dim": 16},
        {"tokens": 50, "heads": 2, "head_dim": 32},
    ],
    "sequence_attention": [
        {"tokens": 1, "heads": 2, "kv_heads": 2, "head_dim": 8},
        {"tokens": 9, "heads": 4, "kv_heads": 4, "head_dim": 16},
        {"tokens": 33, "heads": 4, "kv_heads": 1, "head_dim": 32},
    ],
    "matrix_product": [{"side": 4}, {"side": 36}, {"side": 130}],
    "strided_exchange": [
        {"num_blocks": 1, "block_bytes": 8, "stride_bytes": 8, "planes": 1},
        {"num_blocks": 7, "block_bytes": 24, "stride_bytes": 40, "planes": 1},
        {"num_blocks": 33, "block_bytes": 64, "stride_bytes": 136, "planes": 3},
    ],
}


def points(operation: str, *, floating_only: bool = False, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points for one operation, without the number of ranks.

    Args:
        operation: Name of the operation.
        floating_only: Leave integers out.
        brief: One odd size in two dtypes; the gate, which sees many more sizes, runs for each dtype all the same.
    """
    spec = OPERATIONS[operation]
    if operation in _SPECIAL:
        found = [{"dtype": "float32", "payload": "gaussian", **p} for p in _SPECIAL[operation]]
        return [found[1]] if brief else [*found, {**found[1], "dtype": "float64"}]
    if spec.scenario:
        return []
    sizes = SIZES_BYTES[2:] if operation == "mix" else SIZES_BYTES
    found = [{"dtype": "float32", "payload": "gaussian", "size_bytes": s} for s in sizes]
    if brief:
        return [found[2], {"dtype": "bfloat16", "payload": "gaussian", "size_bytes": 4100}]
    found.append({"dtype": "float32", "payload": "heavy-tailed", "size_bytes": 4100})
    found.append({"dtype": "bfloat16", "payload": "gaussian", "size_bytes": 4100})
    found.append({"dtype": "float64", "payload": "gradient-like", "size_bytes": 4104})
    if not floating_only and operation != "mix":
        found.append({"dtype": "int32", "payload": "integers", "size_bytes": 4100})
    return found
