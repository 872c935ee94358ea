"""The operations of the family as the control plane knows them, free of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSpec:
    """What the control plane knows about an operation."""

    name: str
    doc: str
    sized: bool
    """True when ``size_bytes`` gives S; other operations have parameters of their own."""
    sharded: bool = False
    """True when S is the sum of n equal shares."""
    bus_factor: Callable[[int], float] | None = None
    """busbw = algbw × factor(n); None where bandwidth is not defined."""
    min_ranks: int = 1
    scenario: bool = False
    """True when the operation is a scripted scenario with faults instead of a timed call."""


OPERATIONS: dict[str, OperationSpec] = {
    o.name: o
    for o in (
        OperationSpec(
            name="all_reduce",
            doc="Every rank ends with the sum over ranks.",
            sized=True,
            bus_factor=lambda n: 2 * (n - 1) / n,
        ),
        OperationSpec(
            name="all_gather",
            doc="Every rank ends with the concatenation of all ranks' shares.",
            sized=True,
            sharded=True,
            bus_factor=lambda n: (n - 1) / n,
        ),
        OperationSpec(
            name="reduce_scatter",
            doc="Every rank ends with its share of the sum over ranks.",
            sized=True,
            sharded=True,
            bus_factor=lambda n: (n - 1) / n,
        ),
        OperationSpec(
            name="all_to_all",
            doc="The i-th share of rank r goes to rank i.",
            sized=True,
            sharded=True,
            bus_factor=lambda n: (n - 1) / n,
        ),
        OperationSpec(
            name="broadcast",
            doc="Every rank ends with the root's buffer.",
            sized=True,
            bus_factor=lambda n: 1.0,
        ),
        OperationSpec(
            name="reduce",
            doc="The root ends with the sum over ranks.",
            sized=True,
            bus_factor=lambda n: 1.0,
        ),
        OperationSpec(
            name="send_recv",
            doc="Every rank sends its buffer to the next rank and receives the previous rank's.",
            sized=True,
            bus_factor=lambda n: 1.0,
            min_ranks=2,
        ),
        OperationSpec(
            name="mix",
            doc="Replicas move towards their mean by a doubly stochastic exchange (gossip).",
            sized=True,
            min_ranks=2,
        ),
        OperationSpec(
            name="norm_layer",
            doc="Row-parallel linear layers: partial product, sum over ranks, RMSNorm.",
            sized=False,
        ),
        OperationSpec(
            name="linear_attention",
            doc="Gated linear attention over a sequence that is split between ranks.",
            sized=False,
        ),
        OperationSpec(
            name="sequence_attention",
            doc="Softmax attention over a sequence that is split between ranks.",
            sized=False,
        ),
        OperationSpec(
            name="strided_exchange",
            doc="A strided block is packed, sent to the next rank, and unpacked there.",
            sized=False,
        ),
        OperationSpec(
            name="matrix_product",
            doc="A matrix product on a square grid of ranks, one block of each matrix on each.",
            sized=False,
        ),
        OperationSpec(
            name="churn",
            doc="A sequence of all-reduces during which a peer is killed and another joins.",
            sized=True,
            min_ranks=3,
            scenario=True,
        ),
        OperationSpec(
            name="fault_localisation",
            doc="Training-like steps with one injected fault; who detects it, when, and whom it blames.",
            sized=True,
            min_ranks=2,
            scenario=True,
        ),
    )
}
