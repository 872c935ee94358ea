"""The metrics of the family and their contracts, and the figures that reports derive from them."""

from __future__ import annotations

from paceline.families.kernels.workloads import WORKLOADS
from paceline.family import DerivedMetric, Metric, Params

METRICS: tuple[Metric, ...] = (
    Metric(
        name="latency",
        unit="s",
        better="lower",
        doc="Time of one call.",
        contract={
            "timer": "device events on accelerators, the host's performance counter on CPUs",
            "sample": "one pass over R prepared sets of inputs, divided by R; R is equal for all techniques of a block",
            "start": "first call on an idle device; on accelerators behind a kernel that waits while launches queue up",
            "stop": "when the device has finished the last call",
            "excluded": "inputs, poisoned outputs, packing of weights, verification",
            "check": "a clock in another process accounts for the pass; all outputs of all timed calls are verified",
        },
        margin=0.02,
    ),
    Metric(
        name="relative_error",
        unit="ratio",
        better="lower",
        doc="‖output − reference‖ / ‖reference‖ in float64, the worst output of all timed calls.",
        contract={"reference": "float64", "norm": "L2 over one output tensor"},
        statistic="max",
        compared_by="difference",
    ),
    Metric(
        name="extra_memory",
        unit="B",
        better="lower",
        doc="Memory that one call needs beside its inputs and outputs, at its peak.",
        contract={
            "cpu": "growth of the peak resident set (VmHWM) in one call on a trimmed heap, read from another process",
            "accelerator": "peak of torch's allocator during one call minus what was allocated before",
        },
        statistic="max",
    ),
    Metric(
        name="weight_bytes",
        unit="B",
        better="lower",
        doc="Bytes of the packed weights that the technique keeps.",
        contract={
            "read": "the tensors that pack() returned, each storage once, and what else it kept in memory"
        },
        statistic="max",
    ),
)


def _flops_per_s(params: Params, seconds: float) -> float | None:
    flops = WORKLOADS[str(params["op"])].flops(params)
    return flops / seconds if flops and seconds > 0 else None


def _bytes_per_s(params: Params, seconds: float) -> float | None:
    return WORKLOADS[str(params["op"])].traffic(params) / seconds if seconds > 0 else None


DERIVED: tuple[DerivedMetric, ...] = (
    DerivedMetric(
        name="arithmetic_rate",
        unit="FLOP/s",
        source="latency",
        formula="operations that the result needs / t",
        compute=_flops_per_s,
    ),
    DerivedMetric(
        name="bandwidth",
        unit="B/s",
        source="latency",
        formula="compulsory bytes / t",
        compute=_bytes_per_s,
    ),
)
