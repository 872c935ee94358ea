"""The points at which every kernel must be right; odd sizes around each are the gate's own."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.family import Scalar

RANKS: tuple[int, ...] = (1,)
DTYPES = ("float32", "bfloat16", "float16", "float64")
POINTS: Mapping[str, Mapping[str, Scalar]] = {
    "gemm": {"m": 130, "n": 67, "k": 300},
    "scaled_gemm": {"m": 130, "n": 64, "k": 304},
    "grouped_gemm": {"tokens": 50, "experts": 6, "n": 40, "k": 72},
    "dequant_gemm": {"m": 5, "n": 72, "k": 192, "bits": 3, "group": 32},
    "add_rmsnorm": {"tokens": 19, "hidden": 200},
    "cross_entropy": {"tokens": 21, "vocab": 2003},
    "lm_head_loss": {"tokens": 23, "hidden": 40, "vocab": 307},
    "attention_prefill": {"batch": 2, "tokens": 75, "heads": 4, "kv_heads": 2, "head_dim": 24},
    "attention_decode": {"batch": 3, "context": 301, "heads": 6, "kv_heads": 2, "head_dim": 24},
    "copy": {"size_bytes": 8 * 1013},
    "triad": {"size_bytes": 8 * 1013},
    "strided_copy": {"rows": 37, "columns": 11, "row_stride": 24},
}


WITHOUT: Mapping[str, tuple[str, ...]] = {"scaled_gemm": ("float64",)}
"""Dtypes that an operation does not have."""


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation: every dtype, and every width of low-bit weights."""
    if operation not in POINTS:
        return []
    dtypes = [dtype for dtype in DTYPES if dtype not in WITHOUT.get(operation, ())]
    found = [{**POINTS[operation], "dtype": dtype} for dtype in (dtypes[:1] if brief else dtypes)]
    if operation == "dequant_gemm":
        found += [{**POINTS[operation], "dtype": "float32", "bits": bits} for bits in (1, 2, 4, 5, 6, 7, 8)]
    return found
