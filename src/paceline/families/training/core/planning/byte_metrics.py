"""Metrics of what ranks send, and what beside the communicator knows of it, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.training.core.planning.contracts import BYTES

BYTE_METRICS: tuple[Metric, ...] = (
    Metric(
        name="wire_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends in one step, averaged over the whole run.",
        contract=BYTES | {"sample": "bytes of the run over its steps"},
        statistic="mean",
    ),
    Metric(
        name="peak_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends in the step in which it sends most.",
        contract=BYTES | {"sample": "the largest step of the run"},
        statistic="max",
    ),
    Metric(
        name="messages",
        unit="messages",
        better="lower",
        doc="Messages that the busiest rank sends in one step, averaged over the whole run.",
        contract=BYTES | {"sample": "messages of the run over its steps"},
        statistic="mean",
    ),
    Metric(
        name="bisection_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that go from the first half of the ranks to the second or back in one step, averaged over "
        "the whole run: what leaves a node where there are two.",
        contract={
            "counter": BYTES["counter"],
            "ranks": "sum over ordered pairs of which one is in each half of consecutive ranks",
            "sample": "bytes of the run over its steps",
        },
        statistic="mean",
    ),
    Metric(
        name="backend_calls",
        unit="calls",
        better="lower",
        doc="Calls of the backend's own collectives in one step, averaged over the whole run; their messages are not "
        "known.",
        contract={
            "counter": "calls through the communicator, those of DistributedDataParallel's reducer among them",
            "ranks": "the rank that calls most",
            "sample": "calls of the run over its steps; absent where a library calls by itself",
        },
        statistic="mean",
    ),
    Metric(
        name="backend_bytes",
        unit="B",
        better="lower",
        doc="Bytes of the tensors that the busiest rank hands to the backend's own collectives in one step, averaged "
        "over the whole run: what is handed over, and not what travels for it.",
        contract={
            "counter": "the tensors that calls through the communicator give: what is summed, gathered, scattered or "
            "exchanged, of a broadcast on its root; what calls fill is not counted",
            "ranks": "the rank that hands over most",
            "sample": "bytes of the run over its steps; absent where a library calls by itself",
        },
        statistic="mean",
    ),
    Metric(
        name="pass_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends during forward and backward of one step: activations and their "
        "gradients, where the family's own code runs both.",
        contract=BYTES | {"sample": "bytes of all forward_backward calls over their number"},
        statistic="mean",
    ),
    Metric(
        name="pass_link_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that go from one rank to another, for the pair and direction that carries most, during "
        "forward and backward of one step, where the family's own code runs both.",
        contract=BYTES
        | {
            "ranks": "the ordered pair that carries most",
            "sample": "bytes of all forward_backward calls over their number",
        },
        statistic="mean",
    ),
    Metric(
        name="kernel_bytes_total",
        unit="B",
        better="lower",
        doc="Bytes that the kernel counted on all ranks' interfaces in one step, averaged over the run.",
        contract={
            "counter": "transmitted bytes of the ranks' interfaces for data, frame headers included",
            "sample": "difference over the whole run, over its steps; only where each rank has interfaces of its own",
        },
        statistic="mean",
    ),
    Metric(
        name="kernel_payload_bytes",
        unit="B",
        better="lower",
        doc="kernel_bytes_total without the headers of packets: what TCP carried for the techniques' carrier.",
        contract={
            "counter": "transmitted bytes of the ranks' interfaces for data less 66 for each packet: Ethernet 14, IPv4 "
            "20, TCP 20, its timestamps 12; an offload packet has one header, an acknowledgement nothing else",
            "sample": "difference over the whole run, over its steps; only where each rank has interfaces of its own",
        },
        statistic="mean",
    ),
    Metric(
        name="kernel_over_counted",
        unit="ratio",
        better="neither",
        doc="Bytes that the kernel carried over those that the communicator counted, all ranks, the whole run: just "
        "above 1, by headers; below 1 is refused.",
        contract={
            "kernel": "transmitted bytes of the ranks' interfaces for data, frame headers included",
            "communicator": "payload bytes that pass through it, in the same steps",
            "sample": "of the whole run; only where each rank has an interface for the techniques' messages alone, and "
            "no backend's own collective was called",
        },
        statistic="mean",
    ),
)
