"""Metrics of other tools, each under a contract of its own, so that no series ever joins one of ours.

The contracts say what the tools' own documentation says. Nothing here was timed, counted or verified by Paceline.
"""

from __future__ import annotations

from typing import Literal

from paceline.base.families.family import Family, Metric, Parameter, Params

Better = Literal["lower", "higher", "neither"]


def _metric(name: str, unit: str, better: Better, doc: str, tool: str, definition: str) -> Metric:
    contract = {"tool": tool, "definition": definition, "verified": "no: imported"}
    return Metric(name=name, unit=unit, better=better, doc=doc, contract=contract)


_NCCL = "nccl-tests"
_PYTEST = "pytest-benchmark"
_OSU = "OSU micro-benchmarks"
_SINGLE = (
    "one iteration by CUDA events, the slowest process of each; without iterations that the tool's -K skips"
)
_ITERATIONS = "average over the iterations of one size, then reduced over ranks as the tool's options say"
_ROUNDS = "one round, divided by its iterations"
_SUMMARY = "the tool's own summary of its rounds, which the file does not hold"
_RANKS = "average over iterations, then over ranks"

METRICS: tuple[Metric, ...] = (
    _metric("time", "s", "lower", "Time of one call.", _NCCL, _ITERATIONS),
    _metric("cpu_time", "s", "lower", "Time until the host has launched one call.", _NCCL, _ITERATIONS),
    _metric("algbw", "B/s", "higher", "Algorithm bandwidth, size over time.", _NCCL, _ITERATIONS),
    _metric(
        "busbw", "B/s", "higher", "Bus bandwidth, algbw times the operation's factor.", _NCCL, _ITERATIONS
    ),
    _metric("iteration_time", "s", "lower", "Time of one iteration (-I 1).", _NCCL, _SINGLE),
    _metric("iteration_min", "s", "lower", "Fastest iteration.", _NCCL, f"least of: {_SINGLE}"),
    _metric("iteration_max", "s", "lower", "Slowest iteration.", _NCCL, f"largest of: {_SINGLE}"),
    _metric("iteration_p99", "s", "lower", "99th percentile.", _NCCL, f"nearest rank of: {_SINGLE}"),
    _metric(
        "iteration_cv",
        "ratio",
        "lower",
        "Spread of the iterations: standard deviation over mean.",
        _NCCL,
        f"over: {_SINGLE}",
    ),
    _metric("round_time", "s", "lower", "Time of one round.", _PYTEST, _ROUNDS),
    _metric("reported_mean", "s", "lower", "Mean of the rounds.", _PYTEST, _SUMMARY),
    _metric("reported_median", "s", "lower", "Median of the rounds.", _PYTEST, _SUMMARY),
    _metric("reported_min", "s", "lower", "Fastest round.", _PYTEST, _SUMMARY),
    _metric("reported_max", "s", "lower", "Slowest round.", _PYTEST, _SUMMARY),
    _metric("avg_latency", "s", "lower", "Average latency.", _OSU, _RANKS),
    _metric("min_latency", "s", "lower", "Latency of the fastest rank.", _OSU, "average over iterations"),
    _metric("max_latency", "s", "lower", "Latency of the slowest rank.", _OSU, "average over iterations"),
    _metric("latency_p50", "s", "lower", "Median latency.", _OSU, "percentile over iterations"),
    _metric(
        "latency_p90", "s", "lower", "90th percentile of the latency.", _OSU, "percentile over iterations"
    ),
    _metric(
        "latency_p99", "s", "lower", "99th percentile of the latency.", _OSU, "percentile over iterations"
    ),
    _metric("bandwidth", "B/s", "higher", "Bandwidth.", _OSU, "bytes over time of all windows"),
    _metric("message_rate", "messages/s", "higher", "Messages in a second.", _OSU, "messages over time"),
    _metric("overall", "s", "lower", "Non-blocking call with computation.", _OSU, _RANKS),
    _metric("compute", "s", "lower", "Computation beside a non-blocking call.", _OSU, _RANKS),
    _metric("coll_init", "s", "lower", "Start of a non-blocking call.", _OSU, _RANKS),
    _metric("mpi_test", "s", "lower", "Time in MPI_Test.", _OSU, _RANKS),
    _metric("mpi_wait", "s", "lower", "Time in MPI_Wait.", _OSU, _RANKS),
    _metric("pure_comm", "s", "lower", "Non-blocking call without computation.", _OSU, _RANKS),
    _metric("overlap", "ratio", "higher", "Share of communication that computation hides.", _OSU, _RANKS),
)


def _check(params: Params) -> list[str]:
    return ["the imported family holds other tools' numbers; it cannot be measured"]


def _estimate_s(params: Params) -> float:
    return 0.0


FAMILY = Family(
    name="imported",
    summary="Numbers of other tools, kept as they were written; never verified here.",
    parameters=(
        Parameter(name="op", kind="text", doc="What the tool says that it measured.", required=True),
        Parameter(name="ranks", kind="count", doc="Number of ranks, where it is known.", minimum=1),
    ),
    metrics=METRICS,
    default_metrics=("time",),
    operation_key="op",
    check=_check,
    estimate_s=_estimate_s,
    internal=True,
)
