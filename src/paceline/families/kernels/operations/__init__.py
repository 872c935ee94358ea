"""All operations of the family by name."""

from __future__ import annotations

from paceline.families.kernels.operation import Operation
from paceline.families.kernels.operations.attention import AttentionDecode, AttentionPrefill
from paceline.families.kernels.operations.float8 import ScaledGemm
from paceline.families.kernels.operations.loss import CrossEntropy, LmHeadLoss
from paceline.families.kernels.operations.matmul import DequantGemm, Gemm, GroupedGemm
from paceline.families.kernels.operations.memory import AddRmsNorm, Copy, StridedCopy, Triad

OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        Gemm(),
        ScaledGemm(),
        GroupedGemm(),
        DequantGemm(),
        AddRmsNorm(),
        CrossEntropy(),
        LmHeadLoss(),
        AttentionPrefill(),
        AttentionDecode(),
        Copy(),
        Triad(),
        StridedCopy(),
    )
}

__all__ = ["OPERATIONS"]
