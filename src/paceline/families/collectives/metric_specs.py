"""The metrics of the family, each with the contract that says exactly how it is measured; free of torch."""

from __future__ import annotations

from paceline.base.family import Metric

_HOST_CLOCK = {
    "timer": "host monotonic performance counter, captured before any technique is imported",
    "synchronise": "device synchronised before start and before stop",
    "start": "all ranks leave together at an instant of rank 0's clock (clock offsets from the fastest ping-pong)",
    "stop": "the technique's call has returned and the device is idle",
    "after": "no rank verifies before all ranks have stopped",
    "excludes": "filling inputs, poisoning outputs, verification",
    "ranks": "maximum over ranks for each call, then the statistic over calls",
}
_COUNTED = {
    "counter": "payload bytes handed to the carrier, counted by the communicator outside the technique",
    "excludes": "the harness's own messages, transport headers",
    "ranks": "the busiest rank",
}
_ERROR = {
    "reference": "float64 result computed from all ranks' inputs outside the technique",
    "ranks": "the worst rank",
    "calls": "timed calls themselves",
}
_SPLIT = {
    "timer": "host performance counter around the technique's labelled spans, communication subtracted",
    "calls": "separate profiled calls after the timed ones",
    "ranks": "maximum over ranks",
}
_SCENARIO = {
    "timer": "host monotonic clock of the observing process, not of the peer",
    "sample": "one scripted scenario with a seeded schedule",
}


def _seconds(name: str, doc: str, contract: dict[str, str], margin: float = 0.02) -> Metric:
    return Metric(name=name, unit="s", better="lower", doc=doc, contract=contract, margin=margin)


def _bytes(name: str, doc: str, contract: dict[str, str]) -> Metric:
    return Metric(name=name, unit="B", better="lower", doc=doc, contract=contract)


METRICS: tuple[Metric, ...] = (
    _seconds("latency", "Time of one call.", _HOST_CLOCK),
    _seconds(
        "bare_loop_s",
        "Time of the backend's all-reduce in a loop without the harness, in the same rounds.",
        {
            "timer": "host monotonic performance counter",
            "synchronise": "device synchronised before start and before stop",
            "start": "right after an untimed call",
            "after": "no rank goes on before all ranks have stopped",
            "ranks": "maximum over ranks for each call, then the statistic over calls",
        },
    ),
    _bytes("wire_bytes", "Payload bytes that the busiest rank sends in one call.", _COUNTED),
    _bytes(
        "wire_bytes_total",
        "Payload bytes that all ranks send in one call.",
        {**_COUNTED, "ranks": "sum"},
    ),
    _bytes(
        "link_bytes",
        "Payload bytes over the busiest directed pair of ranks in one call.",
        {**_COUNTED, "ranks": "maximum over ordered pairs"},
    ),
    _bytes(
        "inter_group_bytes",
        "Payload bytes that cross from one group of ranks to another in one call.",
        {**_COUNTED, "ranks": "sum over ordered pairs in different groups of `group_ranks`"},
    ),
    Metric(
        name="messages",
        unit="messages",
        better="lower",
        doc="Messages that the busiest rank sends in one call.",
        contract=_COUNTED,
    ),
    _bytes(
        "kernel_bytes",
        "Bytes that the kernel counted on the busiest rank's interface in one call, headers included.",
        {
            "counter": "transmit bytes of the interface in the rank's own network namespace",
            "calls": "a run of untimed calls, divided by their number",
            "ranks": "the busiest rank",
        },
    ),
    _bytes(
        "kernel_bytes_total",
        "Bytes that the kernel counted on all ranks' interfaces in one call, headers included.",
        {
            "counter": "transmit bytes of the ranks' interfaces, or of the loopback that they share",
            "calls": "a run of untimed calls, divided by their number",
            "ranks": "sum",
        },
    ),
    Metric(
        name="relative_l2_error",
        unit="ratio",
        better="lower",
        doc="‖out − ref‖₂ / ‖ref‖₂.",
        contract=_ERROR,
        compared_by="difference",
    ),
    Metric(
        name="max_error",
        unit="ratio",
        better="lower",
        doc="max |out − ref| / max |ref|.",
        contract=_ERROR,
        compared_by="difference",
    ),
    Metric(
        name="bias",
        unit="ratio",
        better="neither",
        doc="mean(out − ref) / mean |ref|.",
        contract=_ERROR,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gain",
        unit="ratio",
        better="neither",
        doc="⟨out, ref⟩ / ‖ref‖²: what a call leaves of the truth; 1 on average where a codec is unbiased.",
        contract=_ERROR,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gain_score",
        unit="1",
        better="neither",
        doc="Standard errors between 1 and the mean gain of a launch's timed calls; within ±3 if unbiased.",
        contract=_ERROR | {"spread": "of the launch's calls among each other, which draw anew"},
        statistic="mean",
        compared_by="difference",
    ),
    _seconds("compress_s", "Time in the technique's compression spans.", _SPLIT),
    _seconds("communicate_s", "Time inside the communicator.", _SPLIT),
    _seconds("decompress_s", "Time in the technique's decompression spans.", _SPLIT),
    _seconds("pack_s", "Time in the technique's packing spans.", _SPLIT),
    _seconds("unpack_s", "Time in the technique's unpacking spans.", _SPLIT),
    _seconds(
        "exposed_s",
        "Communication that computation does not hide: time with communication minus time without.",
        {**_HOST_CLOCK, "without": "the same calls with a communicator that moves nothing"},
    ),
    Metric(
        name="spread_ratio",
        unit="ratio",
        better="lower",
        doc="Sum of squared distances from the mean after one exchange, over the same before it.",
        contract={"reference": "float64, all ranks' buffers before and after the call"},
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="held_bytes",
        unit="B",
        better="lower",
        doc="Buffers of a call and what it needs beside them, on the rank that needs most.",
        contract={
            "read": "least growth of the peak resident set (VmHWM) in three calls on a trimmed heap, plus the buffers",
            "across ranks": "maximum",
        },
        statistic="max",
    ),
    Metric(
        name="norm_rows",
        unit="rows",
        better="lower",
        doc="Rows that the busiest rank normalises in one call.",
        contract={"counter": "rows passed to the problem's RMSNorm", "ranks": "the busiest rank"},
    ),
    _seconds(
        "fault_free_s",
        "Median time of one all-reduce before the fault.",
        {**_SCENARIO, "ranks": "maximum over peers"},
    ),
    _seconds(
        "recovery_s",
        "From the kill until the last survivor has the correct result of the retried operation.",
        {**_SCENARIO, "ranks": "maximum over survivors"},
    ),
    Metric(
        name="recovery_steps",
        unit="ratio",
        better="lower",
        doc="recovery_s over fault_free_s.",
        contract=_SCENARIO,
    ),
    Metric(
        name="survived",
        unit="ratio",
        better="higher",
        doc="1 when all survivors finish every operation with the correct result without a new process.",
        contract=_SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="state_parity",
        unit="ratio",
        better="higher",
        doc="1 when all peers, the late joiner included, end with the same SHA-256 of their state.",
        contract=_SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="joined",
        unit="ratio",
        better="higher",
        doc="1 when the late joiner takes part in a later operation with the correct result.",
        contract=_SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    _bytes("resent_bytes", "Payload bytes sent for operations that were aborted.", _SCENARIO),
    Metric(
        name="overhead",
        unit="ratio",
        better="lower",
        doc="Median step time with tracing and watching, over the same without, in alternating segments.",
        contract={**_SCENARIO, "ranks": "the slowest rank's median of each segment"},
    ),
    _seconds("detection_s", "From the fault to the first alarm.", _SCENARIO),
    Metric(
        name="detected",
        unit="ratio",
        better="higher",
        doc="1 when an alarm is raised within 15 s of the fault (without a fault: 1 when none is raised).",
        contract=_SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="named",
        unit="ratio",
        better="higher",
        doc="1 when the guilty rank, or an end of the slow link, is named within 20 s of the fault.",
        contract=_SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
)
