"""Metrics that several collectives have, each with the contract that says exactly how it is measured; free of torch."""

from __future__ import annotations

from dataclasses import replace

from paceline.base.families.family import ANY, NOT_NEGATIVE, TIME_MARGIN, Metric

HOST_CLOCK = {
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
SCENARIO = {
    "timer": "host monotonic clock of the observing process, not of the peer",
    "sample": "one scripted scenario with a seeded schedule",
}


def seconds(name: str, doc: str, contract: dict[str, str], margin: float = TIME_MARGIN) -> Metric:
    """Return a metric that is a time."""
    return Metric(name=name, unit="s", better="lower", doc=doc, contract=contract, margin=margin)


def payload_bytes(name: str, doc: str, contract: dict[str, str]) -> Metric:
    """Return a metric that is a number of payload bytes."""
    return Metric(name=name, unit="B", better="lower", doc=doc, contract=contract)


LATENCY = seconds("latency", "Time of one call.", HOST_CLOCK)
WIRE: tuple[Metric, ...] = (
    payload_bytes("wire_bytes", "Payload bytes that the busiest rank sends in one call.", _COUNTED),
    payload_bytes(
        "wire_bytes_total",
        "Payload bytes that all ranks send in one call.",
        {**_COUNTED, "ranks": "sum"},
    ),
    payload_bytes(
        "link_bytes",
        "Payload bytes over the busiest directed pair of ranks in one call.",
        {**_COUNTED, "ranks": "maximum over ordered pairs"},
    ),
)
"""What the communicator counts."""
INTER_GROUP_BYTES = payload_bytes(
    "inter_group_bytes",
    "Payload bytes that cross from one group of ranks to another in one call.",
    {**_COUNTED, "ranks": "sum over ordered pairs in different groups of `group_ranks`"},
)
MESSAGES = Metric(
    name="messages",
    unit="messages",
    better="lower",
    doc="Messages that the busiest rank sends in one call.",
    contract=_COUNTED,
)
KERNEL: tuple[Metric, ...] = (
    payload_bytes(
        "kernel_bytes",
        "Bytes that the kernel counted on the busiest rank's interface in one call, headers included.",
        {
            "counter": "transmit bytes of the interface in the rank's own network namespace",
            "calls": "a run of untimed calls, divided by their number",
            "ranks": "the busiest rank",
        },
    ),
    payload_bytes(
        "kernel_bytes_total",
        "Bytes that the kernel counted on all ranks' interfaces in one call, headers included.",
        {
            "counter": "transmit bytes of the ranks' interfaces, or of the loopback that they share",
            "calls": "a run of untimed calls, divided by their number",
            "ranks": "sum",
        },
    ),
)
"""What the kernel counts."""
ERRORS: tuple[Metric, ...] = (
    Metric(
        name="relative_l2_error",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="‖out − ref‖₂ / ‖ref‖₂.",
        contract=_ERROR,
        compared_by="difference",
    ),
    Metric(
        name="max_error",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="max |out − ref| / max |ref|.",
        contract=_ERROR,
        compared_by="difference",
    ),
    Metric(
        name="bias",
        unit="ratio",
        bounds=ANY,
        better="neither",
        doc="mean(out − ref) / mean |ref|.",
        contract=_ERROR,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gain",
        unit="ratio",
        bounds=ANY,
        better="neither",
        doc="⟨out, ref⟩ / ‖ref‖²: what a call leaves of the truth; 1 on average where a codec is unbiased.",
        contract=_ERROR,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="bias_z",
        unit="1",
        bounds=ANY,
        better="neither",
        doc="Standard errors between 1 and the mean gain of a launch's timed calls; within ±3 if unbiased.",
        contract=_ERROR | {"spread": "of the launch's calls among each other, which draw anew"},
        statistic="mean",
        compared_by="difference",
    ),
)
"""What lossy techniques leave of the result."""
SPLIT: tuple[Metric, ...] = (
    seconds("compress_s", "Time in the technique's compression spans.", _SPLIT),
    seconds("communicate_s", "Time inside the communicator.", _SPLIT),
    seconds("decompress_s", "Time in the technique's decompression spans.", _SPLIT),
    seconds("pack_s", "Time in the technique's packing spans.", _SPLIT),
    seconds("unpack_s", "Time in the technique's unpacking spans.", _SPLIT),
)
"""Where the time of a call goes."""
EXPOSED_S = replace(
    seconds(
        "exposed_s",
        "Communication that computation does not hide: time with communication minus time without.",
        {**HOST_CLOCK, "without": "the same calls with a communicator that moves nothing"},
    ),
    bounds=ANY,
)
"""A difference of two times: noise takes it below zero where everything is hidden."""

CALL = (LATENCY, *WIRE, MESSAGES, *KERNEL, *SPLIT)
"""Of every timed call."""
LOSSY_CALL = (LATENCY, *WIRE, MESSAGES, *KERNEL, *ERRORS, *SPLIT)
"""Of a call that a lossy technique may do."""
GROUPED_CALL = (LATENCY, *WIRE, INTER_GROUP_BYTES, MESSAGES, *KERNEL, *SPLIT)
"""Of a call whose ranks may form groups."""
GROUPED_LOSSY_CALL = (LATENCY, *WIRE, INTER_GROUP_BYTES, MESSAGES, *KERNEL, *ERRORS, *SPLIT)
"""Of a call whose ranks may form groups, and that a lossy technique may do."""
