"""All timed operations of the family by name."""

from __future__ import annotations

from paceline.families.collectives.classical import (
    AllGather,
    AllToAll,
    InPlace,
    Mix,
    ReduceScatter,
    SendReceive,
)
from paceline.families.collectives.linear_attention import LinearAttention
from paceline.families.collectives.matrix_product import MatrixProduct
from paceline.families.collectives.norm_layer import NormLayer
from paceline.families.collectives.operation import Operation
from paceline.families.collectives.sequence_attention import SequenceAttention
from paceline.families.collectives.strided import StridedExchange

_ALL: tuple[Operation, ...] = (
    InPlace(name="all_reduce"),
    InPlace(name="broadcast"),
    InPlace(name="reduce"),
    AllGather(),
    ReduceScatter(),
    AllToAll(),
    SendReceive(),
    Mix(),
    NormLayer(),
    LinearAttention(),
    SequenceAttention(),
    StridedExchange(),
    MatrixProduct(),
)

TIMED_OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}
