"""Metrics of timed calls and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, TIME_MARGIN, Metric

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
        margin=TIME_MARGIN,
    ),
    Metric(
        name="host_latency",
        unit="s",
        better="lower",
        doc="Time of one call by the host's clock, launches included.",
        contract={
            "timer": "the host's performance counter, on accelerators; on CPUs latency itself is timed so",
            "sample": "one call on an idle device",
            "start": "before the first launch",
            "stop": "when the host knows that the device has finished",
            "check": "a clock in another process accounts for the call; its outputs are verified",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="graph_latency",
        unit="s",
        better="lower",
        doc="Time of one call replayed as a graph of the device's work.",
        contract={
            "timer": "device events around replays, back to back, of a graph that holds one call",
            "sample": "replays for about two milliseconds (10 to 1000) on one set of inputs, divided by their number",
            "caches": "hold what a call leaves in them",
            "check": "inputs change between capture and replay, and from sample to sample; outputs are verified",
            "absent": "where the device has no graphs, and for calls that decide on the host or synchronise",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="profiled_time",
        unit="s",
        better="lower",
        doc="Time of one call that torch.profiler attributes to kernels, or to operators on a CPU.",
        contract={
            "timer": "torch.profiler: kernels, copies and fills on an accelerator; operators by themselves on a CPU",
            "sample": "one call; gaps between kernels, and Python between operators, are not in it",
            "overhead": "on a CPU recording an operator takes about a microsecond, which is in it",
            "check": "the profiler's modules are sealed; outputs are verified",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="calibrated_fraction",
        clock="machine",
        unit="ratio",
        better="higher",
        doc="Share of the rate calibrated in the same launch that a kernel reaches, of operations or of memory.",
        contract={
            "model": "max(operations / best matrix product, compulsory bytes / best copy), over the median latency",
            "rates": "the best matrix product and the best copy of the same launch, by the host's clock",
            "caches": "bytes are held against memory: calls that find their operands in caches may exceed 1",
        },
    ),
    Metric(
        name="datasheet_fraction",
        clock="machine",
        unit="ratio",
        better="higher",
        doc="Share of the vendor's rate that a kernel reaches, of operations or of memory, whichever binds.",
        contract={
            "model": "max(operations / rate of the dtype, compulsory bytes / rate of memory), over the median latency",
            "rates": "dense, from the vendor's datasheet or else a named report; absent where none is listed",
            "caches": "bytes are held against memory: calls that find their operands in caches may exceed 1",
        },
    ),
    Metric(
        name="torch_benchmark_s",
        unit="s",
        better="lower",
        doc="Time of one call by torch.utils.benchmark, in the same rounds (calibration).",
        contract={
            "timer": "torch.utils.benchmark.Timer.timeit: repeated calls on one set of arguments",
            "sample": "one block of calls that lasts about two milliseconds, divided",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="do_bench_s",
        unit="s",
        better="lower",
        doc="Time of one call by triton.testing.do_bench, in the same rounds (calibration).",
        contract={
            "timer": "triton.testing.do_bench: device events around each call on one set of arguments",
            "sample": "the median of the calls of a tenth of a second",
            "caches": "the second-level cache is emptied before each call",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="relative_error",
        unit="ratio",
        bounds=NOT_NEGATIVE,
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
            "cpu": "least growth of the peak resident set (VmHWM) in four calls, on a heap without free blocks of 64 "
            "KiB and more, read from another process",
            "accelerator": "peak of torch's allocator during one call minus what was allocated before",
        },
        statistic="max",
    ),
)
"""Of all operations whose calls are timed, in the order of tables."""
WEIGHT_BYTES = Metric(
    name="weight_bytes",
    unit="B",
    better="lower",
    doc="Bytes of the packed weights that the technique keeps.",
    contract={"read": "the tensors that pack() returned, each storage once, and what else it kept in memory"},
    statistic="max",
)
"""Of operations with weights that a technique may pack ahead of time."""
